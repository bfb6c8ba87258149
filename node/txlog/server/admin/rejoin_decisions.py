"""What became of the synchronous transactions that were undecided when a rejoin began: for the report of a split."""

from __future__ import annotations

from typing import Any, Final

from txlog.model.ids import Txid, parse_txid
from txlog.protocol.log.log_state import LogState
from txlog.protocol.log.synchronous_effects import SynchronousEffects

NAMED_MAX: Final = 1000
"""So many transactions one record names."""


def find_undecided(found: SynchronousEffects) -> list[str]:
    """The transactions in the log and in the queue that no decision names which is there, too: at most
    :data:`NAMED_MAX`."""
    named = set(found.limbo.early)
    for _, names in found.decisions_waiting.values():
        named.update(names)
    return [str(txid) for txid in (*found.limbo.open, *found.waiting) if txid not in named][:NAMED_MAX]


def follow_decisions(record: dict[str, Any], log: LogState, stable: int) -> dict[str, Any] | None:
    """The record with what was decided since, in ``committed`` and ``rolledBack``: transactions with the index of the
    decision, None where that is trimmed. None when nothing was. ``stable``: no decision above it counts yet."""
    still: list[str] = []
    committed, rolled_back = list(record.get("committed", ())), list(record.get("rolledBack", ()))
    for text in record["undecided"]:
        txid = parse_txid(text)
        back, effect = log.synchronous.rollback_index(txid), _effect_index(log, txid)
        if 0 < back <= stable:
            rolled_back.append({"txid": text, "index": back})
        elif effect is None or 0 < effect <= stable:
            committed.append({"txid": text, "index": effect})
        else:
            still.append(text)
    if len(still) == len(record["undecided"]):
        return None
    return {**record, "undecided": still, "committed": committed, "rolledBack": rolled_back}


def _effect_index(log: LogState, txid: Txid) -> int | None:
    """0: it has no effect yet. None: it took effect before the log start."""
    found = log.synchronous.effect_index(txid)
    is_over = log.log_index.is_trimmed(txid.origin, txid.seq) and not log.synchronous.is_undecided(txid)
    return None if not found and is_over else found
