"""The options of a write in its headers: durability level, time-out, idempotency key."""

from __future__ import annotations

import re
from typing import NamedTuple

from txlog.http.router import Request, seconds_parameter
from txlog.model.durability import Durability
from txlog.model.errors import BadInput

WAIT_S_MAX = 600.0
KEY_LENGTH_MAX = 200
_KEY_PATTERN = re.compile(rf"[\x21-\x7e]{{1,{KEY_LENGTH_MAX}}}")
_LEVELS_BY_NAME = {level.value: level for level in Durability}
_PREFER_WAIT_PATTERN = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?([^\s,;\"]*)", re.IGNORECASE)


class WriteOptions(NamedTuple):
    """``timeout_s``: seconds until the answer is 202."""

    level: Durability
    timeout_s: float
    key: str


def parse_durability(text: str, name: str = "TxLog-Durability") -> Durability:
    """The level of that name; :class:`BadInput` lists the names."""
    level = _LEVELS_BY_NAME.get(text.strip().lower())
    if level is None:
        raise BadInput(f"{name}: {text[:40]!r} is none of {', '.join(_LEVELS_BY_NAME)}")
    return level


def check_key(key: str, name: str = "Idempotency-Key") -> str:
    """The key, if it is valid."""
    if not _KEY_PATTERN.fullmatch(key):
        raise BadInput(f"{name}: 1 to {KEY_LENGTH_MAX} visible ASCII characters without spaces")
    return key


def write_options_of(request: Request, level: Durability, seconds: float) -> WriteOptions:
    """The options from the headers of a request, over the cluster's defaults. :class:`BadInput` names a wrong
    header."""
    headers = request.headers
    return parse_write_options(
        headers.get("TxLog-Durability"), headers.get("Prefer"), headers.get("Idempotency-Key"), level, seconds
    )


def parse_write_options(
    durability: str | None, prefer: str | None, key: str | None, level: Durability, seconds: float
) -> WriteOptions:
    """The options from the headers' values; None for a header that was not sent."""
    if durability is not None:
        level = parse_durability(durability)
    if prefer is not None:
        found = _PREFER_WAIT_PATTERN.search(prefer)
        if found is not None:
            seconds = seconds_parameter(found[1], "Prefer: wait", seconds, WAIT_S_MAX)
    return WriteOptions(level, seconds, "" if key is None else check_key(key))
