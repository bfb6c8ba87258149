"""Masters that are taken out, or added where nothing comes of it, and the views beside that."""

from __future__ import annotations

import pytest
from changing_views import back_up, in_view, run_until_in_view
from core_cluster import Cluster
from test_configuration import add, begin, configuration, remove

from txlog.model.errors import Fatal
from txlog.model.ids import Origin


def both(*pairs: str) -> set[tuple[str, str]]:
    return {link for x, y in pairs for link in ((x, y), (y, x))}


def test_one_that_is_taken_out_and_has_not_left_holds_nobody() -> None:
    """a's removal is stable, and it ends before it leaves. c goes on alone, and ends when it has accepted a view with d
    that d has not. Then all are back: c wants b and d; b must not wait for a, which is no master any more."""
    cluster = Cluster(idle_interval_ms=100, max_peer_lag_ms=800).founded()
    remove(cluster, "c", "a")
    end_ms = cluster.now_ms + 2000
    while any(configuration(cluster, n).removed != ["a"] for n in "bc"):
        assert cluster.now_ms < end_ms
        cluster.run(1)
    assert not cluster.core("a").views.left[0]
    cluster.crash("a")
    cluster.cut = both("bc")
    cluster.run(1200)
    back_up(cluster, "c")
    run_until_in_view(cluster, "c")
    add(cluster, "c", "d")
    cluster.run(100)
    begin(cluster, "d", 44)
    while not cluster.core("c").views.accepted.has_member(Origin("d", 44)):  # type: ignore[union-attr]
        assert cluster.now_ms < end_ms + 10_000
        cluster.run(1)
    cluster.crash("c")  # d has not heard of it
    cluster.crash("d")
    cluster.cut.clear()
    cluster.crash("b")
    cluster.run(10)
    begin_again = cluster.members
    for node in "ab":
        cluster.start(node)
    cluster.run(1000)
    cluster.start("c")
    cluster.members = (*begin_again, type(begin_again[0])("d", "uk", 1))
    cluster.start("d")
    cluster.members = begin_again
    with pytest.raises(Fatal, match="was taken out"):
        cluster.run(20_000)
    cluster.crash("a")
    run_until_in_view(cluster, "b", "c", "d")


def test_a_view_that_waits_for_one_that_was_taken_out_gives_way() -> None:
    """a has taken its last transaction, which c alone holds, and is gone; b was alone meanwhile. They are one again,
    that transaction comes behind the base of their view, and by then a is no master any more: nobody is out."""
    cluster = Cluster(idle_interval_ms=100, max_peer_lag_ms=800).founded()
    remove(cluster, "c", "a")
    end_ms = cluster.now_ms + 2000
    while cluster.core("a").log_state.last_own_seq == 0:  # type: ignore[union-attr]
        assert cluster.now_ms < end_ms
        cluster.run(1)
    cluster.cut = both("ab", "bc")
    while cluster.core("c").log_state.by_origin[Origin("a", 1)].held == 0:  # type: ignore[union-attr]
        assert cluster.now_ms < end_ms
        cluster.run(1)
    cluster.crash("a")
    cluster.run(1200)
    back_up(cluster, "b")
    run_until_in_view(cluster, "b")
    cluster.cut.clear()
    run_until_in_view(cluster, "b", "c")
    cluster.run(5000)
    for node in "bc":
        assert configuration(cluster, node).removed == ["a"]
        assert cluster.core(node).state == "Joined"
        agreement = cluster.core(node).log_state
        assert agreement is not None
        assert agreement.final_index == agreement.stable, "it can be trimmed"


def test_one_that_is_no_master_elsewhere_does_not_outbid_who_is() -> None:
    """b alone has added d, and both have accepted a view with a, who was cut off and has gone on with c. a does not
    listen to d, which it does not know; b has to begin, and not d over and over."""
    cluster = Cluster("abce", idle_interval_ms=100, max_peer_lag_ms=800).founded()
    cluster.cut = both("ab", "bc", "be")
    cluster.run(1200)
    back_up(cluster, "a", "b", "c", "e")
    run_until_in_view(cluster, "a", "c", "e")
    run_until_in_view(cluster, "b")
    add(cluster, "b", "d")
    begin(cluster, "d", 44)
    run_until_in_view(cluster, "b", "d")
    cluster.cut = both("bc", "ac", "be", "ae")
    end_ms = cluster.now_ms + 5000
    accepted = lambda n: cluster.core(n).views.accepted  # noqa: E731
    while not (accepted("d").has_member(Origin("a", 1)) and accepted("d").has_member(Origin("d", 44))):
        assert cluster.now_ms < end_ms
        cluster.run(1)
        if accepted("b").has_member(Origin("a", 1)):
            cluster.cut |= {("b", "a"), ("d", "a")}
    assert not accepted("a").has_member(Origin("b", 2)), "it has not heard that"
    cluster.cut = both("ab", "ad", "bc", "cd", "be", "de")
    run_until_in_view(cluster, "a", "c", "e", within_ms=20_000)
    cluster.cut.clear()
    for _ in range(1500):
        cluster.run(20)
        if in_view(cluster, *"abce"):
            break
        for node in "abcde":
            if cluster.core(node).needs_split_backup:
                back_up(cluster, node)
    run_until_in_view(cluster, *"abce", within_ms=20)  # d was added where nothing came of it


def test_one_that_was_taken_out_and_went_on_alone_ends() -> None:
    cluster = Cluster(idle_interval_ms=100, max_peer_lag_ms=800).founded()
    remove(cluster, "a", "c")
    end_ms = cluster.now_ms + 2000
    held = {n: cluster.core(n).log_state for n in "ab"}
    while not all(one is not None and one.by_origin[Origin("c", 3)].held for one in held.values()):
        assert cluster.now_ms < end_ms
        cluster.run(1)
    assert not cluster.core("c").views.left[0]
    cluster.crash("c")
    cluster.cut = {link for x in "ab" for link in ((x, "c"), ("c", x))}
    cluster.start("c")
    cluster.run(3200)
    back_up(cluster, "c", "a", "b")
    run_until_in_view(cluster, "c")
    run_until_in_view(cluster, "a", "b")
    assert configuration(cluster, "c").removed == ["c"]
    cluster.cut.clear()
    with pytest.raises(Fatal, match="was taken out"):
        cluster.run(20_000)
