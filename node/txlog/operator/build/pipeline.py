"""The Spark application of a data centre, as a Job: one pod that is driver and executor at once. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from txlog.config.cluster import TxLogCluster
from txlog.config.placing import worker_configs
from txlog.config.process import PipelineConfig
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


def config_of(cluster: TxLogCluster) -> PipelineConfig:
    return PipelineConfig(
        data_center=cluster.data_center,
        masters=master_urls(cluster),
        workers=worker_configs(cluster, lambda index: worker_url(cluster, index)),
        scratch_folder=SCRATCH,
    )


def config_map(cluster: TxLogCluster, around: Around) -> Object:
    """Named by what is in it, as its Job is: neither is ever changed."""
    told = config_of(cluster).model_dump_json(indent=1, exclude_defaults=True) + "\n"
    return made(cluster, around, "v1", "ConfigMap", job_name(cluster, around), COMPONENT, data={FILE: told})


def job_name(cluster: TxLogCluster, around: Around) -> str:
    """Another one whenever anything in the pod would be another."""
    told = [config_of(cluster).model_dump(mode="json", exclude_defaults=True), _pod(cluster, around, "")]
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
    own = own_access(cluster)
    driver = container(
        cluster,
        around,
        COMPONENT,
        ["python", "-m", "txlog.pipeline", f"--config={CONFIG}/{FILE}"],
        workingDir=str(SCRATCH),
        env=[{"name": "HOME", "value": "/tmp"}, {"name": "SPARK_LOCAL_IP", "value": "127.0.0.1"}, *own.env],
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
    return pod_spec([driver], [*volumes, *own.volumes], restartPolicy="OnFailure", terminationGracePeriodSeconds=STOP_S)
