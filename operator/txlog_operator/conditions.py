"""Computes each condition of a cluster with its reason and message. Pure.

A message states the meaning and what to do; a reason is one of the fixed words below.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from txlog.config.cluster import TxLogCluster
from txlog.config.cluster_status import ClusterStatus, ConditionType
from txlog.config.process_config_builder import worker_names
from txlog.config.units import format_duration
from txlog_operator.cluster_phase import ClusterPhase
from txlog_operator.condition_check import CheckResult, ConditionCheck, ConditionStatus
from txlog_operator.hibernation import hibernation_state
from txlog_operator.job_plan import blocked_jobs, last_backup
from txlog_operator.object_names import ObjectNames
from txlog_operator.observation import ClusterObservation
from txlog_operator.plan import disruption_blocker, outdated_masters
from txlog_operator.quorum_rules import check_quorum
from txlog_operator.store_restarts import outdated_stores, store_pod_problem, store_restart_blocker

SERVING_WORKER_STATES = ("Working", "Unordered", "Ahead", "Blocked")
"""In these states masters send reads to a store; a blocked one answers from the position that it has."""
INCONSISTENT_WORKER_STATES = ("Blocked", "Diverged", "NeedsRestore", "Refused", "Unreachable")


def check_conditions(
    cluster: TxLogCluster,
    seen: ClusterObservation,
    situation: ClusterPhase,
    status: ClusterStatus,
    problems: Sequence[str],
    lag_s: float | None,
    reconciled: ConditionCheck,
) -> list[ConditionCheck]:
    """All conditions, ``Ready`` first. ``reconciled``: what became of the last plan."""
    found = [
        ConditionCheck(ConditionType.AVAILABLE, *_check_available(cluster, seen, status)),
        ConditionCheck(ConditionType.SPEC_VALID, *_check_spec(cluster, problems)),
        reconciled,
        ConditionCheck(ConditionType.MASTERS_READY, *_check_masters(cluster, seen)),
        ConditionCheck(ConditionType.PEERS_REACHABLE, *_check_peers(status)),
        ConditionCheck(ConditionType.LAG_WITHIN_LIMIT, *_check_lag(cluster, status, lag_s)),
        ConditionCheck(ConditionType.HISTORY_CONSISTENT, *_check_history(status, situation)),
        ConditionCheck(ConditionType.WORKERS_CONSISTENT, *_check_workers(cluster, seen, situation, status)),
        ConditionCheck(ConditionType.LAST_BACKUP_SUCCEEDED, *_check_last_backup(seen)),
        ConditionCheck(ConditionType.PIPELINE_HEALTHY, *_check_pipeline(seen, status)),
        ConditionCheck(ConditionType.JOBS_HEALTHY, *_check_jobs(cluster, seen)),
        check_quorum(cluster, seen),
    ]
    asleep, why = hibernation_state(cluster, seen)
    return _asleep_checks(found, asleep, why) if asleep else [summarise_ready(found), *found]


_WITHOUT_PODS: Final = (
    ConditionType.SPEC_VALID,
    ConditionType.RECONCILED,
    ConditionType.LAST_BACKUP_SUCCEEDED,
)
"""The conditions that also a cluster without pods has."""


def _asleep_checks(found: Sequence[ConditionCheck], state: str, why: str) -> list[ConditionCheck]:
    """The conditions of a hibernated cluster. Masters, stores and pipeline report nothing, which is
    no fault. A problem with the manifest or its objects still shows in ``Ready``."""
    kept = [each for each in found if each.kind in _WITHOUT_PODS]
    ready = summarise_ready(kept)
    if ready.status == "True":
        ready = ConditionCheck(ConditionType.READY, "False", state, why)
    known = {each.kind for each in kept} | {ConditionType.AVAILABLE}
    checks = [each if each.kind in known else ConditionCheck(each.kind, "Unknown", state, why) for each in found]
    unavailable = ConditionCheck(ConditionType.AVAILABLE, "False", state, why)
    return [ready, *(unavailable if each.kind is ConditionType.AVAILABLE else each for each in checks)]


def invalid_spec_checks(problems: Sequence[str]) -> list[ConditionCheck]:
    """The conditions of a resource that was never valid: the operator created nothing for it."""
    found = [ConditionCheck(ConditionType.SPEC_VALID, "False", "Invalid", "; ".join(problems))]
    found += [
        ConditionCheck(kind, "Unknown", "SpecInvalid", "nothing is made of a resource that is not valid")
        for kind in ConditionType
        if kind not in (ConditionType.READY, ConditionType.SPEC_VALID)
    ]
    return [summarise_ready(found), *found]


def _check_spec(cluster: TxLogCluster, problems: Sequence[str]) -> CheckResult:
    if problems:
        return "False", "Invalid", f"{'; '.join(problems)}. What was valid before is kept true"
    if cluster.spec.paused:
        return "True", "Paused", "valid; spec.paused: nothing is changed"
    return "True", "Valid", "valid"


def _check_available(cluster: TxLogCluster, seen: ClusterObservation, status: ClusterStatus) -> CheckResult:
    """Whether clients of this data centre can write and read now. Other data centres do not count."""
    wanted = cluster.own_peer.masters
    masters = sum(pod.ready for pod in seen.master_pods.values())
    if not masters:
        return "False", "NoMaster", f"none of {wanted} masters here takes work"
    states = [worker.state for worker in status.workers]
    serving = sum(state in SERVING_WORKER_STATES for state in states)
    if not states or (not serving and "Unknown" in states):
        text = f"{masters} of {wanted} masters take work; the pipeline has not reported on a worker that can answer"
        return "Unknown", "NoReport", text
    if not serving:
        return "False", "NoWorker", f"writes are accepted, and none of {len(states)} workers answers"
    text = f"{masters} of {wanted} masters take work, {serving} of {len(states)} workers answer"
    return "True", "Serving", text


def _check_masters(cluster: TxLogCluster, seen: ClusterObservation) -> CheckResult:
    wanted = cluster.own_peer.masters
    for node in seen.masters:
        pod = seen.master_pods.get(node)
        if pod is None:
            return "False", "NoPod", f"{node} has no pod yet; kubectl describe statefulset says why"
        if pod.waiting_reason:
            more = _waiting_hint(cluster, pod.waiting_reason)
            return "False", "PodWaiting", f"the pod {pod.name} of {node} waits: {pod.waiting_reason}{more}"
        if not pod.ready:
            master = seen.masters[node]
            state = f"is {master.status.state}" if master is not None else "does not answer"
            more = f"; {master.status.view.holding}" if master is not None and master.status.view.holding else ""
            return "False", "NotReady", f"{node} {state}{more}"
    old = outdated_masters(cluster, seen)
    if old:
        why = disruption_blocker(seen)
        more = f" waits: {why}" if why else " is restarted next"
        return "False", "Updating", f"{len(old)} of {wanted} masters run what was before; {old[0]}{more}"
    if len(seen.masters) > wanted:
        last = list(seen.masters)[-1]
        return "False", "Leaving", f"{last} brings in what it has, and leaves the cluster"
    silent = [node for node, master in seen.masters.items() if master is None]
    if silent:
        return "Unknown", "NotHeard", f"{silent[0]} does not answer the operator, though its pod is ready"
    return "True", "AllReady", f"{wanted} of {wanted} masters take work"


def _waiting_hint(cluster: TxLogCluster, waiting: str) -> str:
    if waiting != "ContainerCreating":
        return ""
    token = cluster.spec.security.peer_token_secret_ref
    name = token.name if token else ObjectNames(cluster).peer_token
    return f" (a volume, an image, or the Secret {name} with the key token, the same in every data centre)"


def _check_peers(status: ClusterStatus) -> CheckResult:
    away = [peer.name for peer in status.peers if peer.reachable == "False"]
    unknown = [peer.name for peer in status.peers if peer.reachable == "Unknown"]
    if away:
        text = f"no master of {', '.join(away)} answers the masters here; look at the network, and at {away[0]} itself"
        return "False", "Unreachable", text
    if unknown:
        return "Unknown", "NotSeen", "no master of this data centre has reported yet"
    return "True", "AllReachable", "every data centre is reached"


def _check_lag(cluster: TxLogCluster, status: ClusterStatus, lag_s: float | None) -> CheckResult:
    limit = format_duration(cluster.spec.max_peer_lag)
    if not status.peers:
        return "True", "NoPeers", "there is one data centre"
    if lag_s is None:
        return "Unknown", "NotSeen", "it is not known when another data centre last answered"
    if lag_s > cluster.spec.max_peer_lag / 1000:
        return "False", "Behind", f"{lag_s:.0f}s without a word, above maxPeerLag ({limit})"
    return "True", "WithinLimit", f"below maxPeerLag ({limit})"


def _check_history(status: ClusterStatus, situation: ClusterPhase) -> CheckResult:
    if situation is ClusterPhase.SPLIT:
        silent = ", ".join(status.split.silent) if status.split is not None else ""
        text = f"this side goes on without {silent}: two orders may exist; heal the link, and they are made one again"
        return "False", "Apart", text
    if situation in (ClusterPhase.JOINED, ClusterPhase.INCOMPLETE, ClusterPhase.JOINED_UNCERTAIN):
        return "True", "OneLog", "there is one order"
    if situation is ClusterPhase.SUSPECTED:
        silent = ", ".join(status.split.silent) if status.split is not None else ""
        return "Unknown", "Suspected", f"{silent or 'a member'} is silent; whether it is apart is not known"
    if situation is ClusterPhase.AWAITING_BOOTSTRAP:
        text = "a master lost its journal: bring it back, start a master that has the log, or see txlog bootstrap"
        return "Unknown", str(situation), text
    return "Unknown", str(situation), "no master of this data centre can tell now"


def _check_workers(
    cluster: TxLogCluster, seen: ClusterObservation, situation: ClusterPhase, status: ClusterStatus
) -> CheckResult:
    bad = next((worker for worker in status.workers if worker.state in INCONSISTENT_WORKER_STATES), None)
    if bad is not None:
        more = f": {bad.error}" if bad.error else ""
        problem = store_pod_problem(cluster, seen, bad.name) if bad.state == "Unreachable" else ""
        more += f"; {problem}" if problem else ""
        return "False", bad.state, f"{bad.name} is {bad.state}{more}"
    unknown = next((worker for worker in status.workers if worker.state == "Unknown"), None)
    if unknown is not None or not status.workers:
        name = unknown.name if unknown is not None else "any worker"
        names = [unknown.name] if unknown is not None else worker_names(cluster)
        problem = next(filter(None, (store_pod_problem(cluster, seen, each) for each in names)), "")
        more = f"; {problem}" if problem else ""
        return "Unknown", "NotReported", f"the pipeline has not reported on {name} yet{more}"
    old = outdated_stores(cluster, seen)
    if old:
        why = store_restart_blocker(cluster, seen, situation, old[0])
        more = f" waits: {why}" if why else " is restarted next"
        text = f"{len(old)} of {len(status.workers)} workers run what was before; {old[0]}{more}"
        return "False", "Updating", text
    return "True", "AllWorking", f"{len(status.workers)} workers are on the log"


def _check_last_backup(seen: ClusterObservation) -> CheckResult:
    last = last_backup(seen.job_resources)
    if last is None:
        return "Unknown", "NoneYet", "no backup has ended yet"
    name, status = last
    if status.state == "Failed":
        return "False", "Failed", f"{name}: {status.message}"
    return "True", "Done", f"{name} is verified, at {status.position or 'its position'}"


def _check_pipeline(seen: ClusterObservation, status: ClusterStatus) -> CheckResult:
    pipeline = status.pipeline
    if pipeline.state == "Running" and pipeline.executors is not None:
        return _check_executors(pipeline.job, seen, pipeline.executors)
    if pipeline.state == "Running":
        return "True", "Running", f"{pipeline.job} runs"
    return "False", "NotRunning", f"its pod does not run: {pipeline.state}"


def _check_executors(job: str | None, seen: ClusterObservation, counts: str) -> CheckResult:
    """One running executor is enough to execute the log."""
    running, wanted = counts.split("/")
    if running == "0":
        why = next((pod.waiting_reason for pod in seen.executor_pods.values() if pod.waiting_reason), "")
        text = f"{job} runs, and none of its {wanted} executors{f': {why}' if why else ''}"
        return "False", "NoExecutors", text
    return "True", "Running", f"{job} and {running} of {wanted} executors run"


def _check_jobs(cluster: TxLogCluster, seen: ClusterObservation) -> CheckResult:
    blocked = blocked_jobs(cluster, seen)
    if blocked:
        text = "; ".join(f"{name}: {why}" for name, why in blocked)
        return "False", "CannotStart", f"{text}. It is tried again after a pause"
    return "True", "NoneWaits", "no backup, restore or duty waits for its pod"


def summarise_ready(found: Sequence[ConditionCheck]) -> ConditionCheck:
    """The worst of the other conditions. A missing backup counts only after a backup was requested. ``Available`` is
    an answer of its own, and what it depends on is among the others."""
    counted = [
        each
        for each in found
        if each.kind is not ConditionType.AVAILABLE
        and not (each.kind is ConditionType.LAST_BACKUP_SUCCEEDED and each.status == "Unknown")
    ]
    for word in ("False", "Unknown"):
        worst = next((each for each in counted if each.status == word), None)
        if worst is not None:
            status: ConditionStatus = "False" if word == "False" else "Unknown"
            return ConditionCheck(
                ConditionType.READY, status, f"{worst.kind}{worst.reason}", f"{worst.kind}: {worst.message}"
            )
    return ConditionCheck(ConditionType.READY, "True", "AllGood", "it takes work and carries it out")
