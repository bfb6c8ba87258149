"""What masters say to each other: MessagePack behind one byte of format version.

==============  ===================  =========================================================================
message         sender → receiver    meaning
==============  ===================  =========================================================================
``Hello``         any → any            here I am; what have you heard of me? (protocol section 1, rule 2)
``HelloReply``       any → any            the births of your node id that I have heard, my view, what I hold
``ProposeBootstrap``       first → all          this is view 1 (founding)
``BootstrapAccepted``     member → first       durable here
``CommitBootstrap``       first → all          everybody has accepted view 1
``ProposeView``     coordinator → member stop your view and report for this number (protocol section 3)
``ViewReport``      member → coordinator what I hold, in one snapshot; a promise (rule 34)
``RejectView``      member → coordinator not this number, or not without that member
``AcceptView``      coordinator → member the next view: closed base, new stamps
``FetchProgress``     member → coordinator I am still fetching what it names
``ViewAcceptedReply``    member → coordinator durable here, with every payload
``InstallView``     coordinator → member everybody has accepted it
``LeaveNotice``     leaver → member      I am stopped for good in this view; go on without me
``Post``        member → member      one snapshot (rule 7), the sender's new transactions in front of it
``FetchRuns``   any → holder         send me transactions that I miss
``RunsReply``        holder → any         here they are; checked by content hash before use (rule 18)
``FetchOrder``  repairing → any      the order of the log between two indexes (rule 28)
``OrderReply``       any → repairing      the answer; checked by chain hash before use
``LogTruncatedBelow``       any → asker          that is below what is kept of the log here: fetch a snapshot (rule 17)
``FetchSnapshot``  learner → any     a piece of the foot of the log
``SnapshotChunk``    any → learner        the answer; checked by hash before use
``Notice``      any → any            opaque to the protocol: what the masters' shells tell each other
==============  ===================  =========================================================================

Posts name members by their place in the view (*slot*), so that a vector is a list of numbers.
"""

from __future__ import annotations

import msgspec

from txlog.model.configuration import Configuration
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.entry import Span, TransactionRun
from txlog.model.errors import PeerFault
from txlog.model.ids import Origin
from txlog.model.records import ReassignedStamps
from txlog.model.view import NO_VIEW, Member, Number, View

MESSAGE_FORMAT = 1
"""On the wire. A message of another format is refused by name, never guessed at. So it stays: a message grows by fields
at its end whose defaults mean "not said" (docs/decisions/0037-how-the-wire-grows.md; ``e2e/test_older_masters.py``)."""


class ReplicaState(msgspec.Struct, array_like=True, frozen=True):
    """One master's state in one instant (rule 7), as itself or a relay tells it.

    ``number`` counts posts since ``start``. ``counter`` is a promise: no transaction of this master will ever
    have a stamp at or below it, except those up to ``own_seq``. ``held[slot]``: it holds every transaction of
    that member up to this seq, with payload, or has it in its log. ``heard``: bit per slot, the members that it
    has heard within its round time-out. ``full``: it cannot store."""

    slot: int
    birth: int
    start: int
    number: int
    log_index: int
    log_hash: bytes
    counter: int
    own_seq: int
    held: list[int]
    heard: int
    full: bool


class Hello(msgspec.Struct, array_like=True, frozen=True, tag="who"):
    """``members`` is the configured list (node, data centre, weight), the same everywhere or refused by name.
    ``cluster`` is empty, ``view`` (0, 0, "") for a master without a cluster. ``held``: last seq held of each origin.
    ``stopped``: its view is stopped, so it waits for another one. ``peers_heard``: the masters that it has heard itself
    within its round time-out; ``relayed_peers_heard``: whom others say that they hear, as far as that was told to it,
    so that one at the far end of a chain is known to be there; ``ages_ms``: how old each of these words is. ``backup``:
    the index at which a backup was made since a member is silent, else -1.
    ``log_index``, ``log_hash``: where its log ends, durably."""

    node: str
    birth: int
    start: int
    members: list[tuple[str, str, int]]
    cluster: bytes
    view: Number
    held: list[tuple[str, int, int]]
    stopped: bool
    peers_heard: list[str]
    backup: int
    relayed_peers_heard: list[tuple[str, list[str]]] = []
    log_index: int = 0
    log_hash: bytes = b""
    ages_ms: list[int] = []


class KnownIncarnation(msgspec.Struct, array_like=True, frozen=True):
    birth: int
    start: int
    seq: int
    counter: int


class HelloReply(msgspec.Struct, array_like=True, frozen=True, tag="known"):
    """``known_incarnations``: what the sender has heard of the asker. ``accepted``/``installed``: the sender's own
    view. ``held``: last seq that the sender holds of each origin of that view. ``configuration``: the sender's, None
    before a founding; ``members`` counts until then. ``prefers``: its strategy for splits, for the founding; empty: not
    said."""

    node: str
    birth: int
    start: int
    members: list[tuple[str, str, int]]
    known_incarnations: list[KnownIncarnation]
    accepted: View | None
    installed: bool
    held: list[int]
    configuration: Configuration | None = None
    prefers: str = ""


class ProposeBootstrap(msgspec.Struct, array_like=True, frozen=True, tag="found"):
    view: View


class BootstrapAccepted(msgspec.Struct, array_like=True, frozen=True, tag="founded"):
    node: str
    birth: int
    view: View


class CommitBootstrap(msgspec.Struct, array_like=True, frozen=True, tag="begin"):
    view: View


class Departure(msgspec.Struct, array_like=True, frozen=True):
    """A member that is no more in its view, and how that is known. ``start``: of the process that ended.

    ``left``: it says so itself. ``down``: its supervisor proved that the process is gone. ``lost``: its node id speaks
    with another birth. ``silent``: nobody knows; its term is over. ``ordered``: the operator says so. ``removed``: the
    configuration of the sender does without it."""

    node: str
    birth: int
    start: int
    why: str


class Checkpoint(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A log that is ``index`` long has this chain hash."""

    index: int
    hash: bytes


class ProposeView(msgspec.Struct, array_like=True, frozen=True, tag="propose"):
    """``view``: the coordinator's latest; ``gone``: members of it that the next view will do without. ``checkpoints``:
    places in the coordinator's log, from its end back, so that a report need not begin before the last one shared."""

    number: Number
    cluster: bytes
    members: list[Member]
    view: Number
    gone: list[Departure]
    checkpoints: list[Checkpoint]


class QueuedTransactions(msgspec.Struct, array_like=True, frozen=True):
    """Transactions of one origin that may not be known elsewhere: parallel to the seqs from ``first_seq`` on.
    ``contents``: 16 bytes each, end to end."""

    node: str
    birth: int
    first_seq: int
    stamps: list[int]
    contents: bytes

    @property
    def origin(self) -> Origin:
        return Origin(self.node, self.birth)


class PendingConfigChange(msgspec.Struct, array_like=True, frozen=True):
    """A change of the configuration, by its transaction: its key."""

    node: str
    birth: int
    seq: int
    key: str


class ViewReport(msgspec.Struct, array_like=True, frozen=True, tag="report"):
    """One snapshot of a member whose view is stopped (rule 34). ``view``: its latest accepted one, None for a learner.
    ``tail``: the order of its log behind ``shared``, which is one of the checkpoints or the empty log. ``hashes``: the
    chain hash behind each entry of it. ``pending``: per origin everything held that may still leave the log, in it or
    not. ``parked``: what is held of another branch. ``heard``: node, birth and start of each other member that it has
    heard itself, at work in this view, since its own start. ``prefers``: its strategy for splits. ``changes``: of the
    configuration, those behind ``shared`` or waiting."""

    number: Number
    node: str
    birth: int
    start: int
    view: View | None
    installed: bool
    stable: int
    log: Checkpoint
    shared: Checkpoint
    tail: list[Span]
    hashes: bytes
    counter: int
    pending: list[QueuedTransactions]
    parked: list[QueuedTransactions]
    heard: list[tuple[str, int, int]]
    prefers: str
    changes: list[PendingConfigChange] = []


class RejectView(msgspec.Struct, array_like=True, frozen=True, tag="refuse"):
    """``number``: of the proposal. ``promise``: what binds the sender. ``why``: a stable word (Promised, HeardBothWays,
    StaleProof, Learner, OtherCluster). ``about``: the member that it is about."""

    number: Number
    promise: Number
    why: str
    about: str
    text: str


class ReportSummary(msgspec.Struct, array_like=True, frozen=True):
    """What decides between reports (rule 25)."""

    node: str
    birth: int
    view: Number
    log: Checkpoint
    stable: int
    installed: bool


class AcceptView(msgspec.Struct, array_like=True, frozen=True, tag="accept"):
    """The receiver's log is kept up to ``cut`` and goes on with ``spans`` to the base of ``view``. ``stamps``: of these
    entries, 8 bytes each (little-endian). ``waiting``: the new queue, with new stamps."""

    view: View
    gone: list[Departure]
    cut: int
    spans: list[Span]
    stamps: bytes
    waiting: list[ReassignedStamps]
    summaries: list[ReportSummary]


class FetchProgress(msgspec.Struct, array_like=True, frozen=True, tag="missing"):
    """``count``: transactions that the sender still has to fetch before it can accept this number."""

    number: Number
    node: str
    count: int


class ViewAcceptedReply(msgspec.Struct, array_like=True, frozen=True, tag="accepted"):
    number: Number
    node: str
    birth: int


class InstallView(msgspec.Struct, array_like=True, frozen=True, tag="install"):
    number: Number


class LeaveNotice(msgspec.Struct, array_like=True, frozen=True, tag="leaving"):
    """``view``: the one that the sender has left, durably."""

    node: str
    birth: int
    start: int
    view: Number


class Post(msgspec.Struct, array_like=True, frozen=True, tag="post"):
    """``ask``: answer with a post of your own. ``answers``: number of the post that this answers, else 0.
    ``last_start_seen_of_you``: the latest start of the receiver that the sender has heard, itself or through others, 0
    for none: it takes no proof about an earlier one any more.
    ``order`` is the sender's log behind ``order_after``, the slot of each entry in one byte, ``order_hash`` the chain
    hash at its end: what a master that is behind needs in order to follow (it is sent only what it lacks).
    ``named``: so many items of ``runs`` have the content hash as their payload, and their kind as a negative number:
    the receiver has confirmed that it has these payloads (:mod:`txlog.runtime.payload_transfer`)."""

    cluster: bytes
    epoch: int
    ballot: int
    coordinator: str
    claim: ReplicaState
    relays: list[ReplicaState]
    ask: bool
    answers: int
    order_after: int
    order: bytes
    order_hash: bytes
    runs: list[TransactionRun]
    last_start_seen_of_you: int = 0
    named: int = 0


class FetchRuns(msgspec.Struct, array_like=True, frozen=True, tag="fetch-runs"):
    span: Span


class RunsReply(msgspec.Struct, array_like=True, frozen=True, tag="runs"):
    """``view``: the sender's, in which they have these stamps; a master that does not say so gives none."""

    runs: list[TransactionRun]
    view: Number = NO_VIEW


class FetchOrder(msgspec.Struct, array_like=True, frozen=True, tag="fetch-order"):
    after: int
    upto: int


class LogTruncatedBelow(msgspec.Struct, array_like=True, frozen=True, tag="below"):
    """What was asked for is below ``index``, from which the sender keeps the log on: fetch a snapshot (rule 17)."""

    index: int
    hash: bytes


class FetchSnapshot(msgspec.Struct, array_like=True, frozen=True, tag="fetch-snapshot"):
    """Bytes from ``offset`` on of the sender's foot; ``index`` 0: whichever it has."""

    index: int
    offset: int


class SnapshotChunk(msgspec.Struct, array_like=True, frozen=True, tag="snapshot"):
    """A piece of the foot at ``index``: :class:`txlog.model.records.LogStart` in MessagePack, ``total`` bytes with this
    16-byte BLAKE2b ``digest``."""

    index: int
    total: int
    digest: bytes
    offset: int
    data: bytes


class OrderReply(msgspec.Struct, array_like=True, frozen=True, tag="order"):
    after: int
    spans: list[Span]
    hash: bytes


class Notice(msgspec.Struct, array_like=True, frozen=True, tag="notice"):
    topic: str
    body: bytes


ViewChangeMessage = (
    ProposeView | ViewReport | RejectView | AcceptView | FetchProgress | ViewAcceptedReply | InstallView | LeaveNotice
)
"""Messages of a change of views: they find their way around a lost link (rule 22)."""


class Relay(msgspec.Struct, array_like=True, frozen=True, tag="forward"):
    """A message of a change of views on its way around a lost link. ``path``: the masters that it has passed, its
    sender first."""

    target: str
    path: list[str]
    message: bytes


Message = (
    Hello
    | HelloReply
    | ProposeBootstrap
    | BootstrapAccepted
    | CommitBootstrap
    | ViewChangeMessage
    | Relay
    | Post
    | FetchRuns
    | RunsReply
    | FetchOrder
    | OrderReply
    | Notice
    | LogTruncatedBelow
    | FetchSnapshot
    | SnapshotChunk
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)
_VERSION = bytes([MESSAGE_FORMAT])


def encode(message: Message) -> bytes:
    """One message to bytes."""
    return _VERSION + _encoder.encode(message)


def decode(peer: str, data: bytes) -> Message:
    """Bytes to a message; :class:`PeerFault` names ``peer`` and whether the format is unknown or broken."""
    if data[:1] != _VERSION:
        raise PeerFault(
            peer, "UnknownFormat", f"message format {data[:1].hex() or 'empty'}, this master speaks {MESSAGE_FORMAT}"
        )
    try:
        return _decoder.decode(memoryview(data)[1:])
    except DECODE_ERRORS as wrong:
        raise PeerFault(peer, "Malformed", f"{wrong}") from None
