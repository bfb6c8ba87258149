"""``python -m txlog.operator``: what Kubernetes tells, handed to the keepers. Every kopf decorator stands here.

kopf watches, and nothing else: it writes nothing into the resources, so that none of them waits for the operator
when it is deleted.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import time
from pathlib import Path
from typing import Any, Final

import kopf
from prometheus_client import start_http_server

from txlog.operator.keeper import Keeper, Settings
from txlog.operator.kube import IN_POD, Kube, Place
from txlog.operator.metrics import Metrics
from txlog.operator.names import GROUP

log = logging.getLogger("txlog.operator")

VERSION: Final = "v1alpha1"
OURS: Final = {"app.kubernetes.io/managed-by": "txlog-operator"}
STILL_S: Final = 120.0
"""Without the end of a turn for so long, something hangs."""
WATCH_S: Final = 300
CONNECT_S: Final = 10.0


class Operator:
    """All keepers of the namespaces that it was given."""

    def __init__(self, place: Place, settings: Settings) -> None:
        self._place = place
        self._settings = settings
        self._kube: Kube | None = None
        self._keepers: dict[tuple[str, str], tuple[Keeper, asyncio.Task[None]]] = {}
        self._generations: dict[tuple[str, str], int] = {}
        self.metrics = Metrics()

    async def start(self) -> None:
        self._kube = Kube(self._place)

    async def stop(self) -> None:
        tasks = [task for _, task in self._keepers.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._kube is not None:
            await self._kube.close()

    @property
    def writes(self) -> int:
        return self._kube.writes if self._kube is not None else 0

    def seen(self, namespace: str, name: str, generation: int) -> None:
        """A cluster is there, or has changed. A new status alone, which is the keeper's own, wakes nobody: it would
        never sleep while the log grows."""
        assert self._kube is not None, "started before anything is watched"
        key = (namespace, name)
        if key not in self._keepers:
            keeper = Keeper(self._kube, namespace, name, self._settings, self.metrics)
            task = asyncio.get_running_loop().create_task(keeper.run(), name=f"{namespace}/{name}")
            self._keepers[key] = (keeper, task)
        elif self._generations[key] != generation:
            self.wake(namespace, name)
        self._generations[key] = generation

    def gone(self, namespace: str, name: str) -> None:
        kept = self._keepers.pop((namespace, name), None)
        if kept is not None:
            kept[1].cancel()
            self.metrics.forget(namespace, name)

    def wake(self, namespace: str, name: str) -> None:
        kept = self._keepers.get((namespace, name))
        if kept is not None:
            kept[0].wake()

    def turns(self, namespace: str, name: str) -> int:
        """How many this cluster has had."""
        kept = self._keepers.get((namespace, name))
        return kept[0].turns if kept is not None else 0

    def still_s(self) -> float:
        """How long no turn has ended; 0 while there is no cluster."""
        return time.monotonic() - self.metrics.beat if self._keepers else 0.0


def registry_of(operator: Operator, place: Place) -> kopf.OperatorRegistry:
    """What kopf calls. Each handler is one line."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**_: Any) -> kopf.ConnectionInfo:
        return connection(place)

    @kopf.on.startup(registry=registry)
    async def startup(settings: kopf.OperatorSettings, **_: Any) -> None:
        configure(settings)
        await operator.start()

    @kopf.on.cleanup(registry=registry)
    async def cleanup(**_: Any) -> None:
        await operator.stop()

    @kopf.on.event(GROUP, VERSION, "txlogclusters", registry=registry, id="cluster")
    async def cluster(**told: Any) -> None:
        changed(operator, **told)

    async def work(**told: Any) -> None:
        operator.wake(told["namespace"], told["spec"].get("cluster", ""))

    for plural in ("txlogbackups", "txlogrestores", "txlogbackupschedules"):
        kopf.on.event(GROUP, VERSION, plural, registry=registry, id=plural)(work)

    async def child(**told: Any) -> None:
        operator.wake(told["namespace"], told["labels"].get("app.kubernetes.io/instance", ""))

    kopf.on.event("v1", "pods", registry=registry, id="pod", labels=OURS)(child)
    kopf.on.event("apps", "v1", "statefulsets", registry=registry, id="set", labels=OURS)(child)
    kopf.on.event("batch", "v1", "jobs", registry=registry, id="job", labels=OURS)(child)

    @kopf.on.probe(registry=registry, id="still")
    def probe(**_: Any) -> str:
        return alive(operator)

    return registry


def changed(operator: Operator, **told: Any) -> None:
    """What a watch told of a cluster."""
    if told["type"] == "DELETED":
        operator.gone(told["namespace"], told["name"])
    else:
        operator.seen(told["namespace"], told["name"], told["meta"].get("generation", 0))


def alive(operator: Operator) -> str:
    """For kopf's liveness endpoint, which fails when this raises."""
    still = operator.still_s()
    if still > STILL_S:
        raise RuntimeError(f"no turn has ended for {still:.0f} s")
    return f"{still:.1f} s since the last turn"


def connection(place: Place) -> kopf.ConnectionInfo:
    """As kopf wants it. It is asked for again when the API server takes a token no more."""
    return kopf.ConnectionInfo(
        server=place.server,
        ca_data=place.authority,
        insecure=place.insecure,
        token=place.read_token(),
        certificate_data=place.certificate,
        private_key_data=place.key,
    )


def configure(settings: kopf.OperatorSettings) -> None:
    settings.posting.enabled = False
    settings.scanning.disabled = True  # neither CRDs nor namespaces are listed: no right outside of its namespaces
    settings.peering.standalone = True
    settings.watching.server_timeout = WATCH_S
    settings.watching.client_timeout = WATCH_S + CONNECT_S
    settings.watching.connect_timeout = CONNECT_S
    settings.networking.request_timeout = WATCH_S


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m txlog.operator", description="The TxLog operator.")
    parser.add_argument("--namespace", action="append", help="to look after; default: the pod's own")
    parser.add_argument("--image", default=os.environ.get("TXLOG_IMAGE"), help="of what it makes; default: TXLOG_IMAGE")
    parser.add_argument("--pull-policy", default=os.environ.get("TXLOG_PULL_POLICY", "IfNotPresent"))
    parser.add_argument("--pipeline-account", help="of Spark's driver where executors are pods; none: they are refused")
    parser.add_argument("--liveness", default="http://0.0.0.0:8080/healthz", help="where it says that it lives")
    parser.add_argument("--metrics-port", type=int, default=9100, help="0: none")
    told = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    for busy in ("kopf", "aiohttp.access"):
        logging.getLogger(busy).setLevel(logging.WARNING)
    if not told.image:
        parser.error("which image? --image, or TXLOG_IMAGE")
    namespaces = told.namespace or [_own_namespace(parser)]
    place = Place.find()
    operator = Operator(place, Settings(told.image, told.pull_policy, pipeline_account=told.pipeline_account))
    if told.metrics_port:
        start_http_server(told.metrics_port, registry=operator.metrics.registry)
    kopf.run(
        registry=registry_of(operator, place),
        standalone=True,
        namespaces=namespaces,
        liveness_endpoint=told.liveness,
    )


def _own_namespace(parser: argparse.ArgumentParser) -> str:
    file: Path = IN_POD / "namespace"
    if not file.exists():
        parser.error("which namespace? --namespace (this is no pod)")
    return file.read_text().strip()
