"""Backups on a real API server: their resources, their Jobs, and what is said of them. The kubelet is played."""

import json
from pathlib import Path
from typing import Any

import pytest
from control_plane import ControlPlane
from test_reconciler import account, becomes, operator
from test_resource_rules import resource

from txlog_operator.kube_client import KubeClient
from txlog_operator.specs import KubeObject

pytestmark = pytest.mark.kubernetes

TARGET = {"target": {"s3": {"bucket": "backups", "secretRef": {"name": "s3"}}}, "schedule": "0 2 * * *"}


async def end(kube: KubeClient, pod: KubeObject, code: int, said: dict[str, Any]) -> None:
    """As the kubelet says it."""
    ended = {"exitCode": code, "message": json.dumps(said) + "\n", "reason": "Completed" if code == 0 else "Error"}
    status = {
        "phase": "Failed" if code else "Succeeded",
        "containerStatuses": [
            {
                "name": pod["spec"]["containers"][0]["name"],
                "ready": False,
                "restartCount": 0,
                "image": "txlog",
                "imageID": "",
                "state": {"terminated": ended},
            }
        ],
    }
    await kube.replace_status(pod, status)


async def test_a_backup_is_a_job_and_says_what_came_of_it(plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    kube = KubeClient(plane.place)
    wanted = {
        "apiVersion": "txlog.io/v1alpha1",
        "kind": "TxLogBackup",
        "metadata": {"name": "before-the-move", "namespace": namespace},
        "spec": {"cluster": "catalogue"},
    }

    async def pod_of(name: str) -> KubeObject | None:
        backup = await kube.get("TxLogBackup", namespace, name)
        job = backup.get("status", {}).get("job") if backup else None
        found = await kube.list("Pod", namespace, {"job-name": job}) if job else []
        return found[0] if found else None

    async def state(name: str) -> str:
        found = await kube.get("TxLogBackup", namespace, name)
        return str(found.get("status", {}).get("state", "")) if found else ""

    try:
        token = account(plane, namespace)
        await kube.apply(resource(namespace, backup=TARGET))
        await kube.apply(wanted)
        with operator(plane, namespace, token, tmp_path):
            pod = await becomes(lambda: pod_of("before-the-move"))
            assert await state("before-the-move") == "Running"
            answer = {"name": "b-1", "position": "1.7", "quads": 3, "retired": []}
            await end(kube, pod, 0, answer)

            async def done() -> bool:
                return await state("before-the-move") == "Done"

            await becomes(done)
            found = await kube.get("TxLogBackup", namespace, "before-the-move")
            assert found is not None
            assert (found["status"]["backup"], found["status"]["position"]) == ("b-1", "1.7")

            await kube.apply({**wanted, "metadata": {"name": "second", "namespace": namespace}})
            pod = await becomes(lambda: pod_of("second"))
            await end(kube, pod, 1, {"error": "TargetUnreachable", "message": "there is no such bucket; make it"})

            async def failed() -> bool:
                return await state("second") == "Failed"

            await becomes(failed)

            async def said() -> bool:
                cluster = await kube.get("TxLogCluster", namespace, "catalogue")
                assert cluster is not None
                told = {each["type"]: each for each in cluster["status"]["conditions"]}["LastBackupSucceeded"]
                return told["status"] == "False" and "no such bucket" in told["message"]

            await becomes(said)

            async def scheduled() -> KubeObject | None:
                found = await kube.get("TxLogBackupSchedule", namespace, "catalogue")
                return found.get("status", {}).get("next") if found else None

            assert str(await becomes(scheduled)).endswith("T02:00:00Z")
        assert plane.forbidden(namespace) == []
    finally:
        await kube.close()
