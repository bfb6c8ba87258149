"""The Spark application of a data centre, as a Job. Its pod is driver and executor at once, or (``mode: executors``)
the driver of executors that are pods of their own (:mod:`.executors`). Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from txlog.config.cluster import TxLogCluster
from txlog.config.process_config import SPARK_BLOCKS_PORT, SPARK_DRIVER_PORT, PipelineConfig
from txlog.config.process_config_builder import build_worker_configs
from txlog.operator.build import executors
from txlog.operator.build.common import (
    CONFIG,
    TMP,
    Around,
    Object,
    container,
    labels,
    made,
    master_urls,
    own_access,
    pod_spec,
    resources_of,
    worker_url,
)
from txlog.operator.names import GROUP, Names, digest

COMPONENT: Final = "pipeline"
SCRATCH: Final = Path("/scratch")
FILE: Final = "pipeline.json"
STOP_S: Final = 30
CONFIG_HASH: Final = f"{GROUP}/config"


def config_of(cluster: TxLogCluster, around: Around) -> PipelineConfig:
    more: dict[str, Any] = {}
    if executors.count(cluster):
        more = {
            "executors": executors.config_of(cluster, around),
            "batch_tasks": executors.batch_tasks(cluster),
        }
    return PipelineConfig(
        data_center=cluster.data_center,
        masters=master_urls(cluster),
        workers=build_worker_configs(cluster, lambda index: worker_url(cluster, index)),
        scratch_folder=SCRATCH,
        **more,
    )


def config_map(cluster: TxLogCluster, around: Around) -> Object:
    """Named by what is in it, as its Job is: neither is ever changed."""
    told = config_of(cluster, around).model_dump_json(indent=1, exclude_defaults=True) + "\n"
    data = {FILE: told}
    if executors.count(cluster):
        data[executors.TEMPLATE] = executors.template_text(cluster, around, SCRATCH)
    return made(cluster, around, "v1", "ConfigMap", job_name(cluster, around), COMPONENT, data=data)


def job_name(cluster: TxLogCluster, around: Around) -> str:
    """Another one whenever anything in a pod of it would be another."""
    told = [config_of(cluster, around).model_dump(mode="json", exclude_defaults=True), _pod(cluster, around, "")]
    if executors.count(cluster):
        told.append(executors.template(cluster, around, SCRATCH))
    return f"{Names(cluster).pipeline}-{digest(told)}"


def job(cluster: TxLogCluster, around: Around) -> Object:
    """Its pod is started again in place when it fails; that it ended, the operator sees, and makes the next."""
    name = job_name(cluster, around)
    spec: Object = {
        "backoffLimit": 1_000_000,
        "podReplacementPolicy": "Failed",
        "template": {"metadata": {"labels": labels(cluster, COMPONENT)}, "spec": _pod(cluster, around, name)},
    }
    return made(cluster, around, "batch/v1", "Job", name, COMPONENT, spec=spec)


def _pod(cluster: TxLogCluster, around: Around, config: str) -> Object:
    own, apart = own_access(cluster), bool(executors.count(cluster))
    env: list[Object] = [{"name": "HOME", "value": "/tmp"}]
    more: Object = {}
    if apart:
        env += [_field("POD_IP", "status.podIP"), _field("POD_NAME", "metadata.name")]
        ports = {"driver": SPARK_DRIVER_PORT, "blocks": SPARK_BLOCKS_PORT}
        more["ports"] = [{"name": name, "containerPort": port} for name, port in ports.items()]
    else:
        env.append({"name": "SPARK_LOCAL_IP", "value": "127.0.0.1"})
    driver = container(
        cluster,
        around,
        COMPONENT,
        ["python", "-m", "txlog.pipeline", f"--config={CONFIG}/{FILE}"],
        workingDir=str(SCRATCH),
        env=[*env, *own.env],
        **more,
        resources=resources_of(cluster.spec.pipeline.resources),
        terminationMessagePolicy="FallbackToLogsOnError",
        volumeMounts=[
            {"name": "config", "mountPath": str(CONFIG), "readOnly": True},
            {"name": "scratch", "mountPath": str(SCRATCH)},
            *own.mounts,
            TMP,
        ],
    )
    volumes = [{"name": "config", "configMap": {"name": config}}, {"name": "scratch", "emptyDir": {}}]
    # Spark asks the API server for executors; nothing else of TxLog but the operator has an account there.
    account = {"serviceAccountName": around.pipeline_account, "automountServiceAccountToken": True} if apart else {}
    return pod_spec(
        [driver],
        [*volumes, *own.volumes],
        restartPolicy="OnFailure",
        terminationGracePeriodSeconds=STOP_S,
        **account,
    )


def _field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
