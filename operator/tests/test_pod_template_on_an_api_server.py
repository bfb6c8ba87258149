"""What a manifest adds to pods, as a real API server takes it; and stores that ``kubectl scale`` changes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from control_plane import ControlPlane
from test_on_an_api_server import keeper
from test_pod_template import ADDED
from test_reconciler import conditions, turns
from test_resource_rules import resource

from txlog_operator.kube_client import KubeClient

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(300)]


@pytest.fixture
async def kube(plane: ControlPlane) -> AsyncIterator[KubeClient]:
    found = KubeClient(plane.place)
    yield found
    await found.close()


async def pod_of(kube: KubeClient, namespace: str, name: str) -> dict[str, Any]:
    found = await kube.get("StatefulSet", namespace, name)
    assert found is not None
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


async def test_pods_have_what_the_manifest_adds_and_nothing_is_patched_for_ever(
    kube: KubeClient, namespace: str
) -> None:
    await kube.apply(resource(namespace, podTemplate=ADDED))
    one = keeper(kube, namespace)
    await turns(one, 3)
    reconciled = (await conditions(kube, namespace))["Reconciled"]
    assert (reconciled["status"], reconciled["reason"]) == ("True", "AllApplied"), reconciled["message"]
    for name in ("catalogue", "catalogue-worker"):
        spec = await pod_of(kube, namespace, name)
        assert spec["tolerations"] == ADDED["tolerations"]
        assert spec["initContainers"][0]["restartPolicy"] == "Always"
        assert spec["serviceAccountName"] == "graphs-s3"
        assert {"name": "AWS_REGION", "value": "eu-west-2"} in spec["containers"][0]["env"]
    written = kube.write_count
    await turns(one, 3)
    assert kube.write_count == written, "what the API server adds to it is no drift"


async def test_a_part_that_kubernetes_refuses_is_said(kube: KubeClient, namespace: str) -> None:
    await kube.apply(resource(namespace, podTemplate={"tolerations": [{"key": "a", "operator": "Perhaps"}]}))
    await turns(keeper(kube, namespace), 2)
    reconciled = (await conditions(kube, namespace))["Reconciled"]
    assert (reconciled["status"], reconciled["reason"]) == ("False", "Refused")
    assert "Perhaps" in reconciled["message"]


async def test_scaled_stores_are_made_and_counted(plane: ControlPlane, kube: KubeClient, namespace: str) -> None:
    await kube.apply(resource(namespace, workers={"replicas": 1}))
    one = keeper(kube, namespace)
    await turns(one, 2)
    plane.kubectl("-n", namespace, "scale", "txlogcluster/catalogue", "--replicas=2")
    await turns(one, 2)
    stores = await kube.get("StatefulSet", namespace, "catalogue-worker")
    assert stores is not None
    assert stores["spec"]["replicas"] == 2
    found = await kube.get("TxLogCluster", namespace, "catalogue")
    assert found is not None
    assert "app.kubernetes.io/component=worker" in found["status"]["workerSelector"]
    available = (await conditions(kube, namespace))["Available"]
    assert (available["status"], available["reason"]) == ("False", "NoMaster"), "no kubelet runs them here"
