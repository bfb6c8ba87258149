"""The volume claims of masters, stores and change sets that are gone for good. Pure.

Kubernetes keeps every claim (``Retain``): who scales a StatefulSet by hand, while the operator is paused or away, loses
nothing. The operator deletes the claim of a master only after the log shows its departure, that of a store only after
the manifest wants fewer, and that of change sets only after the manifest wants none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from txlog.config.cluster import TxLogCluster
from txlog.supervision.membership import Configuration
from txlog_operator.actions import DeleteObject
from txlog_operator.cluster_phase import CALM_PHASES, ClusterPhase
from txlog_operator.object_names import ObjectNames
from txlog_operator.object_ownership import is_being_deleted
from txlog_operator.observation import ClusterObservation
from txlog_operator.specs import KubeObject, change_sets, masters, workers
from txlog_operator.specs.common import selector

CLAIM_KIND: Final = "PersistentVolumeClaim"


def plan_claims(
    cluster: TxLogCluster, seen: ClusterObservation, situation: ClusterPhase, now: Configuration | None
) -> Iterator[DeleteObject]:
    """Deletes the claims that are not needed any more. ``now``: the configuration in the log, None while unknown."""
    names = ObjectNames(cluster)
    if now is not None and situation in CALM_PHASES:
        for index, claim in _unused_claims(cluster, seen, masters.COMPONENT, masters.CLAIM, names.masters):
            if _has_left(cluster, now, index) and not is_being_deleted(claim):
                yield DeleteObject.of(CLAIM_KIND, claim, f"the log shows that {cluster.data_center}-{index} has left")
    if not cluster.spec.workers.external:
        for index, claim in _unused_claims(cluster, seen, workers.COMPONENT, workers.CLAIM, names.workers):
            if index > cluster.spec.workers.replicas and not is_being_deleted(claim):
                yield DeleteObject.of(CLAIM_KIND, claim, "the manifest wants this store no more")
    yield from _plan_change_set_claims(cluster, seen)


def _plan_change_set_claims(cluster: TxLogCluster, seen: ClusterObservation) -> Iterator[DeleteObject]:
    """What is there is made again from log and workers, so it goes with its StatefulSet and its pod."""
    name = ObjectNames(cluster).change_sets
    if cluster.spec.change_sets.enabled or ("StatefulSet", name) in seen.objects:
        return
    for index, claim in claims_of(cluster, seen, change_sets.COMPONENT, change_sets.CLAIM, name):
        if f"{name}-{index}" not in seen.pod_names and not is_being_deleted(claim):
            yield DeleteObject.of(CLAIM_KIND, claim, "the manifest wants no change sets")


def claim_blocks_master(cluster: TxLogCluster, seen: ClusterObservation, now: Configuration | None, index: int) -> bool:
    """Whether the master with this number must not start yet: the journal of its former life, which the cluster would
    refuse, is still there."""
    names = ObjectNames(cluster)
    unused = dict(_unused_claims(cluster, seen, masters.COMPONENT, masters.CLAIM, names.masters))
    return index in unused and now is not None and _has_left(cluster, now, index)


def highest_journal(cluster: TxLogCluster, seen: ClusterObservation) -> int:
    """The highest number of a master whose journal is here; 0 without one."""
    names = ObjectNames(cluster)
    found = claims_of(cluster, seen, masters.COMPONENT, masters.CLAIM, names.masters)
    return max((index for index, claim in found if not is_being_deleted(claim)), default=0)


def _has_left(cluster: TxLogCluster, now: Configuration, index: int) -> bool:
    """Only what the log says counts: the claim of a number that the log never had may be all that is left of an earlier
    cluster of this name."""
    node = f"{cluster.data_center}-{index}"
    return node in now["removed"] and all(master["node"] != node for master in now["masters"])


def _unused_claims(
    cluster: TxLogCluster, seen: ClusterObservation, component: str, claim: str, stateful_set: str
) -> Iterator[tuple[int, KubeObject]]:
    """Number and claim where the StatefulSet has, and wants, no such pod."""
    owner = seen.objects.get(("StatefulSet", stateful_set))
    if owner is None or owner.get("status", {}).get("observedGeneration") != owner["metadata"].get("generation"):
        return
    replicas = int(owner["spec"].get("replicas", 0))
    for index, found in claims_of(cluster, seen, component, claim, stateful_set):
        if index > replicas and f"{stateful_set}-{index}" not in seen.pod_names:
            yield index, found


def claims_of(
    cluster: TxLogCluster, seen: ClusterObservation, component: str, claim: str, stateful_set: str
) -> Iterator[tuple[int, KubeObject]]:
    """Number and claim of each pod that the StatefulSet ever had."""
    mine = selector(cluster, component).items()
    for (kind, name), found in seen.objects.items():
        index = name.removeprefix(f"{claim}-{stateful_set}-")
        if kind != CLAIM_KIND or name != f"{claim}-{stateful_set}-{index}" or not index.isdecimal():
            continue
        if mine <= (found["metadata"].get("labels") or {}).items():
            yield int(index), found
