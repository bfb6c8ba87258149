"""What a cluster lacks of one whose place it has taken, and which of it may be given again. Pure.

A transaction is given again under its client's key, so that the client's own retry does not double it. What has that
key in the new log already, however long ago, is left out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from txlog.model.bulk_entry import decode_bulk_load
from txlog.model.entry import KIND_CONFIG, KIND_QUADS, KIND_SKIP, KIND_UPDATE
from txlog.model.errors import BadInput
from txlog.model.ids import Txid
from txlog.model.namespaces import decode_namespace_change
from txlog.model.rescued_transaction import rescue_key
from txlog.model.restore_points import decode_restore_point
from txlog.model.synchronous_entry import KIND_DECISION, SYNCHRONOUS_KINDS

NAMED_MAX: Final = 5
"""Transactions that a message names."""
_KEY: Final = re.compile(r"[\x21-\x7e]{1,200}")
"""As front doors take it."""


class RescueState(StrEnum):
    """What becomes of a transaction."""

    LACKING = "lacking"
    """The new cluster does not have it; it can be given again."""
    PRESENT = "present"
    """The new log has it under its key already."""
    GIVEN = "given"
    """It was given again, and is stable."""
    SKIPPED = "skipped"
    """The lost cluster had skipped it."""
    EXCLUDED = "excluded"
    """A person left it out."""
    LEFT = "left"
    """It cannot be given again as it is; the note says why."""
    REFUSED = "refused"
    """The new cluster refused it; the note says why."""
    UNKNOWN = "unknown"
    """It was given, and it is not known yet whether the new cluster has it. To repeat the rescue is harmless."""


class RescueCandidate(NamedTuple):
    """A transaction that the new cluster does not have under its id. ``key``: of its entry. ``size``: bytes of its
    payload. ``fault``: why its payload cannot be read; empty if it can."""

    txid: Txid
    kind: int
    key: str
    size: int
    fault: str = ""

    @property
    def new_key(self) -> str:
        """The Idempotency-Key under which it is given again."""
        return self.key or rescue_key(self.txid)


class RescueRow(NamedTuple):
    """One transaction and what becomes of it. ``new``: its id in the new cluster, empty where it has none."""

    candidate: RescueCandidate
    state: RescueState
    note: str = ""
    new: str = ""


def wanted_keys(candidates: Iterable[RescueCandidate]) -> set[str]:
    """The keys under which they would be given again."""
    return {each.new_key for each in candidates if each.kind in (KIND_UPDATE, KIND_QUADS)}


def plan_rescue(
    candidates: Iterable[RescueCandidate], skipped: Collection[str], used: Mapping[str, str]
) -> list[RescueRow]:
    """In the order of the candidates, each once. ``skipped``: transactions that the lost cluster skipped. ``used``: key
    to the transaction that counts for it, wherever the new cluster has it from."""
    rows: dict[Txid, RescueRow] = {}
    first: dict[str, Txid] = {}
    for each in candidates:
        if each.txid in rows or each.kind == KIND_DECISION:
            continue
        row = _judge(each, skipped, used)
        if row.state is RescueState.LACKING and first.setdefault(each.new_key, each.txid) != each.txid:
            row = row._replace(state=RescueState.LEFT, note=f"it repeats the key of {first[each.new_key]}")
        rows[each.txid] = row
    return list(rows.values())


def _judge(one: RescueCandidate, skipped: Collection[str], used: Mapping[str, str]) -> RescueRow:
    if str(one.txid) in skipped:
        return RescueRow(one, RescueState.SKIPPED)
    if one.fault:
        return RescueRow(one, RescueState.LEFT, one.fault)
    if one.kind not in (KIND_UPDATE, KIND_QUADS):
        return RescueRow(one, RescueState.LEFT, _describe_kind(one))
    if not _KEY.fullmatch(one.new_key):
        return RescueRow(one, RescueState.LEFT, "its key is none that a client can give")
    if one.new_key in used:
        return RescueRow(one, RescueState.PRESENT, f"under the key {one.new_key}", used[one.new_key])
    return RescueRow(one, RescueState.LACKING)


def _describe_kind(one: RescueCandidate) -> str:
    if one.kind in SYNCHRONOUS_KINDS:
        return "a synchronous transaction: its client writes it again, if it still counts"
    if one.kind == KIND_CONFIG:
        return "a change of the configuration: make it again, or leave it"
    if one.kind != KIND_SKIP:
        return f"its kind {one.kind} is unknown here"
    if decode_namespace_change(one.key) is not None:
        return "a change of the namespaces: make it again"
    point = decode_restore_point(one.key)
    return (
        f"the restore point {point}" if point is not None else f"it skips {one.key}: txlog skip, if that still counts"
    )


def leave_bulk_load(row: RescueRow, payload: bytes) -> RescueRow | None:
    """The row of a bulk load, whose data is in no log; None for any other payload."""
    load = decode_bulk_load(payload) if row.candidate.kind == KIND_UPDATE else None
    if load is None:
        return None
    return row._replace(state=RescueState.LEFT, note=f"a bulk load of {load.quads:,} quads: load its files again")


def choose_rows(rows: Sequence[RescueRow], only: Collection[str] | None, excluded: Collection[str]) -> list[RescueRow]:
    """The rows, of which those that a person left out are :attr:`RescueState.EXCLUDED`. ``only``: the transactions to
    give again, None for all. :class:`BadInput` for a transaction that is not among the lacking ones."""
    lacking = {str(row.candidate.txid) for row in rows if row.state is RescueState.LACKING}
    unknown = sorted({*(only or ()), *excluded} - lacking)
    if unknown:
        raise BadInput(
            f"{', '.join(unknown[:NAMED_MAX])}: not among the {len(lacking):,} transactions that can be given again"
        )

    def is_left_out(row: RescueRow) -> bool:
        name = str(row.candidate.txid)
        return row.state is RescueState.LACKING and (name in excluded or (only is not None and name not in only))

    return [row._replace(state=RescueState.EXCLUDED) if is_left_out(row) else row for row in rows]
