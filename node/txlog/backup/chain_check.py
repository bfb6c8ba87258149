"""Checks that a backup belongs to this cluster, and that its position is on the log's chain."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from txlog.backup.backup_errors import OffTheChain, OtherCluster
from txlog.backup.backup_manifest import BackupManifest
from txlog.client import MasterClient, MasterUnreachable
from txlog.model.entry import Position
from txlog.model.errors import LogAhead, LogDiverged, LogNeedsRestore, TxLogError, Unavailable

ChainCheck = Callable[[Position], None]
"""Raises :class:`~txlog.backup.backup_errors.OffTheChain`, with the reason, for a position from which the log cannot
continue."""


def make_chain_check(masters: Sequence[MasterClient]) -> ChainCheck:
    """A check that asks the first reachable master."""

    def on_chain(position: Position) -> None:
        last: TxLogError | None = None
        for master in masters:
            try:
                master.log_page(position.index, position.hash, position.index)
                return
            except (MasterUnreachable, Unavailable) as error:
                last = error
            except LogDiverged as wrong:
                raise OffTheChain(f"{wrong}; take a backup of this branch (txlog backup list)") from wrong
            except LogAhead as wrong:
                raise OffTheChain(f"{wrong}; take an older backup, or wait until the log is there") from wrong
            except LogNeedsRestore as wrong:
                raise OffTheChain(f"{wrong}; take a newer backup (txlog backup list)") from wrong
        raise Unavailable("NoMaster", f"no master answers whether {position} is on the log: {last}; see txlog status")

    return on_chain


def read_cluster_id(masters: Sequence[MasterClient]) -> str:
    """The cluster's id, from the first reachable master."""
    last: TxLogError | None = None
    for master in masters:
        try:
            found = master.status().cluster_id
        except (MasterUnreachable, Unavailable) as error:
            last = error
            continue
        if found:
            return found
        last = Unavailable("NotFounded", f"{master.url} belongs to no cluster yet; wait until it is founded")
    raise last or Unavailable("NoMaster", "no master was named")


def check_cluster(manifest: BackupManifest, cluster: str) -> None:
    """:class:`~txlog.backup.backup_errors.OtherCluster` unless the backup is of this cluster."""
    if manifest.cluster != cluster:
        raise OtherCluster(
            f"{manifest.name} is a backup of the cluster {manifest.cluster}, this one is {cluster}; "
            "take a backup of this cluster"
        )
