"""``/txlog/bulk``: bulk loads, from the pipelines' preparation to the entry of the log
(docs/decisions/0125-bulk-loads-beside-the-log.md).

A master keeps nothing of a load: who loads asks again and again, and a request that is not renewed is forgotten. What
happened is in the log alone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from txlog.http.router import Request, Response, Route, json_response, read_json
from txlog.model.bulk_entry import BulkReference, bulk_key, encode_bulk_load, is_bulk_id
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.durability import Durability
from txlog.model.entry import KIND_UPDATE
from txlog.model.errors import BadInput, Conflict, Refused, Unsupported
from txlog.model.hashes import content_hash
from txlog.protocol.events import Submission
from txlog.runtime.master_context import MasterContext

BODY_MAX: Final = 4096
REQUEST_S: Final = 30.0
"""Seconds for which a load is prepared after it was asked for. Who loads asks every second."""
_FAILED: Final = "Failed"
"""The phase of a body that broke off."""
_EXPECTED_BODY: Final = '{"manifest": "64 hexadecimal digits", "quads": N}'
_HEXADECIMAL: Final = frozenset("0123456789abcdef")


class BulkLoadRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A load whose parts are on the targets of all data centres. ``manifest``: the SHA-256 of its manifest."""

    manifest: str
    quads: int


class WorkerBulkState(msgspec.Struct, frozen=True):
    """How far a worker is with a load, as its pipeline reported last (``BulkProgress`` of the client)."""

    mode: str = ""
    load: str = ""
    phase: str = ""
    quads: int = 0
    error: str | None = None


class _BulkReport(msgspec.Struct):
    bulk: WorkerBulkState | None = None


_reports = msgspec.json.Decoder(_BulkReport)


class BulkLoadHandler:
    """Asks the pipelines of this data centre to prepare a load, and appends the entry of one."""

    def __init__(self, site: MasterContext) -> None:
        self._context = site
        self._wanted: BulkReference | None = None
        self._wanted_until = 0.0
        self._workers: dict[str, WorkerBulkState] = {}

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [
            Route("GET", "/txlog/bulk", self.describe),
            Route("PUT", "/txlog/bulk/{id}", self.prepare),
            Route("DELETE", "/txlog/bulk/{id}", self.give_up),
            Route("POST", "/txlog/bulk/{id}", self.append),
        ]

    # -- pipelines

    def on_report(self, worker: str, body: bytes) -> dict[str, Any]:
        """Takes the part of a pipeline's report that is about bulk loads; returns its part of the answer."""
        try:
            found = _reports.decode(body).bulk
        except DECODE_ERRORS as wrong:
            raise BadInput(f"a worker's report, bulk: {wrong}") from None
        if found is None:
            self._workers.pop(worker, None)
        else:
            self._workers[worker] = found
        wanted = self._current()
        return {} if wanted is None or found is None else {"bulk": wanted._asdict()}

    def _current(self) -> BulkReference | None:
        if self._wanted is not None and time.monotonic() > self._wanted_until:
            self._wanted = None
        return self._wanted

    # -- who loads

    async def describe(self, request: Request, _: Mapping[str, str]) -> Response:
        """``{"dataCenter", "preparing", "workers", "refused"}``: the load that is prepared, and how far each worker is.
        ``bulk`` of a worker is null where its pipeline says nothing of bulk loads. ``refused``: why this cluster takes
        none."""
        wanted = self._current()
        workers = [
            {
                "name": worker.name,
                "engine": worker.engine,
                "state": worker.state,
                "index": worker.position.index if worker.position is not None else 0,
                "bulk": msgspec.to_builtins(self._workers.get(worker.name)),
            }
            for worker in self._context.registry.workers.values()
        ]
        data_center = self._context.config.data_center
        preparing = None if wanted is None else wanted._asdict()
        found = {"dataCenter": data_center, "preparing": preparing, "workers": workers, "refused": self._find_unfit()}
        return json_response(found)

    async def prepare(self, request: Request, names: Mapping[str, str]) -> Response:
        """Asks the pipelines of this data centre to send this load to their workers, and to hold it there. It has to
        be asked for again within :data:`REQUEST_S`. 409 while another load is prepared."""
        wanted = await self._read(request, names)
        self._refuse_unfit()
        before = self._current()
        if before is not None and before.id != wanted.id:
            raise Conflict(f"the load {before.id} is prepared here; one at a time: try again when it is in")
        self._wanted, self._wanted_until = wanted, time.monotonic() + REQUEST_S
        if before is None:
            self._forget_failures()
        if before != wanted:
            self._context.registry.doorbell.wake_all()
        return await self.describe(request, names)

    def _forget_failures(self) -> None:
        """Of an earlier attempt: an idle pipeline reports the end of one in its next report only."""
        for worker, known in self._workers.items():
            if known.phase == _FAILED:
                self._workers[worker] = WorkerBulkState(known.mode)

    async def give_up(self, request: Request, names: Mapping[str, str]) -> Response:
        """Ends the preparation of this load. To end it again is no error."""
        if self._wanted is not None and self._wanted.id == names["id"]:
            self._wanted = None
            self._context.registry.doorbell.wake_all()
        return await self.describe(request, names)

    async def append(self, request: Request, names: Mapping[str, str]) -> Response:
        """Appends the entry of a load: from here on it happens. The answer comes when it is stable:
        ``{"transaction"}``. 202 when it is not within the write time-out: it may become so. Repeating is harmless
        within ``keyRetention``."""
        load = await self._read(request, names)
        self._refuse_unfit()
        key, payload = bulk_key(load.id), encode_bulk_load(load)
        write = self._context.loop.write(
            [Submission(KIND_UPDATE, key, payload, content_hash(KIND_UPDATE, key, payload))], Durability.SYNCED
        )
        in_time = await self._context.durability.wait_for(write.reached, self._context.config.write_timeout_s)
        answer = write.answers[0] if write.answers else None
        if isinstance(answer, Refused):
            raise answer
        if not in_time or answer is None:
            return json_response({"transaction": None}, 202)
        self._context.log.info("BulkLoad", load=load.id, quads=load.quads, txid=str(answer.txid))
        return json_response({"transaction": str(answer.txid)})

    async def _read(self, request: Request, names: Mapping[str, str]) -> BulkReference:
        given = await read_json(request, BulkLoadRequest, _EXPECTED_BODY, BODY_MAX)
        if not is_bulk_id(names["id"]):
            raise BadInput(f"{names['id'][:80]!r} is no load; expected 32 hexadecimal digits")
        if len(given.manifest) != 64 or not _HEXADECIMAL.issuperset(given.manifest):
            raise BadInput(f"manifest {given.manifest[:80]!r}: expected {_EXPECTED_BODY}")
        if not 0 < given.quads < 10**15:
            raise BadInput(f"quads {given.quads}: expected {_EXPECTED_BODY}, from 1 to 10^15 - 1")
        return BulkReference(names["id"], given.manifest, given.quads)

    def _refuse_unfit(self) -> None:
        unfit = self._find_unfit()
        if unfit is not None:
            raise Unsupported(unfit)

    def _find_unfit(self) -> str | None:
        """Why a load would be wrong in this cluster, however it was prepared."""
        status = self._context.status
        view = status.view
        if "None" in (status.settings.strategy, view.strategy if view is not None else ""):
            return "bulk loads: not with splitRecovery None; load with txlog load"
        configuration = status.configuration
        if configuration is not None and configuration.graphs:
            return "bulk loads: not where graphs are synchronous; load with txlog load"
        if self._context.config.change_sets is not None:
            return "bulk loads: not with change sets, which cannot say what one adds; load with txlog load"
        return None
