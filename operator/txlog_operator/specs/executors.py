"""Executors of the Spark application as pods: their number, size and pod template. Pure.

The driver creates and removes them. Its pod owns them, so Kubernetes collects them with it.
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
    HOME_VARIABLE,
    TMP_MOUNT,
    BuildContext,
    KubeObject,
    container,
    internal_credentials,
    pod_spec,
    selector,
    spread_over_nodes,
)
from txlog_operator.specs.pod_template import build_pod_template

COMPONENT: Final = "executor"
CONTAINER_NAME: Final = "spark-executor"
"""The container of a template that Spark uses as its own."""
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
    """The number of executors in the manifest; 0 where the driver does all work itself."""
    pipeline = cluster.spec.pipeline
    return (pipeline.executors or DEFAULT_COUNT) if pipeline.mode == "executors" else 0


def batch_tasks(cluster: TxLogCluster) -> int:
    """Concurrent tasks of a batch."""
    return max(BATCH_TASKS, executor_count(cluster))


def concurrent_tasks(cluster: TxLogCluster) -> int:
    """Concurrent tasks of stream and batch; with fewer, a batch would delay the stream."""
    return len(worker_names(cluster)) + batch_tasks(cluster)


def executor_cores(cluster: TxLogCluster) -> int:
    """Concurrent tasks of each executor. By default each executor can run all tasks, so that the remaining executors
    suffice when one is lost."""
    tasks = concurrent_tasks(cluster) + len(worker_names(cluster))
    return cluster.spec.pipeline.executor_cores or math.ceil(tasks / max(1, executor_count(cluster)))


def memory_mb(cluster: TxLogCluster) -> tuple[int, int]:
    """Memory of the JVM's heap and of everything else in the pod, in MiB."""
    whole = (cluster.spec.pipeline.executor_memory or DEFAULT_MEMORY) >> 20
    heap = max(HEAP_MB_MIN, int(whole * HEAP_SHARE))
    return heap, whole - heap


def executor_config(cluster: TxLogCluster, around: BuildContext) -> ExecutorsConfig:
    """The executors' part of the pipeline configuration."""
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
    """The pod template for Spark. Spark adds name, owner, addresses, the argument ``executor``, and the requests for
    CPU and memory. The pod has no access to the API server."""
    own = internal_credentials(cluster)
    executor = container(
        cluster,
        around,
        CONTAINER_NAME,
        ["python", "-m", "txlog.pipeline.executor"],
        workingDir="/tmp",
        env=[HOME_VARIABLE, *own.env],
        terminationMessagePolicy="FallbackToLogsOnError",
        volumeMounts=[
            # Spark uses a mounted volume of this name for its own files
            {"name": "spark-local-dir-1", "mountPath": str(scratch / "local")},
            {"name": "turns", "mountPath": str(scratch / "turns")},
            *own.mounts,
            TMP_MOUNT,
        ],
    )
    volumes: list[KubeObject] = [{"name": "spark-local-dir-1", "emptyDir": {}}, {"name": "turns", "emptyDir": {}}]
    spec = pod_spec(
        around,
        [executor],
        [*volumes, *own.volumes],
        terminationGracePeriodSeconds=TERMINATION_GRACE_S,
        topologySpreadConstraints=spread_over_nodes(cluster, COMPONENT),
    )
    return {"apiVersion": "v1", "kind": "Pod", **build_pod_template(cluster, COMPONENT, spec)}


def pod_template_yaml(cluster: TxLogCluster, around: BuildContext, scratch: Path) -> str:
    """The pod template as YAML, which Spark reads."""
    yaml, text = YAML(), io.StringIO()
    yaml.width = 1000
    yaml.representer.ignore_aliases = lambda _: True
    yaml.dump(pod_template(cluster, around, scratch), text)
    return text.getvalue()
