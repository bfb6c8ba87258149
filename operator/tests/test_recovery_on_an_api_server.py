"""``spec.bootstrap.recovery`` on a real API server: what it adds comes and goes, and what it refuses is named."""

from collections.abc import AsyncIterator

import pytest
from control_plane import ControlPlane
from test_on_an_api_server import keeper
from test_reconciler import conditions, turns
from test_resource_rules import resource

from txlog_operator.kube_client import ApiError, KubeClient

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(300)]
ARCHIVE = {"target": {"folder": {"path": "/archive", "claimName": "archive"}}}


@pytest.fixture
async def kube(plane: ControlPlane) -> AsyncIterator[KubeClient]:
    found = KubeClient(plane.place)
    yield found
    await found.close()


async def test_it_comes_and_goes_with_the_manifest(kube: KubeClient, namespace: str) -> None:
    manifest = resource(namespace)
    manifest["spec"]["bootstrap"] = {"recovery": {"archive": ARCHIVE}}
    await kube.apply(manifest)
    await turns(keeper(kube, namespace), 3)
    masters = await kube.get("StatefulSet", namespace, "catalogue")
    assert masters is not None
    [first] = masters["spec"]["template"]["spec"]["initContainers"]
    assert first["command"][2:4] == ["txlog.successor", "found"]
    made = await kube.get("Deployment", namespace, "catalogue-recovery")
    assert made is not None
    assert (await conditions(kube, namespace))["SpecValid"]["status"] == "True"

    await turns(keeper(kube, namespace), 2)  # it is as it was applied: nothing is applied again
    same = await kube.get("StatefulSet", namespace, "catalogue")
    assert same is not None
    assert same["metadata"]["generation"] == masters["metadata"]["generation"]

    del manifest["spec"]["bootstrap"]
    await kube.apply(manifest)
    await turns(keeper(kube, namespace), 3)
    assert await kube.get("Deployment", namespace, "catalogue-recovery") is None
    after = await kube.get("StatefulSet", namespace, "catalogue")
    assert after is not None
    assert "initContainers" not in after["spec"]["template"]["spec"]


async def test_the_api_server_refuses_a_copy_without_a_position(kube: KubeClient, namespace: str) -> None:
    manifest = resource(namespace)
    manifest["spec"]["bootstrap"] = {"recovery": {"archive": ARCHIVE, "as": "copy"}}
    with pytest.raises(ApiError, match="position:INDEX:HASH"):
        await kube.apply(manifest)
    manifest["spec"]["bootstrap"]["recovery"]["to"] = "position:7:0011223344556677"
    await kube.apply(manifest)
