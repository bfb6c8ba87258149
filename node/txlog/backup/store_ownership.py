"""Whether a store is of this cluster. Nothing empties one that is not, unless a person has decided so (rule 30)."""

from __future__ import annotations

from collections.abc import Sequence

from txlog.backup.backup_errors import BackupFault, LogIncomplete, StoreRefused
from txlog.backup.chain_check import ChainCheck
from txlog.backup.dataset_load import RestoreTarget
from txlog.backup.pinned_snapshot import read_system_graphs
from txlog.client import MasterClient, WorkerStatus
from txlog.client.first_answer import ask_in_turn
from txlog.model.entry import Position
from txlog.model.errors import LogNeedsRestore
from txlog.model.hashes import CLUSTER_ID_BYTES
from txlog.workers.adapter import EMPTY_MARKER, MarkerPosition


def cluster_id_bytes(text: str) -> bytes:
    """A cluster's id as a marker stores it; empty for a text that is none."""
    try:
        found = bytes.fromhex(text)
    except ValueError:
        return b""
    return found if len(found) == CLUSTER_ID_BYTES else b""


def refuse_other_store(into: RestoreTarget, cluster: str, on_chain: ChainCheck) -> None:
    """:class:`StoreRefused` unless all that the store holds came from a log of this cluster. A marker without a cluster
    has to be on the log's chain. A store that a load was emptying already holds nothing whole any more."""
    system = read_system_graphs(into.adapter, into.transport)
    markers = [*system.markers, *(each.since for each in system.loading if each.since is not None)]
    for marker in markers:
        _refuse_other_marker(into, marker, cluster, on_chain)
    if markers or system.loading:
        return
    if not into.adapter.parse_is_empty(into.transport.send(into.adapter.is_empty())):
        raise StoreRefused(f"ForeignStore: {into.name} holds data that TxLog did not write; {_NEXT.format(into.name)}")


_NEXT = "to delete it: txlog worker rebuild {} --discard"


def _refuse_other_marker(into: RestoreTarget, marker: MarkerPosition, cluster: str, on_chain: ChainCheck) -> None:
    at, mine = marker.position, cluster_id_bytes(cluster)
    if marker.cluster and mine and marker.cluster != mine:
        raise StoreRefused(
            f"OtherCluster: {into.name} holds the data of the cluster {marker.cluster.hex()} up to index {at.index}, "
            f"this one is {cluster}; to keep it: txlog worker adopt {into.name}; {_NEXT.format(into.name)}"
        )
    if marker.cluster or at == EMPTY_MARKER.position:
        return
    try:
        on_chain(at)
    except BackupFault as wrong:
        raise StoreRefused(
            f"UnknownPosition: {into.name} is at index {at.index}, which no log of this cluster is known to have had "
            f"({wrong}); to keep it: txlog worker adopt {into.name}; {_NEXT.format(into.name)}"
        ) from wrong


def first_position(masters: Sequence[MasterClient]) -> Position:
    """The position before the first entry of the log. :class:`LogIncomplete` where the log is kept from a later one."""
    try:
        page = ask_in_turn(
            masters, lambda master: master.log_page(0, None, 0), "no master answers where the log begins"
        )
    except LogNeedsRestore as wrong:
        raise LogIncomplete(f"{wrong}; the log alone cannot fill a store") from wrong
    return page.after


def refuse_incomplete_log(
    into: RestoreTarget, workers: Sequence[WorkerStatus], masters: Sequence[MasterClient]
) -> Position:
    """The position at which a store begins that the log alone fills. :class:`LogIncomplete` where the log is not all
    that the workers hold: its beginning is trimmed, or they had content before its first entry."""
    markers = read_system_graphs(into.adapter, into.transport).markers
    based = [into.name] if any(marker.base for marker in markers) else []
    based += [each.name for each in workers if each.position is not None and each.position.base]
    if based:
        raise LogIncomplete(
            f"{', '.join(sorted(set(based)))} had content before the first entry of this log; the log alone cannot "
            "fill a store: restore a backup, or copy a worker"
        )
    return first_position(masters)
