"""Executors of the Spark application as pods: how many, how large, and what Spark makes each of them from. Pure.

The driver makes and removes them; they belong to its pod, so that Kubernetes collects them with it.
"""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Final

from ruamel.yaml import YAML

from txlog.config.cluster import TxLogCluster
from txlog.config.process_config import ExecutorsConfig
from txlog.config.process_config_builder import worker_names
from txlog_operator.object_names import ObjectNames
from txlog_operator.specs.common import (
    CONFIG_FOLDER,
    TMP_MOUNT,
    BuildContext,
    KubeObject,
    container,
    internal_credentials,
    labels,
    pod_spec,
    selector,
)

COMPONENT: Final = "executor"
CONTAINER_NAME: Final = "spark-executor"
"""As Spark calls the container of a template that it takes for its own."""
TEMPLATE_FILE: Final = "executor.yaml"
DEFAULT_COUNT: Final = 2
DEFAULT_CPU: Final = "250m"
DEFAULT_MEMORY: Final = 1536 << 20
HEAP_SHARE: Final = 3 / 8
HEAP_MB_MIN: Final = 480
"""Spark refuses less than 450 MB."""
BATCH_TASKS: Final = 2
TERMINATION_GRACE_S: Final = 10


def executor_count(cluster: TxLogCluster) -> int:
    """How many the manifest asks for; 0 where the driver does it all itself."""
    told = cluster.spec.pipeline
    return (told.executors or DEFAULT_COUNT) if told.mode == "executors" else 0


def batch_tasks(cluster: TxLogCluster) -> int:
    """Of a batch at once."""
    return max(BATCH_TASKS, executor_count(cluster))


def concurrent_tasks(cluster: TxLogCluster) -> int:
    """At once, by stream and batch: with fewer a batch would keep the stream waiting."""
    return len(worker_names(cluster)) + batch_tasks(cluster)


def executor_cores(cluster: TxLogCluster) -> int:
    """Tasks at once of each executor. Unless the manifest says it: as many as one process would have in all, so that
    those that are left do when one is gone."""
    told = cluster.spec.pipeline.executor_cores
    return told or math.ceil((concurrent_tasks(cluster) + len(worker_names(cluster))) / max(1, executor_count(cluster)))


def memory_mb(cluster: TxLogCluster) -> tuple[int, int]:
    """Of the JVM's heap, and of everything else in the pod."""
    whole = (cluster.spec.pipeline.executor_memory or DEFAULT_MEMORY) >> 20
    heap = max(HEAP_MB_MIN, int(whole * HEAP_SHARE))
    return heap, whole - heap


def executor_config(cluster: TxLogCluster, around: BuildContext) -> ExecutorsConfig:
    names, (heap_mb, overhead_mb) = ObjectNames(cluster), memory_mb(cluster)
    return ExecutorsConfig(
        name=names.executors,
        namespace=names.namespace,
        selector=",".join(f"{key}={value}" for key, value in selector(cluster, COMPONENT).items()),
        image=cluster.spec.image or around.image,
        pull_policy=around.pull_policy,
        template=CONFIG_FOLDER / TEMPLATE_FILE,
        count=executor_count(cluster),
        cores=executor_cores(cluster),
        cpu=cluster.spec.pipeline.executor_cpu or DEFAULT_CPU,
        heap_mb=heap_mb,
        overhead_mb=overhead_mb,
    )


def pod_template(cluster: TxLogCluster, around: BuildContext, scratch: Path) -> KubeObject:
    """The pod as Spark finds it. Spark adds its name, its owner, its addresses, the word ``executor`` to the command,
    and what is asked for of processor and memory. It needs nothing of the API server."""
    own = internal_credentials(cluster)
    executor = container(
        cluster,
        around,
        CONTAINER_NAME,
        ["python", "-m", "txlog.pipeline.executor_pod"],
        workingDir="/tmp",
        env=[{"name": "HOME", "value": "/tmp"}, *own.env],
        terminationMessagePolicy="FallbackToLogsOnError",
        volumeMounts=[
            # Spark takes a volume of this name for its own files where it is mounted
            {"name": "spark-local-dir-1", "mountPath": str(scratch / "local")},
            {"name": "turns", "mountPath": str(scratch / "turns")},
            *own.mounts,
            TMP_MOUNT,
        ],
    )
    volumes: list[KubeObject] = [{"name": "spark-local-dir-1", "emptyDir": {}}, {"name": "turns", "emptyDir": {}}]
    spec = pod_spec(
        [executor],
        [*volumes, *own.volumes],
        terminationGracePeriodSeconds=TERMINATION_GRACE_S,
        topologySpreadConstraints=[
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": selector(cluster, COMPONENT)},
            }
        ],
    )
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": labels(cluster, COMPONENT)}, "spec": spec}


def pod_template_yaml(cluster: TxLogCluster, around: BuildContext, scratch: Path) -> str:
    """As Spark reads it."""
    yaml, text = YAML(), io.StringIO()
    yaml.width = 1000
    yaml.representer.ignore_aliases = lambda _: True
    yaml.dump(pod_template(cluster, around, scratch), text)
    return text.getvalue()
