"""The configuration and the journal of a further log: opened, or founded where the journal is an empty one of its
view 1."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from txlog.config.process_config import LastSeenIncarnation, NodeConfig, PeerConfig
from txlog.model.configuration import Master
from txlog.model.crosslog_entry import SYSTEM_LOG
from txlog.model.errors import Fatal
from txlog.model.records import RecoveredState, ViewAccepted, ViewInstalled
from txlog.model.view import View
from txlog.protocol.core import Core
from txlog.protocol.events import ClockReading
from txlog.runtime.master_status import MasterStatus
from txlog.server.log_folders import KnownLog, LogFolders
from txlog.server.log_service import LogStorage, core_settings, open_journal
from txlog.server.removed_master_export import UnloggedExport, write_unlogged
from txlog.system.catalogue import RepositoryRecord, RepositorySettings
from txlog.system.first_view import founding_view

CACHE_BYTES: Final = 4 << 20
"""Of recent transactions, for each further log: there are several in one process."""
SYSTEM_SEGMENT_BYTES: Final = 1 << 20
_REMEDY: Final = "move it away, and the log comes from the others"


class LogOpener:
    """``config``: of the process. ``folders``: the list of its logs. ``first``: the first log, which decides which
    masters there are. Its methods may run on another thread, one at a time."""

    def __init__(self, config: NodeConfig, folders: LogFolders, first: MasterStatus) -> None:
        self._config = config
        self.folders = folders
        self._first = first

    def log_config(self, number: int, name: str, settings: RepositorySettings) -> NodeConfig:
        """The configuration of the process as this log has it."""
        config, further = self._config, self._config.repositories
        segment_bytes_max = SYSTEM_SEGMENT_BYTES if number == SYSTEM_LOG else config.segment_bytes
        return config.model_copy(
            update={
                "repository": name,
                "journal_folder": self.folders.folder(number),
                "segment_bytes": min(config.segment_bytes, segment_bytes_max),
                "peers": self._peers(),
                "workers": further.workers.get(name, []) if further is not None else [],
                "split_recovery": settings.split_recovery,
                "split_mode": settings.split_mode,
                "key_retention_ms": settings.key_retention_ms,
                "graphs": [],
                "archive": None,
                "change_sets": None,
                "last_seen": self.folders.last_seen(number),
                "properties_file": None,
                "identity_file": None,
                "traces": None,
            }
        )

    def _peers(self) -> list[PeerConfig]:
        urls = {peer.node: peer.url for peer in self._config.peers}
        return [
            PeerConfig(node=one.node, data_center=one.data_center, url=urls.get(one.node, ""), weight=one.weight)
            for one in self._first.configured_members
        ]

    def open_storage(self, number: int, name: str, settings: RepositorySettings) -> tuple[LogStorage, NodeConfig]:
        """Opens the journal of a log. It is listed before its folder is made. :class:`JournalFault`, :class:`Fatal`."""
        if number not in self.folders.logs:
            self.folders.keep(KnownLog(number=number, name=name))
        config = self.log_config(number, name, settings)
        storage = LogStorage(*open_journal(config, CACHE_BYTES))
        if storage.recovered.damage:
            close_storage(storage)
            raise Fatal("JournalDamaged", f"{config.journal_folder}: {_REMEDY}")
        return storage, config

    def open_system(self, name: str, settings: RepositorySettings) -> tuple[LogStorage, NodeConfig]:
        """The journal of the system log, listed as it is now. Errors: see :meth:`open_storage` and :meth:`note`."""
        storage, config = self.open_storage(SYSTEM_LOG, name, settings)
        with _closed_on_error(storage):
            self.note(KnownLog(number=SYSTEM_LOG, name=name), storage)
        return storage, config

    def open_empty(self, record: RepositoryRecord) -> LogStorage:
        """The journal of a log that is not founded yet. :class:`Fatal` for one that has something of a log."""
        storage, config = self.open_storage(record.number, record.name, record.settings)
        if not _is_empty(storage.recovered):
            close_storage(storage)
            raise Fatal("JournalNotEmpty", f"{config.journal_folder} has a log, and this one is new: {_REMEDY}")
        return storage

    def open_founded(
        self, record: RepositoryRecord, masters: Sequence[Master], empty: LogStorage | None
    ) -> tuple[LogStorage, NodeConfig]:
        """The journal of a founded log, with view 1 in it if it is an empty one that the founding names. A master with
        another empty journal learns the log from the others, and founds nothing. ``empty``: the journal, if it is open
        already. :class:`Fatal`, :class:`JournalFault`, ``OSError``: then it is closed."""
        storage = empty
        if storage is None:
            storage, _ = self.open_storage(record.number, record.name, record.settings)
        with _closed_on_error(storage):
            view, recovered = founding_view(record, masters), storage.recovered
            if view is None:
                what = f"the founding of log {record.number} does not fit the system log's masters"
                raise Fatal("OtherMasters", what)
            config = self.log_config(record.number, record.name, record.settings)
            self._check_cluster(record, recovered)
            is_founding = self._is_founding(record, recovered)
            if is_founding:
                _write_first_view(storage, view)
        if is_founding:
            close_storage(storage)
            storage = LogStorage(*open_journal(config, CACHE_BYTES))
        elif recovered.accepted is None:
            config = _as_learner(config, record, recovered.birth)
        with _closed_on_error(storage):
            self.note(KnownLog(number=record.number, name=record.name, cluster_id=record.cluster_id.hex()), storage)
        return storage, config

    def export_unlogged(self, record: RepositoryRecord, now: Callable[[], ClockReading]) -> UnloggedExport | None:
        """Writes down what this master had accepted for a removed log that is not open here, and the log lacks, as its
        journal has it; None for nothing. :class:`JournalFault`, :class:`Fatal`, ``OSError``: the journal cannot be
        read."""
        storage, config = self.open_storage(record.number, record.name, record.settings)
        try:
            log_state = Core(core_settings(config), storage.recovered, now()).log_state
            return write_unlogged(config.journal_folder, log_state, storage.journal)
        finally:
            close_storage(storage)

    def _check_cluster(self, record: RepositoryRecord, recovered: RecoveredState) -> None:
        accepted = recovered.accepted
        if accepted is not None and accepted.cluster_id != record.cluster_id:
            folder = self.folders.folder(record.number)
            what = f"{folder} is of the cluster {accepted.cluster_id.hex()}, the log of {record.cluster_id.hex()}"
            raise Fatal("OtherCluster", f"{what}: {_REMEDY}")

    def _is_founding(self, record: RepositoryRecord, recovered: RecoveredState) -> bool:
        """Whether view 1 is to be written into this journal. :class:`Fatal` if it had view 1 before: then it is an
        older one, and what this master agreed to since is not in it."""
        named = any((one.node, one.birth) == (recovered.node, recovered.birth) for one in record.members)
        if not named or recovered.accepted is not None:
            return False
        if self.folders.logs[record.number].birth or not _is_empty(recovered):
            folder = self.folders.folder(record.number)
            raise Fatal("OldJournal", f"{folder} was founded before, and has no view now: {_REMEDY}")
        return True

    def note(self, known: KnownLog, storage: LogStorage) -> None:
        """Lists a log with its journal as it is now. While a master learns a log whose journal it lost, the lost one
        stays in the list. :class:`Fatal` for an older journal than the listed one, which stays listed. ``OSError``."""
        recovered, before = storage.recovered, self.folders.logs[known.number]
        if before.is_older(recovered.birth, recovered.start):
            self.folders.keep(before.model_copy(update={"refused": max(before.refused, recovered.start)}))
            what = f"{self.folders.folder(known.number)}: start {recovered.start}, start {before.start} was listed"
            if recovered.start > before.start:
                what += f"; an older one was refused with start {before.refused} (if this is another: see logs.json)"
            raise Fatal("OldJournal", f"{what}: {_REMEDY}")
        journal = {"birth": recovered.birth, "start": recovered.start}
        if recovered.accepted is None and before.birth not in (0, recovered.birth):
            journal = {"birth": before.birth, "start": before.start, "refused": before.refused}
        self.folders.keep(known.model_copy(update=journal))


def _is_empty(recovered: RecoveredState) -> bool:
    """Whether a journal has neither a view nor anything of a log."""
    has_log = recovered.log_start.index or recovered.log_spans or recovered.queued
    return recovered.accepted is None and not has_log


def _as_learner(config: NodeConfig, record: RepositoryRecord, birth: int) -> NodeConfig:
    """The configuration of a master without a view of a founded log. Its core founds nothing because it looks as if it
    had lost a journal, also where it never had one."""
    if config.last_seen is not None and config.last_seen.birth != birth:
        return config
    lost = next((one.birth for one in record.members if one.node == config.node), record.members[0].birth)
    return config.model_copy(update={"last_seen": LastSeenIncarnation(birth=lost, start=1)})


def _write_first_view(storage: LogStorage, view: View) -> None:
    """Makes view 1 durable, accepted and installed."""
    journal: Any = storage.journal
    journal.append(ViewAccepted(view))
    journal.append(ViewInstalled(*view.number))
    journal.sync()


@contextlib.contextmanager
def _closed_on_error(storage: LogStorage) -> Iterator[None]:
    """Closes the journal if what is done with it fails: it would stay locked."""
    try:
        yield
    except BaseException:
        close_storage(storage)
        raise


def close_storage(storage: LogStorage) -> None:
    """Closes a journal that no log has."""
    journal: Any = storage.journal
    journal.close()
