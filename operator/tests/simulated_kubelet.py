"""The part of the kubelet, played: each pod of a master becomes a process on this machine, on a loopback address of its
own, and what becomes of the process is written into the pod's status. Its Secrets are folders whose files are links,
turned at once to what a changed Secret holds, as the kubelet does it; without them a pod waits."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from txlog_operator.job_attempts import format_time
from txlog_operator.kube_client import RESOURCES, ApiError, KubeClient
from txlog_operator.specs import KubeObject

PROBE_S = 10.0
"""A busy machine is no reason: who takes work is ready."""
FOLDERS = ("peer_tls_folder", "tls_folder")
FILES = ("peer_token_file", "users_file", "own_token_file")


class Container:
    """One process, and where it said who it is."""

    def __init__(self, command: list[str], said: Path, log: Path) -> None:
        self.said = said
        said.write_text("")
        with open(log, "ab") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out)
        self.began = time.time()

    def state(self) -> dict[str, Any]:
        code = self.process.poll()
        if code is None:
            return {"running": {"startedAt": format_time(self.began)}}
        message = self.said.read_text()
        end = {
            "exitCode": code if code >= 0 else 128 - code,
            "message": message,
            "finishedAt": format_time(time.time()),
        }
        return {"terminated": end}


class Kubelet:
    """Of the masters of one namespace. ``net``: their pods have the addresses ``<net>.<index>``. While ``held``, what
    ended is not started again."""

    def __init__(self, kube: KubeClient, namespace: str, folder: Path, net: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self._folder = folder
        self._net = net
        self._now: dict[str, Container] = {}
        self._before: dict[str, dict[str, Any]] = {}
        self._restarts: dict[str, int] = {}
        self._told: dict[str, Any] = {}
        self._mounted: dict[Path, str] = {}
        self.held: set[str] = set()

    def kill(self, pod: str) -> None:
        """As a crash would."""
        self._of(pod).process.kill()

    def _of(self, pod: str) -> Container:
        return next(container for uid, container in self._now.items() if uid.startswith(f"{pod}/"))

    @property
    def ready(self) -> int:
        """How many run, and took work when they were asked last."""
        running = {key for key, container in self._now.items() if container.process.poll() is None}
        return sum(self._told[key]["containerStatuses"][0]["ready"] for key in running & self._told.keys())

    async def run(self) -> None:
        while True:
            try:
                pods = await self._kube.list("Pod", self._namespace, {"app.kubernetes.io/component": "master"})
            except ApiError as error:
                _let_pass(error)
                await asyncio.sleep(0.1)
                continue
            await self._end_removed({f"{pod['metadata']['name']}/{pod['metadata']['uid']}" for pod in pods})
            for pod in pods:
                try:
                    await self._look(pod)
                except ApiError as error:
                    _let_pass(error)
            await asyncio.sleep(0.1)

    async def _end_removed(self, present: set[str]) -> None:
        """A pod on no node is removed from the API server at once, and its process ends in order all the same."""
        for key in [key for key in self._now if key not in present]:
            process = self._now.pop(key).process
            if process.poll() is None:
                process.terminate()
                await asyncio.to_thread(process.wait)

    def stop(self) -> None:
        for container in self._now.values():
            container.process.kill()
            container.process.wait()

    async def _look(self, pod: KubeObject) -> None:
        meta = pod["metadata"]
        key = f"{meta['name']}/{meta['uid']}"
        if "deletionTimestamp" in meta:
            await self._end(pod, key)
            return
        if not await self._mount(pod):
            return
        last = self._now.get(key)
        if last is None or (last.process.poll() is not None and meta["name"] not in self.held):
            started = await self._start(pod)
            if started is not None:
                self._now[key] = started
                if last is not None:
                    self._before[key] = last.state()
                    self._restarts[key] = self._restarts.get(key, 0) + 1
        if key in self._now:
            await self._say(pod, key)

    async def _end(self, pod: KubeObject, key: str) -> None:
        container = self._now.get(key)
        if container is not None and container.process.poll() is None:
            container.process.terminate()
            await asyncio.to_thread(container.process.wait)
        if container is not None:
            await self._say(pod, key)
        path = RESOURCES["Pod"].path(pod["metadata"]["name"], self._namespace)
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        await self._kube._write("DELETE", path, body)

    async def _mount(self, pod: KubeObject) -> bool:
        """Whether everything is there that its volumes name."""
        for volume in pod["spec"]["volumes"]:
            if "secret" not in volume:
                continue
            secret = await self._kube.get("Secret", self._namespace, volume["secret"]["secretName"])
            if secret is None:
                return False
            folder = self._folder / pod["metadata"]["name"] / "volumes" / volume["name"]
            if self._mounted.get(folder) != secret["metadata"]["resourceVersion"]:
                _turn(folder, {key: base64.b64decode(value) for key, value in secret.get("data", {}).items()})
                self._mounted[folder] = secret["metadata"]["resourceVersion"]
        return True

    def log(self, pod: str) -> str:
        return (self._folder / f"{pod}.log").read_text()

    def _ip(self, pod: KubeObject) -> str:
        return f"{self._net}.{pod['metadata']['labels']['apps.kubernetes.io/pod-index']}"

    async def _start(self, pod: KubeObject) -> Container | None:
        """With the configuration as it is now, where this machine has what it names. None for a master that has none
        any more: it has left, and its pod goes next."""
        name = pod["metadata"]["name"]
        index = pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"]
        found = await self._kube.get("ConfigMap", self._namespace, "catalogue-masters")
        assert found is not None
        configuration = found["data"].get(f"uk-{index}.json")
        if configuration is None:
            return None
        told = json.loads(configuration)
        home = self._folder / name
        home.mkdir(exist_ok=True)
        said = home / "termination-log"
        for peer in told["peers"]:
            port = peer["url"].rpartition(":")[2]
            peer["url"] = f"http://{self._net}.{peer['node'].rpartition('-')[2]}:{port}"
        told |= {"host": self._ip(pod), "journal_folder": str(home / "journal"), "identity_file": str(said)}
        (container,) = pod["spec"]["containers"]
        mounted = {Path(mount["mountPath"]): home / "volumes" / mount["name"] for mount in container["volumeMounts"]}
        told |= {field: str(mounted[Path(told[field])]) for field in FOLDERS if field in told}
        told |= {
            field: str(mounted[Path(told[field]).parent] / Path(told[field]).name) for field in FILES if field in told
        }
        (home / "config.json").write_text(json.dumps(told))
        command = [sys.executable, "-m", "txlog.server", "--config", str(home / "config.json")]
        return Container(command, said, self._folder / f"{name}.log")

    async def _say(self, pod: KubeObject, key: str) -> None:
        state = self._now[key].state()
        takes_work = "running" in state and await asyncio.to_thread(_ready, self._ip(pod), pod)
        ready = "True" if takes_work else "False"
        status = {
            "phase": "Running",
            "podIP": self._ip(pod),
            "podIPs": [{"ip": self._ip(pod)}],
            "conditions": [{"type": kind, "status": ready} for kind in ("Ready", "ContainersReady")],
            "containerStatuses": [
                {
                    "name": "master",
                    "ready": ready == "True",
                    "restartCount": self._restarts.get(key, 0),
                    "image": "txlog",
                    "imageID": "",
                    "state": state,
                    "lastState": self._before.get(key, {}),
                }
            ],
        }
        if self._told.get(key) != status:
            await self._kube.replace_status(pod, status)
            self._told[key] = status


def _let_pass(error: ApiError) -> None:
    """Changed or removed meanwhile, or an API server that has too much to do: the next round sees what is there."""
    if error.code not in (0, 404, 409, 429) and error.code < 500:
        raise error


def _turn(folder: Path, files: dict[str, bytes]) -> None:
    """All of them at once: each is a link into ``..data``, which is turned."""
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / f"..{time.time_ns()}"
    new.mkdir()
    for name, content in files.items():
        (new / name).write_bytes(content)
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    turned = folder / "..data_tmp"
    turned.symlink_to(new.name)
    os.replace(turned, folder / "..data")


def _ready(ip: str, pod: KubeObject) -> bool:
    """As the probe says; whose certificate it is, the kubelet does not ask."""
    probe = pod["spec"]["containers"][0]["readinessProbe"]["httpGet"]
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    try:
        url = f"{probe.get('scheme', 'HTTP').lower()}://{ip}:7300{probe['path']}"
        with urllib.request.urlopen(url, timeout=PROBE_S, context=anybody) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
