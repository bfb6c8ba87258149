"""Stamps are those of one view: what another view made of them is never mixed into the one at work (rules 14, 34)."""

from __future__ import annotations

import msgspec
from changing_views import forget
from core_cluster import Cluster
from lone_member import CONFIGURED, FIRST, NEXT, VIEW, A, C, Lone, base, held, post

from txlog.model.entry import Span
from txlog.model.records import ViewPromised
from txlog.model.view import LEARNER_STAMPS, View
from txlog.wire import messages as wire

GROWN = View(2, 1, "c", [C], VIEW.cluster_id, 0, base(), VIEW.origins, [VIEW.number], known_seqs=[2, 0, 0])
"""c has gone on without a and b, and has given a's transactions new stamps."""


def test_what_stands_elsewhere_with_other_stamps_is_not_taken_into_the_view_at_work() -> None:
    """One of another branch gave new stamps to what a member of this view made; here that orders by the member's."""
    b = Lone([*FIRST, held(A, 1, 10)])
    agreement = b.core.log_state
    assert agreement is not None
    assert b.core.views.is_active
    queue = agreement.by_origin[A.origin]
    b.receive("c", wire.RunsReply([held(A, 2, 99).run], NEXT))
    assert queue.held == 1
    b.receive("c", wire.RunsReply([held(A, 2, 20).run], VIEW.number))
    assert queue.held == 2


def test_rule_34_who_takes_stamps_of_the_view_ahead_has_stopped_its_own_for_good() -> None:
    """a and others of this view may order what a made by the stamps of this view, and tell b to follow."""
    b = Lone([*FIRST, held(A, 1, 10)])
    b.receive("c", wire.HelloReply("c", 3, 1, list(CONFIGURED), [], GROWN, True, [2, 0, 0]))
    b.pass_ms(50)
    assert ("c", wire.FetchRuns(Span("a", 1, 2, 1))) in b.said
    assert b.core.views.is_active, "nothing came yet"
    b.receive("c", wire.RunsReply([held(A, 1, 99).run], GROWN.number))
    assert b.core.views.is_active, "nothing new came"
    b.receive("c", wire.RunsReply([held(A, 2, 99).run], GROWN.number))
    promise, taken = b.records[-2:]
    assert (promise, taken) == (ViewPromised(*GROWN.number), held(A, 2, 99))
    for one in (b, b.restart()):
        assert one.core.views.is_stopped
        ordered = msgspec.structs.replace(
            post(), order_after=0, order=bytes([0, 0]), order_hash=base((A, 1, 10), (A, 2, 20))
        )
        one.receive("a", ordered)
        one.pass_ms(500)
        assert one.core.log_state is not None
        assert one.core.log_state.log_index.length == 0
        assert not any(isinstance(message, wire.Post) for _, message in one.said)


def test_what_a_stopped_master_holds_is_not_told_with_the_stamps_of_its_view() -> None:
    """Others are at work in that view still, and would order by them."""
    cluster = Cluster(idle_interval_ms=100).founded()
    cluster.submit("a", "x")
    cluster.run(300)
    told: list[wire.RunsReply] = []
    a = cluster.executors["a"]
    origin = cluster.core("a").views.origin
    for stopped in (False, True):
        if stopped:
            known = wire.HelloReply("c", cluster.core("c").birth, 1, list(CONFIGURED), [], GROWN, True, [1, 0, 0])
            cluster.core("a").views.on_hello_reply(known)
            cluster.core("a").view_manager.backfill.stop_for_newer_view()
        a.receive("b", wire.encode(wire.FetchRuns(Span("a", origin.birth, 1, 1))), cluster.now("a"))
        a.poll(cluster.now("a"))
        while (sync := a.begin_sync()) is not None:
            sync.run()
            a.end_sync()
        messages = [wire.decode(peer, data) for peer, data in a.release().messages]
        told += [message for message in messages if isinstance(message, wire.RunsReply)]
    assert [one.view for one in told] == [(1, 1, "a"), GROWN.number]


def test_a_learner_names_no_view_for_the_stamps_that_it_fetched() -> None:
    """c lost its disk and fetched from a view; b may be in another one, and has c's old incarnation as a member."""
    cluster = Cluster(idle_interval_ms=100).founded()
    cluster.submit("a", *["x"] * 2000)
    cluster.run(300)
    cluster.crash("c")
    forget(cluster, "c")
    cluster.cut |= {("a", "b"), ("b", "a")}  # it can be in no view without one of them
    cluster.start("c")
    origin = cluster.core("a").views.origin
    end_ms = cluster.now_ms + 3000
    while (log := cluster.core("c").log_state) is None or log.by_origin[origin].held == 0:
        assert cluster.now_ms < end_ms
        cluster.run(5)
    assert cluster.core("c").views.accepted is None
    c = cluster.executors["c"]
    c.receive("b", wire.encode(wire.FetchRuns(Span("a", origin.birth, 1, 1))), cluster.now("c"))
    c.poll(cluster.now("c"))
    while (sync := c.begin_sync()) is not None:
        sync.run()
        c.end_sync()
    messages = [wire.decode(peer, data) for peer, data in c.release().messages if peer == "b"]
    (answer,) = [message for message in messages if isinstance(message, wire.RunsReply)]
    assert len(answer.runs) == 1, "it answers: a damaged journal may need it"
    assert answer.view == LEARNER_STAMPS


def test_stamps_of_a_learner_are_not_taken_into_the_view_at_work() -> None:
    b = Lone()
    b.receive("c", wire.RunsReply([held(C, 1, 99).run], LEARNER_STAMPS))
    assert b.core.log_state is not None
    assert b.core.log_state.by_origin[C.origin].held == 0
    assert b.core.views.is_active


def test_an_older_program_that_sends_no_view_counts_where_its_hello_named_this_one() -> None:
    """A learner of that program answers in the same way, and says in its hello that it has no view."""
    b = Lone()
    assert b.core.log_state is not None
    queue = b.core.log_state.by_origin[C.origin]
    b.receive("c", wire.HelloReply("c", 9, 1, list(CONFIGURED), [], None, False, []))
    b.receive("c", wire.RunsReply([held(C, 1, 99).run]))
    assert queue.held == 0
    b.receive("a", wire.HelloReply("a", A.birth, 1, list(CONFIGURED), [], VIEW, True, [0, 0, 1]))
    b.receive("a", wire.RunsReply([held(C, 1, 20).run]))
    assert queue.held == 1
