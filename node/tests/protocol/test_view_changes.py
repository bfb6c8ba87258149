"""One member of a view: what it promises, reports, refuses and passes on (rules 21, 22, 23, 27, 34)."""

from __future__ import annotations

import msgspec
import pytest
from lone_member import (
    CONFIGURED,
    DOWN,
    FIRST,
    MEMBERS,
    NEXT,
    VIEW,
    A,
    B,
    C,
    Lone,
    accept,
    base,
    content,
    held,
    post,
    propose,
    who_of,
)

from txlog.model.entry import Span
from txlog.model.errors import PeerFault
from txlog.model.hashes import chain_start
from txlog.model.records import LogAppended, TransactionsPersisted, ViewAccepted, ViewInstalled, ViewLeft, ViewPromised
from txlog.model.view import NO_VIEW, Member, Number, View
from txlog.wire import messages as wire
from txlog.wire.messages import Checkpoint, Departure, Post, ProposeView, RejectView, ReportSummary, ViewReport

# Promise and report


def test_rule_34_a_report_is_a_promise_that_was_durable_before() -> None:
    b = Lone([*FIRST, held(B, 1, 10, 20)])
    effects_before = len(b.records)
    report = b.ask("a", propose([A, B], [DOWN]))
    assert isinstance(report, ViewReport)
    assert b.records[effects_before:] == [ViewPromised(*NEXT)]
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
    assert b.core.log_state is not None
    assert b.core.log_state.by_origin[A.origin].held == 0
    assert not any(isinstance(record, TransactionsPersisted) for record in b.records)


def test_rule_34_the_promise_survives_a_restart_and_the_stopped_view_is_never_resumed() -> None:
    b = Lone()
    b.ask("a", propose([A, B], [DOWN]))
    b = b.restart()
    assert b.core.views.is_stopped
    b.receive("a", post())
    b.receive("a", wire.InstallView(VIEW.number))
    b.receive("a", wire.CommitBootstrap(VIEW))
    for _ in range(20):
        b.pass_ms(50)
    assert not b.core.views.is_active
    assert not any(isinstance(message, Post) for _, message in b.said)
    lower = b.ask("c", propose([B, C], [Departure("a", 1, 1, "down")], (1, 9, "c")))
    assert isinstance(lower, RejectView)
    assert (lower.why, lower.promise) == ("Promised", NEXT)


def test_the_same_proposal_again_is_answered_again_also_after_a_restart() -> None:
    """Steps are repeated until they are answered; the snapshot is one, however often it is sent."""
    b = Lone([*FIRST, held(B, 1, 10)])
    first = b.ask("a", propose([A, B], [DOWN]))
    assert b.ask("a", propose([A, B], [DOWN])) == first
    again = b.restart().ask("a", propose([A, B], [DOWN]))
    assert isinstance(again, ViewReport)
    assert isinstance(first, ViewReport)
    assert (again.log, again.pending, again.number) == (first.log, first.pending, first.number)


def test_a_founding_view_that_was_accepted_and_never_at_work_is_reported() -> None:
    """Else a majority would wait for ever for one that holds all there is: nothing."""
    b = Lone(FIRST[:1])
    report = b.ask("a", propose([A, B], [DOWN]))
    assert isinstance(report, ViewReport)
    assert (report.view, report.installed, report.log.index) == (VIEW, False, 0)
    b.receive("a", accept(floor=50))
    assert b.core.views.number == NEXT


def test_a_report_begins_at_the_last_place_that_both_logs_have() -> None:
    b = Lone([*FIRST, held(A, 1, 10, 20, 30)])
    agreement = b.core.log_state
    assert agreement is not None
    agreement.append_up_to(30, [3, 0, 0])
    places = [Checkpoint(i, base(*[(A, seq, 10 * seq) for seq in range(1, i + 1)])) for i in (0, 1, 2)]
    wrong = Checkpoint(3, bytes(16))
    proposal = msgspec.structs.replace(propose([A, B], [DOWN]), checkpoints=[wrong, *places])
    report = b.ask("a", proposal)
    assert isinstance(report, ViewReport)
    assert report.shared == places[2]
    assert report.tail == [Span("a", 1, 3, 1)]
    assert report.log == Checkpoint(3, base((A, 1, 10), (A, 2, 20), (A, 3, 30)))
    assert report.hashes == report.log.hash


# Refusals


def refused(b: Lone, proposal: ProposeView, peer: str = "a") -> tuple[str, str]:
    answer = b.ask(peer, proposal)
    assert isinstance(answer, RejectView), answer
    assert answer.number == proposal.number
    assert not any(isinstance(record, ViewPromised) for record in b.records)
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
    assert b.core.failure_detector.is_bidirectional("c")
    gone = [Departure("c", 3, 1, "silent")]
    assert isinstance(b.ask("a", propose([A, B], gone, number=(4, 1, "a"), view=view)), ViewReport)


def test_one_that_lags_goes_along_without_others_of_its_old_view() -> None:
    """The view that takes it in has grown from its own; c, which only b hears, is let in after it."""
    b = Lone()
    b.hear("c")
    assert refused(b, propose([A, B], number=(4, 1, "a"), view=(3, 1, "a"))) == ("HeardBothWays", "c")
    grown = View(2, 1, "a", [A], VIEW.cluster_id, 0, base(), VIEW.origins, [VIEW.number])
    b.receive("a", wire.HelloReply("a", 1, 1, list(CONFIGURED), [], grown, True, [0, 0, 0]))
    assert refused(b, propose([A, B], number=(4, 1, "a"))) == ("HeardBothWays", "c"), "it lags behind another view"
    assert isinstance(b.ask("a", propose([A, B], number=(4, 1, "a"), view=(2, 1, "a"))), ViewReport)


def test_rule_23_a_backup_is_wanted_also_when_the_view_is_stopped() -> None:
    """Whoever proposed the next one may never be heard again; without a backup this one would wait for ever."""
    b = Lone()
    b.ask("a", propose([A, B], [DOWN]))
    for node in ("a", "c"):
        b.hear(node)
    b.pass_ms(100)
    assert not b.core.needs_split_backup
    b.hear("a")
    b.pass_ms(390)
    assert not b.core.needs_split_backup
    b.pass_ms(200)
    assert b.core.needs_split_backup
    b.core.on_backup_verified(0, chain_start(VIEW.cluster_id))
    assert not b.core.needs_split_backup


def test_rule_23_no_backup_is_wanted_of_workers_on_what_an_accept_cut_off() -> None:
    """None of them stands on what is stable until the view is installed: each would be made for nothing."""
    apart = msgspec.structs.replace(VIEW, diverged_index=0)
    added = LogAppended(1, [Span("a", 1, 1, 1)], base((A, 1, 10)), 1)
    b = Lone([ViewAccepted(apart), ViewInstalled(1, 1, "a"), held(A, 1, 10), added])
    assert b.core.needs_split_backup
    b.ask("a", propose([A, B], [DOWN]))
    assert b.core.needs_split_backup
    assert b.ask("a", accept((A, 1, 20))) == wire.ViewAcceptedReply(NEXT, "b", 2)
    b.pass_ms(1000)
    assert not b.core.needs_split_backup
    b.receive("a", wire.InstallView(NEXT))
    assert b.core.needs_split_backup


def test_what_a_member_at_work_makes_is_not_fetched_from_another_branch() -> None:
    """There it may have another stamp, and a would order it by the one that it has here, also after it was silent. When
    a has lost its disk, nobody else can bring it."""
    grown = View(2, 1, "c", [C], VIEW.cluster_id, 0, base(), VIEW.origins, [(1, 0, "c")], known_seqs=[1, 0, 0])
    b = Lone()
    b.hear("a")
    b.receive("c", wire.HelloReply("c", 3, 1, list(CONFIGURED), [], grown, True, [1, 0, 0]))
    b.said.clear()
    b.pass_ms(50)
    assert not any(isinstance(message, wire.FetchRuns) for _, message in b.said)
    b.pass_ms(450)
    assert not any(isinstance(message, wire.FetchRuns) for _, message in b.said)
    b.receive("a", msgspec.structs.replace(who_of("a", 1, ["b"]), birth=11, view=NO_VIEW))
    b.receive("c", wire.HelloReply("c", 3, 1, list(CONFIGURED), [], grown, True, [1, 0, 0]))
    b.pass_ms(50)
    assert ("c", wire.FetchRuns(Span("a", 1, 1, 1))) in b.said


def test_a_silent_one_may_go_when_nobody_hears_it() -> None:
    b = Lone()
    b.hear("c")
    b.pass_ms(399)
    b.pass_ms(2)
    assert isinstance(b.ask("a", propose([A, B], [Departure("c", 3, 1, "silent")])), ViewReport)


@pytest.mark.parametrize("why", ["down", "left"])
def test_refused_stale_proof_of_an_earlier_process(why: str) -> None:
    b = Lone()
    b.hear("c", start=2)
    b.pass_ms(399)
    b.pass_ms(2)
    assert refused(b, propose([A, B], [Departure("c", 3, 1, why)])) == ("StaleProof", "c")
    assert isinstance(b.ask("a", propose([A, B], [Departure("c", 3, 2, why)])), ViewReport)


@pytest.mark.parametrize("why", ["silent", "ordered"])
def test_silence_is_of_whoever_bears_that_birth(why: str) -> None:
    """b has heard a later process of c than a has; nobody hears c now. Only what is heard stands against it."""
    b = Lone()
    b.hear("c", start=2)
    b.pass_ms(399)
    assert refused(b, propose([A, B], [Departure("c", 3, 1, why)])) == ("HeardBothWays", "c")
    b.pass_ms(2)
    assert isinstance(b.ask("a", propose([A, B], [Departure("c", 3, 1, why)])), ViewReport)


def test_refused_no_majority() -> None:
    b = Lone(majority=True)
    gone = [Departure("a", 1, 1, "left"), Departure("c", 3, 1, "left")]
    assert refused(b, propose([B], gone, (2, 1, "b")), "c") == ("NoMajority", "")


def test_refused_left_when_nobody_knows_what_followed() -> None:
    """Rule 27: the others of the view may have gone on without this master."""
    b = Lone([*FIRST, held(A, 1, 10), ViewLeft(1, 1, "a")])
    assert isinstance(b.ask("a", propose([A, B], [DOWN])), ViewReport)
    answer = b.ask("a", accept((A, 1, 10)))
    assert isinstance(answer, RejectView)
    assert answer.why == "Left"
    assert b.core.views.number == VIEW.number


def test_a_member_that_is_heard_with_a_new_birth_has_lost_the_old_one() -> None:
    """A lagger comes back after the others took that member in again: it knows the new birth from nobody else."""
    b = Lone()
    b.hear("c")
    proposal = propose([A, B, Member("c", 33, 1, "us")], number=(4, 1, "a"), view=(3, 1, "a"))
    assert isinstance(b.ask("a", proposal), ViewReport)


@pytest.mark.parametrize("knows", ["a later view", "all that it left", "everybody, one of them with a lost disk"])
def test_rule_27_one_that_left_returns_with_who_knows(knows: str) -> None:
    b = Lone([*FIRST, held(A, 1, 10), ViewLeft(1, 1, "a")])
    b.ask("a", propose([A, B], [DOWN]))
    log = Checkpoint(0, b"")
    outlines = [ReportSummary(m.node, m.birth, VIEW.number, log, 0, True) for m in MEMBERS]
    if knows == "a later view":
        outlines = [ReportSummary("a", 1, (1, 5, "a"), log, 0, True), outlines[1]]
    if knows == "everybody, one of them with a lost disk":
        outlines[2] = ReportSummary("c", 33, NO_VIEW, log, 0, False)
    assert b.ask("a", accept((A, 1, 10), outlines=outlines)) == wire.ViewAcceptedReply(NEXT, "b", 2)


def test_refused_other_base_and_nothing_has_changed() -> None:
    b = Lone([*FIRST, held(A, 1, 10)])
    b.ask("a", propose([A, B], [DOWN]))
    right = accept((A, 1, 10))
    before = len(b.records)
    wrong = msgspec.structs.replace(right, view=msgspec.structs.replace(right.view, base_hash=bytes(16)))
    answer = b.ask("a", wrong)
    assert isinstance(answer, RejectView)
    assert answer.why == "OtherBase"
    assert b.records[before:] == []
    assert b.core.log_state is not None
    assert b.core.log_state.log_index.length == 0
    assert b.ask("a", right) == wire.ViewAcceptedReply(NEXT, "b", 2)


def test_refused_promised_an_accept_of_another_number() -> None:
    b = Lone([*FIRST, held(A, 1, 10)])
    b.ask("a", propose([A, B], [DOWN], (2, 2, "a")))
    answer = b.ask("a", accept((A, 1, 10)))
    assert isinstance(answer, RejectView)
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


# Around a lost link (rule 22)


def test_rule_22_a_message_for_another_goes_one_step_on_and_never_back() -> None:
    b = Lone()
    b.hear("a")
    b.hear("c")
    inner = wire.encode(wire.InstallView(NEXT))
    b.receive("a", wire.Relay("c", ["a"], inner))
    assert b.said == [("c", wire.Relay("c", ["a", "b"], inner))]
    b.said.clear()
    b.receive("a", wire.Relay("c", ["b", "a"], inner))
    assert b.said == [], "it has passed here"


@pytest.mark.parametrize("path", [[], ["a", "c", "a", "c"]])
def test_a_path_that_cannot_be_is_a_fault_by_name(path: list[str]) -> None:
    with pytest.raises(PeerFault, match="Malformed"):
        Lone().receive("a", wire.Relay("c", path, b""))


def test_rule_22_the_answer_goes_back_the_way_that_is_open() -> None:
    """The proposal of a came through c; the link between a and b is lost."""
    b = Lone()
    b.receive("c", who_of("c", 1, ["a", "b"]))
    b.said.clear()
    proposal = propose([A, B, C])
    b.receive("c", wire.Relay("b", ["a", "c"], wire.encode(proposal)))
    effects = [(to, type(message)) for to, message in b.said]
    assert effects == [("c", ViewReport)], "inside a Forward whose target is a; the driver wraps it"
