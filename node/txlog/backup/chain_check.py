"""Checks that a backup belongs to this cluster, and that its position is on the log's chain."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from txlog.backup.backup_errors import OffTheChain, OtherCluster
from txlog.backup.backup_manifest import BackupManifest
from txlog.client import MasterClient
from txlog.client.first_answer import ask_in_turn
from txlog.model.entry import Position
from txlog.model.errors import LogAhead, LogDiverged, LogNeedsRestore, NotFound, TxLogError, Unavailable

LAG_S: Final = 10.0
_POLL_S: Final = 0.2
ChainCheck = Callable[[Position], None]
"""Raises :class:`~txlog.backup.backup_errors.OffTheChain`, with the reason, for a position from which the log cannot
continue."""


def make_chain_check(masters: Sequence[MasterClient]) -> ChainCheck:
    """A check that asks the first reachable master."""

    def on_chain(position: Position) -> None:
        try:
            ask_in_turn(
                masters,
                lambda master: master.log_page(position.index, position.hash, position.index),
                f"no master answers whether {position} is on the log",
            )
        except LogDiverged as wrong:
            raise OffTheChain(f"{wrong}; take a backup of this branch (txlog backup list)") from wrong
        except LogAhead as wrong:
            raise OffTheChain(f"{wrong}; take an older backup, or wait until the log is there") from wrong
        except LogNeedsRestore as wrong:
            raise OffTheChain(f"{wrong}; take a newer backup (txlog backup list)") from wrong

    return on_chain


def read_undecided(masters: Sequence[MasterClient], position: Position, wait_s: float = LAG_S) -> list[str]:
    """The synchronous transactions that are undecided at a position, which some of the masters has: others may lag, so
    they are asked again for ``wait_s``. Empty without masters, and from one of an earlier version. Raises the error of
    the last master when none can tell."""
    until = time.monotonic() + wait_s
    while True:
        last: TxLogError | None = None
        for master in masters:
            try:
                found = master.synchro(f"{position.index}:{position.hash.hex()}")
            except NotFound:
                return []
            except TxLogError as error:
                last = error
            else:
                return [str(txid) for txid in found.get("undecidedAt", ())]
        if last is None:
            return []
        if time.monotonic() > until:
            raise last
        time.sleep(_POLL_S)


def read_cluster_id(masters: Sequence[MasterClient]) -> str:
    """The cluster's id, from the first reachable master."""

    def ask(master: MasterClient) -> str:
        found = master.status().cluster_id
        if not found:
            raise Unavailable("NotFounded", f"{master.url} belongs to no cluster yet; wait until it is founded")
        return found

    return ask_in_turn(masters, ask)


def check_cluster(manifest: BackupManifest, cluster: str) -> None:
    """:class:`~txlog.backup.backup_errors.OtherCluster` unless the backup is of this cluster."""
    if manifest.cluster != cluster:
        raise OtherCluster(
            f"{manifest.name} is a backup of the cluster {manifest.cluster}, this one is {cluster}; "
            "take a backup of this cluster"
        )
