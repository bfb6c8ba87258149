"""A master with a full disk: it leaves the view, so that the others continue (rule 29), and waits for free space.

Such a master cannot persist what the others send, and the order contains only what every member has persisted. While it
waits there is no core: it serves only the HTTP API for people. Once there is space, it starts like a master that has
left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from txlog.auth.authenticator import Authenticator
from txlog.auth.tls import NO_TLS, TlsConfig
from txlog.config.process_config import NodeConfig
from txlog.http.aiohttp_server import HttpServer
from txlog.http.listener import Listener, listen
from txlog.http.router import Request, Response, Route, Router, RouteTable, json_response, text_response, with_roles
from txlog.journal import OsVfs
from txlog.model.errors import Unavailable
from txlog.runtime.master_status import MasterStatus
from txlog.telemetry.event_log import EventLog

FREE_SEGMENTS_MIN: Final = 2
"""Journal segments that must fit before the master returns: one is reserved for the protocol itself."""
SPACE_CHECK_S: Final = 1.0
RETRY_S: Final = 10
FULL_CHECKS: Final = 4
"""Checks in one round time-out."""


async def wait_until_disk_full(status: MasterStatus, round_timeout_s: float) -> None:
    """Returns when this master could persist nothing for a round time-out and a present peer can. If it is alone, or if
    no peer can persist, it stays: no other master would continue without it."""
    full_for = 0
    while full_for <= FULL_CHECKS:
        await asyncio.sleep(round_timeout_s / FULL_CHECKS)
        full_for = full_for + 1 if status.is_stranded_on_full_disk else 0


class DiskFullMode:
    """Waits until segments fit into the journal's folder again."""

    def __init__(
        self,
        config: NodeConfig,
        birth: int,
        start: int,
        stable: int,
        log: EventLog,
        guard: Authenticator | None = None,
        tls: TlsConfig = NO_TLS,
    ) -> None:
        self._config = config
        self._tls = tls
        self._identity = {"birth": f"{birth:016x}", "start": start}
        self._stable = stable
        self._log = log
        self.router = Router(
            RouteTable(with_roles(self._routes(), guard, config.repository)),
            log,
            guard,
            self._unavailable,
        )

    @property
    def has_free_space(self) -> bool:
        """Counted again each time: an operator may have freed or added space."""
        config = self._config
        return (
            OsVfs(config.journal_folder, config.journal_bytes_max).free_bytes()
            >= FREE_SEGMENTS_MIN * config.segment_bytes
        )

    async def run(self, stop: asyncio.Event) -> bool:
        """Whether there is space; False if it is stopped before."""
        http = HttpServer(self.router, self._log)
        server = web.ServerRunner(http, handle_signals=False, shutdown_timeout=0.5)
        listening: list[Listener] = []
        try:
            await server.setup()
            config = self._config
            listening.append(await listen(http, config.host, config.port, self._log, self._tls.clients))
            while not stop.is_set():
                if self.has_free_space:
                    self._log.info("RoomAgain")
                    return True
                try:
                    await asyncio.wait_for(stop.wait(), SPACE_CHECK_S)
                except TimeoutError:
                    continue
        finally:
            for one in listening:
                one.close()
            await server.cleanup()
        return False

    # Paths

    def _routes(self) -> list[Route]:
        return [
            Route("GET", "/txlog/status", self._status),
            Route("GET", "/health/live", self._live),
            Route("GET", "/health/startup", self._live),
            Route("GET", "/health/ready", self._not_ready),
        ]

    async def _status(self, request: Request, _: Mapping[str, str]) -> Response:
        config = self._config
        nowhere = {"epoch": 0, "index": 0, "hash": bytes(16).hex()}
        status: dict[str, Any] = {
            **self._identity,
            "node": config.node,
            "state": "DiskFull",
            "log": nowhere,
            "stable": {**nowhere, "index": self._stable},
            "repository": config.repository,
            "dataCenter": config.data_center,
        }
        return json_response(status)

    async def _live(self, request: Request, _: Mapping[str, str]) -> Response:
        return text_response("live\n")

    async def _not_ready(self, request: Request, _: Mapping[str, str]) -> Response:
        return json_response({"state": "DiskFull"}, 503, {"Retry-After": str(RETRY_S)})

    def _unavailable(self) -> Unavailable:
        node = self._config.node
        return Unavailable("DiskFull", f"{node} waits for room on its disk; ask another master", RETRY_S)
