"""Exports the transactions that a removed master holds and its log lacks, before its process ends. No process reads
this journal again.

This happens when an operator declared the master lost while it was running, partitioned from the others. Its clients
had received ``accepted``. The export has what this master's own log lacks. The other masters' log may have what they
received before the removal. So look there by id before you write anything again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from txlog.config.atomic_file import write_durably
from txlog.model.entry import RunItem
from txlog.model.errors import Fatal, JournalDamaged
from txlog.model.ids import Txid
from txlog.protocol.log.log_state import LogState
from txlog.runtime.executor import JournalPort
from txlog.wire.log_page import KIND_NAMES

REMOVED: Final = "Removed"
READ_BYTES_MAX: Final = 1 << 20


def export_unlogged(fatal: Fatal, folder: Path, agreement: LogState | None, journal: JournalPort) -> Fatal:
    """The error with which a removed master ends, with the number of its unlogged transactions and the file that has
    them, next to the journal. Unchanged if the log has all of them, or if the master ends for another reason."""
    if fatal.reason != REMOVED or agreement is None:
        return fatal
    wanted = unlogged_transactions(agreement)
    if not wanted:
        return fatal
    origin = agreement.own.origin
    path = folder / f"removed-{origin.birth:016x}.jsonl"
    said = f"{len(wanted)} transactions were accepted here that its log does not have"
    try:
        write_durably(path, b"".join(_encode_line(txid, journal) for txid in wanted))
    except OSError as wrong:
        said = f"{said}; they could not be written to {path} ({wrong}): txlog journal show {folder}"
    else:
        said = f"{said}; they are in {path}: see which of them the others have, and give the rest again"
    return Fatal(REMOVED, f"{str(fatal).removeprefix(f'{REMOVED}: ')}; {said}")


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
