"""A master whose journal is damaged: it takes no part, shows why, and fetches what is missing (rule 28).

There is no core in this phase, so nothing is posted and nothing is added. Only peers and people find an open door.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from txlog.config.process import NodeConfig
from txlog.model.errors import PeerFault, Unavailable
from txlog.model.records import Recovered
from txlog.protocol.events import Settings
from txlog.runtime.certificates import PLAIN, Tls
from txlog.runtime.events import EventLog
from txlog.runtime.guard import Guard
from txlog.runtime.listening import Listening, listen
from txlog.runtime.loop import system_now
from txlog.runtime.repair import Repair
from txlog.runtime.serving import HttpServer
from txlog.runtime.web import Door, Request, Response, Route, json_answer, text_answer
from txlog.server.peers.links import Links, listen_to_peers
from txlog.wire import messages as wire

WAKE_S_MAX = 1.0


class Mending:
    """Drives one :class:`Repair`: what it says goes to the peers, what they answer goes to it."""

    def __init__(
        self,
        config: NodeConfig,
        settings: Settings,
        recovered: Recovered,
        journal: Any,
        links: Links,
        log: EventLog,
        guard: Guard | None = None,
        tls: Tls = PLAIN,
    ) -> None:
        self._config = config
        self._tls = tls
        self._recovered = recovered
        self._links = links
        self._log = log
        self._repair = Repair(settings, recovered, journal)
        self._changed = asyncio.Event()
        self._error: BaseException | None = None
        self.door = Door([*links.routes(), *self._routes()], log, guard, self._closed)

    def _routes(self) -> list[Route]:
        return [
            Route("GET", "/txlog/status", self._status),
            Route("GET", "/health/live", self._live),
            Route("GET", "/health/startup", self._live),
            Route("GET", "/health/ready", self._not_ready),
        ]

    async def run(self) -> Repair:
        """Returns when everything is there; raises ``Fatal`` when nobody has it."""
        self._log.warning("Damaged", damage=self._repair.names)
        tasks = [asyncio.ensure_future(forever) for forever in self._links.tasks(self).values()]
        http = HttpServer(self.door, self._log)
        server = web.ServerRunner(http, handle_signals=False, shutdown_timeout=0.5)
        listening: list[Listening] = []
        try:
            await server.setup()
            config = self._config
            listening.append(await listen(http, config.host, config.port, self._log, self._tls.clients))
            if self._tls.peers is not None:
                listening.append(await listen_to_peers(config, self._links, self._tls.peers, self._log))
            while not self._repair.finished:
                if self._error is not None:
                    raise self._error
                now = system_now()
                wake_ms, sends = self._repair.poll(now)
                for peer, message in sends:
                    self._links.send(peer, wire.encode(message))
                self._changed.clear()
                try:
                    await asyncio.wait_for(self._changed.wait(), min(WAKE_S_MAX, max(1, wake_ms - now.mono) / 1000))
                except TimeoutError:
                    continue
        finally:
            for one in listening:
                one.close()
            await self._links.close()
            for task in tasks:
                task.cancel()
            await server.cleanup()
        self._log.info("Mended")
        return self._repair

    # As the links see it

    def receive(self, peer: str, data: bytes) -> None:
        """One message of a peer."""
        try:
            self._repair.receive(peer, data, system_now())
        except PeerFault:
            raise
        except Exception as wrong:  # noqa: BLE001 - raised where it is owned, in run()
            self._error = wrong
        self._changed.set()

    def count_fault(self, peer: str, reason: str) -> None:
        return None  # there are no metrics yet; it is logged

    # Doors

    async def _status(self, request: Request, _: Mapping[str, str]) -> Response:
        config, recovered = self._config, self._recovered
        nowhere = {"epoch": 0, "index": 0, "hash": bytes(16).hex()}
        told = {
            "node": config.node,
            "birth": f"{recovered.birth:016x}",
            "start": recovered.start,
            "state": "Damaged",
            "log": nowhere,
            "stable": {**nowhere, "index": recovered.stable},
            "damage": self._repair.names,
            "repository": config.repository,
            "dataCenter": config.data_center,
        }
        return json_answer(told)

    async def _live(self, request: Request, _: Mapping[str, str]) -> Response:
        return text_answer("live\n")

    async def _not_ready(self, request: Request, _: Mapping[str, str]) -> Response:
        return json_answer({"state": "Damaged"}, 503, {"Retry-After": "1"})

    def _closed(self) -> Unavailable:
        node = self._config.node
        return Unavailable("Damaged", f"{node} fetches what its journal lost from the others; ask another master")
