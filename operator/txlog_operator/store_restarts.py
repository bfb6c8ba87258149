"""Restarts own stores with a new template, one at a time. Pure.

Kubernetes would restart the next one as soon as the last one answers HTTP. A store has then still to catch up, and a
backup or a restore may be reading or writing another one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from txlog.config.cluster import TxLogCluster
from txlog.config.process_config_builder import worker_names
from txlog_operator.actions import DeleteObject
from txlog_operator.cluster_phase import CALM_PHASES, ClusterPhase
from txlog_operator.object_names import ObjectNames
from txlog_operator.observation import ClusterObservation, PodStatus
from txlog_operator.specs import KubeObject

LAG_MAX: Final = 1000
"""Entries by which a store may be behind the stable index and still count as caught up."""


def outdated_stores(cluster: TxLogCluster, seen: ClusterObservation) -> list[str]:
    """Own workers whose pods differ from what the StatefulSet would create now, the last one first."""
    return outdated_pods(seen, ObjectNames(cluster).workers, store_pods(cluster, seen))[::-1]


def outdated_pods(seen: ClusterObservation, stateful_set: str, pods: Mapping[str, PodStatus]) -> list[str]:
    """The names of the pods that differ from what their StatefulSet would create now; none while that is not known."""
    owner: KubeObject = seen.objects.get(("StatefulSet", stateful_set), {})
    status = owner.get("status", {})
    if not owner or status.get("observedGeneration") != owner["metadata"].get("generation"):
        return []
    new = status.get("updateRevision")
    return [name for name, pod in pods.items() if new and pod.revision and pod.revision != new]


def store_pod_problem(cluster: TxLogCluster, seen: ClusterObservation, name: str) -> str:
    """Why the pod of an own store does not run; empty when it runs, and for other workers."""
    is_there = ("StatefulSet", ObjectNames(cluster).workers) in seen.objects
    if cluster.spec.workers.external or name not in worker_names(cluster) or not is_there:
        return ""
    pod = store_pods(cluster, seen).get(name)
    if pod is None:
        return f"{name} has no pod; kubectl describe statefulset says why"
    return f"the pod {pod.name} waits: {pod.waiting_reason}" if pod.waiting_reason else ""


def store_restart_blocker(cluster: TxLogCluster, seen: ClusterObservation, situation: ClusterPhase, name: str) -> str:
    """Why this store may not be stopped now; empty when it may be. One whose container does not run is not protected:
    its new template may be what makes it run."""
    pods = store_pods(cluster, seen)
    stopping = next((other for other, pod in pods.items() if pod.terminating), None)
    if stopping is not None:
        return f"{stopping} is being restarted"
    if not pods[name].running:
        return ""
    if situation not in CALM_PHASES:
        return f"the masters are {situation}"
    running = next((each for each in seen.job_resources if _is_running(each)), None)
    if running is not None:
        return f"{running['kind']} {running['metadata']['name']} runs"
    others = [other for other in pods if other != name]
    starting = next((other for other in others if not pods[other].ready), None)
    if starting is not None:
        return f"the pod of {starting} is not ready"
    serving = _serving(seen)
    behind = next((other for other in others if other not in serving), None)
    return f"{behind} has not caught up" if behind is not None and name in serving else ""


def plan_store_restarts(
    cluster: TxLogCluster, seen: ClusterObservation, situation: ClusterPhase
) -> Iterator[DeleteObject]:
    """At most one restart: of a store that serves nothing, else of the last one that may be stopped."""
    free = [
        name for name in outdated_stores(cluster, seen) if not store_restart_blocker(cluster, seen, situation, name)
    ]
    if free:
        name = min(free, key=lambda each: each in _serving(seen))
        pod = store_pods(cluster, seen)[name]
        yield DeleteObject("Pod", pod.name, pod.uid, "its image or configuration has changed")


def store_pods(cluster: TxLogCluster, seen: ClusterObservation) -> dict[str, PodStatus]:
    """The pods of own stores that exist, by the names of their workers."""
    if cluster.spec.workers.external:
        return {}
    names = ObjectNames(cluster)
    found = {worker: seen.worker_pods.get(names.worker_pod(at)) for at, worker in enumerate(worker_names(cluster), 1)}
    return {worker: pod for worker, pod in found.items() if pod is not None}


def _serving(seen: ClusterObservation) -> set[str]:
    """Workers that some master knows to work, close to the end of what is stable there."""
    return {
        worker.name
        for master in seen.reachable_masters.values()
        for worker in master.status.workers
        if worker.state == "Working"
        and worker.hold is None
        and worker.position is not None
        and worker.position.index >= master.status.stable.index - LAG_MAX
    }


def _is_running(work: dict[str, object]) -> bool:
    status = work.get("status")
    return isinstance(status, dict) and status.get("state") == "Running"
