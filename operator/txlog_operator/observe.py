"""Observes a data centre: its objects in Kubernetes, and the reports of its masters. A time-out is a value, no
error."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from txlog.config.cluster import TxLogCluster
from txlog.model.errors import TxLogError
from txlog.supervision.membership import node_index
from txlog_operator.cluster_secrets import MasterAccess
from txlog_operator.job_attempts import has_ended, parse_time
from txlog_operator.kube_client import KubeClient
from txlog_operator.object_names import GROUP, ObjectNames
from txlog_operator.observation import ClusterObservation, ObservedMaster, PodStatus, TerminatedProcess
from txlog_operator.plan import OWNED_KINDS
from txlog_operator.specs import executors as of_executors
from txlog_operator.specs import jobs as of_jobs
from txlog_operator.specs import masters as of_masters
from txlog_operator.specs import pipeline as of_pipeline
from txlog_operator.specs import workers as of_workers
from txlog_operator.specs.common import MASTER_PORT, KubeObject, remote_master_url, url_scheme

REQUEST_TIMEOUT_S: Final = 2.0
CONNECT_TIMEOUT_S: Final = 1.0
JOB_RESOURCE_KINDS: Final = ("TxLogBackup", "TxLogRestore", "TxLogRehearsal", "TxLogBackupSchedule")
LASTING_KINDS: Final = ("PersistentVolumeClaim",)
"""Kinds whose content outlives the cluster. It deletes claims of masters and stores that have left alone."""
WARNINGS_READ_S: Final = 5.0
"""A Job without a running pod has warnings worth reading after so many seconds."""
MASTER_DIGITS: Final = 2
"""Of the highest number of a master: a cluster has at most 64."""
NO_SETTINGS: Final[dict[str, Any]] = {}
T = TypeVar("T")


async def observe(
    kube: KubeClient, cluster: TxLogCluster, access: MasterAccess, clock: Callable[[], float] = time.time
) -> ClusterObservation:
    """Reads everything concurrently; ``access`` holds the credentials for the masters.
    :class:`~txlog_operator.kube_client.ApiError` when the API server cannot be reached: without it the operator cannot
    act either."""
    names, namespace = ObjectNames(cluster), cluster.metadata.namespace
    ours = {"app.kubernetes.io/name": "txlog", "app.kubernetes.io/instance": cluster.metadata.name}
    kinds = ("Pod", *OWNED_KINDS, *LASTING_KINDS)
    lists, resources = await asyncio.gather(
        asyncio.gather(*(kube.list(kind, namespace, ours) for kind in kinds)),
        asyncio.gather(*(kube.list(kind, namespace) for kind in JOB_RESOURCE_KINDS)),
    )
    found = dict(zip(kinds, lists, strict=True))
    backups, restores, rehearsals, schedules = (
        [each for each in listed if each["spec"].get("cluster") == cluster.metadata.name] for listed in resources
    )
    all_pods = found.pop("Pod")
    pods = [each for each in all_pods if _label_of(each, "data-center", GROUP) == cluster.data_center]
    objects = {(kind, each["metadata"]["name"]): each for kind, listed in found.items() for each in listed}
    stateful_set = objects.get(("StatefulSet", names.masters))
    mine = _pods_by_name(pods, of_masters.COMPONENT)
    count = observed_master_count(cluster, stateful_set, mine)
    nodes = [f"{cluster.data_center}-{index}" for index in range(1, count + 1)]
    masters = {node: pod for node in nodes if (pod := mine.get(names.master_pod(node_index(node)))) is not None}
    urls = {node: _master_url(url_scheme(cluster), pod.ip) for node, pod in masters.items() if pod.ip}
    secured = url_scheme(cluster) == "https"
    hosts = {url: names.master_host(node_index(node)) for node, url in urls.items()} if secured else {}
    access = access.with_hosts(hosts)
    answers = await query_masters(urls, access)
    reports = {node: answers.get(node) for node in nodes}
    now, job_pods = clock(), _pods_by_name(pods, of_jobs.COMPONENT, "job-name")
    job_pods |= _pods_by_name(pods, of_jobs.DUTY_COMPONENT, "job-name")
    return ClusterObservation(
        now=now,
        objects=objects,
        master_pods=masters,
        worker_pods=_pods_by_name(pods, of_workers.COMPONENT),
        pipeline_pods=_pods_by_name(pods, of_pipeline.COMPONENT, "job-name"),
        executor_pods=_pods_by_name(pods, of_executors.COMPONENT),
        masters=reports,
        urls=urls,
        job_resources=(*backups, *restores, *rehearsals),
        schedules=tuple(schedules),
        job_pods=job_pods,
        job_problems=await _job_problems(kube, namespace, found["Job"], job_pods, now),
        pod_names=frozenset(each["metadata"]["name"] for each in pods),
        masters_to_notify=await _masters_to_notify(cluster, masters, reports, urls, access),
        tls_hosts=hosts,
    )


def observed_master_count(cluster: TxLogCluster, stateful_set: KubeObject | None, pods: Iterable[str]) -> int:
    """How many masters to look for: those of the manifest, and those that run besides. ``pods``: names of masters'
    pods, which run on while their StatefulSet is being replaced."""
    wanted, prefix = cluster.own_peer.masters, f"{ObjectNames(cluster).masters}-"
    if stateful_set is not None:
        return max(wanted, int(stateful_set["spec"].get("replicas", 0)))
    numbers = [name.removeprefix(prefix) for name in pods if name.startswith(prefix)]
    return max([wanted, *(int(number) for number in numbers if number.isdecimal() and len(number) <= MASTER_DIGITS)])


async def _job_problems(
    kube: KubeClient, namespace: str, found: list[KubeObject], pods: Mapping[str, PodStatus], now: float
) -> dict[str, str]:
    """The last warning about each Job of a backup or duty whose pod does not run. There are few such Jobs at a time, so
    the Events are read then, and not watched."""
    problems: dict[str, str] = {}
    for job in found:
        name, created = job["metadata"]["name"], job["metadata"].get("creationTimestamp")
        ours = _label_of(job, "component") in (of_jobs.COMPONENT, of_jobs.DUTY_COMPONENT)
        pod = pods.get(name)
        runs = pod is not None and (pod.running or pod.ended)
        if not ours or has_ended(job) or runs or created is None or now - parse_time(created) < WARNINGS_READ_S:
            continue
        about = pod.name if pod is not None else name
        events = await kube.list("Event", namespace, fields=f"involvedObject.name={about},type=Warning")
        if events:
            problems[name] = str(max(events, key=_event_time).get("message", ""))
    return problems


def _event_time(event: KubeObject) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or "")


def _master_url(how: str, ip: str) -> str:
    return f"{how}://{f'[{ip}]' if ':' in ip else ip}:{MASTER_PORT}"


async def _masters_to_notify(
    cluster: TxLogCluster,
    pods: Mapping[str, PodStatus],
    reports: Mapping[str, ObservedMaster | None],
    urls: Mapping[str, str],
    access: MasterAccess,
) -> dict[str, tuple[str, ObservedMaster | None]]:
    """All masters, while a process is certainly gone and has no successor: they may still wait for it."""
    ended = [end for pod in pods.values() for end in pod.terminated_processes]
    gone = [end for end in ended if not _has_restarted(reports.get(end.node), end)]
    if not gone:
        return {}
    others = {
        node: url
        for peer in cluster.spec.peers
        if peer.name != cluster.data_center
        for index, node in enumerate(peer.nodes, 1)
        if (url := remote_master_url(cluster, peer, index)) is not None
    }
    answers = await query_masters(others, access)
    found = {node: (url, reports[node]) for node, url in urls.items()}
    return found | {node: (url, answers[node]) for node, url in others.items()}


def _has_restarted(master: ObservedMaster | None, ended: TerminatedProcess) -> bool:
    return master is not None and (master.birth != ended.birth or master.status.start > ended.start)


# -- masters


async def query_masters(urls: Mapping[str, str], access: MasterAccess) -> dict[str, ObservedMaster | None]:
    """The masters' reports by node id. None for a master that does not answer, or answers with another node id."""
    answers = await asyncio.gather(*(asyncio.to_thread(query_master, url, access) for url in urls.values()))
    return {
        node: answer if answer is not None and answer.status.node == node else None
        for node, answer in zip(urls, answers, strict=True)
    }


def query_master(url: str, access: MasterAccess) -> ObservedMaster | None:
    """The report of the master at ``url``; None when it does not answer."""
    with access.client(url, REQUEST_TIMEOUT_S, CONNECT_TIMEOUT_S) as client:
        try:
            status = client.status()
        except TxLogError:
            return None
        # A master that repairs its journal answers no other request.
        configuration: dict[str, Any] | None = _or_default(client.configuration, None)
        has_rules = configuration is not None and bool(configuration.get("graphs"))
        return ObservedMaster(
            status=status,
            duties=tuple(_or_default(client.duties, [])),
            peers=tuple(_or_default(client.peers, [])),
            settings={
                one["key"]: one["value"] for one in _or_default(client.settings, NO_SETTINGS).get("settings", [])
            },
            configuration=configuration,
            synchro=_or_default(client.synchro, None) if has_rules else None,
        )


def _or_default(ask_it: Callable[[], T], otherwise: T) -> T:
    try:
        return ask_it()
    except TxLogError:
        return otherwise


# -- pods


def _label_of(found: KubeObject, name: str, group: str = "app.kubernetes.io") -> str | None:
    label: str | None = found["metadata"].get("labels", {}).get(f"{group}/{name}")
    return label


def _pods_by_name(found: list[KubeObject], component: str, by: str = "") -> dict[str, PodStatus]:
    """Pods by name, or by the value of that label: the newest, if there are several, as after a drain."""
    chosen = sorted(
        (each for each in found if _label_of(each, "component") == component),
        key=lambda each: str(each["metadata"].get("creationTimestamp", "")),
    )
    return {
        (each["metadata"]["labels"].get(by, "") if by else each["metadata"]["name"]): parse_pod(each) for each in chosen
    }


def parse_pod(found: KubeObject) -> PodStatus:
    """The status of a pod, from the container that has the name of its component. A webhook may have added others,
    and kubelets report containers by name."""
    meta, status = found["metadata"], found.get("status", {})
    containers = status.get("containerStatuses") or [{}]
    own = (_label_of(found, "component"), of_executors.CONTAINER_NAME)
    first: KubeObject = next((each for each in containers if each.get("name") in own), containers[0])
    now, before = first.get("state", {}), first.get("lastState", {})
    ends = [each["terminated"] for each in (now, before) if "terminated" in each]
    conditions = {each["type"]: each for each in status.get("conditions", [])}
    stuck = [each for each in (conditions.get("PodScheduled"),) if each is not None and each["status"] == "False"]
    waiting = now.get("waiting", {}).get("reason", "")
    return PodStatus(
        name=meta["name"],
        uid=meta["uid"],
        ip=status.get("podIP", ""),
        revision=meta.get("labels", {}).get("controller-revision-hash", ""),
        ready=conditions.get("Ready", {}).get("status") == "True",
        running="running" in now,
        terminating="deletionTimestamp" in meta,
        waiting_reason=stuck[0].get("message", "not scheduled") if stuck else waiting,
        restarts=int(first.get("restartCount", 0)),
        terminated_processes=tuple(filter(None, map(parse_terminated_process, ends))),
        ended="terminated" in now,
        termination_message=next((str(each.get("message", "")) for each in ends), ""),
    )


def parse_terminated_process(terminated: Mapping[str, Any]) -> TerminatedProcess | None:
    """The process that ended; None when the container ended before it wrote its identity."""
    try:
        own = json.loads(str(terminated.get("message", "")).strip().splitlines()[0])
        return TerminatedProcess(str(own["node"]), str(own["birth"]), int(own["start"]), int(terminated["exitCode"]))
    except (ValueError, KeyError, TypeError, IndexError):
        return None
