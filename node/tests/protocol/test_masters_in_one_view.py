"""Whole masters, messages by hand: founding, pacing, catching up, relays, silence (rules 2, 6, 16, 18, 22, 32)."""

from __future__ import annotations

import itertools

import pytest
from core_cluster import Cluster, update

from txlog.model.entry import KIND_SKIP
from txlog.model.errors import Fatal, KeyTaken
from txlog.protocol.events import SubmissionAccepted
from txlog.protocol.log.key_table import TAG_BYTES
from txlog.runtime.executor import Released
from txlog.wire import messages as wire
from txlog.wire.messages import FetchRuns, Post


def states(cluster: Cluster) -> dict[str, str]:
    return {node: executor.core.state for node, executor in cluster.executors.items()}


def assert_good(cluster: Cluster, count: int) -> None:
    logs = [cluster.log(node) for node in cluster.executors]
    assert all(log == logs[0] for log in logs)
    assert len(logs[0]) == count
    for node in cluster.executors:
        agreement = cluster.core(node).log_state
        assert agreement is not None
        assert agreement.stable == count


# Founding (protocol section 3)


@pytest.mark.parametrize("node", ["a", "b", "c"])
@pytest.mark.parametrize("step", range(24))
def test_founding_goes_on_after_a_crash_at_any_step(node: str, step: int) -> None:
    """The master crashes behind the first ``step`` messages of the founding; each record may or may not be durable."""
    for kept in (0, 1, 9):
        cluster = Cluster()
        cluster.cut = set()
        delivered = _run_until_delivered(cluster, step)
        cluster.crash(node, kept)
        cluster.run(30)
        cluster.start(node)
        cluster.founded(2500)
        for each in "abc":
            cluster.submit(each, "x")
        cluster.run(500)
        assert_good(cluster, 3)
        if not delivered:
            return


def _run_until_delivered(cluster: Cluster, count: int) -> bool:
    seen = 0
    receive = cluster.receive

    class Enough(Exception):
        pass

    def counting(source: str, target: str, data: bytes) -> None:
        nonlocal seen
        if seen >= count:
            raise Enough
        seen += 1
        receive(source, target, data)

    cluster.receive = counting  # type: ignore[method-assign]
    try:
        cluster.run(1500)
    except Enough:
        return True
    finally:
        cluster.receive = receive  # type: ignore[method-assign]
    return False


def test_nobody_founds_while_one_is_missing() -> None:
    cluster = Cluster()
    cluster.cut = {("a", "c"), ("c", "a"), ("b", "c"), ("c", "b")}
    cluster.run(3000)
    assert set(states(cluster).values()) == {"Founding"}
    cluster.cut.clear()
    cluster.founded()


def test_rule_2_an_old_journal_ends_by_name() -> None:
    cluster = Cluster().founded()
    journal = cluster.journals["a"]
    old, start = list(journal.records), journal.start
    cluster.submit("a", "x")
    cluster.run(100)
    cluster.crash("a")
    journal.records, journal.durable, journal.start = old, len(old), start
    cluster.start("a")
    with pytest.raises(Fatal, match="OldJournal"):
        cluster.run(500)


# Pacing (protocol section 2)


@pytest.mark.parametrize(("nodes", "most"), [("ab", 5), ("abc", 12), ("abcd", 21)])
def test_posts_for_the_transactions_of_one_client(nodes: str, most: int) -> None:
    """A push to each and its answer, and a post or two that tell each of the log's end: no more than this."""
    cluster = Cluster(nodes, idle_interval_ms=100_000).founded()
    cluster.run(1000)
    before = sum(cluster.posts.values())
    for n in range(20):
        cluster.submit("a", str(n))
        cluster.run(50)
    assert (sum(cluster.posts.values()) - before) / 20 <= most
    assert_good(cluster, 20)


def test_one_round_trip_to_synced() -> None:
    cluster = Cluster(latency_ms=25).founded()
    cluster.submit("a", "x")
    cluster.run(51)
    assert cluster.marks["a"].synced == 1
    assert cluster.marks["a"].stable == 1


def _idle_posts(cluster: Cluster, for_ms: int) -> int:
    before = sum(cluster.posts.values())
    cluster.run(for_ms)
    return sum(cluster.posts.values()) - before


def test_rule_32_without_work_there_are_idle_rounds_only() -> None:
    cluster = Cluster(idle_interval_ms=1000).founded()
    cluster.submit("b", "x")
    cluster.run(3000)
    assert _idle_posts(cluster, 10_000) <= 2 * 6 * 11


@pytest.mark.parametrize("node", ["a", "b"])
def test_rule_32_idle_again_after_a_restart_and_a_lost_push(node: str) -> None:
    """What a peer holds is not pushed for ever, though it was once taken for lost."""
    cluster = Cluster(idle_interval_ms=1000).founded()
    cluster.submit(node, *"0123456789")
    cluster.run(100)
    cluster.crash(node)
    others = [n for n in "abc" if n != node]
    cluster.cut = {(other, node) for other in others}
    cluster.start(node)
    cluster.run(2000)
    cluster.cut.clear()
    cluster.run(2000)
    assert _idle_posts(cluster, 10_000) <= 2 * 6 * 11


# Catching up


def test_rule_18_a_master_that_was_away_for_many_entries() -> None:
    cluster = Cluster(frame_items_max=50).founded()
    cluster.run(100)
    cluster.crash("c")
    for n in range(30):
        cluster.submit("a", *[f"{n}.{i}" for i in range(20)])
        cluster.submit("b", *[f"{n}.{i}" for i in range(7)])
        cluster.run(20)
    cluster.run(500)
    assert states(cluster) == {"a": "Suspected", "b": "Suspected"}
    cluster.start("c")
    cluster.run(8000)
    assert_good(cluster, 30 * 27)


def test_rule_18_a_missing_payload_comes_from_a_third_holder() -> None:
    cluster = Cluster().founded()
    cluster.run(50)
    cluster.cut = {("a", "c")}
    cluster.submit("a", "x", "y")
    cluster.run(10)
    cluster.cut = {("a", "c"), ("c", "a"), ("a", "b"), ("b", "a")}
    asked: list[tuple[str, str]] = []
    receive = cluster.receive

    def watching(source: str, target: str, data: bytes) -> None:
        if isinstance(wire.decode(source, data), FetchRuns):
            asked.append((source, target))
        receive(source, target, data)

    cluster.receive = watching  # type: ignore[method-assign]
    cluster.run(3000)
    agreement = cluster.core("c").log_state
    assert agreement is not None
    assert agreement.queues[0].held == 2
    assert ("c", "b") in asked


def test_what_is_stable_is_not_pushed_again_after_a_restart() -> None:
    """Every member is known to hold it; a start of the process costs no payloads."""
    cluster = Cluster().founded()
    cluster.submit("a", *"0123456789")
    cluster.run(300)
    assert_good(cluster, 10)
    cluster.crash("a")
    cluster.start("a")
    pushed: list[int] = []
    receive = cluster.receive

    def watching(source: str, target: str, data: bytes) -> None:
        message = wire.decode(source, data)
        if isinstance(message, Post):
            pushed.extend(len(run.items) for run in message.runs)
        receive(source, target, data)

    cluster.receive = watching  # type: ignore[method-assign]
    cluster.run(1000)
    cluster.submit("a", "x")
    cluster.run(1000)
    assert pushed == [1, 1]
    assert_good(cluster, 11)


def test_what_waits_for_a_dead_master_is_not_pushed_to_it_again_and_again() -> None:
    """However long the queue is, it costs the living nothing until the dead one speaks; then it gets all of it."""
    cluster = Cluster(frame_items_max=4).founded()
    cluster.run(300)
    round_ms = cluster.core("c").settings.round_timeout_ms
    cluster.crash("c")
    executor, pushed = cluster.executors["a"], [0]
    release = executor.release

    def watched() -> Released:
        released = release()
        for peer, data in released.messages:
            message = wire.decode(peer, data)
            if peer == "c" and isinstance(message, Post):
                pushed[0] += sum(len(run.items) for run in message.runs)
        return released

    executor.release = watched  # type: ignore[method-assign]
    cluster.submit("a", *[f"w{n}" for n in range(40)])
    cluster.run(20 * round_ms)
    assert 0 < pushed[0] <= 80, "once, and what came before it was known to be dead"
    executor.release = release  # type: ignore[method-assign]
    cluster.start("c")
    cluster.run(10 * round_ms)
    assert_good(cluster, 40)


# Lost links (rule 22)


@pytest.mark.parametrize(
    "links",
    [
        {("a", "b")},
        {("a", "b"), ("c", "d")},
        {("a", "c"), ("a", "d"), ("b", "d")},
        {("b", "a"), ("b", "d"), ("a", "c")},
    ],
    ids=["one", "two disjoint", "chain a-b-c-d", "chain b-c-d-a"],
)
def test_rule_22_lost_links_stop_nothing(links: set[tuple[str, str]]) -> None:
    cluster = Cluster("abcd", idle_interval_ms=200).founded()
    cluster.run(500)
    cluster.cut = links | {(b, a) for a, b in links}
    for n in range(10):
        for node in "abcd":
            cluster.submit(node, f"{node}{n}")
        cluster.run(100)
    cluster.run(3000)
    assert_good(cluster, 40)


def test_rule_22_one_direction_lost() -> None:
    cluster = Cluster("abc", idle_interval_ms=200).founded()
    cluster.run(500)
    cluster.cut = {("a", "b")}
    for n in range(10):
        for node in "abc":
            cluster.submit(node, f"{node}{n}")
        cluster.run(100)
    cluster.run(3000)
    assert_good(cluster, 30)


@pytest.mark.parametrize("deaf", [True, False])
def test_rule_22_a_deaf_or_mute_master_holds_the_log_and_is_known_as_such(deaf: bool) -> None:
    cluster = Cluster("abc", idle_interval_ms=100).founded()
    cluster.run(500)
    cluster.cut = {("a", "c"), ("b", "c")} if deaf else {("c", "a"), ("c", "b")}
    cluster.run(1000)
    cluster.submit("a", "x")
    cluster.run(2000)
    assert states(cluster)["a"] == "Suspected"
    assert states(cluster)["b"] == "Suspected"
    for node in "ab":
        core, agreement = cluster.core(node), cluster.core(node).log_state
        assert agreement is not None
        assert [peer.node for peer in core.peers if not core.is_present(peer)] == ["c"]
        assert agreement.stable == 0, "not durable everywhere, so not stable"
    assert cluster.marks["a"].quorum == 1
    assert cluster.marks["a"].synced == 0
    cluster.cut.clear()
    cluster.run(2000)
    assert_good(cluster, 1)
    assert set(states(cluster).values()) == {"Joined"}


# Keys (rule 16)


def test_rule_16_a_retry_at_another_master_counts_once() -> None:
    cluster = Cluster().founded()
    cluster.run(50)
    cluster.cut = {("a", "b"), ("b", "a")}
    one = cluster.submit("a", "x", key="k")[0]
    other = cluster.submit("b", "x", key="k")[0]
    assert not one.is_repeat
    assert not other.is_repeat, "b cannot know yet"
    cluster.cut.clear()
    cluster.run(2000)
    assert_good(cluster, 2)
    noops = [executor.core.log_state.noops for executor in cluster.executors.values() if executor.core.log_state]
    assert noops[0] == noops[1] == noops[2]
    assert len(noops[0]) == 1
    again = cluster.submit("c", "x", key="k")[0]
    assert again.is_repeat
    assert again.txid in (one.txid, other.txid)


@pytest.mark.parametrize("wall_ms", [3_600_000, -3_600_000])
def test_rule_6_a_clock_an_hour_off_holds_nobody_up(wall_ms: int) -> None:
    cluster = Cluster().founded()
    cluster.wall_ms["b"] = wall_ms
    for node in "abc":
        cluster.submit(node, "x")
        cluster.run(60)
    assert_good(cluster, 3)


def test_rule_16_a_skip_that_is_in_the_log_is_no_waiting_key() -> None:
    cluster = Cluster().founded()
    txid = str(cluster.submit("a", "x")[0].txid)
    for reason in ("broken", "still broken"):
        cluster.submit("b", reason, key=txid, kind=KIND_SKIP)
        cluster.run(200)
    assert_good(cluster, 3)
    for executor in cluster.executors.values():
        agreement = executor.core.log_state
        assert agreement is not None
        assert agreement.skips == {txid: 2}
        assert agreement.keys.waiting == {}


def test_rule_16_a_key_with_another_body_is_refused_also_within_one_batch() -> None:
    """Requests of several clients are one batch: nobody is told that a body was taken which never takes effect."""
    cluster = Cluster("ab").founded()
    batch = [update("x", "k"), update("y", "k"), update("x", "k")]
    first, other, again = cluster.executors["a"].submit(batch, cluster.now("a"))
    assert isinstance(other, KeyTaken)
    assert isinstance(first, SubmissionAccepted)
    assert isinstance(again, SubmissionAccepted)
    assert again.is_repeat
    assert again.txid == first.txid


def test_a_body_whose_hash_begins_alike_is_another_body() -> None:
    """The table of keys has two bytes of a content hash; the journal has the transaction."""
    cluster = Cluster().founded()
    first = update("first", "k")
    (taken,) = cluster.submit("a", "first", key="k")
    cluster.run(500)
    assert cluster.log("b") == ["a1"]
    texts = (f"other {n}" for n in itertools.count())
    other = next(text for text in texts if update(text, "k").content[:TAG_BYTES] == first.content[:TAG_BYTES])
    for node in "ab":
        assert isinstance(cluster.ask(node, update(other, "k")), KeyTaken)
        again = cluster.ask(node, first)
        assert isinstance(again, SubmissionAccepted)
        assert (again.is_repeat, again.txid) == (True, taken.txid)
