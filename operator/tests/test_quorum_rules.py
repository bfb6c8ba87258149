"""Rules for graphs of a manifest: when their change becomes an entry of the log, and the condition about them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from master_cluster import Cluster, clusters, until
from observations import heard, manifest, whole

from txlog.config.cluster import TxLogCluster
from txlog_operator.actions import ChangeGraphRules
from txlog_operator.cluster_phase import cluster_phase_of
from txlog_operator.cluster_secrets import MasterAccess
from txlog_operator.observation import ClusterObservation
from txlog_operator.observe import query_master
from txlog_operator.plan import make_plan
from txlog_operator.plan_applier import PlanApplier
from txlog_operator.quorum_rules import CHANGING, carried_rules, check_quorum, plan_rules
from txlog_operator.specs import BuildContext
from txlog_operator.specs.masters import restart_hash

__all__ = ["clusters"]
OLD = [{"match": "http://ex.org/a/*", "quorum": "N/2+1", "timeout": "30s"}]
NEW = [{"match": "http://ex.org/b", "quorum": "all", "timeout": "10s"}]


def cluster_with(rules: list[dict[str, str]]) -> TxLogCluster:
    return manifest(durability={"graphs": rules})


def seen_with(
    cluster: TxLogCluster,
    rules: list[dict[str, str]] | None,
    state: str = "Joined",
    *synchro: dict[str, Any] | None,
) -> ClusterObservation:
    """``rules``: of the log; ``synchro``: what the masters report about quorums, in their order."""
    seen = whole(cluster)
    masters = {}
    for at, node in enumerate(cluster.own_peer.nodes):
        told = heard(cluster, node, state)
        assert told.configuration is not None
        configuration = {**told.configuration, **({} if rules is None else {"graphs": rules})}
        report = synchro[at] if at < len(synchro) else None
        masters[node] = replace(told, configuration=configuration, synchro=report)
    return replace(seen, masters=masters)


def planned(cluster: TxLogCluster, seen: ClusterObservation, carried: str | None) -> list[list[dict[str, str]]]:
    return [json.loads(action.rules) for action in plan_rules(cluster, seen, carried)]


def test_a_changed_list_of_the_manifest_becomes_an_entry_of_the_log_once() -> None:
    old, new = cluster_with(OLD), cluster_with(NEW)
    carried = carried_rules(old, seen_with(old, OLD), None)
    assert carried is not None
    assert planned(new, seen_with(new, OLD), carried) == [NEW]
    assert planned(cluster_with([]), seen_with(old, OLD), carried) == [[]]
    assert planned(new, seen_with(new, NEW), carried) == []
    assert carried_rules(new, seen_with(new, OLD), carried) == CHANGING, "until the log has it"
    assert planned(new, seen_with(new, OLD), CHANGING) == [NEW]
    later = carried_rules(new, seen_with(new, NEW), carried)
    assert later not in (None, carried)


def test_a_list_that_goes_back_while_its_change_is_under_way_counts_too() -> None:
    """The log takes the list between, after the manifest has left it. By a digest of what the log last had, the
    manifest would never have changed, and the log would keep a list that no manifest has."""
    old, new = cluster_with(OLD), cluster_with(NEW)
    carried = carried_rules(old, seen_with(old, OLD), None)
    asked = carried_rules(new, seen_with(new, OLD), carried)
    seen = seen_with(old, NEW)
    back = carried_rules(old, seen, asked)
    assert planned(old, seen, back) == [OLD]
    assert carried_rules(old, seen_with(old, OLD), back) == carried
    assert planned(old, seen_with(old, NEW), carried) == [], "what another data centre changes afterwards stays"


def test_what_others_have_changed_is_not_undone() -> None:
    """Another data centre's manifest changed first, or a person's command did."""
    old = cluster_with(OLD)
    carried = carried_rules(old, seen_with(old, OLD), None)
    assert planned(old, seen_with(old, NEW), carried) == []
    assert carried_rules(old, seen_with(old, NEW), carried) == carried
    assert planned(old, seen_with(old, NEW), None) == [], "what the log had before is not known"


@pytest.mark.parametrize("state", ["Joined", "Suspected"])
def test_a_master_at_work_is_asked_that_knows_rules(state: str) -> None:
    new = cluster_with(NEW)
    carried = carried_rules(cluster_with(OLD), seen_with(new, OLD), None)
    assert planned(new, seen_with(new, OLD, state), carried) == ([NEW] if state == "Joined" else [])
    assert planned(new, seen_with(new, None, state), carried) == []


def test_the_plan_has_it_and_no_master_restarts_for_it() -> None:
    old, new = cluster_with(OLD), cluster_with(NEW)
    carried, seen = carried_rules(old, seen_with(old, OLD), None), seen_with(new, OLD)
    around = BuildContext("txlog:1", graph_rules=carried)
    actions = make_plan(new, around, seen, cluster_phase_of(seen))
    (change,) = [action for action in actions if isinstance(action, ChangeGraphRules)]
    assert (change.node, change.url) == ("uk-1", "http://uk-1:7300")
    assert "http://ex.org/b" in str(change)
    assert restart_hash(old, around) == restart_hash(new, around)


def report(*, quorate: bool = True, here: int = 3, reached: bool = True) -> dict[str, Any]:
    rule = {**OLD[0], "needs": 2, "here": here, "reached": reached, "asked": None}
    return {"quorate": quorate, "electorate": {"votes": 3, "here": here}, "graphs": [rule]}


@pytest.mark.parametrize(
    ("synchro", "status", "reason", "text"),
    [
        ([report(), report()], "True", "Reached", "1 rules have their quorum here"),
        ([report(), None], "True", "Reached", ""),
        ([report(), report(quorate=False, here=1)], "True", "Reached", ""),
        ([report(quorate=False, here=1)] * 2, "False", "NotQuorate", "1 of 3 votes are here"),
        ([report(here=1, reached=False), None], "False", "RuleNotReached", "http://ex.org/a/* needs 2 votes (N/2+1)"),
        ([None, None], "Unknown", "NotReported", ""),
    ],
)
def test_the_condition(synchro: list[dict[str, Any] | None], status: str, reason: str, text: str) -> None:
    cluster = cluster_with(OLD)
    found = check_quorum(cluster, seen_with(cluster, OLD, "Joined", *synchro))
    assert (found.status, found.reason) == (status, reason)
    assert text in found.message
    assert "the manifest has other rules" not in found.message
    other = check_quorum(cluster_with(NEW), seen_with(cluster, OLD, "Joined", *synchro))
    assert ("the manifest has other rules" in other.message) is (reason != "NotReported")


def test_a_cluster_without_rules() -> None:
    cluster = manifest()
    assert check_quorum(cluster, seen_with(cluster, [])).reason == "NoRules"
    assert check_quorum(cluster, seen_with(cluster, None)).reason == "NoRules"
    assert check_quorum(cluster_with(OLD), seen_with(cluster, None)).reason == "NotReported"


def test_rules_that_the_log_does_not_have() -> None:
    """Writes of these graphs are not refused: they are ordinary ones."""
    cluster = cluster_with(OLD)
    nothing = {"quorate": False, "electorate": {"votes": 0, "here": 0}, "graphs": []}
    for synchro in (nothing, report() | {"graphs": []}):
        found = check_quorum(cluster, seen_with(cluster, [], "Joined", synchro))
        assert (found.status, found.reason) == ("False", "NotInLog")
        assert "the log has none: its graphs are written without a quorum" in found.message
        assert "refused" not in found.message


async def test_a_real_master_takes_the_change_and_reports_its_quorums(clusters: Callable[..., Cluster]) -> None:
    found, cluster = clusters(1), cluster_with(NEW)
    await found.start()
    url = found.url(0)
    applier = PlanApplier(cast("Any", None), "graphs")  # no action here is one of Kubernetes
    wrong = ChangeGraphRules("uk-1", url, json.dumps([{"match": "no-scheme"}]))
    _, failed = await applier.apply_plan([wrong], MasterAccess())
    assert "IRI with its scheme" in str(failed[0].error)
    change = ChangeGraphRules("uk-1", url, json.dumps(NEW))
    done, failed = await applier.apply_plan([change], MasterAccess())
    assert (done, failed) == ([change], [])

    async def condition() -> bool:
        master = await asyncio.to_thread(query_master, url, MasterAccess())
        assert master is not None
        assert master.configuration is not None
        assert master.configuration["graphs"] == NEW
        seen = replace(whole(cluster), masters={"uk-1": master})
        return check_quorum(cluster, seen).reason == "Reached"

    await until(condition)
