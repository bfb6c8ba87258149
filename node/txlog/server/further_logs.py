"""The further logs of a master: opens the system log, and the logs that its entries name; closes what is removed.

One task brings the logs of this process in line with the catalogue. It starts with the system log, so a cluster with
one repository has no such task. A log that fails is closed by itself, by name: the others go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from txlog.config.process_config import NodeConfig
from txlog.model.crosslog_entry import SYSTEM_LOG
from txlog.model.errors import (
    Conflict,
    Fatal,
    JournalBroken,
    NotFound,
    Refused,
    TxLogError,
    Unavailable,
)
from txlog.runtime.master_loop import clock_with_offset
from txlog.server.disk_space import is_disk_full
from txlog.server.journal_births import JournalBirths
from txlog.server.log_folders import BadLogsFile, LogFolders
from txlog.server.log_opener import LogOpener, close_storage
from txlog.server.log_routes import LogLinks
from txlog.server.log_service import LogService, LogStorage
from txlog.server.peers.envelope_router import DropReason, EnvelopeLinks, EnvelopeRouter
from txlog.server.peers.peer_links import PeerLinks
from txlog.server.process_notices import ProcessNotices
from txlog.server.removed_master_export import UnloggedExport, write_unlogged
from txlog.server.system_log import NO_MAJORITY, SYSTEM_NAME, SystemLog
from txlog.server.system_log_rules import SystemLogRules
from txlog.system.catalogue import (
    FIRST_LOG,
    EndRemoval,
    RepositoryCatalogue,
    RepositoryRecord,
    RepositoryState,
)
from txlog.system.first_view import JournalBirth, found_entry, founding_members
from txlog.telemetry.event_log import EventLog
from txlog.wire.protocol_level import PROTOCOL_LEVEL

POLL_S: Final = 0.2
"""Between two steps of what is not complete: a founding, a removal, a log that could not be opened."""
FOUNDING_POLL_S: Final = 0.02
FOUNDING_ROUNDS: Final = 3
"""Round time-outs after which a log is founded without the members whose journal is not known."""
STOP_TIMEOUT_S: Final = 5.0
"""How long a stop waits for a step under way, and for logs that close."""


class LogHost(Protocol):
    """The process that serves the logs."""

    config: NodeConfig
    log: EventLog
    links: PeerLinks
    logs: dict[int, LogService]

    @property
    def first(self) -> LogService: ...
    def add_log(
        self,
        number: int,
        repository: str,
        config: NodeConfig,
        storage: LogStorage,
        links: LogLinks,
        ended: Callable[[BaseException], None],
    ) -> LogService: ...
    def refuse_log(self, repository: str, error: Callable[[], TxLogError]) -> None: ...
    def forget_log(self, repository: str) -> None: ...
    async def close_log(self, number: int, at_rest: Callable[[], None] | None = None) -> None: ...


class FurtherLogs:
    """``ended(error)`` ends the process: a write to the disk failed."""

    def __init__(self, host: LogHost, router: EnvelopeRouter, ended: Callable[[BaseException], None]) -> None:
        self._host = host
        self._router = router
        self._on_process_ended = ended
        self.system: SystemLog | None = None
        self.failed: dict[int, str] = {}
        """The name of the error that closed a log here, by number; ``SYSTEM_LOG``: all further logs."""
        self.waiting: dict[int, str] = {}
        """Why a log is not opened yet, by number: it is tried again."""
        self._folders: LogFolders | None = None
        self._journal_opener: LogOpener | None = None
        self._journals: dict[int, LogStorage] = {}
        """Empty journals of logs that are not founded yet."""
        self._rules = SystemLogRules(host)
        self._births = JournalBirths(host.links, self._on_changed)
        self._first_seen: dict[int, float] = {}
        self.processes = ProcessNotices(host)
        self._is_wanted = False
        self._is_stopping = False
        self._step_lock = asyncio.Lock()
        self._stirred = asyncio.Event()
        self._closing: dict[int, asyncio.Task[None]] = {}

    # Start

    def open_known(self) -> None:
        """Opens the system log if this master has it, and refuses the repositories of the others until they are open.
        Called before the process serves."""
        config, status = self._host.config, self._host.first.loop.status
        try:
            self._folders = LogFolders(config.journal_folder, config.node, status.birth)
            self._journal_opener = LogOpener(config, self._folders, status)
        except BadLogsFile as wrong:
            self._fail(SYSTEM_LOG, wrong.reason, str(wrong))
            return
        if unknown := self._folders.unknown_folders():
            self._host.log.warning("UnknownLogFolders", names=unknown, why="no log of this master has that number")
        for known in self._folders.logs.values():
            if known.number != SYSTEM_LOG and known.name != self._host.first.repository:
                self._host.refuse_log(known.name, _starting)
        if SYSTEM_LOG in self._folders.logs:
            try:
                with self._failing(SYSTEM_LOG):
                    self._start_system(*self._opener.open_system(SYSTEM_NAME, self._rules.settings()))
            except Unavailable as wrong:
                self._host.log.warning("FurtherLogs", step="start", message=str(wrong))
                self.want_system()

    def known_names(self) -> list[str]:
        """The repositories of the further logs that this master has, as its list of logs names them."""
        logs = self._folders.logs.values() if self._folders is not None else ()
        return [one.name for one in logs if one.number != SYSTEM_LOG]

    @property
    def has_system_log(self) -> bool:
        """Whether this master has the system log, or cannot tell."""
        return self._folders is None or SYSTEM_LOG in self._folders.logs

    def reason(self, number: int) -> str | None:
        """Why a log is not open here; None where it is, or will be soon."""
        return self.failed.get(number) or self.waiting.get(number)

    def on_unknown_log(self, peer: str, number: int) -> None:
        """A message of a log that is not here: that of the system log means that another master founds it."""
        if number == SYSTEM_LOG and SYSTEM_LOG not in self.failed:
            self.want_system()

    def want_system(self) -> None:
        """The system log is to be opened, if it is not."""
        if self.system is None:
            self._is_wanted = True
            self._stirred.set()

    async def run(self) -> None:
        """Brings the logs in line with the catalogue until the process ends."""
        while True:
            try:
                async with self._step_lock:
                    is_complete = self._is_stopping or await self._step()
            except (TxLogError, OSError) as wrong:
                self._host.log.warning_rate_limited("FurtherLogs", "step", message=str(wrong)[:1000])
                is_complete = False
            rest_s = self.processes.announce(time.monotonic()) if self.system is not None else None
            try:
                await asyncio.wait_for(self._stirred.wait(), rest_s if is_complete else POLL_S)
            except TimeoutError:
                continue
            self._stirred.clear()

    async def stop(self) -> None:
        """Opens and closes nothing any more. The process closes the logs that are open."""
        self._is_stopping = True
        self._stirred.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S), self._step_lock:
                while self._journals:
                    number, storage = self._journals.popitem()
                    with self._failing(number):
                        close_storage(storage)
        if self._closing:
            await asyncio.wait(self._closing.values(), timeout=STOP_TIMEOUT_S)

    def _on_changed(self) -> None:
        self._stirred.set()

    # The system log

    def _start_system(self, storage: LogStorage, config: NodeConfig) -> None:
        masters = len(self._host.first.loop.status.configured_members)
        service = self._add(SYSTEM_LOG, SYSTEM_NAME, config, storage)
        self._host.log.info("SystemLogOpened", start=service.loop.status.start, masters=masters)
        self.system = SystemLog(service, self._on_changed, self._on_notice)

    async def found_system(self, deadline: float) -> SystemLog:
        """The system log at work, founded if there is none. :class:`Unavailable` when it cannot be founded now, or was
        not in time."""
        self._check_system()
        if self.system is None:
            self._rules.check()
            self.want_system()
            await _poll(lambda: self.system is not None or self.reason(SYSTEM_LOG) is not None, deadline)
            self._check_system()
        system = self.system
        if system is None or not await _poll(lambda: system.is_at_work, deadline):
            raise Unavailable("NoMajority", NO_MAJORITY)
        while system.catalogue is None:
            await system.submit(self._rules.first_entry(), deadline)
        self._rules.check_first(system.fold.first)
        return system

    def _check_system(self) -> None:
        if (closed := self.reason(SYSTEM_LOG)) is not None:
            raise Unavailable(closed, "the system log is closed at this master; see its event log", 10)

    @property
    def _opener(self) -> LogOpener:
        assert self._journal_opener is not None, "nothing is opened without the list of logs"
        return self._journal_opener

    # The catalogue

    async def _step(self) -> bool:
        """Whether nothing is left to do until something changes."""
        if self._is_wanted and self.system is None and SYSTEM_LOG not in self.failed:
            with self._failing(SYSTEM_LOG):
                settings = self._rules.settings()
                self._start_system(*await asyncio.to_thread(self._opener.open_system, SYSTEM_NAME, settings))
        system = self.system
        if system is None or system.catalogue is None or SYSTEM_LOG in self.failed:
            return True
        self._rules.check_first(system.fold.first)
        records = system.catalogue.records
        for number in [one for one in self._host.logs if one != SYSTEM_LOG and one not in records]:
            await self._close_unlisted(system.catalogue, number)
        is_complete = True
        for record in list(records.values()):
            if self._is_stopping:
                return False
            is_complete = await self._follow(system, record) and is_complete
        return is_complete

    async def _follow(self, system: SystemLog, record: RepositoryRecord) -> bool:
        """Brings one log in line with its record, whatever becomes of the others. Whether nothing is left to do."""
        try:
            return await self._apply(system, record)
        except (Refused, OSError) as wrong:
            self._host.log.warning_rate_limited("FurtherLogs", str(record.number), message=str(wrong)[:1000])
            return False
        except Exception as wrong:  # noqa: BLE001 - an error of this program, or of this disk: the others go on
            self._fail(record.number, _name_of(wrong), repr(wrong), record.name if record.is_kept else "")
            self._close_soon(record.number)
            return True

    async def _apply(self, system: SystemLog, record: RepositoryRecord) -> bool:
        is_new = record.state in (RepositoryState.CREATED, RepositoryState.FOUNDED)
        if record.number == FIRST_LOG or (is_new and record.number in self.failed):
            return True
        match record.state:
            case RepositoryState.CREATED:
                await self._found(system, record)
            case RepositoryState.FOUNDED:
                await self._serve(system, record)
            case RepositoryState.REMOVING:
                await self._end_removal(system, record)
            case RepositoryState.REMOVED:
                await self._discard(system, record)
        return record.state in (RepositoryState.FOUNDED, RepositoryState.REMOVED)

    async def _found(self, system: SystemLog, record: RepositoryRecord) -> None:
        """Tells the others this master's journal for the log, and founds it when those of all members are known."""
        config, number, round_s = self._host.config, record.number, self._host.config.round_timeout_ms / 1000
        if number not in self._journals:
            self._host.refuse_log(record.name, _starting)
            with self._failing(number, record.name):
                self._journals[number] = await asyncio.to_thread(self._opener.open_empty, record)
        storage = self._journals.get(number)
        if storage is None:
            return
        keeps = self._opener.log_config(number, record.name, record.settings).can_keep_literals
        births = self._births.announce(
            number, config.node, JournalBirth(storage.recovered.birth, keeps, PROTOCOL_LEVEL)
        )
        waited_s = self._waited_s(number)
        if not self._is_due(system, waited_s) or system.configuration is None:
            return
        is_patience_over = waited_s >= FOUNDING_ROUNDS * round_s
        members = founding_members(births, system.members, system.configuration, is_patience_over)
        entry = found_entry(number, births, members, system.masters)
        if entry is not None:
            await system.submit(entry, time.monotonic() + round_s)

    def _on_notice(self, peer: str, topic: str, body: bytes) -> None:
        self.processes.on_notice(peer, topic, body)
        self._births.on_notice(peer, topic, body)

    async def _serve(self, system: SystemLog, record: RepositoryRecord) -> None:
        """Opens a founded log, and serves its repository."""
        number, service = record.number, self._host.logs.get(record.number)
        if service is not None:
            found, named = service.loop.status.cluster_id, record.cluster_id.hex()
            if found and found != named:
                what = f"log {number} is open with the cluster {found}, and is of {named}"
                self._fail(number, "OtherCluster", what, record.name)
                await self._host.close_log(number)
            return
        self._births.forget(number)
        with self._failing(number, record.name):
            empty = self._journals.pop(number, None)
            storage, config = await asyncio.to_thread(self._opener.open_founded, record, list(system.masters), empty)
            service = self._add(number, record.name, config, storage)
            self._host.log.info("RepositoryOpened", repository=record.name, log=number, start=service.loop.status.start)
            system.wake()

    # Removal

    async def _end_removal(self, system: SystemLog, record: RepositoryRecord) -> None:
        """Refuses what is new, and frees the name: no transaction over several logs can be undecided there."""
        config, number = self._host.config, record.number
        self._host.refuse_log(record.name, lambda: Conflict(f"Removing: the repository {record.name} is being removed"))
        if self._is_due(system, self._waited_s(-number)):
            await system.submit(EndRemoval(number), time.monotonic() + config.round_timeout_ms / 1000)

    def _waited_s(self, what: int) -> float:
        """How long this master has waited for an entry. ``what``: a number for each such entry."""
        now_s = time.monotonic()
        return now_s - self._first_seen.setdefault(what, now_s)

    def _is_due(self, system: SystemLog, waited_s: float) -> bool:
        """Whether this master writes the next entry about a log: the first master of the system log's view at once,
        each other one a round time-out later."""
        config = self._host.config
        members = [one.node for one in system.masters if one.node in system.members]
        if config.node not in members or not system.is_at_work:
            return False
        return waited_s >= members.index(config.node) * config.round_timeout_ms / 1000

    async def _discard(self, system: SystemLog, record: RepositoryRecord) -> None:
        """Closes a removed log, and keeps its journal beside the others."""
        number, folders, catalogue = record.number, self._folders, system.catalogue
        assert folders is not None, "the system log has a folder"
        assert catalogue is not None, "the record is of the catalogue"
        if number not in folders.logs:
            return
        self._router.close_log(number, DropReason.REMOVED_LOG)
        self._births.forget(number)
        storage = self._journals.pop(number, None)
        if storage is not None:
            close_storage(storage)
        if closing := self._closing.get(number):
            await asyncio.wait([closing])
        exported = await self._close_removed(record)
        if catalogue.find(record.name) is None:
            self._host.forget_log(record.name)
        kept = await asyncio.to_thread(folders.discard, number)
        self.failed.pop(number, None)
        self._host.log.info(
            "RepositoryRemoved",
            repository=record.name,
            log=number,
            kept=str(kept) if kept else None,
            message=exported.describe(kept) if exported and kept else "",
        )

    async def _close_removed(self, record: RepositoryRecord) -> UnloggedExport | None:
        """Closes the log, and writes down what this master had accepted and the log lacks."""
        service = self._host.logs.get(record.number)
        if service is None:
            return await self._export_closed(record)
        self._refuse(record.number, record.name, lambda: NotFound(f"the repository {record.name} was removed"))
        exported: UnloggedExport | None = None

        def export() -> None:
            nonlocal exported
            log_state = service.loop.status.log_state
            exported = write_unlogged(service.config.journal_folder, log_state, service.journal)

        await self._host.close_log(record.number, export)
        return exported

    async def _export_closed(self, record: RepositoryRecord) -> UnloggedExport | None:
        """The same, of a log that is not open: it was removed while this master was away, or had failed."""
        known, folder = self._opener.folders.logs[record.number], self._opener.folders.folder(record.number)
        if not known.cluster_id or not folder.is_dir():
            return None
        now = clock_with_offset(self._host.config.clock_offset_ms)
        try:
            return await asyncio.to_thread(self._opener.export_unlogged, record, now)
        except (TxLogError, OSError) as wrong:
            self._host.log.error("RemovedLogNotRead", log=record.number, repository=record.name, message=str(wrong))
            return None

    async def _close_unlisted(self, catalogue: RepositoryCatalogue, number: int) -> None:
        """Closes a log that the system log does not name any more: an operator forced a view that lacks its entry. It
        opens again if the entry comes back."""
        name = self._host.logs[number].repository
        self._host.log.warning("LogNotListed", log=number, repository=name, why="the system log does not name it")
        self._router.close_log(number, DropReason.CLOSED_LOG)
        self._host.refuse_log(name, _starting)
        await self._host.close_log(number)
        if catalogue.find(name) is None:
            self._host.forget_log(name)

    # One log

    def _add(self, number: int, name: str, config: NodeConfig, storage: LogStorage) -> LogService:
        links = EnvelopeLinks(number, self._host.links)
        try:
            if self._is_stopping:
                raise Unavailable("Closing", "this master is ending")
            service = self._host.add_log(
                number, name, config, storage, links, lambda error: self._on_log_ended(number, name, error)
            )
        except BaseException:
            if number not in self._host.logs:
                close_storage(storage)
            raise
        self._router.open_log(number, service.loop)
        service.start_tasks()
        service.settle_literals()
        return service

    # Failures

    def _on_log_ended(self, number: int, name: str, error: BaseException) -> None:
        """A log failed: it is closed here alone, unless the disk fails all of them."""
        if isinstance(error, JournalBroken):
            self._on_process_ended(error)
            return
        self._fail(number, _name_of(error), str(error), name)
        self._close_soon(number)

    def _close_soon(self, number: int) -> None:
        """Closes a log once. The process closes those that are open at its stop."""
        if number not in self._host.logs or number in self._closing or self._is_stopping:
            return
        self._closing[number] = task = asyncio.get_running_loop().create_task(self._close(number))
        task.add_done_callback(lambda _: self._closing.pop(number, None))

    async def _close(self, number: int) -> None:
        try:
            await self._host.close_log(number)
        except Exception as wrong:  # noqa: BLE001 - it is closed as far as possible, and the others go on
            self._host.log.error("LogNotClosed", log=number, message=repr(wrong)[:2000])

    @contextlib.contextmanager
    def _failing(self, number: int, name: str = "") -> Iterator[None]:
        """What goes wrong inside fails this log alone. :class:`Unavailable` where the disk is full: then it is tried
        again."""
        try:
            yield
            self.waiting.pop(number, None)
        except Refused:
            raise  # not now: it is tried again
        except Exception as wrong:
            if is_disk_full(wrong):
                self.waiting[number] = "DiskFull"
                raise Unavailable("DiskFull", f"no room for log {number}: {wrong}", 10) from wrong
            self._fail(number, _name_of(wrong), str(wrong) or repr(wrong), name)
            self._close_soon(number)

    def _fail(self, number: int, reason: str, message: str, name: str = "") -> None:
        self.failed[number] = reason
        self._router.close_log(number, DropReason.CLOSED_LOG)
        self._host.log.error("LogFailed", log=number, repository=name or None, reason=reason, message=message[:2000])
        if name and number != SYSTEM_LOG:
            self._refuse(number, name, lambda: Unavailable(reason, f"the log of {name} is closed at this master", 10))
        if number == SYSTEM_LOG and self.system is not None:
            self.system.wake()

    def _refuse(self, number: int, name: str, error: Callable[[], TxLogError]) -> None:
        """Answers requests about a repository with the error, unless another log has its name by now."""
        catalogue = self.system.catalogue if self.system is not None else None
        record = catalogue.find(name) if catalogue is not None else None
        if record is None or record.number == number:
            self._host.refuse_log(name, error)


async def _poll(condition: Callable[[], bool], deadline: float) -> bool:
    """Whether the condition became true in time. Polled: a peer that answers again is no event of a log."""
    while not condition() and time.monotonic() < deadline:  # noqa: ASYNC110 - see above
        await asyncio.sleep(FOUNDING_POLL_S)
    return condition()


def _starting() -> TxLogError:
    return Unavailable("Starting", "this repository is being opened here; ask again, or another master")


def _name_of(error: BaseException) -> str:
    return error.reason if isinstance(error, Fatal) else type(error).__name__
