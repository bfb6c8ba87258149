"""A master with a damaged journal: it takes no part, reports why, and fetches what is missing (rule 28).

There is no core in this phase, so nothing is posted or added. It serves only peers, and the HTTP API for people.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from txlog.auth.authenticator import Authenticator
from txlog.auth.tls import NO_TLS, TlsConfig
from txlog.config.process_config import NodeConfig
from txlog.http.aiohttp_server import HttpServer
from txlog.http.listener import Listener, listen
from txlog.http.router import Request, Response, Route, Router, RouteTable, json_response, text_response, with_roles
from txlog.model.errors import PeerFault, Unavailable
from txlog.model.records import RecoveredState
from txlog.protocol.events import ProtocolSettings
from txlog.runtime.journal_repair import JournalRepair
from txlog.runtime.master_loop import system_now
from txlog.server.peers.peer_links import PeerLinks, listen_to_peers
from txlog.telemetry.event_log import EventLog
from txlog.wire import messages as wire

POLL_INTERVAL_S_MAX = 1.0


class JournalRepairMode:
    """Drives one :class:`JournalRepair`: sends its messages to the peers, and passes their answers to it."""

    def __init__(
        self,
        config: NodeConfig,
        settings: ProtocolSettings,
        recovered: RecoveredState,
        journal: Any,
        links: PeerLinks,
        log: EventLog,
        guard: Authenticator | None = None,
        tls: TlsConfig = NO_TLS,
    ) -> None:
        self._config = config
        self._tls = tls
        self._recovered = recovered
        self._links = links
        self._log = log
        self._repair = JournalRepair(settings, recovered, journal)
        self._changed = asyncio.Event()
        self._error: BaseException | None = None
        self.router = Router(
            RouteTable(with_roles([*links.routes(), *self._routes()], guard, config.repository)),
            log,
            guard,
            self._unavailable,
        )

    def _routes(self) -> list[Route]:
        return [
            Route("GET", "/txlog/status", self._status),
            Route("GET", "/health/live", self._live),
            Route("GET", "/health/startup", self._live),
            Route("GET", "/health/ready", self._not_ready),
        ]

    async def run(self) -> JournalRepair:
        """Returns when everything is there; raises ``Fatal`` if no master has it."""
        self._log.warning("Damaged", damage=self._repair.damage_names)
        tasks = [asyncio.ensure_future(forever) for forever in self._links.tasks(self).values()]
        http = HttpServer(self.router, self._log)
        server = web.ServerRunner(http, handle_signals=False, shutdown_timeout=0.5)
        listening: list[Listener] = []
        try:
            await server.setup()
            config = self._config
            listening.append(await listen(http, config.host, config.port, self._log, self._tls.clients))
            if self._tls.peers is not None:
                listening.append(await listen_to_peers(config, self._links, self._tls.peers, self._log))
            while not self._repair.is_finished:
                if self._error is not None:
                    raise self._error
                now = system_now()
                wake_ms, sends = self._repair.poll(now)
                for peer, message in sends:
                    self._links.send(peer, wire.encode(message))
                self._changed.clear()
                try:
                    await asyncio.wait_for(
                        self._changed.wait(), min(POLL_INTERVAL_S_MAX, max(1, wake_ms - now.mono) / 1000)
                    )
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

    # The receiver of the links

    def receive(self, peer: str, data: bytes) -> None:
        """Handles one message of a peer."""
        try:
            self._repair.receive(peer, data, system_now())
        except PeerFault:
            raise
        except Exception as wrong:  # noqa: BLE001 - raised in its task, run()
            self._error = wrong
        self._changed.set()

    def count_fault(self, peer: str, reason: str) -> None:
        """Nothing is counted: there are no metrics yet. The fault is logged."""

    # Paths

    async def _status(self, request: Request, _: Mapping[str, str]) -> Response:
        config, recovered = self._config, self._recovered
        nowhere = {"epoch": 0, "index": 0, "hash": bytes(16).hex()}
        status = {
            "node": config.node,
            "birth": f"{recovered.birth:016x}",
            "start": recovered.start,
            "state": "Damaged",
            "log": nowhere,
            "stable": {**nowhere, "index": recovered.stable},
            "damage": self._repair.damage_names,
            "repository": config.repository,
            "dataCenter": config.data_center,
        }
        return json_response(status)

    async def _live(self, request: Request, _: Mapping[str, str]) -> Response:
        return text_response("live\n")

    async def _not_ready(self, request: Request, _: Mapping[str, str]) -> Response:
        return json_response({"state": "Damaged"}, 503, {"Retry-After": "1"})

    def _unavailable(self) -> Unavailable:
        node = self._config.node
        return Unavailable("Damaged", f"{node} fetches what its journal lost from the others; ask another master")
