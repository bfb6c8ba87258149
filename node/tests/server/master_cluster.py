"""Masters for tests: real servers over real sockets and real journals, in this process or as processes."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientError, ClientResponse, ClientSession

from e2e.lib.ports import free_ports
from txlog.config.process_config import NodeConfig
from txlog.server.log_service import LogService, open_journal
from txlog.server.master_process import MasterProcess
from txlog.server.startup_files import load_authenticator, load_tls
from txlog.telemetry.event_log import EventLog

TOKEN = b"a-shared-secret"
DEADLINE_S = 60.0
UPDATE = {"Content-Type": "application/sparql-update"}
SYNCED = {**UPDATE, "TxLog-Durability": "synced"}


async def until(what: Callable[[], Any], seconds: float = DEADLINE_S) -> Any:
    """The first true value; polled, with a deadline."""
    deadline = time.monotonic() + seconds
    while True:
        value = what()
        if isinstance(value, Awaitable):
            value = await value
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds} s"
        await asyncio.sleep(0.02)


class Cluster:
    """``changes`` go into every master's configuration, ``of`` into one's."""

    def __init__(self, folder: Path, count: int, **changes: Any) -> None:
        self.folder = folder
        (folder / "token").write_bytes(TOKEN + b"\n")
        self.ports = free_ports(count)
        self.nodes = [f"uk-{at + 1}" for at in range(count)]
        self.configs = [self.config(at, changes) for at in range(count)]
        self.apps: list[MasterProcess | None] = [None] * count
        self.processes: list[subprocess.Popen[bytes] | None] = [None] * count
        self.ended: list[BaseException] = []
        self.logs = [io.StringIO() for _ in range(count)]
        self.session = ClientSession()
        self.scheme = "http"

    def config(self, at: int, changes: dict[str, Any]) -> dict[str, Any]:
        """What the manifests would tell this one of all that are known now."""
        peers = [
            {"node": node, "data_center": "uk", "url": f"http://127.0.0.1:{port}"}
            for node, port in zip(self.nodes, self.ports, strict=True)
        ]
        return {
            "node": self.nodes[at],
            "data_center": "uk",
            "repository": "demo",
            "port": self.ports[at],
            "journal_folder": str(self.folder / self.nodes[at]),
            "segment_bytes": 1 << 20,
            "peer_token_file": str(self.folder / "token"),
            "peers": peers,
            "durability": "synced",
            "write_timeout_s": 20.0,
            "round_timeout_ms": 1000,
            "idle_interval_ms": 300,
            **changes,
        }

    def url(self, at: int, path: str = "") -> str:
        return f"{self.scheme}://127.0.0.1:{self.ports[at]}{path}"

    # In this process

    async def start(self, *which: int, ready: bool = True) -> None:
        for at in which or range(len(self.nodes)):
            config = NodeConfig.model_validate(self.configs[at])
            journal, recovered = open_journal(config)
            log = EventLog(config.node, self.logs[at], limit_s=0.0)
            token, guard = config.peer_token_file.read_bytes().strip(), load_authenticator(config, log)
            tls = load_tls(config, log)
            app = MasterProcess(config, journal, recovered, token, log, self.ended.append, guard, tls)
            await app.start()
            self.apps[at] = app
        if ready:
            for at in which or range(len(self.nodes)):
                await until(lambda at=at: self.service(at).context.is_ready)

    def app(self, at: int) -> MasterProcess:
        app = self.apps[at]
        assert app is not None
        return app

    def service(self, at: int) -> LogService:
        """The first log of a master."""
        return self.app(at).first

    async def stop(self, *which: int) -> None:
        for at in which or range(len(self.nodes)):
            app, self.apps[at] = self.apps[at], None
            if app is not None:
                await app.stop()

    async def crash(self, *which: int) -> None:
        """What the others notice of kill -9: it says nothing more, and has not left."""
        for at in which:
            for log in self.app(at).logs.values():
                log.loop.end_reason = ConnectionAbortedError("crashed by a test")
        await self.stop(*which)

    # As processes

    def spawn(self, *which: int) -> None:
        for at in which or range(len(self.nodes)):
            path = self.folder / f"{self.nodes[at]}.json"
            path.write_text(json.dumps(self.configs[at]))
            with (self.folder / f"{self.nodes[at]}.log").open("ab") as log:
                self.processes[at] = subprocess.Popen(
                    [sys.executable, "-m", "txlog.server", "--config", str(path)], stderr=log, stdout=log
                )

    def process(self, at: int) -> subprocess.Popen[bytes]:
        process = self.processes[at]
        assert process is not None
        return process

    def kill(self, at: int, how: int = signal.SIGKILL) -> int:
        """The exit code."""
        process, self.processes[at] = self.process(at), None
        os.kill(process.pid, how)
        return process.wait(DEADLINE_S)

    async def ready(self, *which: int) -> None:
        async def answers(at: int) -> bool:
            try:
                async with self.session.get(self.url(at, "/health/ready")) as response:
                    return response.status == 200
            except (OSError, ClientError):
                return False

        for at in which or range(len(self.nodes)):
            await until(lambda at=at: answers(at))

    async def close(self) -> None:
        await self.session.close()
        await self.crash(*(at for at, app in enumerate(self.apps) if app is not None))  # nobody looks on: no farewell
        for at, process in enumerate(self.processes):
            if process is not None:
                self.kill(at)

    # Asking

    async def get(self, at: int, path: str, status: int = 200, **more: Any) -> Any:
        async with self.session.get(self.url(at, path), **more) as response:
            return await _told(response, status)

    async def post(self, at: int, path: str, data: Any, status: int = 204, **more: Any) -> Any:
        async with self.session.post(self.url(at, path), data=data, **more) as response:
            return await _told(response, status)

    async def write(self, at: int, update: str, status: int = 204, **headers: str) -> dict[str, str]:
        """The answer's headers."""
        sent = {**SYNCED, **{name.replace("_", "-"): value for name, value in headers.items()}}
        async with self.session.post(
            self.url(at, "/repositories/demo/statements"), data=update, headers=sent
        ) as answer:
            text = await answer.text()
            assert answer.status == status, (answer.status, text)
            return {**answer.headers, "body": text}

    def logged(self, at: int) -> list[str]:
        """The names of the events."""
        return [json.loads(line)["event"] for line in self.logs[at].getvalue().splitlines()]


async def _told(response: ClientResponse, status: int) -> Any:
    body = await response.read()
    assert response.status == status, (response.status, body[:1000])
    if response.content_type.endswith("ndjson"):
        return [json.loads(line) for line in body.splitlines()]
    if response.content_type.endswith("json"):
        return json.loads(body)
    return body.decode()


@pytest.fixture
async def clusters(tmp_path: Path) -> AsyncIterator[Callable[..., Cluster]]:
    """Makes clusters of so many masters, which end with the test."""
    made: list[Cluster] = []

    def make(count: int, **changes: Any) -> Cluster:
        made.append(Cluster(tmp_path, count, **changes))
        return made[-1]

    yield make
    for cluster in made:
        await cluster.close()
