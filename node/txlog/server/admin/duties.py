"""The duties of this data centre: work that the masters request from the supervisor. They are a split backup, a restore
of a worker, a skip-ahead (under ``None``; ``unorder`` on the wire), a repair of a worker that differs from others, and
what a person decided about a refused store (``adopt``, ``discard``).

Repairs, and decisions about stores, are recorded next to the journal of the master that took them. All other duties
follow from durable state: the view, its silent members, and the position in each worker's marker. Every master of the
data centre therefore derives the same list after any crash. To perform a duty twice is unnecessary, but not wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from txlog.http.router import Request, Response, Route, int_parameter, json_response, read_body
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.errors import BadInput, NotFound, OffTheLog
from txlog.model.hashes import NO_HASH
from txlog.protocol.log.executed_out_of_order import find_branch_position
from txlog.runtime.master_context import MasterContext
from txlog.runtime.worker_state import RegisteredWorker
from txlog.server.admin.store_decisions import StoreDecisions, decision_id
from txlog.server.admin.views import format_view_number
from txlog.server.admin.worker_repairs import WorkerRepairs
from txlog.wire.divergence_report import CompletedRepair

BODY_MAX = 16 << 10
MESSAGE_CHARACTERS_MAX = 500
_REPAIR_ID = re.compile(r"repair-(.{1,63})-([0-9]{1,18})")
_EXPECTED_BODY = (
    '{"state": "done" or "begun", "index": N, "hash": "32 hexadecimal digits", "epoch": N} or '
    '{"state": "failed", "message": "..."}'
)


class DutyReport(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """The body of ``POST /txlog/duties/{id}``: ``state`` is done, begun or failed, with ``message`` for an error.
    ``fence`` and the fields after it belong to a repair report."""

    state: str
    index: int = -1
    hash: str = ""
    epoch: int = -1
    message: str = ""
    fence: int = 0
    source: str = ""
    graphs: list[str] = []
    graph_count: int = 0
    added: int = 0
    removed: int = 0


class DutyPosition(msgspec.Struct, frozen=True):
    """A position on the log; ``hash`` is the chain hash in hexadecimal."""

    epoch: int
    index: int
    hash: str


class Duty(msgspec.Struct, frozen=True):
    """``id`` names the cause: the view with the silent members, or the worker and its position. ``error`` is the last
    reported failure of this duty."""

    id: str
    kind: str
    why: str
    worker: str | None = None
    error: str | None = None
    to: DutyPosition | None = None
    """``unorder`` only: the position on the log to which the worker is moved."""
    lacks: bool = False
    """``restore`` only: true if the sole reason is that this master never had the order that the worker executed.
    Another master may have that order."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of ``GET /txlog/duties``."""
        return msgspec.structs.asdict(self)


class DutyHandler:
    """``/txlog/duties``: lists the open duties of this data centre and accepts the supervisor's reports on them."""

    def __init__(self, site: MasterContext, repairs: WorkerRepairs, decisions: StoreDecisions) -> None:
        self._context = site
        self._repairs = repairs
        self._decisions = decisions
        self._errors: dict[str, str] = {}

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [
            Route("GET", "/txlog/duties", self.get),
            Route("GET", "/txlog/duties/{id}", self.check_position),
            Route("POST", "/txlog/duties/{id}", self.report),
        ]

    def open_duties(self) -> list[Duty]:
        """The duties that are open now. A split backup comes first, because the split waits for it."""
        status = self._context.status
        found: list[Duty] = []
        if status.needs_split_backup:
            silent = ", ".join(status.silent_members) or "a member again and again"
            why = f"split: {silent} silent in view {format_view_number(status.view_number)}"
            found.append(self._new_duty(f"backup-{format_view_number(status.view_number)}", "backup", why))
        if status.is_view_active and status.newer_view is None:
            for worker in self._context.registry.workers.values():
                found += self._worker_duties(worker)
        wrong = self._repairs.next_due() if not found else None  # a repair is never listed together with another duty
        if wrong is not None and wrong.divergence is not None:
            finding = wrong.divergence
            found.append(self._new_duty(f"repair-{wrong.name}-{finding.fence}", "repair", finding.why, wrong.name))
        known = {duty.id for duty in found}
        self._errors = {name: error for name, error in self._errors.items() if name in known}
        return found

    def _worker_duties(self, worker: RegisteredWorker) -> list[Duty]:
        if worker.refusal is not None:
            return self._decided_duties(worker)
        view, off = self._context.status.view, self._context.registry.is_off_chain(worker)
        if (
            view is not None
            and worker.position is not None
            and self._context.registry.is_below_log_start(worker.position)
        ):
            why = f"{worker.name} is at {worker.position.index}, below what is kept of the log"
            return [self._new_duty(_restore_id(worker), "restore", why, worker.name)]
        if view is None or not (off or worker.is_unordered):
            return []
        if view.strategy != "None":
            why = "stands on another branch than the log" if off else f"is unordered, which {view.strategy} cannot use"
            return [self._new_duty(_restore_id(worker), "restore", f"{worker.name} {why}", worker.name)]
        to, place = self._skip_ahead_position(worker), worker.position
        if to is None or place is None:
            why = f"{worker.name} stands on another branch than the log, which this master never had"
            return [self._new_duty(_restore_id(worker), "restore", why, worker.name, lacks=True)]
        if not off:
            return []
        why = f"{worker.name} stands on another branch than the log, and does not go back (splitRecovery None)"
        return [
            self._new_duty(f"unorder-{worker.name}-{place.index}-{place.hash[:8]}", "unorder", why, worker.name, to)
        ]

    def _decided_duties(self, worker: RegisteredWorker) -> list[Duty]:
        """A store that is not of this cluster is touched by a person's decision only."""
        kind = self._decisions.kind_for(worker)
        if kind is None:
            return []
        why = f"a person decided so: {worker.refusal}"
        return [self._new_duty(decision_id(kind, worker), kind.value, why, worker.name)]

    def _skip_ahead_position(self, worker: RegisteredWorker) -> DutyPosition | None:
        """The last position on the log up to which the worker has executed everything. None if this master cannot know
        it."""
        agreement, place = self._context.status.log_state, worker.position
        if agreement is None or place is None:
            return None
        texts = [*place.unordered, f"{place.index}:{place.hash}"]
        named = [(int(index), bytes.fromhex(value)) for index, _, value in (text.partition(":") for text in texts)]
        paths = [find_branch_position(agreement, index, value) for index, value in named]
        known = [path.shared_index for path in paths if path is not None]
        if len(known) < len(paths):
            return None
        at = max(known)
        return DutyPosition(agreement.view.epoch, at, agreement.log_index.hash_at(at).hex())

    def _new_duty(
        self,
        name: str,
        kind: str,
        why: str,
        worker: str | None = None,
        to: DutyPosition | None = None,
        lacks: bool = False,
    ) -> Duty:
        return Duty(name, kind, why, worker, self._errors.get(name), to, lacks)

    async def get(self, request: Request, _: Mapping[str, str]) -> Response:
        """``{"duties": [...], "state", "dataCenter"}``."""
        site = self._context
        duties = [duty.to_dict() for duty in self.open_duties()]
        return json_response({"duties": duties, "state": site.state, "dataCenter": site.config.data_center})

    async def check_position(self, request: Request, names: Mapping[str, str]) -> Response:
        """Whether a backup at the position ``index``, ``hash``, ``epoch`` would serve this backup duty:
        ``{"usable", "why"}``. ``why`` explains a refusal. Changes nothing."""
        duty = self._open_duty(names["id"])
        if duty is None or duty.kind != "backup":
            raise NotFound(f"{names['id'][:80]!r} is no backup duty here now; GET /txlog/duties lists them")
        query = request.query
        index, epoch = int_parameter(query, "index", -1), int_parameter(query, "epoch", -1)
        try:
            digest = bytes.fromhex(query.get("hash", ""))
        except ValueError:
            digest = b""
        if index < 0 or len(digest) != len(NO_HASH):
            raise BadInput("expected index=N&hash=H, optionally &epoch=N; a hash is 32 hexadecimal digits")
        try:
            self._context.status.check_backup_position(index, digest, epoch)
        except OffTheLog as off:
            return json_response({"usable": False, "why": str(off)})
        return json_response({"usable": True, "why": None})

    def _open_duty(self, name: str) -> Duty | None:
        return next((each for each in self.open_duties() if each.id == name), None)

    async def report(self, request: Request, names: Mapping[str, str]) -> Response:
        """The supervisor reports ``done`` or ``failed``. ``begun`` is the question of :meth:`check_position`, as
        programs of the last release ask it. The answer is ``{"open"}``: whether the duty is still open. 409
        ``OffTheLog`` rejects a backup at an unusable position; the duty's ``error`` then names the reason."""
        try:
            report = msgspec.json.decode(await read_body(request, BODY_MAX), type=DutyReport)
            digest = bytes.fromhex(report.hash)
        except DECODE_ERRORS as wrong:
            raise BadInput(f"{_EXPECTED_BODY}: {wrong}") from None
        if report.state not in ("done", "begun", "failed"):
            raise BadInput(f"state {report.state[:40]!r}: expected {_EXPECTED_BODY}")
        if report.state != "failed" and (report.index < 0 or len(digest) != len(NO_HASH)):
            raise BadInput(f"index {report.index}, hash {report.hash[:40]!r}: expected {_EXPECTED_BODY}")
        duty = self._open_duty(names["id"])
        repair = _REPAIR_ID.fullmatch(names["id"])
        if repair is not None:  # a completed repair is no longer listed
            return self._on_repair_report(names["id"], repair[1], int(repair[2]), report)
        if duty is None:
            raise NotFound(f"{names['id'][:80]!r} is no duty here now; GET /txlog/duties lists them")
        if report.state == "failed":
            self._errors[duty.id] = report.message[:MESSAGE_CHARACTERS_MAX]
        elif duty.kind == "backup":
            self._on_backup_report(duty, report, digest)
        return json_response({"open": self._open_duty(duty.id) is not None})

    def _on_repair_report(self, duty: str, worker: str, fence: int, report: DutyReport) -> Response:
        if min(report.fence, report.graph_count, report.added, report.removed) < 0:
            raise BadInput("fence, graphCount, added, removed: expected 0 or more")
        if report.state == "failed":
            self._repairs.record_failure(worker, fence, report.message)
        elif report.state == "done":
            done = CompletedRepair(
                worker,
                report.source[:MESSAGE_CHARACTERS_MAX],
                report.graphs,
                report.graph_count,
                report.added,
                report.removed,
                report.index,
                report.fence,
                0.0,
            )
            self._repairs.record_done(worker, fence, done)
        return json_response({"open": self._open_duty(duty) is not None})

    def _on_backup_report(self, duty: Duty, report: DutyReport, digest: bytes) -> None:
        site = self._context
        try:
            site.status.check_backup_position(report.index, digest, report.epoch)
        except OffTheLog as off:
            self._errors[duty.id] = f"{off.name}: {off}"
            raise
        if report.state == "done":
            site.loop.backup_done(report.index, digest, report.epoch)
            site.log.info("SplitBackup", index=report.index)


def _restore_id(worker: RegisteredWorker) -> str:
    place = worker.position
    return f"restore-{worker.name}-" + (f"{place.index}-{place.hash[:8]}" if place is not None else "unknown")
