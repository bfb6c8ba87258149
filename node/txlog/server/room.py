"""A master whose disk is full: it leaves, so that the others go on (rule 29), and waits until there is room.

Who cannot store holds nothing that the others bring, and nothing is in the order that not everybody holds. While it
waits there is no core: only people find an open door. When there is room again it starts as one that has left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from txlog.config.process import NodeConfig
from txlog.journal import RealFiles
from txlog.model.errors import Unavailable
from txlog.protocol.core import Core
from txlog.runtime.certificates import PLAIN, Tls
from txlog.runtime.events import EventLog
from txlog.runtime.guard import Guard
from txlog.runtime.listening import Listening, listen
from txlog.runtime.serving import HttpServer
from txlog.runtime.web import Door, Request, Response, Route, json_answer, text_answer

ROOM_SEGMENTS: Final = 2
"""So many files of the journal must fit before it comes back: one is kept for the protocol itself."""
LOOK_S: Final = 1.0
RETRY_S: Final = 10
LOOKS: Final = 4
"""In a round time-out."""


async def until_full(core: Core, round_timeout_s: float) -> None:
    """Returns when this master could store nothing for a round time-out, and somebody is there who can. Alone, or where
    nobody can, it stays: nobody would go on without it."""
    full_for = 0
    while full_for <= LOOKS:
        await asyncio.sleep(round_timeout_s / LOOKS)
        others = any(core.is_present(peer) and not peer.full for peer in core.peers)
        full_for = full_for + 1 if core.full and core.views.at_work and others else 0


class WaitsForRoom:
    """Until files fit into the journal's folder again."""

    def __init__(
        self,
        config: NodeConfig,
        birth: int,
        start: int,
        stable: int,
        log: EventLog,
        guard: Guard | None = None,
        tls: Tls = PLAIN,
    ) -> None:
        self._config = config
        self._tls = tls
        self._told = {"birth": f"{birth:016x}", "start": start}
        self._stable = stable
        self._log = log
        self.door = Door(
            [
                Route("GET", "/txlog/status", self._status),
                Route("GET", "/health/live", self._live),
                Route("GET", "/health/startup", self._live),
                Route("GET", "/health/ready", self._not_ready),
            ],
            log,
            guard,
            self._closed,
        )

    @property
    def has_room(self) -> bool:
        """Counted anew each time: somebody may have made room, or given more."""
        config = self._config
        return RealFiles(config.journal_folder, config.journal_bytes_max).free() >= ROOM_SEGMENTS * config.segment_bytes

    async def run(self, stop: asyncio.Event) -> bool:
        """Whether there is room; False when it is told to stop first."""
        http = HttpServer(self.door, self._log)
        server = web.ServerRunner(http, handle_signals=False, shutdown_timeout=0.5)
        listening: list[Listening] = []
        try:
            await server.setup()
            config = self._config
            listening.append(await listen(http, config.host, config.port, self._log, self._tls.clients))
            while not stop.is_set():
                if self.has_room:
                    self._log.info("RoomAgain")
                    return True
                try:
                    await asyncio.wait_for(stop.wait(), LOOK_S)
                except TimeoutError:
                    continue
        finally:
            for one in listening:
                one.close()
            await server.cleanup()
        return False

    # Doors

    async def _status(self, request: Request, _: Mapping[str, str]) -> Response:
        config = self._config
        nowhere = {"epoch": 0, "index": 0, "hash": bytes(16).hex()}
        told: dict[str, Any] = {
            **self._told,
            "node": config.node,
            "state": "DiskFull",
            "log": nowhere,
            "stable": {**nowhere, "index": self._stable},
            "repository": config.repository,
            "dataCenter": config.data_center,
        }
        return json_answer(told)

    async def _live(self, request: Request, _: Mapping[str, str]) -> Response:
        return text_answer("live\n")

    async def _not_ready(self, request: Request, _: Mapping[str, str]) -> Response:
        return json_answer({"state": "DiskFull"}, 503, {"Retry-After": str(RETRY_S)})

    def _closed(self) -> Unavailable:
        node = self._config.node
        return Unavailable("DiskFull", f"{node} waits for room on its disk; ask another master", RETRY_S)
