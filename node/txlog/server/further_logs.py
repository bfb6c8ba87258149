"""The further logs of a master: opens the system log, and the logs that its entries name; closes what is removed.

One task brings the logs of this process in line with the catalogue. It starts with the system log, so a cluster with
one repository has no such task. A log that fails is closed by itself, by name: the others go on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from txlog.config.live_settings import BadSettings
from txlog.config.process_config import NodeConfig
from txlog.model.bounds import Birth, Count
from txlog.model.crosslog_entry import SYSTEM_LOG
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.errors import Conflict, Fatal, JournalBroken, JournalFault, TxLogError, Unavailable
from txlog.server.log_folders import BadLogsFile, KnownLog, LogFolders
from txlog.server.log_opener import LogOpener, close_storage
from txlog.server.log_routes import LogLinks
from txlog.server.log_service import LogService, LogStorage
from txlog.server.peers.envelope_router import DropReason, EnvelopeLinks, EnvelopeRouter
from txlog.server.peers.peer_links import PeerLinks
from txlog.server.process_notices import ProcessNotices
from txlog.server.removed_master_export import REMOVED, export_unlogged
from txlog.server.system_log import NO_MAJORITY, SYSTEM_NAME, SystemLog
from txlog.system.catalogue import (
    FIRST_LOG,
    EndRemoval,
    RepositoryCatalogue,
    RepositoryRecord,
    RepositorySettings,
    RepositoryState,
)
from txlog.system.entries import FirstRepository
from txlog.system.first_view import JournalBirth, found_entry
from txlog.telemetry.event_log import EventLog
from txlog.wire import messages as wire
from txlog.wire.protocol_level import PROTOCOL_LEVEL

TOPIC: Final = "log-births"
POLL_S: Final = 0.2
"""Between two steps of what is not complete: a founding, a removal, a log that could not be opened."""
FOUNDING_POLL_S: Final = 0.02
CLOSE_TIMEOUT_S: Final = 2.0


class BirthNotice(msgspec.Struct):
    """The empty journal of the sender for a new log."""

    number: Count
    birth: Birth
    keeps_literals: bool
    level: Count


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
    async def close_log(self, number: int, timeout_s: float) -> None: ...


class FurtherLogs:
    """``ended(error)`` ends the process: a write to the disk failed."""

    def __init__(self, host: LogHost, router: EnvelopeRouter, ended: Callable[[BaseException], None]) -> None:
        self._host = host
        self._router = router
        self._on_process_ended = ended
        self.system: SystemLog | None = None
        self.failed: dict[int, str] = {}
        """The name of the error that closed a log here, by number; ``SYSTEM_LOG``: all further logs."""
        self._folders: LogFolders | None = None
        self._journal_opener: LogOpener | None = None
        self._journals: dict[int, LogStorage] = {}
        """Empty journals of logs that are not founded yet."""
        self._births: dict[int, dict[str, JournalBirth]] = {}
        self._first_seen: dict[int, float] = {}
        self.processes = ProcessNotices(host)
        self._is_wanted = False
        self._is_stopping = False
        self._step_lock = asyncio.Lock()
        self._stirred = asyncio.Event()
        self._closing: set[asyncio.Task[None]] = set()

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
            if known.number != SYSTEM_LOG:
                self._host.refuse_log(known.name, _starting)
        if SYSTEM_LOG in self._folders.logs:
            self._open_system()

    @property
    def has_system_log(self) -> bool:
        """Whether this master has the system log, or cannot tell."""
        return self._folders is None or SYSTEM_LOG in self._folders.logs

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
        async with self._step_lock:
            for storage in self._journals.values():
                close_storage(storage)
            self._journals.clear()

    def _on_changed(self) -> None:
        self._stirred.set()

    # The system log

    def _open_system(self) -> None:
        status = self._host.first.loop.status
        settings = RepositorySettings("Smart", "Majority", self._key_retention_ms())
        try:
            storage, log_config = self._opener.open_storage(SYSTEM_LOG, SYSTEM_NAME, settings)
            self._opener.note(KnownLog(number=SYSTEM_LOG, name=SYSTEM_NAME), storage)
            service = self._add(SYSTEM_LOG, SYSTEM_NAME, log_config, storage)
        except (JournalFault, Fatal, BadSettings, OSError) as wrong:
            self._fail(SYSTEM_LOG, _name_of(wrong), str(wrong))
            return
        self._host.log.info("SystemLogOpened", start=service.loop.status.start, masters=len(status.configured_members))
        self.system = SystemLog(service, self._on_changed, self._on_notice)

    def _key_retention_ms(self) -> int:
        configuration = self._host.first.loop.status.configuration
        return configuration.key_retention_ms if configuration else self._host.config.key_retention_ms

    async def found_system(self, deadline: float) -> SystemLog:
        """The system log at work, founded if there is none. :class:`Unavailable` when it cannot be founded now, or was
        not in time."""
        if SYSTEM_LOG in self.failed:
            raise Unavailable(self.failed[SYSTEM_LOG], "the system log is closed at this master; see its event log", 10)
        if self.system is None:
            self._check_founding()
            self.want_system()
            await _poll(lambda: self.system is not None or SYSTEM_LOG in self.failed, deadline)
        system = self.system
        if system is None or not await _poll(lambda: system.is_at_work, deadline):
            raise Unavailable("NoMajority", NO_MAJORITY)
        while system.catalogue is None:
            await system.submit(self._first_entry(), deadline)
        self._check_first(system)
        return system

    def _check_founding(self) -> None:
        """:class:`Unavailable` unless every configured master is here, and reads envelopes."""
        status, links = self._host.first.loop.status, self._host.links.links
        others = [one.node for one in status.configured_members if one.node != self._host.config.node]
        away = [node for node in others if node not in links or links[node].connection is None]
        away += [node for node in others if node not in away and not status.is_present(node)]
        older = [node for node in others if node not in away and not links[node].reads_envelopes]
        if older:
            what = f"the program of {', '.join(older)} knows one repository, or its configuration does; update it"
            raise Unavailable("OlderProgram", what, 10)
        if away or not self._host.first.context.is_ready:
            what = f"the first repository is added while every configured master is here; {', '.join(away)} is not"
            raise Unavailable("NotAllHere", what, 10)
        if status.pending_change is not None:
            raise Unavailable("ChangePending", f"the change {status.pending_change} of the masters comes first", 10)

    def _first_entry(self) -> FirstRepository:
        status, config = self._host.first.loop.status, self._host.config
        return FirstRepository(
            self._host.first.repository,
            status.cluster_id,
            config.split_recovery,
            status.split_mode,
            self._key_retention_ms(),
        )

    def _check_first(self, system: SystemLog) -> None:
        """:class:`Unavailable` where this master's first repository is not the one of the system log."""
        said, status = system.fold.first, self._host.first.loop.status
        mine = (self._host.first.repository, status.cluster_id)
        if said is not None and status.cluster_id and mine != (said.name, said.cluster_id):
            what = f"the system log is of {said.name} with the cluster {said.cluster_id}, this master has {mine[0]}"
            raise Unavailable("OtherFirstRepository", what, 10)

    @property
    def _opener(self) -> LogOpener:
        assert self._journal_opener is not None, "nothing is opened without the list of logs"
        return self._journal_opener

    # The catalogue

    async def _step(self) -> bool:
        """Whether nothing is left to do until something changes."""
        if self._is_wanted and self.system is None and SYSTEM_LOG not in self.failed:
            self._open_system()
        system = self.system
        if system is None or system.catalogue is None or SYSTEM_LOG in self.failed:
            return True
        self._check_first(system)
        is_complete = True
        for record in list(system.catalogue.records.values()):
            has_failed = record.number in self.failed and record.state is not RepositoryState.REMOVED
            if record.number == FIRST_LOG or has_failed:
                continue
            match record.state:
                case RepositoryState.CREATED:
                    is_complete = False
                    await self._found(system, record)
                case RepositoryState.FOUNDED:
                    await self._serve(system, record)
                case RepositoryState.REMOVING:
                    is_complete = False
                    await self._end_removal(system, record)
                case RepositoryState.REMOVED:
                    await self._discard(system.catalogue, record)
        return is_complete

    async def _found(self, system: SystemLog, record: RepositoryRecord) -> None:
        """Tells the others this master's journal for the log, and founds it when those of all members are known."""
        config, number = self._host.config, record.number
        if number not in self._journals:
            self._host.refuse_log(record.name, _starting)
            try:
                self._journals[number] = await asyncio.to_thread(self._open_empty, record)
            except (JournalFault, Fatal, OSError) as wrong:
                self._fail(number, _name_of(wrong), str(wrong), record.name)
                return
        storage = self._journals[number]
        keeps = self._opener.log_config(number, record.name, record.settings).can_keep_literals
        births = self._births.setdefault(number, {})
        births[config.node] = JournalBirth(storage.recovered.birth, keeps, PROTOCOL_LEVEL)
        notice = wire.encode(wire.Notice(TOPIC, msgspec.json.encode(BirthNotice(number, *births[config.node]))))
        links = EnvelopeLinks(SYSTEM_LOG, self._host.links)
        for node in links.connected_peers():
            links.send(node, notice)
        if not self._is_due(system, number):
            return
        entry = found_entry(number, births, system.members, system.masters)
        if entry is not None:
            await system.submit(entry, time.monotonic() + config.round_timeout_ms / 1000)

    def _open_empty(self, record: RepositoryRecord) -> LogStorage:
        return self._opener.open_storage(record.number, record.name, record.settings)[0]

    def _on_notice(self, peer: str, topic: str, body: bytes) -> None:
        self.processes.on_notice(peer, topic, body)
        if topic != TOPIC:
            return
        try:
            said = msgspec.json.decode(body, type=BirthNotice)
        except DECODE_ERRORS:
            return  # a newer version sent it
        births = self._births.setdefault(said.number, {})
        birth = JournalBirth(said.birth, said.keeps_literals, said.level)
        if births.get(peer) != birth:
            births[peer] = birth
            self._on_changed()

    async def _serve(self, system: SystemLog, record: RepositoryRecord) -> None:
        """Opens a founded log, and serves its repository."""
        number = record.number
        if number in self._host.logs:
            return
        self._births.pop(number, None)
        try:
            empty = self._journals.pop(number, None)
            storage, config = await asyncio.to_thread(self._opener.open_founded, record, list(system.masters), empty)
            service = self._add(number, record.name, config, storage)
        except (JournalFault, Fatal, BadSettings, OSError) as wrong:
            self._fail(number, _name_of(wrong), str(wrong), record.name)
            return
        self._host.log.info("RepositoryOpened", repository=record.name, log=number, start=service.loop.status.start)
        system.wake()

    # Removal

    async def _end_removal(self, system: SystemLog, record: RepositoryRecord) -> None:
        """Refuses what is new, and frees the name: no transaction over several logs can be undecided there."""
        config, number = self._host.config, record.number
        self._host.refuse_log(record.name, lambda: Conflict(f"Removing: the repository {record.name} is being removed"))
        if self._is_due(system, -number):
            await system.submit(EndRemoval(number), time.monotonic() + config.round_timeout_ms / 1000)

    def _is_due(self, system: SystemLog, what: int) -> bool:
        """Whether this master writes the next entry about a log: the first master of the system log's view at once,
        each other one a round time-out later. ``what``: a number for each such entry."""
        config = self._host.config
        members = [one.node for one in system.masters if one.node in system.members]
        waited_s = time.monotonic() - self._first_seen.setdefault(what, time.monotonic())
        if config.node not in members or not system.is_at_work:
            return False
        return waited_s >= members.index(config.node) * config.round_timeout_ms / 1000

    async def _discard(self, catalogue: RepositoryCatalogue, record: RepositoryRecord) -> None:
        """Closes a removed log, and keeps its journal beside the others."""
        number, folders = record.number, self._folders
        assert folders is not None, "the system log has a folder"
        if number not in folders.logs:
            return
        self._router.close_log(number, DropReason.REMOVED_LOG)
        storage = self._journals.pop(number, None)
        if storage is not None:
            close_storage(storage)
        service = self._host.logs.get(number)
        left = ""
        if service is not None:
            status = service.loop.status
            error = Fatal(REMOVED, f"the repository {record.name} was removed")
            left = str(export_unlogged(error, service.config.journal_folder, status.log_state, service.journal))
            await self._host.close_log(number, CLOSE_TIMEOUT_S)
        kept = await asyncio.to_thread(folders.discard, number)
        if catalogue.find(record.name) is None:
            self._host.forget_log(record.name)
        self._host.log.info(
            "RepositoryRemoved", repository=record.name, log=number, kept=str(kept) if kept else None, message=left
        )

    # One log

    def _add(self, number: int, name: str, config: NodeConfig, storage: LogStorage) -> LogService:
        links = EnvelopeLinks(number, self._host.links)
        try:
            service = self._host.add_log(
                number, name, config, storage, links, lambda error: self._on_log_ended(number, name, error)
            )
        except Fatal:
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
        task = asyncio.get_running_loop().create_task(self._host.close_log(number, CLOSE_TIMEOUT_S))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _fail(self, number: int, reason: str, message: str, name: str = "") -> None:
        self.failed[number] = reason
        self._router.close_log(number, DropReason.CLOSED_LOG)
        self._host.log.error("LogFailed", log=number, repository=name or None, reason=reason, message=message[:2000])
        if name and number != SYSTEM_LOG:
            self._host.refuse_log(name, lambda: Unavailable(reason, f"the log of {name} is closed at this master", 10))


async def _poll(condition: Callable[[], bool], deadline: float) -> bool:
    """Whether the condition became true in time. Polled: a peer that answers again is no event of a log."""
    while not condition() and time.monotonic() < deadline:  # noqa: ASYNC110 - see above
        await asyncio.sleep(FOUNDING_POLL_S)
    return condition()


def _starting() -> TxLogError:
    return Unavailable("Starting", "this repository is being opened here; ask again, or another master")


def _name_of(error: BaseException) -> str:
    return error.reason if isinstance(error, Fatal) else type(error).__name__
