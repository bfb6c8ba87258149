"""The process of a master: its sockets, users, certificates, peers and clock, and its logs by number; its start and its
graceful end.

Log 0 is the log of the first repository. :class:`FurtherLogs` adds the others where the configuration allows it. If a
task that must run for ever ends, the process ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from aiohttp import web

from txlog.auth.authenticator import Authenticator
from txlog.auth.tls import NO_TLS, TlsConfig
from txlog.config.live_settings import BadSettings, read_effective_settings
from txlog.config.process_config import NodeConfig
from txlog.http.aiohttp_server import HttpServer
from txlog.http.listener import Listener, listen
from txlog.http.router import Handler, Request, Response, Route, Router
from txlog.model.crosslog_entry import SYSTEM_LOG
from txlog.model.errors import TxLogError
from txlog.model.records import RecoveredState
from txlog.runtime.executor import JournalPort
from txlog.runtime.interactive_load import InteractiveLoad
from txlog.runtime.master_context import API_PATH
from txlog.runtime.master_loop import clock_with_offset
from txlog.server.disk_full_mode import DiskFullMode, wait_until_disk_full
from txlog.server.frontdoor.evaluator_pool import EvaluatorPool
from txlog.server.frontdoor.fast_path import FastPath
from txlog.server.frontdoor.request_parameters import REPOSITORY_PATH
from txlog.server.further_logs import FurtherLogs
from txlog.server.log_routes import LogLinks, is_of_system_log
from txlog.server.log_service import LogService, LogStorage, SharedParts, core_settings, open_journal
from txlog.server.peers.envelope_router import EnvelopeRouter
from txlog.server.peers.peer_links import PeerLinks, listen_to_peers
from txlog.server.permanent_tasks import PermanentTasks
from txlog.server.process_routes import ProcessRoutes
from txlog.server.repository_directory import RepositoryDirectory
from txlog.server.repository_requests import RepositoryRequests
from txlog.server.startup_files import (
    BadStart,
    load_authenticator,
    load_peer_token,
    load_tls,
    write_identity,
)
from txlog.telemetry.event_log import EventLog

FIRST_LOG: Final = 0
"""The number of the first repository's log."""
REJECT_NEW_WORK_S = 0.5
"""Minimum time for which a stop answers 503, so that clients with a kept connection receive it before the close."""
CLOSE_TIMEOUT_S = 2.0
"""How long a stop waits for answers in progress, and for the last sync."""
LEAVE_POLL_S = 0.01
"""Poll interval: the core emits no event when the master has left the view."""
HTTP_KEEP_ALIVE_S = 75.0
"""Longer than the keep-alive of common proxies and clients, so that they close first."""


class MasterProcess:
    """A running master. It calls ``ended(error)`` when it must end with a named error; it sends nothing afterwards.
    ``journal`` and ``recovered``: of the first log. ``guard``: see :func:`load_authenticator`."""

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
        self.tls = tls
        self.log = log
        self._on_ended = ended
        self.envelopes = None if config.repositories is None else EnvelopeRouter(self._on_unknown_log)
        """Delivers to further logs; None where this process knows none, as an older program."""
        self.links = PeerLinks(config, token, log, tls.peers, self.envelopes)
        self.further = None if self.envelopes is None else FurtherLogs(self, self.envelopes, ended)
        self._requests = None if self.further is None else RepositoryRequests(self, self.further, guard)
        self.evaluators = EvaluatorPool(config.limits)
        load = InteractiveLoad()
        self._shared = SharedParts(log, clock_with_offset(config.clock_offset_ms), load, self.evaluators, token)
        self.logs: dict[int, LogService] = {}
        routes = ProcessRoutes(
            lambda: {one.repository: one.context for number, one in self.logs.items() if number != SYSTEM_LOG},
            lambda: {one.repository: one.routes.metrics for one in self.logs.values()},
            self.links,
            tls,
            self._requests,
            None if self.envelopes is None else lambda: self._dropped_envelopes,
            guard,
        )
        self._directory = RepositoryDirectory(routes.routes(), routes.unknown_handler, guard)
        self.router = Router(self._directory, log, guard, company=load, cors_origins=config.cors_origins)
        server = HttpServer(self.router, log, keepalive_timeout=HTTP_KEEP_ALIVE_S)
        self._runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=CLOSE_TIMEOUT_S)
        self._fast_path = FastPath(HTTP_KEEP_ALIVE_S, server, guard)
        self._listeners: list[Listener] = []
        self.add_log(FIRST_LOG, config.repository, config, LogStorage(journal, recovered), self.links)
        self._tasks = PermanentTasks(self.first.loop.end)

    @property
    def first(self) -> LogService:
        """The log of the first repository, which every process has."""
        return self.logs[FIRST_LOG]

    def add_log(
        self,
        number: int,
        repository: str,
        config: NodeConfig,
        storage: LogStorage,
        links: LogLinks,
        ended: Callable[[BaseException], None] | None = None,
    ) -> LogService:
        """Serves one more log behind this door. ``config``, ``links``, ``ended``: see :class:`LogService`; without
        ``ended`` its error ends the process. :meth:`start` starts the tasks of the first log; another one starts them
        itself. The system log has no repository: administrators reach it below ``/txlog/repositories/system``."""
        assert number not in self.logs, f"two logs with the number {number}"
        api_path = API_PATH if number == FIRST_LOG else f"{API_PATH}/repositories/{repository}"
        end = self._on_ended if ended is None else ended
        service = LogService(repository, config, storage, self._shared, links, end, api_path)
        if self.further is not None:
            service.context.fixed_masters = self._has_fixed_masters
            if number == FIRST_LOG:
                service.context.proved_down = self.further.processes.on_proved_down
        self.logs[number] = service
        if number == SYSTEM_LOG:
            self._directory.add_log(repository, [route for route in service.routes.routes() if is_of_system_log(route)])
        else:
            self._directory.add_log(repository, self._with_removal(repository, service.routes.routes()))
            self._fast_path.add_log(service.fast_path)
        return service

    def _with_removal(self, repository: str, routes: list[Route]) -> list[Route]:
        """The routes of a repository, with RDF4J's way to remove it where the cluster may have several."""
        handler, removal = self._removal(repository), ("DELETE", REPOSITORY_PATH)
        if handler is None:
            return routes
        return [one._replace(handler=handler) if (one.method, one.path) == removal else one for one in routes]

    def _removal(self, repository: str) -> Handler | None:
        requests = self._requests
        if requests is None:
            return None

        async def remove(request: Request, _: Mapping[str, str]) -> Response:
            return await requests.remove_by_client(repository, request)

        return remove

    def refuse_log(self, repository: str, error: Callable[[], TxLogError]) -> None:
        """Answers every request about this repository with the error, except for its removal."""
        self._fast_path.remove_log(repository)
        self._directory.refuse_log(repository, error, self._removal(repository))

    def forget_log(self, repository: str) -> None:
        """There is no such repository any more."""
        self._fast_path.remove_log(repository)
        self._directory.remove_log(repository)

    async def close_log(self, number: int, at_rest: Callable[[], None] | None = None) -> None:
        """Ends a further log, and nothing else: this process lives on, so it waits for all that is being written.
        ``at_rest``: see :meth:`LogService.close`."""
        service = self.logs.pop(number, None)
        if service is None:
            return
        service.context.is_closing = True
        service.routes.wake_log_waiters()
        service.loop.durability.abort_waiters()
        service.expect_end_of_tasks()
        await service.stop_tasks(CLOSE_TIMEOUT_S)
        await service.close(None, at_rest)

    def _on_unknown_log(self, peer: str, number: int) -> None:
        if self.further is not None:
            self.further.on_unknown_log(peer, number)

    @property
    def _dropped_envelopes(self) -> Mapping[tuple[int, str], int]:
        return (
            {} if self.envelopes is None else {(number, why): n for (number, why), n in self.envelopes.dropped.items()}
        )

    def _has_fixed_masters(self) -> bool:
        return self.further is not None and self.further.has_system_log

    async def start(self) -> None:
        """Opens the listeners and connects to the peers."""
        if self.further is not None:
            self.further.open_known()
        await self._runner.setup()
        config, first = self.config, self.first
        self._listeners.append(
            await listen(self._fast_path.new_connection, config.host, config.port, self.log, self.tls.clients)
        )
        if self.tls.peers is not None:
            self._listeners.append(await listen_to_peers(config, self.links, self.tls.peers, self.log))
        self._tasks.start(self.links.tasks(first.loop))
        if self.further is not None:
            self._tasks.start({"further-logs": self.further.run()})
        first.start_tasks()
        self.log.info("Started", port=config.port, start=first.loop.status.start, literals=first.literals_form)
        first.settle_literals()

    async def stop(self, leave_ms: int | None = None) -> None:
        """Answers 503 to new work, leaves all views, answers waiting requests (202 at the latest), then closes
        everything. ``leave_ms`` replaces ``leaveTimeout``."""
        if self.further is not None:
            await self.further.stop()
        logs = list(self.logs.values())
        began = time.monotonic()
        seconds = max([one.leave(leave_ms) for one in logs])
        await _wait_until(seconds + CLOSE_TIMEOUT_S, lambda: all(one.loop.has_left for one in logs))
        for one in logs:
            if one.loop.end_reason is None:
                self.log.info("Left" if one.loop.has_left else "NotLeft", seconds=round(time.monotonic() - began, 3))
        await _wait_until(CLOSE_TIMEOUT_S, lambda: not any(one.loop.in_flight for one in logs))
        if any(one.loop.end_reason is None for one in logs):
            await asyncio.sleep(max(0.0, REJECT_NEW_WORK_S - (time.monotonic() - began)))
        for one in logs:
            one.loop.durability.abort_waiters()
        for listening in self._listeners:
            listening.close()
        self._tasks.expect_end()
        for one in logs:
            one.expect_end_of_tasks()
        await self.links.close()
        await asyncio.gather(self._tasks.stop(CLOSE_TIMEOUT_S), *(one.stop_tasks(CLOSE_TIMEOUT_S) for one in logs))
        await self._fast_path.close(CLOSE_TIMEOUT_S)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._runner.cleanup(), CLOSE_TIMEOUT_S + 1)
        await self.evaluators.close()
        closed = await asyncio.gather(*(one.close(CLOSE_TIMEOUT_S) for one in logs), return_exceptions=True)
        for one, wrong in zip(logs, closed, strict=True):
            if wrong is not None:
                self.log.error("LogNotClosed", repository=one.repository, message=repr(wrong)[:2000])
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
        process = MasterProcess(config, journal, recovered, token, log, end, guard, tls)
        birth, start = recovered.birth, recovered.start
        del recovered  # the core drops it once it has a view: some 100 bytes for each waiting transaction
        for name in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(name, stop.set)
        await process.start()
        full = await _until_stopped_or_full(process.first, stop)
        log.warning("LeavesFull") if full else log.info("Stopping")
        round_timeout_ms = process.first.settings.preferences.round_timeout
        await process.stop(leave_ms=round_timeout_ms if full else None)
        if not full or stop.is_set():
            return
        waits = DiskFullMode(config, birth, start, process.first.loop.durability.stable.value, log, guard, tls)
        if not await waits.run(stop):
            return


async def _until_stopped_or_full(first: LogService, stop: asyncio.Event) -> bool:
    """Whether the disk is full."""
    round_timeout_s = first.settings.preferences.round_timeout / 1000
    tasks = [
        asyncio.ensure_future(stop.wait()),
        asyncio.ensure_future(wait_until_disk_full(first.loop.status, round_timeout_s)),
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
