"""``GET /txlog/live``: what this master knows of its cluster, in one value, as it changes.

All streams share one snapshot per :data:`PERIOD_S`: the first one that wakes computes it. A stream is sent a snapshot
only if it differs from the one before. A client that reads slowly skips snapshots, so it costs one value in memory.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from aiohttp import web

from txlog.http.router import API_HEADER, API_VERSION, Request, Response, Route, encode_json
from txlog.model.errors import Unavailable
from txlog.runtime.master_context import MasterContext
from txlog.runtime.worker_state import RegisteredWorker
from txlog.server.console.latency_probe import LatencyProbe

PERIOD_S: Final = 0.5
"""Seconds between two snapshots."""
HEARTBEAT_S: Final = 15.0
STALL_TIMEOUT_S: Final = 30.0
"""A client that takes nothing for so long is disconnected."""
STREAMS_MAX: Final = 64
MEBIBYTE_SHIFT: Final = 20
LIMIT_BITS: Final = 6
RETRY_MS: Final = 1000
EVENT_STREAM: Final = "text/event-stream"

Describe = Callable[[], dict[str, Any]]


class LiveViewHandler:
    """``GET /txlog/live``. The functions describe the links, who receives from whom, the view, the trim, and the open
    duties; ``refresh`` updates what is known of repairs."""

    def __init__(
        self,
        site: MasterContext,
        *,
        links: Describe,
        reachability: Describe,
        view: Describe,
        trim: Describe,
        duties: Callable[[], list[dict[str, Any]]],
        refresh: Callable[[], None],
    ) -> None:
        self._context = site
        self._links, self._reachability, self._view, self._trim = links, reachability, view, trim
        self._duties = duties
        self._refresh = refresh
        self._probe = LatencyProbe(site.durability)
        self._stream_count = 0
        self._computed_at = float("-inf")
        self._body = b""

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [Route("GET", "/txlog/live", self.get)]

    async def get(self, request: Request, _: Mapping[str, str]) -> Response:
        """One snapshot as JSON; with ``Accept: text/event-stream`` each one that differs from the one before."""
        if EVENT_STREAM not in request.headers.get("Accept", "") or request.method == "HEAD":
            return web.Response(
                body=self._current(), content_type="application/json", headers={"Cache-Control": "no-store"}
            )
        if self._context.is_closing:
            raise Unavailable("Closing", "this master ends; ask another one")
        if self._stream_count >= STREAMS_MAX:
            raise Unavailable(
                "TooManyFollowers", f"{self._stream_count} consoles are open here; ask another master", 10
            )
        self._stream_count += 1
        try:
            return await self._stream(request)
        finally:
            self._stream_count -= 1

    async def _stream(self, request: Request) -> Response:
        response = web.StreamResponse(
            headers={
                "Content-Type": EVENT_STREAM,
                "Cache-Control": "no-store",
                "X-Accel-Buffering": "no",
                API_HEADER: API_VERSION,
            }
        )
        await response.prepare(request)
        await response.write(b"retry: %d\n\n" % RETRY_MS)
        sent: bytes = b""
        written_at = time.monotonic()
        while not self._context.is_closing and not _is_gone(request):
            body = self._current()
            now = time.monotonic()
            if body is not sent:
                data, sent = b"data: %s\n\n" % body, body
            elif now - written_at >= HEARTBEAT_S:
                data = b": alive\n\n"
            else:
                data = b""
            if data:
                if not await _write(response, data):
                    self._abort(request)
                    break
                written_at = now
            await asyncio.sleep(PERIOD_S - time.monotonic() % PERIOD_S)
        return response

    def _current(self) -> bytes:
        """The snapshot of this period. The same object while nothing has changed."""
        now = time.monotonic()
        if now - self._computed_at < PERIOD_S / 2:
            return self._body
        self._computed_at = now
        self._probe.poll()
        body = encode_json(self._snapshot())
        if self._body.partition(b",")[2] != body.partition(b",")[2]:  # the first field is the time
            self._body = body
        return self._body

    def _abort(self, request: Request) -> None:
        self._context.log.warning_rate_limited("ConsoleStalled", "live", seconds=STALL_TIMEOUT_S)
        if request.transport is not None:
            request.transport.abort()

    # The snapshot

    def _snapshot(self) -> dict[str, Any]:
        site = self._context
        durability, agreement, view = site.durability, site.status.log_state, site.status.view
        queues = agreement.queues if agreement is not None else []
        return {
            "at": round(time.time(), 3),
            "node": site.config.node,
            "dataCenter": site.config.data_center,
            "repository": site.repository,
            "state": "Closing" if site.is_closing else site.state,
            "epoch": view.epoch if view is not None else 0,
            "view": self._view(),
            "log": {
                "start": agreement.log_index.start if agreement is not None else 0,
                "end": durability.log_position().index,
                "stable": durability.stable.value,
                "settled": agreement.final_index if agreement is not None else 0,
                "applied": durability.applied.value,
                "appliedAll": durability.applied_all.value,
            },
            "queue": {"transactions": sum(len(q) for q in queues), "bytes": sum(q.payload_bytes for q in queues)},
            "origins": self._origins(),
            "latencyMs": self._probe.median_ms(),
            "masters": self._masters(),
            "workers": self._workers(),
            **self._reachability(),
            "duties": self._duties(),
            "trim": self._rounded_trim(),
        }

    def _rounded_trim(self) -> dict[str, Any]:
        """The size in whole MiB. The limit follows the free space of the disk, which changes all the time: it is shown
        in steps of 2 to 3 %."""
        trim = self._trim()
        return trim | {
            "bytes": _round_down(trim["bytes"], MEBIBYTE_SHIFT),
            "bytesMax": _round_down(trim["bytesMax"], max(MEBIBYTE_SHIFT, trim["bytesMax"].bit_length() - LIMIT_BITS)),
        }

    def _origins(self) -> list[dict[str, Any]]:
        """How many transactions of each master the log has up to its end, over all its incarnations."""
        agreement = self._context.status.log_state
        counts: dict[str, int] = {}
        if agreement is not None:
            log_index = agreement.log_index
            for node, _, seq in log_index.seqs_at(log_index.length):
                counts[node] = counts.get(node, 0) + seq
        return [{"node": node, "transactions": count} for node, count in sorted(counts.items())]

    def _masters(self) -> list[dict[str, Any]]:
        site = self._context
        view = site.status.view
        links = {peer["node"]: peer for peer in self._links()["peers"]}
        departed = site.loop.departures.departed_members()
        return [
            {
                "node": node,
                "dataCenter": data_center,
                "self": node == site.config.node,
                "inView": view is not None and view.member(node) is not None,
                "present": node == site.config.node or site.status.is_present(node),
                "connected": node == site.config.node or bool(links.get(node, {}).get("connected")),
                "why": departed.get(node),
            }
            for node, data_center in site.masters
        ]

    def _workers(self) -> list[dict[str, Any]]:
        self._refresh()
        known = self._context.registry.known
        return [
            _describe_worker(data_center, worker)
            for data_center, workers in ((known.data_center, known.local), *sorted(known.remote.items()))
            for worker in workers.values()
        ]


def _describe_worker(data_center: str, worker: RegisteredWorker) -> dict[str, Any]:
    finding, repair = worker.divergence, worker.repair
    return {
        "dataCenter": data_center,
        "name": worker.name,
        "engine": worker.engine,
        "state": worker.shown_state,
        "index": worker.position.index if worker.position is not None else None,
        "hold": worker.paused_at,
        "error": worker.refusal or worker.error,
        "fault": worker.fault,
        "txid": worker.txid,
        "differs": None if finding is None else {"graphs": finding.graph_count, "wrong": finding.wrong},
        "repair": None if repair is None else repair.state,
    }


def _round_down(number: int, bits: int) -> int:
    return number >> bits << bits


def _is_gone(request: Request) -> bool:
    return request.transport is None or request.transport.is_closing()


async def _write(response: web.StreamResponse, data: bytes) -> bool:
    """False if the client takes nothing for :data:`STALL_TIMEOUT_S`."""
    try:
        await asyncio.wait_for(response.write(data), STALL_TIMEOUT_S)
    except TimeoutError:
        return False
    return True
