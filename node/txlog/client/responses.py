"""What a master answers, typed. Unknown fields are ignored, so that an older client reads a newer master."""

from __future__ import annotations

from typing import Any

import msgspec

from txlog.model.entry import Position


class JsonPosition(msgspec.Struct, frozen=True):
    """A position as JSON tells it; ``hash`` in hexadecimal."""

    epoch: int
    index: int
    hash: str

    @property
    def position(self) -> Position:
        return Position(self.epoch, self.index, bytes.fromhex(self.hash))

    @classmethod
    def from_position(cls, position: Position) -> JsonPosition:
        return cls(position.epoch, position.index, position.hash.hex())


class JsonMarker(msgspec.Struct, frozen=True):
    """A worker's marker as JSON tells it: position, fence, and ``unordered``, places as ``index:hash``."""

    epoch: int
    index: int
    hash: str
    fence: int = 0
    unordered: list[str] = []

    @property
    def unordered_positions(self) -> tuple[tuple[int, bytes], ...]:
        places = [place.partition(":") for place in self.unordered]
        return tuple((int(index), bytes.fromhex(value)) for index, _, value in places)

    @property
    def position(self) -> Position:
        return Position(self.epoch, self.index, bytes.fromhex(self.hash))


class Divergence(msgspec.Struct, frozen=True, rename="camel"):
    """A worker that holds something else than others. ``wrong``: known to be this one; else undecided. ``graphs``: the
    first of them, without brackets (empty: the default graph); ``graph_count`` None: not known which. ``right``: who
    can be copied, as ``data centre/worker``."""

    kind: str
    wrong: bool
    why: str
    graphs: list[str] = []
    graph_count: int | None = None
    first_index: int = 0
    index: int = 0
    fence: int = 0
    right: list[str] = []


class RepairRecord(msgspec.Struct, frozen=True, rename="camel"):
    """What was copied into a worker without anybody asking. ``graphs``: the first of ``graph_count``; ``source``:
    ``data centre/worker``; ``at``: seconds since 1970."""

    worker: str
    source: str
    graphs: list[str]
    graph_count: int
    added: int
    removed: int
    index: int
    fence: int
    at: float


class RepairStatusEntry(msgspec.Struct, frozen=True):
    """What becomes of a worker that differs: ``Due``, ``Running``, ``Waiting``, or a person is needed (``Undecided``,
    ``ByHand``, ``GivenUp``); ``Done``: it does not differ any more. ``done``: repairs within a day."""

    state: str
    why: str = ""
    done: int = 0
    last: RepairRecord | None = None


class WorkerStatus(msgspec.Struct, frozen=True, rename="camel"):
    """A worker as the pipeline last reported it to the master asked. ``hold``: not to be taken above this index.
    ``reported_at`` is empty or 0 while nothing was reported."""

    name: str
    url: str = ""
    engine: str = ""
    position: JsonMarker | None = None
    state: str = "Unknown"
    error: str | None = None
    hold: int | None = None
    reported_at: str | float | None = None
    divergence: Divergence | None = None
    repair: RepairStatusEntry | None = None


class QueueStatus(msgspec.Struct, frozen=True):
    transactions: int = 0
    bytes: int = 0


class DepartedMember(msgspec.Struct, frozen=True):
    """A configured master out of the view. ``why``: left, down, lost, silent or unknown; ``text`` is for people."""

    node: str
    why: str
    text: str = ""


class ViewStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The view a master is in. Numbers are ``epoch.ballot.coordinator``. ``stopped``: it is over, a next one is on its
    way (``changing``: this master leads that change); ``promised``: no view below it is worked in any more; ``ahead``:
    the others are in that view without this master; ``holding``: why a change that is wanted cannot begin."""

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
    repository: str = ""
    data_center: str = ""
    uptime_seconds: float = 0.0
    native: bool = False
    """Its hot rooms are compiled."""


class Doorbell(msgspec.Struct, frozen=True):
    """``GET /txlog/doorbell``: where the master is stable, and how its workers are. ``tick`` grows while a worker
    is behind although nothing new arrives."""

    stable: JsonPosition
    tick: int
    workers: list[WorkerStatus] = []


class WorkerReport(msgspec.Struct, frozen=True, rename="camel"):
    """What a pipeline tells of a worker after each application. ``status`` and ``body`` are the worker's own words
    to the transaction ``txid`` that it refused; ``took_ms`` is the time this application took."""

    position: JsonMarker | None
    state: str
    error: str | None = None
    status: int | None = None
    body: str | None = None
    txid: str | None = None
    took_ms: float = 0.0


class PauseResponse(msgspec.Struct, frozen=True):
    hold: int | None = None


class TransactionStatus(msgspec.Struct, frozen=True):
    """``state`` and ``durability`` in the words of protocol section 5; ``workers``: name to what it answered."""

    txid: str
    state: str
    durability: str | None = None
    position: JsonPosition | None = None
    noop: str | None = None
    workers: dict[str, Any] = {}


class WriteRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line to submit: either ``update`` (SPARQL), or ``quads`` (N-Quads to add), or ``add`` and ``delete``.
    ``key`` is an Idempotency-Key: with it a repetition is harmless."""

    update: str | None = None
    quads: str | None = None
    add: str | None = None
    delete: str | None = None
    key: str | None = None


class QueryResult(msgspec.Struct, frozen=True):
    """The answer to a query, as the worker wrote it; ``worker``: which one of the data centre that was."""

    body: bytes
    media: str
    worker: str

    @property
    def rows(self) -> list[dict[str, str]]:
        """The solutions of a SELECT that was answered as JSON: each variable that is bound, and its value as text."""
        told = msgspec.json.decode(self.body)
        return [{name: term["value"] for name, term in row.items()} for row in told["results"]["bindings"]]


class WriteResult(msgspec.Struct, frozen=True):
    """The answer to one write, or to one line. Refused when ``error`` is set: the name of the error, and ``message``
    for a person.
    ``durability`` is what was reached, which may be less than asked when the time was over."""

    txid: str | None = None
    position: JsonPosition | None = None
    durability: str | None = None
    error: str | None = None
    reason: str | None = None
    message: str | None = None
