"""Observations for the tests of what is decided from them, and plain dictionaries to carry plans out on."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from txlog.client.responses import DepartedMember, JsonMarker, JsonPosition, StatusResponse, ViewStatus, WorkerStatus
from txlog.config.cluster import TxLogCluster
from txlog.config.preferences import format_preferences
from txlog.supervision.membership import node_index
from txlog_operator.actions import ApplyObject, DeleteObject, PlanAction
from txlog_operator.object_names import ObjectNames
from txlog_operator.observation import ClusterObservation, ObservedMaster, PodStatus, TerminatedProcess
from txlog_operator.specs import BuildContext, KubeObject

AROUND = BuildContext("txlog:1", owner_uid="u1")
NOW = 1_800_000_000.0
NEVER_MEMBERS = ("Founding", "AwaitingBootstrap", "Learning")


def manifest(count: int = 2, name: str = "catalogue", others: int = 1, **spec: Any) -> TxLogCluster:
    peers = [
        {"name": "uk", "masters": count, "address": "uk-{index}.example.net"},
        *({"name": f"dc{at}", "masters": 1, "address": f"dc{at}.example.net"} for at in range(others)),
    ]
    return TxLogCluster.model_validate(
        {
            "apiVersion": "txlog.io/v1alpha1",
            "kind": "TxLogCluster",
            "metadata": {"name": name, "namespace": "graphs"},
            "spec": {"dataCenter": "uk", "peers": peers, **spec},
        }
    )


def heard(
    cluster: TxLogCluster,
    node: str,
    state: str = "Joined",
    *,
    start: int = 1,
    out: Sequence[str] = (),
    away: Sequence[str] = (),
    configured: Sequence[str] | None = None,
    removed: Sequence[str] = (),
    leaving: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    worker: str = "Working",
    heard_at: float = NOW,
    members: Sequence[str] | None = None,
) -> ObservedMaster:
    nodes = [each for peer in cluster.spec.peers for each in peer.nodes]
    known = list(configured) if configured is not None else nodes
    place = JsonPosition(1, 10, "00" * 16)
    status = StatusResponse(
        node=node,
        state=state,
        stable=place,
        log=place,
        birth=birth(node),
        start=start,
        view=ViewStatus(
            installed=state not in NEVER_MEMBERS,
            out=[DepartedMember(each, "silent") for each in out],
            split_recovery="Smart",
        ),
        members=[{"node": each, "birth": birth(each)} for each in (members if members is not None else known)],
        present=[each for each in known if each not in away],
        workers=[WorkerStatus("uk-worker-1", position=JsonMarker(1, 10, "00" * 16), state=worker)],
    )
    peers = [
        {
            "node": each,
            "dataCenter": each.rpartition("-")[0],
            "present": each not in away,
            "start": 1,
            "lastHeardAt": heard_at,
        }
        for each in dict.fromkeys([*known, *nodes])
        if each != node
    ]
    founded = state != "Founding"
    told = {
        "version": 1,
        "masters": [
            {
                "node": each,
                "dataCenter": each.rpartition("-")[0],
                "role": "leaving" if each in leaving else "member",
                "inView": True,
            }
            for each in known
            if each not in removed
        ],
        "removed": list(removed),
        "pending": None,
    }
    return ObservedMaster(
        status=status,
        peers=tuple(peers),
        settings={**format_preferences(cluster.spec), **(settings or {})},
        configuration=told if founded else None,
    )


def birth(node: str) -> str:
    return f"{hash_of(node):016x}"


def hash_of(text: str) -> int:
    return sum(ord(letter) << at for at, letter in enumerate(text))


def pod(cluster: TxLogCluster, node: str, **more: Any) -> PodStatus:
    name = ObjectNames(cluster).master_pod(node_index(node))
    made = PodStatus(name=name, uid=f"uid-{name}", ip="10.0.0.1", revision="new", ready=True, running=True)
    return replace(made, **more)


def whole(cluster: TxLogCluster, world: World | None = None, **each: Any) -> ClusterObservation:
    """All is well: every master of this data centre answers and is ready."""
    nodes = cluster.own_peer.nodes
    return ClusterObservation(
        now=NOW,
        objects=world.objects if world is not None else {},
        master_pods={node: pod(cluster, node) for node in nodes},
        masters={node: heard(cluster, node, **each) for node in nodes},
        urls={node: f"http://{node}:7300" for node in nodes},
        pipeline_pods={"job": PodStatus("job", "u", running=True)},
    )


def ended(node: str, start: int = 1) -> TerminatedProcess:
    return TerminatedProcess(node, birth(node), start, 137)


class World:
    """What stands, as an API server would have it: whole objects, with generations, and their controllers' answers."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], KubeObject] = {}

    def carry_out(self, actions: Sequence[PlanAction]) -> None:
        for action in actions:
            if isinstance(action, ApplyObject):
                self._apply(copy.deepcopy(action.desired))
            elif isinstance(action, DeleteObject):
                self.objects.pop((action.kind, action.name), None)

    def _apply(self, wanted: KubeObject) -> None:
        key = (wanted["kind"], wanted["metadata"]["name"])
        generation = self.objects[key]["metadata"]["generation"] + 1 if key in self.objects else 1
        wanted["metadata"] |= {"uid": f"{key[0]}-{key[1]}", "generation": generation}
        if wanted["kind"] == "StatefulSet":
            wanted["status"] = {"observedGeneration": generation, "updateRevision": "new"}
        self.objects[key] = wanted
