"""The metrics of one log. Plain numbers become families on request, so that counting is free."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TypeVar

from txlog.model.bounds import SLOTS_MAX
from txlog.model.master_state import MasterState
from txlog.model.view import LISTED_ANCESTORS_MAX
from txlog.runtime.master_context import MasterContext
from txlog.server.admin.archive_reports import ArchiveReports, StreamStatus
from txlog.server.admin.change_set_reports import ChangeSetReports, ChangeSetStatus
from txlog.server.admin.log_retention import LogRetention
from txlog.server.admin.metric_families import counter, counters, gauge, gauges
from txlog.server.admin.rehearsal_reports import KnownRehearsals
from txlog.server.admin.site_reports import SiteReports
from txlog.server.admin.synchronous_metrics import SynchronousMetrics
from txlog.server.admin.synchronous_view import SynchronousHandler
from txlog.server.admin.views import ViewHandler
from txlog.server.admin.worker_repairs import WorkerRepairs
from txlog.wire.rehearsal_report import RehearsalReport

_MASTER_STATES = (*MasterState, "Restoring", "Damaged")
"""The core's states, and those of a process that has no core."""


_LABEL: Final = ["data_center"]


class _OfDataCenter(Protocol):
    @property
    def data_center(self) -> str: ...


T = TypeVar("T", bound=_OfDataCenter)
_Readings = dict[str, tuple[str, Callable[[T], float | None]]]
"""By the name of a metric: its text, and how it is read from what is known of a data centre; None: not known."""


class LogMetrics:
    """What this master knows of one log: its workers, its view, its journal."""

    def __init__(
        self,
        site: MasterContext,
        membership: ViewHandler,
        repairs: WorkerRepairs,
        trimming: LogRetention,
        archive: ArchiveReports,
        synchronous: SynchronousHandler,
        change_sets: ChangeSetReports,
        site_reports: SiteReports,
    ) -> None:
        self._synchronous = SynchronousMetrics(site, synchronous)
        self._context = site
        self._view_handler = membership
        self._repairs = repairs
        self._log_retention = trimming
        self._archive = archive
        self._change_sets = change_sets
        self._site_reports = site_reports

    def collect(self) -> Iterable[Any]:
        """The metric families of one scrape."""
        yield from self._log_metrics()
        yield from self._loop_metrics()
        yield from self._view_metrics()
        yield from self._retention_metrics()
        yield from self._archive_metrics()
        yield from self._change_set_metrics()
        yield from self._site_reports.collect()
        yield from self._rehearsal_metrics()
        yield from self._synchronous.collect()
        yield from self._trace_metrics()
        yield from self._worker_metrics()

    def _log_metrics(self) -> Iterable[Any]:
        """How far the log is, and what waits for it."""
        durability, agreement = self._context.durability, self._context.status.log_state
        yield gauge("log_index", "last index of the log", durability.log_index)
        yield gauge("stable_index", "last index that every member is known to hold", durability.stable.value)
        text = "how far a worker of this data centre has executed the log"
        yield gauge("applied_index", text, durability.applied.value)
        queues = agreement.queues if agreement is not None else []
        yield gauge("queue_transactions", "waiting for their order", sum(len(q) for q in queues))
        yield gauge("queue_bytes", "payload waiting for its order", sum(q.payload_bytes for q in queues))
        yield gauge("idempotency_keys", "that are kept", len(agreement.keys) if agreement is not None else 0)

    def _loop_metrics(self) -> Iterable[Any]:
        """What the loop of this log does: its counters, journal, state and refusals."""
        site, counts, status = self._context, self._context.loop.counts, self._context.status
        yield gauge("requests_in_flight", "write requests that wait for an answer", site.loop.in_flight)
        yield counter("transactions", "answered by this master, refused ones included", counts.transactions)
        yield counter("turns", "turns of the loop", counts.turns)
        yield counter("syncs", "group commits of the journal", counts.syncs)
        text = "time from the beginning of a group commit to its being known"
        yield counter("sync_seconds", text, counts.sync_seconds)
        yield counter("received_messages", "from peers", counts.received_messages)
        yield counter("received_bytes", "from peers", counts.received_bytes)
        if status.journal_bytes_used is not None:
            yield gauge("journal_bytes_used", "of the journal's files", status.journal_bytes_used)
        if status.journal_bytes_free is not None:
            yield gauge("journal_bytes_free", "left for new work", status.journal_bytes_free)
        states = {(name,): float(name == site.state) for name in _MASTER_STATES}
        yield gauges("state", "1 for the state that this master is in", ["state"], states)
        refused = {(reason,): count for reason, count in sorted(counts.refused.items())}
        yield counters("refused", "transactions refused, by reason", ["reason"], refused)
        faults = dict(sorted(counts.peer_faults.items()))
        yield counters("peer_faults", "messages refused, by peer and reason", ["peer", "reason"], faults)

    def _trace_metrics(self) -> Iterable[Any]:
        """Nothing where nothing is traced."""
        traces = self._context.traces
        if traces is None:
            return
        yield counter(
            "traces_recorded", "transactions recorded in traces, also those of other masters", traces.recorded
        )
        text = "transactions not recorded, because too many were followed"
        yield counter("traces_skipped", text, traces.skipped)
        yield gauge("traces_failed", "1 after an error that ended the traces of this master", traces.has_failed)

    def _worker_metrics(self) -> Iterable[Any]:
        """The position of each worker, and its faults and differences."""
        known = self._context.registry.known
        local = known.local.values()
        yield gauges(
            "worker_index", "the log index that a worker has reached", ["worker"], {(w.name,): w.index for w in local}
        )
        states = {(w.name, "Refused" if w.refusal is not None else w.state): 1.0 for w in local}
        yield gauges("worker_state", "1 for the state a worker is in", ["worker", "state"], states)
        faults = {(worker.name, worker.fault): 1.0 for worker in local if worker.fault}
        text = "1 for a worker that gives no answer to a transaction: suspected, ended or stalled"
        yield gauges("worker_fault", text, ["worker", "fault"], faults)
        yield from self._comparison_metrics()
        agreement = self._context.status.log_state
        skips = 0 if agreement is None else sum(" " not in key for key in agreement.skips)  # others name namespaces
        yield gauges("log_skips", "transactions that the log skips", [], {(): skips})
        self._repairs.refresh_states()
        differs: dict[tuple[str, ...], float] = {}
        repairs: dict[tuple[str, ...], float] = {}
        for data_center, workers in ((known.data_center, known.local), *known.remote.items()):
            for worker in workers.values():
                finding, repair = worker.divergence, worker.repair
                if finding is not None:
                    count = -1 if finding.graph_count is None else finding.graph_count
                    differs[data_center, worker.name, str(finding.wrong).lower()] = count
                if repair is not None and repair.state != "Done":
                    repairs[data_center, worker.name, repair.state] = 1.0
        yield gauges(
            "worker_differs",
            "graphs in which a worker does not hold what others hold (-1: which, is not known), by whether it is known "
            "to be the wrong one",
            ["data_center", "worker", "wrong"],
            differs,
        )
        yield gauges(
            "worker_repair",
            "1: what becomes of a worker that differs (GivenUp, Undecided and ByHand need a person)",
            ["data_center", "worker", "state"],
            repairs,
        )

    def _comparison_metrics(self) -> Iterable[Any]:
        """How far the comparison of the workers' contents is."""
        now = time.time()
        local = self._context.registry.known.local.values()
        found = {(w.name,): report for w in local if (report := w.comparison_at(now)) is not None}
        text = "since the part of a worker was compared that was not compared for the longest time"
        oldest = {name: report.oldest_cell_s for name, report in found.items()}
        yield gauges("worker_compare_oldest_seconds", text, ["worker"], oldest)
        passes = {name: max(report.pass_s or 0.0, report.estimate_s or 0.0) for name, report in found.items()}
        text = "how long a comparison of all that a worker holds takes: the last one, or the present one by estimate"
        yield gauges("worker_compare_pass_seconds", text, ["worker"], passes)
        waiting = {name: report.waiting for name, report in found.items()}
        text = "parts of a worker that were written, or that differ, and are compared next"
        yield gauges("worker_compare_waiting", text, ["worker"], waiting)

    def _retention_metrics(self) -> Iterable[Any]:
        """How much of the log is kept, and what needs it."""
        retention, agreement = self._log_retention, self._context.status.log_state
        start = agreement.log_index.start if agreement is not None else 0
        yield gauge("log_kept_from", "the log is kept behind this index", start)
        yield gauge("journal_bytes_max", "what the journal may take", retention.bytes_max)
        blockers = [((one.kind, one.name), float(one.log_index)) for one in retention.decision.blockers]
        text = "the log is needed behind this index, by whom"
        yield gauges("log_needed_from", text, ["kind", "name"], blockers)

    def _archive_metrics(self) -> Iterable[Any]:
        """How far each stream of the archive is; nothing in a cluster without one."""
        streams = self._archive.streams()
        if not streams:
            return
        gauge_values: _Readings[StreamStatus] = {
            "delay_seconds": ("age of the oldest stable entry that is not archived", lambda s: s.delay_seconds),
            "index": ("last archived index that is on this log", lambda s: s.archived.index if s.archived else None),
            "verified_index": ("the same, read back and proved", lambda s: s.verified.index if s.verified else None),
            "reported_timestamp_seconds": ("of the last report, since 1970", lambda s: s.reported_at),
            "gaps": ("gaps of the stream", lambda s: s.gaps),
            "losses": ("times that masters had lost archived entries that were final", lambda s: s.losses),
        }
        yield from _read_gauges("archive", streams, gauge_values)
        counter_values: dict[str, tuple[str, Callable[[StreamStatus], float]]] = {
            "files": ("written since the start of the archiver", lambda s: s.files),
            "bytes": ("the same", lambda s: s.bytes),
            "errors": ("failed requests to the target, since the start of the archiver", lambda s: s.errors),
        }
        for name, (text, count_of) in counter_values.items():
            yield counters(f"archive_{name}", text, _LABEL, {(s.data_center,): count_of(s) for s in streams})

    def _change_set_metrics(self) -> Iterable[Any]:
        """How far the change sets of each data centre are; nothing in a cluster without any."""
        known = self._change_sets.statuses()
        if not known:
            return
        values: _Readings[ChangeSetStatus] = {
            "delay_seconds": ("age of the oldest stable entry without a change set", lambda s: s.delay_seconds),
            "behind_entries": ("stable entries without a change set", lambda s: s.entries_behind),
            "index": ("last index with a change set on this log", lambda s: s.executed.index if s.executed else None),
            "kept_from": ("change sets are kept above this index", lambda s: s.kept_from),
            "bytes": ("of the change log", lambda s: s.bytes),
            "reported_timestamp_seconds": ("of the last report, since 1970", lambda s: s.reported_at),
        }
        yield from _read_gauges("changesets", known, values)
        rebuilds = {(s.data_center,): float(s.rebuilds) for s in known}
        yield counters("changesets_rebuilds", "of the store, since its process started", _LABEL, rebuilds)

    def _rehearsal_metrics(self) -> Iterable[Any]:
        """The last rehearsed recovery of each data centre; nothing where none was made or expected."""
        known = self._archive.rehearsals.known()
        if not known:
            return
        gauge_values: _Readings[KnownRehearsals] = {
            "success_timestamp_seconds": ("of the last good one, since 1970", lambda k: k.good.at if k.good else None),
            "due_timestamp_seconds": ("when the last good one is too old, since 1970", lambda k: k.due_at),
        }
        yield from _read_gauges("rehearsal", known, gauge_values)
        figures: dict[str, tuple[str, Callable[[RehearsalReport], float | None]]] = {
            "failed": ("1 while the last one was not good", lambda last: float(not last.ok)),
            "rpo_seconds": ("what a loss would have cost at the last one", lambda last: last.rpo_seconds),
            "rto_writes_seconds": ("until writes, at the last one", lambda last: last.rto_writes_seconds),
            "rto_reads_seconds": ("until reads, at the last one", lambda last: last.rto_reads_seconds),
        }
        for name, (text, figure_of) in figures.items():
            measured = ((k.data_center, figure_of(k.last)) for k in known if k.last is not None)
            found = {(dc,): value for dc, value in measured if value is not None}
            yield gauges(f"rehearsal_{name}", text, _LABEL, found)

    def _view_metrics(self) -> Iterable[Any]:
        """The view, the masters out of it, and which master receives messages from which."""
        status = self._context.status
        view, (epoch, ballot, _) = status.view, status.view_number
        yield gauge("view_epoch", "grows with each view that this master accepts", epoch)
        yield gauge("view_ballot", "proposals that this epoch took", ballot)
        yield gauge("view_installed", "1 while the latest view is installed", float(status.is_view_installed))
        yield gauge("view_members", "masters in the latest view", len(view.members) if view is not None else 0)
        text = f"incarnations of masters in the log; {SLOTS_MAX} are the most"
        yield gauge("view_incarnations", text, len(view.origins) if view is not None else 0)
        text = f"views that the latest view lists as its ancestors; from {LISTED_ANCESTORS_MAX} on, admission waits"
        yield gauge("view_ancestors", text, len(view.ancestors) if view is not None else 0)
        blocked = float(bool(status.view_blocked_reason))
        yield gauge("view_held", "1 while a change of views is wanted and cannot begin", blocked)
        out = dict.fromkeys(self._context.loop.departures.departed_members().items(), 1.0)
        yield gauges("member_out", "1 for each configured master out of the view", ["node", "why"], out)
        rows = self._view_handler.connectivity.rows()
        hears = {
            (sender, to): float(sender in row)
            for to, row in rows.items()
            if row is not None
            for sender in rows
            if sender != to
        }
        text = "1 when messages arrive at `to` from `from`; absent when not known"
        yield gauges("hears", text, ["from", "to"], hears)


def _read_gauges(prefix: str, known: Sequence[T], readings: _Readings[T]) -> Iterable[Any]:
    for name, (text, value_of) in readings.items():
        found = {(each.data_center,): value for each in known if (value := value_of(each)) is not None}
        yield gauges(f"{prefix}_{name}", text, _LABEL, found)
