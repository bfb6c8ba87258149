"""One member of a view: what it accepts, installs and keeps of its clients meanwhile (rules 21, 34)."""

from __future__ import annotations

import msgspec
import pytest
from lone_member import DOWN, FIRST, NEXT, VIEW, A, B, C, Lone, accept, base, held, post, propose, who_of

from txlog.model.entry import RunItem, Span, TransactionRun
from txlog.model.hashes import content_hash
from txlog.model.records import ReassignedStamps, TransactionsPersisted, ViewAccepted, ViewInstalled, ViewPromised
from txlog.protocol.events import SubmissionAccepted
from txlog.wire import messages as wire
from txlog.wire.messages import Post, ViewReport

# Accept and install


def test_rule_21_nothing_of_the_base_is_used_before_the_install() -> None:
    b = Lone([*FIRST, held(A, 1, 10)])
    b.ask("a", propose([A, B], [DOWN]))
    assert b.ask("a", accept((A, 1, 10))) == wire.ViewAcceptedReply(NEXT, "b", 2)
    b.said.clear()
    for _ in range(4):
        b.pass_ms(20)
    core = b.core
    assert core.log_state is not None
    assert core.log_state.log_index.length == 1
    assert (core.log_state.stable, core.views.installed, core.views.is_active) == (0, False, False)
    assert not any(isinstance(message, Post) for _, message in b.said)
    b.receive("a", wire.InstallView(NEXT))
    b.pass_ms(1)
    assert (core.log_state.stable, core.views.is_active) == (1, True)
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
    assert restarted.core.views.is_active
    assert restarted.core.log_state is not None
    assert restarted.core.log_state.stable == 1


def test_rule_34_an_accepted_view_is_not_installed_over_a_higher_promise() -> None:
    b = Lone([*FIRST, held(A, 1, 10)])
    b.ask("a", propose([A, B], [DOWN]))
    b.ask("a", accept((A, 1, 10)))
    assert isinstance(b.ask("a", propose([A, B], [], (3, 1, "a"), NEXT)), ViewReport)
    b.receive("a", wire.InstallView(NEXT))
    b.receive("a", post(NEXT))
    assert not b.core.views.installed
    assert not any(isinstance(record, ViewInstalled) for record in b.records[len(FIRST) :])


def test_an_accept_waits_for_the_payloads_that_it_names() -> None:
    """Only what is held is accepted; the rest is asked for, of the coordinator first, and the count is told. One
    request names all that is missing."""
    b = Lone([*FIRST, held(A, 1, 10)])
    b.ask("a", propose([A, B], [DOWN]))
    b.said.clear()
    b.receive("a", accept((A, 1, 10), (A, 2, 20), (C, 1, 30)))
    b.pass_ms(1)
    assert ("a", wire.FetchProgress(NEXT, "b", 2)) in b.said
    assert ("a", wire.FetchRuns(Span("a", 1, 2, 1), [Span("c", 3, 1, 1)])) in b.said
    assert b.core.views.number == VIEW.number
    b.receive("a", wire.RunsReply([held(A, 2, 20).run]))
    b.said.clear()
    b.pass_ms(1)
    assert ("a", wire.FetchRuns(Span("c", 3, 1, 1))) in b.said
    b.receive("a", wire.RunsReply([held(C, 1, 30).run]))
    b.pass_ms(1)
    assert ("a", wire.ViewAcceptedReply(NEXT, "b", 2)) in b.said
    assert b.core.views.number == NEXT


def test_an_entry_of_the_base_may_have_another_stamp_than_it_was_held_with() -> None:
    b = Lone([*FIRST, held(A, 1, 10), held(B, 1, 20)])
    b.ask("a", propose([A, B], [DOWN]))
    assert b.ask("a", accept((A, 1, 10), (B, 1, 15))) == wire.ViewAcceptedReply(NEXT, "b", 2)
    (record,) = [r for r in b.records if isinstance(r, ViewAccepted) and r.view.number == NEXT]
    assert record.reassigned == [ReassignedStamps("b", 2, 1, [15])]
    again = b.restart().core.log_state
    assert again is not None
    assert again.own.stamp(1) == 15
    assert again.log_index.hash == base((A, 1, 10), (B, 1, 15))


def test_what_another_view_made_of_its_stamps_is_no_word_of_a_master() -> None:
    """They may have been fetched from a view that the master has never seen, and before this process began."""
    b = Lone([*FIRST, held(A, 1, 10), held(B, 1, 20), held(A, 2, 1 << 60)])
    b.receive("a", who_of("a", 3, []))
    (known,) = [message for to, message in b.said if to == "a" and isinstance(message, wire.HelloReply)]
    assert known.known_incarnations == [wire.KnownIncarnation(A.birth, 3, 2, 0)]


def test_no_counter_of_the_old_view_is_usable_in_the_next() -> None:
    """Every stamp in a view lies above what its members have reported; this is the other half of that."""
    b = Lone([*FIRST, held(A, 1, 10)])
    b.receive("a", post())
    assert {p.node: p.usable_counter for p in b.core.peers} == {"a": 50, "c": 0}
    b.ask("a", propose([A, B], [DOWN]))
    b.ask("a", accept((A, 1, 10), floor=60))
    b.receive("a", wire.InstallView(NEXT))
    assert b.core.views.is_active
    assert {p.node: p.usable_counter for p in b.core.peers} == {"a": 0}, "it has posted nothing in this view"


# What clients bring meanwhile


@pytest.mark.parametrize("restart", [False, True])
def test_what_comes_while_the_view_is_stopped_gets_its_stamp_at_the_accept_above_everything(restart: bool) -> None:
    b = Lone([*FIRST, held(A, 1, 10), held(B, 1, 20)])
    b.ask("a", propose([A, B], [DOWN]))
    answers = b.submit("x", "y")
    answers += b.submit("z")
    assert [one.txid.seq for one in answers if isinstance(one, SubmissionAccepted)] == [2, 3, 4]
    late = [
        i.stamp for r in b.records if isinstance(r, TransactionsPersisted) and r.run.first_seq >= 2 for i in r.run.items
    ]
    assert late == [0, 0, 0]
    if restart:
        b = b.restart()
    assert b.core.log_state is not None
    assert b.core.log_state.last_own_seq == 4
    b.ask("a", accept((A, 1, 10), (B, 1, 20), floor=1 << 57))
    own = b.core.log_state.own
    assert own.stamps(2, 4) == [(1 << 57) + 1, (1 << 57) + 2, (1 << 57) + 3]
    (record,) = [r for r in b.records if isinstance(r, ViewAccepted) and r.view.number == NEXT]
    assert record.reassigned == [ReassignedStamps("b", 2, 2, own.stamps(2, 4))]
    assert b.core.log_state.last_stamp == own.stamp(4)
    assert b.core.log_state.unstamped == []
    again = b.restart().core.log_state
    assert again is not None
    assert again.own.stamps(2, 4) == own.stamps(2, 4)


def test_the_stamp_to_come_lies_above_the_first_stamp_also_after_a_restart() -> None:
    """No ceiling in the journal covers a first stamp that was given while the view was stopped. Peers refuse a
    transaction with a first stamp that comes later than its stamp."""
    taken = held(B, 1, 0)
    one = taken.run.items[0]
    keyed = RunItem(0, one.kind, "k", one.payload, 1 << 58)
    run = TransactionRun("b", B.birth, 1, [keyed])
    records = [*FIRST, TransactionsPersisted(run, content_hash(one.kind, "k", one.payload))]
    b = Lone([*records, ViewPromised(*NEXT)])
    b.ask("a", propose([A, B], [DOWN]))
    b.ask("a", accept(floor=1 << 57))
    assert b.core.log_state is not None
    assert b.core.log_state.own.stamps(1, 1)[0] > 1 << 58


def test_what_has_no_stamp_is_not_in_the_report_and_not_sent() -> None:
    b = Lone()
    b.ask("a", propose([A, B], [DOWN]))
    b.submit("x")
    report = b.ask("a", propose([A, B], [DOWN], (2, 2, "a")))
    assert isinstance(report, ViewReport)
    assert report.pending == []
    assert report.number == (2, 2, "a")
