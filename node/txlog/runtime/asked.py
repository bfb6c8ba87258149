"""What a client asks for in the headers of a write: level, patience, idempotency key."""

from __future__ import annotations

import re
from typing import NamedTuple

from txlog.model.durability import Durability
from txlog.model.errors import BadInput
from txlog.runtime.web import Request, seconds_of

WAIT_S_MAX = 600.0
KEY_MAX = 200
_KEY = re.compile(rf"[\x21-\x7e]{{1,{KEY_MAX}}}")
_LEVELS = {level.value: level for level in Durability}
_WAIT = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?([^\s,;\"]*)", re.IGNORECASE)


class Asked(NamedTuple):
    """``seconds``: how long the answer may take until it is 202."""

    level: Durability
    seconds: float
    key: str


def level_of(text: str, name: str = "TxLog-Durability") -> Durability:
    """The level of that word; :class:`BadInput` lists them."""
    level = _LEVELS.get(text.strip().lower())
    if level is None:
        raise BadInput(f"{name}: {text[:40]!r} is none of {', '.join(_LEVELS)}")
    return level


def check_key(key: str, name: str = "Idempotency-Key") -> str:
    """The key, if it may be one."""
    if not _KEY.fullmatch(key):
        raise BadInput(f"{name}: 1 to {KEY_MAX} visible ASCII characters without spaces")
    return key


def asked_of(request: Request, level: Durability, seconds: float) -> Asked:
    """The headers of a request over the cluster's defaults. :class:`BadInput` names the header that is wrong."""
    headers = request.headers
    return asked_from(
        headers.get("TxLog-Durability"), headers.get("Prefer"), headers.get("Idempotency-Key"), level, seconds
    )


def asked_from(durability: str | None, prefer: str | None, key: str | None, level: Durability, seconds: float) -> Asked:
    """The same of the headers' values; None for one that was not sent."""
    if durability is not None:
        level = level_of(durability)
    if prefer is not None:
        found = _WAIT.search(prefer)
        if found is not None:
            seconds = seconds_of(found[1], "Prefer: wait", seconds, WAIT_S_MAX)
    return Asked(level, seconds, "" if key is None else check_key(key))
