"""``spec.hibernated``: a data centre without pods, whose volumes stay. Pure.

Masters, stores and change sets are scaled to zero; the pipeline, the archiver and what fills stores are removed. Jobs
that run are finished first, and so is the departure of a master: an interrupted one could not go on without its pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from txlog.config.cluster import TxLogCluster
from txlog_operator.actions import ApplyObject, DeleteObject, PatchStatus, PlanAction
from txlog_operator.job_attempts import has_ended
from txlog_operator.object_names import ObjectNames
from txlog_operator.observation import ClusterObservation
from txlog_operator.specs import jobs
from txlog_operator.specs.common import selector

HIBERNATED: Final = "Hibernated"
HIBERNATING: Final = "Hibernating"
HIBERNATION_STATES: Final = (HIBERNATED, HIBERNATING)


def hibernation_blocker(cluster: TxLogCluster, seen: ClusterObservation) -> str:
    """Why the pods must not be removed yet; empty when they may be."""
    running = next(_running_jobs(cluster, seen), None)
    if running is not None:
        return f"the Job {running} runs"
    existing = seen.objects.get(("StatefulSet", ObjectNames(cluster).masters))
    count = int(existing["spec"].get("replicas", 0)) if existing else 0
    return f"{cluster.data_center}-{count} leaves the cluster" if count > cluster.own_peer.masters else ""


def _running_jobs(cluster: TxLogCluster, seen: ClusterObservation) -> Iterator[str]:
    mine = [selector(cluster, component).items() for component in (jobs.COMPONENT, jobs.DUTY_COMPONENT)]
    for (kind, name), found in seen.objects.items():
        labels = (found["metadata"].get("labels") or {}).items()
        if kind == "Job" and any(labels >= those for those in mine) and not has_ended(found):
            yield name


def is_scaled_to_zero(cluster: TxLogCluster, seen: ClusterObservation) -> bool:
    """Whether the objects are built without pods."""
    return cluster.spec.hibernated and not hibernation_blocker(cluster, seen)


def remaining_pods(seen: ClusterObservation) -> list[str]:
    """Names of the pods of masters, stores and the pipeline that have not ended."""
    found = (seen.master_pods, seen.worker_pods, seen.pipeline_pods, seen.executor_pods)
    return sorted(pod.name for pods in found for pod in pods.values() if not pod.ended)


def hibernation_state(cluster: TxLogCluster, seen: ClusterObservation) -> tuple[str, str]:
    """State and message of a hibernated cluster; two empty texts for any other."""
    if not cluster.spec.hibernated or cluster.spec.paused:
        return "", ""
    blocker, left = hibernation_blocker(cluster, seen), remaining_pods(seen)
    if blocker:
        return HIBERNATING, f"spec.hibernated: the pods are removed later, since {blocker}"
    if left:
        return HIBERNATING, f"spec.hibernated: {len(left)} pods end, {left[0]} among them"
    return HIBERNATED, "spec.hibernated: no pod runs, and the volumes stay. Set it to false to wake the cluster"


def without_new_work(actions: Sequence[PlanAction]) -> Iterator[PlanAction]:
    """Of a plan for Jobs: what records the end of those that run, and removes those that cannot start. Schedules stay
    as they are, so that a backup that was due meanwhile is made after the cluster was woken."""
    new = {each.desired["metadata"]["name"] for each in actions if isinstance(each, ApplyObject)}
    for action in actions:
        match action:
            case PatchStatus(target={"kind": "TxLogBackup" | "TxLogRestore" | "TxLogRehearsal"}) if (
                action.status.get("job") not in new
            ):
                yield action
            case DeleteObject(kind="Job"):
                yield action
