"""From a manifest to objects of Kubernetes: pure functions, one file for each part of a data centre.

:func:`desired_objects` is everything that stands for as long as the cluster does; Jobs of duties come and go
(:mod:`.jobs`)."""

from __future__ import annotations

from txlog.config.cluster import TxLogCluster
from txlog_operator.specs import jobs, masters, network_policies, pipeline, workers
from txlog_operator.specs.common import BuildContext, KubeObject

__all__ = [
    "BuildContext",
    "KubeObject",
    "desired_objects",
    "job_objects",
    "master_objects",
    "pipeline_objects",
    "worker_objects",
]


def desired_objects(cluster: TxLogCluster, around: BuildContext) -> list[KubeObject]:
    """All of them, in the order in which they are best made."""
    return [
        *master_objects(cluster, around),
        *worker_objects(cluster, around),
        *network_policies.network_policies(cluster, around),
        *pipeline_objects(cluster, around),
        *job_objects(cluster, around),
    ]


def master_objects(cluster: TxLogCluster, around: BuildContext) -> list[KubeObject]:
    return [
        masters.config_map(cluster, around),
        *masters.services(cluster, around),
        masters.disruption_budget(cluster, around),
        masters.stateful_set(cluster, around),
    ]


def worker_objects(cluster: TxLogCluster, around: BuildContext) -> list[KubeObject]:
    """None where somebody else runs them."""
    if cluster.spec.workers.external:
        return []
    return [
        workers.service(cluster, around),
        workers.disruption_budget(cluster, around),
        workers.stateful_set(cluster, around),
    ]


def job_objects(cluster: TxLogCluster, around: BuildContext) -> list[KubeObject]:
    """What Jobs of backups and duties find there."""
    return [
        jobs.config_map(cluster, around),
        *jobs.split_backup_volume(cluster),
        *jobs.backup_schedules(cluster, around),
    ]


def pipeline_objects(cluster: TxLogCluster, around: BuildContext) -> list[KubeObject]:
    return [pipeline.config_map(cluster, around), pipeline.pipeline_job(cluster, around)]
