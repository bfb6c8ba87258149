"""The bootstrap decides whether stores hold literals as they were sent (rule 20, decisions/0101)."""

from __future__ import annotations

import pytest
from changing_views import leave, run_until_in_view
from core_cluster import Cluster

from txlog.model.configuration import Configuration
from txlog.model.view import View


class MixedCluster(Cluster):
    """``can``: the masters whose stores can keep literals."""

    can = ""

    def start(self, node: str):  # type: ignore[no-untyped-def]
        self.settings["keeps_literals"] = node in self.can
        return super().start(node)


def first_of(view: View | None) -> Configuration:
    assert view is not None
    assert view.bootstrap_configuration is not None
    return view.bootstrap_configuration


@pytest.mark.parametrize(("can", "kept"), [("abc", True), ("ab", False), ("bc", False), ("", False)])
def test_rule_20_literals_are_kept_where_the_stores_of_every_founder_can(
    monkeypatch: pytest.MonkeyPatch, can: str, kept: bool
) -> None:
    monkeypatch.setattr(MixedCluster, "can", can)
    cluster = MixedCluster("abc", idle_interval_ms=100).founded()
    assert {first_of(cluster.core(node).views.accepted).keeps_literals for node in "abc"} == {kept}


def test_rule_20_every_later_view_and_start_has_what_was_founded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the manifest of a master that starts again names other stores."""
    monkeypatch.setattr(MixedCluster, "can", "abc")
    cluster = MixedCluster("abc", idle_interval_ms=100).founded()
    leave(cluster, "c")
    monkeypatch.setattr(MixedCluster, "can", "")
    cluster.start("c")
    run_until_in_view(cluster, *"abc")
    views = [cluster.core(node).views.accepted for node in "abc"]
    assert all(view is not None and view.epoch > 1 for view in views)
    assert {first_of(view).keeps_literals for view in views} == {True}
