"""One member of a view, messages by hand: who leaves, who is proved down, who comes first (rules 27, 32)."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from lone_member import DOWN, VIEW, A, B, C, Lone, accept, post, propose, who_of

from txlog.model.errors import Conflict, Unavailable
from txlog.model.records import ViewLeft, ViewPromised
from txlog.model.view import Number
from txlog.wire import messages as wire
from txlog.wire.messages import Departure, ProposeView, RejectView, ViewReport

# Leaves and proofs


def test_a_master_that_has_left_says_so_until_it_is_heard_and_takes_no_more_work() -> None:
    b = Lone()
    b.hear("a")
    b.core.leave(b.now, 500)
    assert isinstance(b.submit("x")[0], Unavailable)
    for _ in range(12):
        b.pass_ms(50)
    leaving = wire.LeaveNotice("b", 2, 1, VIEW.number)
    assert ("a", leaving) in b.said
    assert ViewLeft(1, 1, "a") in b.records
    b.receive("a", leaving)
    assert b.core.is_leave_done
    b.said.clear()
    b.receive("a", propose([A, B], [DOWN]))
    assert b.said == [("a", leaving)], "no vote of one that has left"
    assert not any(isinstance(record, ViewPromised) for record in b.records)


def test_a_master_that_has_left_accepts_no_view_any_more() -> None:
    """It has reported before it left; the others let it go for what it said, without asking where it is then."""
    b = Lone()
    b.hear("a")
    assert isinstance(b.ask("a", propose([A, B], [DOWN])), ViewReport)
    b.core.leave(b.now, 500)
    b.pass_ms(600)
    assert ViewLeft(1, 1, "a") in b.records
    b.said.clear()
    b.receive("a", accept(floor=50))
    assert b.said == [("a", wire.LeaveNotice("b", 2, 1, VIEW.number))]
    assert b.core.views.number == VIEW.number


def test_what_waits_for_one_that_leaves_begins_anew_at_once() -> None:
    b = Lone()
    for node in ("a", "c"):
        b.hear(node)
    b.core.report_down("a", 1, 1)
    asked: list[Number] = []
    while not asked:
        assert b.mono < 20_000
        b.hear("c")
        b.pass_ms(10)
        asked = [m.number for to, m in b.said if to == "c" and isinstance(m, ProposeView)]
    b.receive("c", wire.LeaveNotice("c", 3, 1, VIEW.number))
    b.pass_ms(1)
    assert b.core.views.change is None or b.core.views.change.number > asked[0]


def test_a_refused_proof_does_not_take_a_later_one_with_it() -> None:
    """The supervisor proves c's second process down while the first proof is on its way to a refusal."""
    b = Lone()
    b.core.report_down("c", 3, 1)
    asked: list[Number] = []
    while not asked:
        assert b.mono < 20_000
        b.receive("a", who_of("a", 1, ["b"]))
        b.said.clear()
        b.pass_ms(10)
        asked = [m.number for to, m in b.said if to == "a" and isinstance(m, ProposeView)]
    b.core.report_down("c", 3, 2)
    b.receive("a", RejectView(asked[-1], asked[-1], "StaleProof", "c", "c start 2 was heard"))
    assert b.core.views.departures == {"c": Departure("c", 3, 2, "down")}


def test_a_proof_of_an_earlier_process_is_refused_to_the_supervisor() -> None:
    b = Lone()
    b.hear("c", start=5)
    with pytest.raises(Conflict, match="start 5"):
        b.core.report_down("c", 3, 4)
    assert b.core.views.departures == {}
    b.core.report_down("c", 3, 5)
    assert b.core.views.departures == {"c": Departure("c", 3, 5, "down")}
    b.hear("c", start=6)
    assert b.core.views.departures == {}, "it is back"


def test_a_leave_counts_although_the_process_is_proved_down_thereafter() -> None:
    """A proof needs somebody who vouches for it; what c said itself does not. Of a later process it is news."""
    b = Lone()
    b.receive("c", wire.LeaveNotice("c", 3, 1, VIEW.number))
    b.core.report_down("c", 3, 1)
    assert b.core.views.departures == {"c": Departure("c", 3, 1, "left")}
    b.core.report_down("c", 3, 2)
    assert b.core.views.departures == {"c": Departure("c", 3, 2, "down")}


def test_who_was_heard_through_another_first_is_vouched_for_once_it_is_heard_itself() -> None:
    """Rule 27: else nobody vouches for a member that was heard at work, and the others wait for it for ever."""
    b = Lone()
    mine = b.core.start
    relayed = msgspec.structs.replace(post(), relays=[post(node=C).claim], last_start_seen_of_you=mine)
    b.receive("a", relayed)
    later = post(node=C)
    later = msgspec.structs.replace(
        later, claim=msgspec.structs.replace(later.claim, number=2), last_start_seen_of_you=mine
    )
    first = b.ask("a", propose([A, B], [DOWN]))
    assert isinstance(first, ViewReport)
    assert first.heard == [("a", 1, 1)], "what a relays of it is what a has heard"

    b = Lone()
    b.receive("a", relayed)
    b.receive("c", later)
    b.pass_ms(500)
    report = b.ask("a", propose([A, B], [DOWN]))
    assert isinstance(report, ViewReport)
    assert report.heard == [("a", 1, 1), ("c", 3, 1)]


def test_a_leave_of_a_later_view_than_this_master_knows_is_none_here() -> None:
    b = Lone()
    b.receive("c", wire.LeaveNotice("c", 3, 1, (2, 1, "a")))
    assert b.core.views.departures == {}
    b.receive("c", wire.LeaveNotice("c", 3, 1, VIEW.number))
    assert b.core.views.departures == {"c": Departure("c", 3, 1, "left")}


def gaps_between_proposals(why: str, tries: int) -> list[int]:
    """Milliseconds, of b, which wants to go on without a and is refused by c each time."""
    b = Lone()
    b.core.report_down("a", 1, 1)
    asked: list[int] = []
    while len(asked) < tries:
        assert b.mono < 120_000
        b.receive("c", who_of("c", 1, ["b"]))
        b.said.clear()
        b.pass_ms(10)
        for number in [m.number for to, m in b.said if to == "c" and isinstance(m, ProposeView)]:
            asked.append(b.mono)
            b.receive("c", RejectView(number, number, why, "a", "a is heard here"))
    return [after - before for before, after in pairwise(asked)]


def test_rule_32_who_is_told_that_somebody_is_missing_lets_the_others_come_first() -> None:
    """One who hears everybody proposes soon, with the number that it was outbid by: a new promise each round of the one
    who misses somebody would outbid it for ever."""
    gaps = gaps_between_proposals("HeardBothWays", 10)
    assert gaps == sorted(gaps)
    assert gaps[-1] > 3 * gaps[0]
    assert max(gaps_between_proposals("Promised", 10)) <= gaps[0] + 20


def test_a_post_that_a_later_one_overtook_is_answered_all_the_same() -> None:
    """Else who sent it takes this master for one that does not hear it (rule 22)."""
    b = Lone()
    late, early = post(), post()
    early = msgspec.structs.replace(early, claim=msgspec.structs.replace(early.claim, number=7))
    late = msgspec.structs.replace(late, claim=msgspec.structs.replace(late.claim, number=6), ask=True)
    b.receive("a", early)
    b.pass_ms(1)
    b.said.clear()
    b.receive("a", late)
    b.pass_ms(1)
    answers = [message.answers for to, message in b.said if to == "a" and isinstance(message, wire.Post)]
    assert answers == [6]
