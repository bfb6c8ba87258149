"""A master joins while the others write at a high rate: it is judged by time, and the pause stays short."""

from __future__ import annotations

import pytest
from changing_views import assert_same_logs, forget, in_view, leave
from core_cluster import Cluster

from txlog.model.ids import Origin
from txlog.protocol.views.catch_up import CAUGHT_UP_LAG_MAX, FetchPace
from txlog.wire import messages as wire

PIECE_MS = 2
WRITERS = "ab"
A, B = Origin("a", 1), Origin("b", 2)


class Load:
    """Clients of a and b. ``count``: transactions so far; ``pause_ms``: the longest time without a synced one of a."""

    def __init__(self, cluster: Cluster, per_s: int) -> None:
        self.cluster = cluster
        self.count = self.pause_ms = 0
        self._piece = ["x"] * (per_s * PIECE_MS // 1000 // len(WRITERS))
        self._synced, self._synced_ms = 0, cluster.now_ms

    def write(self, for_ms: int) -> None:
        cluster = self.cluster
        for _ in range(for_ms // PIECE_MS):
            for node in WRITERS:
                cluster.submit(node, *self._piece)
                self.count += len(self._piece)
            cluster.run(PIECE_MS)
            synced = cluster.marks["a"].synced
            if synced > self._synced:
                self._synced, self._synced_ms = synced, cluster.now_ms
            self.pause_ms = max(self.pause_ms, cluster.now_ms - self._synced_ms)


def begin(per_s: int) -> tuple[Cluster, Load]:
    """a and b write, and c has left."""
    cluster = Cluster("abc", idle_interval_ms=1000, round_timeout_ms=2000).founded(4000)
    load = Load(cluster, per_s)
    load.write(100)
    leave(cluster, "c")
    load.write(400)
    return cluster, load


def write_until_joined(cluster: Cluster, load: Load) -> None:
    end_ms = cluster.now_ms + 3000
    while not in_view(cluster, "a", "b", "c"):
        assert cluster.now_ms < end_ms, cluster.core("c").state
        load.write(20)
    load.write(100)
    assert load.pause_ms <= 200, "a leave and a join; no disk and no processor takes time here"
    assert_same_logs(cluster, load.count)


@pytest.mark.parametrize("lost_disk", [False, True])
@pytest.mark.parametrize("per_s", [2_000, 10_000, 40_000])
def test_a_master_joins_while_the_others_write(per_s: int, lost_disk: bool) -> None:
    cluster, load = begin(per_s)
    if lost_disk:
        forget(cluster, "c")
    cluster.start("c")
    write_until_joined(cluster, load)


def test_a_master_whose_hellos_are_rare_joins_while_the_others_write() -> None:
    """It runs an older program, and says every 200 ms only what it holds."""
    cluster, load = begin(10_000)
    cluster.start("c")
    receive, passed_ms = cluster.receive, dict.fromkeys(WRITERS, 0)

    def without_early_hellos(source: str, target: str, data: bytes) -> None:
        if source == "c" and isinstance(wire.decode(source, data), wire.Hello):
            if cluster.now_ms < passed_ms[target] + 200:
                return
            passed_ms[target] = cluster.now_ms
        receive(source, target, data)

    cluster.receive = without_early_hellos  # type: ignore[method-assign]
    write_until_joined(cluster, load)


def test_a_master_joins_where_an_older_one_judges_by_a_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FetchPace, "is_near_end", property(lambda pace: pace.lacking <= CAUGHT_UP_LAG_MAX))
    cluster, load = begin(10_000)
    cluster.start("c")
    write_until_joined(cluster, load)


@pytest.mark.parametrize(("per_s", "is_near_end"), [(10_000, False), (19_000, False), (21_000, True)])
def test_a_master_that_fetches_slowly_is_not_let_in_before_it_is_near(per_s: int, is_near_end: bool) -> None:
    """It lacks 10,000 each time that it says what it holds."""
    pace = FetchPace()
    for at_ms in range(0, 2000, 20):
        held = per_s * at_ms // 1000
        pace.observe({A: held + 10_000, B: 7}, {A: held, B: 7}, at_ms, is_new=True)
        assert at_ms == 0 or pace.is_near_end == is_near_end


def test_the_first_hello_proves_no_pace() -> None:
    pace = FetchPace()
    pace.observe({A: CAUGHT_UP_LAG_MAX + 1}, {}, 0, is_new=True)
    assert not pace.is_near_end
    pace.observe({A: CAUGHT_UP_LAG_MAX}, {}, 500, is_new=False)
    assert pace.is_near_end


def test_the_pace_is_of_the_last_second() -> None:
    """It was fast, and has stood still since."""
    pace = FetchPace()
    pace.observe({A: 200_000}, {A: 0}, 0, is_new=True)
    for at_ms in range(100, 2000, 100):
        pace.observe({A: 200_000}, {A: 150_000}, at_ms, is_new=True)
    assert not pace.is_near_end


def test_what_was_held_of_another_origin_is_no_pace() -> None:
    pace = FetchPace()
    pace.observe({A: 5000}, {A: 0, B: 90_000}, 0, is_new=True)
    pace.observe({A: 5000, B: 90_000}, {A: 0, B: 90_000}, 100, is_new=True)
    assert pace.lacking == 5000
    assert not pace.is_near_end
