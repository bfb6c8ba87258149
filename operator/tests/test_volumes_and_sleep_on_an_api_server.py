"""Volumes that grow and data centres that sleep, against a real API server and its controllers. The tests play what
makes volumes and pods."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from control_plane import ControlPlane
from test_reconciler import QUICK, becomes, conditions, turns
from test_resource_rules import resource
from test_with_real_masters import Site, site

from txlog_operator.kube_client import KubeClient
from txlog_operator.metrics import OperatorMetrics
from txlog_operator.reconciler import Reconciler
from txlog_operator.specs import KubeObject

__all__ = ["site"]
pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(300)]
LABELS = {"app.kubernetes.io/component": "master"}


@pytest.fixture
async def kube(plane: ControlPlane) -> AsyncIterator[KubeClient]:
    found = KubeClient(plane.place)
    yield found
    await found.close()


def storage(namespace: str, *, expands: bool) -> list[KubeObject]:
    """A class of volumes made by hand, and one volume for each claim of two masters and a store."""
    name = f"class-{namespace}"
    kind: KubeObject = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "kubernetes.io/no-provisioner",
        "allowVolumeExpansion": expands,
    }
    claims = ("journal-catalogue-1", "journal-catalogue-2", "store-catalogue-worker-1")
    volumes = [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"{namespace}-{claim}"},
            "spec": {
                "capacity": {"storage": "20Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": name,
                "hostPath": {"path": "/never"},
                "claimRef": {"namespace": namespace, "name": claim},
            },
        }
        for claim in claims
    ]
    return [kind, *volumes]


def sized(namespace: str, size: str, **more: Any) -> KubeObject:
    given = {"size": size, "storageClassName": f"class-{namespace}"}
    return resource(namespace, masters={"storage": given}, workers={"storage": given}, **more)


async def all_bound(kube: KubeClient, namespace: str) -> bool:
    found = await kube.list("PersistentVolumeClaim", namespace, {"app.kubernetes.io/instance": "catalogue"})
    bound = [each for each in found if each.get("status", {}).get("phase") == "Bound"]
    return len([each for each in bound if "split-backups" not in each["metadata"]["name"]]) == 3


async def grown_by_the_storage(plane: ControlPlane, kube: KubeClient, namespace: str, size: str) -> None:
    """As a driver does it: the volume first, then the status of the claim."""
    for each in await kube.list("PersistentVolumeClaim", namespace, {"app.kubernetes.io/instance": "catalogue"}):
        name = each["metadata"]["name"]
        if "split-backups" in name:
            continue
        assert each["spec"]["resources"]["requests"]["storage"] == size
        capacity = {"capacity": {"storage": size}}
        plane.kubectl("patch", "pv", f"{namespace}-{name}", "--type=merge", "-p", json.dumps({"spec": capacity}))
        patch = ("-n", namespace, "patch", "pvc", name, "--subresource=status", "--type=merge", "-p")
        plane.kubectl(*patch, json.dumps({"status": capacity}))


async def test_volumes_grow_while_their_pods_go_on(plane: ControlPlane, kube: KubeClient, namespace: str) -> None:
    made = {"kind": "List", "apiVersion": "v1", "items": storage(namespace, expands=True)}
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(made))
    keeper = Reconciler(kube, namespace, "catalogue", QUICK, OperatorMetrics())
    await kube.apply(sized(namespace, "20Gi"))
    await turns(keeper, 2)
    await becomes(lambda: all_bound(kube, namespace), 60)
    pods = {each["metadata"]["name"]: each["metadata"]["uid"] for each in await kube.list("Pod", namespace, LABELS)}
    before = await kube.get("StatefulSet", namespace, "catalogue")
    assert before is not None
    assert len(pods) == 2

    await kube.apply(sized(namespace, "40Gi"))
    await turns(keeper, 2)
    reported = (await conditions(kube, namespace))["Reconciled"]
    assert (reported["status"], reported["reason"]) == ("Unknown", "VolumesGrow"), reported
    found = await kube.get("TxLogCluster", namespace, "catalogue")
    assert found is not None
    assert found["status"]["observedGeneration"] < found["metadata"]["generation"]
    await grown_by_the_storage(plane, kube, namespace, "40Gi")

    async def replaced() -> bool:
        await turns(keeper, 1)
        now = await kube.get("StatefulSet", namespace, "catalogue")
        return now is not None and now["metadata"]["uid"] != before["metadata"]["uid"]

    await becomes(replaced, 60)

    async def adopted() -> bool:
        """The controller takes the pods that are there."""
        now = await kube.get("StatefulSet", namespace, "catalogue")
        listed = await kube.list("Pod", namespace, LABELS)
        owners = {owner["uid"] for each in listed for owner in each["metadata"].get("ownerReferences", [])}
        assert {each["metadata"]["name"]: each["metadata"]["uid"] for each in listed} == pods
        return now is not None and owners == {now["metadata"]["uid"]}

    await becomes(adopted, 60)

    async def done() -> bool:
        await turns(keeper, 1)
        now = await kube.get("TxLogCluster", namespace, "catalogue")
        assert now is not None
        return bool(now["status"]["observedGeneration"] == now["metadata"]["generation"])

    await becomes(done, 60)
    now = await kube.get("StatefulSet", namespace, "catalogue")
    assert now is not None
    template = now["spec"]["volumeClaimTemplates"][0]
    assert template["spec"]["resources"]["requests"]["storage"] == "40Gi"
    assert (await kube.get("TxLogCluster", namespace, "catalogue") or {})["status"]["volumeSizes"]["master"] == "40Gi"


async def test_storage_that_does_not_grow_is_named_and_stops_nothing_else(
    plane: ControlPlane, kube: KubeClient, namespace: str
) -> None:
    made = {"kind": "List", "apiVersion": "v1", "items": storage(namespace, expands=False)}
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(made))
    keeper = Reconciler(kube, namespace, "catalogue", QUICK, OperatorMetrics())
    await kube.apply(sized(namespace, "20Gi"))
    await turns(keeper, 2)
    await becomes(lambda: all_bound(kube, namespace), 60)
    await kube.apply(sized(namespace, "40Gi", podTemplate={"labels": {"team": "data"}}))
    await turns(keeper, 2)
    reported = (await conditions(kube, namespace))["Reconciled"]
    assert reported["status"] == "False"
    assert "grow PersistentVolumeClaim journal-catalogue-1 to 40Gi" in reported["message"]
    assert "must support resize" in reported["message"]
    found = await kube.get("StatefulSet", namespace, "catalogue")
    assert found is not None
    assert found["spec"]["template"]["metadata"]["labels"]["team"] == "data"
    # Nothing has grown, so the size may be taken back, and all is carried out.
    await kube.apply(sized(namespace, "20Gi"))
    await turns(keeper, 2)
    assert (await conditions(kube, namespace))["Reconciled"]["status"] == "True"


async def test_masters_sleep_with_their_journals_and_wake_with_them(site: Site) -> None:
    await site.want(2)
    await becomes(site.ready("2/2"), 90)
    await becomes(lambda: site.hears(("uk-1", 1, "Joined"), ("uk-2", 1, "Joined")))
    births = [each["birth"] for each in (await site.status())["nodes"]]

    def state(name: str, reason: str) -> Callable[[], Any]:
        async def reached() -> bool:
            reported = await site.status()
            return reported["state"] == name and (await site.condition("Ready"))[1] == reason

        return reached

    await site.want(2, hibernated=True)
    await becomes(state("Hibernated", "Hibernated"), 90)
    assert await site.pods() == {}
    claims = await site.kube.list("PersistentVolumeClaim", site.namespace, LABELS)
    assert sorted(each["metadata"]["name"] for each in claims) == ["journal-catalogue-1", "journal-catalogue-2"]
    assert all("deletionTimestamp" not in each["metadata"] for each in claims)
    found = await site.kube.get("TxLogCluster", site.namespace, "catalogue")
    assert found is not None
    assert found["status"]["observedGeneration"] == found["metadata"]["generation"]

    async def left() -> bool:
        """Each was stopped in order; the last one finds no other one to confirm it."""
        return all('Left"' in site.kubelet.log(f"catalogue-{index}") for index in (1, 2))

    await becomes(left, 60)

    await site.want(2)
    await becomes(site.ready("2/2"), 90)
    await becomes(lambda: site.hears(("uk-1", 2, "Joined"), ("uk-2", 2, "Joined")), 60)
    assert [each["birth"] for each in (await site.status())["nodes"]] == births
