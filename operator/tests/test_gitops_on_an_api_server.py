"""What tools that keep a cluster as git has it compare and wait for: Argo CD, Flux, Helm."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from control_plane import ROOT, ControlPlane
from ruamel.yaml import YAML
from test_reconciler import QUICK, turns
from test_resource_rules import applied, resource

from txlog_operator.kube_client import KubeClient
from txlog_operator.metrics import OperatorMetrics
from txlog_operator.reconciler import Reconciler

pytestmark = pytest.mark.kubernetes
MANIFESTS = sorted(path for path in (ROOT / "examples").glob("*/*.yaml"))


@pytest.fixture
async def kube(plane: ControlPlane) -> AsyncIterator[KubeClient]:
    found = KubeClient(plane.place)
    yield found
    await found.close()


def drift(wanted: Any, live: Any, at: str = "") -> Iterator[str]:
    """What a tool sees that merges maps, and compares lists as a whole since it does not know their keys."""
    if isinstance(wanted, dict) and isinstance(live, dict):
        for key, value in wanted.items():
            yield from drift(value, live.get(key), f"{at}.{key}")
    elif wanted != live:
        yield f"{at}: {wanted!r} is {live!r}"


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_a_manifest_that_was_applied_shows_no_drift(plane: ControlPlane, namespace: str, file: Path) -> None:
    for wanted in YAML(typ="safe").load_all(file.read_text()):
        if wanted is None or wanted["kind"] != "TxLogCluster":
            continue
        wanted["metadata"]["namespace"] = namespace
        assert applied(plane, wanted) == ""
        reported = plane.kubectl("-n", namespace, "get", "txl", wanted["metadata"]["name"], "-o", "json").stdout
        live = json.loads(reported)
        assert list(drift(wanted["spec"], live["spec"])) == []
        # Applied again, it is the same object: no generation, no reconcile.
        assert applied(plane, wanted) == ""
        again = plane.kubectl("-n", namespace, "get", "txl", wanted["metadata"]["name"], "-o", "json").stdout
        assert json.loads(again)["metadata"]["resourceVersion"] == live["metadata"]["resourceVersion"]


async def test_the_operator_does_not_touch_the_spec(plane: ControlPlane, kube: KubeClient, namespace: str) -> None:
    wanted = resource(namespace, maxPeerLag="60s", workers={"replicas": 2}, masters={"resources": {"limits": {}}})
    assert applied(plane, wanted) == ""
    before = await kube.get("TxLogCluster", namespace, "catalogue")
    await turns(Reconciler(kube, namespace, "catalogue", QUICK, OperatorMetrics()), 3)
    after = await kube.get("TxLogCluster", namespace, "catalogue")
    assert before is not None
    assert after is not None
    assert after["spec"] == before["spec"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert list(drift(wanted["spec"], after["spec"])) == []


async def test_tools_that_wait_know_when_a_change_is_in_effect(
    plane: ControlPlane, kube: KubeClient, namespace: str
) -> None:
    """As kstatus does it, which Flux and Helm use: first the generation, then ``Ready``."""
    assert applied(plane, resource(namespace)) == ""
    found = await kube.get("TxLogCluster", namespace, "catalogue")
    assert found is not None
    assert kstatus(found) == "InProgress", "no operator has seen it"
    keeper = Reconciler(kube, namespace, "catalogue", QUICK, OperatorMetrics())
    await turns(keeper, 2)
    found = await kube.get("TxLogCluster", namespace, "catalogue")
    assert found is not None
    assert found["status"]["observedGeneration"] == found["metadata"]["generation"]
    assert kstatus(found) == "InProgress", "its masters do not run"
    ready = [{**each, "status": "True"} if each["type"] == "Ready" else each for each in found["status"]["conditions"]]
    assert kstatus({**found, "status": {**found["status"], "conditions": ready}}) == "Current"
    assert applied(plane, resource(namespace, maxPeerLag="2m")) == ""
    found = await kube.get("TxLogCluster", namespace, "catalogue")
    assert found is not None
    assert kstatus({**found, "status": {**found["status"], "conditions": ready}}) == "InProgress"


def kstatus(found: dict[str, Any]) -> str:
    status = found.get("status", {})
    if status.get("observedGeneration", 0) != found["metadata"]["generation"]:
        return "InProgress"
    ready = next((each["status"] for each in status.get("conditions", []) if each["type"] == "Ready"), "Unknown")
    return "Current" if ready == "True" else "InProgress"
