"""The messages between masters: one byte of format version, then MessagePack.

=====================  ======================  ===============================================================
message                sender → receiver       meaning
=====================  ======================  ===============================================================
``Hello``              any → any               the sender's state; asks for a ``HelloReply`` (section 1, rule 2)
``HelloReply``         any → any               the known incarnations of the asker, the sender's view and what it holds
``ProposeBootstrap``   first → all             this is view 1 (bootstrap)
``BootstrapAccepted``  member → first          view 1 is durable on the sender
``CommitBootstrap``    first → all             all members have accepted view 1
``ProposeView``        coordinator → member    stop your view and report for this number (protocol section 3)
``ViewReport``         member → coordinator    what the sender holds, in one snapshot; a promise (rule 34)
``RejectView``         member → coordinator    not this number, or not without that member
``AcceptView``         coordinator → member    the next view: its base and the new stamps
``FetchProgress``      member → coordinator    the sender still fetches transactions that the view needs
``ViewAcceptedReply``  member → coordinator    the view is durable on the sender, with every payload
``InstallView``        coordinator → member    all members have accepted the view
``LeaveNotice``        leaver → member         the sender has left this view for good; continue without it
``Post``               member → member         one snapshot (rule 7), the sender's new transactions before it
``FetchRuns``          any → holder            asks for transactions that the sender misses
``RunsReply``          holder → any            these transactions; checked by content hash before use (rule 18)
``FetchOrder``         repairing → any         asks for the order of the log between two indexes (rule 28)
``OrderReply``         any → repairing         that order; checked by chain hash before use
``LogTruncatedBelow``  any → asker             the request is below the sender's log start: fetch a snapshot (rule 17)
``FetchSnapshot``      learner → any           asks for a chunk of the log start
``SnapshotChunk``      any → learner           that chunk; checked by hash before use
``Notice``             any → any               opaque to the protocol: data between the runtimes of masters
=====================  ======================  ===============================================================

Posts name members by their place in the view (*slot*), so that a vector is a list of numbers.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from txlog.model.bounds import SLOTS_MAX, Birth, CoordinatorId, Count, Hash, NodeId, Seq, Slot, Stamp
from txlog.model.configuration import Configuration
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.entry import Span, TransactionRun
from txlog.model.errors import PeerFault
from txlog.model.ids import Origin
from txlog.model.records import ReassignedStamps
from txlog.model.view import NO_VIEW, Member, Number, View
from txlog.wire import message_checks
from txlog.wire.report_parts import PendingConfigChange, SynchronousReference

MESSAGE_FORMAT = 1
"""The format byte on the wire. A master refuses a message of another format by name and never guesses. The byte stays
the same: a message grows by fields at its end whose defaults mean "not sent"
(docs/decisions/0037-how-the-wire-grows.md; ``e2e/tests/test_older_masters.py``)."""
SNAPSHOT_BYTES_MAX: Final = 1 << 30
"""Bytes of a log start that a master accepts."""
HEARD_SLOTS: Final = 64
"""Slots that have a bit in ``ReplicaState.heard``."""


class ReplicaState(msgspec.Struct, array_like=True, frozen=True):
    """One master's state at one instant (rule 7), sent by itself or by a relay.

    ``number`` counts posts since ``start``. ``counter`` is a promise: no later transaction of this master has a stamp
    at or below it, except those up to ``own_seq``. ``held[slot]``: up to this seq, it holds every transaction of that
    member with its payload, or has it in its log. ``full``: it cannot store.

    ``heard_members``: the members from which it received a message within its round time-out, and itself. One bit for
    each place in ``View.members``; -1 when an older master sent or relayed the state. ``heard``: the same with one bit
    per slot, for older masters. It has no bit for slots from :data:`HEARD_SLOTS` on, because MessagePack ends at 64
    bits.
    """

    slot: Slot
    birth: Birth
    start: Count
    number: Count
    log_index: Count
    log_hash: Hash
    counter: Stamp
    own_seq: Count
    held: list[Count]
    heard: Annotated[int, Meta(ge=0)]
    full: bool
    heard_members: Annotated[int, Meta(ge=-1)] = -1

    def has_heard(self, slot: int, place: int) -> bool:
        """Whether it received from the member at this place of ``View.members``, which has this slot."""
        bits, at = (self.heard, slot) if self.heard_members < 0 else (self.heard_members, place)
        return bool(bits >> at & 1)


class Hello(msgspec.Struct, array_like=True, frozen=True, tag="who"):
    """``members`` is the configured list (node, data centre, weight); a master refuses a peer with another list by
    name. ``cluster`` is empty and ``view`` is (0, 0, "") for a master without a cluster. ``held``: last seq held of
    each origin. ``stopped``: its view is stopped, so it waits for another one. ``peers_heard``: the masters from which
    it received a message itself within its round time-out. ``relayed_peers_heard``: the same of its peers, as far as
    they reported it. So a master at the far end of a chain is known to be reachable. ``ages_ms``: the age of each of
    these reports in milliseconds. ``backup``: the index of a backup made since a member became silent, else -1.
    ``log_index``, ``log_hash``: the durable end of its log. ``clock_ms``: the sender's wall clock, in milliseconds
    since 1970; 0: not sent. ``level``: :data:`.PROTOCOL_LEVEL` of the sender."""

    node: NodeId
    birth: Birth
    start: Count
    members: list[tuple[str, str, int]]
    cluster: bytes
    view: Number
    held: list[tuple[NodeId, Birth, Count]]
    stopped: bool
    peers_heard: list[str]
    backup: int
    relayed_peers_heard: list[tuple[str, list[str]]] = []
    log_index: Count = 0
    log_hash: bytes = b""
    ages_ms: list[int] = []
    clock_ms: Count = 0
    level: Count = 0

    @property
    def origins(self) -> set[tuple[str, int]]:
        """The incarnations that a view with the sender has: its own, and those whose transactions it holds."""
        return {(self.node, self.birth), *((node, birth) for node, birth, _ in self.held)}


class KnownIncarnation(msgspec.Struct, array_like=True, frozen=True):
    """The last known state of one incarnation: its latest start, its last seq, and the highest ``counter`` it
    promised."""

    birth: Birth
    start: Count
    seq: Count
    counter: Stamp


class HelloReply(msgspec.Struct, array_like=True, frozen=True, tag="known"):
    """``known_incarnations``: what the sender knows of the asker. ``accepted``/``installed``: the sender's own view.
    ``held``: last seq that it holds of each origin of that view. ``configuration``: None before the bootstrap;
    ``members`` counts until then. For the bootstrap, ``prefers``: its strategy for splits; empty: not sent;
    ``keeps_literals``: its stores can. ``clock_ms``, ``level``: as in ``Hello``."""

    node: NodeId
    birth: Birth
    start: Count
    members: list[tuple[str, str, int]]
    known_incarnations: list[KnownIncarnation]
    accepted: View | None
    installed: bool
    held: list[Count]
    configuration: Configuration | None = None
    prefers: str = ""
    clock_ms: Count = 0
    level: Count = 0
    keeps_literals: bool = False


class ProposeBootstrap(msgspec.Struct, array_like=True, frozen=True, tag="found"):
    """View 1, proposed by the master that founds. ``forgets``: members that lost an earlier journal may accept, too."""

    view: View
    forgets: bool = False


class BootstrapAccepted(msgspec.Struct, array_like=True, frozen=True, tag="founded"):
    """``node`` has made ``view`` durable."""

    node: NodeId
    birth: Birth
    view: View


class CommitBootstrap(msgspec.Struct, array_like=True, frozen=True, tag="begin"):
    """All members have accepted ``view``."""

    view: View


class Departure(msgspec.Struct, array_like=True, frozen=True):
    """A member that is no longer in its view, and the evidence for it. ``start``: of the process that ended.

    ``left``: the member itself reported it. ``down``: its supervisor proved that the process is gone. ``lost``: its
    node id now uses another incarnation. ``silent``: no evidence; its term is over. ``ordered``: the operator forced
    it. ``removed``: the configuration of the sender no longer contains it.
    """

    node: NodeId
    birth: Birth
    start: Count
    why: str


class Checkpoint(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A log that is ``index`` long has this chain hash."""

    index: Count
    hash: bytes


class ProposeView(msgspec.Struct, array_like=True, frozen=True, tag="propose"):
    """``view``: the coordinator's latest; ``gone``: members of it that the next view omits. ``checkpoints``: positions
    in the coordinator's log, from its end backwards, so that a report starts at the last shared one. ``level``: the
    coordinator's."""

    number: Number
    cluster: bytes
    members: list[Member]
    view: Number
    gone: list[Departure]
    checkpoints: list[Checkpoint]
    level: Count = 0


class QueuedTransactions(msgspec.Struct, array_like=True, frozen=True):
    """Transactions of one origin that other masters may lack: the columns are parallel to the seqs from ``first_seq``
    on. ``contents``: 16 bytes each, concatenated."""

    node: NodeId
    birth: Birth
    first_seq: Seq
    stamps: list[Stamp]
    contents: bytes

    @property
    def origin(self) -> Origin:
        """Node and incarnation of these transactions."""
        return Origin(self.node, self.birth)


class ViewReport(msgspec.Struct, array_like=True, frozen=True, tag="report"):
    """One snapshot of a member whose view is stopped (rule 34). ``view``: its latest accepted one, None for a
    learner. ``tail``: the order of its log after ``shared``, which is one of the checkpoints or the empty log.
    ``hashes``: the chain hash after each entry of it. ``pending``: per origin everything held that may still leave
    the log, in the log or not. ``parked``: transactions held of another branch. ``heard``: node, birth and start of
    each other member from which it received a message directly. Only members active in this view count, and only
    messages since its own start. ``prefers``: its strategy for splits. ``changes``: of the configuration, those
    after ``shared`` or waiting. ``level``: :data:`.PROTOCOL_LEVEL`. ``foreign_views``: views that configuration changes
    in its journal name and that are no ancestors of ``view``. ``limbo``: the synchronous transactions and
    decisions after ``shared`` or waiting."""

    number: Number
    node: NodeId
    birth: Birth
    start: Count
    view: View | None
    installed: bool
    stable: Count
    log: Checkpoint
    shared: Checkpoint
    tail: list[Span]
    hashes: bytes
    counter: Stamp
    pending: list[QueuedTransactions]
    parked: list[QueuedTransactions]
    heard: list[tuple[NodeId, Birth, Count]]
    prefers: str
    changes: list[PendingConfigChange] = []
    level: Count = 0
    foreign_views: list[Number] = []
    limbo: list[SynchronousReference] = []


class RejectView(msgspec.Struct, array_like=True, frozen=True, tag="refuse"):
    """``number``: of the proposal. ``promise``: the promise that binds the sender. ``why``: a stable word (Promised,
    HeardBothWays, StaleProof, Learner, OtherCluster). ``about``: the member concerned."""

    number: Number
    promise: Number
    why: str
    about: str
    text: str


class ReportSummary(msgspec.Struct, array_like=True, frozen=True):
    """The fields that decide between reports (rule 25)."""

    node: NodeId
    birth: Birth
    view: Number
    log: Checkpoint
    stable: Count
    installed: bool


class AcceptView(msgspec.Struct, array_like=True, frozen=True, tag="accept"):
    """The receiver keeps its log up to ``cut`` and continues it with ``spans`` to the base of ``view``. ``stamps``: of
    these entries, 8 bytes each (little-endian). ``waiting``: the new queue, with new stamps."""

    view: View
    gone: list[Departure]
    cut: Count
    spans: list[Span]
    stamps: bytes
    waiting: list[ReassignedStamps]
    summaries: list[ReportSummary]


class FetchProgress(msgspec.Struct, array_like=True, frozen=True, tag="missing"):
    """``count``: transactions that the sender still has to fetch before it can accept this number."""

    number: Number
    node: NodeId
    count: Count


class ViewAcceptedReply(msgspec.Struct, array_like=True, frozen=True, tag="accepted"):
    """``node`` has made the view of this number durable, with every payload."""

    number: Number
    node: NodeId
    birth: Birth


class InstallView(msgspec.Struct, array_like=True, frozen=True, tag="install"):
    """All members have accepted the view of this number."""

    number: Number


class LeaveNotice(msgspec.Struct, array_like=True, frozen=True, tag="leaving"):
    """``view``: the one that the sender has left, durably."""

    node: NodeId
    birth: Birth
    start: Count
    view: Number


class Post(msgspec.Struct, array_like=True, frozen=True, tag="post"):
    """``ask``: asks for a post in reply. ``answers``: number of the post that this answers, else 0.
    ``last_start_seen_of_you``: the receiver's latest start that the sender knows, directly or through relays; 0 for
    none. The sender accepts no proof about an earlier start any more. ``order`` is the sender's log after
    ``order_after``: the slot of each entry in one byte. ``order_hash`` is the chain hash at its end. A lagging master
    needs both to follow; the sender sends only what it lacks. ``named``: the number of items of ``runs`` with the
    content hash as their payload and their kind as a negative number. The receiver has confirmed that it has these
    payloads (:mod:`txlog.runtime.payload_transfer`). ``clock_ms``: as in ``Hello``; a relay does not pass it on."""

    cluster: bytes
    epoch: Count
    ballot: Count
    coordinator: CoordinatorId
    claim: ReplicaState
    relays: list[ReplicaState]
    ask: bool
    answers: Count
    order_after: Count
    order: bytes
    order_hash: bytes
    runs: list[TransactionRun]
    last_start_seen_of_you: Count = 0
    named: Count = 0
    clock_ms: Count = 0


class FetchRuns(msgspec.Struct, array_like=True, frozen=True, tag="fetch-runs"):
    """Asks for ``span``, then ``more``: as many transactions as fit one frame. An older master reads only ``span``."""

    span: Span
    more: Annotated[list[Span], Meta(max_length=SLOTS_MAX)] = []


class RunsReply(msgspec.Struct, array_like=True, frozen=True, tag="runs"):
    """``view``: the sender's, in which they have these stamps. ``LEARNER_STAMPS``: the sender has no view. ``NO_VIEW``:
    not sent, by an older program."""

    runs: list[TransactionRun]
    view: Number = NO_VIEW


class FetchOrder(msgspec.Struct, array_like=True, frozen=True, tag="fetch-order"):
    """Asks for the order of the log after index ``after``, up to and including ``upto``."""

    after: Count
    upto: Count


class LogTruncatedBelow(msgspec.Struct, array_like=True, frozen=True, tag="below"):
    """The request is below ``index``, the sender's log start: fetch a snapshot (rule 17). ``hash``: the chain hash
    there."""

    index: Count
    hash: Hash


class FetchSnapshot(msgspec.Struct, array_like=True, frozen=True, tag="fetch-snapshot"):
    """Asks for bytes of the sender's log start from ``offset`` on; ``index`` 0: any log start. ``level``: as in
    ``Hello``; a master that cannot read a table of keys gets none."""

    index: Count
    offset: Count
    level: Count = 0


class SnapshotChunk(msgspec.Struct, array_like=True, frozen=True, tag="snapshot"):
    """A chunk of the log start at ``index``: :class:`txlog.model.records.LogStart` in MessagePack, ``total`` bytes
    with this 16-byte BLAKE2b ``digest``."""

    index: Seq
    total: Annotated[int, Meta(ge=1, le=SNAPSHOT_BYTES_MAX)]
    digest: Hash
    offset: Count
    data: bytes


class OrderReply(msgspec.Struct, array_like=True, frozen=True, tag="order"):
    """The order of the log after ``after``; ``hash``: the chain hash at the end of ``spans``."""

    after: Count
    spans: list[Span]
    hash: Hash


class Notice(msgspec.Struct, array_like=True, frozen=True, tag="notice"):
    """Bytes of one ``topic`` between the runtimes of two masters; the protocol does not read them."""

    topic: str
    body: bytes


ViewChangeMessage = (
    ProposeView | ViewReport | RejectView | AcceptView | FetchProgress | ViewAcceptedReply | InstallView | LeaveNotice
)
"""Messages of a view change: masters relay them around a lost link (rule 22)."""


class Relay(msgspec.Struct, array_like=True, frozen=True, tag="forward"):
    """A message of a view change on its way around a lost link. ``path``: the masters that relayed it so far, its
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
    """Encode one message with its format byte."""
    return _VERSION + _encoder.encode(message)


def decode(peer: str, data: bytes) -> Message:
    """Decode one message. Raises :class:`PeerFault`, which names ``peer`` and whether the format is unknown or
    broken. Nothing of a message is expanded before its counts are checked (rule 32)."""
    if data[:1] != _VERSION:
        raise PeerFault(
            peer, "UnknownFormat", f"message format {data[:1].hex() or 'empty'}, this master speaks {MESSAGE_FORMAT}"
        )
    try:
        message = _decoder.decode(memoryview(data)[1:])
    except DECODE_ERRORS as wrong:
        raise PeerFault(peer, "Malformed", f"{wrong}") from None
    if not isinstance(message, Post):  # most are; what a post refers to is known to its receiver
        error = _structure_error(message)
        if error:
            raise PeerFault(peer, "Malformed", error)
    return message


def _structure_error(message: Message) -> str:
    match message:
        case ViewReport():
            return message_checks.report_error(message)
        case AcceptView():
            return message_checks.accept_error(message)
        case HelloReply():
            return message_checks.hello_reply_error(message)
        case ProposeView():
            return message_checks.members_error(message.members)
        case ProposeBootstrap() | BootstrapAccepted() | CommitBootstrap():
            return message_checks.view_error(message.view)
        case _:
            return ""
