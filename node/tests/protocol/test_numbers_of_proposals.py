"""The number of a proposal is durable at its coordinator before anybody hears of it: it stands for one proposal."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from changing_views import leave, run_until_in_view
from core_cluster import Cluster

from txlog.model.view import Number
from txlog.wire import messages as wire
from txlog.wire.messages import ProposeView


class Heard:
    """Who was to be in the view, by the number that it was proposed with, as the members heard it."""

    def __init__(self, cluster: Cluster) -> None:
        self.members: dict[Number, set[tuple[str, ...]]] = defaultdict(set)
        self._receive = cluster.receive
        cluster.receive = self._hear  # type: ignore[method-assign]

    def _hear(self, source: str, target: str, data: bytes) -> None:
        message = wire.decode(source, data)
        if isinstance(message, ProposeView):
            self.members[message.number].add(tuple(m.node for m in message.members))
        self._receive(source, target, data)


def stall_disk(cluster: Cluster, node: str) -> None:
    """From now on no sync of it ends; what needs none still leaves."""
    cluster.executors[node].begin_sync = lambda: None  # type: ignore[method-assign]


def test_rule_34_a_number_whose_promise_was_lost_in_a_crash_was_heard_by_nobody() -> None:
    """a proposes a view of a and b, and its disk stalls before it has the number. When it is back c is there too: what
    it proposes then has that number once more."""
    cluster = Cluster(idle_interval_ms=100).founded()
    leave(cluster, "c")
    run_until_in_view(cluster, "a", "b")
    cluster.run(500)
    heard = Heard(cluster)
    stall_disk(cluster, "a")
    cluster.core("a").apply_settings(replace(cluster.core("a").settings, strategy="Simple"))
    end_ms = cluster.now_ms + 2000
    while cluster.core("a").views.change is None:
        assert cluster.now_ms < end_ms
        cluster.run(1)
    change = cluster.core("a").views.change
    assert change is not None
    number = change.number
    assert [m.node for m in change.members] == ["a", "b"]
    cluster.run(5)
    cluster.crash("a")
    cluster.cut = {("a", "b"), ("b", "a")}  # until c has come
    cluster.start("c")
    cluster.start("a")
    cluster.run(30)
    cluster.cut.clear()
    run_until_in_view(cluster, "a", "b", "c")
    assert heard.members[number] == {("a", "b", "c")}, "one number, and who was to be in its view"
