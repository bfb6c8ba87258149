"""One snapshot of ``GET /txlog/live``: what one master knows of the cluster, for a person who watches it.

Unknown fields are ignored, and missing ones have defaults, so that one program reads masters of several releases.
"""

from __future__ import annotations

from typing import Final

import msgspec

from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.errors import PeerFault

_DATA: Final = b"data:"


class LiveViewState(msgspec.Struct, frozen=True, rename="camel"):
    """The view of the answering master. ``holding``: why it cannot change; empty while it can."""

    number: str | None = None
    holding: str = ""
    split_mode: str = ""
    split_recovery: str | None = None


class LiveLog(msgspec.Struct, frozen=True, rename="camel"):
    """Indexes of the log: where it starts and ends, and how far it is stable, final and applied."""

    start: int = 0
    end: int = 0
    stable: int = 0
    settled: int = 0
    applied: int = 0
    applied_all: int = 0


class LiveQueue(msgspec.Struct, frozen=True):
    """Transactions that have no place in the log yet."""

    transactions: int = 0
    bytes: int = 0


class LiveOrigin(msgspec.Struct, frozen=True):
    """How many transactions of one master the log has."""

    node: str
    transactions: int = 0


class LiveLatency(msgspec.Struct, frozen=True):
    """Medians in milliseconds since a transaction was accepted; None: not measured yet."""

    synced: float | None = None
    applied: float | None = None


class LiveMaster(msgspec.Struct, frozen=True, rename="camel"):
    """One master. ``is_self``: it is the answering one; ``present``: it orders transactions together with that one."""

    node: str
    data_center: str = ""
    is_self: bool = msgspec.field(default=False, name="self")
    in_view: bool = False
    present: bool = False
    connected: bool = False
    why: str | None = None


class LiveDifference(msgspec.Struct, frozen=True):
    """A worker that differs. ``graphs``: in how many graphs, None: not known; ``wrong``: this one is to be repaired."""

    graphs: int | None = None
    wrong: bool = False


class LiveWorker(msgspec.Struct, frozen=True, rename="camel"):
    """One worker. ``index``: its position, None: not known; ``hold``: the index at which it is paused."""

    name: str
    data_center: str = ""
    engine: str = ""
    state: str = ""
    index: int | None = None
    hold: int | None = None
    error: str | None = None
    fault: str | None = None
    differs: LiveDifference | None = None
    repair: str | None = None


class LiveFinding(msgspec.Struct, frozen=True):
    """A fault of the links between masters."""

    kind: str = ""
    text: str = ""


class LiveDuty(msgspec.Struct, frozen=True):
    """An open duty of the data centre."""

    kind: str = ""
    why: str = ""
    worker: str | None = None
    error: str | None = None


class LiveTrim(msgspec.Struct, frozen=True, rename="camel"):
    """The journal: its size, its limit, and the first index that it keeps."""

    kept_from: int = 0
    bytes: int = 0
    bytes_max: int = 0
    alarm: bool = False


class LiveSnapshot(msgspec.Struct, frozen=True, rename="camel"):
    """A whole snapshot. ``at``: seconds since 1970 by that master's clock; ``hears``: node id to the ids of the masters
    from which that node receives messages, None: not known."""

    at: float
    node: str
    data_center: str = ""
    repository: str = ""
    state: str = ""
    epoch: int = 0
    view: LiveViewState = LiveViewState()
    log: LiveLog = LiveLog()
    queue: LiveQueue = LiveQueue()
    origins: list[LiveOrigin] = []
    latency_ms: LiveLatency = LiveLatency()
    masters: list[LiveMaster] = []
    workers: list[LiveWorker] = []
    hears: dict[str, list[str] | None] = {}
    findings: list[LiveFinding] = []
    duties: list[LiveDuty] = []
    trim: LiveTrim = LiveTrim()

    def lag_of(self, worker: LiveWorker) -> int | None:
        """How many stable transactions the worker has not executed. None where its position is not known."""
        return None if worker.index is None else max(0, self.log.stable - worker.index)

    def receives(self, node: str, sender: str) -> bool | None:
        """Whether messages of ``sender`` arrive at ``node``. None where the answering master does not know."""
        row = self.hears.get(node)
        return None if row is None else sender in row


_DECODER: Final = msgspec.json.Decoder(LiveSnapshot)


def parse_live(url: str, body: bytes) -> LiveSnapshot:
    """The snapshot in one answer of the master at ``url``. Raises :class:`PeerFault` ``Malformed``."""
    try:
        return _DECODER.decode(body)
    except DECODE_ERRORS as wrong:
        raise PeerFault(url, "Malformed", f"/txlog/live: {wrong}") from None


def parse_live_line(url: str, line: bytes) -> LiveSnapshot | None:
    """The snapshot in one line of the stream of server-sent events; None for a line without one."""
    return parse_live(url, line.removeprefix(_DATA).strip()) if line.startswith(_DATA) else None
