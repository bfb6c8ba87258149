"""The operator against a real API server and its controllers."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from control_plane import ROOT, ControlPlane, helm
from test_resource_rules import resource

from e2e.lib.ports import free_ports
from txlog.config.cluster_status import ConditionType
from txlog_operator.kube_client import ApiError, KubeClient
from txlog_operator.main import Operator
from txlog_operator.metrics import OperatorMetrics
from txlog_operator.plan import OWNED_KINDS
from txlog_operator.reconciler import OperatorSettings, ReconcileInterval, Reconciler
from txlog_operator.specs import BuildContext, KubeObject

pytestmark = pytest.mark.kubernetes

QUICK = OperatorSettings(BuildContext("txlog:1"), interval=ReconcileInterval(0.2, 0.2, 0.05))
MADE = 14
"""Objects of one data centre."""


@pytest.fixture
async def kube(plane: ControlPlane) -> AsyncIterator[KubeClient]:
    found = KubeClient(plane.place)
    yield found
    await found.close()


async def becomes(what: Callable[[], Any], seconds: float = 30.0) -> Any:
    """What it becomes, when that is true; polls until a deadline."""
    until = time.monotonic() + seconds
    while True:
        found = await what()
        if found:
            return found
        assert time.monotonic() < until, f"not within {seconds} s; last: {found!r}"
        await asyncio.sleep(0.1)


async def standing(kube: KubeClient, namespace: str) -> dict[tuple[str, str], KubeObject]:
    """What the operator makes, as it is to be: without what the API server and its controllers add."""
    found = {}
    for kind in OWNED_KINDS:
        for each in await kube.list(kind, namespace, {"app.kubernetes.io/managed-by": "txlog-operator"}):
            found[kind, str(each["metadata"]["name"])] = each
    return found


def shape(found: dict[tuple[str, str], KubeObject]) -> dict[tuple[str, str], Any]:
    """To compare across namespaces."""
    return {
        key: (each["metadata"].get("annotations"), sorted(each["metadata"]["labels"])) for key, each in found.items()
    }


async def conditions(kube: KubeClient, namespace: str) -> dict[str, KubeObject]:
    found = await kube.get("TxLogCluster", namespace, "catalogue")
    assert found is not None
    return {each["type"]: each for each in found.get("status", {}).get("conditions", [])}


@contextmanager
def operator(
    plane: ControlPlane, namespace: str, token: str, folder: Path, *more: str
) -> Iterator[subprocess.Popen[bytes]]:
    folder.mkdir(exist_ok=True)
    config = plane.kubeconfig(token, folder / "operator.kubeconfig")
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "txlog_operator", "--namespace", namespace, "--image", "txlog:1"]
    command += ["--liveness", f"http://127.0.0.1:{port}/healthz", "--metrics-port", "0", *more]
    with open(folder / "operator.log", "wb") as log:
        process = subprocess.Popen(command, env={**os.environ, "KUBECONFIG": str(config)}, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def account(plane: ControlPlane, namespace: str) -> str:
    """The chart's own account, Role and binding, and a token of it."""
    chart = ROOT / "charts" / "txlog-operator"
    rendered = helm(
        "template", "op", str(chart), "-n", namespace, "--kube-version=1.34.0", "-s", "templates/rbac.yaml"
    ).stdout
    plane.kubectl("apply", "-f", "-", stdin=rendered)
    return plane.kubectl("-n", namespace, "create", "token", "op").stdout.strip()


async def test_with_the_charts_own_rights_it_makes_and_mends_a_data_centre(
    plane: ControlPlane, namespace: str, kube: KubeClient, tmp_path: Path
) -> None:
    token = account(plane, namespace)
    await kube.apply(resource(namespace))
    with operator(plane, namespace, token, tmp_path):

        async def made() -> bool:
            return len(await standing(kube, namespace)) == MADE

        await becomes(made)
        told = await becomes(lambda: conditions(kube, namespace))
        assert set(told) == set(map(str, ConditionType))
        assert told["SpecValid"]["status"] == "True"
        assert told["Ready"]["status"] == "False"

        # What somebody removes or changes comes back.
        before = (await standing(kube, namespace))["Service", "catalogue"]["metadata"]["uid"]
        await kube.delete("Service", namespace, "catalogue")

        async def back() -> bool:
            found = (await standing(kube, namespace)).get(("Service", "catalogue"))
            return found is not None and found["metadata"]["uid"] != before

        await becomes(back)
        plane.kubectl("-n", namespace, "scale", "statefulset", "catalogue-worker", "--replicas=4")

        async def one_worker() -> bool:
            return (await standing(kube, namespace))["StatefulSet", "catalogue-worker"]["spec"]["replicas"] == 1

        await becomes(one_worker)

        # What cannot act is refused by name, and what was there goes on.
        await kube.apply(resource(namespace, pipeline={"mode": "executors"}, workers={"replicas": 2}))

        async def refused() -> bool:
            return (await conditions(kube, namespace))["SpecValid"]["status"] == "False"

        await becomes(refused)
        assert "executors needs an account" in (await conditions(kube, namespace))["SpecValid"]["message"]
        assert await one_worker()

        await kube.apply(resource(namespace, workers={"replicas": 2}))

        async def two_workers() -> bool:
            return (await standing(kube, namespace))["StatefulSet", "catalogue-worker"]["spec"]["replicas"] == 2

        await becomes(two_workers)
        events = await kube.list("Event", namespace)
        assert "SpecValidFalse" in {each["reason"] for each in events}

        # With the resource everything goes that was made of it; its volumes stay.
        await kube.delete("TxLogCluster", namespace, "catalogue")

        async def gone() -> bool:
            return not await standing(kube, namespace)

        await becomes(gone, 60)
    assert plane.forbidden(namespace) == []


class Crash(Exception):
    """The process was killed: nothing of it runs any more."""


class MortalKube(KubeClient):
    """Dies right behind its n-th write."""

    def __init__(self, plane: ControlPlane, writes: int) -> None:
        super().__init__(plane.place)
        self._left = writes

    async def _write(self, method: str, path: str, body: KubeObject, **options: Any) -> KubeObject:
        found = await super()._write(method, path, body, **options)
        self._left -= 1
        if self._left == 0:
            raise Crash
        return found


async def turns(keeper: Reconciler, count: int) -> None:
    for _ in range(count):
        await keeper.reconcile()


async def test_killed_behind_any_write_it_comes_to_the_same_end(
    plane: ControlPlane, kube: KubeClient, namespace: str
) -> None:
    await kube.apply(resource(namespace))
    await turns(Reconciler(kube, namespace, "catalogue", QUICK, OperatorMetrics()), 3)
    wanted = shape(await standing(kube, namespace))
    assert len(wanted) == MADE
    died = 0
    for at in range(1, 100):
        other = f"{namespace}-{at}"
        plane.kubectl("create", "namespace", other)
        await kube.apply(resource(other))
        mortal = MortalKube(plane, at)
        try:
            await turns(Reconciler(mortal, other, "catalogue", QUICK, OperatorMetrics()), 3)
        except Crash:
            died += 1
        finally:
            await mortal.close()
        await turns(Reconciler(kube, other, "catalogue", QUICK, OperatorMetrics()), 3)
        # Configuration names the namespace, so its hash differs; everything else is the same.
        assert [key for key in shape(await standing(kube, other)) if "pipeline" not in key[1]] == [
            key for key in wanted if "pipeline" not in key[1]
        ]
        if died < at:
            break
    assert died > MADE


async def test_a_quiet_cluster_is_not_written_to(plane: ControlPlane, kube: KubeClient, namespace: str) -> None:
    await kube.apply(resource(namespace))
    keeper = Reconciler(kube, namespace, "catalogue", QUICK, OperatorMetrics())
    writes = [kube.write_count]

    async def five_turns_without_one() -> bool:
        """Until the controllers have made all pods, the status says of each what it is."""
        await turns(keeper, 1)
        writes.append(kube.write_count)
        return len(writes) > 5 and writes[-1] == writes[-6]

    await becomes(five_turns_without_one)


async def test_its_own_status_does_not_wake_it(plane: ControlPlane, kube: KubeClient, namespace: str) -> None:
    """Under load a status is another one in every turn."""
    await kube.apply(resource(namespace))
    operator = Operator(
        plane.place, OperatorSettings(BuildContext("txlog:1"), interval=ReconcileInterval(600, 600, 0.01))
    )
    await operator.start()
    try:

        async def turned(count: int) -> bool:
            return operator.reconcile_count(namespace, "catalogue") >= count

        operator.on_changed(namespace, "catalogue", 1)
        await becomes(lambda: turned(1))
        counts = [-1]

        async def quiet() -> bool:
            """Until the controllers have made everything: of each new pod it is told."""
            await asyncio.sleep(1.0)
            counts.append(operator.reconcile_count(namespace, "catalogue"))
            return len(counts) > 4 and counts[-1] == counts[-4]

        await becomes(quiet, 90)
        for at in range(3):
            operator.on_changed(namespace, "catalogue", 1)
            found = await kube.get("TxLogCluster", namespace, "catalogue")
            assert found is not None
            await kube.replace_status(found, {**found["status"], "applied": at})
        counts = [-1]
        await becomes(quiet, 90)
        before = counts[-1]
        assert counts[1] == before, "a status alone wakes nothing"
        operator.on_changed(namespace, "catalogue", 2)
        await becomes(lambda: turned(before + 1))
    finally:
        await operator.stop()


async def test_an_apply_again_changes_nothing(kube: KubeClient, namespace: str) -> None:
    await kube.apply(resource(namespace))
    await turns(Reconciler(kube, namespace, "catalogue", QUICK, OperatorMetrics()), 3)
    found = await standing(kube, namespace)
    fresh = Reconciler(kube, namespace, "catalogue", QUICK, OperatorMetrics())
    await turns(fresh, 2)
    versions = {key: each["metadata"]["generation"] for key, each in found.items() if "generation" in each["metadata"]}
    again = await standing(kube, namespace)
    assert versions == {key: again[key]["metadata"]["generation"] for key in versions}


async def test_what_the_models_refuse_beyond_the_rules_of_the_api_server(kube: KubeClient, namespace: str) -> None:
    """A rule over two durations, which the API server cannot check."""
    await kube.apply(resource(namespace, roundTimeout="1s", idleInterval="2s"))
    await turns(Reconciler(kube, namespace, "catalogue", QUICK, OperatorMetrics()), 2)
    told = await conditions(kube, namespace)
    assert told["SpecValid"]["status"] == "False"
    assert "spec.idleInterval: expected a duration below roundTimeout" in told["SpecValid"]["message"]
    assert await standing(kube, namespace) == {}


async def test_who_may_not_ask_is_told_so_and_counted(plane: ControlPlane, namespace: str) -> None:
    plane.kubectl("-n", namespace, "create", "serviceaccount", "nobody")
    token = plane.kubectl("-n", namespace, "create", "token", "nobody").stdout.strip()
    kube = KubeClient(plane.of(token))
    try:
        with pytest.raises(ApiError, match="403"):
            await kube.list("Pod", namespace)
    finally:
        await kube.close()
    assert plane.forbidden(namespace) == [
        f"system:serviceaccount:{namespace}:nobody: list /api/v1/namespaces/{namespace}/pods?limit=500"
    ]
