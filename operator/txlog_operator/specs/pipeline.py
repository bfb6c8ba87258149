"""The Spark application of a data centre, as a Job. Its pod is driver and executor at once, or (``mode: executors``)
the driver of executors in pods of their own (:mod:`.executors`). Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from txlog.config.cluster import TxLogCluster
from txlog.config.process_config import SPARK_BLOCKS_PORT, SPARK_DRIVER_PORT, PipelineConfig
from txlog.config.process_config_builder import build_traces_config, build_worker_configs
from txlog_operator.object_names import ObjectNames, short_hash
from txlog_operator.specs import executors
from txlog_operator.specs.common import (
    CONFIG_FOLDER,
    CONFIG_MOUNT,
    HOME_VARIABLE,
    TMP_MOUNT,
    BuildContext,
    KubeObject,
    build_object,
    config_text,
    container,
    field_variable,
    internal_credentials,
    master_urls,
    pod_spec,
    resource_requirements,
    worker_url,
)
from txlog_operator.specs.pod_template import build_pod_template, template_of

COMPONENT: Final = "pipeline"
SCRATCH_FOLDER: Final = Path("/scratch")
CONFIG_FILE: Final = "pipeline.json"
TERMINATION_GRACE_S: Final = 30
REQUESTS: Final = {"cpu": "250m", "memory": "1Gi", "ephemeral-storage": "256Mi"}
"""Of the driver, where the manifest names none."""


def pipeline_config(cluster: TxLogCluster, around: BuildContext) -> PipelineConfig:
    """The configuration of the Spark application."""
    more: dict[str, Any] = cluster.spec.limits.pipeline_fields()
    if executors.executor_count(cluster):
        more |= {
            "executors": executors.executor_config(cluster, around),
            "batch_tasks": executors.batch_tasks(cluster),
        }
    return PipelineConfig(
        data_center=cluster.data_center,
        masters=master_urls(cluster),
        workers=build_worker_configs(cluster, lambda index: worker_url(cluster, index)),
        scratch_folder=SCRATCH_FOLDER,
        traces=build_traces_config(cluster),
        **more,
    )


def config_map(cluster: TxLogCluster, around: BuildContext) -> KubeObject:
    """Named by a hash of its content, as its Job is: neither ever changes."""
    config = config_text(pipeline_config(cluster, around))
    data = {CONFIG_FILE: config}
    if executors.executor_count(cluster):
        data[executors.TEMPLATE_FILE] = executors.pod_template_yaml(cluster, around, SCRATCH_FOLDER)
    return build_object(cluster, around, "v1", "ConfigMap", pipeline_job_name(cluster, around), COMPONENT, data=data)


def pipeline_job_name(cluster: TxLogCluster, around: BuildContext) -> str:
    """A name that changes with any field of the pod."""
    hashed = [
        pipeline_config(cluster, around).model_dump(mode="json", exclude_defaults=True),
        _pod(cluster, around, ""),
    ]
    if executors.executor_count(cluster):
        hashed.append(executors.pod_template(cluster, around, SCRATCH_FOLDER))
    added = template_of(cluster, COMPONENT)
    if not added.is_empty:
        hashed.append(added.model_dump(mode="json"))
    return f"{ObjectNames(cluster).pipeline}-{short_hash(hashed)}"


def pipeline_job(cluster: TxLogCluster, around: BuildContext) -> KubeObject:
    """The kubelet restarts its container in place after a failure. When the Job has ended, the operator creates the
    next one."""
    name = pipeline_job_name(cluster, around)
    spec: KubeObject = {
        "backoffLimit": 1_000_000,
        "podReplacementPolicy": "Failed",
        "template": build_pod_template(cluster, COMPONENT, _pod(cluster, around, name)),
    }
    return build_object(cluster, around, "batch/v1", "Job", name, COMPONENT, spec=spec)


def _pod(cluster: TxLogCluster, around: BuildContext, config: str) -> KubeObject:
    own, apart = internal_credentials(cluster), bool(executors.executor_count(cluster))
    env: list[KubeObject] = [HOME_VARIABLE]
    more: KubeObject = {}
    if apart:
        env += [field_variable("POD_IP", "status.podIP"), field_variable("POD_NAME", "metadata.name")]
        ports = {"driver": SPARK_DRIVER_PORT, "blocks": SPARK_BLOCKS_PORT}
        more["ports"] = [{"name": name, "containerPort": port} for name, port in ports.items()]
    else:
        env.append({"name": "SPARK_LOCAL_IP", "value": "127.0.0.1"})
    driver = container(
        cluster,
        around,
        COMPONENT,
        ["python", "-m", "txlog.pipeline", f"--config={CONFIG_FOLDER}/{CONFIG_FILE}"],
        workingDir=str(SCRATCH_FOLDER),
        env=[*env, *own.env],
        **more,
        resources=resource_requirements(cluster.spec.pipeline.resources, REQUESTS),
        terminationMessagePolicy="FallbackToLogsOnError",
        volumeMounts=[
            CONFIG_MOUNT,
            {"name": "scratch", "mountPath": str(SCRATCH_FOLDER)},
            *own.mounts,
            TMP_MOUNT,
        ],
    )
    volumes = [{"name": "config", "configMap": {"name": config}}, {"name": "scratch", "emptyDir": {}}]
    # Spark creates executors through the API server; only the operator has an account there besides.
    account = {"serviceAccountName": around.pipeline_account, "automountServiceAccountToken": True} if apart else {}
    return pod_spec(
        around,
        [driver],
        [*volumes, *own.volumes],
        restartPolicy="OnFailure",
        terminationGracePeriodSeconds=TERMINATION_GRACE_S,
        **account,
    )
