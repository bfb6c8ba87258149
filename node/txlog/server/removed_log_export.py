"""The export of a removed log that is not open here: its master started again meanwhile, or the log had failed."""

from __future__ import annotations

from collections.abc import Callable

from txlog.protocol.core import Core
from txlog.protocol.events import ClockReading
from txlog.server.log_opener import LogOpener, close_storage
from txlog.server.log_service import core_settings
from txlog.server.removed_master_export import UnloggedExport, write_unlogged
from txlog.system.catalogue import RepositoryRecord


def export_closed_log(
    opener: LogOpener, record: RepositoryRecord, now: Callable[[], ClockReading]
) -> UnloggedExport | None:
    """Writes down what this master had accepted and the log lacks, as its journal has it; None for nothing. May run on
    another thread. :class:`JournalFault`, :class:`Fatal`, ``OSError``: the journal cannot be read."""
    storage, config = opener.open_storage(record.number, record.name, record.settings)
    try:
        log_state = Core(core_settings(config), storage.recovered, now()).log_state
        return write_unlogged(config.journal_folder, log_state, storage.journal)
    finally:
        close_storage(storage)
