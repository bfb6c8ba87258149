"""A stand-in for an API server and a kubelet: keeps the pods of one namespace, lets through what a Role allows, and
runs the container of each pod as a process of this machine on a loopback address of its own. No other resource."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web

Pod = dict[str, Any]
NAMESPACE = "graphs"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
VERBS = {"GET": "get", "POST": "create", "DELETE": "delete", "PATCH": "patch", "PUT": "update"}


class KubernetesStub:
    """``rules``: of the Role. ``refused``: what was asked beyond it; ``asked``: the verbs that were used. Pods have the
    addresses 127.0.0.2, 127.0.0.3, ..."""

    def __init__(self, rules: Sequence[Mapping[str, Any]], folder: Path) -> None:
        self._rules, self._folder = rules, folder
        self.refused: list[str] = []
        self.asked: set[str] = set()
        self.removed: list[str] = []
        self.pods: dict[str, Pod] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._watchers: list[asyncio.Queue[dict[str, Any]]] = []
        self._version = 0
        self._address = 1
        self._started = threading.Event()
        self._over = threading.Event()
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._started.wait(20)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def put(self, name: str, labels: Mapping[str, str]) -> None:
        """A pod that is there, runs and is Ready, and of which nothing is a process here."""
        pod = {"metadata": {"name": name, "labels": dict(labels)}, "spec": {"containers": []}}
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self._call(self._keep({**pod, "status": status}, "ADDED"))

    def crash(self, name: str) -> None:
        """kill -9 of what runs in it."""
        process = self._processes[name]
        process.kill()

    def running(self) -> list[str]:
        """Names of pods whose process runs."""
        return [name for name, process in self._processes.items() if name in self.pods and process.poll() is None]

    def stop(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        self._over.set()
        self._thread.join(20)

    # -- its thread

    def _call(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)

        async def live() -> None:
            app = web.Application()
            app.router.add_route("*", "/{rest:.*}", self._answer)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.port = runner.addresses[0][1]
            self._started.set()
            await asyncio.to_thread(self._over.wait)
            own = asyncio.current_task()
            rest = [task for task in asyncio.all_tasks() if task is not own]
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)
            await runner.cleanup()

        self._loop.run_until_complete(live())

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        found = re.fullmatch(r"/api/v1/namespaces/([^/]+)/([^/]+)(?:/([^/]+))?", request.path)
        if found is None or found[1] != NAMESPACE:
            return self._refuse(f"{request.method} {request.path}")
        verb, name = VERBS[request.method], found[3]
        if verb == "get" and name is None:
            verb = "watch" if request.query.get("watch") == "true" else "list"
        if verb == "delete" and name is None:
            verb = "deletecollection"
        if not any(found[2] in rule["resources"] and verb in rule["verbs"] for rule in self._rules):
            return self._refuse(f"{verb} {found[2]}")
        self.asked.add(verb)
        assert found[2] == "pods"
        if verb == "create":
            return web.json_response(await self._start(await request.json()), status=201)
        if verb == "get":
            if name not in self.pods:
                return web.json_response({"kind": "Status", "apiVersion": "v1", "code": 404}, status=404)
            return web.json_response(self.pods[name])
        if verb == "list":
            return web.json_response(self._listed(request))
        if verb == "watch":
            return await self._watch(request)
        chosen = [name] if name is not None else [each["metadata"]["name"] for each in self._listed(request)["items"]]
        for each in chosen:
            await self._remove(each)
        return web.json_response({"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def _refuse(self, what: str) -> web.Response:
        self.refused.append(what)
        return web.json_response({"kind": "Status", "apiVersion": "v1", "code": 403, "message": what}, status=403)

    def _listed(self, request: web.Request) -> dict[str, Any]:
        items = [pod for pod in self.pods.values() if _chosen(pod, request.query.get("labelSelector", ""))]
        return {
            "kind": "PodList",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": str(self._version)},
            "items": items,
        }

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        selector = request.query.get("labelSelector", "")
        answer = web.WebSocketResponse()
        await answer.prepare(request)
        for pod in self.pods.values():
            if _chosen(pod, selector):
                await answer.send_json({"type": "ADDED", "object": pod})
        self._watchers.append(events)

        async def tell() -> None:
            while True:
                event = await events.get()
                if _chosen(event["object"], selector):
                    await answer.send_json(event)

        telling = asyncio.ensure_future(tell())
        try:
            async for message in answer:
                if message.type in (WSMsgType.CLOSE, WSMsgType.ERROR):
                    break
        finally:
            self._watchers.remove(events)
            telling.cancel()
        return answer

    async def _keep(self, pod: Pod, event: str) -> None:
        self._version += 1
        meta = pod["metadata"]
        meta |= {"namespace": NAMESPACE, "resourceVersion": str(self._version)}
        meta.setdefault("uid", f"uid-{meta['name']}")
        meta.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        pod |= {"kind": "Pod", "apiVersion": "v1"}
        if event == "DELETED":
            self.pods.pop(meta["name"], None)
        else:
            self.pods[meta["name"]] = pod
        told = json.loads(json.dumps(pod))
        for events in self._watchers:
            events.put_nowait({"type": event, "object": told})

    async def _start(self, pod: Pod) -> Pod:
        name, (container,) = pod["metadata"]["name"], pod["spec"]["containers"]
        self._address += 1
        address = f"127.0.0.{self._address}"
        fields = {"status.podIP": address, "metadata.name": name}
        env = {
            each["name"]: each["value"]
            if "value" in each
            else fields[each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")]
            for each in container["env"]
            if "value" in each or "valueFrom" in each
        }
        program, *rest = [*container["command"], *container["args"]]
        assert program == "python"
        process = self._processes[name] = self._run_in(name, [sys.executable, *rest], env)
        ready = {"name": container["name"], "ready": True, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
        status = {"phase": "Running", "podIP": address, "containerStatuses": [ready]}
        await self._keep({**pod, "status": status}, "ADDED")
        self._loop.create_task(self._reap(name, process))
        return self.pods[name]

    def _run_in(self, pod: str, command: list[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with (self._folder / f"{pod}.log").open("wb") as log:
            return subprocess.Popen(
                command, env={**os.environ, **env}, cwd=self._folder, stdout=log, stderr=subprocess.STDOUT
            )

    async def _reap(self, name: str, process: subprocess.Popen[bytes]) -> None:
        code = await asyncio.to_thread(process.wait)
        pod = self.pods.get(name)
        if pod is None:
            return
        ended = {"exitCode": code if code >= 0 else 128 - code, "finishedAt": "2026-01-01T00:00:01Z"}
        (status,) = pod["status"]["containerStatuses"]
        told = {**status, "ready": False, "state": {"terminated": ended}}
        phase = "Failed" if code else "Succeeded"
        await self._keep({**pod, "status": {**pod["status"], "phase": phase, "containerStatuses": [told]}}, "MODIFIED")

    async def _remove(self, name: str) -> None:
        pod = self.pods.get(name)
        if pod is None:
            return
        self.removed.append(name)
        await self._keep(pod, "DELETED")
        process = self._processes.get(name)
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)


def _chosen(pod: Pod, selector: str) -> bool:
    labels = pod["metadata"].get("labels", {})
    for word in re.findall(r"[^,(]+(?:\([^)]*\))?", selector):
        among = re.fullmatch(r"\s*(\S+) in \(([^)]*)\)", word)
        if among is not None:
            if labels.get(among[1]) not in [each.strip() for each in among[2].split(",")]:
                return False
            continue
        key, unlike, value = re.split(r"(!?=)", word.strip())
        if (labels.get(key) == value) is (unlike == "!="):
            return False
    return True
