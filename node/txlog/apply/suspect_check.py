"""What is suspected of a worker: before it gets entries, and after a request without an answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from txlog.apply.entry_operations import TryPrefix, is_noop
from txlog.apply.session_errors import TransactionHarmful
from txlog.apply.suspect import Fault, Suspect, add_failure, add_prefix_failure, add_survival, find_trial
from txlog.model.entry import LogEntry
from txlog.model.entry_effects import find_effects
from txlog.workers.adapter import StoreOperation, Unreachable


def check_suspect(suspect: Suspect | None, index: int, entries: Iterable[LogEntry], now: float) -> Suspect | None:
    """What is still suspected of a worker at ``index``, before it gets these entries. Raises
    :class:`TransactionHarmful` where the next entry has a transaction that is known to end or stall it, and is not
    skipped."""
    if suspect is None or index >= suspect.last or index < suspect.after:
        return None
    entry = next((e for e in entries if not is_noop(e)), None)
    txids = {str(effect.txid): effect.txid for effect in find_effects(entry)} if entry is not None else {}
    if suspect.verdict is None or entry is None or suspect.txid not in txids:
        return suspect
    if suspect.is_held(now):
        raise TransactionHarmful(entry.index, txids[suspect.txid], suspect.verdict, suspect)
    return suspect


def try_prefixes(
    suspect: Suspect, operations: Sequence[StoreOperation], try_prefix: TryPrefix
) -> tuple[Suspect, int, Unreachable | None]:
    """What is suspected after trials with prefixes of the operations of one entry, until one of them fails: its length,
    and its error. None: the entry is sent as it is."""
    while (prefix := find_trial(suspect, len(operations))) is not None:
        try:
            try_prefix(operations[:prefix])
        except Unreachable as lost:
            return suspect, prefix, lost
        suspect = add_survival(suspect, prefix)
    return suspect, 0, None


def note_failure(
    known: Suspect | None,
    batch: Sequence[LogEntry],
    prefix: int,
    after: int,
    lost: Unreachable,
    now: float,
    ended_min: int,
) -> Suspect | None:
    """What is suspected of a worker at index ``after`` that has not answered a request with these entries. Moving the
    position harms no worker. ``prefix``: so many transactions of one entry were tried; 0: all."""
    harmful = [entry for entry in batch if not is_noop(entry)]
    if not harmful:
        return known
    fault = Fault.STALLED if isinstance(lost.__cause__, TimeoutError) else Fault.ENDED
    txids = [str(effect.txid) for effect in find_effects(harmful[0])]
    if len(harmful) == 1 and len(txids) > 1:
        last = harmful[0].index
        return add_prefix_failure(known, after, last, txids, prefix or len(txids), fault, now, ended_min)
    return add_failure(known, after, batch[-1].index, txids[0] if len(harmful) == 1 else "", fault, now, ended_min)
