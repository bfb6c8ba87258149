"""Input and output of the core. The numbered duties of the caller are in ``README.md``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from txlog.model.entry import Span
from txlog.model.ids import Txid
from txlog.model.records import Record
from txlog.model.synchronous import GraphRule
from txlog.wire.messages import Message, RunsReply

NOT_TRUNCATED: Final = 1 << 63
"""Above every index of a log."""


class ClockReading:
    """The caller's clocks: ``wall`` in microseconds since 1970, used for stamps only; ``mono`` in milliseconds, never
    goes back and is used for time-outs only (rule 31: the core has no clock)."""

    __slots__ = ("mono", "wall")

    def __init__(self, wall: int, mono: int) -> None:
        self.wall = wall
        self.mono = mono


class ConfiguredMember(NamedTuple):
    """A master of the configuration; the order of the list is the precedence and the same everywhere."""

    node: str
    data_center: str
    weight: int


@dataclass(frozen=True)
class ProtocolSettings:
    """Milliseconds, bytes and counts; :class:`txlog.config.process_config.NodeConfig` gives the reasons."""

    node: str
    members: tuple[ConfiguredMember, ...]
    round_timeout_ms: int = 2000
    idle_interval_ms: int = 1000
    max_clock_skew_ms: int = 60_000
    key_retention_ms: int = 24 * 3600 * 1000
    queue_transactions_max: int = 2_000_000
    queue_bytes_max: int = 4 << 30
    keys_max: int = 20_000_000
    frame_bytes_max: int = 4 << 20
    frame_items_max: int = 10_000
    last_seen_birth: int = 0
    last_seen_start: int = 0
    max_peer_lag_ms: int = 60_000
    none_split_delay_ms: int = 10_000
    strategy: str = "Smart"
    synchronous: bool = False
    """Synchronous transactions are allowed: the masters make the first anchor once all can read it."""
    synchronous_transactions_max: int = 10_000
    synchronous_bytes_max: int = 64 << 20
    """Of this master's own undecided transactions."""
    graphs: tuple[GraphRule, ...] = ()
    """Whose transactions are synchronous, in the configuration that the cluster is bootstrapped with."""
    majority: bool = False
    """``splitMode: Majority``: a view needs more than half of the configured weight; else ``Continue``."""
    keeps_literals: bool = False
    """The engine of each store of this data centre can hold literals as they were sent."""

    @property
    def repeat_ms(self) -> int:
        """Milliseconds between two sends of a request or step that was not answered: several in any round time-out, at
        a negligible cost."""
        return max(20, min(200, self.round_timeout_ms // 4))


class Submission:
    """A transaction from a client, made deterministic. ``content`` is its content hash, taken by the caller."""

    __slots__ = ("content", "key", "kind", "payload")

    def __init__(self, kind: int, key: str, payload: bytes, content: bytes) -> None:
        self.kind = kind
        self.key = key
        self.payload = payload
        self.content = content


class SubmissionAccepted:
    """The transaction has this txid; it is durable when the effects' marks have ``accepted >= txid.seq``.
    ``is_repeat``: an earlier transaction with the same idempotency key, which this one did not follow."""

    __slots__ = ("is_repeat", "txid")

    def __init__(self, txid: Txid, repeat: bool) -> None:
        self.txid = txid
        self.is_repeat = repeat


class OutgoingMessage:
    """``own_range``: own transactions (first seq, last seq) that the caller puts into the post's ``runs``. ``target``:
    the message is for that master and goes to ``peer`` inside a ``Relay``; empty: it is for ``peer``. The caller
    fills the ``stamps`` of an ``AcceptView`` from the journal."""

    __slots__ = ("message", "own_range", "peer", "target")

    def __init__(self, peer: str, message: Message, push: tuple[int, int] | None, target: str = "") -> None:
        self.peer = peer
        self.message = message
        self.own_range = push
        self.target = target


class DurabilityMarks(NamedTuple):
    """How far this master is, valid once the effects are durable.

    ``accepted``, ``quorum``, ``synced``: every own transaction up to this seq has reached that level.
    ``log``, ``stable``: last index of the log and of its stable part. ``quorum_index``: the stable part up to here is
    persisted on more than half of all configured weight; in a view of a minority it is below ``stable``."""

    accepted: int
    quorum: int
    synced: int
    log: int
    stable: int
    quorum_index: int = 0


class JournalRead(NamedTuple):
    """An answer to ``FetchRuns``: the driver reads the ``spans`` from the journal at once, in this order, as many
    transactions as one frame may carry. It puts them into ``reply``, and sends that to the peers that ``sends`` name. A
    later read could find other stamps."""

    sends: list[OutgoingMessage]
    reply: RunsReply
    spans: list[Span]


class Effects(NamedTuple):
    """One step's output. Serve ``reads``, append ``records``; when they are durable, and everything appended before
    them, release ``sends`` and ``marks``. ``truncated_to``: the lowest index to which the log was truncated in this
    step, :data:`NOT_TRUNCATED` for none; marks issued earlier are void above it."""

    records: list[Record]
    sends: list[OutgoingMessage]
    marks: DurabilityMarks | None = None
    reads: list[JournalRead] = []  # noqa: RUF012 -- shared and never modified
    truncated_to: int = NOT_TRUNCATED


NO_EFFECTS: Final = Effects([], [])
"""The result of most steps. It is shared and never modified."""
