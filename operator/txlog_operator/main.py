"""``python -m txlog_operator``: forwards events of Kubernetes to the reconcilers. Every kopf decorator is in this file.

kopf only watches. It writes nothing into the resources, so that their deletion never waits for the operator.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import kopf
from prometheus_client import start_http_server

from txlog.supervision.retry_delay import next_delay_s
from txlog.telemetry.json_log import install_json_log
from txlog_operator.kube_client import RESOURCES, SERVICE_ACCOUNT_FOLDER, ApiEndpoint, ApiError, KubeClient
from txlog_operator.kubernetes_events import KubernetesEvent
from txlog_operator.leadership import LeaderElection, LeadershipLost
from txlog_operator.metrics import OperatorMetrics
from txlog_operator.object_cache import CachedKubeClient
from txlog_operator.object_names import GROUP
from txlog_operator.observe import JOB_RESOURCE_KINDS
from txlog_operator.reconcile_traces import ReconcileTraces
from txlog_operator.reconciler import OperatorSettings, Reconciler
from txlog_operator.specs import BuildContext, KubeObject

log = logging.getLogger("txlog_operator")

API_VERSION: Final = "v1alpha1"
GROUP_VERSION: Final = f"{GROUP}/{API_VERSION}"
START_RETRY_S: Final = 5.0
"""Between two looks whether the API server serves the definitions."""
IDLE_MAX_S: Final = 120.0
"""The operator counts as hanging when no reconcile has ended for so many seconds."""
WATCH_TIMEOUT_S: Final = 300
KOPF_RETRY_S: Final = (1.0, 30.0)
"""Between two attempts of a request of kopf: at first, and at most."""
CONNECT_TIMEOUT_S: Final = 10.0
MASTER_REQUESTS_MAX: Final = 64
"""Requests to masters at the same time, each in a thread. Those of a silent master take seconds, and a change of the
configuration half a minute: with Python's few threads, a handful of such clusters would stop all others."""
LEADERSHIP_LOST_EXIT_CODE: Final = 75
"""Of ``sysexits.h``: a failure that passes."""


class Operator:
    """All reconcilers of the namespaces that the operator manages."""

    def __init__(self, place: ApiEndpoint, settings: OperatorSettings, election: LeaderElection | None = None) -> None:
        """``election``: among several operators; without one, this operator acts at once."""
        self._endpoint = place
        self._settings = settings
        self._election = election
        self._election_task: asyncio.Task[None] | None = None
        self._leads = election is None
        self._kube: KubeClient | None = None
        self._reconcilers: dict[tuple[str, str], tuple[Reconciler, asyncio.Task[None]]] = {}
        self._generations: dict[tuple[str, str], int] = {}
        self._posting: set[asyncio.Task[KubeObject]] = set()
        self.metrics = OperatorMetrics()
        self._traces = ReconcileTraces(socket.gethostname())

    async def start(self) -> None:
        """Opens the client of the API server. ``kopf.TemporaryError`` while that does not serve TxLog's resources: kopf
        looks for them once, and would never see those that come later."""
        if self._kube is None:
            reserve_threads(asyncio.get_running_loop())
            self._kube = CachedKubeClient(self._endpoint, self.metrics.observe_request, self.on_object_changed)
        wanted = {kind for kind, each in RESOURCES.items() if each.group_version == GROUP_VERSION}
        try:
            missing = wanted - await self._kube.served_kinds(GROUP_VERSION)
        except ApiError as error:
            raise kopf.TemporaryError(f"the API server does not answer: {error}", delay=START_RETRY_S) from None
        if missing:
            text = f"the API server serves no {', '.join(sorted(missing))}: install the definitions (crds.install)"
            raise kopf.TemporaryError(text, delay=START_RETRY_S)
        self.metrics.leader.set(self._leads)
        if self._election is not None and self._election_task is None:
            self._election_task = asyncio.get_running_loop().create_task(self._elect(self._kube, self._election))

    async def _elect(self, kube: KubeClient, election: LeaderElection) -> None:
        """Ends the process when leadership is lost, as other operators may act now."""
        try:
            await election.run(kube, self.lead)
        except LeadershipLost as lost:
            log.error("%s: this operator ends, and starts again as a standby", lost)
            end_process(LEADERSHIP_LOST_EXIT_CODE)

    def lead(self) -> None:
        """Starts the reconcilers of all clusters that are known so far."""
        self._leads = True
        self.metrics.leader.set(True)
        self.metrics.last_reconcile_at = time.monotonic()
        for namespace, name in list(self._generations):
            self._start_reconciler(namespace, name)

    async def stop(self) -> None:
        """Cancels all reconcilers, waits for them, gives leadership up, and closes the client."""
        tasks: list[asyncio.Task[Any]] = [task for _, task in self._reconcilers.values()]
        tasks += self._posting
        if self._election_task is not None:
            tasks.append(self._election_task)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await asyncio.to_thread(self._traces.close)
        if self._kube is not None:
            if self._election is not None:
                await self._election.release(self._kube)
            await self._kube.close()

    @property
    def request_count(self) -> int:
        """All requests of this operator but kopf's; 0 before :meth:`start`."""
        return self._kube.request_count if self._kube is not None else 0

    @property
    def write_count(self) -> int:
        """Requests of this operator that changed an object, or could have; 0 before :meth:`start`."""
        return self._kube.write_count if self._kube is not None else 0

    def on_changed(self, namespace: str, name: str, generation: int) -> None:
        """A cluster was created or changed. An update of the status alone comes from the reconciler and wakes nothing:
        the reconciler would never sleep while the log grows."""
        key = (namespace, name)
        if self._leads and key not in self._reconcilers:
            self._start_reconciler(namespace, name)
        elif self._generations.get(key) != generation:
            self.wake(namespace, name)
        self._generations[key] = generation

    def _start_reconciler(self, namespace: str, name: str) -> None:
        assert self._kube is not None, "started before anything is watched"
        if not self._reconcilers:
            self.metrics.last_reconcile_at = time.monotonic()  # there was nothing to reconcile before
        reconciler = Reconciler(self._kube, namespace, name, self._settings, self.metrics, traces=self._traces)
        task = asyncio.get_running_loop().create_task(reconciler.run(), name=f"{namespace}/{name}")
        self._reconcilers[namespace, name] = (reconciler, task)

    def on_deleted(self, namespace: str, name: str) -> None:
        """Stops the reconciler of a deleted cluster and drops its metrics."""
        self._generations.pop((namespace, name), None)
        entry = self._reconcilers.pop((namespace, name), None)
        if entry is not None:
            entry[1].cancel()
            self.metrics.forget(namespace, name)
            self._traces.forget(namespace, name)

    def on_object_changed(self, kind: str, found: KubeObject, before: KubeObject | None) -> None:
        """Another client created, changed or removed an object: wakes the cluster to which it belongs."""
        meta = found["metadata"]
        if kind == "TxLogCluster":
            if before is None or before["metadata"].get("generation") != meta.get("generation"):
                self.wake(meta["namespace"], meta["name"])
            return
        label = (meta.get("labels") or {}).get("app.kubernetes.io/instance", "")
        cluster = found.get("spec", {}).get("cluster") or label
        self.wake(meta["namespace"], cluster)
        if kind in JOB_RESOURCE_KINDS and before is None and (meta["namespace"], cluster) not in self._generations:
            text = f"there is no TxLogCluster {cluster} in this namespace: nothing is done until there is one"
            self._post(KubernetesEvent("Warning", "NoSuchCluster", text).to_object(found, time.time()))

    def _post(self, event: KubeObject) -> None:
        """Creates an Event about a resource that belongs to no cluster, so that no reconciler tells of it."""
        assert self._kube is not None, "started before anything is watched"
        task = asyncio.get_running_loop().create_task(self._kube.create(event))
        self._posting.add(task)
        task.add_done_callback(self._end_post)

    def _end_post(self, task: asyncio.Task[KubeObject]) -> None:
        self._posting.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.warning("an Event was not taken: %s", task.exception())

    def wake(self, namespace: str, name: str) -> None:
        """Makes the reconciler of this cluster run now; does nothing for an unknown cluster."""
        entry = self._reconcilers.get((namespace, name))
        if entry is not None:
            entry[0].wake()

    def reconcile_count(self, namespace: str, name: str) -> int:
        """Number of reconciles of this cluster so far."""
        entry = self._reconcilers.get((namespace, name))
        return entry[0].reconcile_count if entry is not None else 0

    def idle_s(self) -> float:
        """Seconds since the last reconcile ended; 0 while there is no cluster."""
        return time.monotonic() - self.metrics.last_reconcile_at if self._reconcilers else 0.0


def reserve_threads(loop: asyncio.AbstractEventLoop) -> None:
    """Lets the event loop wait for :data:`MASTER_REQUESTS_MAX` masters at the same time."""
    loop.set_default_executor(ThreadPoolExecutor(MASTER_REQUESTS_MAX, "master-request"))


def end_process(code: int) -> None:
    """Ends at once: what runs now must not go on while another operator acts."""
    logging.shutdown()
    os._exit(code)


def build_registry(operator: Operator, place: ApiEndpoint) -> kopf.OperatorRegistry:
    """The handlers that kopf calls. Each handler is one line."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return await connection_info(place)

    @kopf.on.startup(registry=registry)
    async def startup(settings: kopf.OperatorSettings, **_: Any) -> None:
        configure(settings)
        await operator.start()

    @kopf.on.cleanup(registry=registry)
    async def cleanup(**_: Any) -> None:
        await operator.stop()

    @kopf.on.event(GROUP, API_VERSION, "txlogclusters", registry=registry, id="cluster")
    async def cluster(**event: Any) -> None:
        handle_cluster_event(operator, **event)

    # A probe that is retried instead would keep all others waiting.
    @kopf.on.probe(registry=registry, id="still", errors=kopf.ErrorsMode.PERMANENT)
    def probe(**_: Any) -> str:
        return check_liveness(operator)

    return registry


def handle_cluster_event(operator: Operator, **event: Any) -> None:
    """Handles one watch event of a TxLogCluster."""
    if event["type"] == "DELETED":
        operator.on_deleted(event["namespace"], event["name"])
    else:
        operator.on_changed(event["namespace"], event["name"], event["meta"].get("generation", 0))


def check_liveness(operator: Operator) -> str:
    """For kopf's liveness endpoint, which fails when this raises."""
    still = operator.idle_s()
    if still > IDLE_MAX_S:
        raise RuntimeError(f"no turn has ended for {still:.0f} s")
    return f"{still:.1f} s since the last turn"


async def connection_info(place: ApiEndpoint) -> kopf.ConnectionInfo:
    """The endpoint as kopf needs it. kopf asks again when the API server rejects the token."""
    scheme, _, token = (await place.authorization() or "").partition(" ")
    return kopf.ConnectionInfo(
        server=place.server,
        ca_path=place.configuration.ssl_ca_cert,
        insecure=not place.configuration.verify_ssl,
        scheme=scheme or None,
        token=token or None,
        certificate_path=place.configuration.cert_file,
        private_key_path=place.configuration.key_file,
    )


class EndlessDelays:
    """Seconds between the attempts of kopf's requests, without an end. With one, a namespace that was deleted, or whose
    Role is missing, would end the operator for all other namespaces."""

    def __iter__(self) -> Iterator[float]:
        delay_s = 0.0
        while True:
            delay_s = next_delay_s(delay_s, KOPF_RETRY_S)
            yield delay_s


def configure(settings: kopf.OperatorSettings) -> None:
    """kopf's settings: it posts no events, needs no peering, and has bounded watches."""
    settings.posting.enabled = False
    settings.scanning.disabled = (
        True  # kopf lists neither CRDs nor namespaces: the operator has no rights outside of its namespaces
    )
    settings.peering.standalone = True
    settings.watching.server_timeout = WATCH_TIMEOUT_S
    settings.watching.client_timeout = WATCH_TIMEOUT_S + CONNECT_TIMEOUT_S
    settings.watching.connect_timeout = CONNECT_TIMEOUT_S
    settings.networking.request_timeout = WATCH_TIMEOUT_S
    settings.networking.error_backoffs = EndlessDelays()


def main(arguments: list[str] | None = None) -> None:
    """Parses the arguments and runs the operator until it is terminated."""
    parser = argparse.ArgumentParser(prog="python -m txlog_operator", description="The TxLog operator.")
    parser.add_argument("--namespace", action="append", help="to look after; default: the pod's own")
    parser.add_argument("--image", default=os.environ.get("TXLOG_IMAGE"), help="of what it makes; default: TXLOG_IMAGE")
    parser.add_argument("--pull-policy", default=os.environ.get("TXLOG_PULL_POLICY", "IfNotPresent"))
    parser.add_argument("--pipeline-account", help="of Spark's driver where executors are pods; none: they are refused")
    parser.add_argument("--platform-ids", action="store_true", help="pods name no user and no group: the platform does")
    parser.add_argument("--lease", help="name of the Lease by which one of several operators is chosen; none: it acts")
    parser.add_argument("--lease-namespace", help="default: the pod's own")
    parser.add_argument("--ip-family", choices=("IPv4", "IPv6"), default="IPv4", help="in which pods listen")
    parser.add_argument("--liveness", help="URL of the liveness endpoint; default: port 8080 of every address")
    parser.add_argument("--metrics-port", type=int, default=9100, help="0: none")
    options = parser.parse_args(arguments)
    install_json_log("operator")
    for busy in ("kopf", "aiohttp.access"):
        logging.getLogger(busy).setLevel(logging.WARNING)
    if not options.image:
        parser.error("which image? --image, or TXLOG_IMAGE")
    namespaces = options.namespace or [_pod_namespace(parser)]
    place = asyncio.run(ApiEndpoint.find())
    build = BuildContext(
        options.image,
        options.pull_policy,
        pipeline_account=options.pipeline_account,
        ip_family=options.ip_family,
        platform_ids=options.platform_ids,
    )
    host = "::" if options.ip_family == "IPv6" else "0.0.0.0"
    election = None
    if options.lease:
        identity = f"{socket.gethostname()}_{uuid4()}"
        election = LeaderElection(options.lease_namespace or _pod_namespace(parser), options.lease, identity)
    operator = Operator(place, OperatorSettings(build), election)
    if options.metrics_port:
        start_http_server(options.metrics_port, addr=host, registry=operator.metrics.registry)
    kopf.run(
        registry=build_registry(operator, place),
        standalone=True,
        namespaces=namespaces,
        liveness_endpoint=options.liveness or f"http://{f'[{host}]' if ':' in host else host}:8080/healthz",
    )


def _pod_namespace(parser: argparse.ArgumentParser) -> str:
    file: Path = SERVICE_ACCOUNT_FOLDER / "namespace"
    if not file.exists():
        parser.error("which namespace? --namespace (this is no pod)")
    return file.read_text().strip()
