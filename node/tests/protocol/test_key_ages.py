"""Ages of keys behind long stops: a key is not taken by a time that no other master confirms (rule 16)."""

from __future__ import annotations

import pytest
from changing_views import leave, run_until_in_view
from core_cluster import Cluster, update
from test_clocks import DAY_MS, YEAR_MS, Clocks, clocks

from txlog.model.errors import Unavailable
from txlog.protocol.events import SubmissionAccepted
from txlog.protocol.log.idempotency_keys import IdempotencyKeys
from txlog.wire.protocol_level import PROTOCOL_LEVEL

RETENTION_MS = 86_400_000


def stopped(c: Clocks, for_ms: int) -> Clocks:
    """All masters have been down for so long."""
    c.submit("a", "INSERT X", key="before")
    c.run(500)
    for node in "abc":
        c.crash(node)
    for node in "abc":
        c.wall_ms[node] = for_ms
    return c


def is_refused(c: Cluster, node: str, key: str = "K") -> bool:
    """Whether this master, once it has started, takes no transaction with the key because of its clock. Any other
    refusal fails."""
    answer = c.ask(node, update("INSERT Y", key))
    end_ms = c.now_ms + 30_000
    while isinstance(answer, Unavailable) and answer.reason == "Starting":
        assert c.now_ms < end_ms
        c.run(100)
        answer = c.ask(node, update("INSERT Y", key))
    if isinstance(answer, SubmissionAccepted):
        return False
    assert isinstance(answer, Unavailable), answer
    assert (answer.reason, answer.status) == ("ClockUnconfirmed", 503), answer
    assert answer.retry_after_s > 0
    return True


def run_until_keys_are_taken(c: Cluster, node: str, key: str) -> SubmissionAccepted:
    """The answer to the key once this master judges its age."""
    end_ms = c.now_ms + 30_000
    while is_refused(c, node, key):
        assert c.now_ms < end_ms
        c.run(100)
    (answer,) = c.submit(node, "INSERT Y", key=key)
    return answer


@pytest.mark.parametrize("older", ["", "bc"])
def test_behind_a_long_stop_a_master_alone_takes_no_key_until_another_one_confirms_the_time(older: str) -> None:
    """Masters whose program does not report its clock confirm the time by their counters, also beside a wrong clock."""
    c = stopped(clocks(), 30 * DAY_MS)
    c.older = older
    c.wall_ms["a"] += YEAR_MS if older else 0
    c.start("a")
    c.run(300)
    assert is_refused(c, "a")
    assert isinstance(c.ask("a", update("INSERT Z")), SubmissionAccepted), "without a key nothing has an age"
    (repeat,) = c.submit("a", "INSERT X", key="before")
    assert repeat.is_repeat, "what is known is answered"
    c.start("b")
    c.start("c")
    assert run_until_keys_are_taken(c, "a", "K").txid.origin.node == "a"


def test_one_key_at_two_masters_that_woke_apart_takes_effect_once() -> None:
    c = stopped(clocks(), 30 * DAY_MS)
    c.cut = {(one, other) for one, other in (("a", "b"), ("b", "a"), ("a", "c"), ("c", "a"))}
    for node in "abc":
        c.start(node)
    c.run(2000)
    assert is_refused(c, "a")
    (first,) = c.submit("b", "INSERT Y", key="K")
    c.cut = set()
    again = run_until_keys_are_taken(c, "a", "K")
    c.run(2000)
    log = c.core("a").log_state
    assert log is not None
    assert again.is_repeat
    assert [noop for noop in log.noops.values() if noop != first.txid] == [], "of the copies the first one counts"
    assert c.log("a") == c.log("b") == c.log("c")


@pytest.mark.parametrize("stop_ms", [0, RETENTION_MS // 5])
def test_behind_a_short_stop_a_master_alone_takes_keys(stop_ms: int) -> None:
    c = stopped(clocks(), stop_ms)
    c.start("a")
    c.run(300)
    assert not is_refused(c, "a")


def test_a_cluster_of_one_takes_keys_behind_any_stop() -> None:
    c = clocks("a")
    c.submit("a", "INSERT X")
    c.run(500)
    c.crash("a")
    c.wall_ms["a"] = 30 * DAY_MS
    c.start("a")
    c.run(300)
    assert not is_refused(c, "a")


def test_a_first_counter_by_one_clock_alone_takes_no_key() -> None:
    """Its clock may be wrong, and its first stamps would lie a year before those of the others."""
    c = Clocks("abc", idle_interval_ms=100, max_clock_skew_ms=60_000)
    c.wall_ms["a"] = -YEAR_MS
    c.founded()
    c.run(1000)
    assert not is_refused(c, "a"), "posts have merged the counters"
    fresh = Clocks("abc", idle_interval_ms=100, max_clock_skew_ms=60_000)
    core = fresh.core("a")
    core.local.clock.raised_counter(fresh.now("a"), 0, 60_000, 400, dict)
    counter = core.local.clock.raised_counter(fresh.now("a"), 0, 60_000, 400, dict)
    assert core.local.clock.lag_error(counter, RETENTION_MS // 4, False) is not None
    assert core.local.clock.lag_error(counter, RETENTION_MS // 4, True) is None, "no other master takes work"
    core.local.clock.on_peer_clock("b", core.local.clock.wall_ms - YEAR_MS)
    assert core.local.clock.lag_error(counter, RETENTION_MS // 4, False) is not None, "the clocks differ"
    core.local.clock.on_peer_clock("c", core.local.clock.wall_ms + 1000)
    assert core.local.clock.lag_error(counter, RETENTION_MS // 4, False) is None


def test_the_retention_at_the_end_of_the_log_is_what_counts() -> None:
    assert IdempotencyKeys(RETENTION_MS).retention_ms == RETENTION_MS


def test_where_older_masters_founded_the_cluster_a_member_that_sent_no_hello_is_waited_for() -> None:
    """Its program may be one that keeps no first stamps. Without one, a transaction that a later view takes in again
    would be as old as that view."""
    c = Cluster("abc")
    c.without_level = "abc"
    c.run(500)
    c.without_level = ""
    c.crash("b")
    c.cut = {("b", "c"), ("c", "b")}
    c.start("b")
    end_ms = c.now_ms + 5_000
    while not isinstance(c.ask("b", update("INSERT X")), SubmissionAccepted):
        assert c.now_ms < end_ms
        c.run(1)
    answer = c.ask("b", update("INSERT Y", "K"))
    assert isinstance(answer, Unavailable), answer
    assert answer.reason == "Starting", answer
    assert "c sent no hello since this start" in str(answer)
    c.cut = set()
    run_until_keys_are_taken(c, "b", "K")


def test_masters_that_restart_while_another_one_is_away_give_first_stamps() -> None:
    """Before the first keyed transaction the views alone prove which program the absent master runs."""
    c = clocks()
    c.submit("a", "INSERT X")
    c.run(500)
    leave(c, "c")
    run_until_in_view(c, "a", "b", within_ms=30_000)
    for node in "ab":
        leave(c, node)
        c.start(node)
        run_until_in_view(c, "a", "b", within_ms=30_000)
    answer = c.ask("b", update("INSERT Y", "K"))
    assert isinstance(answer, SubmissionAccepted), answer
    c.run(500)
    log = c.core("a").log_state
    assert log is not None
    assert log.keys.has_first_stamps


@pytest.mark.parametrize("updated", [False, True])
def test_an_absent_master_that_was_older_may_be_so_still(updated: bool) -> None:
    c = Cluster("abc", idle_interval_ms=100)
    c.without_level = "c"
    c.founded()
    if updated:
        c.without_level = ""
        leave(c, "c")
        run_until_in_view(c, "a", "b", within_ms=30_000)
        c.start("c")
        run_until_in_view(c, "a", "b", "c", within_ms=30_000)
    leave(c, "c")
    run_until_in_view(c, "a", "b", within_ms=30_000)
    view = c.core("a").views.accepted
    assert view is not None
    assert view.level == (PROTOCOL_LEVEL if updated else 0)
