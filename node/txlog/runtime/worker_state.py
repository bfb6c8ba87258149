"""One worker as last reported, and all workers that a master knows of: those of its data centre and of the others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import msgspec

from txlog.model.errors import NotFound
from txlog.model.graph_digests import GraphDigests
from txlog.wire.comparison_report import ComparisonReport
from txlog.wire.divergence_report import DivergenceFinding, RepairStatus

REPORT_STATES = (
    "Unknown",
    "Working",
    "Unreachable",
    "Blocked",
    "Diverged",
    "Ahead",
    "NeedsRestore",
    "Loading",
    "Refused",
)
"""The states that a report may carry. The API also shows ``Unordered``: a ``Working`` worker that executed
transactions in another order than the log's."""
READABLE_STATES = ("Working", "Blocked", "Ahead", "Unknown", "Unreachable")
"""States in which a worker holds a prefix of this log. ``Unreachable`` is the pipeline's view, so such a worker is
tried last, and only where it held a prefix when it was reached last."""
BODY_CHARACTERS_MAX = 2000
STALE_S = 30.0
"""Seconds without a report after which a worker counts as unreachable."""


class WorkerMarker(msgspec.Struct, frozen=True):
    """A worker's own position; ``hash`` in hexadecimal."""

    epoch: int
    index: int
    hash: str
    fence: int = 0
    unordered: list[str] = []
    """Positions ``index:hash`` of the worker before it was moved to the log without a restore (split recovery
    ``None``)."""
    cluster: str = ""
    """The id of the cluster whose log the store executed; empty in a marker of an earlier version."""
    base: str = ""
    """Which content the store had before the first entry of that log; empty for none."""


class PipelineReport(msgspec.Struct, frozen=True, rename="camel"):
    """The body of a pipeline's report. ``status`` and ``body`` are the store's own answer to ``txid``, which it
    refused. ``took_ms`` is in milliseconds. ``fault``: what the store does at ``txid`` instead of an answer: it has
    ``ended`` or ``stalled`` again and again, or is ``suspected`` to. ``running``: it has not answered a request with
    ``txid``, and may still execute it."""

    position: WorkerMarker | None = None
    state: str = "Unknown"
    error: str | None = None
    status: int | None = None
    body: str | None = None
    txid: str | None = None
    took_ms: float | None = None
    fault: str | None = None
    running: bool = False


class RegisteredWorker(msgspec.Struct, rename="camel"):
    """A worker as last reported. ``reported_at`` is in seconds since 1970, 0 before the first report."""

    name: str
    url: str = ""
    engine: str = ""
    position: WorkerMarker | None = None
    state: str = "Unknown"
    error: str | None = None
    hold: int | None = None
    reported_at: float = 0.0
    status: int | None = None
    body: str | None = None
    txid: str | None = None
    took_ms: float | None = None
    looks: list[GraphDigests] = []
    """Digests of its content that pipelines reported (:mod:`txlog.divergence`)."""
    divergence: DivergenceFinding | None = None
    """This master's own judgement."""
    look_hold: int | None = None
    """A pause for taking digests, independent of the other pauses, ..."""
    look_hold_until: float = 0.0
    """... until then, in seconds of this process' monotonic clock."""
    repair_hold: int | None = None
    """A pause for a repair, with the same kind of limit as the pause for digests."""
    repair_hold_until: float = 0.0
    refusal: str | None = None
    """Why the store waits for a person, as this master judges it: it is not of this cluster."""
    repair: RepairStatus | None = None
    """The state of the automatic repair while the worker differs, and the result of the last one."""
    fault: str | None = None
    """As in the report."""
    running: bool = False
    is_form_undecided: bool = False
    """This master does not know yet in which form the store holds literals: nothing may be applied to it or read."""
    comparison: ComparisonReport | None = None
    """How far the comparison of its content is, ..."""
    compared_at: float = 0.0
    """... as of then, in seconds since 1970."""
    held_prefix: bool = True
    """Whether it held a prefix of the log when it was reached last; for example not in the middle of a load."""

    @property
    def is_readable(self) -> bool:
        """Whether it may answer queries, by its state."""
        return self.held_prefix and self.state in READABLE_STATES

    @property
    def may_execute(self) -> bool:
        """Whether it may execute a transaction that it did not survive before: a request with it still runs, or it is
        sent again."""
        return self.running or self.fault == "suspected"

    @property
    def rejects(self) -> str | None:
        """The transaction that it certainly has not executed and does not execute by itself: it refuses it with an
        answer, or does not survive it. None without one."""
        if self.state != "Blocked" or self.may_execute:
            return None
        return self.txid if self.status is not None or self.fault is not None else None

    @property
    def paused_at(self) -> int | None:
        """The lowest index of all pauses; None without one."""
        if self.is_form_undecided:
            return 0
        now = time.monotonic()
        looking = self.look_hold if now < self.look_hold_until else None
        repairing = self.repair_hold if now < self.repair_hold_until else None
        asked = [index for index in (self.hold, looking, repairing) if index is not None]
        return min(asked, default=None)

    @property
    def is_under_repair(self) -> bool:
        """Whether a repair of this worker runs, or it is being copied for the repair of another."""
        return self.repair_hold is not None and time.monotonic() < self.repair_hold_until

    def to_dict(self) -> dict[str, Any]:
        """The worker as the API shows it."""
        return {
            "name": self.name,
            "url": self.url,
            "engine": self.engine,
            "position": self.position,
            "state": self.shown_state,
            "error": self.refusal or self.error,
            "hold": self.paused_at,
            "reportedAt": self.reported_at or None,
            "status": self.status,
            "body": self.body,
            "txid": self.txid,
            "tookMs": self.took_ms,
            "fault": self.fault,
            "running": self.running,
            "divergence": self.divergence,
            "repair": self.repair,
            "comparison": self.comparison_at(time.time()),
        }

    def comparison_at(self, now: float) -> ComparisonReport | None:
        """How far the comparison is at ``now`` (seconds since 1970): its cells have become older since the report."""
        report = self.comparison
        if report is None:
            return None
        age_s = report.oldest_cell_s + max(0.0, now - self.compared_at)
        return msgspec.structs.replace(report, oldest_cell_s=round(age_s, 1))

    @property
    def shown_state(self) -> str:
        """The state as the API shows it: a master knows more than the pipeline that reported it."""
        if self.refusal is not None:
            return "Refused"
        return "Unordered" if self.is_unordered and self.state == "Working" else self.state

    @property
    def is_unordered(self) -> bool:
        """Whether it executed some transactions in another order than the log's: its digests may differ."""
        return self.position is not None and bool(self.position.unordered)

    @property
    def index(self) -> int:
        """The index of its position; 0 when no position is known."""
        return self.position.index if self.position is not None else 0

    def apply_report(self, report: PipelineReport, at: float) -> bool:
        """Take over a report that was received at ``at``. Returns whether the position or the state has changed."""
        # A pipeline that cannot reach a worker does not know its position: the last reported one is kept.
        position = self.position if report.state == "Unreachable" and report.position is None else report.position
        if report.state != "Unreachable":
            self.held_prefix = report.state in READABLE_STATES
        has_moved = self.position != position or self.state != report.state
        has_moved = has_moved or (self.fault, self.running) != (report.fault, report.running)
        self.position = position
        self.state = report.state
        self.error = report.error[:BODY_CHARACTERS_MAX] if report.error else None
        self.status, self.txid, self.took_ms = report.status, report.txid, report.took_ms
        self.body = report.body[:BODY_CHARACTERS_MAX] if report.body else None
        self.fault, self.running = report.fault, report.running
        self.reported_at = at
        return has_moved

    def take_pauses_from(self, other: RegisteredWorker | None) -> None:
        """Use the pauses of ``other``, or none: pauses belong to one master and are not sent to others. The same holds
        of what this master does not know yet."""
        self.is_form_undecided = other is not None and other.is_form_undecided
        if other is None:
            self.hold = self.look_hold = self.repair_hold = None
            return
        self.hold = other.hold
        self.look_hold, self.look_hold_until = other.look_hold, other.look_hold_until
        self.repair_hold, self.repair_hold_until = other.repair_hold, other.repair_hold_until

    def take_comparison_from(self, other: RegisteredWorker) -> None:
        """Both have the later of their reports about the comparison afterwards."""
        last = max(self, other, key=lambda each: each.compared_at)
        self.comparison = other.comparison = last.comparison
        self.compared_at = other.compared_at = last.compared_at


class KnownWorkers:
    """``local``: the workers of this data centre by name, in the configuration's order. ``remote``: those of the other
    data centres, by data centre and name."""

    def __init__(self, data_center: str, local: list[RegisteredWorker]) -> None:
        self.data_center = data_center
        self.local = {worker.name: worker for worker in local}
        self.remote: dict[str, dict[str, RegisteredWorker]] = {}

    def find_local(self, name: str) -> RegisteredWorker:
        """A worker of this data centre. :class:`NotFound` for an unknown name."""
        worker = self.local.get(name)
        if worker is None:
            raise NotFound(f"no worker {name[:80]!r} in {self.data_center}; there are {', '.join(self.local)}")
        return worker

    def all(self) -> Iterator[tuple[str, RegisteredWorker]]:
        """Every known worker with its full name, ``data centre/name``."""
        for data_center, workers in ((self.data_center, self.local), *self.remote.items()):
            for worker in workers.values():
                yield f"{data_center}/{worker.name}", worker

    def engines(self) -> tuple[str, ...]:
        """The engine of each known worker; "" where none is named. Asked for each write, so it makes no names."""
        engines = [worker.engine for worker in self.local.values()]
        for workers in self.remote.values():
            engines += [worker.engine for worker in workers.values()]
        return tuple(engines)

    def unordered(self) -> list[str]:
        """The full names of the workers that are known to be unordered."""
        return [name for name, worker in self.all() if worker.is_unordered]

    def refusing(self, txid: str) -> list[RegisteredWorker]:
        """The workers of this data centre that refuse this transaction."""
        return [worker for worker in self.local.values() if worker.state == "Blocked" and worker.txid == txid]

    def refusals(self, txid: str) -> dict[str, dict[str, Any]]:
        """The answer of each worker that refuses this transaction or does not survive it, by full name."""
        return {
            name: {"state": worker.state, "status": worker.status, "body": worker.body, "error": worker.error}
            | ({"fault": worker.fault} if worker.fault else {})
            for name, worker in self.all()
            if worker.txid == txid and (worker.state == "Blocked" or worker.fault in ("ended", "stalled"))
        }
