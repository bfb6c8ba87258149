"""From a manifest to objects of Kubernetes: pure functions, one file for each part of a data centre.

:func:`objects` is everything that stands for as long as the cluster does; Jobs of duties come and go (:mod:`.jobs`).
"""

from __future__ import annotations

from txlog.config.cluster import TxLogCluster
from txlog.operator.build import jobs, masters, pipeline, policies, workers
from txlog.operator.build.common import Around, Object

__all__ = ["Around", "Object", "objects", "of_jobs", "of_masters", "of_pipeline", "of_workers"]


def objects(cluster: TxLogCluster, around: Around) -> list[Object]:
    """All of them, in the order in which they are best made."""
    return [
        *of_masters(cluster, around),
        *of_workers(cluster, around),
        *policies.network_policies(cluster, around),
        *of_pipeline(cluster, around),
        *of_jobs(cluster, around),
    ]


def of_masters(cluster: TxLogCluster, around: Around) -> list[Object]:
    return [
        masters.config_map(cluster, around),
        *masters.services(cluster, around),
        masters.disruption_budget(cluster, around),
        masters.stateful_set(cluster, around),
    ]


def of_workers(cluster: TxLogCluster, around: Around) -> list[Object]:
    """None where somebody else runs them."""
    if cluster.spec.workers.external:
        return []
    return [
        workers.service(cluster, around),
        workers.disruption_budget(cluster, around),
        workers.stateful_set(cluster, around),
    ]


def of_jobs(cluster: TxLogCluster, around: Around) -> list[Object]:
    """What Jobs of backups and duties find there."""
    return [jobs.config_map(cluster, around), *jobs.volume(cluster), *jobs.schedules(cluster, around)]


def of_pipeline(cluster: TxLogCluster, around: Around) -> list[Object]:
    return [pipeline.config_map(cluster, around), pipeline.job(cluster, around)]
