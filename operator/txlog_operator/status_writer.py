"""Builds the status of a cluster; no other module does. Pure; times are arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from txlog.config.cluster import TxLogCluster
from txlog.config.cluster_status import (
    ClusterStatus,
    Condition,
    ConditionType,
    NodeStatus,
    PeerStatus,
    PipelineStatus,
    SplitStatus,
    VolumeSizes,
    WorkerStatusEntry,
)
from txlog.config.process_config import LastSeenIncarnation
from txlog.config.units import format_duration
from txlog.supervision.last_seen import should_remember
from txlog_operator import reconcile_outcome
from txlog_operator.cluster_phase import ClusterPhase
from txlog_operator.condition_check import ConditionCheck
from txlog_operator.conditions import check_conditions, summarise_ready
from txlog_operator.hibernation import HIBERNATING, hibernation_state
from txlog_operator.job_attempts import format_time
from txlog_operator.job_plan import last_backup, open_duties
from txlog_operator.observation import ClusterObservation, ObservedMaster
from txlog_operator.quorum_rules import carried_rules
from txlog_operator.specs import KubeObject, executors, workers
from txlog_operator.specs.common import selector
from txlog_operator.volume_growth import requested_sizes

STATE_SEVERITY = (
    "Isolated",
    "DiskFull",
    "AwaitingBootstrap",
    "Damaged",
    "Rejoining",
    "Suspected",
    "Founding",
    "Learning",
    "Starting",
    "Left",
)
"""States of a master, the worst first. Unknown states and ``Joined`` follow after them."""
LAG_RESOLUTION_S = 5
"""A smaller lag counts as none: masters exchange messages every second."""
MESSAGE_MAX = 500


def status_to_json(status: ClusterStatus) -> KubeObject:
    """The status as the API server accepts it."""
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


def last_seen_incarnations(status: ClusterStatus) -> dict[str, LastSeenIncarnation]:
    """The last incarnation and start seen of each master, by node id."""
    return {
        node.node: LastSeenIncarnation(birth=int(node.birth, 16), start=node.start)
        for node in status.nodes
        if node.birth and node.start > 0
    }


def make_status(
    cluster: TxLogCluster,
    generation: int,
    seen: ClusterObservation,
    situation: ClusterPhase,
    problems: Sequence[str],
    before: ClusterStatus,
    reconciled: ConditionCheck | None = None,
) -> ClusterStatus:
    """The new status. ``cluster`` is the manifest in effect, an older one while ``problems`` lists what is wrong with
    the newest. ``reconciled``: what became of the plan; without it the last one stays. Only a manifest that was carried
    out in full is one that this status is of."""
    reconciled = reconciled or reconcile_outcome.check_before(before, generation)
    is_carried_out = reconciled.status == "True" and reconciled.reason != reconcile_outcome.PAUSED and not problems
    asleep, _ = hibernation_state(cluster, seen)
    is_carried_out = is_carried_out and asleep != HIBERNATING
    masters = seen.reachable_masters
    peers = _peer_statuses(cluster, seen, before)
    reported = _worker_statuses(seen, before)
    ready = sum(pod.ready for pod in seen.master_pods.values())
    reachable = [each for each in peers if each.reachable == "True"]
    strategies = [name for each in masters.values() if (name := each.status.view.split_recovery) is not None]
    last = last_backup(seen.job_resources)
    indexes = [worker.index for worker in reported if worker.index is not None]
    status = ClusterStatus(
        observed_generation=generation if is_carried_out else before.observed_generation,
        state=asleep or _worst_state(seen),
        masters_ready=f"{ready}/{cluster.own_peer.masters}",
        peers_reachable=f"{len(reachable)}/{len(peers)}",
        lag=_lag_by_peer(cluster, seen) if masters else "-",
        recovery=strategies[0] if strategies else before.recovery,
        applied=min(indexes, default=None),
        nodes=_node_statuses(seen, before),
        workers=reported,
        peers=peers,
        split=_split_status(seen, situation, before),
        pipeline=_pipeline_status(cluster, seen),
        last_backup=last[0] if last is not None else None,
        volume_sizes=_volume_sizes(cluster, seen, before),
        graph_rules=carried_rules(cluster, seen, before.graph_rules),
        **_scale_fields(cluster, seen),
    )
    found = check_conditions(cluster, seen, situation, status, problems, peer_lag_s(cluster, seen), reconciled)
    return status.model_copy(update={"conditions": merge_conditions(found, before.conditions, generation, seen.now)})


def _scale_fields(cluster: TxLogCluster, seen: ClusterObservation) -> KubeObject:
    """What ``kubectl scale`` and autoscalers read: the stores' pods and their labels."""
    if cluster.spec.workers.external:
        return {}
    labels = selector(cluster, workers.COMPONENT)
    return {
        "worker_replicas": sum(not pod.terminating for pod in seen.worker_pods.values()),
        "worker_selector": ",".join(f"{name}={value}" for name, value in sorted(labels.items())),
    }


def _volume_sizes(cluster: TxLogCluster, seen: ClusterObservation, before: ClusterStatus) -> VolumeSizes:
    """Those of a StatefulSet that is being replaced are kept."""
    return before.volume_sizes.model_copy(update=requested_sizes(cluster, seen))


def with_failure(before: ClusterStatus, check: ConditionCheck, generation: int, now: float) -> ClusterStatus:
    """The status after a reconcile that broke off: what was known stays, and it is not ready."""
    known = {each.type: each for each in before.conditions}
    found = [check]
    for kind in ConditionType:
        last = known.get(kind)
        if last is not None and kind not in (ConditionType.READY, check.kind):
            found.append(ConditionCheck(kind, last.status, last.reason, last.message))
    checks = [summarise_ready(found), *found]
    return before.model_copy(update={"conditions": merge_conditions(checks, before.conditions, generation, now)})


def merge_conditions(
    checks: Sequence[ConditionCheck], before: Sequence[Condition], generation: int, now: float
) -> list[Condition]:
    """The new conditions. A transition time changes only with the condition's status."""
    old = {each.type: each for each in before}
    found = []
    for each in checks:
        last = old.get(each.kind)
        same = last is not None and last.status == each.status
        found.append(
            Condition(
                type=each.kind,
                status=each.status,
                reason=each.reason,
                message=each.message[:2000],
                last_transition_time=last.last_transition_time if last is not None and same else format_time(now),
                observed_generation=generation,
            )
        )
    return found


def _worst_state(seen: ClusterObservation) -> str:
    states = [each.status.state for each in seen.reachable_masters.values()]
    bad = next((state for state in STATE_SEVERITY if state in states), None)
    if bad is not None:
        return bad
    return "Joined" if states and len(states) == len(seen.masters) else "Unknown"


def _node_statuses(seen: ClusterObservation, before: ClusterStatus) -> list[NodeStatus]:
    """Keeps the last incarnation and start of a master that does not answer: its next start receives them."""
    old = {each.node: each for each in before.nodes}
    found = []
    for node, master in seen.masters.items():
        if master is None:
            found.append(old.get(node, NodeStatus(node=node)).model_copy(update={"state": "Unknown"}))
            continue
        found.append(_node_status(node, master, old.get(node)))
    return found


def _node_status(node: str, master: ObservedMaster, before: NodeStatus | None) -> NodeStatus:
    """A master that lost its journal keeps the incarnation, start and index that it had, until it is a member again."""
    now = master.status
    known = int(before.birth, 16) if before is not None and before.birth else None
    if not should_remember(int(master.birth, 16), known, now.view.installed):
        return (before or NodeStatus(node=node)).model_copy(update={"state": now.state})
    return NodeStatus(node=node, birth=master.birth, start=now.start, state=now.state, index=now.stable.index)


def _worker_statuses(seen: ClusterObservation, before: ClusterStatus) -> list[WorkerStatusEntry]:
    """Each worker as reported by the master with the highest index for it."""
    if not seen.reachable_masters:
        return [each.model_copy(update={"state": "Unknown"}) for each in before.workers]
    found: dict[str, WorkerStatusEntry] = {}
    for master in seen.reachable_masters.values():
        for worker in master.status.workers:
            index = worker.position.index if worker.position is not None else None
            known = found.get(worker.name)
            if known is not None and (known.index or -1) >= (index if index is not None else -1):
                continue
            error = worker.error[:MESSAGE_MAX] if worker.error else None
            found[worker.name] = WorkerStatusEntry(name=worker.name, state=worker.state, index=index, error=error)
    return [found[name] for name in sorted(found)]


def _peer_statuses(cluster: TxLogCluster, seen: ClusterObservation, before: ClusterStatus) -> list[PeerStatus]:
    """A peer is reachable if one of its masters is present for one of ours."""
    found = []
    for peer in cluster.spec.peers:
        if peer.name == cluster.data_center:
            continue
        reports = _reports_on(seen, peer.name)
        reachable: Literal["True", "False", "Unknown"] = "Unknown"
        lag = None
        if reports:
            reachable = "True" if any(each.get("present") for each in reports) else "False"
            heard_at = _last_heard_at(reports)
            if reachable == "False" and heard_at is not None:
                lag = _lag_text(seen.now - heard_at)
        found.append(PeerStatus(name=peer.name, reachable=reachable, lag=lag))
    return found


def peer_lag_s(cluster: TxLogCluster, seen: ClusterObservation) -> float | None:
    """Seconds since any master here last received a message from the most silent data centre; None when that is not
    known."""
    worst: float | None = None
    for peer in cluster.spec.peers:
        heard_at = _last_heard_at(_reports_on(seen, peer.name))
        if peer.name != cluster.data_center and heard_at is not None:
            worst = max(worst or 0.0, seen.now - heard_at)
    return worst


def _reports_on(seen: ClusterObservation, data_center: str) -> list[Mapping[str, Any]]:
    """What the masters here report of those of another data centre."""
    masters = seen.reachable_masters.values()
    return [each for master in masters for each in master.peers if each.get("dataCenter") == data_center]


def _last_heard_at(reports: Sequence[Mapping[str, Any]]) -> float | None:
    return max((at for each in reports if (at := each.get("lastHeardAt")) is not None), default=None)


def _lag_by_peer(cluster: TxLogCluster, seen: ClusterObservation) -> str:
    lag = peer_lag_s(cluster, seen)
    if lag is None:
        return "-" if len(cluster.spec.peers) > 1 else "0s"
    return _lag_text(lag)


def _lag_text(lag: float) -> str:
    return "0s" if lag < LAG_RESOLUTION_S else format_duration(int(lag) * 1000)


def _split_status(seen: ClusterObservation, situation: ClusterPhase, before: ClusterStatus) -> SplitStatus | None:
    if situation is ClusterPhase.UNKNOWN:
        return before.split  # no information about the split
    phases: dict[ClusterPhase, Literal["Suspected", "Split", "Rejoining"]] = {
        ClusterPhase.SUSPECTED: "Suspected",
        ClusterPhase.SPLIT: "Split",
    }
    if before.split is not None:  # without a split it is an ordinary view change
        phases[ClusterPhase.REJOINING] = "Rejoining"
    phase = phases.get(situation)
    if phase is None:
        return None
    silent = sorted({each for master in seen.reachable_masters.values() for each in _silent_members(master)})
    old = before.split
    return SplitStatus(
        phase=phase,
        silent=silent or (old.silent if old is not None else []),
        since=old.since if old is not None else format_time(seen.now),
        strategy=old.strategy if old is not None else (before.recovery if before.recovery != "-" else None),
        backup=next(_running_split_backups(seen), old.backup if old is not None else None),
    )


def _running_split_backups(seen: ClusterObservation) -> Iterator[str]:
    """Names of the TxLogBackups for the open duties of the masters."""
    open_ids = open_duties(seen)
    for each in seen.job_resources:
        if each["kind"] == "TxLogBackup" and each["spec"].get("duty") in open_ids:
            yield str(each["metadata"]["name"])


def _silent_members(master: ObservedMaster) -> list[str]:
    out = [each.node for each in master.status.view.out if each.why == "silent"]
    members = {each["node"] for each in master.status.members}
    return [*out, *sorted(members - set(master.status.present))]


def _pipeline_status(cluster: TxLogCluster, seen: ClusterObservation) -> PipelineStatus:
    name = next((name for name in seen.pipeline_pods if not seen.pipeline_pods[name].terminating), None)
    if name is None:
        return PipelineStatus(job=None, state="Waiting")
    pod = seen.pipeline_pods[name]
    state = "Running" if pod.running else pod.waiting_reason or ("Ended" if pod.termination_message else "Pending")
    return PipelineStatus(job=name, state=state, executors=_executor_ratio(cluster, seen))


def _executor_ratio(cluster: TxLogCluster, seen: ClusterObservation) -> str | None:
    wanted = executors.executor_count(cluster)
    running = sum(pod.running and not pod.terminating for pod in seen.executor_pods.values())
    return f"{running}/{wanted}" if wanted else None
