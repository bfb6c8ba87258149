"""What a person decides about a refused store (:mod:`txlog.runtime.store_judgement`): it is adopted, or discarded.

A decision names the position at which the person saw the store, and becomes a duty while the store is there. It is not
durable: after a restart of this master before the duty is done, the store is refused again, and the person repeats it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from txlog.http.router import Request, Response, Route, json_response, read_body
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.errors import BadInput, Conflict
from txlog.model.hashes import content_base
from txlog.runtime.master_context import MasterContext
from txlog.runtime.worker_state import RegisteredWorker, WorkerMarker
from txlog.supervision.duties import DutyKind

_BODY_MAX = 4096
_BODY_EXAMPLE = '{"index": N, "hash": "32 hexadecimal digits", "cluster": "..."} as the worker\'s position has them'


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
        self._decided: dict[str, tuple[DutyKind, WorkerMarker]] = {}

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [
            Route("POST", "/txlog/workers/{name}/adopt", self.adopt),
            Route("POST", "/txlog/workers/{name}/discard", self.discard),
        ]

    def kind_for(self, worker: RegisteredWorker) -> DutyKind | None:
        """What was decided about this refused store at its present position; None: nothing yet."""
        decided = self._decided.get(worker.name)
        if decided is None or worker.position is None:
            return None
        kind, seen = decided
        return kind if _is_same_content(seen, worker.position) else None

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
        return self._accept(DutyKind.ADOPT, worker, position)

    async def discard(self, request: Request, names: Mapping[str, str]) -> Response:
        """The store's content is deleted, and the worker is rebuilt from a backup, another worker or the log. 202 with
        the duty's id. 409: the store is not refused, or has moved."""
        worker, _ = await self._checked(request, names["name"])
        assert worker.position is not None
        return self._accept(DutyKind.DISCARD, worker, worker.position)

    async def _checked(self, request: Request, name: str) -> tuple[RegisteredWorker, StoreDecision]:
        worker = self._context.registry.known.find_local(name)
        try:
            decision = msgspec.json.decode(await read_body(request, _BODY_MAX), type=StoreDecision)
        except DECODE_ERRORS as wrong:
            raise BadInput(f"expected {_BODY_EXAMPLE}: {wrong}") from None
        if worker.refusal is None or worker.position is None:
            raise Conflict(f"{name} is {worker.shown_state}: its store is not refused, and there is nothing to decide")
        seen = WorkerMarker(0, decision.index, decision.hash, cluster=decision.cluster)
        if not _is_same_content(seen, worker.position):
            at = worker.position
            raise Conflict(f"{name} is at index {at.index}, hash {at.hash}, cluster {at.cluster or 'none'}; look again")
        return worker, decision

    def _accept(self, kind: DutyKind, worker: RegisteredWorker, position: WorkerMarker) -> Response:
        self._decided[worker.name] = (kind, position)
        self._context.log.warning(
            "StoreDecided", worker=worker.name, decision=kind.value, index=position.index, cluster=position.cluster
        )
        return json_response({"worker": worker.name, "duty": decision_id(kind, worker)}, 202)


def decision_id(kind: DutyKind, worker: RegisteredWorker) -> str:
    """The id of the duty that carries the decision out."""
    at = worker.position
    assert at is not None
    return f"{kind.value}-{worker.name}-{at.index}-{at.hash[:8]}"


def _is_same_content(one: WorkerMarker, other: WorkerMarker) -> bool:
    return (one.index, one.hash, one.cluster) == (other.index, other.hash, other.cluster)
