"""What a cluster's status says: the one place where it is made. Pure; times are given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Literal

from pydantic import ValidationError

from txlog.config.cluster import TxLogCluster
from txlog.config.cluster_status import (
    ClusterStatus,
    Condition,
    NodeStatus,
    PeerStatus,
    PipelineStatus,
    SplitStatus,
    WorkerStatusEntry,
)
from txlog.config.process_config import LastSeenIncarnation
from txlog.config.units import format_duration
from txlog.operator.build import Object, executors, pipeline
from txlog.operator.conditions import Finding, findings
from txlog.operator.diagnose import Situation
from txlog.operator.observation import Heard, Observation
from txlog.operator.work import duties, last_backup

RANK = ("Isolated", "DiskFull", "Damaged", "Rejoining", "Suspected", "Founding", "Learning", "Starting", "Left")
"""States of a master, the worst first; then what is not known, then Joined."""
LAG_S = 5
"""Below it nobody is behind: masters hear of each other every second."""
TEXT_MAX = 500


def time_text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_status(found: Object) -> ClusterStatus:
    """As it was written last; an empty one when another version wrote it."""
    try:
        return ClusterStatus.model_validate(found.get("status") or {})
    except ValidationError:
        return ClusterStatus()


def written(status: ClusterStatus) -> Object:
    """As the API server takes it."""
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


def last_seen(status: ClusterStatus) -> dict[str, LastSeenIncarnation]:
    """By node id."""
    return {
        node.node: LastSeenIncarnation(birth=int(node.birth, 16), start=node.start)
        for node in status.nodes
        if node.birth and node.start > 0
    }


def make_status(
    cluster: TxLogCluster,
    generation: int,
    seen: Observation,
    situation: Situation,
    problems: Sequence[str],
    before: ClusterStatus,
) -> ClusterStatus:
    """``cluster``: what is kept true, an older one while ``problems`` says what is wrong with the newest."""
    heard = seen.heard
    peers = _peers(cluster, seen, before)
    workers = _workers(seen, before)
    ready = sum(pod.ready for pod in seen.pods.values())
    said = [each for each in peers if each.reachable == "True"]
    strategies = [told for each in heard.values() if (told := each.status.view.split_recovery) is not None]
    last = last_backup(seen.works)
    indexes = [worker.index for worker in workers if worker.index is not None]
    status = ClusterStatus(
        observed_generation=generation,
        state=_worst(seen),
        masters_ready=f"{ready}/{cluster.own_peer.masters}",
        peers_reachable=f"{len(said)}/{len(peers)}",
        lag=_lag(cluster, seen) if heard else "-",
        recovery=strategies[0] if strategies else before.recovery,
        applied=min(indexes, default=None),
        nodes=_nodes(seen, before),
        workers=workers,
        peers=peers,
        split=_split(seen, situation, before),
        pipeline=_pipeline(cluster, seen),
        last_backup=last[0] if last is not None else None,
    )
    found = findings(cluster, seen, situation, status, problems, lag_s(cluster, seen))
    return status.model_copy(update={"conditions": conditions(found, before.conditions, generation, seen.now)})


def conditions(told: Sequence[Finding], before: Sequence[Condition], generation: int, now: float) -> list[Condition]:
    """A transition's time moves with the status only."""
    old = {each.type: each for each in before}
    found = []
    for each in told:
        last = old.get(each.kind)
        same = last is not None and last.status == each.status
        found.append(
            Condition(
                type=each.kind,
                status=each.status,
                reason=each.reason,
                message=each.message[:2000],
                last_transition_time=last.last_transition_time if last is not None and same else time_text(now),
                observed_generation=generation,
            )
        )
    return found


def _worst(seen: Observation) -> str:
    states = [each.status.state for each in seen.heard.values()]
    bad = next((state for state in RANK if state in states), None)
    if bad is not None:
        return bad
    return "Joined" if states and len(states) == len(seen.masters) else "Unknown"


def _nodes(seen: Observation, before: ClusterStatus) -> list[NodeStatus]:
    """The last birth and start of one that does not answer stay: its next start is told of them."""
    old = {each.node: each for each in before.nodes}
    found = []
    for node, heard in seen.masters.items():
        if heard is None:
            found.append(old.get(node, NodeStatus(node=node)).model_copy(update={"state": "Unknown"}))
            continue
        told = heard.status
        found.append(
            NodeStatus(node=node, birth=heard.birth, start=told.start, state=told.state, index=told.stable.index)
        )
    return found


def _workers(seen: Observation, before: ClusterStatus) -> list[WorkerStatusEntry]:
    """As the master tells that knows most of each."""
    if not seen.heard:
        return [each.model_copy(update={"state": "Unknown"}) for each in before.workers]
    found: dict[str, WorkerStatusEntry] = {}
    for heard in seen.heard.values():
        for worker in heard.status.workers:
            index = worker.position.index if worker.position is not None else None
            known = found.get(worker.name)
            if known is not None and (known.index or -1) >= (index if index is not None else -1):
                continue
            error = worker.error[:TEXT_MAX] if worker.error else None
            found[worker.name] = WorkerStatusEntry(name=worker.name, state=worker.state, index=index, error=error)
    return [found[name] for name in sorted(found)]


def _peers(cluster: TxLogCluster, seen: Observation, before: ClusterStatus) -> list[PeerStatus]:
    """Reachable: a master of it is present for one of ours."""
    found = []
    for peer in cluster.spec.peers:
        if peer.name == cluster.data_center:
            continue
        told = [each for heard in seen.heard.values() for each in heard.peers if each.get("dataCenter") == peer.name]
        reachable: Literal["True", "False", "Unknown"] = "Unknown"
        lag = None
        if told:
            reachable = "True" if any(each.get("present") for each in told) else "False"
            heard_at = [at for each in told if (at := each.get("lastHeardAt")) is not None]
            if reachable == "False" and heard_at:
                lag = _seconds(seen.now - max(heard_at))
        found.append(PeerStatus(name=peer.name, reachable=reachable, lag=lag))
    return found


def lag_s(cluster: TxLogCluster, seen: Observation) -> float | None:
    """How long nobody here has heard of the data centre that is heard least; None when that is not known."""
    worst: float | None = None
    for peer in cluster.spec.peers:
        told = [each for heard in seen.heard.values() for each in heard.peers if each.get("dataCenter") == peer.name]
        at = [when for each in told if (when := each.get("lastHeardAt")) is not None]
        if peer.name != cluster.data_center and at:
            worst = max(worst or 0.0, seen.now - max(at))
    return worst


def _lag(cluster: TxLogCluster, seen: Observation) -> str:
    lag = lag_s(cluster, seen)
    if lag is None:
        return "-" if len(cluster.spec.peers) > 1 else "0s"
    return _seconds(lag)


def _seconds(lag: float) -> str:
    return "0s" if lag < LAG_S else format_duration(int(lag) * 1000)


def _split(seen: Observation, situation: Situation, before: ClusterStatus) -> SplitStatus | None:
    if situation is Situation.UNSEEN:
        return before.split  # nothing is known of it
    phases: dict[Situation, Literal["Suspected", "Split", "Rejoining"]] = {
        Situation.SUSPECTED: "Suspected",
        Situation.SPLIT: "Split",
    }
    if before.split is not None:  # else it is a change of the view like others
        phases[Situation.REJOINING] = "Rejoining"
    phase = phases.get(situation)
    if phase is None:
        return None
    silent = sorted({each for heard in seen.heard.values() for each in _silent(heard)})
    old = before.split
    return SplitStatus(
        phase=phase,
        silent=silent or (old.silent if old is not None else []),
        since=old.since if old is not None else time_text(seen.now),
        strategy=old.strategy if old is not None else (before.recovery if before.recovery != "-" else None),
        backup=next(_split_backups(seen), old.backup if old is not None else None),
    )


def _split_backups(seen: Observation) -> Iterator[str]:
    """What is made for the masters that ask for one now."""
    asked = duties(seen)
    for each in seen.works:
        if each["kind"] == "TxLogBackup" and each["spec"].get("duty") in asked:
            yield str(each["metadata"]["name"])


def _silent(heard: Heard) -> list[str]:
    out = [each.node for each in heard.status.view.out if each.why == "silent"]
    members = {each["node"] for each in heard.status.members}
    return [*out, *sorted(members - set(heard.status.present))]


def _pipeline(cluster: TxLogCluster, seen: Observation) -> PipelineStatus:
    name = next((name for name in seen.pipeline if not seen.pipeline[name].leaving), None)
    if name is None:
        return PipelineStatus(job=None, state="Waiting")
    pod = seen.pipeline[name]
    state = "Running" if pod.running else pod.waiting or ("Ended" if pod.said else "Pending")
    return PipelineStatus(job=name, state=state, executors=_executors(cluster, seen))


def _executors(cluster: TxLogCluster, seen: Observation) -> str | None:
    wanted = executors.count(cluster)
    running = sum(pod.running and not pod.leaving for pod in seen.executors.values())
    return f"{running}/{wanted}" if wanted else None


__all__ = ["conditions", "last_seen", "make_status", "pipeline", "read_status", "time_text", "written"]
