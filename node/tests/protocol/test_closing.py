"""How views are closed, against the small model's algorithm on plain lists (rules 21, 25, 26; protocol 3 and 4)."""

from __future__ import annotations

from itertools import pairwise, permutations
from random import Random
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from txlog.model.entry import Span
from txlog.model.hashes import HASH_BYTES, chain_hash, chain_start, origin_tag
from txlog.model.ids import Origin
from txlog.model.view import Member, Number, View, bootstrap_view
from txlog.protocol.log.log_index import LogIndex
from txlog.protocol.views.branch_selection import InsufficientReports
from txlog.protocol.views.next_view import NextView, compute_next_view
from txlog.wire.messages import Checkpoint, Departure, QueuedTransactions, ViewReport

MEMBERS = [Member(node, birth, 1, "uk") for birth, node in enumerate("abcd", start=1)]
FIRST = bootstrap_view(1, "a", MEMBERS, "Smart")
NEXT: Number = (9, 1, "a")


class Tx(NamedTuple):
    """Sorted as the protocol sorts."""

    stamp: int
    origin: Origin
    seq: int

    @property
    def name(self) -> tuple[Origin, int]:
        return self.origin, self.seq

    @property
    def content(self) -> bytes:
        return f"{self.origin.node}{self.seq}".encode().ljust(HASH_BYTES)


class Master(NamedTuple):
    """What one master has when it reports. ``log`` in order; ``queue``: held, not in it."""

    member: Member
    view: View | None
    log: list[Tx]
    queue: list[Tx]
    settled: int = 0
    counter: int = 0
    parked: tuple[Tx, ...] = ()
    installed: bool = True


def tx(text: str, stamp: int) -> Tx:
    member = next(m for m in MEMBERS if m.node == text[0])
    return Tx(stamp, member.origin, int(text[1:]))


def hashes_of(log: list[Tx]) -> list[bytes]:
    """The chain hash at every index, that of the empty log first."""
    found = [chain_start(FIRST.cluster_id)]
    for one in log:
        found.append(chain_hash(found[-1], one.stamp, origin_tag(one.origin), one.seq, one.content))
    return found


def history_of(log: list[Tx]) -> LogIndex:
    history = LogIndex(FIRST.cluster_id, [m.origin for m in MEMBERS])
    slots = {m.origin: slot for slot, m in enumerate(MEMBERS)}
    history.append(bytes(slots[one.origin] for one in log), b"".join(hashes_of(log)[1:]))
    return history


def named(txs: list[Tx]) -> list[QueuedTransactions]:
    found: dict[Origin, list[Tx]] = {}
    for one in sorted(txs, key=lambda t: (t.origin, t.seq)):
        found.setdefault(one.origin, []).append(one)
    return [
        QueuedTransactions(o.node, o.birth, mine[0].seq, [t.stamp for t in mine], b"".join(t.content for t in mine))
        for o, mine in found.items()
    ]


def report_of(master: Master, own: list[Tx], shared: int | None = None) -> ViewReport:
    """``shared``: the last place that its log and ``own`` have in common, when nothing else is said."""
    mine, theirs = hashes_of(master.log), hashes_of(own)
    common = max(i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a == b)
    at = common if shared is None else shared
    heard = max([0, *(t.stamp for t in [*master.log, *master.queue, *master.parked])])
    return ViewReport(
        NEXT,
        master.member.node,
        master.member.birth,
        1,
        master.view,
        master.installed,
        master.settled,
        Checkpoint(len(master.log), mine[-1]),
        Checkpoint(at, mine[at]),
        [Span(t.origin.node, t.origin.birth, t.seq, 1) for t in master.log[at:]],
        b"".join(mine[at + 1 :]),
        max(master.counter, heard),
        named([*master.log[master.settled :], *master.queue]),
        named(list(master.parked)),
        [],
        "Smart",
    )


def closed_of(
    masters: list[Master],
    own: list[Tx] | None = None,
    reports: list[ViewReport] | None = None,
    gone: list[Departure] | None = None,
    majority: bool = False,
) -> NextView:
    """``own``: the log of whoever computes; the first one's, when nothing else is said."""
    log = masters[0].log if own is None else own
    found = [report_of(master, log) for master in masters] if reports is None else reports
    members = sorted((m.member for m in masters), key=lambda m: m.node)
    weights = {m.node: m.weight for m in MEMBERS}
    return compute_next_view(NEXT, members, gone or [], found, history_of(log), weights, majority)


def base_of(closed: NextView, own: list[Tx]) -> list[Tx]:
    """The whole base with its stamps."""
    names = [(Origin(s.node, s.birth), seq) for s in closed.spans for seq in range(s.first_seq, s.first_seq + s.count)]
    return own[: closed.truncate_to] + [Tx(s, o, q) for s, (o, q) in zip(closed.stamps, names, strict=True)]


def waiting_of(closed: NextView) -> list[Tx]:
    rows = [
        Tx(stamp, Origin(one.node, one.birth), one.first_seq + at)
        for one in closed.waiting
        for at, stamp in enumerate(one.stamps)
    ]
    return sorted(rows)


def view_of(number: Number, members: str, parents: list[Number], strategy: str = "Smart", **more: object) -> View:
    inside = [m for m in MEMBERS if m.node in members]
    view = View(*number, inside, FIRST.cluster_id, 0, bytes(16), FIRST.origins, parents)
    return msgspec.structs.replace(view, strategy=strategy, strategies=[strategy for _ in parents], **more)


A, B, C, D = MEMBERS
a1, b1, a2, c1 = tx("a1", 10), tx("b1", 20), tx("a2", 30), tx("c1", 40)


def test_the_longest_log_of_the_view_then_everything_held_in_key_order() -> None:
    """Though the longest log is not that of whoever computes, and that one holds things in another order."""
    masters = [Master(A, FIRST, [a1], [c1, b1]), Master(B, FIRST, [a1, b1], [a2]), Master(C, FIRST, [], [a1, c1])]
    closed = closed_of(masters)
    assert base_of(closed, [a1]) == [a1, b1, a2, c1]
    assert closed.waiting == []
    assert closed.view.base_index == 4
    assert closed.view.base_hash == hashes_of([a1, b1, a2, c1])[-1]
    assert closed.view.ancestors == [FIRST.number]
    assert closed.branches == [FIRST.number]
    assert [m.node for m in closed.view.members] == ["a", "b", "c"]


def test_equal_stamps_go_by_origin() -> None:
    b1_too = tx("b1", 10)
    closed = closed_of([Master(A, FIRST, [], [a1]), Master(B, FIRST, [], [b1_too])])
    assert base_of(closed, []) == [a1, b1_too]


def test_who_is_outside_comes_above_the_floor_in_the_order_of_the_old_stamps() -> None:
    """A joiner without a view: its stamps lie before the base and count for their order only."""
    d1, d2, e = tx("d1", 1), tx("d2", 35), tx("c1", 5)
    masters = [Master(A, FIRST, [a1, b1], [a2], counter=1000), Master(D, None, [], [d1, d2, e])]
    closed = closed_of(masters)
    assert base_of(closed, [a1, b1]) == [a1, b1, a2]
    assert closed.view.floor == 1000
    assert waiting_of(closed) == [Tx(1001, d1.origin, 1), Tx(1002, e.origin, 1), Tx(1003, d2.origin, 2)]


@pytest.mark.parametrize("where", ["counter", "view", "base"])
def test_the_floor_is_at_or_above_everything_that_was_promised(where: str) -> None:
    view = view_of((2, 1, "a"), "ab", [FIRST.number], floor=500 if where == "view" else 0)
    queue = [tx("a2", 500)] if where == "base" else [a2]
    counter = 500 if where == "counter" else 0
    closed = closed_of([Master(A, view, [a1], queue), Master(B, view, [a1], [], counter=counter)])
    assert closed.view.floor == 500


def test_a_returning_lagger_orders_nothing() -> None:
    """Its view is in the history of the other; what it had ordered alone waits again, with a new stamp."""
    later = view_of((2, 1, "a"), "ab", [FIRST.number])
    lagger = Master(C, FIRST, [a1, tx("c1", 12)], [tx("c2", 13)])
    closed = closed_of([Master(A, later, [a1, b1], []), Master(B, later, [a1, b1, a2], []), lagger])
    assert base_of(closed, [a1, b1]) == [a1, b1, a2]
    assert [t.name for t in waiting_of(closed)] == [(C.origin, 1), (C.origin, 2)]
    assert min(t.stamp for t in waiting_of(closed)) == closed.view.floor + 1
    assert closed.branches == [later.number]


def test_what_stands_behind_a_gap_waits_for_who_fills_it() -> None:
    closed = closed_of([Master(A, FIRST, [a1], []), Master(D, None, [], [tx("d2", 5), tx("c1", 6), tx("b2", 7)])])
    assert [t.name for t in waiting_of(closed)] == [(C.origin, 1)]


def test_what_comes_from_outside_may_have_stamps_that_fall() -> None:
    """d1 had a new stamp in a view that was left behind, d2 came later, parked, with the one that it was made with."""
    before = view_of((2, 1, "b"), "b", [FIRST.number])
    later = view_of((3, 1, "a"), "a", [FIRST.number, before.number])
    masters = [Master(A, later, [a1], []), Master(B, before, [], [tx("d1", 100)], parked=(tx("d2", 6),))]
    assert [t.name for t in waiting_of(closed_of(masters))] == [(D.origin, 1), (D.origin, 2)]


def test_what_was_fetched_of_another_branch_is_none_of_the_queue() -> None:
    """c1 and c2 had new stamps when this view took c in, which went on beside it; c3 and c4 were fetched from there."""
    view = view_of((3, 1, "a"), "abc", [FIRST.number], floor=60)
    fetched = [tx("c3", 62), tx("c4", 90)]
    masters = [
        Master(A, view, [a1], [tx("c1", 61), tx("c2", 70), tx("a2", 80)]),
        Master(B, view, [a1], [tx("c1", 61), tx("c2", 70), *fetched, tx("d1", 30)]),
    ]
    closed = closed_of(masters)
    assert [t.name for t in base_of(closed, [a1])] == [(A.origin, 1), (C.origin, 1), (C.origin, 2), (A.origin, 2)]
    assert [t.name for t in waiting_of(closed)] == [(D.origin, 1), (C.origin, 3), (C.origin, 4)]
    assert min(t.stamp for t in waiting_of(closed)) == closed.view.floor + 1 == 91


def test_a_merge_takes_no_stamp_that_a_branch_only_fetched() -> None:
    """In b's view d3 has a stamp of a third branch, below the one that d2 has in d's own."""
    one = view_of((3, 1, "b"), "bd", [FIRST.number], "Simple", floor=60)
    other = view_of((3, 2, "d"), "d", [FIRST.number], "Simple")
    own = [tx("d1", 50), tx("d2", 66), tx("d3", 67)]
    mine = [tx("b1", 55)]
    masters = [Master(B, one, mine, [tx("d1", 61), tx("d2", 70), tx("d3", 62)]), Master(D, other, own, [])]
    closed = closed_of(masters, own=own)
    assert base_of(closed, own) == [own[0], *mine, *own[1:]]
    assert closed.waiting == []


def test_a_gap_inside_the_view_is_refused() -> None:
    """Hold means every earlier seq too, so such a report is none of a sound master."""
    with pytest.raises(InsufficientReports, match=r"would follow"):
        closed_of([Master(A, FIRST, [a1], []), Master(B, FIRST, [], [tx("b2", 7)])])


def test_a_log_that_nobody_names_in_full_is_refused() -> None:
    masters = [Master(A, FIRST, [a1], []), Master(B, FIRST, [a1, b1], [])]
    reports = [report_of(masters[0], [a1]), msgspec.structs.replace(report_of(masters[1], [a1]), pending=[])]
    with pytest.raises(InsufficientReports, match="in full"):
        closed_of(masters, reports=reports)


def test_a_log_that_does_not_lead_to_its_hash_is_refused() -> None:
    masters = [Master(A, FIRST, [a1], []), Master(B, FIRST, [a1, b1], [])]
    wrong = report_of(masters[1], [a1])
    wrong = msgspec.structs.replace(wrong, pending=named([tx("b1", 21)]))
    with pytest.raises(InsufficientReports, match="cannot be put together"):
        closed_of(masters, reports=[report_of(masters[0], [a1]), wrong])


@pytest.mark.parametrize("change", [{"shared": Checkpoint(9, bytes(16))}, {"tail": []}, {"hashes": b""}])
def test_a_report_that_does_not_fit_the_log_here_is_refused(change: dict[str, object]) -> None:
    masters = [Master(A, FIRST, [a1], []), Master(B, FIRST, [a1, b1], [])]
    wrong = msgspec.structs.replace(report_of(masters[1], [a1]), **change)
    with pytest.raises(InsufficientReports, match="report of b"):
        closed_of(masters, reports=[report_of(masters[0], [a1]), wrong])


def test_learners_alone_close_nothing() -> None:
    with pytest.raises(InsufficientReports, match="no reporting master"):
        closed_of([Master(A, None, [], [a1]), Master(B, None, [], [])])


def test_an_origins_place_is_one_byte() -> None:
    many = tuple(Tx(n, Origin("d", 100 + n), 1) for n in range(252))
    with pytest.raises(InsufficientReports, match="255"):
        closed_of([Master(A, FIRST, [a1], []), Master(D, None, [], list(many))])
    assert len(closed_of([Master(A, FIRST, [a1], []), Master(D, None, [], list(many[:251]))]).view.origins) == 255


def test_two_sides_of_a_split_the_heavier_one_goes_on() -> None:
    """``Smart``: its branch stands as it is, though the other is longer and older."""
    one, other = (
        view_of((2, 1, "a"), "ab", [FIRST.number], diverged_index=1),
        view_of((2, 1, "c"), "c", [FIRST.number], diverged_index=1),
    )
    left = [a1, tx("b1", 20)]
    right = [a1, tx("c1", 11), tx("c2", 12), tx("c3", 13)]
    masters = [Master(A, one, left, [], 1), Master(B, one, left, [], 1), Master(C, other, right, [], 1)]
    closed = closed_of(masters)
    assert closed.branches == [one.number, other.number]
    assert base_of(closed, left) == left
    assert [t.name for t in waiting_of(closed)] == [(C.origin, 1), (C.origin, 2), (C.origin, 3)]
    assert base_of(closed_of(masters, own=right), right) == left, "whoever computes it"


def test_simple_merges_the_branches_each_transaction_once_at_its_least_stamp() -> None:
    parts = {"diverged_index": 1, "strategy": "Simple"}
    one, other = view_of((2, 1, "a"), "ab", [FIRST.number], **parts), view_of((2, 1, "c"), "c", [FIRST.number], **parts)
    left, right = [a1, tx("b1", 20), tx("c1", 50)], [a1, tx("c1", 11), tx("c2", 30)]
    masters = [Master(A, one, left, [tx("b2", 60)], 1), Master(B, one, left, [], 1), Master(C, other, right, [], 1)]
    for own in (left, right):
        closed = closed_of(masters, own=own)
        assert base_of(closed, own) == [a1, tx("c1", 11), tx("b1", 20), tx("c2", 30), tx("b2", 60)]
        assert closed.waiting == []


def test_majority_never_chooses_by_weight() -> None:
    """The highest accepted view is closed, even by one master against two."""
    later = view_of((3, 1, "c"), "abc", [FIRST.number, (2, 1, "a")])
    masters = [Master(A, FIRST, [a1, b1], []), Master(B, FIRST, [a1, b1], []), Master(C, later, [a1], [])]
    assert base_of(closed_of(masters, majority=True), [a1, b1]) == [a1]


def test_simple_also_when_a_lagger_computes_whose_log_goes_another_way() -> None:
    """What the branches share behind its own log's end is not what stands there in its log."""
    one = view_of((3, 1, "a"), "a", [FIRST.number, (2, 1, "d")], "Simple", diverged_index=0)
    other = view_of((3, 1, "b"), "b", [FIRST.number, (2, 1, "d")], "Simple", diverged_index=0)
    old = view_of((2, 1, "d"), "d", [FIRST.number], "Simple", diverged_index=0)
    d1 = tx("d1", 5)
    masters = [Master(A, one, [d1, a1, b1, a2], []), Master(B, other, [d1, a1, b1, tx("b2", 31)], [])]
    lagger = Master(D, old, [d1, tx("d2", 6), tx("d3", 7)], [])
    for own in (masters[0].log, masters[1].log, lagger.log):
        closed = closed_of([*masters, lagger], own=own)
        assert base_of(closed, own) == [d1, a1, b1, a2, tx("b2", 31)]


@pytest.mark.parametrize("kinds", [["silent"], ["down"], ["lost"], ["left", "silent"], ["left", "left"], ["left"], []])
def test_where_the_log_may_part_is_noted_when_one_is_left_behind_that_did_not_say_so(kinds: list[str]) -> None:
    """At what was stable in the last view that everybody was in; that never moves while anybody is out. Of whom
    nothing is said, since a lagging coordinator knows nothing of it, is as silent."""
    masters = [Master(A, FIRST, [a1, b1], [], 1), Master(B, FIRST, [a1, b1], [], 2)]
    gone = [Departure(m.node, m.birth, 1, why) for m, why in zip((C, D), kinds, strict=False)]
    view = closed_of(masters, gone=gone).view
    assert view.diverged_index == (-1 if kinds == ["left", "left"] else 2)
    assert view.silent_members == [
        m.node for m, why in zip((C, D), [*kinds, "", ""], strict=False) if why in ("silent", "")
    ]
    before = view_of((2, 1, "a"), "ab", [FIRST.number], diverged_index=1)
    again = [master._replace(view=before) for master in masters]
    assert closed_of(again, gone=gone).view.diverged_index == 1
    assert closed_of(again, gone=gone, majority=True).view.diverged_index == -1
    everybody = [*again, Master(C, FIRST, [a1], []), Master(D, FIRST, [a1], [])]
    assert closed_of(everybody).view.diverged_index == -3, "until it is installed"


def test_where_the_log_may_part_counts_until_everybody_has_accepted_the_view_with_everybody_in_it() -> None:
    healed = view_of((3, 1, "a"), "abcd", [FIRST.number], diverged_index=-3)
    assert (healed.final_index(5, False), healed.final_index(5, True)) == (1, 5)
    masters = [Master(m, healed, [a1, b1], [], 1) for m in MEMBERS]
    assert closed_of(masters).view.diverged_index == -1, "they have installed it"
    reports = [msgspec.structs.replace(report_of(m, [a1, b1]), installed=False) for m in masters]
    assert closed_of(masters, reports=reports).view.diverged_index == -3
    assert closed_of(masters[:3], reports=reports[:3]).view.diverged_index == 1


def test_one_who_ordered_more_in_the_view_left_behind_is_still_a_lagger() -> None:
    """Its link to the others was lost one way, so it went on alone to their last counters; the others, who went on
    without it, had nothing to order. The log of their view is a prefix of its log, and its view is in their history."""
    later = view_of((2, 1, "a"), "ab", [FIRST.number], diverged_index=1)
    masters = [Master(A, later, [a1], [], 1), Master(B, later, [a1], [], 1), Master(C, FIRST, [a1, c1], [], 1)]
    for own in ([a1], [a1, c1]):
        closed = closed_of(masters, own=own)
        assert closed.branches == [later.number]
        assert base_of(closed, own) == [a1]
        assert [t.name for t in waiting_of(closed)] == [c1.name]


@pytest.mark.parametrize("birth", [C.birth, 77])
def test_who_alone_accepted_a_view_that_came_to_nothing_is_a_lagger(birth: int) -> None:
    """a accepted its own proposal, with what it had ordered alone, and was gone; c, whose accept it needed, went on
    without it. One with another birth than that view names may have lost the disk on which it had accepted."""
    members = [A, msgspec.structs.replace(C, birth=birth)]
    nothing = msgspec.structs.replace(view_of((2, 1, "a"), "ac", [FIRST.number]), members=members)
    later = view_of((2, 2, "c"), "c", [FIRST.number], diverged_index=1)
    masters = [Master(A, nothing, [a1, b1], [], 1, installed=False), Master(C, later, [a1], [], 1)]
    for own in ([a1], [a1, b1]):
        closed = closed_of(masters, own=own)
        came_to_nothing = birth == C.birth
        assert closed.branches == [(later if came_to_nothing else nothing).number]
        assert base_of(closed, own) == ([a1] if came_to_nothing else [a1, b1])
        assert [t.name for t in waiting_of(closed)] == ([b1.name] if came_to_nothing else [])


def test_the_weight_of_a_lagger_counts_for_the_branch_that_grew_from_its_view() -> None:
    """Two against one, though each branch has one member that votes, and the other is first and longer."""
    middle = view_of((2, 1, "b"), "bc", [FIRST.number], diverged_index=0)
    one = view_of((3, 1, "b"), "b", [FIRST.number, middle.number], diverged_index=0)
    other = view_of((2, 1, "a"), "a", [FIRST.number], diverged_index=0)
    masters = [Master(A, other, [a1, a2], []), Master(B, one, [b1], []), Master(C, middle, [], [])]
    assert closed_of(masters).branches == [one.number, other.number]
    assert closed_of(
        [master._replace(view=FIRST) if master.member is C else master for master in masters]
    ).branches == [
        other.number,
        one.number,
    ], "a view that both have grown from counts for neither"


# Against the model


class Case(NamedTuple):
    masters: list[Master]
    settled: list[Tx]


def case_of(rng: Random, strategy: str) -> Case:
    """Views that grew from one another, or beside one another, from one stable log; what each of their members has."""
    settled: list[Tx] = []
    seqs = {m.origin: 0 for m in MEMBERS}
    stamp = 0
    for _ in range(rng.randint(0, 4)):
        member = rng.choice(MEMBERS)
        stamp += rng.randint(1, 3)
        seqs[member.origin] += 1
        settled.append(Tx(stamp, member.origin, seqs[member.origin]))
    views = [FIRST] if rng.random() < 0.5 else []
    for epoch in range(2, rng.randint(2, 4) + 1):
        parent = rng.choice([FIRST, *views])
        members = "".join(sorted(rng.sample("abcd", rng.randint(1, 4))))
        number = (epoch, 1, members[0])
        views.append(view_of(number, members, [*parent.ancestors, parent.number], strategy=strategy))
    held = {view.number: _some(rng, settled, seqs, stamp) for view in views}
    ends = {view.number: rng.randint(0, len(held[view.number])) for view in views}
    installed = {view.number: rng.random() < 0.6 for view in views}
    masters: list[Master] = []
    for member in rng.sample(MEMBERS, rng.randint(1, 4)):
        mine = [view for view in views if view.member(member.node)]
        if not mine:
            masters.append(Master(member, None, [], _some(rng, [], dict.fromkeys(seqs, 0), 0)))
            continue
        view = rng.choice(mine)
        whole = held[view.number]
        log = whole[: rng.randint(0, ends[view.number])]
        names = {t.name for t in log}
        upto = {o: rng.randint(max([seq, *(t.seq for t in log if t.origin == o)]), 99) for o, seq in seqs.items()}
        queue = [t for t in whole if t.name not in names and t.seq <= upto[t.origin]]
        here = Master(member, view, settled + log, queue, len(settled), rng.randint(0, 60))
        masters.append(here._replace(installed=installed[view.number]))
    return Case(masters, settled)


def _some(rng: Random, settled: list[Tx], seqs: dict[Origin, int], stamp: int) -> list[Tx]:
    """Transactions behind the settled ones, in key order, each origin's seqs without a gap."""
    found: list[Tx] = []
    for origin, seq in seqs.items():
        at = stamp
        for more in range(rng.randint(0, 3)):
            at += rng.randint(1, 6)
            found.append(Tx(at, origin, seq + 1 + more))
    return sorted(found)


def model(masters: list[Master], majority: bool, simple: bool) -> tuple[list[Tx], list[Tx], int]:
    """``combine`` of the small model of view changes, on whole logs, nothing clever: base, new queue, floor. Two views
    cannot each be a lagger of the other, so a log counts against those only that are in no history."""
    reports = [m for m in masters if m.view is not None]
    here = {m.member.node for m in masters}
    numbers = sorted({m.view.number for m in reports if m.view})
    by = {n: [m for m in reports if m.view and m.view.number == n] for n in numbers}
    view = {n: by[n][0].view for n in numbers}
    nodes = {n: {m.member.node for m in by[n]} for n in numbers}
    log = {n: max((m.log for m in by[n]), key=len) for n in numbers}
    high = max([0, *(t.stamp for m in masters for t in [*m.log, *m.queue]), *(m.counter for m in masters)])

    def history(n: Number) -> list[Number]:
        found = view[n]
        return found.ancestors if found else []

    def names(n: Number) -> set[str]:
        found = view[n]
        return {m.node for m in found.members} if found else set()

    def idle(n: Number, other: Number) -> bool:
        """Accepted, and given up by one of its members before anybody had installed it."""
        gone_on = n < other and any(m.member.node in names(n) for m in by[other])
        return gone_on and not any(m.installed for m in by[n]) and set(history(n)[-1:]) <= set(history(other))

    def behind(n: Number, other: Number) -> bool:
        return n in history(other) or idle(n, other)

    leaves = [n for n in numbers if not any(behind(n, other) for other in numbers)]

    def lagger(n: Number) -> bool:
        seen = {j for z in numbers if z > n for j in names(z) & nodes[z]}
        return not names(n) - nodes[n] - seen and any(
            log[other][: len(log[n])] == log[n] and (len(log[other]) > len(log[n]) or other > n)
            for other in leaves
            if other != n
        )

    forks = [n for n in leaves if not lagger(n)]

    def weight(n: Number) -> tuple[int, int, int]:
        counted = set(nodes[n])
        for z in numbers:
            if z not in forks and [f for f in forks if behind(z, f)] == [n]:
                counted |= nodes[z]
        counted |= {j for j in names(n) - here if not any(j in names(z) for z in numbers if z > n)}
        return len(counted), len(log[n]), -min("abcd".index(j) for j in nodes[n])

    winner = max(numbers) if majority else max(forks, key=weight)

    def whole(n: Number) -> list[Tx]:
        inside = set(log[n])
        return log[n] + sorted({t for m in by[n] for t in m.queue if t not in inside})

    base = whole(winner)
    if simple and not majority and len(forks) > 1:
        branches = [whole(n) for n in forks]
        shared = 0
        while all(len(b) > shared for b in branches) and len({b[shared] for b in branches}) == 1:
            shared += 1
        least: dict[tuple[Origin, int], Tx] = {}
        for branch in branches:
            for one in branch[shared:]:
                least[one.name] = min(one, least.get(one.name, one))
        base = branches[0][:shared] + sorted(least.values())
    inside_base = {t.name for t in base}
    rest: dict[tuple[Origin, int], Tx] = {}
    for master in masters:
        for one in [*master.log, *master.queue]:
            if one.name not in inside_base:
                rest[one.name] = min(one, rest.get(one.name, one))
    queue = [Tx(high + at, one.origin, one.seq) for at, one in enumerate(sorted(rest.values()), start=1)]
    return base, queue, high


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 1 << 40), st.sampled_from(["Smart", "Simple"]), st.booleans())
@example(47_968_169_589, "Smart", False)  # a learner holds one of the base with another stamp than it has there
def test_rule_25_the_same_as_the_model(seed: int, strategy: str, majority: bool) -> None:
    rng = Random(seed)
    case = case_of(rng, strategy)
    masters = case.masters
    computes = [m for m in masters if m.view is not None]
    if not computes:
        with pytest.raises(InsufficientReports):
            closed_of(masters)
        return
    own = rng.choice(computes).log
    closed = closed_of(masters, own=own, majority=majority)
    base, queue, floor = model(masters, majority, strategy == "Simple")
    assert base_of(closed, own) == base
    assert waiting_of(closed) == sorted(queue)
    assert closed.view.floor == floor
    assert closed.view.base_hash == hashes_of(base)[-1]
    assert base[: len(case.settled)] == case.settled, "nothing settled moves"
    assert all(one < other for one, other in pairwise(base)), "keys grow"


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1 << 40), st.sampled_from(["Smart", "Simple"]))
def test_rule_25_pure_whoever_computes_and_in_whatever_order_the_reports_came(seed: int, strategy: str) -> None:
    case = case_of(Random(seed), strategy)
    computes = [m for m in case.masters if m.view is not None]
    found: set[tuple[object, ...]] = set()
    for computing in computes:
        reports = [report_of(m, computing.log) for m in case.masters]
        for order in permutations(reports):
            closed = closed_of(case.masters, own=computing.log, reports=list(order))
            base = base_of(closed, computing.log)
            found.add(
                (tuple(base), tuple(waiting_of(closed)), closed.view.floor, closed.view.base_hash, closed.view.strategy)
            )
    assert len(found) <= 1


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1 << 40), st.integers(0, 1 << 20))
def test_where_a_report_begins_does_not_matter(seed: int, cut: int) -> None:
    """``shared`` is any place that both logs have, not before what is settled."""
    case = case_of(Random(seed), "Smart")
    computes = [m for m in case.masters if m.view is not None]
    if not computes:
        return
    own = computes[0].log
    reports: list[ViewReport] = []
    for master in case.masters:
        latest = report_of(master, own).shared.index
        lowest = min(latest, len(case.settled))
        reports.append(report_of(master, own, lowest + cut % (latest - lowest + 1)))
    one, other = closed_of(case.masters, own=own, reports=reports), closed_of(case.masters, own=own)
    assert base_of(one, own) == base_of(other, own)
    assert one.view == other.view
    assert one.waiting == other.waiting
