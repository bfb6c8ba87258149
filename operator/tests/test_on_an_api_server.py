"""What would lose or touch data, or go on unsaid, against a real API server and its controllers."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import kopf
import pytest
from control_plane import ROOT, ControlPlane, running
from test_reconciler import QUICK, account, becomes, conditions, operator, standing, turns
from test_resource_rules import applied, resource

from txlog_operator.kube_client import ApiError, KubeClient
from txlog_operator.main import Operator
from txlog_operator.metrics import OperatorMetrics
from txlog_operator.object_cache import CachedKubeClient
from txlog_operator.reconciler import OperatorSettings, Reconciler
from txlog_operator.specs import BuildContext, KubeObject

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(300)]


@pytest.fixture
async def kube(plane: ControlPlane) -> AsyncIterator[KubeClient]:
    found = KubeClient(plane.place)
    yield found
    await found.close()


def keeper(kube: KubeClient, namespace: str, name: str = "catalogue") -> Reconciler:
    return Reconciler(kube, namespace, name, QUICK, OperatorMetrics())


def foreign(kind: str, api: str, name: str, namespace: str, **rest: object) -> KubeObject:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": namespace}, **rest}


POD = {"metadata": {"labels": {"app": "shop"}}, "spec": {"containers": [{"name": "a", "image": "shop"}]}}
SELECTED = {"selector": {"matchLabels": {"app": "shop"}}}


def foreigners(namespace: str) -> list[KubeObject]:
    """Of every kind that the operator applies under a name that somebody else may have."""
    budget = {"maxUnavailable": 0, **SELECTED}
    stateful = {**SELECTED, "serviceName": "x", "template": POD}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return [
        foreign("Service", "v1", "catalogue", namespace, spec={"ports": [{"port": 80}], "selector": {"app": "shop"}}),
        foreign("ConfigMap", "v1", "catalogue-masters", namespace, data={"theirs": "1"}),
        foreign("StatefulSet", "apps/v1", "catalogue", namespace, spec=stateful),
        foreign("PodDisruptionBudget", "policy/v1", "catalogue-workers", namespace, spec=budget),
        foreign("NetworkPolicy", "networking.k8s.io/v1", "catalogue-masters", namespace, spec={"podSelector": {}}),
        foreign("PersistentVolumeClaim", "v1", "catalogue-split-backups", namespace, spec=claim),
    ]


async def test_objects_of_others_are_neither_taken_nor_deleted(kube: KubeClient, namespace: str) -> None:
    theirs = [await kube.create(each) for each in foreigners(namespace)]
    await kube.apply(resource(namespace))
    await turns(keeper(kube, namespace), 3)
    told = (await conditions(kube, namespace))["Reconciled"]
    assert (told["status"], told["reason"]) == ("False", "ForeignObject")
    assert "exists, and is not the operator's" in told["message"]
    assert (await conditions(kube, namespace))["Ready"]["status"] == "False"
    found = await kube.get("TxLogCluster", namespace, "catalogue")
    assert found is not None
    assert "observedGeneration" not in found["status"] or found["status"]["observedGeneration"] == 0
    events = [each["message"] for each in await kube.list("Event", namespace) if each["reason"] == "ApplyObjectFailed"]
    assert len(events) == len(theirs)
    # What is free is made all the same.
    assert await kube.get("Service", namespace, "catalogue-masters") is not None
    await kube.delete("TxLogCluster", namespace, "catalogue")

    async def collected() -> bool:
        return await kube.get("Service", namespace, "catalogue-masters") is None

    await becomes(collected, 60)
    for each in theirs:
        now = await kube.get(each["kind"], namespace, each["metadata"]["name"])
        assert now is not None
        assert now["metadata"]["uid"] == each["metadata"]["uid"]
        assert now["metadata"].get("ownerReferences", []) == []
        assert now["spec" if "spec" in each else "data"] == each["spec" if "spec" in each else "data"]


async def test_two_clusters_whose_names_meet_do_not_take_from_each_other(kube: KubeClient, namespace: str) -> None:
    await kube.apply(resource(namespace))
    await turns(keeper(kube, namespace), 2)
    before = await kube.get("StatefulSet", namespace, "catalogue-worker")
    await kube.apply(resource(namespace, "catalogue-worker"))
    await turns(keeper(kube, namespace, "catalogue-worker"), 2)
    found = await kube.get("TxLogCluster", namespace, "catalogue-worker")
    assert found is not None
    told = {each["type"]: each for each in found["status"]["conditions"]}
    assert "it belongs to TxLogCluster catalogue" in told["Reconciled"]["message"]
    after = await kube.get("StatefulSet", namespace, "catalogue-worker")
    assert before is not None
    assert after is not None
    assert after["spec"] == before["spec"]
    await turns(keeper(kube, namespace), 1)
    assert (await conditions(kube, namespace))["Reconciled"]["status"] == "True"


async def test_journals_outlive_a_scale_to_nothing(plane: ControlPlane, kube: KubeClient, namespace: str) -> None:
    await kube.apply(resource(namespace))
    await turns(keeper(kube, namespace), 2)

    async def claims() -> list[str]:
        found = await kube.list("PersistentVolumeClaim", namespace, {"app.kubernetes.io/component": "master"})
        return sorted(each["metadata"]["name"] for each in found if "deletionTimestamp" not in each["metadata"])

    async def made() -> bool:
        return len(await claims()) == 2

    await becomes(made)
    await kube.apply(resource(namespace, paused=True))
    plane.kubectl("-n", namespace, "scale", "statefulset", "catalogue", "--replicas=0")

    async def no_pods() -> bool:
        await keeper(kube, namespace).reconcile()
        pods = await kube.list("Pod", namespace, {"app.kubernetes.io/component": "master"})
        return pods == []

    await becomes(no_pods, 60)
    await turns(keeper(kube, namespace), 2)
    # The garbage collector is done with everything that it was given before this.
    plane.kubectl("-n", namespace, "create", "configmap", "marker")
    assert await claims() == ["journal-catalogue-1", "journal-catalogue-2"]
    for each in await kube.list("PersistentVolumeClaim", namespace):
        assert each["metadata"].get("ownerReferences", []) == []


async def test_a_job_that_no_quota_admits_is_named(plane: ControlPlane, kube: KubeClient, namespace: str) -> None:
    plane.kubectl("-n", namespace, "create", "quota", "full", "--hard=count/pods=0,pods=0")
    target = {"target": {"s3": {"bucket": "backups", "endpoint": "http://s3", "secretRef": {"name": "s3"}}}}
    await kube.apply(resource(namespace, backup=target))
    await turns(keeper(kube, namespace), 1)
    await kube.apply({**resource(namespace, "monday"), "kind": "TxLogBackup", "spec": {"cluster": "catalogue"}})
    kept = keeper(kube, namespace)
    kept._clock = lambda: time.time() + 20  # the pod had time to start

    async def told() -> str:
        await kept.reconcile()
        found = (await conditions(kube, namespace))["JobsHealthy"]
        return found["message"] if found["status"] == "False" and "exceeded quota" in found["message"] else ""

    assert "TxLogBackup monday" in await becomes(told, 60)
    backup = await kube.get("TxLogBackup", namespace, "monday")
    assert backup is not None
    assert "exceeded quota: full" in backup["status"]["message"]


async def test_storage_of_workers_does_not_come_or_go(plane: ControlPlane, namespace: str) -> None:
    assert applied(plane, resource(namespace, workers={"replicas": 1})) == ""
    storage = {"replicas": 1, "storage": {"size": "1Gi"}}
    assert "cannot be added or taken away" in applied(plane, resource(namespace, workers=storage))
    assert applied(plane, resource(namespace, "other", workers=storage)) == ""
    assert "cannot be added or taken away" in applied(plane, resource(namespace, "other", workers={"replicas": 1}))


async def test_what_the_api_server_refuses_is_said_and_not_asked_every_second(
    plane: ControlPlane, kube: KubeClient, namespace: str
) -> None:
    await kube.apply(resource(namespace))
    await turns(keeper(kube, namespace), 2)
    # As by an operator of yesterday, before the rule was there: the StatefulSet has another volume.
    found = await kube.get("StatefulSet", namespace, "catalogue-worker")
    assert found is not None
    plane.kubectl("-n", namespace, "delete", "statefulset", "catalogue-worker", "--cascade=orphan")
    (template,) = found["spec"]["volumeClaimTemplates"]
    template["spec"]["accessModes"] = ["ReadWriteMany"]
    meta = {key: found["metadata"][key] for key in ("name", "namespace", "labels", "ownerReferences")}
    await kube.create({**found, "metadata": meta, "status": {}})
    kept = keeper(kube, namespace)
    await turns(kept, 3)
    told = await conditions(kube, namespace)
    assert (told["Reconciled"]["status"], told["Reconciled"]["reason"]) == ("False", "Refused")
    assert "apply StatefulSet catalogue-worker" in told["Reconciled"]["message"]
    assert told["Ready"]["status"] == "False"
    before = kube.write_count
    for _ in range(10):
        await kept.reconcile()
    assert kube.write_count - before <= 4


async def test_who_may_not_even_look_says_so_in_the_status(
    plane: ControlPlane, kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    token = account(plane, namespace)
    await kube.apply(resource(namespace))
    patch = json.dumps([{"op": "remove", "path": "/rules/4"}])
    role = json.loads(plane.kubectl("-n", namespace, "get", "role", "txlog-operator", "-o", "json").stdout)
    assert role["rules"][4]["resources"] == ["pods"]
    plane.kubectl("-n", namespace, "patch", "role", "txlog-operator", "--type=json", "-p", patch)
    with operator(plane, namespace, token, tmp_path):

        async def said() -> KubeObject | None:
            found = (await conditions(kube, namespace)).get("Reconciled")
            return found if found is not None and found["reason"] == "Forbidden" else None

        told = await becomes(said, 60)
    assert "pods" in told["message"]
    assert (await conditions(kube, namespace))["Ready"]["status"] == "False"


async def test_drift_is_put_right_or_left_and_said_and_nothing_is_patched_for_ever(
    plane: ControlPlane, kube: KubeClient, namespace: str
) -> None:
    half = {"requests": {"cpu": "0.5", "memory": "1024Mi"}}
    await kube.apply(resource(namespace, masters={"resources": half}))
    kept = keeper(kube, namespace)
    await turns(kept, 3)

    async def quiet() -> bool:
        before = kube.write_count
        await turns(kept, 3)
        return kube.write_count == before

    await becomes(quiet)
    change = ("-n", namespace, "set", "env", "statefulset/catalogue", "TXLOG_INDEX-", "THEIRS=1")
    plane.kubectl(*change)
    plane.kubectl("-n", namespace, "scale", "statefulset", "catalogue", "--replicas=1")

    async def right() -> bool:
        await kept.reconcile()
        found = await kube.get("StatefulSet", namespace, "catalogue")
        assert found is not None
        env = [each["name"] for each in found["spec"]["template"]["spec"]["containers"][0]["env"]]
        return sorted(env) == ["THEIRS", "TXLOG_INDEX"] and found["spec"]["replicas"] == 2

    await becomes(right)
    await becomes(quiet)
    told = (await conditions(kube, namespace))["Reconciled"]
    assert told["status"] == "True"
    assert "StatefulSet catalogue (kubectl-set)" in told["message"]


async def test_a_status_that_was_refused_leaves_the_schedule_due(kube: KubeClient, namespace: str) -> None:
    target = {"target": {"s3": {"bucket": "backups", "endpoint": "http://s3", "secretRef": {"name": "s3"}}}}
    await kube.apply(resource(namespace, backup={**target, "schedule": "@every 1h"}))
    kept = keeper(kube, namespace)
    await turns(kept, 2)
    schedule = await kube.get("TxLogBackupSchedule", namespace, "catalogue")
    assert schedule is not None
    due = schedule["status"]["next"]
    kept._clock = lambda: time.time() + 3700
    name = f"catalogue-{due[:19].replace('-', '').replace(':', '').replace('T', '')}"
    theirs = {**resource(namespace, name), "kind": "TxLogBackup", "spec": {"cluster": "other"}}
    await kube.apply(theirs)
    await turns(kept, 2)
    schedule = await kube.get("TxLogBackupSchedule", namespace, "catalogue")
    assert schedule is not None
    assert schedule["status"]["next"] == due
    assert name in (await conditions(kube, namespace))["Reconciled"]["message"]
    await kube.delete("TxLogBackup", namespace, name)

    async def made() -> bool:
        await kept.reconcile()
        found = await kube.get("TxLogBackup", namespace, name)
        return found is not None and found["spec"]["cluster"] == "catalogue"

    await becomes(made)


CLUSTERS = 20
REQUESTS_PER_S_MAX = 30.0
"""Of twenty clusters that are all not ready, as in an outage."""
MEASURED_S = 15.0


async def test_twenty_clusters_ask_little(plane: ControlPlane, kube: KubeClient, namespace: str) -> None:
    for at in range(CLUSTERS):
        await kube.apply(resource(namespace, f"c-{at}"))
    tended = Operator(plane.place, OperatorSettings(BuildContext("txlog:1")))
    await tended.start()
    try:
        for at in range(CLUSTERS):
            tended.on_changed(namespace, f"c-{at}", 1)

        async def all_made() -> bool:
            found = await kube.list("StatefulSet", namespace)
            return len(found) == 2 * CLUSTERS

        await becomes(all_made, 120)
        counts = [tended.request_count]

        async def calm() -> bool:
            """Until the controllers have made all pods."""
            await asyncio.sleep(1.0)
            counts.append(tended.request_count)
            return len(counts) > 5 and counts[-1] - counts[-4] < REQUESTS_PER_S_MAX

        await becomes(calm, 120)
        turned = sum(tended.reconcile_count(namespace, f"c-{at}") for at in range(CLUSTERS))
        before, began = tended.request_count, time.monotonic()
        await asyncio.sleep(MEASURED_S)
        took = time.monotonic() - began
        rate = (tended.request_count - before) / took
        turns_per_s = (sum(tended.reconcile_count(namespace, f"c-{at}") for at in range(CLUSTERS)) - turned) / took
        print(f"{CLUSTERS} clusters: {rate:.1f} requests/s, {turns_per_s:.1f} reconciles/s")
        assert turns_per_s > CLUSTERS / 10
        assert rate < REQUESTS_PER_S_MAX
    finally:
        await tended.stop()


async def test_copies_show_own_writes_at_once_and_those_of_others_soon(
    plane: ControlPlane, kube: KubeClient, namespace: str
) -> None:
    changed: list[tuple[str, str]] = []

    def note(kind: str, found: KubeObject, _before: KubeObject | None) -> None:
        changed.append((kind, found["metadata"]["name"]))

    cached = CachedKubeClient(plane.place, None, note)
    try:
        labels = {"app.kubernetes.io/name": "txlog", "app.kubernetes.io/instance": "a"}
        mine = foreign("ConfigMap", "v1", "mine", namespace, data={"a": "1"})
        mine["metadata"]["labels"] = labels
        assert await cached.list("ConfigMap", namespace, labels) == []
        await cached.apply(mine)
        assert [each["data"] for each in await cached.list("ConfigMap", namespace, labels)] == [{"a": "1"}]
        assert changed in ([], [("ConfigMap", "mine")]), "the watch may tell of it before the answer does"
        changed.clear()
        plane.kubectl("-n", namespace, "patch", "configmap", "mine", "--type=merge", "-p", '{"data":{"a":"2"}}')

        async def seen() -> bool:
            found = await cached.get("ConfigMap", namespace, "mine")
            return found is not None and found["data"] == {"a": "2"}

        await becomes(seen)
        assert changed == [("ConfigMap", "mine")]
        assert await cached.list("ConfigMap", namespace, {**labels, "app.kubernetes.io/instance": "b"}) == []
        await cached.delete("ConfigMap", namespace, "mine")
        assert await cached.list("ConfigMap", namespace, labels) == []
        requests = cached.request_count
        for _ in range(50):
            await cached.list("ConfigMap", namespace, labels)
        assert cached.request_count == requests
    finally:
        await cached.close()


async def test_a_copy_that_is_forbidden_says_so(plane: ControlPlane, namespace: str) -> None:
    plane.kubectl("-n", namespace, "create", "serviceaccount", "nobody")
    token = plane.kubectl("-n", namespace, "create", "token", "nobody").stdout.strip()
    metrics = OperatorMetrics()
    cached = CachedKubeClient(plane.of(token), metrics.observe_request)
    try:
        with pytest.raises(ApiError, match="403"):
            await cached.list("Pod", namespace)
    finally:
        await cached.close()
    assert metrics.registry.get_sample_value("txlog_operator_forbidden_total") == 1


async def test_an_operator_waits_for_the_definitions(tmp_path: Path) -> None:
    """kopf looks for them once, so that it must not start without them."""
    with running(tmp_path) as bare:
        waiting = Operator(bare.place, OperatorSettings(BuildContext("txlog:1")))
        try:
            with pytest.raises(kopf.TemporaryError, match=r"serves no TxLogBackup, .*install the definitions"):
                await waiting.start()
            bare.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
            bare.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")

            async def served() -> bool:
                try:
                    await waiting.start()
                except kopf.TemporaryError:
                    return False
                return True

            await becomes(served, 60)
        finally:
            await waiting.stop()


async def test_the_operator_mends_what_was_removed_with_copies(
    plane: ControlPlane, namespace: str, kube: KubeClient, tmp_path: Path
) -> None:
    """With the chart's own rights, and nothing refused."""
    token = account(plane, namespace)
    await kube.apply(resource(namespace))
    with operator(plane, namespace, token, tmp_path):

        async def made() -> bool:
            return ("NetworkPolicy", "catalogue-masters") in await standing(kube, namespace)

        await becomes(made, 60)
        await kube.delete("NetworkPolicy", namespace, "catalogue-masters")
        await becomes(made)
    assert plane.forbidden(namespace) == []
