"""What a master without a core serves: its status, the health checks, and a refusal of everything else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from txlog.auth.authenticator import Authenticator
from txlog.auth.tls import TlsConfig
from txlog.config.process_config import NodeConfig
from txlog.http.aiohttp_server import HttpServer
from txlog.http.listener import Listener, listen
from txlog.http.router import Request, Response, Route, Router, RouteTable, json_response, text_response, with_roles
from txlog.model.errors import Unavailable
from txlog.telemetry.event_log import EventLog


class CorelessServer:
    """``refusal``: builds the answer to other requests; its reason is the state that the status and the readiness
    check show. ``describe``: the fields of the status that only this phase knows. ``routes``: further paths."""

    def __init__(
        self,
        config: NodeConfig,
        log: EventLog,
        guard: Authenticator | None,
        tls: TlsConfig,
        refusal: Callable[[], Unavailable],
        describe: Callable[[], dict[str, Any]],
        routes: Sequence[Route] = (),
    ) -> None:
        self._config = config
        self._log = log
        self._tls = tls
        self._refusal = refusal
        self._describe = describe
        own = [
            Route("GET", "/txlog/status", self._status),
            Route("GET", "/health/live", self._live),
            Route("GET", "/health/startup", self._live),
            Route("GET", "/health/ready", self._not_ready),
        ]
        self.router = Router(RouteTable(with_roles([*routes, *own], guard, config.repository)), log, guard, refusal)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Listener]:
        """Serves clients until the context ends. Yields what listens, which may be closed before."""
        http = HttpServer(self.router, self._log)
        server = web.ServerRunner(http, handle_signals=False, shutdown_timeout=0.5)
        await server.setup()
        try:
            config = self._config
            listener = await listen(http, config.host, config.port, self._log, self._tls.clients)
            try:
                yield listener
            finally:
                listener.close()
        finally:
            await server.cleanup()

    async def _status(self, request: Request, _: Mapping[str, str]) -> Response:
        config = self._config
        status = {
            "node": config.node,
            "state": self._refusal().reason,
            "repository": config.repository,
            "dataCenter": config.data_center,
        }
        return json_response(status | self._describe())

    async def _live(self, request: Request, _: Mapping[str, str]) -> Response:
        return text_response("live\n")

    async def _not_ready(self, request: Request, _: Mapping[str, str]) -> Response:
        refusal = self._refusal()
        return json_response({"state": refusal.reason}, 503, {"Retry-After": str(refusal.retry_after_s)})


def position_without_hash(index: int) -> dict[str, Any]:
    """A position of the status whose hash is not known here."""
    return {"epoch": 0, "index": index, "hash": bytes(16).hex()}
