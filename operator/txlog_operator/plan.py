"""Computes the next actions of one cluster. Pure: the same observation gives the same plan, and an action that took
effect is not planned again.

At most one action of a plan is disruptive, and none while a master is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from txlog.config.cluster import TxLogCluster
from txlog.config.preferences import format_preferences
from txlog.supervision.down_proof import needs_down_proof
from txlog.supervision.membership import (
    Configuration,
    newest_configuration,
    next_master_to_add,
    next_master_to_remove,
    node_index,
)
from txlog_operator.actions import (
    DISRUPTIVE_ACTIONS,
    AddPeer,
    ApplyObject,
    ChangeMasterSettings,
    DeleteObject,
    PlanAction,
    RemovePeer,
    ReportDown,
    RestartMaster,
)
from txlog_operator.cluster_phase import CALM_PHASES, DIVERGED_PHASES, ClusterPhase
from txlog_operator.drift import hash_of, matches, with_hash
from txlog_operator.hibernation import is_scaled_to_zero, without_new_work
from txlog_operator.job_attempts import has_ended
from txlog_operator.job_plan import plan_jobs
from txlog_operator.object_names import ObjectNames
from txlog_operator.object_ownership import is_being_deleted, is_owned
from txlog_operator.observation import ClusterObservation
from txlog_operator.quorum_rules import has_pending_rules, plan_rules
from txlog_operator.specs import (
    BuildContext,
    archiver,
    change_sets,
    desired_objects,
    executors,
    jobs,
    pipeline,
    recovery,
)
from txlog_operator.specs.common import labels, peer_address
from txlog_operator.store_restarts import outdated_pods, plan_store_restarts, store_pods
from txlog_operator.volume_claims import claim_blocks_master, highest_journal, plan_claims
from txlog_operator.volume_growth import built_sizes, plan_growth

OWNED_KINDS: Final = (
    "ConfigMap",
    "Service",
    "StatefulSet",
    "Deployment",
    "PodDisruptionBudget",
    "NetworkPolicy",
    "Job",
    "TxLogBackupSchedule",
)
"""Kinds of the objects that exist as long as the cluster does. The plan deletes own objects of these kinds that the
manifest no longer wants."""
OWNED_COMPONENTS: Final = (
    *("master", "worker", pipeline.COMPONENT, executors.COMPONENT, archiver.COMPONENT, change_sets.COMPONENT),
    jobs.SCHEDULE_COMPONENT,
    recovery.COMPONENT,
)


def make_plan(
    cluster: TxLogCluster, around: BuildContext, seen: ClusterObservation, situation: ClusterPhase
) -> list[PlanAction]:
    """The actions, in the order in which the applier performs them; empty while ``spec.paused`` is set."""
    if cluster.spec.paused:
        return []
    asleep = is_scaled_to_zero(cluster, seen)
    around = replace(
        around,
        master_count=desired_master_count(cluster, seen),
        hibernated=asleep,
        volume_sizes=built_sizes(cluster, seen),
    )
    work = plan_jobs(cluster, around, seen, situation)
    if asleep:
        return [*_plan_objects(cluster, around, seen), *plan_growth(cluster, seen), *without_new_work(work)]
    actions: list[PlanAction] = [
        *_plan_down_reports(seen),
        *_plan_settings(cluster, seen, situation),
        *plan_rules(cluster, seen, around.graph_rules),
        *_plan_objects(cluster, around, seen),
        *plan_growth(cluster, seen),
        *plan_claims(cluster, seen, situation, _configuration(seen)),
        *_plan_added_peers(cluster, seen),
        *_plan_removed_peers(cluster, seen, situation),
        *_plan_process_restarts(cluster, seen, situation),
        *_plan_stalled_stores(cluster, seen),
        *(without_new_work(work) if cluster.spec.hibernated else work),
    ]
    return _limit_to_one_disruption(actions)


def _limit_to_one_disruption(actions: list[PlanAction]) -> list[PlanAction]:
    first = next((action for action in actions if isinstance(action, DISRUPTIVE_ACTIONS)), None)
    return [action for action in actions if not isinstance(action, DISRUPTIVE_ACTIONS) or action is first]


# -- objects


def desired_master_count(cluster: TxLogCluster, seen: ClusterObservation) -> int:
    """The manifest's count, plus masters that have not left the cluster yet. A master is stopped only after the log
    shows its departure: by then it has replicated its transactions. One that was scaled away by hand before comes back
    with its journal. Without a known configuration the running count stays."""
    wanted, now, running = cluster.own_peer.masters, _configuration(seen), _running_count(cluster, seen)
    if now is None:
        founding = seen.reachable_masters and all(
            master.status.state == "Founding" for master in seen.reachable_masters.values()
        )
        kept = wanted if founding else running
    else:
        staying = [
            node_index(str(master["node"])) for master in now["masters"] if master["dataCenter"] == cluster.data_center
        ]
        kept = min(max(running, highest_journal(cluster, seen)), max(staying, default=0))
    if kept > wanted:
        return kept
    rising = range(running + 1, wanted + 1)
    return next((index - 1 for index in rising if claim_blocks_master(cluster, seen, now, index)), wanted)


def _running_count(cluster: TxLogCluster, seen: ClusterObservation) -> int:
    """By the StatefulSet; while that is being replaced, by the pods that it has left behind."""
    existing = seen.objects.get(("StatefulSet", ObjectNames(cluster).masters))
    if existing is not None:
        return int(existing["spec"].get("replicas", 0))
    return max(map(node_index, seen.master_pods), default=0)


def _configuration(seen: ClusterObservation) -> Configuration | None:
    """The newest configuration that a reachable master reports."""
    return newest_configuration(master.configuration for master in seen.reachable_masters.values())


def _plan_objects(cluster: TxLogCluster, around: BuildContext, seen: ClusterObservation) -> Iterator[PlanAction]:
    wanted = {
        (each["kind"], str(each["metadata"]["name"])): with_hash(each) for each in desired_objects(cluster, around)
    }
    job = ("Job", pipeline.pipeline_job_name(cluster, around))
    owned = _owned_objects(cluster, around, seen)
    others = [each for each in owned if each[0] == "Job" and each != job]
    for key, each in wanted.items():
        if key == job and (others or is_being_deleted(seen.objects.get(key))):
            continue  # two pipeline Jobs must never run at the same time
        if key[0] == "StatefulSet" and is_being_deleted(seen.objects.get(key)):
            continue  # it is replaced when it is gone
        if key == job and key in seen.objects and has_ended(seen.objects[key]):
            yield DeleteObject.of(key[0], seen.objects[key], "it has ended; the next one follows")
        elif not matches(seen.objects.get(key), each) and seen.unchanged.get(key) != hash_of(each):
            yield ApplyObject(each)
    for key in owned:
        if key not in wanted and not is_being_deleted(seen.objects[key]):
            yield DeleteObject.of(key[0], seen.objects[key], "the manifest wants it no more")


def _owned_objects(cluster: TxLogCluster, around: BuildContext, seen: ClusterObservation) -> list[tuple[str, str]]:
    """Keys (kind, name) of the observed objects that this operator creates for the lifetime of the cluster."""
    mine = [labels(cluster, component).items() for component in OWNED_COMPONENTS]
    return [
        (kind, name)
        for (kind, name), each in seen.objects.items()
        if kind in OWNED_KINDS
        and is_owned(each, around.owner_uid)
        and any(each["metadata"].get("labels", {}).items() >= those for those in mine)
    ]


# -- settings and down reports


def _plan_settings(cluster: TxLogCluster, seen: ClusterObservation, situation: ClusterPhase) -> Iterator[PlanAction]:
    wanted = format_preferences(cluster.spec)
    all_answered = len(seen.reachable_masters) == len(seen.masters)
    for node, master in seen.reachable_masters.items():
        different = {key: value for key, value in wanted.items() if master.settings.get(key, value) != value}
        if not all_answered or situation not in CALM_PHASES:
            # All masters change it or none does, and each master would refuse it now.
            different.pop("splitRecovery", None)
        if different:
            yield ChangeMasterSettings(node, seen.urls[node], tuple(sorted(different.items())))


def pending_changes(cluster: TxLogCluster, seen: ClusterObservation, carried: str | None) -> list[str]:
    """What the manifest wants, and masters do not have yet although no action failed: fields of the manifest.
    ``carried``: as :func:`~txlog_operator.quorum_rules.carried_rules`."""
    wanted = format_preferences(cluster.spec)["splitRecovery"]
    settings = [master.settings for master in seen.reachable_masters.values()]
    late = any(each.get("splitRecovery", wanted) != wanted for each in settings)
    found = ["spec.splitRecovery: it changes when every master is in one view"] if late else []
    if has_pending_rules(cluster, seen, carried):
        found.append("spec.durability.graphs: a master that is Joined brings them into the log")
    return found


def _plan_down_reports(seen: ClusterObservation) -> Iterator[PlanAction]:
    for pod in seen.master_pods.values():
        for ended in pod.terminated_processes:
            for node, (url, master) in seen.masters_to_notify.items():
                if (
                    node != ended.node
                    and master is not None
                    and needs_down_proof(master.status.members, master.peers, ended.node, ended.birth, ended.start)
                ):
                    yield ReportDown(node, url, ended)


# -- adding and removing peers


def _plan_added_peers(cluster: TxLogCluster, seen: ClusterObservation) -> Iterator[PlanAction]:
    """The manifest decides, so a master that was removed before is added again."""
    now, own = _configuration(seen), cluster.own_peer
    asked = next((node for node, master in seen.reachable_masters.items() if master.status.state == "Joined"), None)
    new = next_master_to_add(now, own.nodes, again=True) if now is not None else None
    if new is None or claim_blocks_master(cluster, seen, now, node_index(new)):
        return
    if asked is not None:
        address = f"http://{peer_address(cluster, own, node_index(new))}"
        yield AddPeer(seen.urls[asked], new, own.name, address, own.vote_weight)


def _plan_removed_peers(
    cluster: TxLogCluster, seen: ClusterObservation, situation: ClusterPhase
) -> Iterator[PlanAction]:
    """Removes the last master first, and the next one after it has left."""
    now = _configuration(seen)
    if now is None or situation is not ClusterPhase.JOINED or disruption_blocker(seen):
        return
    last = next_master_to_remove(now, cluster.data_center, cluster.own_peer.nodes)
    if last is not None:
        asked = next(node for node in seen.reachable_masters if node != last)
        yield RemovePeer(seen.urls[asked], last)


# -- restarts


def disruption_blocker(seen: ClusterObservation) -> str:
    """Why no master may be stopped gracefully now; empty when one may be."""
    missing = [node for node in seen.masters if node not in seen.reachable_masters]
    if missing:
        return f"{missing[0]} does not answer"
    now = _configuration(seen)
    gone = list(now["removed"]) if now is not None else []  # a master keeps its link to a removed peer
    for node, master in seen.reachable_masters.items():
        if master.status.state != "Joined":
            return f"{node} is {master.status.state}"
        if master.status.view.out:
            return f"{master.status.view.out[0].node} is out of the view"
        away = next(
            (str(peer["node"]) for peer in master.peers if not peer.get("present") and peer["node"] not in gone), None
        )
        if away is not None:
            return f"{node} misses {away}"
    waiting = next((node for node, pod in seen.master_pods.items() if not pod.ready or pod.terminating), None)
    return f"the pod of {waiting} is not ready" if waiting is not None else ""


def outdated_masters(cluster: TxLogCluster, seen: ClusterObservation) -> list[str]:
    """Masters whose pods differ from what the StatefulSet would create now, the last one first."""
    old = outdated_pods(seen, ObjectNames(cluster).masters, seen.master_pods)
    return sorted(old, key=node_index, reverse=True)


def _plan_stalled_stores(cluster: TxLogCluster, seen: ClusterObservation) -> Iterator[PlanAction]:
    """Restart own stores that still execute a request long after its time-out: only the end of the process ends it, and
    the pipeline sends the store nothing before. A store that is not ready is restarting already, or is ended by its
    liveness probe."""
    workers = [worker for master in seen.reachable_masters.values() for worker in master.status.workers]
    stalled = {worker.name: worker.txid for worker in workers if worker.fault == "stalled" and worker.running}
    for worker, pod in store_pods(cluster, seen).items():
        if worker in stalled and pod.ready and not pod.terminating:
            what = stalled[worker] or "several transactions"
            yield DeleteObject("Pod", pod.name, pod.uid, f"{worker} does not end a request with {what}")


def _plan_process_restarts(
    cluster: TxLogCluster, seen: ClusterObservation, situation: ClusterPhase
) -> list[PlanAction]:
    """Masters first: a store is restarted only in a turn that restarts none of them."""
    return list(_plan_restarts(cluster, seen, situation)) or list(plan_store_restarts(cluster, seen, situation))


def _plan_restarts(cluster: TxLogCluster, seen: ClusterObservation, situation: ClusterPhase) -> Iterator[PlanAction]:
    if any(pod.terminating for pod in seen.master_pods.values()):
        return
    names = [node for peer in cluster.spec.peers for node in peer.nodes]
    for node, master in seen.reachable_masters.items():
        # Not bootstrapped, so nothing is lost: the master waits for peers that the manifest no longer names.
        expected = {node, *(str(peer["node"]) for peer in master.peers)}
        if master.status.state == "Founding" and expected != set(names) and node in seen.master_pods:
            pod = seen.master_pods[node]
            yield RestartMaster(node, pod.name, pod.uid, "the manifest names other masters for the founding")
            return
    for node in outdated_masters(cluster, seen):
        pod = seen.master_pods[node]
        down = node not in seen.reachable_masters and not pod.ready
        if down or (situation not in DIVERGED_PHASES and not disruption_blocker(seen)):
            yield RestartMaster(node, pod.name, pod.uid, "its image or configuration has changed")
            return
