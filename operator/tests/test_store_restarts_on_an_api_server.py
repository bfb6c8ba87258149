"""Stores with a new template, on a real API server with its controllers; the kubelet is played."""

import json
from collections.abc import AsyncIterator

import pytest
from control_plane import ControlPlane
from test_reconciler import QUICK, becomes, conditions, turns
from test_resource_rules import resource

from txlog_operator.kube_client import KubeClient
from txlog_operator.metrics import OperatorMetrics
from txlog_operator.reconciler import Reconciler
from txlog_operator.specs import KubeObject

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(300)]
RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
WAITING = {"waiting": {"reason": "ImagePullBackOff"}}


@pytest.fixture
async def kube(plane: ControlPlane) -> AsyncIterator[KubeClient]:
    found = KubeClient(plane.place)
    yield found
    await found.close()


def play(plane: ControlPlane, namespace: str, pod: str, state: dict[str, object]) -> None:
    """What a kubelet would write about the container of a store."""
    ready = state == RUNNING
    container = {"name": "worker", "ready": ready, "restartCount": 0, "image": "i", "imageID": "", "state": state}
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    status = {"phase": "Running", "conditions": [condition], "containerStatuses": [container]}
    patch = ("-n", namespace, "patch", "pod", pod, "--subresource=status", "--type=merge")
    plane.kubectl(*patch, "-p", json.dumps({"status": status}))


async def test_only_the_operator_restarts_stores(plane: ControlPlane, kube: KubeClient, namespace: str) -> None:
    kept = Reconciler(kube, namespace, "catalogue", QUICK, OperatorMetrics())
    names = ["catalogue-worker-1", "catalogue-worker-2"]

    async def stores() -> dict[str, KubeObject]:
        found = await kube.list("Pod", namespace, {"app.kubernetes.io/component": "worker"})
        return {each["metadata"]["name"]: each for each in found if "deletionTimestamp" not in each["metadata"]}

    async def made() -> bool:
        await kept.reconcile()
        return sorted(await stores()) == names

    await kube.apply(resource(namespace, workers={"replicas": 2}))
    await becomes(made)
    for name in names:
        play(plane, namespace, name, RUNNING)
    before = {name: each["metadata"]["uid"] for name, each in (await stores()).items()}

    await kube.apply(resource(namespace, workers={"replicas": 2, "resources": {"requests": {"cpu": "200m"}}}))

    async def revised() -> bool:
        await kept.reconcile()
        found = await kube.get("StatefulSet", namespace, "catalogue-worker")
        assert found is not None
        status = found["status"]
        current = status.get("observedGeneration") == found["metadata"]["generation"]
        return current and status.get("updateRevision") != status.get("currentRevision")

    await becomes(revised)
    await turns(kept, 5)
    assert {name: each["metadata"]["uid"] for name, each in (await stores()).items()} == before, (
        "neither the StatefulSet's controller, nor the operator while no master answers"
    )

    # A store whose container does not run is not protected: the new template may be what makes it run.
    play(plane, namespace, names[0], WAITING)

    async def replaced() -> bool:
        await kept.reconcile()
        now = await stores()
        return names[0] in now and now[names[0]]["metadata"]["uid"] != before[names[0]]

    await becomes(replaced, 60)
    now = await stores()
    assert now[names[1]]["metadata"]["uid"] == before[names[1]]
    assert now[names[0]]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "200m"
    assert (await conditions(kube, namespace))["WorkersConsistent"]["status"] != "True"
