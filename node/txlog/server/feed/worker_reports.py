"""The interface for pipelines and ``verify``: the doorbell, worker reports and pauses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from pydantic import ValidationError

from txlog.config.process_config import WorkerConfig
from txlog.http.router import (
    Request,
    Response,
    Route,
    int_parameter,
    json_response,
    read_body,
    read_json,
    seconds_parameter,
)
from txlog.model.errors import BadInput, NotFound
from txlog.runtime.master_context import MasterContext

TIMEOUT_S = 5.0
TIMEOUT_S_MAX = 30.0
CLOSING_WAIT_S = 0.1
"""A stopping master delays no caller for long, but still long enough that callers do not poll without pause."""
REPORT_BYTES_MAX = 256 << 10
DRAIN_POLL_S = 0.05
DIGEST_BYTES_MAX = 1 << 20
DIGEST_PAUSE_S = 5.0
"""Seconds after which a pause for a digest (``for=look``) ends by itself, because its requester may be gone."""
REPAIR_PAUSE_S = 15.0
"""Seconds after which a pause for a repair ends; the repair renews it meanwhile."""


class _PauseRequest(msgspec.Struct):
    index: int


class WorkerReportHandler:
    """The paths of workers: doorbell, list, add, remove, report, digests, pause and resume. ``describe_workers()``: the
    workers of this data centre as the API shows them. ``on_bulk(worker, body)``: takes the part of a report that is
    about bulk loads, and returns its part of the answer."""

    def __init__(
        self,
        site: MasterContext,
        describe_workers: Callable[[], list[dict[str, Any]]],
        on_bulk: Callable[[str, bytes], dict[str, Any]],
    ) -> None:
        self._context = site
        self._durability = site.durability
        self._registry = site.registry
        self._describe_workers = describe_workers
        self._on_bulk = on_bulk

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [
            Route("GET", "/txlog/doorbell", self.doorbell),
            Route("GET", "/txlog/workers", self.list_workers),
            Route("POST", "/txlog/workers", self.add_worker),
            Route("DELETE", "/txlog/workers/{name}", self.remove_worker),
            Route("POST", "/txlog/workers/{name}", self.report),
            Route("POST", "/txlog/workers/{name}/look", self.report_digests),
            Route("POST", "/txlog/workers/{name}/comparison", self.report_comparison),
            Route("PUT", "/txlog/holds/{name}", self.pause),
            Route("DELETE", "/txlog/holds/{name}", self.resume),
        ]

    def tasks(self) -> dict[str, Any]:
        """The tasks that run until the process ends, by name."""
        return {"doorbell-ticks": self._ring_doorbells()}

    async def _ring_doorbells(self) -> None:
        while True:  # noqa: ASYNC110 - a clock, not a wait for something
            await asyncio.sleep(self._registry.doorbell.ring_if_due())

    async def doorbell(self, request: Request, _: Mapping[str, str]) -> Response:
        """Waits for an executable index above ``after``, or another ``tick``, or ``timeout`` seconds. Answers
        ``{"stable", "tick", "workers"}``."""
        query = request.query
        after = int_parameter(query, "after", 0)
        tick = int_parameter(query, "tick", 0)
        seconds = seconds_parameter(query.get("timeout"), "timeout", TIMEOUT_S, TIMEOUT_S_MAX)
        durability, doorbell = self._durability, self._registry.doorbell
        if self._context.is_closing:
            seconds = min(seconds, CLOSING_WAIT_S)
        if durability.executable.value <= after and doorbell.tick == tick:
            future = durability.wait_index(durability.executable, after + 1)
            doorbell.add_waiter(future)
            await durability.wait_for(future, seconds)
        return json_response(
            {
                "stable": _position_to_dict(durability.executable_position()),
                "tick": doorbell.tick,
                "workers": self._describe_workers(),
            }
        )

    async def list_workers(self, request: Request, _: Mapping[str, str]) -> Response:
        """``{"workers", "elsewhere"}``: the workers of this data centre, and those of the others by its name."""
        elsewhere = {
            name: [worker.to_dict() for worker in workers.values()]
            for name, workers in self._registry.remote_workers.items()
        }
        return json_response({"workers": self._describe_workers(), "elsewhere": elsewhere})

    async def add_worker(self, request: Request, _: Mapping[str, str]) -> Response:
        """``{"name", "url", "engine"}``: adds a worker to this data centre until this process ends. The caller adds it
        again after the next start."""
        try:
            config = WorkerConfig.model_validate_json(await read_body(request, REPORT_BYTES_MAX))
        except ValidationError as wrong:
            raise BadInput(f'{{"name", "url", "engine"}}: {wrong.errors()[0]["msg"]}') from None
        self._registry.add(config)
        return json_response({"workers": list(self._registry.workers)})

    async def remove_worker(self, request: Request, names: Mapping[str, str]) -> Response:
        """Removes a worker. Answers ``{"reading"}``: the client reads that are still active there after at most
        ``timeout`` seconds. To remove an unknown worker again is no error."""
        seconds = seconds_parameter(request.query.get("timeout"), "timeout", TIMEOUT_S, TIMEOUT_S_MAX)
        name, registry = names["name"], self._registry
        registry.remove(name)
        until = time.monotonic() + seconds
        while registry.reads.active_reads[name] and time.monotonic() < until:  # noqa: ASYNC110 - rare, and has no event
            await asyncio.sleep(DRAIN_POLL_S)
        return json_response({"reading": registry.reads.active_reads[name]})

    async def report(self, request: Request, names: Mapping[str, str]) -> Response:
        """Accepts the pipeline's report about a worker. Answers ``{"hold"}``, and ``bulk``: a load to prepare."""
        body = await read_body(request, REPORT_BYTES_MAX)
        hold = self._registry.report(names["name"], body)
        return json_response({"hold": hold, **self._on_bulk(names["name"], body)})

    async def report_digests(self, request: Request, names: Mapping[str, str]) -> Response:
        """Accepts the graph digests of this worker at one position
        (:class:`~txlog.model.graph_digests.GraphDigests`)."""
        self._registry.report_digests(names["name"], await read_body(request, DIGEST_BYTES_MAX))
        return json_response({"divergence": self._registry.workers[names["name"]].divergence})

    async def report_comparison(self, request: Request, names: Mapping[str, str]) -> Response:
        """Accepts how far the comparison of this worker's content is
        (:class:`~txlog.wire.comparison_report.ComparisonReport`)."""
        self._registry.report_comparison(names["name"], await read_body(request, REPORT_BYTES_MAX))
        return json_response({})

    async def pause(self, request: Request, names: Mapping[str, str]) -> Response:
        """Pauses a worker at an index. ``?for=look`` and ``?for=repair`` are separate from other pauses, and last only
        :data:`DIGEST_PAUSE_S` and :data:`REPAIR_PAUSE_S`."""
        worker, why = self._find_worker(names["name"]), _pause_purpose(request)
        pause = await read_json(request, _PauseRequest, '{"index": N}', REPORT_BYTES_MAX)
        if pause.index < 0:
            raise BadInput("index: 0 or more")
        before, now = worker.paused_at, time.monotonic()
        if why == "look":
            worker.look_hold, worker.look_hold_until = pause.index, now + DIGEST_PAUSE_S
        elif why == "repair":
            worker.repair_hold, worker.repair_hold_until = pause.index, now + REPAIR_PAUSE_S
        else:
            worker.hold = pause.index
        if worker.paused_at != before or why != "repair":
            self._registry.doorbell.wake_all()
        return json_response(worker.to_dict())

    async def resume(self, request: Request, names: Mapping[str, str]) -> Response:
        """Ends the pause of a worker."""
        worker, why = self._find_worker(names["name"]), _pause_purpose(request)
        if why == "look":
            worker.look_hold = None
        elif why == "repair":
            worker.repair_hold = None
        else:
            worker.hold = None
        self._registry.doorbell.wake_all()
        return json_response(worker.to_dict())

    def _find_worker(self, name: str) -> Any:
        worker = self._registry.workers.get(name)
        if worker is None:
            raise NotFound(f"no worker {name[:80]!r} in {self._registry.data_center}")
        return worker


def _pause_purpose(request: Request) -> str:
    why: str = request.query.get("for", "")
    if why not in ("", "look", "repair"):
        raise BadInput(f"for={why[:40]!r}: look, repair, or nothing")
    return why


def _position_to_dict(position: Any) -> dict[str, Any]:
    return {"epoch": position.epoch, "index": position.index, "hash": position.hash.hex()}
