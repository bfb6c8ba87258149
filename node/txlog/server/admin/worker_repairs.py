"""Decides which worker of this data centre may be repaired automatically, and when a repair is left to people.

The rules are in :mod:`txlog.divergence.repair_policy`; the supervisor performs the repair. Completed repairs are stored
in a file next to the journal, so that a limit outlives a restart. A crash may lose its last line, which allows one more
repair.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from txlog.divergence.detector import GRAPHS_NAMED_MAX
from txlog.divergence.repair_policy import RepairFailure, RepairInputs, repair_status
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.errors import BadInput, NotFound
from txlog.runtime.master_context import MasterContext
from txlog.runtime.worker_state import STALE_S, RegisteredWorker
from txlog.server.admin.kept_file import keep
from txlog.wire.divergence_report import CompletedRepair, RepairStatus

FILE: Final = "repairs.json"
REPAIRS_KEPT: Final = 20
"""Repairs of a worker that are remembered."""
MESSAGE_CHARACTERS_MAX: Final = 500


class _RepairHistory(msgspec.Struct):
    """``given_up``: for each worker, the fence at which its repair was left to people."""

    repairs: dict[str, list[CompletedRepair]] = {}
    given_up: dict[str, int] = {}


class WorkerRepairs:
    """``by_itself()``: whether the settings allow automatic repairs now."""

    def __init__(self, site: MasterContext, by_itself: Callable[[], bool]) -> None:
        self._context = site
        self._is_automatic = by_itself
        self._path = site.config.journal_folder / FILE
        self._history = self._read()
        self._failures: dict[str, tuple[int, RepairFailure]] = {}  # with the fence of the finding

    def refresh_states(self) -> None:
        """Updates the repair status of each worker of this data centre."""
        for worker in self._context.registry.workers.values():
            worker.repair = self._repair_status(worker)
            if worker.repair is not None and worker.repair.state == "GivenUp":
                self._suspend(worker, worker.repair)

    def describe_workers(self) -> list[dict[str, Any]]:
        """The workers of this data centre as the API shows them, with the present state of each repair."""
        self.refresh_states()
        return [worker.to_dict() for worker in self._context.registry.workers.values()]

    def next_due(self) -> RegisteredWorker | None:
        """The first worker that may be repaired now."""
        self.refresh_states()
        workers = self._context.registry.workers.values()
        return next((w for w in workers if w.repair is not None and w.repair.state == "Due"), None)

    def record_done(self, name: str, fence: int, repair: CompletedRepair) -> None:
        """Records a completed repair. ``fence`` is that of the repaired finding. :class:`BadInput` unless the repair
        raised the fence above it."""
        self._find_worker(name)
        if not repair.graph_count:
            self._add_failure(name, fence, f"nothing to copy: it holds what {repair.source} holds")
            return
        if repair.fence <= fence:
            raise BadInput(f"fence {repair.fence}: expected one above {fence}, where it was found to differ")
        mine = self._history.repairs.setdefault(name, [])
        if mine and mine[-1].fence >= repair.fence:
            return  # reported again
        mine.append(msgspec.structs.replace(repair, graphs=repair.graphs[:GRAPHS_NAMED_MAX], at=round(time.time(), 3)))
        del mine[:-REPAIRS_KEPT]
        self._failures.pop(name, None)
        self._write()
        self._context.registry.notices.due.set()
        self._context.log.info("WorkerRepaired", **msgspec.to_builtins(mine[-1]))

    def record_failure(self, name: str, fence: int, message: str) -> None:
        """Records a failed repair. It is tried again after growing delays."""
        self._find_worker(name)
        self._add_failure(name, fence, message)

    def _add_failure(self, name: str, fence: int, message: str) -> None:
        before = self._failures.get(name)
        count = before[1].count + 1 if before is not None and before[0] == fence else 1
        self._failures[name] = (fence, RepairFailure(count, message[:MESSAGE_CHARACTERS_MAX], time.time()))
        self._context.log.warning("WorkerNotRepaired", worker=name, count=count, why=message[:MESSAGE_CHARACTERS_MAX])

    def _repair_status(self, worker: RegisteredWorker) -> RepairStatus | None:
        finding, name = worker.divergence, worker.name
        failed = self._failures.get(name)
        seen = RepairInputs(
            finding,
            self._history.repairs.get(name, ()),
            failed[1] if failed is not None and finding is not None and failed[0] == finding.fence else None,
            self._history.given_up.get(name),
            worker.is_under_repair,
            self._blocked_reason(worker) if finding is not None and finding.wrong else "",
        )
        return repair_status(seen, self._is_automatic(), time.time())

    def _blocked_reason(self, worker: RegisteredWorker) -> str:
        """Why a worker may not be repaired now: a repair is for quiet times, and one worker of a data centre at a
        time."""
        site, now = self._context, time.time()
        if site.state != "Joined":
            return f"{site.config.node} is {site.state}"
        if worker.hold is not None:  # by a backup, or a verification; a pause for a digest is short
            return f"{worker.name} is held at {worker.hold}"
        for each in site.registry.workers.values():
            if each.state != "Working":
                return f"{each.name} is {each.state}"
            if each.is_unordered or site.registry.is_off_chain(each):
                return f"{each.name} has executed another order than the log's"
            if now - each.reported_at > STALE_S:
                return f"no report about {each.name} for {STALE_S:g} s"
            if each is not worker and each.is_under_repair and each.divergence is not None and each.divergence.wrong:
                return f"{each.name} is being repaired"
        return ""

    def _suspend(self, worker: RegisteredWorker, why: RepairStatus) -> None:
        finding = worker.divergence
        if finding is None or self._history.given_up.get(worker.name) == finding.fence:
            return
        self._history.given_up[worker.name] = finding.fence
        self._write()
        self._context.log.error("WorkerLeftToPeople", worker=worker.name, why=why.why)

    def _find_worker(self, name: str) -> RegisteredWorker:
        worker = self._context.registry.workers.get(name)
        if worker is None:
            raise NotFound(f"no worker {name[:80]!r} in {self._context.config.data_center}")
        return worker

    def _read(self) -> _RepairHistory:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_RepairHistory)
        except FileNotFoundError:
            return _RepairHistory()
        except (OSError, *DECODE_ERRORS) as wrong:
            self._context.log.warning("RepairsNotRead", path=str(self._path), why=str(wrong))
            return _RepairHistory()

    def _write(self) -> None:
        keep(self._path, msgspec.json.encode(self._history), self._context.log, "RepairsNotKept")
