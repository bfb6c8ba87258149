"""A data centre as a test sees it: kubectl, the Service that clients use, masters and stores by their pods."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from e2e.cluster.api_client import ApiServerClient
from e2e.cluster.data_center import DataCenter
from e2e.cluster.layout import ClusterUnavailable
from e2e.cluster.node import run_command
from e2e.lib.load.requests import csv_rows, http_get, write_one
from txlog.apply import Digest, digest
from txlog.client import MasterClient, StatusResponse
from txlog.model.errors import TxLogError
from txlog.workers import ADAPTERS
from txlog.workers.http_transport import HttpTransport

NAMESPACE: Final = "graphs"
NAME: Final = "catalogue"
MASTER_PORT: Final = 7300
WORKER_PORT: Final = 7878
LOOK_S: Final = 0.2
AT_ONCE: Final = ("--grace-period=0", "--force", "--wait=false")
"""How a pod is deleted that is to be gone as if its node had forgotten it."""
T = TypeVar("T")


class ConditionTimeout(AssertionError):
    """Something did not become so in time; says what was seen last."""


def wait_until(what: str, seconds: float, look: Callable[[], T]) -> T:
    """The first true answer. What a look raises (nobody answers yet, not there yet) counts as *not yet*."""
    deadline = time.monotonic() + seconds
    while True:
        seen: object = None
        try:
            found = look()
            if found:
                return found
            seen = found
        except (TxLogError, ClusterUnavailable, KeyError, IndexError, StopIteration) as not_now:
            seen = not_now
        if time.monotonic() >= deadline:
            raise ConditionTimeout(f"{what}: not within {seconds:g} s; last: {seen!r}")
        time.sleep(LOOK_S)


def _stays(pod: dict[str, Any]) -> bool:
    return "deletionTimestamp" not in pod["metadata"]


class DataCenterAccess:
    """One data centre of the TxLog cluster ``catalogue``."""

    def __init__(self, center: DataCenter) -> None:
        self.center = center
        self.name = center.site.name
        self.api = ApiServerClient(center.site)

    # -- Kubernetes

    def kubectl(self, *arguments: str, input_text: str | None = None, check: bool = True) -> str:
        """In the namespace of the cluster."""
        return self.center.kubectl("-n", NAMESPACE, *arguments, input_text=input_text, check=check)

    def helm(self, *arguments: str) -> str:
        program = str(self.center.programs / "helm")
        return run_command(program, "--kubeconfig", str(self.center.site.kubeconfig), "-n", NAMESPACE, *arguments)

    def resource(self) -> dict[str, Any]:
        """The TxLogCluster as it stands."""
        return self.api.get(f"/apis/txlog.io/v1alpha1/namespaces/{NAMESPACE}/txlogclusters/{NAME}")

    def pod(self, name: str) -> dict[str, Any]:
        return self.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods/{name}")

    def pods(self, component: str) -> dict[str, dict[str, Any]]:
        """By name."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app.kubernetes.io/component={component}"
        return {pod["metadata"]["name"]: pod for pod in self.api.items(path)}

    def ready(self, component: str) -> list[str]:
        """Names of the pods that say so."""
        return [
            name
            for name, pod in self.pods(component).items()
            if _stays(pod)
            and any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))
        ]

    def crash(self, pod: str) -> None:
        """kill -9 of what runs in its container."""
        uid = self.pod(pod)["metadata"]["uid"]
        killed = 0
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if uid in (process / "cgroup").read_text() and b"/pause" not in (process / "cmdline").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)
                    killed += 1
        assert killed, f"nothing runs in {pod}"

    def execute(self, pod: str, *command: str) -> str:
        return self.kubectl("exec", pod, "--", *command)

    def operator(self) -> str:
        """The pod that acts; after a kill the one that takes over."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app.kubernetes.io/name=txlog-operator"
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"

        def looked() -> str:
            holders = {str(each["spec"].get("holderIdentity")).partition("_")[0] for each in self.api.items(leases)}
            names = (str(each["metadata"]["name"]) for each in self.api.items(path) if _stays(each))
            return next((name for name in names if name in holders), "")

        return wait_until(f"{self.name} has an operator", 60, looked)

    def operator_mb(self) -> float:
        """What it holds in memory."""
        told = self.execute(self.operator(), "grep", "VmRSS", "/proc/1/status").split()
        return round(int(told[1]) / 1024, 1)

    def operator_cpu_s(self) -> float:
        """Seconds of processor that it has used since it started."""
        told = self.execute(self.operator(), "cat", "/proc/1/stat").rpartition(")")[2].split()
        return (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")

    def kill_operator(self) -> None:
        """Its pod ends without a word; another one follows."""
        self.kubectl("delete", "pod", self.operator(), *AT_ONCE)

    def columns(self) -> dict[str, str]:
        """What ``kubectl get`` shows of the cluster."""
        header, row = self.kubectl("get", "txl").splitlines()
        return dict(zip(header.split(), row.split(), strict=False))

    def job_resources(self, kind: str, **spec: str) -> list[dict[str, Any]]:
        """Resources of a kind (``txlogbackups``, ``txlogrestores``) whose spec says so."""
        found = self.api.items(f"/apis/txlog.io/v1alpha1/namespaces/{NAMESPACE}/{kind}")
        return [each for each in found if spec.items() <= each["spec"].items()]

    def logs(self, pod: str) -> list[str]:
        """All that its container said since it started."""
        return self.kubectl("logs", pod).splitlines()

    # -- TxLog

    @property
    def url(self) -> str:
        """The Service that clients use."""
        service = self.api.get(f"/api/v1/namespaces/{NAMESPACE}/services/{NAME}")
        return f"http://{service['spec']['clusterIP']}:{MASTER_PORT}"

    def master(self, index: int) -> str:
        """Its URL now: a pod that is made anew has another address."""
        return f"http://{self.pod(f'{NAME}-{index}')['status']['podIP']}:{MASTER_PORT}"

    def store(self, index: int) -> str:
        return f"http://{self.pod(f'{NAME}-worker-{index}')['status']['podIP']}:{WORKER_PORT}"

    def status(self, index: int = 1) -> StatusResponse:
        with MasterClient(self.master(index), 5.0) as master:
            return master.status()

    def write(self, update: str, level: str = "applied") -> str:
        """Through the Service; its transaction's id."""
        return write_one(self.url, NAME, update, level)["txlog-transaction"]

    def read(self, query: str) -> list[list[str]]:
        """Through the Service."""
        return csv_rows(http_get(self.url, f"/repositories/{NAME}?{urlencode({'query': query})}", "text/csv", 30.0))

    def digest(self, index: int = 1) -> Digest:
        """Of all that a store holds."""
        adapter = ADAPTERS["oxigraph"]
        with HttpTransport(self.store(index), 60.0) as transport, transport.stream(adapter.snapshot()) as answer:
            assert answer.status == 200, answer.status
            return digest(answer.chunks)

    def workers(self) -> range:
        """Indices of its stores."""
        return range(1, len(self.pods("worker")) + 1)

    def position(self, index: int = 1) -> int:
        """Of a store, asked of itself."""
        adapter = ADAPTERS["oxigraph"]
        with HttpTransport(self.store(index), 10.0) as transport:
            markers = adapter.parse_system_graphs(transport.send(adapter.read_system())).markers
        return max((marker.position.index for marker in markers), default=0)

    def describe(self) -> str:
        """What there is to know when a test failed."""
        found = [f"===== {self.name}", self.center.kubectl("get", "pods,pvc,jobs,txl", "-A", "-o", "wide", check=False)]
        events = ("get", "events", "--sort-by=.lastTimestamp")
        found.append("\n".join(self.kubectl(*events, check=False).splitlines()[-60:]))
        pods = json.loads(self.kubectl("get", "pods", "-o", "json", check=False) or '{"items": []}')["items"]
        for name in (pod["metadata"]["name"] for pod in pods):
            for previous in (("--previous",), ()):
                said = self.kubectl("logs", name, "--all-containers", "--tail=40", *previous, check=False)
                if said.strip():
                    found.append(f"----- {name} {' '.join(previous)}\n{said}")
        return "\n".join(found)
