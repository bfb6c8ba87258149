"""What pipelines and ``verify`` ask and tell: the doorbell, reports, holds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import msgspec
from pydantic import ValidationError

from txlog.config.process import WorkerConfig
from txlog.model.decoding import MALFORMED
from txlog.model.errors import BadInput, NotFound
from txlog.runtime.site import Site
from txlog.runtime.web import Request, Response, Route, json_answer, number_of, read_body, seconds_of

TIMEOUT_S = 5.0
TIMEOUT_S_MAX = 30.0
CLOSING_S = 0.1
"""A master that is stopping keeps nobody for long, and is not asked without pause either."""
REPORT_BYTES_MAX = 256 << 10
DRAIN_LOOK_S = 0.05
LOOK_BYTES_MAX = 1 << 20
LOOK_HOLD_S = 5.0
"""A hold for a look ends by itself: who asked for it may be gone."""
REPAIR_HOLD_S = 15.0
"""And one for a repair, which asks for it again and again meanwhile."""


class _Hold(msgspec.Struct):
    index: int


class Workers:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._loop = site.loop
        self._registry = site.registry

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/txlog/doorbell", self.doorbell),
            Route("GET", "/txlog/workers", self.list),
            Route("POST", "/txlog/workers", self.add),
            Route("DELETE", "/txlog/workers/{name}", self.remove),
            Route("POST", "/txlog/workers/{name}", self.report),
            Route("POST", "/txlog/workers/{name}/look", self.look),
            Route("PUT", "/txlog/holds/{name}", self.hold),
            Route("DELETE", "/txlog/holds/{name}", self.lift),
        ]

    def tasks(self) -> dict[str, Any]:
        """What runs for ever, by name."""
        return {"doorbell-ticks": self._tick_for_ever()}

    async def _tick_for_ever(self) -> None:
        while True:  # noqa: ASYNC110 - a clock, not a wait for something
            await asyncio.sleep(self._registry.ring())

    async def doorbell(self, request: Request, _: Mapping[str, str]) -> Response:
        query = request.query
        after = number_of(query, "after", 0)
        tick = number_of(query, "tick", 0)
        seconds = seconds_of(query.get("timeout"), "timeout", TIMEOUT_S, TIMEOUT_S_MAX)
        loop, registry = self._loop, self._registry
        if self._site.closing:
            seconds = min(seconds, CLOSING_S)
        if loop.executable.value <= after and registry.tick == tick:
            future = loop.wait_index(loop.executable, after + 1)
            registry.listen(future)
            await loop.within(future, seconds)
        return json_answer(
            {
                "stable": _place(loop.executable_position()),
                "tick": registry.tick,
                "workers": registry.views(),
            }
        )

    async def list(self, request: Request, _: Mapping[str, str]) -> Response:
        elsewhere = {
            name: [worker.view() for worker in workers.values()] for name, workers in self._registry.elsewhere.items()
        }
        return json_answer({"workers": self._registry.views(), "elsewhere": elsewhere})

    async def add(self, request: Request, _: Mapping[str, str]) -> Response:
        """``{"name", "url", "engine"}``: a worker of this data centre from now on, until this process ends: whoever
        starts it says it the next time."""
        try:
            config = WorkerConfig.model_validate_json(await read_body(request, REPORT_BYTES_MAX))
        except ValidationError as wrong:
            raise BadInput(f'{{"name", "url", "engine"}}: {wrong.errors()[0]["msg"]}') from None
        self._registry.add(config)
        return json_answer({"workers": list(self._registry.workers)})

    async def remove(self, request: Request, names: Mapping[str, str]) -> Response:
        """It is no worker any more. Answers ``{"reading"}``: how many reads of clients are still under way there,
        after at most ``timeout`` seconds. Again for one that is not there."""
        seconds = seconds_of(request.query.get("timeout"), "timeout", TIMEOUT_S, TIMEOUT_S_MAX)
        name, registry = names["name"], self._registry
        registry.remove(name)
        until = time.monotonic() + seconds
        while registry.reading[name] and time.monotonic() < until:  # noqa: ASYNC110 - rare, and no event tells
            await asyncio.sleep(DRAIN_LOOK_S)
        return json_answer({"reading": registry.reading[name]})

    async def report(self, request: Request, names: Mapping[str, str]) -> Response:
        body = await read_body(request, REPORT_BYTES_MAX)
        return json_answer({"hold": self._registry.report(names["name"], body)})

    async def look(self, request: Request, names: Mapping[str, str]) -> Response:
        """What this worker was seen to hold at one position (:class:`~txlog.model.look.Look`)."""
        self._registry.look(names["name"], await read_body(request, LOOK_BYTES_MAX))
        return json_answer({"divergence": self._registry.workers[names["name"]].divergence})

    async def hold(self, request: Request, names: Mapping[str, str]) -> Response:
        """``?for=look``, ``?for=repair``: beside the other holds, and only for :data:`LOOK_HOLD_S`,
        :data:`REPAIR_HOLD_S`."""
        worker, why = self._worker(names["name"]), _why(request)
        try:
            told = msgspec.json.decode(await read_body(request, REPORT_BYTES_MAX), type=_Hold)
        except MALFORMED as wrong:
            raise BadInput(f'{{"index": N}}: {wrong}') from None
        if told.index < 0:
            raise BadInput("index: 0 or more")
        before, now = worker.held_at, time.monotonic()
        if why == "look":
            worker.look_hold, worker.look_hold_until = told.index, now + LOOK_HOLD_S
        elif why == "repair":
            worker.repair_hold, worker.repair_hold_until = told.index, now + REPAIR_HOLD_S
        else:
            worker.hold = told.index
        if worker.held_at != before or why != "repair":
            self._registry.wake_all()
        return json_answer(worker.view())

    async def lift(self, request: Request, names: Mapping[str, str]) -> Response:
        worker, why = self._worker(names["name"]), _why(request)
        if why == "look":
            worker.look_hold = None
        elif why == "repair":
            worker.repair_hold = None
        else:
            worker.hold = None
        self._registry.wake_all()
        return json_answer(worker.view())

    def _worker(self, name: str) -> Any:
        worker = self._registry.workers.get(name)
        if worker is None:
            raise NotFound(f"no worker {name[:80]!r} in {self._registry.data_center}")
        return worker


def _why(request: Request) -> str:
    why: str = request.query.get("for", "")
    if why not in ("", "look", "repair"):
        raise BadInput(f"for={why[:40]!r}: look, repair, or nothing")
    return why


def _place(position: Any) -> dict[str, Any]:
    return {"epoch": position.epoch, "index": position.index, "hash": position.hash.hex()}
