"""Change sets: the quads that each entry of the log really deleted and added."""

from txlog.changesets.capture_follower import CapturedEntrySkipped, follow_step
from txlog.changesets.capture_store import CaptureStore, LogStep
from txlog.changesets.change_log_errors import (
    CaptureStoreInUse,
    ChangeLogDamaged,
    ChangeNotKept,
    ChangesGone,
    UnknownChangeLog,
)
from txlog.changesets.change_log_reader import ChangeLogReader
from txlog.changesets.change_record import CapturedEntry, ChangeRecord
from txlog.changesets.change_set import ChangeSet, combine, decode_change_set
from txlog.changesets.operations import EntryRefused, apply_change, apply_entry

__all__ = [
    "CaptureStore",
    "CaptureStoreInUse",
    "CapturedEntry",
    "CapturedEntrySkipped",
    "ChangeLogDamaged",
    "ChangeLogReader",
    "ChangeNotKept",
    "ChangeRecord",
    "ChangeSet",
    "ChangesGone",
    "EntryRefused",
    "LogStep",
    "UnknownChangeLog",
    "apply_change",
    "apply_entry",
    "combine",
    "decode_change_set",
    "follow_step",
]
