"""What is to be done next. Pure: the same observation gives the same plan, and what was done is not planned again.

At most one step of a plan disturbs anybody, and none while somebody is missed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from txlog.config.cluster import TxLogCluster
from txlog.config.preferences import format_preferences
from txlog.operator.actions import (
    DISRUPTIVE,
    Action,
    Apply,
    NameMaster,
    Prove,
    Remove,
    Restart,
    TakeOut,
    Tell,
)
from txlog.operator.build import Around, Object, executors, jobs, objects, pipeline
from txlog.operator.build.common import labels, meeting_address
from txlog.operator.diagnose import APART, Situation
from txlog.operator.names import GROUP, Names, digest
from txlog.operator.observation import Heard, Observation
from txlog.operator.work import plan_work

HASH: Final = f"{GROUP}/applied"
OWNED: Final = (
    "ConfigMap",
    "Service",
    "StatefulSet",
    "PodDisruptionBudget",
    "NetworkPolicy",
    "Job",
    "TxLogBackupSchedule",
)
"""Kinds of what stands as long as the cluster does; what of them is ours and not wanted is removed."""
COMPONENTS: Final = ("master", "worker", pipeline.COMPONENT, executors.COMPONENT, jobs.SCHEDULE)


def make_plan(cluster: TxLogCluster, around: Around, seen: Observation, situation: Situation) -> list[Action]:
    """In the order in which it is to be done."""
    if cluster.spec.paused:
        return []
    around = replace(around, masters=masters_wanted(cluster, seen))
    actions: list[Action] = [
        *_proofs(seen),
        *_settings(cluster, seen, situation),
        *_objects(cluster, around, seen),
        *_named(cluster, seen),
        *_taken_out(cluster, seen, situation),
        *_restarts(cluster, seen, situation),
        *plan_work(cluster, around, seen, situation),
    ]
    return _one_disruptive(actions)


def _one_disruptive(actions: list[Action]) -> list[Action]:
    first = next((action for action in actions if isinstance(action, DISRUPTIVE)), None)
    return [action for action in actions if not isinstance(action, DISRUPTIVE) or action is first]


# -- objects


def masters_wanted(cluster: TxLogCluster, seen: Observation) -> int:
    """As many as the manifest says, and whoever has not left the cluster yet: nobody is stopped before the log says
    that it has brought in what it has. Not known: as many as there are."""
    said = cluster.own_peer.masters
    standing = seen.objects.get(("StatefulSet", Names(cluster).masters))
    running = int(standing["spec"].get("replicas", 0)) if standing else 0
    if running <= said:
        return said
    now = configuration(seen)
    if now is None:
        founding = seen.heard and all(heard.status.state == "Founding" for heard in seen.heard.values())
        return said if founding else running
    staying = [
        index_of(str(master["node"])) for master in now["masters"] if master["dataCenter"] == cluster.data_center
    ]
    return max(said, min(running, max(staying, default=0)))


def configuration(seen: Observation) -> Mapping[str, Any] | None:
    """The newest that a master told: what the log says of the cluster."""
    told = [heard.configuration for heard in seen.heard.values() if heard.configuration is not None]
    return max(told, key=lambda each: int(each["version"]), default=None)


def index_of(node: str) -> int:
    return int(node.rpartition("-")[2])


def marked(wanted: Object) -> Object:
    """With the hash of what it shall be: what was taken away from it shows, too."""
    meta = wanted["metadata"]
    notes = {**meta.get("annotations", {}), HASH: digest(wanted)}
    return {**wanted, "metadata": {**meta, "annotations": notes}}


def _objects(cluster: TxLogCluster, around: Around, seen: Observation) -> Iterator[Action]:
    wanted = {(each["kind"], str(each["metadata"]["name"])): marked(each) for each in objects(cluster, around)}
    job = ("Job", pipeline.job_name(cluster, around))
    others = [each for each in _ours(cluster, seen) if each[0] == "Job" and each != job]
    for key, each in wanted.items():
        if key == job and (others or _is_leaving(seen.objects.get(key))):
            continue  # never two of them at once
        if key == job and key in seen.objects and _ended(seen.objects[key]):
            yield Remove(*key, _uid(seen.objects[key]), "it has ended; the next one follows")
        elif not is_as(seen.objects.get(key), each):
            yield Apply(each)
    for key in _ours(cluster, seen):
        if key not in wanted and not _is_leaving(seen.objects[key]):
            yield Remove(*key, _uid(seen.objects[key]), "the manifest wants it no more")


def _ours(cluster: TxLogCluster, seen: Observation) -> list[tuple[str, str]]:
    """What stands of what this operator makes for as long as the cluster stands."""
    mine = [labels(cluster, component).items() for component in COMPONENTS]
    return [
        (kind, name)
        for (kind, name), each in seen.objects.items()
        if kind in OWNED and any(each["metadata"].get("labels", {}).items() >= those for those in mine)
    ]


def _uid(found: Object) -> str | None:
    uid: str | None = found["metadata"].get("uid")
    return uid


def _is_leaving(found: Object | None) -> bool:
    return found is not None and "deletionTimestamp" in found["metadata"]


def _ended(job: Object) -> bool:
    told = job.get("status", {}).get("conditions", [])
    return any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in told)


def is_as(found: Any, wanted: Any) -> bool:
    """Whether everything that is wanted is there; the API server adds its own defaults."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            is_as(found.get(key), value) or (value in ({}, [], "") and key not in found)
            for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(is_as, found, wanted))
    return bool(found == wanted)


# -- what masters are told


def _settings(cluster: TxLogCluster, seen: Observation, situation: Situation) -> Iterator[Action]:
    wanted = format_preferences(cluster.spec)
    everybody = len(seen.heard) == len(seen.masters)
    for node, heard in seen.heard.items():
        different = {key: value for key, value in wanted.items() if heard.settings.get(key, value) != value}
        if not everybody or situation not in (Situation.JOINED, Situation.INCOMPLETE):
            # It is changed at all of them or at none, and each would refuse it now.
            different.pop("splitRecovery", None)
        if different:
            yield Tell(node, seen.urls[node], tuple(sorted(different.items())))


def _proofs(seen: Observation) -> Iterator[Action]:
    for pod in seen.pods.values():
        for ended in pod.ended:
            for node, (url, heard) in seen.listeners.items():
                if node != ended.node and heard is not None and _waits_for(heard, ended.node, ended.birth, ended.start):
                    yield Prove(node, url, ended)


def _waits_for(heard: Heard, node: str, birth: str, start: int) -> bool:
    """Whether that process is still a member for it, and no later one was heard."""
    member = any(each["node"] == node and each["birth"] == birth for each in heard.status.members)
    later = next((peer.get("start") for peer in heard.peers if peer["node"] == node), None)
    return member and (later is None or later <= start)


# -- masters come and go


def _named(cluster: TxLogCluster, seen: Observation) -> Iterator[Action]:
    now = configuration(seen)
    asked = _joined(seen)
    if now is None or now["pending"] or asked is None:
        return
    known = {str(master["node"]) for master in now["masters"]}
    own = cluster.own_peer
    new = next((node for node in own.nodes if node not in known), None)
    if new is not None:
        address = f"http://{meeting_address(cluster, own, index_of(new))}"
        yield NameMaster(seen.urls[asked], new, own.name, address, own.vote_weight)


def _joined(seen: Observation) -> str | None:
    return next((node for node, heard in seen.heard.items() if heard.status.state == "Joined"), None)


def _taken_out(cluster: TxLogCluster, seen: Observation, situation: Situation) -> Iterator[Action]:
    """The last one first; the next when it has gone."""
    now = configuration(seen)
    if now is None or now["pending"] or situation is not Situation.JOINED or why_not_disturbed(seen):
        return
    own = [master for master in now["masters"] if master["dataCenter"] == cluster.data_center]
    extra = [master for master in own if index_of(str(master["node"])) > cluster.own_peer.masters]
    if not extra or any(master["role"] == "leaving" for master in own):
        return
    last = max((str(master["node"]) for master in extra), key=index_of)
    asked = next(node for node in seen.heard if node != last)
    yield TakeOut(seen.urls[asked], last)


# -- restarts


def why_not_disturbed(seen: Observation) -> str:
    """Why nobody may be stopped in order now; empty when one may."""
    missing = [node for node in seen.masters if node not in seen.heard]
    if missing:
        return f"{missing[0]} does not answer"
    now = configuration(seen)
    gone = list(now["removed"]) if now is not None else []  # a master keeps the link to one that was taken out
    for node, heard in seen.heard.items():
        if heard.status.state != "Joined":
            return f"{node} is {heard.status.state}"
        if heard.status.view.out:
            return f"{heard.status.view.out[0].node} is out of the view"
        away = next(
            (str(peer["node"]) for peer in heard.peers if not peer.get("present") and peer["node"] not in gone), None
        )
        if away is not None:
            return f"{node} misses {away}"
    waiting = next((node for node, pod in seen.pods.items() if not pod.ready or pod.leaving), None)
    return f"the pod of {waiting} is not ready" if waiting is not None else ""


def outdated(cluster: TxLogCluster, seen: Observation) -> list[str]:
    """Masters whose pods are not what the StatefulSet would make now, the last one first."""
    standing = seen.objects.get(("StatefulSet", Names(cluster).masters))
    if standing is None:
        return []
    told = standing.get("status", {})
    if told.get("observedGeneration") != standing["metadata"].get("generation"):
        return []
    new = told.get("updateRevision")
    old = [node for node, pod in seen.pods.items() if new and pod.revision and pod.revision != new]
    return sorted(old, key=index_of, reverse=True)


def _restarts(cluster: TxLogCluster, seen: Observation, situation: Situation) -> Iterator[Action]:
    if any(pod.leaving for pod in seen.pods.values()):
        return
    names = [node for peer in cluster.spec.peers for node in peer.nodes]
    for node, heard in seen.heard.items():
        # Nothing is founded yet, so nothing is lost: it waits for masters that the manifest no longer names.
        told = {node, *(str(peer["node"]) for peer in heard.peers)}
        if heard.status.state == "Founding" and told != set(names) and node in seen.pods:
            pod = seen.pods[node]
            yield Restart(node, pod.name, pod.uid, "the manifest names other masters for the founding")
            return
    for node in outdated(cluster, seen):
        pod = seen.pods[node]
        down = node not in seen.heard and not pod.ready
        if down or (situation not in APART and not why_not_disturbed(seen)):
            yield Restart(node, pod.name, pod.uid, "its image or configuration has changed")
            return


__all__ = ["HASH", "is_as", "make_plan", "marked", "masters_wanted", "outdated", "why_not_disturbed"]
