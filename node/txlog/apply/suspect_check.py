"""Whether the next transaction is one that this worker does not survive."""

from __future__ import annotations

from collections.abc import Iterable

from txlog.apply.entry_operations import is_noop
from txlog.apply.session_errors import TransactionHarmful
from txlog.apply.suspect import Suspect
from txlog.model.entry import LogEntry


def check_suspect(suspect: Suspect | None, index: int, entries: Iterable[LogEntry], now: float) -> Suspect | None:
    """What is still suspected of a worker at ``index``, before it gets these entries. Raises
    :class:`TransactionHarmful` where the next transaction is known to end or stall it, and is not skipped."""
    if suspect is None or index >= suspect.last or index < suspect.after:
        return None
    entry = next((e for e in entries if not is_noop(e)), None)
    if suspect.verdict is None or entry is None or str(entry.txid) != suspect.txid:
        return suspect
    if suspect.is_held(now):
        raise TransactionHarmful(entry, suspect.verdict, suspect)
    return suspect
