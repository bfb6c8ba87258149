"""Looking at a data centre: what stands in Kubernetes, and what its masters tell. A time-out is a value."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from txlog.client import MasterClient
from txlog.config.cluster import TxLogCluster
from txlog.model.errors import Conflict, TxLogError
from txlog.operator.build import executors as of_executors
from txlog.operator.build import jobs as of_jobs
from txlog.operator.build import masters as of_masters
from txlog.operator.build import pipeline as of_pipeline
from txlog.operator.build import workers as of_workers
from txlog.operator.build.common import MASTER_PORT, Object, door_url, scheme
from txlog.operator.kube import Kube
from txlog.operator.names import GROUP, Names
from txlog.operator.observation import Ended, Heard, Observation, Pod
from txlog.operator.plan import OWNED, index_of
from txlog.operator.securing import Access

ANSWER_S: Final = 2.0
CONNECT_S: Final = 1.0
WORKS: Final = ("TxLogBackup", "TxLogRestore", "TxLogBackupSchedule")
KEPT: Final = ("PersistentVolumeClaim",)
"""Made and never removed: what is in it outlives the cluster."""
NOTHING: Final[dict[str, Any]] = {}
T = TypeVar("T")


async def observe(
    kube: Kube, cluster: TxLogCluster, access: Access, clock: Callable[[], float] = time.time
) -> Observation:
    """Everything at once; masters are asked by ``access``. :class:`~txlog.operator.kube.ApiError` when the API server
    cannot be asked: without it nothing can be done either."""
    names, namespace = Names(cluster), cluster.metadata.namespace
    ours = {"app.kubernetes.io/name": "txlog", "app.kubernetes.io/instance": cluster.metadata.name}
    kinds = ("Pod", *OWNED, *KEPT)
    lists, works = await asyncio.gather(
        asyncio.gather(*(kube.list(kind, namespace, ours) for kind in kinds)),
        asyncio.gather(*(kube.list(kind, namespace) for kind in WORKS)),
    )
    found = dict(zip(kinds, lists, strict=True))
    mine_of = [[each for each in listed if each["spec"].get("cluster") == cluster.metadata.name] for listed in works]
    backups, restores, schedules = mine_of
    pods = [each for each in found.pop("Pod") if _label(each, "data-center", GROUP) == cluster.data_center]
    objects = {(kind, each["metadata"]["name"]): each for kind, listed in found.items() for each in listed}
    standing = objects.get(("StatefulSet", names.masters))
    count = max(cluster.own_peer.masters, int(standing["spec"].get("replicas", 0)) if standing else 0)
    nodes = [f"{cluster.data_center}-{index}" for index in range(1, count + 1)]
    mine = _pods(pods, of_masters.COMPONENT)
    masters = {node: pod for node in nodes if (pod := mine.get(names.master_pod(index_of(node)))) is not None}
    urls = {node: _url(scheme(cluster), pod.ip) for node, pod in masters.items() if pod.ip}
    secured = scheme(cluster) == "https"
    hosts = {url: names.master_host(index_of(node)) for node, url in urls.items()} if secured else {}
    access = access.knowing(hosts)
    answers = await ask_all(urls, access)
    heard = {node: answers.get(node) for node in nodes}
    return Observation(
        now=clock(),
        objects=objects,
        pods=masters,
        workers=_pods(pods, of_workers.COMPONENT),
        pipeline=_pods(pods, of_pipeline.COMPONENT, "job-name"),
        executors=_pods(pods, of_executors.COMPONENT),
        masters=heard,
        urls=urls,
        works=(*backups, *restores),
        schedules=tuple(schedules),
        jobs={**_pods(pods, of_jobs.COMPONENT, "job-name"), **_pods(pods, of_jobs.DUTY, "job-name")},
        listeners=await _listeners(cluster, masters, heard, urls, access),
        names=hosts,
    )


def _url(how: str, ip: str) -> str:
    return f"{how}://{f'[{ip}]' if ':' in ip else ip}:{MASTER_PORT}"


async def _listeners(
    cluster: TxLogCluster,
    pods: Mapping[str, Pod],
    heard: Mapping[str, Heard | None],
    urls: Mapping[str, str],
    access: Access,
) -> dict[str, tuple[str, Heard | None]]:
    """All masters, while somebody is gone for certain and not back: they may wait for it."""
    gone = [end for pod in pods.values() for end in pod.ended if not _is_back(heard.get(end.node), end)]
    if not gone:
        return {}
    others = {
        node: url
        for peer in cluster.spec.peers
        if peer.name != cluster.data_center
        for index, node in enumerate(peer.nodes, 1)
        if (url := door_url(cluster, peer, index)) is not None
    }
    answers = await ask_all(others, access)
    found = {node: (url, heard[node]) for node, url in urls.items()}
    return found | {node: (url, answers[node]) for node, url in others.items()}


def _is_back(heard: Heard | None, ended: Ended) -> bool:
    return heard is not None and (heard.birth != ended.birth or heard.status.start > ended.start)


# -- masters


async def ask_all(urls: Mapping[str, str], access: Access) -> dict[str, Heard | None]:
    """By node id. None for one that does not answer, or answers as another one."""
    answers = await asyncio.gather(*(asyncio.to_thread(ask, url, access) for url in urls.values()))
    return {
        node: answer if answer is not None and answer.status.node == node else None
        for node, answer in zip(urls, answers, strict=True)
    }


def ask(url: str, access: Access) -> Heard | None:
    with access.client(url, ANSWER_S, CONNECT_S) as client:
        try:
            status = client.status()
        except TxLogError:
            return None
        # One that is being mended answers nothing else.
        return Heard(
            status=status,
            duties=tuple(_or(client.duties, [])),
            peers=tuple(_or(client.peers, [])),
            settings={one["key"]: one["value"] for one in _or(client.settings, NOTHING).get("settings", [])},
            configuration=_configuration(client),
        )


def _configuration(client: MasterClient) -> dict[str, Any] | None:
    try:
        return client.configuration()
    except (Conflict, TxLogError):
        return None


def _or(ask_it: Callable[[], T], otherwise: T) -> T:
    try:
        return ask_it()
    except TxLogError:
        return otherwise


# -- pods


def _label(found: Object, name: str, group: str = "app.kubernetes.io") -> str | None:
    label: str | None = found["metadata"].get("labels", {}).get(f"{group}/{name}")
    return label


def _pods(found: list[Object], component: str, by: str = "") -> dict[str, Pod]:
    """By name, or by that label."""
    chosen = [each for each in found if _label(each, "component") == component]
    return {
        (each["metadata"]["labels"].get(by, "") if by else each["metadata"]["name"]): pod_of(each) for each in chosen
    }


def pod_of(found: Object) -> Pod:
    """The first container is the one that counts: there is no other."""
    meta, status = found["metadata"], found.get("status", {})
    first: Object = next(iter(status.get("containerStatuses", [])), {})
    now, before = first.get("state", {}), first.get("lastState", {})
    ends = [each["terminated"] for each in (now, before) if "terminated" in each]
    conditions = {each["type"]: each for each in status.get("conditions", [])}
    stuck = [each for each in (conditions.get("PodScheduled"),) if each is not None and each["status"] == "False"]
    waiting = now.get("waiting", {}).get("reason", "")
    return Pod(
        name=meta["name"],
        uid=meta["uid"],
        ip=status.get("podIP", ""),
        revision=meta.get("labels", {}).get("controller-revision-hash", ""),
        ready=conditions.get("Ready", {}).get("status") == "True",
        running="running" in now,
        leaving="deletionTimestamp" in meta,
        waiting=stuck[0].get("message", "not scheduled") if stuck else waiting,
        restarts=int(first.get("restartCount", 0)),
        ended=tuple(filter(None, map(ended_of, ends))),
        said=next((str(each.get("message", "")) for each in ends), ""),
    )


def ended_of(terminated: Mapping[str, Any]) -> Ended | None:
    """None when the container did not get so far as to say which process it was."""
    try:
        told = json.loads(str(terminated.get("message", "")).strip().splitlines()[0])
        return Ended(str(told["node"]), str(told["birth"]), int(told["start"]), int(terminated["exitCode"]))
    except (ValueError, KeyError, TypeError, IndexError):
        return None
