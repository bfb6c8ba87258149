"""The configuration and the journal of a further log: opened, or founded where the journal is an empty one of its
view 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from txlog.config.process_config import LastSeenIncarnation, NodeConfig, PeerConfig
from txlog.model.configuration import Master
from txlog.model.crosslog_entry import SYSTEM_LOG
from txlog.model.errors import Fatal
from txlog.model.records import ViewAccepted, ViewInstalled
from txlog.model.view import View
from txlog.runtime.master_status import MasterStatus
from txlog.server.log_folders import KnownLog, LogFolders
from txlog.server.log_service import LogStorage, open_journal
from txlog.system.catalogue import RepositoryRecord, RepositorySettings
from txlog.system.first_view import founding_view

CACHE_BYTES: Final = 4 << 20
"""Of recent transactions, for each further log: there are several in one process."""
SYSTEM_SEGMENT_BYTES: Final = 1 << 20


class LogOpener:
    """``config``: of the process. ``folders``: the list of its logs. ``first``: the first log, which decides which
    masters there are. Its methods may run on another thread, one at a time."""

    def __init__(self, config: NodeConfig, folders: LogFolders, first: MasterStatus) -> None:
        self._config = config
        self._folders = folders
        self._first = first

    def log_config(self, number: int, name: str, settings: RepositorySettings) -> NodeConfig:
        """The configuration of the process as this log has it."""
        config, further = self._config, self._config.repositories
        segment_bytes_max = SYSTEM_SEGMENT_BYTES if number == SYSTEM_LOG else config.segment_bytes
        return config.model_copy(
            update={
                "repository": name,
                "journal_folder": self._folders.folder(number),
                "segment_bytes": min(config.segment_bytes, segment_bytes_max),
                "peers": self._peers(),
                "workers": further.workers.get(name, []) if further is not None else [],
                "split_recovery": settings.split_recovery,
                "split_mode": settings.split_mode,
                "key_retention_ms": settings.key_retention_ms,
                "graphs": [],
                "archive": None,
                "change_sets": None,
                "last_seen": self._folders.last_seen(number),
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
        if number not in self._folders.logs:
            self._folders.keep(KnownLog(number=number, name=name))
        config = self.log_config(number, name, settings)
        storage = LogStorage(*open_journal(config, CACHE_BYTES))
        if storage.recovered.damage:
            close_storage(storage)
            raise Fatal("JournalDamaged", f"{config.journal_folder}: move it away, and the log comes from the others")
        return storage, config

    def open_founded(
        self, record: RepositoryRecord, masters: Sequence[Master], empty: LogStorage | None
    ) -> tuple[LogStorage, NodeConfig]:
        """The journal of a founded log, with view 1 in it if it is an empty one that the founding names. A member with
        another journal has lost it: it learns the log from the others, and founds nothing. ``empty``: the journal, if
        it is open already."""
        storage = empty
        if storage is None:
            storage, _ = self.open_storage(record.number, record.name, record.settings)
        config = self.log_config(record.number, record.name, record.settings)
        view = founding_view(record, masters)
        if view is None:
            close_storage(storage)
            raise Fatal("OtherMasters", f"the founding of log {record.number} does not fit the system log's masters")
        recovered = storage.recovered
        member = next((one for one in record.members if one.node == recovered.node), None)
        if recovered.accepted is None and member is not None:
            if member.birth == recovered.birth:
                storage = _with_first_view(storage, view, config)
            elif config.last_seen is None:
                config = config.model_copy(update={"last_seen": LastSeenIncarnation(birth=member.birth, start=1)})
        self.note(KnownLog(number=record.number, name=record.name, cluster_id=record.cluster_id.hex()), storage)
        return storage, config

    def note(self, known: KnownLog, storage: LogStorage) -> None:
        """Lists a log with its journal as it is now. ``OSError``."""
        recovered = storage.recovered
        self._folders.keep(known.model_copy(update={"birth": recovered.birth, "start": recovered.start}))


def _with_first_view(storage: LogStorage, view: View, config: NodeConfig) -> LogStorage:
    """The same journal, with view 1 accepted and installed."""
    journal: Any = storage.journal
    journal.append(ViewAccepted(view))
    journal.append(ViewInstalled(*view.number))
    journal.sync()
    journal.close()
    return LogStorage(*open_journal(config, CACHE_BYTES))


def close_storage(storage: LogStorage) -> None:
    """Closes a journal that no log has."""
    journal: Any = storage.journal
    journal.close()
