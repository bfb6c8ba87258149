"""Exports the transactions that a removed master holds and its log lacks, before its process ends. No process reads
this journal again.

This happens when an operator declared the master lost while it was running, partitioned from the others. Its clients
had received ``accepted``. The export has what this master's own log lacks. The other masters' log may have what they
received before the removal. So look there by id before you write anything again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, NamedTuple

from txlog.config.atomic_file import write_durably
from txlog.model.entry import RunItem
from txlog.model.errors import Fatal, JournalDamaged
from txlog.model.ids import Txid
from txlog.protocol.log.log_state import LogState
from txlog.runtime.executor import JournalPort
from txlog.wire.log_page import KIND_NAMES

REMOVED: Final = "Removed"
READ_BYTES_MAX: Final = 1 << 20


class UnloggedExport(NamedTuple):
    """``transactions``: how many the log lacks. ``name``: of the file that has them. ``error``: why it could not be
    written; empty if it was."""

    transactions: int
    name: str
    error: str

    def describe(self, folder: Path) -> str:
        """What an operator has to know. ``folder``: where the journal is by now."""
        said, path = (
            f"{self.transactions} transactions were accepted here that its log does not have",
            folder / self.name,
        )
        if self.error:
            return f"{said}; they could not be written to {path} ({self.error}): txlog journal show {folder}"
        return f"{said}; they are in {path}: see which of them the others have, and give the rest again"


def export_unlogged(fatal: Fatal, folder: Path, agreement: LogState | None, journal: JournalPort) -> Fatal:
    """The error with which a removed master ends, with the number of its unlogged transactions and the file that has
    them, next to the journal. Unchanged if the log has all of them, or if the master ends for another reason."""
    exported = write_unlogged(folder, agreement, journal) if fatal.reason == REMOVED else None
    if exported is None:
        return fatal
    return Fatal(REMOVED, f"{str(fatal).removeprefix(f'{REMOVED}: ')}; {exported.describe(folder)}")


def write_unlogged(folder: Path, agreement: LogState | None, journal: JournalPort) -> UnloggedExport | None:
    """Writes the transactions that the log lacks into a file in this folder; None if the log has all of them."""
    wanted = unlogged_transactions(agreement) if agreement is not None else []
    if agreement is None or not wanted:
        return None
    name, error = f"removed-{agreement.own.origin.birth:016x}.jsonl", ""
    try:
        write_durably(folder / name, b"".join(_encode_line(txid, journal) for txid in wanted))
    except OSError as wrong:
        error = str(wrong)
    return UnloggedExport(len(wanted), name, error)


def unlogged_transactions(agreement: LogState) -> list[Txid]:
    """Own transactions that this master's log does not have, in the order of their acceptance."""
    origin, history = agreement.own.origin, agreement.log_index
    seq = agreement.last_own_seq
    found: list[Txid] = []
    while seq > 0 and not history.index_of(origin, seq) and not history.is_trimmed(origin, seq):
        found.append(Txid(origin, seq))
        seq -= 1
    return found[::-1]


def _encode_line(txid: Txid, journal: JournalPort) -> bytes:
    """``{"txid","kind","key","payload"}``. If the journal cannot be read there, ``error`` replaces the rest."""
    line: dict[str, object] = {"txid": str(txid)}
    try:
        items = journal.read(*txid.origin, txid.seq, 1, READ_BYTES_MAX).items
    except JournalDamaged as wrong:
        line["error"] = str(wrong)
    else:
        line |= _content_fields(items[0]) if items else {"error": "the journal does not hold it"}
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


def _content_fields(item: RunItem) -> dict[str, object]:
    payload = item.payload.decode("utf-8", "backslashreplace")
    return {"kind": KIND_NAMES.get(item.kind, str(item.kind)), "key": item.key or None, "payload": payload}
