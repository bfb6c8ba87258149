"""What a person decides about a refused store (:mod:`txlog.runtime.store_judgement`): it is adopted, or discarded.

A decision names the position at which the person saw the store, and becomes a duty while the store is there. It is
durable before it is answered, so it outlives a restart of this master. The master forgets it when the store is at
another position: the duty is done, or the person saw other content.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from txlog.http.router import Request, Response, Route, json_response, read_json
from txlog.model.errors import Conflict, Unavailable
from txlog.model.hashes import content_base
from txlog.runtime.master_context import MasterContext
from txlog.runtime.worker_state import RegisteredWorker, WorkerMarker
from txlog.server.admin.store_decision_file import FILE, KeptDecision, read_decisions, write_decisions
from txlog.supervision.duties import DutyKind

FORGET_POLL_S: Final = 0.5
"""Poll interval for decisions that no store needs any more."""
_BODY_MAX = 4096
_EXPECTED_BODY = (
    'expected {"index": N, "hash": "32 hexadecimal digits", "cluster": "..."} as the worker\'s position has them'
)


class StoreDecision(msgspec.Struct, forbid_unknown_fields=True):
    """The position at which the person saw the store. ``force``: adopt it although other workers executed this log
    without its content; they are rebuilt afterwards."""

    index: int
    hash: str
    cluster: str = ""
    force: bool = False


class StoreDecisions:
    """``POST /txlog/workers/{name}/adopt`` and ``/discard``."""

    def __init__(self, site: MasterContext) -> None:
        self._context = site
        self._folder = site.config.journal_folder
        self._writing = asyncio.Lock()
        self._registered: set[str] = set()
        """The workers at the last look. One that is missing at the start may still be added by the supervisor."""
        self._decided = self._read()
        self._is_saved = True

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [
            Route("POST", "/txlog/workers/{name}/adopt", self.adopt),
            Route("POST", "/txlog/workers/{name}/discard", self.discard),
        ]

    def tasks(self) -> dict[str, Any]:
        """The tasks that run until the process ends, by name."""
        return {"store-decisions": self._forget_done()}

    def kind_for(self, worker: RegisteredWorker) -> DutyKind | None:
        """What was decided about this refused store at its present position; None: nothing yet."""
        decided = self._decided.get(worker.name)
        if decided is None or worker.position is None or self._reason_to_forget(worker.name, decided) is not None:
            return None
        return DutyKind(decided.kind)

    async def adopt(self, request: Request, names: Mapping[str, str]) -> Response:
        """The store's content becomes what was there before the first entry of this log, and the log follows on it. 202
        with the duty's id. 409: the store is not refused, has moved, the log does not start at its first entry, or
        another worker executed this log without that content (unless ``force``)."""
        worker, decision = await self._checked(request, names["name"])
        log, position = self._context.status.log_state, worker.position
        assert log is not None
        assert position is not None
        if log.log_index.start:
            raise Conflict(
                f"this log is kept from index {log.log_index.start} on, so {worker.name} could not follow it from its "
                f"first entry: txlog worker rebuild {worker.name} --discard"
            )
        base = content_base(
            bytes.fromhex(position.cluster), bytes.fromhex(position.base), position.index, bytes.fromhex(position.hash)
        )
        others = [
            name
            for name, each in self._context.registry.known.all()
            if each is not worker and each.position is not None and each.refusal is None
            if each.position.index and each.position.base != base.hex()
        ]
        if others and not decision.force:
            raise Conflict(
                f"{', '.join(others)} executed this log without what {worker.name} holds, and would differ; say force, "
                f"and rebuild them from {worker.name} afterwards: txlog worker rebuild NAME --live"
            )
        return await self._accept(DutyKind.ADOPT, worker, position)

    async def discard(self, request: Request, names: Mapping[str, str]) -> Response:
        """The store's content is deleted, and the worker is rebuilt from a backup, another worker or the log. 202 with
        the duty's id. 409: the store is not refused, or has moved."""
        worker, _ = await self._checked(request, names["name"])
        assert worker.position is not None
        return await self._accept(DutyKind.DISCARD, worker, worker.position)

    async def _checked(self, request: Request, name: str) -> tuple[RegisteredWorker, StoreDecision]:
        worker = self._context.registry.known.find_local(name)
        decision = await read_json(request, StoreDecision, _EXPECTED_BODY, _BODY_MAX)
        if worker.refusal is None or worker.position is None:
            raise Conflict(f"{name} is {worker.shown_state}: its store is not refused, and there is nothing to decide")
        at = worker.position
        if (decision.index, decision.hash, decision.cluster) != (at.index, at.hash, at.cluster):
            raise Conflict(f"{name} is at index {at.index}, hash {at.hash}, cluster {at.cluster or 'none'}; look again")
        return worker, decision

    async def _accept(self, kind: DutyKind, worker: RegisteredWorker, at: WorkerMarker) -> Response:
        duty = decision_id(kind, worker)
        value: Literal["adopt", "discard"] = "adopt" if kind is DutyKind.ADOPT else "discard"
        cluster = self._context.status.cluster_id
        decision = KeptDecision(value, at.index, at.hash, at.cluster, cluster, round(time.time(), 3))
        async with self._writing:
            decided = {**self._decided, worker.name: decision}
            try:
                await asyncio.to_thread(write_decisions, self._folder, decided)
            except OSError as wrong:
                what = f"{self._folder / FILE}: {wrong.strerror}; nothing was decided"
                raise Unavailable("NotKept", what) from None
            self._decided, self._is_saved = decided, True
        self._context.log.warning(
            "StoreDecided", worker=worker.name, decision=value, index=at.index, cluster=at.cluster
        )
        return json_response({"worker": worker.name, "duty": duty}, 202)

    def _read(self) -> dict[str, KeptDecision]:
        """A file that cannot be read empties no store: each store is refused until its decision is repeated."""
        try:
            return read_decisions(self._folder)
        except (OSError, ValueError) as wrong:
            self._context.log.warning("StoreDecisionsNotRead", path=str(self._folder / FILE), error=str(wrong))
            return {}

    async def _forget_done(self) -> None:
        while True:
            async with self._writing:
                self._forget_moved()
                if not self._is_saved:
                    await self._save()
            await asyncio.sleep(FORGET_POLL_S)

    def _forget_moved(self) -> None:
        for name, decided in list(self._decided.items()):
            why = self._reason_to_forget(name, decided)
            if why is not None:
                self._decided = {kept: each for kept, each in self._decided.items() if kept != name}
                self._is_saved = False
                self._context.log.info("StoreDecisionForgotten", worker=name, decision=decided.kind, why=why)
        self._registered = set(self._context.registry.workers)

    def _reason_to_forget(self, name: str, decided: KeptDecision) -> str | None:
        """None while a store may still need the decision. A store without a position may be half loaded."""
        cluster, worker = self._context.status.cluster_id, self._context.registry.workers.get(name)
        if cluster and cluster != decided.cluster:
            return f"it was for the cluster {decided.cluster}"
        if worker is None:
            return "the worker was removed" if name in self._registered else None
        at = worker.position
        return None if at is None or _is_content_of(decided, at) else f"the store is at index {at.index} now"

    async def _save(self) -> None:
        try:
            await asyncio.to_thread(write_decisions, self._folder, self._decided)
        except OSError as wrong:  # another module reports a full disk
            self._context.log.warning_rate_limited("StoreDecisionsNotKept", "store-decisions", error=str(wrong))
        else:
            self._is_saved = True


def decision_id(kind: DutyKind, worker: RegisteredWorker) -> str:
    """The id of the duty that carries the decision out."""
    at = worker.position
    assert at is not None
    return f"{kind.value}-{worker.name}-{at.index}-{at.hash[:8]}"


def _is_content_of(decided: KeptDecision, at: WorkerMarker) -> bool:
    return (decided.index, decided.hash, decided.store_cluster) == (at.index, at.hash, at.cluster)
