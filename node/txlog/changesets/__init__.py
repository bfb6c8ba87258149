"""Change sets: the quads that each entry of the log really deleted and added."""

from txlog.changesets.change_set import ChangeSet, combine, decode_change_set
from txlog.changesets.operations import EntryRefused, apply_change, apply_entry

__all__ = [
    "ChangeSet",
    "EntryRefused",
    "apply_change",
    "apply_entry",
    "combine",
    "decode_change_set",
]
