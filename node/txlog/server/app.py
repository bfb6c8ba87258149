"""One master, assembled: configuration, journal, core, loop, HTTP listeners; its start and its graceful end.

Every task has an owner here. If a task that must run for ever ends, the process ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import signal
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from txlog.auth import BadUsers
from txlog.auth.authenticator import Authenticator
from txlog.auth.tls import NO_TLS, BadCertificates, Certificates, TlsConfig
from txlog.config.live_settings import (
    BadSettings,
    protocol_fields,
    read_effective_settings,
    with_preferences,
)
from txlog.config.process_config import NodeConfig
from txlog.config.units import AS_WRITTEN
from txlog.divergence.detector import DivergenceFinding
from txlog.http.aiohttp_server import HttpServer
from txlog.http.listener import Listener, listen
from txlog.http.router import Router
from txlog.journal import Journal, OsVfs
from txlog.model.errors import Fatal, TxLogError
from txlog.model.records import RecoveredState
from txlog.protocol.core import Core
from txlog.protocol.events import ConfiguredMember, ProtocolSettings
from txlog.runtime.executor import Executor, JournalPort
from txlog.runtime.interactive_load import InteractiveLoad
from txlog.runtime.literal_form import UNDECIDED
from txlog.runtime.master_context import MasterContext
from txlog.runtime.master_listener import MasterListener, ViewTransition
from txlog.runtime.master_loop import MasterLoop, clock_with_offset
from txlog.runtime.payload_transfer import PayloadTransfer
from txlog.runtime.payload_writer import PayloadWriter
from txlog.runtime.transaction_status import TransactionTracker
from txlog.runtime.worker_registry import WorkerRegistry
from txlog.server.admin.settings import SettingsHandler
from txlog.server.disk_full_mode import DiskFullMode, wait_until_disk_full
from txlog.server.frontdoor.fast_path import FastPath
from txlog.server.http_api import HttpApi
from txlog.server.peers.peer_links import PeerLinks, listen_to_peers
from txlog.server.removed_master_export import export_unlogged
from txlog.telemetry.event_log import EventLog
from txlog.workers.canonical_literals import CANONICAL_FORM, stored_form

REJECT_NEW_WORK_S = 0.5
"""Minimum time for which a stop answers 503, so that clients with a kept connection receive it before the close."""
CLOSE_TIMEOUT_S = 2.0
"""How long a stop waits for answers in progress, and for the last sync."""
LEAVE_POLL_S = 0.01
"""Poll interval: the core emits no event when the master has left the view."""
HTTP_KEEP_ALIVE_S = 75.0
"""Longer than the keep-alive of common proxies and clients, so that they close first."""


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


def open_journal(config: NodeConfig) -> tuple[Any, RecoveredState]:
    """Opens and locks the journal in its folder. If that fails, the message of :class:`JournalFault` gives the
    remedy."""
    config.journal_folder.mkdir(parents=True, exist_ok=True)
    files = OsVfs(config.journal_folder, config.journal_bytes_max)
    return Journal.open(
        files, node=config.node, draw_birth=lambda: secrets.randbits(64), segment_bytes=config.segment_bytes
    )


class MasterApp(MasterListener):
    """A running master. It calls ``ended(error)`` when it must end with a named error; it sends nothing afterwards.
    ``authenticator``: see :func:`load_authenticator`."""

    def __init__(
        self,
        config: NodeConfig,
        journal: JournalPort,
        recovered: RecoveredState,
        token: bytes,
        log: EventLog,
        ended: Callable[[BaseException], None],
        guard: Authenticator | None = None,
        tls: TlsConfig = NO_TLS,
    ) -> None:
        self.config = config
        self.authenticator = guard
        self.tls = tls
        self.log = log
        self.journal = journal
        self._on_ended = ended
        self._tasks: list[asyncio.Task[None]] = []
        self._is_stopped = False
        self._literals_reported = False
        self.links = PeerLinks(config, token, log, tls.peers)
        now = clock_with_offset(config.clock_offset_ms)
        live = read_effective_settings(config)
        core = Core(core_settings(with_preferences(config, live.preferences)), recovered, now())
        company = InteractiveLoad()
        self._payload_writer = PayloadWriter(journal, self._end, company) if isinstance(journal, Journal) else None
        self.payload_transfer = PayloadTransfer(
            self.links.send,
            self.links.connected_peers,
            2 * config.limits.body_bytes,
            self._payload_writer,
            company,
        )
        self.loop = MasterLoop(
            Executor(core, journal, self.payload_transfer),
            send=self.links.send,
            listener=self,
            now=now,
            company=company,
            batch_transactions=config.limits.batch_transactions,
            requests_in_flight=config.limits.requests_in_flight,
        )
        self._registry = WorkerRegistry(
            config.data_center,
            config.workers,
            self.loop,
            self._on_divergence,
            mixed_engines=config.mixed_engines,
            on_literals_settled=self._report_literals,
        )
        self.context = MasterContext(
            config,
            self.loop,
            self._registry,
            TransactionTracker(self.loop, self._registry),
            log,
            self.payload_transfer,
            company,
        )
        assert not recovered.damage, "a damaged journal is repaired before there is a core"
        self.settings = SettingsHandler(self.context, live, core_settings)
        self.http_api = HttpApi(self.context, self.links, self.settings, tls, token)
        self.router = Router(
            self.http_api.routes(), log, guard, company=company, cors_origins=self.context.config.cors_origins
        )
        self._runner: web.ServerRunner | None = None
        self._listeners: list[Listener] = []
        self._fast_path: FastPath | None = None

    async def start(self) -> None:
        """Opens the listeners and connects to the peers."""
        server = HttpServer(self.router, self.log, keepalive_timeout=HTTP_KEEP_ALIVE_S)
        self._runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=CLOSE_TIMEOUT_S)
        await self._runner.setup()
        config = self.config
        self._fast_path = FastPath(
            self.http_api.writes,
            self.loop,
            config.durability,
            config.write_timeout_s,
            HTTP_KEEP_ALIVE_S,
            server,
            self.authenticator,
        )
        self._listeners.append(
            await listen(self._fast_path.new_connection, config.host, config.port, self.log, self.tls.clients)
        )
        if self.tls.peers is not None:
            self._listeners.append(await listen_to_peers(config, self.links, self.tls.peers, self.log))
        for name, coroutine in {**self.links.tasks(self.loop), **self.http_api.tasks()}.items():
            self._run(name, coroutine)
        self.log.info(
            "Started",
            port=self.config.port,
            start=self.loop.status.start,
            literals=UNDECIDED if self.context.literals.is_undecided else stored_form(self.context.literals.keeps),
        )
        self._registry.settle_literals()
        self._report_literals()

    # Events of the loop: none comes before its first turn, so not before this object is complete

    def on_stable_moved(self) -> None:
        """Workers may be at a higher position than this log confirmed before."""
        self._registry.update_watermarks()

    def on_log_truncated(self) -> None:
        """Pipelines and readers of the log must not wait for an index that may not come."""
        self.http_api.wake_log_waiters()

    def on_view_changed(self, change: ViewTransition) -> None:
        """The history of views and branches is kept for operators."""
        self._registry.settle_literals()
        self.http_api.on_view_changed(change)

    def on_notice(self, peer: str, topic: str, body: bytes) -> None:
        """Each receiver knows its own topics."""
        self.http_api.on_peer_notice(peer, topic, body)
        self.payload_transfer.on_notice(peer, topic, body)

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
            self.log.warning("LiteralsDiffer", why=why, cannot=literals.why_rewritten)
        elif literals.keeps:
            self.log.info("LiteralsKept", form=AS_WRITTEN)
        else:
            self.log.info("LiteralsRewritten", form=CANONICAL_FORM, why=literals.why_rewritten)

    def _end(self, error: BaseException) -> None:
        self.loop.end(error)

    def _on_divergence(self, worker: str, finding: DivergenceFinding | None) -> None:
        if finding is None:
            self.log.info("WorkerEqualAgain", worker=worker)
        else:
            self.log.warning("WorkerDiffers", worker=worker, **msgspec.to_builtins(finding))

    def _run(self, name: str, forever: Coroutine[Any, Any, None]) -> None:
        """Starts a task that must not end before :meth:`stop`."""
        task = asyncio.get_running_loop().create_task(forever, name=name)
        task.add_done_callback(self._task_ended)
        self._tasks.append(task)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if self._is_stopped or task.cancelled():
            return
        error = task.exception() or RuntimeError("it returned")
        self.loop.end(Fatal("TaskEnded", f"{task.get_name()}: {error!r}"))

    async def stop(self, leave_ms: int | None = None) -> None:
        """Answers 503 to new work, leaves the view, answers waiting requests (202 at the latest), then closes
        everything. ``leave_ms`` replaces ``leaveTimeout``."""
        preferences, loop = self.settings.preferences, self.loop
        leave_ms = preferences.leave_timeout if leave_ms is None else leave_ms
        began = time.monotonic()
        self.context.is_closing = True
        loop.leave(leave_ms)
        self.http_api.wake_log_waiters()
        # One round time-out more: only then it is certain that there is no master left to notify.
        left = await _wait_until((leave_ms + preferences.round_timeout) / 1000 + CLOSE_TIMEOUT_S, lambda: loop.has_left)
        if loop.end_reason is None:
            self.log.info("Left" if left else "NotLeft", seconds=round(time.monotonic() - began, 3))
        await _wait_until(CLOSE_TIMEOUT_S, lambda: not loop.in_flight)
        await asyncio.sleep(
            max(0.0, REJECT_NEW_WORK_S - (time.monotonic() - began)) if loop.end_reason is None else 0.0
        )
        loop.durability.abort_waiters()
        for listening in self._listeners:
            listening.close()
        self._is_stopped = True
        await self.links.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_TIMEOUT_S)
        if self._fast_path is not None:
            await self._fast_path.close(CLOSE_TIMEOUT_S)
        if self._runner is not None:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._runner.cleanup(), CLOSE_TIMEOUT_S + 1)
        await self.http_api.reads.router.close()
        await self.http_api.change_set_source.close()
        await self.http_api.evaluators.close()
        await self.loop.close(CLOSE_TIMEOUT_S)
        if self._payload_writer is not None:
            self._payload_writer.close(CLOSE_TIMEOUT_S)
        close = getattr(self.journal, "close", None)
        if close is not None:
            close()
        self.log.info("Stopped")


async def _wait_until(seconds: float, is_so: Callable[[], bool]) -> bool:
    """Whether the condition became true in time."""
    deadline = time.monotonic() + seconds
    while not is_so() and time.monotonic() < deadline:  # noqa: ASYNC110 - see LEAVE_POLL_S
        await asyncio.sleep(LEAVE_POLL_S)
    return is_so()


async def serve(config: NodeConfig, log: EventLog, end: Callable[[BaseException], None]) -> None:
    """Runs a master until SIGTERM or SIGINT. Raises :class:`TxLogError` when it cannot start. If its disk is full, the
    master leaves the view, and starts again when it can store."""
    token, guard, tls = load_peer_token(config), load_authenticator(config, log), load_tls(config, log)
    try:
        read_effective_settings(config)
    except BadSettings as wrong:
        raise BadStart(str(wrong)) from None
    stop = asyncio.Event()
    while True:
        journal, recovered = open_journal(config)
        if recovered.damage:
            journal, recovered = await repair_journal(config, journal, recovered, token, log, guard, tls)
        if config.identity_file is not None:
            write_identity(config.identity_file, config.node, recovered)
        app = MasterApp(config, journal, recovered, token, log, end, guard, tls)
        birth, start = recovered.birth, recovered.start
        del recovered  # the core drops it once it has a view: some 100 bytes for each waiting transaction
        for name in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(name, stop.set)
        await app.start()
        full = await _until_stopped_or_full(app, stop)
        log.warning("LeavesFull") if full else log.info("Stopping")
        round_timeout_ms = app.settings.preferences.round_timeout
        await app.stop(leave_ms=round_timeout_ms if full else None)
        if not full or stop.is_set():
            return
        waits = DiskFullMode(config, birth, start, app.loop.durability.stable.value, log, guard, tls)
        if not await waits.run(stop):
            return


async def _until_stopped_or_full(app: MasterApp, stop: asyncio.Event) -> bool:
    """Whether the disk is full."""
    round_timeout_s = app.settings.preferences.round_timeout / 1000
    tasks = [
        asyncio.ensure_future(stop.wait()),
        asyncio.ensure_future(wait_until_disk_full(app.loop.status, round_timeout_s)),
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return not stop.is_set()
    finally:
        for task in tasks:
            task.cancel()


async def repair_journal(
    config: NodeConfig,
    journal: Any,
    recovered: RecoveredState,
    token: bytes,
    log: EventLog,
    guard: Authenticator | None = None,
    tls: TlsConfig = NO_TLS,
) -> tuple[Any, RecoveredState]:
    """Fetches what a damaged journal lacks, writes it again, and reopens the journal."""
    from txlog.server.journal_repair_mode import JournalRepairMode  # imported late: hardly any start needs it

    links = PeerLinks(config, token, log, tls.peers)
    mending = JournalRepairMode(config, core_settings(config), recovered, journal, links, log, guard, tls)
    repair = await mending.run()
    for damage, mended in repair.repaired:
        journal.repair(damage, mended.runs, mended.contents, mended.added)
    journal.sync()
    journal.close()
    return open_journal(config)


def write_identity(file: Path, node: str, recovered: RecoveredState) -> None:
    """Writes which process of this master this is, so that an observer of its end can name it. If the file cannot be
    written, the start fails."""
    identity = {"node": node, "birth": f"{recovered.birth:016x}", "start": recovered.start}
    try:
        file.write_text(json.dumps(identity) + "\n")
    except OSError as wrong:
        raise BadStart(f"identity_file {file}: {wrong.strerror}") from None


class BadStart(TxLogError):
    """The input of this process is not valid; the message gives the reason (exit code 64)."""


def load_authenticator(config: NodeConfig, log: EventLog) -> Authenticator | None:
    """The authenticator of clients; None if the manifest names no users. :class:`BadStart` when the file is missing or
    not valid: a master that must authenticate never admits every client instead."""
    if config.users_file is None:
        return None
    try:
        return Authenticator(config.users_file, config.own_token_file, log)
    except BadUsers as wrong:
        raise BadStart(f"users_file {wrong}") from None


def load_tls(config: NodeConfig, log: EventLog) -> TlsConfig:
    """The certificates for TLS. :class:`BadStart` when a file is missing or not valid: a master that must use TLS never
    falls back to plain connections."""

    def read(folder: Path | None, field: str, node: str | None) -> Certificates | None:
        try:
            return Certificates(folder, log, node=node) if folder is not None else None
        except BadCertificates as wrong:
            raise BadStart(f"{field} {wrong}") from None

    return TlsConfig(
        clients=read(config.tls_folder, "tls_folder", None),
        peers=read(config.peer_tls_folder, "peer_tls_folder", config.node),
    )


def load_peer_token(config: NodeConfig) -> bytes:
    """The secret that the masters share."""
    try:
        token = config.peer_token_file.read_bytes().strip()
    except OSError as wrong:
        raise BadStart(f"peer_token_file {config.peer_token_file}: {wrong.strerror}") from None
    if not token or not token.isascii():
        raise BadStart(f"peer_token_file {config.peer_token_file}: a line of ASCII, the same for all masters")
    return token
