"""A master that is heard by all and hears nobody is silent to the others, and they go on (rule 22, decision 19)."""

from __future__ import annotations

import pytest
from changing_views import assert_same_logs, back_up, in_view, run_until_in_view
from core_cluster import Cluster

from txlog.protocol.replication.failure_detector import FailureDetector

LAG_MS = 2000
ROUND_TIMEOUT_MS = 400


def founded(nodes: str = "abc", *, majority: bool = False) -> Cluster:
    cluster = Cluster(nodes, round_timeout_ms=ROUND_TIMEOUT_MS, idle_interval_ms=100, max_peer_lag_ms=LAG_MS)
    cluster.settings["majority"] = majority
    for node in nodes:
        cluster.start(node)
    cluster.founded()
    cluster.run(500)
    return cluster


def deafen(cluster: Cluster, *deaf: str) -> None:
    """Nothing arrives at these from the others; among themselves they hear each other."""
    others = [node for node in cluster.executors if node not in deaf]
    cluster.cut |= {(other, node) for other in others for node in deaf}


def promises(cluster: Cluster, nodes: str) -> list[tuple[int, int, str]]:
    return [cluster.core(node).views.promised for node in nodes]


@pytest.mark.parametrize("deaf", ["a", "c"], ids=["the first in order", "the last"])
def test_rule_22_a_majority_goes_on_without_a_deaf_one_while_it_stays_deaf(deaf: str) -> None:
    cluster = founded(majority=True)
    others = "abc".replace(deaf, "")
    cluster.submit(others[0], "before")
    cluster.run(100)
    deafen(cluster, deaf)
    cluster.submit(others[0], "x")
    cluster.submit(deaf, "y")
    run_until_in_view(cluster, *others, within_ms=3 * ROUND_TIMEOUT_MS + 2000)
    cluster.run(500)
    assert cluster.marks[others[0]].synced == 2
    for node in others:
        assert cluster.core(node).state == "Isolated"
    assert cluster.core(deaf).state == "Suspected"
    assert cluster.marks[deaf].synced == 0, "alone it is no majority"
    before = promises(cluster, others)
    for n in range(10):
        cluster.submit(others[1], f"z{n}")
        cluster.run(1000)
    assert cluster.marks[others[1]].synced == 10
    assert promises(cluster, others) == before, "what it says and is heard saying disturbs nobody"
    cluster.cut.clear()
    run_until_in_view(cluster, "a", "b", "c")
    assert_same_logs(cluster, 13)
    assert {cluster.core(node).state for node in "abc"} == {"Joined"}


def test_rule_22_a_side_of_a_split_goes_on_without_a_deaf_one_when_its_term_and_backup_are_done() -> None:
    cluster = founded()
    deafen(cluster, "c")
    cluster.submit("a", "x")
    cluster.submit("c", "y")
    cluster.run(LAG_MS + 2 * ROUND_TIMEOUT_MS)
    for node in "abc":
        assert cluster.core(node).needs_split_backup
        assert cluster.core(node).state == "Suspected"
    cluster.run(3000)
    assert in_view(cluster, "a", "b", "c"), "no backup, no going on"
    back_up(cluster, "a", "b", "c")
    run_until_in_view(cluster, "a", "b", within_ms=2000)
    run_until_in_view(cluster, "c", within_ms=2000)
    cluster.run(500)
    assert cluster.marks["a"].synced == 1
    assert cluster.marks["c"].synced == 1
    number = cluster.core("a").views.number
    cluster.run(10 * LAG_MS)
    assert cluster.core("b").views.number == number
    cluster.cut.clear()
    run_until_in_view(cluster, "a", "b", "c")
    assert_same_logs(cluster, 2)


def test_a_deaf_one_is_not_let_go_before_its_term() -> None:
    cluster = founded()
    back_up(cluster, "a", "b")
    deafen(cluster, "c")
    cluster.run(LAG_MS - 100)
    cluster.cut.clear()
    cluster.run(3 * LAG_MS)
    assert in_view(cluster, "a", "b", "c")
    assert cluster.core("a").views.promised == cluster.core("a").views.number


def test_a_deaf_one_that_one_of_the_others_alone_hears_is_let_go() -> None:
    """That it hears nobody is relayed, like what it posts."""
    cluster = founded(majority=True)
    deafen(cluster, "c")
    cluster.cut.add(("c", "a"))
    cluster.submit("b", "x")
    run_until_in_view(cluster, "a", "b", within_ms=3 * ROUND_TIMEOUT_MS + 2000)
    cluster.run(500)
    assert cluster.marks["b"].synced == 1


def test_two_that_hear_only_each_other_are_let_go_by_those_that_hear_them() -> None:
    cluster = founded("abcde", majority=True)
    deafen(cluster, "d", "e")
    cluster.submit("a", "x")
    cluster.submit("e", "y")
    run_until_in_view(cluster, "a", "b", "c", within_ms=3 * ROUND_TIMEOUT_MS + 3000)
    cluster.run(500)
    assert cluster.marks["a"].synced == 1
    assert cluster.marks["e"].synced == 0
    cluster.cut.clear()
    run_until_in_view(cluster, *"abcde")
    assert_same_logs(cluster, 2)


@pytest.mark.parametrize(
    "cut",
    [{("a", "c")}, {("c", "a")}, {("a", "c"), ("c", "a")}],
    ids=["one hears another through the third", "the other way", "both ways"],
)
def test_rule_22_who_hears_through_others_is_never_let_go(cut: set[tuple[str, str]]) -> None:
    """An outsider makes all of them look around all the time, and say which links of theirs carry."""
    cluster = founded("abcd", majority=True)
    cluster.crash("d")
    run_until_in_view(cluster, "a", "b", "c", within_ms=3 * ROUND_TIMEOUT_MS + 2000)
    number = cluster.core("a").views.number
    cluster.cut = cut
    for n in range(20):
        cluster.submit("a", f"x{n}")
        cluster.run(500)
        for node in "abc":
            assert cluster.core(node).views.number == number, n
            assert not cluster.core(node).silent_members or n == 0
    cluster.run(1000)
    assert cluster.marks["a"].synced == 20


def test_a_mute_one_is_let_go_as_before() -> None:
    cluster = founded(majority=True)
    cluster.cut = {("c", "a"), ("c", "b")}
    cluster.submit("a", "x")
    run_until_in_view(cluster, "a", "b", within_ms=3 * ROUND_TIMEOUT_MS + 2000)
    cluster.run(500)
    assert cluster.marks["a"].synced == 1
    cluster.cut.clear()
    run_until_in_view(cluster, "a", "b", "c")


def test_a_deaf_one_that_began_a_change_holds_the_others_no_longer_than_its_term() -> None:
    """Its proposal stops their view, and it never hears their reports."""
    cluster = founded("abcde", majority=True)
    cluster.executors["e"].leave(cluster.now("e"), 5000)
    end_ms = cluster.now_ms + 1000
    while cluster.core("a").views.change is None:
        assert cluster.now_ms < end_ms
        cluster.run(1)
    deafen(cluster, "a")
    cluster.submit("b", "x")
    run_until_in_view(cluster, "b", "c", "d")
    cluster.run(500)
    assert cluster.marks["b"].synced == 1


def around_b(at_ms: int) -> FailureDetector:
    """At a, which hears b both ways; b hears all others."""
    around = FailureDetector("a", 400, 0)
    around.tick(at_ms)
    around.on_message("b")
    around.on_direct_peers("b", ["a", "c", "d", "e"])
    return around


def test_whom_others_hear_is_reached_when_it_is_known_to_hear_one_that_is_reached() -> None:
    around = around_b(10)
    assert around.reachable() == {"a", "b", "c", "d", "e"}, "nothing is known against it"
    around.on_relayed_connectivity([("c", [])])
    assert around.reachable() == {"a", "b", "d", "e"}
    around.on_relayed_connectivity([("c", ["d"]), ("d", ["c"])])
    assert around.reachable() == {"a", "b", "e"}, "they hear each other alone"
    around.on_relayed_connectivity([("d", ["e"])])
    assert around.reachable() == {"a", "b", "c", "d", "e"}, "and one of them hears another"
    around.on_reachable_peers("c", [])
    assert around.peers_heard_by("c") == []
    assert around.reachable() == {"a", "b", "d", "e"}


def test_what_a_post_says_is_no_answer_over_the_link_to_its_sender() -> None:
    around = FailureDetector("a", 400, 0)
    around.tick(10)
    around.on_message("c")
    around.on_reachable_peers("c", ["a", "b"])
    assert not around.is_bidirectional("c")
    around.on_direct_peers("c", ["a"])
    assert around.is_bidirectional("c")


def test_a_deaf_one_is_silent_from_when_it_said_that_it_hears_nobody() -> None:
    around = around_b(10)
    for at_ms in range(20, 2000, 40):
        around.tick(at_ms)
        for node in ("b", "c"):
            around.on_message(node)
        around.on_reply("b")
        around.on_reachable_peers("c", ["a", "b"] if at_ms < 1000 else [])
    assert around.is_alive("c")
    assert 900 <= around.silent_ms("c") <= 1100
