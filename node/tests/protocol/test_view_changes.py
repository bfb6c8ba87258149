"""One member of a view, messages by hand: what it promises, refuses, accepts and keeps (rules 21, 22, 27, 34)."""

from __future__ import annotations

from array import array
from itertools import pairwise

import msgspec
import pytest
from core_cluster import update

from txlog.model.entry import KIND_UPDATE, Item, Run, Span
from txlog.model.errors import Conflict, PeerFault, Unavailable
from txlog.model.hashes import chain_hash, chain_start, content_hash, origin_tag
from txlog.model.records import Added, Held, Left, Promised, Record, Stamped, ViewAccepted, ViewInstalled
from txlog.model.view import NO_VIEW, Member, Number, View, founding_view
from txlog.protocol.core import Core
from txlog.protocol.events import Accepted, ConfiguredMember, Now, Settings
from txlog.wire import messages as wire
from txlog.wire.messages import Accept, Checkpoint, Claim, Departure, Message, Outline, Post, Propose, Refuse, Report
from txlog_simulation.plain_journal import recovered_from

MEMBERS = [Member("a", 1, 1, "uk"), Member("b", 2, 1, "uk"), Member("c", 3, 1, "us")]
A, B, C = MEMBERS
VIEW = founding_view(1, "a", MEMBERS, "Smart")
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
        settings = Settings("b", CONFIGURED, round_timeout_ms=400, majority=majority)
        self.core = Core(settings, recovered_from("b", 2, start, self.records), self.now)
        for _ in range(30):  # long enough alone that it takes part
            self.pass_ms(100)
        self.said.clear()

    @property
    def now(self) -> Now:
        return Now(1_700_000_000_000_000 + self.mono * 1000, self.mono)

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


def who_of(node: str, start: int, hears: list[str]) -> wire.Who:
    birth = next(m.birth for m in MEMBERS if m.node == node)
    return wire.Who(
        node=node,
        birth=birth,
        start=start,
        members=list(CONFIGURED),
        cluster=VIEW.cluster_id,
        view=VIEW.number,
        held=[],
        stopped=False,
        hears=hears,
        backup=-1,
    )


def propose(
    members: list[Member], gone: list[Departure] | None = None, number: Number = NEXT, view: Number = VIEW.number
) -> Propose:
    return Propose(number, VIEW.cluster_id, members, view, gone or [], [Checkpoint(0, chain_start(VIEW.cluster_id))])


def held(member: Member, first: int, *stamps: int) -> Held:
    items = [Item(stamp, KIND_UPDATE, "", f"{member.node}{first + n}".encode()) for n, stamp in enumerate(stamps)]
    return Held(
        Run(member.node, member.birth, first, items), b"".join(content(member, first + n) for n in range(len(items)))
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
    waiting: list[Stamped] | None = None,
    floor: int = 0,
    number: Number = NEXT,
    outlines: list[Outline] | None = None,
) -> Accept:
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
    view = msgspec.structs.replace(view, known=[known[one] for one in view.origins], strategies=["Smart"])
    spans = [Span(member.node, member.birth, seq, 1) for member, seq, _ in entries]
    stamps = array("Q", [stamp for _, _, stamp in entries]).tobytes()
    log = Checkpoint(0, chain_start(VIEW.cluster_id))
    told = [Outline(m.node, m.birth, VIEW.number, log, 0, True) for m in (A, B)] if outlines is None else outlines
    return Accept(view, [], 0, spans, stamps, waiting or [], told)


def post(view: Number = VIEW.number, node: Member = A, runs: list[Run] | None = None) -> Post:
    epoch, ballot, coordinator = view
    slot = MEMBERS.index(node)
    claim = Claim(slot, node.birth, 1, 1, 0, chain_start(VIEW.cluster_id), 50, 0, [0, 0, 0], 7, False)
    return Post(VIEW.cluster_id, epoch, ballot, coordinator, claim, [], False, 0, 0, b"", b"", runs or [])


DOWN = Departure("c", 3, 1, "down")


# Promise and report


def test_rule_34_a_report_is_a_promise_that_was_durable_before() -> None:
    b = Lone([*FIRST, held(B, 1, 10, 20)])
    effects_before = len(b.records)
    report = b.ask("a", propose([A, B], [DOWN]))
    assert isinstance(report, Report)
    assert b.records[effects_before:] == [Promised(*NEXT)]
    assert (report.number, report.node, report.birth, report.view) == (NEXT, "b", 2, VIEW)
    assert [(p.node, p.first_seq, p.stamps) for p in report.pending] == [("b", 1, [10, 20])]
    assert report.pending[0].contents == content(B, 1) + content(B, 2)
    assert report.counter >= 20
    assert b.core.state == "Rejoining"


def test_rule_21_nothing_of_the_old_view_is_merged_or_said_after_the_report() -> None:
    b = Lone()
    b.ask("a", propose([A, B], [DOWN]))
    b.said.clear()
    b.receive("a", post(runs=[held(A, 1, 10).run]))
    for _ in range(20):
        b.pass_ms(50)
    assert not any(isinstance(message, Post) for _, message in b.said)
    assert b.core.agreement is not None
    assert b.core.agreement.by_origin[A.origin].held == 0
    assert not any(isinstance(record, Held) for record in b.records)


def test_rule_34_the_promise_survives_a_restart_and_the_stopped_view_is_never_resumed() -> None:
    b = Lone()
    b.ask("a", propose([A, B], [DOWN]))
    b = b.restart()
    assert b.core.views.stopped
    b.receive("a", post())
    b.receive("a", wire.Install(VIEW.number))
    b.receive("a", wire.Begin(VIEW))
    for _ in range(20):
        b.pass_ms(50)
    assert not b.core.views.at_work
    assert not any(isinstance(message, Post) for _, message in b.said)
    lower = b.ask("c", propose([B, C], [Departure("a", 1, 1, "down")], (1, 9, "c")))
    assert isinstance(lower, Refuse)
    assert (lower.why, lower.promise) == ("Promised", NEXT)


def test_the_same_proposal_again_is_answered_again_also_after_a_restart() -> None:
    """Steps are repeated until they are answered; the snapshot is one, however often it is sent."""
    b = Lone([*FIRST, held(B, 1, 10)])
    first = b.ask("a", propose([A, B], [DOWN]))
    assert b.ask("a", propose([A, B], [DOWN])) == first
    again = b.restart().ask("a", propose([A, B], [DOWN]))
    assert isinstance(again, Report)
    assert isinstance(first, Report)
    assert (again.log, again.pending, again.number) == (first.log, first.pending, first.number)


def test_a_founding_view_that_was_accepted_and_never_at_work_is_reported() -> None:
    """Else a majority would wait for ever for one that holds all there is: nothing."""
    b = Lone(FIRST[:1])
    report = b.ask("a", propose([A, B], [DOWN]))
    assert isinstance(report, Report)
    assert (report.view, report.installed, report.log.index) == (VIEW, False, 0)
    b.receive("a", accept(floor=50))
    assert b.core.views.number == NEXT


def test_a_report_begins_at_the_last_place_that_both_logs_have() -> None:
    b = Lone([*FIRST, held(A, 1, 10, 20, 30)])
    agreement = b.core.agreement
    assert agreement is not None
    agreement.add(30, [3, 0, 0])
    places = [Checkpoint(i, base(*[(A, seq, 10 * seq) for seq in range(1, i + 1)])) for i in (0, 1, 2)]
    wrong = Checkpoint(3, bytes(16))
    proposal = msgspec.structs.replace(propose([A, B], [DOWN]), checkpoints=[wrong, *places])
    report = b.ask("a", proposal)
    assert isinstance(report, Report)
    assert report.shared == places[2]
    assert report.tail == [Span("a", 1, 3, 1)]
    assert report.log == Checkpoint(3, base((A, 1, 10), (A, 2, 20), (A, 3, 30)))
    assert report.hashes == report.log.hash


# Refusals


def refused(b: Lone, proposal: Propose, peer: str = "a") -> tuple[str, str]:
    answer = b.ask(peer, proposal)
    assert isinstance(answer, Refuse), answer
    assert answer.number == proposal.number
    assert not any(isinstance(record, Promised) for record in b.records)
    return answer.why, answer.about


@pytest.mark.parametrize("number", [VIEW.number, (1, 0, "z")])
def test_refused_promised_a_number_that_is_no_higher_than_the_view(number: Number) -> None:
    assert refused(Lone(), propose([A, B], [DOWN], number)) == ("Promised", "")


def test_refused_left_out_without_a_reason() -> None:
    assert refused(Lone(), propose([A, B])) == ("LeftOut", "c")


@pytest.mark.parametrize("gone", [[], [Departure("c", 3, 1, "silent")]])
def test_refused_heard_both_ways(gone: list[Departure]) -> None:
    b = Lone()
    b.hear("c")
    assert refused(b, propose([A, B], gone)) == ("HeardBothWays", "c")


@pytest.mark.parametrize("view", [VIEW.number, (3, 1, "a")], ids=["this view", "another"])
def test_what_is_heard_of_a_new_birth_is_not_the_member_that_is_left_out(view: Number) -> None:
    """The coordinator does not hear that c has lost its disk; b hears the new one."""
    b = Lone()
    b.hear("c")
    b.receive("c", msgspec.structs.replace(who_of("c", 1, ["b"]), birth=33, view=NO_VIEW))
    assert b.core.around.both_ways("c")
    gone = [Departure("c", 3, 1, "silent")]
    assert isinstance(b.ask("a", propose([A, B], gone, number=(4, 1, "a"), view=view)), Report)


def test_one_that_lags_goes_along_without_others_of_its_old_view() -> None:
    """The view that takes it in has grown from its own; c, which only b hears, is let in after it."""
    b = Lone()
    b.hear("c")
    assert refused(b, propose([A, B], number=(4, 1, "a"), view=(3, 1, "a"))) == ("HeardBothWays", "c")
    grown = View(2, 1, "a", [A], VIEW.cluster_id, 0, base(), VIEW.origins, [VIEW.number])
    b.receive("a", wire.Known("a", 1, 1, list(CONFIGURED), [], grown, True, [0, 0, 0]))
    assert refused(b, propose([A, B], number=(4, 1, "a"))) == ("HeardBothWays", "c"), "it lags behind another view"
    assert isinstance(b.ask("a", propose([A, B], number=(4, 1, "a"), view=(2, 1, "a"))), Report)


def test_rule_23_a_backup_is_wanted_also_when_the_view_is_stopped() -> None:
    """Whoever proposed the next one may never be heard again; without a backup this one would wait for ever."""
    b = Lone()
    b.ask("a", propose([A, B], [DOWN]))
    for node in ("a", "c"):
        b.hear(node)
    b.pass_ms(100)
    assert not b.core.wants_backup
    b.hear("a")
    b.pass_ms(390)
    assert not b.core.wants_backup
    b.pass_ms(200)
    assert b.core.wants_backup
    b.core.backup_done(0, chain_start(VIEW.cluster_id))
    assert not b.core.wants_backup


def test_rule_23_no_backup_is_wanted_of_workers_on_what_an_accept_cut_off() -> None:
    """None of them stands on what is stable until the view is installed: each would be made for nothing."""
    apart = msgspec.structs.replace(VIEW, apart_at=0)
    added = Added(1, [Span("a", 1, 1, 1)], base((A, 1, 10)), 1)
    b = Lone([ViewAccepted(apart), ViewInstalled(1, 1, "a"), held(A, 1, 10), added])
    assert b.core.wants_backup
    b.ask("a", propose([A, B], [DOWN]))
    assert b.core.wants_backup
    assert b.ask("a", accept((A, 1, 20))) == wire.Accepted(NEXT, "b", 2)
    b.pass_ms(1000)
    assert not b.core.wants_backup
    b.receive("a", wire.Install(NEXT))
    assert b.core.wants_backup


def test_what_a_member_at_work_makes_is_not_fetched_from_another_branch() -> None:
    """There it may have another stamp, and a would order it by the one that it has here, also after it was silent. When
    a has lost its disk, nobody else can bring it."""
    grown = View(2, 1, "c", [C], VIEW.cluster_id, 0, base(), VIEW.origins, [(1, 0, "c")], known=[1, 0, 0])
    b = Lone()
    b.hear("a")
    b.receive("c", wire.Known("c", 3, 1, list(CONFIGURED), [], grown, True, [1, 0, 0]))
    b.said.clear()
    b.pass_ms(50)
    assert not any(isinstance(message, wire.FetchRuns) for _, message in b.said)
    b.pass_ms(450)
    assert not any(isinstance(message, wire.FetchRuns) for _, message in b.said)
    b.receive("a", msgspec.structs.replace(who_of("a", 1, ["b"]), birth=11, view=NO_VIEW))
    b.receive("c", wire.Known("c", 3, 1, list(CONFIGURED), [], grown, True, [1, 0, 0]))
    b.pass_ms(50)
    assert ("c", wire.FetchRuns(Span("a", 1, 1, 1))) in b.said


def test_a_silent_one_may_go_when_nobody_hears_it() -> None:
    b = Lone()
    b.hear("c")
    b.pass_ms(399)
    b.pass_ms(2)
    assert isinstance(b.ask("a", propose([A, B], [Departure("c", 3, 1, "silent")])), Report)


@pytest.mark.parametrize("why", ["down", "left"])
def test_refused_stale_proof_of_an_earlier_process(why: str) -> None:
    b = Lone()
    b.hear("c", start=2)
    b.pass_ms(399)
    b.pass_ms(2)
    assert refused(b, propose([A, B], [Departure("c", 3, 1, why)])) == ("StaleProof", "c")
    assert isinstance(b.ask("a", propose([A, B], [Departure("c", 3, 2, why)])), Report)


@pytest.mark.parametrize("why", ["silent", "ordered"])
def test_silence_is_of_whoever_bears_that_birth(why: str) -> None:
    """b has heard a later process of c than a has; nobody hears c now. Only what is heard stands against it."""
    b = Lone()
    b.hear("c", start=2)
    b.pass_ms(399)
    assert refused(b, propose([A, B], [Departure("c", 3, 1, why)])) == ("HeardBothWays", "c")
    b.pass_ms(2)
    assert isinstance(b.ask("a", propose([A, B], [Departure("c", 3, 1, why)])), Report)


def test_refused_no_majority() -> None:
    b = Lone(majority=True)
    gone = [Departure("a", 1, 1, "left"), Departure("c", 3, 1, "left")]
    assert refused(b, propose([B], gone, (2, 1, "b")), "c") == ("NoMajority", "")


def test_refused_left_when_nobody_knows_what_followed() -> None:
    """Rule 27: the others of the view may have gone on without this master."""
    b = Lone([*FIRST, held(A, 1, 10), Left(1, 1, "a")])
    assert isinstance(b.ask("a", propose([A, B], [DOWN])), Report)
    answer = b.ask("a", accept((A, 1, 10)))
    assert isinstance(answer, Refuse)
    assert answer.why == "Left"
    assert b.core.views.number == VIEW.number


def test_a_member_that_is_heard_with_a_new_birth_has_lost_the_old_one() -> None:
    """A lagger comes back after the others took that member in again: it knows the new birth from nobody else."""
    b = Lone()
    b.hear("c")
    proposal = propose([A, B, Member("c", 33, 1, "us")], number=(4, 1, "a"), view=(3, 1, "a"))
    assert isinstance(b.ask("a", proposal), Report)


@pytest.mark.parametrize("knows", ["a later view", "all that it left", "everybody, one of them with a lost disk"])
def test_rule_27_one_that_left_returns_with_who_knows(knows: str) -> None:
    b = Lone([*FIRST, held(A, 1, 10), Left(1, 1, "a")])
    b.ask("a", propose([A, B], [DOWN]))
    log = Checkpoint(0, b"")
    outlines = [Outline(m.node, m.birth, VIEW.number, log, 0, True) for m in MEMBERS]
    if knows == "a later view":
        outlines = [Outline("a", 1, (1, 5, "a"), log, 0, True), outlines[1]]
    if knows == "everybody, one of them with a lost disk":
        outlines[2] = Outline("c", 33, NO_VIEW, log, 0, False)
    assert b.ask("a", accept((A, 1, 10), outlines=outlines)) == wire.Accepted(NEXT, "b", 2)


def test_refused_other_base_and_nothing_has_changed() -> None:
    b = Lone([*FIRST, held(A, 1, 10)])
    b.ask("a", propose([A, B], [DOWN]))
    right = accept((A, 1, 10))
    before = len(b.records)
    wrong = msgspec.structs.replace(right, view=msgspec.structs.replace(right.view, base_hash=bytes(16)))
    answer = b.ask("a", wrong)
    assert isinstance(answer, Refuse)
    assert answer.why == "OtherBase"
    assert b.records[before:] == []
    assert b.core.agreement is not None
    assert b.core.agreement.history.length == 0
    assert b.ask("a", right) == wire.Accepted(NEXT, "b", 2)


def test_refused_promised_an_accept_of_another_number() -> None:
    b = Lone([*FIRST, held(A, 1, 10)])
    b.ask("a", propose([A, B], [DOWN], (2, 2, "a")))
    answer = b.ask("a", accept((A, 1, 10)))
    assert isinstance(answer, Refuse)
    assert (answer.why, answer.promise) == ("Promised", (2, 2, "a"))


@pytest.mark.parametrize("change", ["birth", "cluster", "stamps"])
def test_what_no_sound_master_sends_is_a_fault_by_name(change: str) -> None:
    b = Lone([*FIRST, held(A, 1, 10)])
    if change == "stamps":
        b.ask("a", propose([A, B], [DOWN]))
        with pytest.raises(PeerFault, match="Malformed"):
            b.receive("a", msgspec.structs.replace(accept((A, 1, 10)), stamps=b""))
    elif change == "birth":
        with pytest.raises(PeerFault, match="UnknownBirth"):
            b.receive("a", propose([A, Member("b", 99, 1, "uk")], [DOWN]))
    else:
        with pytest.raises(PeerFault, match="OtherCluster"):
            b.receive("a", msgspec.structs.replace(propose([A, B], [DOWN]), cluster=bytes(16)))
    assert b.core.views.number == VIEW.number


# Accept and install


def test_rule_21_nothing_of_the_base_is_used_before_the_install() -> None:
    b = Lone([*FIRST, held(A, 1, 10)])
    b.ask("a", propose([A, B], [DOWN]))
    assert b.ask("a", accept((A, 1, 10))) == wire.Accepted(NEXT, "b", 2)
    b.said.clear()
    for _ in range(4):
        b.pass_ms(20)
    core = b.core
    assert core.agreement is not None
    assert core.agreement.history.length == 1
    assert (core.agreement.stable, core.views.installed, core.views.at_work) == (0, False, False)
    assert not any(isinstance(message, Post) for _, message in b.said)
    b.receive("a", wire.Install(NEXT))
    b.pass_ms(1)
    assert (core.agreement.stable, core.views.at_work) == (1, True)
    assert ViewInstalled(*NEXT) in b.records
    assert any(isinstance(message, Post) and message.epoch == 2 for _, message in b.said)
    assert [peer.node for peer in core.peers] == ["a"]


def test_a_post_in_the_accepted_view_tells_that_it_is_installed() -> None:
    b = Lone([*FIRST, held(A, 1, 10)])
    b.ask("a", propose([A, B], [DOWN]))
    b.ask("a", accept((A, 1, 10)))
    restarted = b.restart()
    assert not restarted.core.views.installed
    one = post(NEXT)
    claim = msgspec.structs.replace(one.claim, log_index=1, log_hash=base((A, 1, 10)), own_seq=1, held=[1, 0, 0])
    restarted.receive("a", msgspec.structs.replace(one, claim=claim))
    assert restarted.core.views.at_work
    assert restarted.core.agreement is not None
    assert restarted.core.agreement.stable == 1


def test_rule_34_an_accepted_view_is_not_installed_over_a_higher_promise() -> None:
    b = Lone([*FIRST, held(A, 1, 10)])
    b.ask("a", propose([A, B], [DOWN]))
    b.ask("a", accept((A, 1, 10)))
    assert isinstance(b.ask("a", propose([A, B], [], (3, 1, "a"), NEXT)), Report)
    b.receive("a", wire.Install(NEXT))
    b.receive("a", post(NEXT))
    assert not b.core.views.installed
    assert not any(isinstance(record, ViewInstalled) for record in b.records[len(FIRST) :])


def test_an_accept_waits_for_the_payloads_that_it_names() -> None:
    """Only what is held is accepted; the rest is asked for, of the coordinator first, and the count is told."""
    b = Lone([*FIRST, held(A, 1, 10)])
    b.ask("a", propose([A, B], [DOWN]))
    b.said.clear()
    b.receive("a", accept((A, 1, 10), (A, 2, 20), (C, 1, 30)))
    b.pass_ms(1)
    assert ("a", wire.Missing(NEXT, "b", 2)) in b.said
    assert ("a", wire.FetchRuns(Span("a", 1, 2, 1))) in b.said
    assert b.core.views.number == VIEW.number
    b.receive("a", wire.Runs([held(A, 2, 20).run]))
    b.said.clear()
    b.pass_ms(1)
    assert ("a", wire.FetchRuns(Span("c", 3, 1, 1))) in b.said
    b.receive("a", wire.Runs([held(C, 1, 30).run]))
    b.pass_ms(1)
    assert ("a", wire.Accepted(NEXT, "b", 2)) in b.said
    assert b.core.views.number == NEXT


def test_an_entry_of_the_base_may_have_another_stamp_than_it_was_held_with() -> None:
    b = Lone([*FIRST, held(A, 1, 10), held(B, 1, 20)])
    b.ask("a", propose([A, B], [DOWN]))
    assert b.ask("a", accept((A, 1, 10), (B, 1, 15))) == wire.Accepted(NEXT, "b", 2)
    (record,) = [r for r in b.records if isinstance(r, ViewAccepted) and r.view.number == NEXT]
    assert record.stamped == [Stamped("b", 2, 1, [15])]
    again = b.restart().core.agreement
    assert again is not None
    assert again.own.stamp(1) == 15
    assert again.history.hash == base((A, 1, 10), (B, 1, 15))


def test_what_another_view_made_of_its_stamps_is_no_word_of_a_master() -> None:
    """They may have been fetched from a view that the master has never seen, and before this process began."""
    b = Lone([*FIRST, held(A, 1, 10), held(B, 1, 20), held(A, 2, 1 << 60)])
    b.receive("a", who_of("a", 3, []))
    (known,) = [message for to, message in b.said if to == "a" and isinstance(message, wire.Known)]
    assert known.of_you == [wire.KnownBirth(A.birth, 3, 2, 0)]


# What clients bring meanwhile


@pytest.mark.parametrize("restart", [False, True])
def test_what_comes_while_the_view_is_stopped_gets_its_stamp_at_the_accept_above_everything(restart: bool) -> None:
    b = Lone([*FIRST, held(A, 1, 10), held(B, 1, 20)])
    b.ask("a", propose([A, B], [DOWN]))
    answers = b.submit("x", "y")
    answers += b.submit("z")
    assert [one.txid.seq for one in answers if isinstance(one, Accepted)] == [2, 3, 4]
    late = [i.stamp for r in b.records if isinstance(r, Held) and r.run.first_seq >= 2 for i in r.run.items]
    assert late == [0, 0, 0]
    if restart:
        b = b.restart()
    assert b.core.agreement is not None
    assert b.core.agreement.last_own == 4
    b.ask("a", accept((A, 1, 10), (B, 1, 20), floor=1 << 62))
    own = b.core.agreement.own
    assert own.stamps(2, 4) == [(1 << 62) + 1, (1 << 62) + 2, (1 << 62) + 3]
    (record,) = [r for r in b.records if isinstance(r, ViewAccepted) and r.view.number == NEXT]
    assert record.stamped == [Stamped("b", 2, 2, own.stamps(2, 4))]
    assert b.core.agreement.last_stamp == own.stamp(4)
    assert b.core.agreement.late == []
    again = b.restart().core.agreement
    assert again is not None
    assert again.own.stamps(2, 4) == own.stamps(2, 4)


def test_what_has_no_stamp_is_not_in_the_report_and_not_sent() -> None:
    b = Lone()
    b.ask("a", propose([A, B], [DOWN]))
    b.submit("x")
    report = b.ask("a", propose([A, B], [DOWN], (2, 2, "a")))
    assert isinstance(report, Report)
    assert report.pending == []
    assert report.number == (2, 2, "a")


# Leaves and proofs


def test_a_master_that_has_left_says_so_until_it_is_heard_and_takes_no_more_work() -> None:
    b = Lone()
    b.hear("a")
    b.core.leave(b.now, 500)
    assert isinstance(b.submit("x")[0], Unavailable)
    for _ in range(12):
        b.pass_ms(50)
    leaving = wire.Leaving("b", 2, 1, VIEW.number)
    assert ("a", leaving) in b.said
    assert Left(1, 1, "a") in b.records
    b.receive("a", leaving)
    assert b.core.leave_done
    b.said.clear()
    b.receive("a", propose([A, B], [DOWN]))
    assert b.said == [("a", leaving)], "no vote of one that has left"
    assert not any(isinstance(record, Promised) for record in b.records)


def test_a_master_that_has_left_accepts_no_view_any_more() -> None:
    """It has reported before it left; the others let it go for what it said, without asking where it is then."""
    b = Lone()
    b.hear("a")
    assert isinstance(b.ask("a", propose([A, B], [DOWN])), Report)
    b.core.leave(b.now, 500)
    b.pass_ms(600)
    assert Left(1, 1, "a") in b.records
    b.said.clear()
    b.receive("a", accept(floor=50))
    assert b.said == [("a", wire.Leaving("b", 2, 1, VIEW.number))]
    assert b.core.views.number == VIEW.number


def test_what_waits_for_one_that_leaves_begins_anew_at_once() -> None:
    b = Lone()
    for node in ("a", "c"):
        b.hear(node)
    b.core.prove_down("a", 1, 1)
    asked: list[Number] = []
    while not asked:
        assert b.mono < 20_000
        b.hear("c")
        b.pass_ms(10)
        asked = [m.number for to, m in b.said if to == "c" and isinstance(m, Propose)]
    b.receive("c", wire.Leaving("c", 3, 1, VIEW.number))
    b.pass_ms(1)
    assert b.core.views.change is None or b.core.views.change.number > asked[0]


def test_a_refused_proof_does_not_take_a_later_one_with_it() -> None:
    """The supervisor proves c's second process down while the first proof is on its way to a refusal."""
    b = Lone()
    b.core.prove_down("c", 3, 1)
    asked: list[Number] = []
    while not asked:
        assert b.mono < 20_000
        b.receive("a", who_of("a", 1, ["b"]))
        b.said.clear()
        b.pass_ms(10)
        asked = [m.number for to, m in b.said if to == "a" and isinstance(m, Propose)]
    b.core.prove_down("c", 3, 2)
    b.receive("a", Refuse(asked[-1], asked[-1], "StaleProof", "c", "c start 2 was heard"))
    assert b.core.views.departures == {"c": Departure("c", 3, 2, "down")}


def test_a_proof_of_an_earlier_process_is_refused_to_the_supervisor() -> None:
    b = Lone()
    b.hear("c", start=5)
    with pytest.raises(Conflict, match="start 5"):
        b.core.prove_down("c", 3, 4)
    assert b.core.views.departures == {}
    b.core.prove_down("c", 3, 5)
    assert b.core.views.departures == {"c": Departure("c", 3, 5, "down")}
    b.hear("c", start=6)
    assert b.core.views.departures == {}, "it is back"


def test_a_leave_counts_although_the_process_is_proved_down_thereafter() -> None:
    """A proof needs somebody who vouches for it; what c said itself does not. Of a later process it is news."""
    b = Lone()
    b.receive("c", wire.Leaving("c", 3, 1, VIEW.number))
    b.core.prove_down("c", 3, 1)
    assert b.core.views.departures == {"c": Departure("c", 3, 1, "left")}
    b.core.prove_down("c", 3, 2)
    assert b.core.views.departures == {"c": Departure("c", 3, 2, "down")}


def test_who_was_heard_through_another_first_is_vouched_for_once_it_is_heard_itself() -> None:
    """Rule 27: else nobody vouches for a member that was heard at work, and the others wait for it for ever."""
    b = Lone()
    mine = b.core.start
    relayed = msgspec.structs.replace(post(), relays=[post(node=C).claim], your_start=mine)
    b.receive("a", relayed)
    later = post(node=C)
    later = msgspec.structs.replace(later, claim=msgspec.structs.replace(later.claim, number=2), your_start=mine)
    first = b.ask("a", propose([A, B], [DOWN]))
    assert isinstance(first, Report)
    assert first.heard == [("a", 1, 1)], "what a relays of it is what a has heard"

    b = Lone()
    b.receive("a", relayed)
    b.receive("c", later)
    b.pass_ms(500)
    report = b.ask("a", propose([A, B], [DOWN]))
    assert isinstance(report, Report)
    assert report.heard == [("a", 1, 1), ("c", 3, 1)]


def test_a_leave_of_a_later_view_than_this_master_knows_is_none_here() -> None:
    b = Lone()
    b.receive("c", wire.Leaving("c", 3, 1, (2, 1, "a")))
    assert b.core.views.departures == {}
    b.receive("c", wire.Leaving("c", 3, 1, VIEW.number))
    assert b.core.views.departures == {"c": Departure("c", 3, 1, "left")}


def gaps_between_proposals(why: str, tries: int) -> list[int]:
    """Milliseconds, of b, which wants to go on without a and is refused by c each time."""
    b = Lone()
    b.core.prove_down("a", 1, 1)
    asked: list[int] = []
    while len(asked) < tries:
        assert b.mono < 60_000
        b.receive("c", who_of("c", 1, ["b"]))
        b.said.clear()
        b.pass_ms(10)
        for number in [m.number for to, m in b.said if to == "c" and isinstance(m, Propose)]:
            asked.append(b.mono)
            b.receive("c", Refuse(number, number, why, "a", "a is heard here"))
    return [after - before for before, after in pairwise(asked)]


def test_rule_32_who_is_told_that_somebody_is_missing_lets_the_others_come_first() -> None:
    """One who hears everybody proposes soon, with the number that it was outbid by: a new promise each round of the one
    who misses somebody would outbid it for ever."""
    gaps = gaps_between_proposals("HeardBothWays", 10)
    assert gaps == sorted(gaps)
    assert gaps[-1] > 3 * gaps[0]
    assert max(gaps_between_proposals("Promised", 10)) <= gaps[0] + 20


# Around a lost link (rule 22)


def test_rule_22_a_message_for_another_goes_one_step_on_and_never_back() -> None:
    b = Lone()
    b.hear("a")
    b.hear("c")
    inner = wire.encode(wire.Install(NEXT))
    b.receive("a", wire.Forward("c", ["a"], inner))
    assert b.said == [("c", wire.Forward("c", ["a", "b"], inner))]
    b.said.clear()
    b.receive("a", wire.Forward("c", ["b", "a"], inner))
    assert b.said == [], "it has passed here"


@pytest.mark.parametrize("path", [[], ["a", "c", "a", "c"]])
def test_a_path_that_cannot_be_is_a_fault_by_name(path: list[str]) -> None:
    with pytest.raises(PeerFault, match="Malformed"):
        Lone().receive("a", wire.Forward("c", path, b""))


def test_rule_22_the_answer_goes_back_the_way_that_is_open() -> None:
    """The proposal of a came through c; the link between a and b is lost."""
    b = Lone()
    b.receive("c", who_of("c", 1, ["a", "b"]))
    b.said.clear()
    proposal = propose([A, B, C])
    b.receive("c", wire.Forward("b", ["a", "c"], wire.encode(proposal)))
    effects = [(to, type(message)) for to, message in b.said]
    assert effects == [("c", Report)], "inside a Forward whose target is a; the driver wraps it"


def test_what_stands_elsewhere_with_other_stamps_is_not_taken_into_the_view_at_work() -> None:
    """One of another branch gave new stamps to what a member of this view made; here that orders by the member's."""
    b = Lone([*FIRST, held(A, 1, 10)])
    agreement = b.core.agreement
    assert agreement is not None
    assert b.core.views.at_work
    queue = agreement.by_origin[A.origin]
    b.receive("c", wire.Runs([held(A, 2, 99).run], NEXT))
    assert queue.held == 1
    b.receive("c", wire.Runs([held(A, 2, 20).run], VIEW.number))
    assert queue.held == 2
