"""The archiver's Deployment on a real API server: it is made, changed and taken away with ``spec.archive``."""

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
    manifest["spec"]["archive"] = ARCHIVE
    await kube.apply(manifest)
    await turns(keeper(kube, namespace), 3)
    made = await kube.get("Deployment", namespace, "catalogue-archiver")
    assert made is not None
    config = await kube.get("ConfigMap", namespace, "catalogue-archiver")
    assert config is not None
    assert '"folder": "/archive"' in config["data"]["archiver.json"]

    await turns(keeper(kube, namespace), 2)  # it is as it was applied: nothing is applied again
    same = await kube.get("Deployment", namespace, "catalogue-archiver")
    assert same is not None
    assert same["metadata"]["generation"] == made["metadata"]["generation"]
    assert (await conditions(kube, namespace))["SpecValid"]["status"] == "True"

    manifest["spec"]["archive"] = {**ARCHIVE, "maxDelay": "5s"}
    await kube.apply(manifest)
    await turns(keeper(kube, namespace), 2)
    changed = await kube.get("Deployment", namespace, "catalogue-archiver")
    assert changed is not None
    assert changed["metadata"]["generation"] == made["metadata"]["generation"] + 1

    del manifest["spec"]["archive"]
    await kube.apply(manifest)
    await turns(keeper(kube, namespace), 3)
    assert await kube.get("Deployment", namespace, "catalogue-archiver") is None
    assert await kube.get("ConfigMap", namespace, "catalogue-archiver") is None


async def test_the_api_server_refuses_an_archive_without_a_target(kube: KubeClient, namespace: str) -> None:
    manifest = resource(namespace)
    manifest["spec"]["archive"] = {}
    with pytest.raises(ApiError, match=r"a target, since there is no backup\.target"):
        await kube.apply(manifest)
    manifest["spec"]["archive"] = {"target": ARCHIVE["target"], "maxDelay": "2h"}
    await kube.apply(manifest)
    await turns(keeper(kube, namespace), 2)
    assert (await conditions(kube, namespace))["SpecValid"]["status"] == "False"
