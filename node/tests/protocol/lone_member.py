"""One member of a view, messages by hand: its journal, what leaves it, and the messages of the others made short."""

from __future__ import annotations

from array import array

import msgspec
from core_cluster import update

from txlog.model.entry import KIND_UPDATE, RunItem, Span, TransactionRun
from txlog.model.hashes import chain_hash, chain_start, content_hash, origin_tag
from txlog.model.records import ReassignedStamps, Record, TransactionsPersisted, ViewAccepted, ViewInstalled
from txlog.model.view import Member, Number, View, bootstrap_view
from txlog.protocol.core import Core
from txlog.protocol.events import ClockReading, ConfiguredMember, ProtocolSettings
from txlog.wire import messages as wire
from txlog.wire.messages import (
    AcceptView,
    Checkpoint,
    Departure,
    Message,
    Post,
    ProposeView,
    ReplicaState,
    ReportSummary,
)
from txlog_simulation.reference_journal import recovered_state

MEMBERS = [Member("a", 1, 1, "uk"), Member("b", 2, 1, "uk"), Member("c", 3, 1, "us")]
A, B, C = MEMBERS
VIEW = bootstrap_view(1, "a", MEMBERS, "Smart")
CONFIGURED = tuple(ConfiguredMember(m.node, m.data_center, m.weight) for m in MEMBERS)
FIRST: list[Record] = [ViewAccepted(VIEW), ViewInstalled(1, 1, "a")]
NEXT: Number = (2, 1, "a")


class Lone:
    """Master b; ``records`` is its journal, ``said`` what has left it since it was looked at."""

    def __init__(self, records: list[Record] | None = None, start: int = 1, majority: bool = False) -> None:
        self.records = list(FIRST if records is None else records)
        self.start = start
        self.majority = majority
        self.mono = 1000
        self.said: list[tuple[str, Message]] = []
        settings = ProtocolSettings("b", CONFIGURED, round_timeout_ms=400, majority=majority)
        self.core = Core(settings, recovered_state("b", 2, start, self.records), self.now)
        for _ in range(30):  # long enough alone that it takes part
            self.pass_ms(100)
        self.said.clear()

    @property
    def now(self) -> ClockReading:
        return ClockReading(1_700_000_000_000_000 + self.mono * 1000, self.mono)

    def restart(self) -> Lone:
        return Lone(self.records, self.start + 1, self.majority)

    def pass_ms(self, ms: int) -> None:
        self.mono += ms
        self.core.poll(self.now)
        self._drain()

    def receive(self, peer: str, message: Message) -> None:
        self.core.receive(peer, wire.decode(peer, wire.encode(message)), self.now, True)
        self._drain()

    def ask(self, peer: str, message: Message) -> Message:
        """The one answer to this message."""
        self.said.clear()
        self.receive(peer, message)
        ((to, answer),) = self.said
        assert to == peer
        return answer

    def submit(self, *texts: str) -> list[object]:
        answers: list[object] = list(self.core.submit([update(text) for text in texts], self.now, True))
        self._drain()
        return answers

    def _drain(self) -> None:
        effects = self.core.drain()
        self.records += effects.records
        self.said += [(send.peer, send.message) for send in effects.sends]

    def hear(self, node: str, start: int = 1) -> None:
        """That master is there, and hears this one."""
        self.receive(node, who_of(node, start, ["b"]))
        self.said.clear()


def who_of(node: str, start: int, hears: list[str]) -> wire.Hello:
    birth = next(m.birth for m in MEMBERS if m.node == node)
    return wire.Hello(
        node=node,
        birth=birth,
        start=start,
        members=list(CONFIGURED),
        cluster=VIEW.cluster_id,
        view=VIEW.number,
        held=[],
        stopped=False,
        peers_heard=hears,
        backup=-1,
    )


def propose(
    members: list[Member], gone: list[Departure] | None = None, number: Number = NEXT, view: Number = VIEW.number
) -> ProposeView:
    return ProposeView(
        number, VIEW.cluster_id, members, view, gone or [], [Checkpoint(0, chain_start(VIEW.cluster_id))]
    )


def held(member: Member, first: int, *stamps: int) -> TransactionsPersisted:
    items = [RunItem(stamp, KIND_UPDATE, "", f"{member.node}{first + n}".encode()) for n, stamp in enumerate(stamps)]
    return TransactionsPersisted(
        TransactionRun(member.node, member.birth, first, items),
        b"".join(content(member, first + n) for n in range(len(items))),
    )


def content(member: Member, seq: int) -> bytes:
    return content_hash(KIND_UPDATE, "", f"{member.node}{seq}".encode())


def base(*entries: tuple[Member, int, int]) -> bytes:
    """The chain hash of a log of these: member, seq, stamp."""
    value = chain_start(VIEW.cluster_id)
    for member, seq, stamp in entries:
        value = chain_hash(value, stamp, origin_tag(member.origin), seq, content(member, seq))
    return value


def accept(
    *entries: tuple[Member, int, int],
    waiting: list[ReassignedStamps] | None = None,
    floor: int = 0,
    number: Number = NEXT,
    outlines: list[ReportSummary] | None = None,
) -> AcceptView:
    view = View(
        *number,
        [A, B],
        VIEW.cluster_id,
        len(entries),
        base(*entries),
        VIEW.origins,
        [VIEW.number],
        floor or entries[-1][2],
    )
    known = {(m.node, m.birth): max([0, *(seq for member, seq, _ in entries if member is m)]) for m in MEMBERS}
    for several in waiting or []:
        known[several.node, several.birth] = several.first_seq + len(several.stamps) - 1
    view = msgspec.structs.replace(view, known_seqs=[known[one] for one in view.origins], strategies=["Smart"])
    spans = [Span(member.node, member.birth, seq, 1) for member, seq, _ in entries]
    stamps = array("Q", [stamp for _, _, stamp in entries]).tobytes()
    log = Checkpoint(0, chain_start(VIEW.cluster_id))
    told = [ReportSummary(m.node, m.birth, VIEW.number, log, 0, True) for m in (A, B)] if outlines is None else outlines
    return AcceptView(view, [], 0, spans, stamps, waiting or [], told)


def post(view: Number = VIEW.number, node: Member = A, runs: list[TransactionRun] | None = None) -> Post:
    epoch, ballot, coordinator = view
    slot = MEMBERS.index(node)
    claim = ReplicaState(slot, node.birth, 1, 1, 0, chain_start(VIEW.cluster_id), 50, 0, [0, 0, 0], 7, False)
    return Post(VIEW.cluster_id, epoch, ballot, coordinator, claim, [], False, 0, 0, b"", b"", runs or [])


DOWN = Departure("c", 3, 1, "down")
