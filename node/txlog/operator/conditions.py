"""What each condition of a cluster says, and why. Pure.

A message says what it means and what to do; a reason is one of the words below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from txlog.config.cluster import TxLogCluster
from txlog.config.cluster_status import ClusterStatus, ConditionType
from txlog.config.units import format_duration
from txlog.operator.diagnose import Situation
from txlog.operator.names import Names
from txlog.operator.observation import Observation
from txlog.operator.plan import outdated, why_not_disturbed
from txlog.operator.work import last_backup

Word = Literal["True", "False", "Unknown"]
BAD_WORKERS = ("Blocked", "Diverged", "NeedsRestore", "Refused", "Unreachable")


@dataclass(frozen=True)
class Finding:
    kind: ConditionType
    status: Word
    reason: str
    message: str


def findings(
    cluster: TxLogCluster,
    seen: Observation,
    situation: Situation,
    status: ClusterStatus,
    problems: Sequence[str],
    lag_s: float | None,
) -> list[Finding]:
    """All of them, ``Ready`` first."""
    found = [
        _spec_valid(cluster, problems),
        _masters_ready(cluster, seen),
        _peers_reachable(status),
        _lag_within(cluster, status, lag_s),
        _history(status, situation),
        _workers(status),
        _last_backup(seen),
        _pipeline(seen, status),
    ]
    return [_ready(found), *found]


def invalid(problems: Sequence[str]) -> list[Finding]:
    """Of a resource that was never valid: nothing was made of it."""
    found = [_said_invalid(problems)]
    found += [
        Finding(kind, "Unknown", "SpecInvalid", "nothing is made of a resource that is not valid")
        for kind in ConditionType
        if kind not in (ConditionType.READY, ConditionType.SPEC_VALID)
    ]
    return [_ready(found), *found]


def _said_invalid(problems: Sequence[str]) -> Finding:
    return Finding(ConditionType.SPEC_VALID, "False", "Invalid", "; ".join(problems))


def _spec_valid(cluster: TxLogCluster, problems: Sequence[str]) -> Finding:
    if problems:
        said = _said_invalid(problems)
        return Finding(said.kind, said.status, said.reason, f"{said.message}. What was valid before is kept true")
    if cluster.spec.paused:
        return Finding(ConditionType.SPEC_VALID, "True", "Paused", "valid; spec.paused: nothing is changed")
    return Finding(ConditionType.SPEC_VALID, "True", "Valid", "valid")


def _masters_ready(cluster: TxLogCluster, seen: Observation) -> Finding:
    kind, wanted = ConditionType.MASTERS_READY, cluster.own_peer.masters
    for node in seen.masters:
        pod = seen.pods.get(node)
        if pod is None:
            return Finding(kind, "False", "NoPod", f"{node} has no pod yet; kubectl describe statefulset says why")
        if pod.waiting:
            more = _hint(cluster, pod.waiting)
            return Finding(kind, "False", "PodWaiting", f"the pod {pod.name} of {node} waits: {pod.waiting}{more}")
        if not pod.ready:
            heard = seen.masters[node]
            said = f"is {heard.status.state}" if heard is not None else "does not answer"
            more = f"; {heard.status.view.holding}" if heard is not None and heard.status.view.holding else ""
            return Finding(kind, "False", "NotReady", f"{node} {said}{more}")
    old = outdated(cluster, seen)
    if old:
        why = why_not_disturbed(seen)
        more = f" waits: {why}" if why else " is restarted next"
        return Finding(kind, "False", "Updating", f"{len(old)} of {wanted} masters run what was before; {old[0]}{more}")
    if len(seen.masters) > wanted:
        last = list(seen.masters)[-1]
        return Finding(kind, "False", "Leaving", f"{last} brings in what it has, and leaves the cluster")
    unheard = [node for node, heard in seen.masters.items() if heard is None]
    if unheard:
        return Finding(
            kind, "Unknown", "NotHeard", f"{unheard[0]} does not answer the operator, though its pod is ready"
        )
    return Finding(kind, "True", "AllReady", f"{wanted} of {wanted} masters take work")


def _hint(cluster: TxLogCluster, waiting: str) -> str:
    if waiting != "ContainerCreating":
        return ""
    token = cluster.spec.security.peer_token_secret_ref
    name = token.name if token else Names(cluster).peer_token
    return f" (a volume, an image, or the Secret {name} with the key token, the same in every data centre)"


def _peers_reachable(status: ClusterStatus) -> Finding:
    kind = ConditionType.PEERS_REACHABLE
    away = [peer.name for peer in status.peers if peer.reachable == "False"]
    unknown = [peer.name for peer in status.peers if peer.reachable == "Unknown"]
    if away:
        said = f"no master of {', '.join(away)} answers the masters here; look at the network, and at {away[0]} itself"
        return Finding(kind, "False", "Unreachable", said)
    if unknown:
        return Finding(kind, "Unknown", "NotSeen", "no master of this data centre has told yet")
    return Finding(kind, "True", "AllReachable", "every data centre is reached")


def _lag_within(cluster: TxLogCluster, status: ClusterStatus, lag_s: float | None) -> Finding:
    kind, most_s = ConditionType.LAG_WITHIN_LIMIT, cluster.spec.max_peer_lag / 1000
    limit = format_duration(cluster.spec.max_peer_lag)
    if not status.peers:
        return Finding(kind, "True", "NoPeers", "there is one data centre")
    if lag_s is None:
        return Finding(kind, "Unknown", "NotSeen", "it is not known when another data centre was heard last")
    if lag_s > most_s:
        return Finding(kind, "False", "Behind", f"{lag_s:.0f}s without a word, above maxPeerLag ({limit})")
    return Finding(kind, "True", "WithinLimit", f"below maxPeerLag ({limit})")


def _history(status: ClusterStatus, situation: Situation) -> Finding:
    kind = ConditionType.HISTORY_CONSISTENT
    if situation is Situation.SPLIT:
        silent = ", ".join(status.split.silent) if status.split is not None else ""
        said = f"this side goes on without {silent}: two orders may exist; heal the link, and they are made one again"
        return Finding(kind, "False", "Apart", said)
    if situation in (Situation.JOINED, Situation.INCOMPLETE, Situation.JOINED_UNCERTAIN):
        return Finding(kind, "True", "OneLog", "there is one order")
    if situation is Situation.SUSPECTED:
        silent = ", ".join(status.split.silent) if status.split is not None else ""
        return Finding(
            kind, "Unknown", "Suspected", f"{silent or 'a member'} is silent; whether it is apart is not known"
        )
    return Finding(kind, "Unknown", str(situation), "no master of this data centre can tell now")


def _workers(status: ClusterStatus) -> Finding:
    kind = ConditionType.WORKERS_CONSISTENT
    bad = next((worker for worker in status.workers if worker.state in BAD_WORKERS), None)
    if bad is not None:
        more = f": {bad.error}" if bad.error else ""
        return Finding(kind, "False", bad.state, f"{bad.name} is {bad.state}{more}")
    unknown = next((worker for worker in status.workers if worker.state == "Unknown"), None)
    if unknown is not None or not status.workers:
        name = unknown.name if unknown is not None else "any worker"
        return Finding(kind, "Unknown", "NotReported", f"the pipeline has not reported on {name} yet")
    return Finding(kind, "True", "AllWorking", f"{len(status.workers)} workers are on the log")


def _last_backup(seen: Observation) -> Finding:
    kind, last = ConditionType.LAST_BACKUP_SUCCEEDED, last_backup(seen.works)
    if last is None:
        return Finding(kind, "Unknown", "NoneYet", "no backup has ended yet")
    name, status = last
    if status.state == "Failed":
        return Finding(kind, "False", "Failed", f"{name}: {status.message}")
    return Finding(kind, "True", "Done", f"{name} is verified, at {status.position or 'its position'}")


def _pipeline(seen: Observation, status: ClusterStatus) -> Finding:
    kind, told = ConditionType.PIPELINE_HEALTHY, status.pipeline
    if told.state == "Running" and told.executors is not None:
        return _executors(told.job, seen, told.executors)
    if told.state == "Running":
        return Finding(kind, "True", "Running", f"{told.job} runs")
    return Finding(kind, "False", "NotRunning", f"its pod does not run: {told.state}")


def _executors(job: str | None, seen: Observation, told: str) -> Finding:
    """One is enough to carry out the log."""
    running, wanted = told.split("/")
    if running == "0":
        why = next((pod.waiting for pod in seen.executors.values() if pod.waiting), "")
        said = f"{job} runs, and none of its {wanted} executors{f': {why}' if why else ''}"
        return Finding(ConditionType.PIPELINE_HEALTHY, "False", "NoExecutors", said)
    return Finding(ConditionType.PIPELINE_HEALTHY, "True", "Running", f"{job} and {running} of {wanted} executors run")


def _ready(found: Sequence[Finding]) -> Finding:
    """The worst of the others. A backup that nobody asked for is not missed."""
    counted = [
        each for each in found if not (each.kind is ConditionType.LAST_BACKUP_SUCCEEDED and each.status == "Unknown")
    ]
    for word in ("False", "Unknown"):
        worst = next((each for each in counted if each.status == word), None)
        if worst is not None:
            status: Word = "False" if word == "False" else "Unknown"
            return Finding(ConditionType.READY, status, f"{worst.kind}{worst.reason}", f"{worst.kind}: {worst.message}")
    return Finding(ConditionType.READY, "True", "AllGood", "it takes work and carries it out")
