"""Builds objects of Kubernetes from a manifest: pure functions, one file for each part of a data centre.

:func:`desired_objects` returns every object that exists as long as the cluster does. Jobs of duties come and go
(:mod:`.jobs`).
"""

from __future__ import annotations

from txlog.config.cluster import TxLogCluster
from txlog_operator.object_names import ObjectNames
from txlog_operator.specs import archiver, change_sets, jobs, masters, network_policies, pipeline, recovery, workers
from txlog_operator.specs.common import WORKER_PORT, BuildContext, KubeObject, disruption_budget, headless_service

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
    """All objects, in the order of their creation. Of a hibernated cluster only what has no pods, or none now."""
    found = [
        *master_objects(cluster, around),
        *worker_objects(cluster, around),
        *change_sets.change_set_objects(cluster, around),
        *network_policies.network_policies(cluster, around),
    ]
    if not around.hibernated:
        found += pipeline_objects(cluster, around)
    found += job_objects(cluster, around)
    if not around.hibernated:
        found += [*archiver.archiver_objects(cluster, around), *recovery.recovery_objects(cluster, around)]
    return found


def master_objects(cluster: TxLogCluster, around: BuildContext) -> list[KubeObject]:
    """The objects of the masters."""
    return [
        masters.config_map(cluster, around),
        *masters.services(cluster, around),
        disruption_budget(cluster, around, ObjectNames(cluster).master_hosts, masters.COMPONENT),
        masters.stateful_set(cluster, around),
    ]


def worker_objects(cluster: TxLogCluster, around: BuildContext) -> list[KubeObject]:
    """The objects of the workers; none where the manifest's workers are external."""
    if cluster.spec.workers.external:
        return []
    hosts = ObjectNames(cluster).worker_hosts
    return [
        headless_service(cluster, around, hosts, workers.COMPONENT, {"http": WORKER_PORT}),
        disruption_budget(cluster, around, hosts, workers.COMPONENT),
        workers.stateful_set(cluster, around),
    ]


def job_objects(cluster: TxLogCluster, around: BuildContext) -> list[KubeObject]:
    """The objects that Jobs of backups and duties use."""
    return [
        jobs.config_map(cluster, around),
        *jobs.split_backup_volume(cluster, around),
        *jobs.backup_schedules(cluster, around),
    ]


def pipeline_objects(cluster: TxLogCluster, around: BuildContext) -> list[KubeObject]:
    """The objects of the Spark application."""
    return [pipeline.config_map(cluster, around), pipeline.pipeline_job(cluster, around)]
