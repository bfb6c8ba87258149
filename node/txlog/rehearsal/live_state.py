"""What the cluster holds now: a live worker's content at its place of the log, and how much a loss would cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from txlog.archive.file_name import Node
from txlog.archive.path import find_paths
from txlog.archive.stream import Stream
from txlog.backup.pinned_snapshot import SourceWorker, open_snapshot
from txlog.backup.worker_lookup import READ_TIMEOUT_S, find_worker
from txlog.client import MasterClient
from txlog.config.units import parse_duration
from txlog.model.errors import LogNeedsRestore, TxLogError, Unavailable
from txlog.model.stamp import stamp_ms
from txlog.rehearsal.verdict import PlacedDigest
from txlog.workers import ADAPTERS
from txlog.workers.digest import digest
from txlog.workers.http_transport import HttpTransport


class LiveState(NamedTuple):
    """``rpo_s``: seconds of transactions that a loss of everything at the beginning would have cost."""

    worker: str
    engine: str
    held: PlacedDigest
    rpo_s: float


def read_live_state(masters: Sequence[MasterClient], stream: Stream) -> LiveState:
    """The most advanced worker, which is paused for as long as a snapshot takes to open. Raises what the masters, the
    worker and the target raise."""
    rpo_s = measure_rpo(masters, stream)
    worker = find_worker(masters, None)
    engine = worker.engine or "oxigraph"
    with ExitStack() as closing:
        transport = closing.enter_context(HttpTransport(worker.url, READ_TIMEOUT_S))
        source = SourceWorker(worker.name, ADAPTERS[engine], transport, masters)
        marker, chunks = closing.enter_context(open_snapshot(source))
        found = digest(chunks)
    at = marker.position
    return LiveState(worker.name, engine, PlacedDigest(Node(at.index, at.hash), found), rpo_s)


def measure_rpo(masters: Sequence[MasterClient], stream: Stream, now: Callable[[], float] = time.time) -> float:
    """The age in seconds of the oldest stable entry that the target does not hold; 0 when it holds all of them. The
    target is listed first, so what becomes stable meanwhile counts as lost. No report of an archiver is believed."""
    starts = stream.read_starts()
    heads = (
        find_paths([each.name for each in stream.list_files(starts)], starts.all).heads if starts is not None else []
    )
    master, stable = _first_answering(masters)
    head = max((each.index for each in heads if each.index <= stable and _is_on_log(master, each)), default=0)
    if head >= stable:
        return 0.0
    try:
        oldest = master.log_page(head, upto=head + 1).entries[0]
    except LogNeedsRestore:  # a gap: at least what the master still has would be lost
        trim = master.status().trim or {}
        first = int(trim.get("servedFrom", trim.get("keptFrom", stable - 1)))
        oldest = master.log_page(first, upto=first + 1).entries[0]
    return max(0.0, now() - stamp_ms(oldest.stamp) / 1000)


def read_key_retention_ms(masters: Sequence[MasterClient]) -> int:
    """How long idempotency keys count in this cluster, in milliseconds."""
    return parse_duration(_first_answering(masters)[0].configuration()["keyRetention"])


def _first_answering(masters: Sequence[MasterClient]) -> tuple[MasterClient, int]:
    last: TxLogError | None = None
    for master in masters:
        try:
            return master, master.status().stable.index
        except TxLogError as error:
            last = error
    raise Unavailable("NoMaster", f"no master answers: {last}; see txlog status")


def _is_on_log(master: MasterClient, head: Node) -> bool:
    """Whether a place is on this master's log. One below the log start counts: what is trimmed was final."""
    if head.index == 0:
        return True
    try:
        return master.log_page(head.index - 1, upto=head.index).entries[0].hash == head.hash
    except LogNeedsRestore:
        return True
