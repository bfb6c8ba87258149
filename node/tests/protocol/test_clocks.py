"""Clocks that are wrong, and counters that no clock leads to (rules 6 and 9)."""

from __future__ import annotations

import msgspec
import pytest
from changing_views import leave, run_until_in_view
from core_cluster import WALL_MS, Cluster
from lone_member import A, Lone, post

from txlog.model.entry import RunItem, TransactionRun
from txlog.model.errors import PeerFault
from txlog.model.stamp import LOGICAL_BITS, PEER_STAMP_MAX, stamp_ms
from txlog.protocol.events import ClockReading
from txlog.wire import messages as wire
from txlog.wire.messages import Post

SKEW_MS = 60_000
ROUND_MS = 400
DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS


class Clocks(Cluster):
    """Wall clocks in microseconds. ``older``: masters whose program does not report its clock."""

    older: str = ""

    def now(self, node: str) -> ClockReading:
        return ClockReading((WALL_MS + self.now_ms + self.wall_ms[node]) * 1000, 1000 + self.now_ms)

    def receive(self, source: str, target: str, data: bytes) -> None:
        if source in self.older:
            message = wire.decode(source, data)
            if isinstance(message, wire.Hello | wire.HelloReply | wire.Post):
                data = wire.encode(msgspec.structs.replace(message, clock_ms=0))
        super().receive(source, target, data)

    def ahead_ms(self, node: str) -> int:
        """How far the counter is ahead of the right time."""
        agreement = self.core(node).log_state
        assert agreement is not None
        return stamp_ms(agreement.last_stamp) - WALL_MS - self.now_ms


def clocks(nodes: str = "abc", **settings: int) -> Clocks:
    cluster = Clocks(nodes, idle_interval_ms=100, max_clock_skew_ms=SKEW_MS, **settings)
    cluster.founded()
    return cluster


@pytest.mark.parametrize("older", ["", "ab", "abc"])
@pytest.mark.parametrize("how", ["runs", "others restart", "crash", "leave"])
def test_a_clock_that_is_a_year_ahead_moves_no_stamps(how: str, older: str) -> None:
    c = clocks()
    c.older = older
    c.submit("a", "INSERT X", key="K")
    c.run(500)
    if how == "crash":
        c.crash("c")
    elif how == "leave":
        leave(c, "c")
    c.wall_ms["c"] = YEAR_MS
    if how == "others restart":
        c.run(1000)
        leave(c, "b")
        c.start("b")
    elif how != "runs":
        c.start("c")
    run_until_in_view(c, "a", "b", "c", within_ms=30_000)
    c.run(2000)
    assert c.core("c").local.clock.is_ahead
    rounds = 1 + 30_000 // ROUND_MS if older and how != "runs" else 0
    for node in "abc":
        assert c.ahead_ms(node) <= 2 * SKEW_MS + rounds * 2 * SKEW_MS, node
        if not older:
            assert c.ahead_ms(node) <= 11_000, node  # a restart resumes at the durable ceiling
    (again,) = c.submit("b", "INSERT X", key="K")
    assert again.is_repeat
    c.wall_ms["c"] = 0
    c.submit("c", "INSERT Y")
    c.run(2000)
    assert c.log("a") == c.log("b") == c.log("c") == ["a1", "c1"]


def test_a_cluster_of_one_moves_by_one_step_a_round() -> None:
    c = clocks("a")
    c.submit("a", "INSERT X", key="K")
    c.wall_ms["a"] = YEAR_MS
    before = c.ahead_ms("a")
    c.submit("a", "INSERT Y")
    c.submit("a", "INSERT Z")
    assert c.ahead_ms("a") - before <= SKEW_MS + ROUND_MS
    c.run(10 * ROUND_MS)
    for _ in range(20):
        c.submit("a", "INSERT Z")
        c.run(ROUND_MS // 2)
    assert c.ahead_ms("a") - before <= SKEW_MS * 13
    c.crash("a")
    c.start("a")
    before = c.ahead_ms("a")
    c.run(100)
    c.submit("a", "INSERT Z")
    assert c.ahead_ms("a") - before <= SKEW_MS + ROUND_MS


def test_a_cluster_of_one_remembers_the_time_without_writes() -> None:
    c = clocks("a")
    c.submit("a", "INSERT X")
    c.run(10 * SKEW_MS)
    c.crash("a")
    c.start("a")
    c.run(100)
    c.submit("a", "INSERT Y")
    assert abs(c.ahead_ms("a")) <= 20_000


def test_masters_that_were_stopped_for_weeks_take_the_time_that_two_clocks_show() -> None:
    c = clocks()
    c.submit("a", "INSERT X")
    c.run(500)
    for node in "abc":
        c.crash(node)
    for node in "abc":
        c.wall_ms[node] = 14 * DAY_MS
        c.start(node)
    c.run(1000)
    run_until_in_view(c, "a", "b", "c")
    c.submit("b", "INSERT Y")
    c.run(2000)
    assert all(abs(c.ahead_ms(node) - 14 * DAY_MS) <= 1000 for node in "abc")
    assert c.log("a") == c.log("b") == c.log("c") == ["a1", "b1"]


def test_a_machine_that_slept_catches_up_by_itself() -> None:
    c = clocks()
    c.submit("a", "INSERT X")
    c.run(500)
    for node in "abc":
        c.wall_ms[node] = 600_000
    c.submit("b", "INSERT Y")
    c.run(500)
    assert c.log("a") == c.log("c") == ["a1", "b1"]
    assert c.ahead_ms("a") < 600_000 - SKEW_MS
    c.run(20 * ROUND_MS)
    assert abs(c.ahead_ms("a") - 600_000) <= 1000
    assert c.log("a") == c.log("b")


@pytest.mark.parametrize("behind", ["b", "bc"])
def test_clocks_that_are_behind_hold_up_nobody(behind: str) -> None:
    c = clocks()
    for node in behind:
        c.crash(node)
        c.wall_ms[node] = -WALL_MS + 1000  # a dead clock: 1970
        c.start(node)
    c.run(1000)
    run_until_in_view(c, "a", "b", "c")
    for node in "abc":
        c.submit(node, f"INSERT {node}")
    c.run(2000)
    assert c.log("a") == c.log("b") == c.log("c")
    assert len(c.log("a")) == 3
    assert all(abs(c.ahead_ms(node)) <= 11_000 for node in "abc")


def test_a_dead_clock_proves_no_other_one_to_be_ahead() -> None:
    c = clocks("ab")
    c.submit("a", "INSERT X")
    c.run(500)
    for node in "ab":
        c.crash(node)
    c.wall_ms.update(a=14 * DAY_MS, b=-WALL_MS + 1000)
    for node in "ab":
        c.start(node)
    c.run(1000)
    run_until_in_view(c, "a", "b")
    assert not c.core("a").local.clock.is_ahead
    before = c.ahead_ms("a")
    c.run(5 * ROUND_MS)
    assert c.ahead_ms("a") - before >= 3 * SKEW_MS, "it catches up by itself"


def test_a_joining_master_with_a_wrong_clock_uses_the_time_of_the_others() -> None:
    c = clocks()
    c.crash("c")
    journal = c.journals["c"]
    journal.records, journal.durable, journal.birth, journal.start = [], 0, 77, 0
    c.wall_ms["c"] = YEAR_MS
    c.start("c")
    run_until_in_view(c, "a", "b", "c", within_ms=30_000)
    c.submit("c", "INSERT X")
    c.run(1000)
    assert c.log("a") == c.log("c") == ["c1"]
    assert all(c.ahead_ms(node) <= 11_000 for node in "abc")


def test_a_cluster_is_founded_with_one_wrong_clock() -> None:
    c = Clocks("abc", idle_interval_ms=100, max_clock_skew_ms=SKEW_MS)
    c.wall_ms["a"] = YEAR_MS
    c.founded()
    c.submit("a", "INSERT X", key="K")
    c.run(1000)
    assert all(abs(c.ahead_ms(node)) <= SKEW_MS for node in "abc")
    (again,) = c.submit("b", "INSERT X", key="K")
    assert again.is_repeat


@pytest.mark.parametrize("bit", [63, 62, 61, 58, 56, 50, 45, 40, 35, 30, 25, 20, 10])
def test_one_wrong_bit_in_a_counter_stops_nothing_and_is_not_kept(bit: int) -> None:
    c = clocks()
    c.submit("a", "INSERT X")
    c.run(300)
    real, flips = c.receive, []

    def flip(source: str, target: str, data: bytes) -> None:
        message = wire.decode(source, data)
        if (source, target) == ("c", "b") and isinstance(message, Post) and not flips:
            flips.append(bit)
            claim = msgspec.structs.replace(message.claim, counter=message.claim.counter ^ 1 << bit)
            data = wire.encode(msgspec.structs.replace(message, claim=claim))
        real(source, target, data)

    c.receive = flip  # type: ignore[method-assign]
    c.run(2000)
    for node in "ab":
        c.submit(node, f"INSERT {node}")
    c.run(2000)
    assert flips
    assert set(c.faults["b"]) <= {"Malformed", "StampOutOfRange", "CounterJumped", "Regressed"}
    assert c.faults["b"] or bit <= 30, "it is refused by name"
    assert sorted(c.log("a")) == ["a1", "a2", "b1"]
    assert c.log("a") == c.log("b") == c.log("c")
    for node in "abc":
        c.crash(node)
    for node in "abc":
        c.start(node)
    c.run(1000)
    run_until_in_view(c, "a", "b", "c")
    c.submit("c", "INSERT c")
    c.run(1000)
    assert c.log("a") == c.log("b") == c.log("c")
    assert len(c.log("a")) == 4
    assert all(abs(c.ahead_ms(node)) <= 20_000 for node in "abc")


def test_a_counter_that_jumped_counts_when_a_later_post_confirms_it() -> None:
    lone = Lone()
    first = post()
    jumped = (1_700_000_000_000 + YEAR_MS) << LOGICAL_BITS
    claim = msgspec.structs.replace(first.claim, counter=jumped)
    with pytest.raises(PeerFault, match="CounterJumped"):
        lone.receive("a", msgspec.structs.replace(first, claim=claim))
    with pytest.raises(PeerFault, match="CounterJumped"):  # the same one again confirms nothing
        lone.receive("a", msgspec.structs.replace(first, claim=claim))
    assert lone.core.log_state is not None
    assert lone.core.log_state.last_stamp < jumped
    lone.receive("a", msgspec.structs.replace(first, claim=msgspec.structs.replace(claim, number=2)))
    assert lone.core.log_state.last_stamp >= jumped


@pytest.mark.parametrize("later", [0, 1])
def test_a_false_run_cannot_enter_a_log_that_has_passed_its_stamp(later: int) -> None:
    """``later``: one stamp above the end of the log is the lowest that is taken."""
    c = clocks()
    c.submit("a", "INSERT X")
    c.submit("c", "INSERT Y")
    c.run(1000)
    log = c.core("b").log_state
    assert log is not None
    assert c.log("b") == ["a1", "c1"]
    origin = log.own.origin if log.own.origin.node == "a" else next(o for o in log.slots if o.node == "a")
    false = TransactionRun("a", origin.birth, 2, [RunItem(log.log_key[0] + later, 1, "", b"false")])
    c.receive("c", "b", wire.encode(wire.RunsReply([false], log.view.number)))
    assert (log.by_origin[origin].held == 2) == bool(later)
    assert ("StampsFall" in c.faults["b"]) != bool(later)
    assert c.log("b") == ["a1", "c1"]


@pytest.mark.parametrize("stamp", [-1, -(1 << 63), 1 << 63, (1 << 64) - 1, PEER_STAMP_MAX + 1, 51])
def test_a_run_with_a_stamp_out_of_range_counts_for_nothing(stamp: int) -> None:
    lone = Lone()
    before = len(lone.records)
    run = TransactionRun("a", A.birth, 1, [RunItem(stamp, 1, "", b"x")])
    with pytest.raises(PeerFault, match=r"StampOutOfRange|Malformed"):
        lone.receive("a", post(runs=[run]))
    with pytest.raises(PeerFault, match=r"StampOutOfRange|Malformed"):
        lone.receive(
            "a", wire.RunsReply([msgspec.structs.replace(run, items=[RunItem(stamp - (stamp == 51) * 52, 1, "", b"")])])
        )
    assert lone.core.log_state is not None
    assert lone.core.log_state.by_origin[A.origin].held == 0
    assert len(lone.records) == before
