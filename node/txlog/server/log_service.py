"""One log of a master, assembled: journal, core, loop, workers, routes; its start and its end.

A :class:`~txlog.server.master_process.MasterProcess` has the sockets, users and clocks, and hands in what its logs
share.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from txlog.config.live_settings import protocol_fields, read_effective_settings, with_preferences
from txlog.config.process_config import NodeConfig
from txlog.config.units import AS_WRITTEN
from txlog.journal import Journal, OsVfs
from txlog.journal.journal import CACHE_BYTES
from txlog.model.errors import Fatal
from txlog.model.records import RecoveredState
from txlog.protocol.core import Core
from txlog.protocol.events import ClockReading, ConfiguredMember, ProtocolSettings
from txlog.runtime.executor import Executor, JournalPort
from txlog.runtime.interactive_load import InteractiveLoad
from txlog.runtime.literal_form import UNDECIDED
from txlog.runtime.master_context import API_PATH, MasterContext
from txlog.runtime.master_listener import MasterListener, ViewTransition
from txlog.runtime.master_loop import MasterLoop
from txlog.runtime.payload_transfer import PayloadTransfer
from txlog.runtime.payload_writer import PayloadWriter
from txlog.runtime.sync_thread import SyncThread
from txlog.runtime.transaction_status import TransactionTracker
from txlog.runtime.worker_registry import WorkerRegistry
from txlog.server.admin.settings import SettingsHandler
from txlog.server.feed.trace_contexts import open_traces
from txlog.server.frontdoor.evaluator_pool import EvaluatorPool
from txlog.server.frontdoor.fast_path import FastPathLog
from txlog.server.frontdoor.fast_reads import FastReads
from txlog.server.log_routes import LogLinks, LogRoutes
from txlog.server.permanent_tasks import PermanentTasks
from txlog.server.removed_master_export import export_unlogged
from txlog.telemetry.event_log import EventLog
from txlog.wire.divergence_report import DivergenceFinding
from txlog.workers.canonical_literals import CANONICAL_FORM, stored_form

JOIN_S: Final = 1.0
"""How long one call waits for a thread that writes the journal. No call without an end keeps a process alive."""


def core_settings(config: NodeConfig) -> ProtocolSettings:
    """The part of the configuration that the core receives."""
    limits = config.limits
    seen = config.last_seen
    return ProtocolSettings(
        node=config.node,
        members=tuple(ConfiguredMember(p.node, p.data_center, p.weight) for p in config.peers),
        key_retention_ms=config.key_retention_ms,
        queue_transactions_max=limits.queue_transactions,
        queue_bytes_max=limits.queue_bytes,
        keys_max=limits.keys_max,
        frame_bytes_max=limits.frame_bytes,
        frame_items_max=limits.batch_transactions,
        last_seen_birth=seen.birth if seen else 0,
        last_seen_start=seen.start if seen else 0,
        majority=config.split_mode == "Majority",
        keeps_literals=config.can_keep_literals,
        graphs=tuple(rule.parse() for rule in config.graphs),
        synchronous=bool(config.graphs),
        synchronous_transactions_max=limits.synchronous_transactions,
        synchronous_bytes_max=limits.synchronous_bytes,
        **protocol_fields(config),
    )


def open_journal(config: NodeConfig, cache_bytes: int = CACHE_BYTES) -> tuple[Any, RecoveredState]:
    """Opens and locks the journal in its folder. If that fails, the message of :class:`JournalFault` gives the
    remedy. ``cache_bytes``: of recent transactions that are kept in memory."""
    config.journal_folder.mkdir(parents=True, exist_ok=True)
    files = OsVfs(config.journal_folder, config.journal_bytes_max)
    return Journal.open(
        files,
        node=config.node,
        draw_birth=lambda: secrets.randbits(64),
        segment_bytes=config.segment_bytes,
        cache_bytes=cache_bytes,
    )


class LogObserver(Protocol):
    """What else follows a log. Each method is called in the turn of the loop; it must not block."""

    def on_stable_moved(self) -> None:
        """The stable index has changed."""

    def on_log_truncated(self) -> None:
        """A view has truncated the log."""

    def on_notice(self, peer: str, topic: str, body: bytes) -> None:
        """Another master has sent a notice."""


class LogStorage(NamedTuple):
    """An open journal, and what was read of it at its opening."""

    journal: JournalPort
    recovered: RecoveredState


class SharedParts(NamedTuple):
    """What all logs of a process share. ``evaluators``: the processes that evaluate for it. ``peer_token``: the secret
    that the masters share."""

    log: EventLog
    now: Callable[[], ClockReading]
    interactive_load: InteractiveLoad
    evaluators: EvaluatorPool
    peer_token: bytes


class _JournalSyncThread(SyncThread):
    """Also says whether it has ended."""

    @property
    def is_alive(self) -> bool:
        """Whether it may still write."""
        return self._thread.is_alive()


class _JournalPayloadWriter(PayloadWriter):
    """Also says whether it has ended."""

    @property
    def is_alive(self) -> bool:
        """Whether it may still write."""
        return self._thread is not None and self._thread.is_alive()


class LogService(MasterListener):
    """A running log. It calls ``ended(error)`` when it must end with a named error; it sends nothing afterwards.

    ``repository``: its name. ``config``: the configuration as this log has it, with its own journal folder and workers.
    ``links``: its way to the other masters. ``api_path``: where TxLog's paths of this log begin.
    """

    def __init__(
        self,
        repository: str,
        config: NodeConfig,
        storage: LogStorage,
        shared: SharedParts,
        links: LogLinks,
        ended: Callable[[BaseException], None],
        api_path: str = API_PATH,
    ) -> None:
        journal, recovered = storage
        assert not recovered.damage, "a damaged journal is repaired before there is a core"
        self.repository = repository
        self.config = config
        self.journal = journal
        self._log = shared.log
        self._on_ended = ended
        self._literals_reported = False
        self.observer: LogObserver | None = None
        """Set by who follows this log besides; None for most."""
        live = read_effective_settings(config)
        core = Core(core_settings(with_preferences(config, live.preferences)), recovered, shared.now())
        load = shared.interactive_load
        self._payload_writer = _JournalPayloadWriter(journal, self._end, load) if isinstance(journal, Journal) else None
        self._sync_thread: _JournalSyncThread | None = None
        self.payload_transfer = PayloadTransfer(
            links.send, links.connected_peers, 2 * config.limits.body_bytes, self._payload_writer, load
        )
        self.loop = MasterLoop(
            Executor(core, journal, self.payload_transfer),
            send=links.send,
            listener=self,
            now=shared.now,
            company=load,
            batch_transactions=config.limits.batch_transactions,
            requests_in_flight=config.limits.requests_in_flight,
            run_syncs=self._make_sync_thread,
        )
        self._tasks = PermanentTasks(self._end)
        self.registry = WorkerRegistry(
            config.data_center,
            config.workers,
            self.loop,
            self._on_divergence,
            mixed_engines=config.mixed_engines,
            on_literals_settled=self._report_literals,
        )
        self.context = MasterContext(
            config,
            repository,
            self.loop,
            self.registry,
            TransactionTracker(self.loop, self.registry),
            shared.log,
            self.payload_transfer,
            load,
            api_path,
        )
        self.context.traces = open_traces(self.context, links.send)
        self.settings = SettingsHandler(self.context, live, core_settings)
        self.routes = LogRoutes(self.context, links, self.settings, shared.evaluators, shared.peer_token)

    @property
    def fast_path(self) -> FastPathLog:
        """What the fast path needs for plain writes to this log."""
        config = self.config
        level, timeout_s, traces = config.durability, config.write_timeout_s, self.context.traces
        writes, reads = self.routes.writes, FastReads(self.context, self.routes.reads.router)
        return FastPathLog(self.repository, writes, reads, self.loop, level, timeout_s, traces)

    @property
    def literals_form(self) -> str:
        """In which form the stores hold literals, as the event log names it."""
        literals = self.context.literals
        return UNDECIDED if literals.is_undecided else stored_form(literals.keeps)

    def start_tasks(self) -> None:
        """Starts what runs as long as this log does."""
        self._tasks.start(self.routes.tasks())

    def settle_literals(self) -> None:
        """Decides about the form of literals, if that is possible already, and names it."""
        self.registry.settle_literals()
        self._report_literals()

    # Events of the loop: none comes before its first turn, so not before this object is complete

    def on_stable_moved(self) -> None:
        """Workers may be at a higher position than this log confirmed before."""
        self.registry.update_watermarks()
        if self.observer is not None:
            self.observer.on_stable_moved()

    def on_log_truncated(self) -> None:
        """Pipelines and readers of the log must not wait for an index that may not come."""
        self.routes.wake_log_waiters()
        if self.observer is not None:
            self.observer.on_log_truncated()

    def on_view_changed(self, change: ViewTransition) -> None:
        """The history of views and branches is kept for operators."""
        self.registry.settle_literals()
        self.routes.on_view_changed(change)

    def on_notice(self, peer: str, topic: str, body: bytes) -> None:
        """Each receiver knows its own topics."""
        self.routes.on_peer_notice(peer, topic, body)
        self.payload_transfer.on_notice(peer, topic, body)
        if self.observer is not None:
            self.observer.on_notice(peer, topic, body)

    def on_ended(self, error: BaseException) -> None:
        """A master that was removed may hold transactions that are in no log: they are exported first."""
        if isinstance(error, Fatal):
            error = export_unlogged(error, self.config.journal_folder, self.loop.status.log_state, self.journal)
        self._on_ended(error)

    def _report_literals(self) -> None:
        """Names what becomes of literals, once, as soon as it is known."""
        literals = self.context.literals
        if literals.is_undecided or self._literals_reported:
            return
        self._literals_reported = True
        if literals.contradicts_cluster:
            why = "this cluster was founded to keep literals as they are sent; other forms are refused"
            self._log.warning("LiteralsDiffer", why=why, cannot=literals.why_rewritten)
        elif literals.keeps:
            self._log.info("LiteralsKept", form=AS_WRITTEN)
        else:
            self._log.info("LiteralsRewritten", form=CANONICAL_FORM, why=literals.why_rewritten)

    def _end(self, error: BaseException) -> None:
        self.loop.end(error)

    def _on_divergence(self, worker: str, finding: DivergenceFinding | None) -> None:
        if finding is None:
            self._log.info("WorkerEqualAgain", worker=worker)
        else:
            self._log.warning("WorkerDiffers", worker=worker, **msgspec.to_builtins(finding))

    # The end, in three steps of the process

    def leave(self, leave_ms: int | None) -> float:
        """Answers 503 to new work, and begins to leave the view. ``leave_ms`` replaces ``leaveTimeout``. Returns the
        seconds after which it is certain that no master is left to notify: one round time-out more."""
        preferences = self.settings.preferences
        leave_ms = preferences.leave_timeout if leave_ms is None else leave_ms
        self.context.is_closing = True
        self.loop.leave(leave_ms)
        self.routes.wake_log_waiters()
        return (leave_ms + preferences.round_timeout) / 1000

    async def stop_tasks(self, timeout_s: float) -> None:
        """Ends what :meth:`start_tasks` started."""
        await self._tasks.stop(timeout_s)

    def expect_end_of_tasks(self) -> None:
        """From now on a task that ends is no error."""
        self._tasks.expect_end()

    async def close(self, timeout_s: float | None, at_rest: Callable[[], None] | None = None) -> None:
        """Ends its reads, its loop and its journal. What is being written gets so many seconds; None: all that it
        needs. ``at_rest()`` is called on another thread when nothing writes the journal any more.

        A journal that a thread still writes stays open, and the event log names it. Closed, it would give its file
        descriptors back to the process, and the thread would write into another file."""
        await self.routes.reads.router.close()
        await self.routes.change_set_source.close()
        if self.context.traces is not None:
            await asyncio.get_running_loop().run_in_executor(None, self.context.traces.close)
        if not await self._end_writing(timeout_s):
            self._log.error(
                "JournalLeftOpen",
                folder=str(self.config.journal_folder),
                why="a thread still writes to it; see the disk",
            )
            return
        try:
            if at_rest is not None:
                await asyncio.to_thread(at_rest)
        finally:
            close = getattr(self.journal, "close", None)
            if close is not None:
                close()

    async def _end_writing(self, timeout_s: float | None) -> bool:
        """Ends the loop and the threads that write the journal. Whether they have ended in time."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            join_s = JOIN_S if deadline is None else max(0.0, min(JOIN_S, deadline - time.monotonic()))
            await self.loop.close(join_s)
            if self._payload_writer is not None:
                await asyncio.to_thread(self._payload_writer.close, join_s)
            if not any(one is not None and one.is_alive for one in (self._sync_thread, self._payload_writer)):
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False

    def _make_sync_thread(self, *given: Any) -> SyncThread:
        self._sync_thread = _JournalSyncThread(*given)
        return self._sync_thread
