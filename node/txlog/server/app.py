"""One master put together: configuration, journal, core, loop, doors; its start and its graceful end.

Every task has an owner here. A task that is meant to run for ever and ends, ends the process.
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

from txlog.access import BadUsers
from txlog.config.live import BadSettings, applied, read_live
from txlog.config.process import NodeConfig
from txlog.divergence.detector import DivergenceFinding
from txlog.journal import Journal, RealFiles
from txlog.model.errors import Fatal, TxLogError
from txlog.model.records import Recovered
from txlog.protocol.core import Core
from txlog.protocol.events import ConfiguredMember, Settings
from txlog.runtime.ahead import Ahead
from txlog.runtime.certificates import PLAIN, BadCertificates, Certificates, Tls
from txlog.runtime.company import Company
from txlog.runtime.events import EventLog
from txlog.runtime.executor import Executor, JournalPort
from txlog.runtime.guard import Guard
from txlog.runtime.laying import Laying
from txlog.runtime.listening import Listening, listen
from txlog.runtime.loop import Loop, clock_with_offset
from txlog.runtime.registry import Registry
from txlog.runtime.serving import HttpServer
from txlog.runtime.site import Site
from txlog.runtime.transactions import Transactions
from txlog.runtime.web import Door
from txlog.server.admin.settings import LiveSettings
from txlog.server.doors import Doors
from txlog.server.exporting import with_export
from txlog.server.frontdoor.fast_path import FastPath
from txlog.server.peers.links import Links, listen_to_peers
from txlog.server.room import WaitsForRoom, until_full

DOOR_S = 0.5
"""A stop answers 503 for so long at least: clients with a kept connection hear it before that ends."""
CLOSE_S = 2.0
"""How long a stop waits for answers that are on their way, and for the last sync."""
LOOK_S = 0.01
"""Between two looks at whether the master has left. The core has no event for it, and it happens once."""
KEEP_ALIVE_S = 75.0
"""Longer than the keep-alive of common proxies and clients, so that they close first."""


def settings_of(config: NodeConfig) -> Settings:
    """What the core is told of the configuration."""
    limits = config.limits
    seen = config.last_seen
    return Settings(
        node=config.node,
        members=tuple(ConfiguredMember(p.node, p.data_center, p.weight) for p in config.peers),
        round_timeout_ms=config.round_timeout_ms,
        idle_interval_ms=config.idle_interval_ms,
        max_clock_skew_ms=config.max_clock_skew_ms,
        key_retention_ms=config.key_retention_ms,
        queue_transactions_max=limits.queue_transactions,
        queue_bytes_max=limits.queue_bytes,
        frame_bytes_max=limits.frame_bytes,
        frame_items_max=limits.batch_transactions,
        last_seen_birth=seen.birth if seen else 0,
        last_seen_start=seen.start if seen else 0,
        max_peer_lag_ms=config.max_peer_lag_ms,
        none_split_delay_ms=config.none_split_delay_ms,
        strategy=config.split_recovery,
        majority=config.split_mode == "Majority",
    )


def open_journal(config: NodeConfig) -> tuple[Any, Recovered]:
    """The journal in its folder, locked. :class:`JournalFault` says what to do when it cannot be opened."""
    config.journal_folder.mkdir(parents=True, exist_ok=True)
    files = RealFiles(config.journal_folder, config.journal_bytes_max)
    return Journal.open(
        files, node=config.node, draw_birth=lambda: secrets.randbits(64), segment_bytes=config.segment_bytes
    )


class App:
    """A running master. ``ended(error)`` is called when it must end by name; nothing leaves it afterwards. ``guard``:
    see :func:`read_users`."""

    def __init__(
        self,
        config: NodeConfig,
        journal: JournalPort,
        recovered: Recovered,
        token: bytes,
        log: EventLog,
        ended: Callable[[BaseException], None],
        guard: Guard | None = None,
        tls: Tls = PLAIN,
    ) -> None:
        self.config = config
        self.guard = guard
        self.tls = tls
        self.log = log
        self.journal = journal
        self._tell_end = ended
        self._tasks: list[asyncio.Task[None]] = []
        self._stopped = False
        self.links = Links(config, token, log, tls.peers)
        now = clock_with_offset(config.clock_offset_ms)
        live = read_live(config)
        core = Core(settings_of(applied(config, live.preferences)), recovered, now())
        company = Company()
        self.loop = Loop(
            Executor(core, journal),
            send=self.links.send,
            ended=self._ended,
            now=now,
            company=company,
            batch_transactions=config.limits.batch_transactions,
            requests_in_flight=config.limits.requests_in_flight,
        )
        registry = Registry(config.data_center, config.workers, self.loop)
        self._laying = Laying(journal, self.loop.end, company) if isinstance(journal, Journal) else None
        body_bytes = 2 * config.limits.body_bytes
        self.ahead = Ahead(self.links.send, self.links.connected, body_bytes, self._laying, company)
        self.loop.executor.ahead = self.ahead
        self.site = Site(config, self.loop, registry, Transactions(self.loop, registry), log, self.ahead, company)
        assert not recovered.damage, "a damaged journal is mended before there is a core"
        self.settings = LiveSettings(self.site, live, settings_of)
        self.doors = Doors(self.site, self.links, self.settings, tls)
        self.door = Door(self.doors.routes(), log, guard, company=company)
        self.loop.stable_moved = registry.evaluate
        self.loop.log_cut = self.doors.wake
        self.loop.view_changed = self.doors.view_changed
        self.loop.noticed = self._noticed
        registry.differs = self._differs
        self._runner: web.ServerRunner | None = None
        self._listening: list[Listening] = []
        self._direct: FastPath | None = None

    async def start(self) -> None:
        """Open the door and begin to speak with the peers."""
        server = HttpServer(self.door, self.log, keepalive_timeout=KEEP_ALIVE_S)
        self._runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=CLOSE_S)
        await self._runner.setup()
        config = self.config
        self._direct = FastPath(
            self.doors.writes, self.loop, config.durability, config.write_timeout_s, KEEP_ALIVE_S, server, self.guard
        )
        self._listening.append(
            await listen(self._direct.new_connection, config.host, config.port, self.log, self.tls.clients)
        )
        if self.tls.peers is not None:
            self._listening.append(await listen_to_peers(config, self.links, self.tls.peers, self.log))
        for name, coroutine in {**self.links.tasks(self.loop), **self.doors.tasks()}.items():
            self._run(name, coroutine)
        self.log.info("Started", port=self.config.port, start=self.loop.core.start)

    def _ended(self, error: BaseException) -> None:
        if isinstance(error, Fatal):
            error = with_export(error, self.config.journal_folder, self.loop.agreement, self.journal)
        self._tell_end(error)

    def _differs(self, worker: str, finding: DivergenceFinding | None) -> None:
        if finding is None:
            self.log.info("WorkerEqualAgain", worker=worker)
        else:
            self.log.warning("WorkerDiffers", worker=worker, **msgspec.to_builtins(finding))

    def _noticed(self, peer: str, topic: str, body: bytes) -> None:
        self.doors.hear(peer, topic, body)
        self.ahead.hear(peer, topic, body)

    def _run(self, name: str, forever: Coroutine[Any, Any, None]) -> None:
        """A task that must not end before :meth:`stop`."""
        task = asyncio.get_running_loop().create_task(forever, name=name)
        task.add_done_callback(self._task_ended)
        self._tasks.append(task)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if self._stopped or task.cancelled():
            return
        error = task.exception() or RuntimeError("it returned")
        self.loop.end(Fatal("TaskEnded", f"{task.get_name()}: {error!r}"))

    async def stop(self, leave_ms: int | None = None) -> None:
        """Answer 503 to new work, leave the view, answer what waits (202 at the latest), then close everything.
        ``leave_ms``: in place of ``leaveTimeout``."""
        preferences, loop = self.settings.preferences, self.loop
        leave_ms = preferences.leave_timeout if leave_ms is None else leave_ms
        began = time.monotonic()
        self.site.closing = True
        loop.leave(leave_ms)
        self.doors.wake()
        # A round time-out more: only then it is sure that nobody is there to be told.
        left = await _within((leave_ms + preferences.round_timeout) / 1000 + CLOSE_S, lambda: loop.has_left)
        if loop.dead is None:
            self.log.info("Left" if left else "NotLeft", seconds=round(time.monotonic() - began, 3))
        await _within(CLOSE_S, lambda: not loop.in_flight)
        await asyncio.sleep(max(0.0, DOOR_S - (time.monotonic() - began)) if loop.dead is None else 0.0)
        loop.give_up()
        for listening in self._listening:
            listening.close()
        self._stopped = True
        await self.links.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_S)
        if self._direct is not None:
            await self._direct.close(CLOSE_S)
        if self._runner is not None:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._runner.cleanup(), CLOSE_S + 1)
        await self.doors.reads.router.close()
        await self.doors.evaluators.close()
        await self.loop.close(CLOSE_S)
        if self._laying is not None:
            self._laying.close(CLOSE_S)
        close = getattr(self.journal, "close", None)
        if close is not None:
            close()
        self.log.info("Stopped")


async def _within(seconds: float, is_so: Callable[[], bool]) -> bool:
    """Whether it became so in time."""
    deadline = time.monotonic() + seconds
    while not is_so() and time.monotonic() < deadline:  # noqa: ASYNC110 - see LOOK_S
        await asyncio.sleep(LOOK_S)
    return is_so()


async def serve(config: NodeConfig, log: EventLog, end: Callable[[BaseException], None]) -> None:
    """Run a master until SIGTERM or SIGINT. Raises :class:`TxLogError` when it cannot start. One that cannot store
    leaves the view, and starts again when it can."""
    token, guard, tls = read_token(config), read_users(config, log), read_certificates(config, log)
    try:
        read_live(config)
    except BadSettings as wrong:
        raise BadStart(str(wrong)) from None
    stop = asyncio.Event()
    while True:
        journal, recovered = open_journal(config)
        if recovered.damage:
            journal, recovered = await mend(config, journal, recovered, token, log, guard, tls)
        if config.identity_file is not None:
            say_who(config.identity_file, config.node, recovered)
        app = App(config, journal, recovered, token, log, end, guard, tls)
        birth, start = recovered.birth, recovered.start
        del recovered  # the core lets go of it once it has a view: some 100 bytes for each transaction that waits
        for name in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(name, stop.set)
        await app.start()
        full = await _until_stopped_or_full(app, stop)
        log.warning("LeavesFull") if full else log.info("Stopping")
        round_timeout_ms = app.settings.preferences.round_timeout
        await app.stop(leave_ms=round_timeout_ms if full else None)
        if not full or stop.is_set():
            return
        waits = WaitsForRoom(config, birth, start, app.loop.stable.value, log, guard, tls)
        if not await waits.run(stop):
            return


async def _until_stopped_or_full(app: App, stop: asyncio.Event) -> bool:
    """Whether it is full."""
    round_timeout_s = app.settings.preferences.round_timeout / 1000
    tasks = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(until_full(app.loop.core, round_timeout_s))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return not stop.is_set()
    finally:
        for task in tasks:
            task.cancel()


async def mend(
    config: NodeConfig,
    journal: Any,
    recovered: Recovered,
    token: bytes,
    log: EventLog,
    guard: Guard | None = None,
    tls: Tls = PLAIN,
) -> tuple[Any, Recovered]:
    """Fetch what a damaged journal misses, write it again, and open the journal anew."""
    from txlog.server.mending import Mending  # late: hardly any start needs it

    links = Links(config, token, log, tls.peers)
    mending = Mending(config, settings_of(config), recovered, journal, links, log, guard, tls)
    repair = await mending.run()
    for damage, mended in repair.mended:
        journal.repair(damage, mended.runs, mended.contents, mended.added)
    journal.sync()
    journal.close()
    return open_journal(config)


def say_who(file: Path, node: str, recovered: Recovered) -> None:
    """Which process of this master this is, for who sees it end. A file that cannot be written ends the start."""
    told = {"node": node, "birth": f"{recovered.birth:016x}", "start": recovered.start}
    try:
        file.write_text(json.dumps(told) + "\n")
    except OSError as wrong:
        raise BadStart(f"identity_file {file}: {wrong.strerror}") from None


class BadStart(TxLogError):
    """What this process was given is not right; the message says what (exit code 64)."""


def read_users(config: NodeConfig, log: EventLog) -> Guard | None:
    """Who asks clients for whom they are; None where the manifest names no users. :class:`BadStart` when the file is
    not there or not right: a master that was told to ask never lets everybody in instead."""
    if config.users_file is None:
        return None
    try:
        return Guard(config.users_file, config.own_token_file, log)
    except BadUsers as wrong:
        raise BadStart(f"users_file {wrong}") from None


def read_certificates(config: NodeConfig, log: EventLog) -> Tls:
    """With which TLS is spoken. :class:`BadStart` when one is not there or not right: a master that was told to
    never speaks plainly instead."""

    def read(folder: Path | None, field: str, node: str | None) -> Certificates | None:
        try:
            return Certificates(folder, log, node=node) if folder is not None else None
        except BadCertificates as wrong:
            raise BadStart(f"{field} {wrong}") from None

    return Tls(
        clients=read(config.tls_folder, "tls_folder", None),
        peers=read(config.peer_tls_folder, "peer_tls_folder", config.node),
    )


def read_token(config: NodeConfig) -> bytes:
    """The secret that the masters share."""
    try:
        token = config.peer_token_file.read_bytes().strip()
    except OSError as wrong:
        raise BadStart(f"peer_token_file {config.peer_token_file}: {wrong.strerror}") from None
    if not token or not token.isascii():
        raise BadStart(f"peer_token_file {config.peer_token_file}: a line of ASCII, the same for all masters")
    return token
