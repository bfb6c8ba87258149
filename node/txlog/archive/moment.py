"""Which moment of the log a restore asks for: ``latest``, ``time:…``, ``position:…``, ``point:…``, ``[before:]TXID``.
Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Final

from txlog.model.errors import BadInput
from txlog.model.hashes import HASH_BYTES
from txlog.model.ids import Txid, parse_txid
from txlog.model.restore_points import check_point_name

FORMS: Final = "latest, time:2026-01-31T12:00:00Z, position:INDEX:HASH, point:NAME, TXID or before:TXID"
_POSITION: Final = re.compile(rf"^([0-9]{{1,18}}):([0-9a-f]{{8,{2 * HASH_BYTES}}})$")


class MomentKind(Enum):
    """What a moment is named by."""

    LATEST = "latest"
    TIME = "time"
    POSITION = "position"
    POINT = "point"
    TRANSACTION = "transaction"


@dataclass(frozen=True, slots=True)
class Moment:
    """``text``: as a person wrote it. ``milliseconds``: since 1970, of a time. ``index`` and ``hash_digits``: of a
    position; the digits may be the first ones alone, at least 8. ``txid``: of a transaction. ``is_before``: the moment
    before that transaction. ``name``: of a restore point."""

    kind: MomentKind
    text: str
    milliseconds: int = 0
    index: int = 0
    hash_digits: str = ""
    txid: Txid | None = None
    is_before: bool = False
    name: str = ""


def parse_moment(text: str) -> Moment:
    """:class:`~txlog.model.errors.BadInput` names what was expected."""
    head, colon, rest = text.partition(":")
    if text == "latest":
        return Moment(MomentKind.LATEST, text)
    if colon and head == "time":
        return Moment(MomentKind.TIME, text, milliseconds=_parse_time(rest))
    if colon and head == "position":
        found = _POSITION.match(rest.lower())
        if found is None:
            raise BadInput(f"{text[:100]!r}: expected position:INDEX:HASH with at least 8 digits of the hash")
        return Moment(MomentKind.POSITION, text, index=int(found[1]), hash_digits=found[2])
    if colon and head == "point":
        return Moment(MomentKind.POINT, text, name=check_point_name(rest))
    is_before = bool(colon) and head == "before"
    try:
        txid = parse_txid(rest if is_before else text)
    except BadInput:
        raise BadInput(f"{text[:100]!r} is no moment; expected {FORMS}") from None
    return Moment(MomentKind.TRANSACTION, text, txid=txid, is_before=is_before)


def format_milliseconds(milliseconds: int) -> str:
    """Milliseconds since 1970 as a UTC time."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + milliseconds * _MILLISECOND).isoformat(timespec="milliseconds")


def _parse_time(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(f"{text[:100]!r} is no time; expected one such as time:2026-01-31T12:00:00Z") from None
    if at.tzinfo is None:
        raise BadInput(f"{text[:100]!r} names no time zone; end it with Z or an offset such as +01:00")
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // _MILLISECOND


_MILLISECOND: Final = datetime.resolution * 1000
