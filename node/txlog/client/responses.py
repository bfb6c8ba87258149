"""Typed responses of a master. Unknown fields are ignored, so that an older client reads a newer master's answers."""

from __future__ import annotations

from typing import Any

import msgspec

from txlog.model.entry import Position
from txlog.wire.comparison_report import ComparisonReport
from txlog.wire.divergence_report import DivergenceFinding, RepairStatus


class JsonPosition(msgspec.Struct, frozen=True):
    """A position in JSON form; ``hash`` is hexadecimal."""

    epoch: int
    index: int
    hash: str

    @property
    def position(self) -> Position:
        """The same as a value of the model."""
        return Position(self.epoch, self.index, bytes.fromhex(self.hash))


class JsonMarker(JsonPosition, frozen=True):
    """A worker's marker in JSON form: position, fence, and ``unordered``, positions as ``index:hash``. ``cluster`` and
    ``base`` are hexadecimal; empty where the marker has none."""

    fence: int = 0
    unordered: list[str] = []
    cluster: str = ""
    base: str = ""

    @property
    def unordered_positions(self) -> tuple[tuple[int, bytes], ...]:
        """``unordered`` as pairs of index and chain hash."""
        parts = [position.partition(":") for position in self.unordered]
        return tuple((int(index), bytes.fromhex(value)) for index, _, value in parts)


class RecordedTrace(msgspec.Struct, frozen=True):
    """A transaction that is recorded in a trace, and the header of its span there."""

    txid: str
    index: int
    traceparent: str


class RecordedTraces(msgspec.Struct, frozen=True):
    """The answer of ``GET /txlog/traces``."""

    transactions: list[RecordedTrace]


class ViewReportResponse(msgspec.Struct, frozen=True):
    """What a master would report for a view change. ``report``: the message between masters. It has the log after a
    checkpoint. ``seqs``: the ids of the last transaction of each origin up to there. ``checkpoints``: positions in the
    master's log, as ``index:hash``, from its end backwards."""

    checkpoints: list[str]
    seqs: list[str]
    report: bytes


class WorkerStatus(msgspec.Struct, frozen=True, rename="camel"):
    """A worker as the pipeline last reported it to this master. ``hold``: the pipeline pauses it at this index.
    ``reported_at`` is empty or 0 while nothing was reported. ``fault``: the store ``ended`` or ``stalled`` at the
    transaction ``txid``, or is ``suspected`` to. ``running``: it has not answered yet, and may still execute it."""

    name: str
    url: str = ""
    engine: str = ""
    position: JsonMarker | None = None
    state: str = "Unknown"
    error: str | None = None
    hold: int | None = None
    reported_at: str | float | None = None
    divergence: DivergenceFinding | None = None
    repair: RepairStatus | None = None
    txid: str | None = None
    fault: str | None = None
    running: bool = False
    comparison: ComparisonReport | None = None


class QueueStatus(msgspec.Struct, frozen=True):
    """The queue of a master: number of transactions, and bytes of their payloads."""

    transactions: int = 0
    bytes: int = 0


class DepartedMember(msgspec.Struct, frozen=True):
    """A configured master out of the view. ``why``: left, down, lost, silent or unknown; ``text`` explains it."""

    node: str
    why: str
    text: str = ""


class ViewStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The view of a master. Numbers are ``epoch.ballot.coordinator``. ``stopped``: the view has ended and a view change
    runs (``changing``: this master coordinates it). ``promised``: the master works in no view below it any more.
    ``ahead``: the others are in that view without this master. ``holding``: why a needed view change cannot begin."""

    number: str | None = None
    installed: bool = False
    stopped: bool = False
    promised: str | None = None
    ahead: str | None = None
    changing: str | None = None
    holding: str = ""
    split_mode: str = ""
    split_recovery: str | None = None
    out: list[DepartedMember] = []


class StatusResponse(msgspec.Struct, frozen=True, rename="camel"):
    """``GET /txlog/status``. ``state``: see docs/reference/states-and-reasons.md."""

    node: str
    state: str
    stable: JsonPosition
    log: JsonPosition
    birth: int | str = 0
    start: int = 0
    version: str = ""
    epoch: int = 0
    view: ViewStatus = ViewStatus()
    cluster_id: str | None = None
    queue: QueueStatus = QueueStatus()
    counter: int = 0
    members: list[Any] = []
    present: list[Any] = []
    workers: list[WorkerStatus] = []
    damage: list[Any] = []
    duties: list[dict[str, Any]] = []
    """The open duties, each as ``GET /txlog/duties`` has it."""
    trim: dict[str, Any] | None = None
    """What holds the log back: docs/reference/http-api.md."""
    archive: dict[str, Any] | None = None
    """The streams of the archive, and how far they are; None in a cluster without one."""
    repository: str = ""
    data_center: str = ""
    uptime_seconds: float = 0.0
    native: bool = False
    """The master's performance-critical packages are compiled."""
    applied: int | None = None
    """The index up to which a worker of this data centre has executed the log; None from an earlier version."""
    change_sets: list[dict[str, Any]] | None = None
    """How far the change sets of each data centre are; None in a cluster without any."""


class Doorbell(msgspec.Struct, frozen=True):
    """``GET /txlog/doorbell``: the master's stable index, and the state of its workers. ``tick`` grows while a worker
    lags although no new entry arrives."""

    stable: JsonPosition
    tick: int
    workers: list[WorkerStatus] = []


class BulkRequest(msgspec.Struct, frozen=True):
    """A bulk load that a pipeline is asked to prepare: :class:`~txlog.model.bulk_entry.BulkReference`."""

    id: str
    manifest: str
    quads: int


class BulkProgress(msgspec.Struct, frozen=True):
    """How far a pipeline is with a bulk load of a worker. ``mode``: how it loads; "": it cannot, and ``error`` says
    why. ``load``: the id. ``phase``: ``Sending``, ``Held``, ``Landing`` or ``Restarting``; "": nothing is to do.
    ``quads``: sent so far."""

    mode: str = ""
    load: str = ""
    phase: str = ""
    quads: int = 0
    error: str | None = None


class WorkerReport(msgspec.Struct, frozen=True, rename="camel"):
    """A pipeline's report of a worker after each application. ``status`` and ``body`` are the worker's HTTP answer to
    the transaction ``txid`` that it refused; ``took_ms`` is the time that this application took. ``fault`` and
    ``running``: as in :class:`WorkerStatus`."""

    position: JsonMarker | None
    state: str
    error: str | None = None
    status: int | None = None
    body: str | None = None
    txid: str | None = None
    took_ms: float = 0.0
    fault: str | None = None
    running: bool = False
    bulk: BulkProgress | None = None
    """None from a pipeline that does not know bulk loads."""


class PauseResponse(msgspec.Struct, frozen=True):
    """The answer to a pipeline's report. ``hold``: the index at which to pause the worker, or None. ``bulk``: the bulk
    load to prepare, or None."""

    hold: int | None = None
    bulk: BulkRequest | None = None


class TransactionStatus(msgspec.Struct, frozen=True):
    """``state`` and ``durability`` in the words of protocol section 5; ``workers``: worker name to its answer."""

    txid: str
    state: str
    durability: str | None = None
    position: JsonPosition | None = None
    noop: str | None = None
    workers: dict[str, Any] = {}
    synchronous: dict[str, Any] | None = None


class WriteRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line to submit: either ``update`` (SPARQL), or ``quads`` (N-Quads to add), or ``add`` and ``delete``.
    ``key`` is an Idempotency-Key: with it a repetition is harmless. ``synchronous``: True, or the quorum that must hold
    it; ``timeout``: how long it may stay undecided, as ``10s``."""

    update: str | None = None
    quads: str | None = None
    add: str | None = None
    delete: str | None = None
    key: str | None = None
    synchronous: bool | str | None = None
    timeout: str | None = None


class QueryResult(msgspec.Struct, frozen=True):
    """The answer to a query, as the worker sent it; ``worker``: the name of that worker of the data centre."""

    body: bytes
    media: str
    worker: str

    @property
    def rows(self) -> list[dict[str, str]]:
        """The solutions of a SELECT in JSON form: for each solution the bound variables, with their values as text."""
        solutions = msgspec.json.decode(self.body)["results"]["bindings"]
        return [{name: term["value"] for name, term in solution.items()} for solution in solutions]


class WriteResult(msgspec.Struct, frozen=True):
    """The result of one write, or of one submitted line. ``error``: the name of the error that refused it, with
    ``message`` to explain it. ``durability`` is the level that was reached; it may be lower than the requested level
    when the time was over. ``synchronous``: of a synchronous transaction, ``committed``, ``pending`` (not known yet
    whether it takes effect) or ``rolled-back``."""

    txid: str | None = None
    position: JsonPosition | None = None
    durability: str | None = None
    error: str | None = None
    reason: str | None = None
    message: str | None = None
    synchronous: str | None = None


def parse_position_header(text: str | None) -> JsonPosition | None:
    """Parse ``epoch:index:hash``; None for any other text."""
    parts = (text or "").split(":")
    return JsonPosition(int(parts[0]), int(parts[1]), parts[2]) if len(parts) == 3 else None
