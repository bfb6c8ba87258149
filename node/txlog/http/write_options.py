"""The options of a write in its headers: durability level, time-out, idempotency key, quorum."""

from __future__ import annotations

import re
from typing import NamedTuple

from txlog.config.units import parse_duration
from txlog.http.router import Request, seconds_parameter
from txlog.model.bulk_entry import BULK_KEY_PREFIX
from txlog.model.durability import Durability
from txlog.model.errors import BadInput
from txlog.model.synchronous import NO_REQUEST, SynchronousRequest, parse_request
from txlog.telemetry.trace_context import HEADER as TRACEPARENT_HEADER

WAIT_S_MAX = 600.0
KEY_LENGTH_MAX = 200
_KEY_PATTERN = re.compile(rf"[\x21-\x7e]{{1,{KEY_LENGTH_MAX}}}")
_LEVELS_BY_NAME = {level.value: level for level in Durability}
SYNCHRONOUS_HEADER = "TxLog-Synchronous"
_RESPOND_ASYNC = re.compile(r"(?:^|[,;\s])respond-async(?:$|[,;\s])", re.IGNORECASE)
_PREFER_WAIT_PATTERN = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?([^\s,;\"]*)", re.IGNORECASE)


class WriteOptions(NamedTuple):
    """``timeout_s``: seconds until the answer is 202. ``names_level``: the request itself chose ``level``.
    ``knows_pending``: the client shows that it knows an answer without a final outcome. ``traceparent``: the header of
    its trace, as it was sent."""

    level: Durability
    timeout_s: float
    key: str
    synchronous: SynchronousRequest = NO_REQUEST
    names_level: bool = False
    knows_pending: bool = False
    traceparent: str = ""


def parse_durability(text: str, name: str = "TxLog-Durability") -> Durability:
    """The level of that name; :class:`BadInput` lists the names."""
    level = _LEVELS_BY_NAME.get(text.strip().lower())
    if level is None:
        raise BadInput(f"{name}: {text[:40]!r} is none of {', '.join(_LEVELS_BY_NAME)}")
    return level


def check_key(key: str, name: str = "Idempotency-Key") -> str:
    """The key, if it is valid, and a client's."""
    if not _KEY_PATTERN.fullmatch(key):
        raise BadInput(f"{name}: 1 to {KEY_LENGTH_MAX} visible ASCII characters without spaces")
    if key.startswith(BULK_KEY_PREFIX):
        raise BadInput(f"{name} {key[:80]!r}: keys that begin with {BULK_KEY_PREFIX} are of bulk loads; choose another")
    return key


def prefer_header(request: Request) -> str | None:
    """All preferences of the client: it may send each in a header of its own (RFC 7240, section 2)."""
    given = request.headers.getall("Prefer", None)
    return None if given is None else ", ".join(given)


def preferred_wait(prefer: str | None, default: float, most: float) -> float:
    """The seconds of ``wait=``, at most ``most``; ``default`` without it."""
    found = _PREFER_WAIT_PATTERN.search(prefer) if prefer is not None else None
    return default if found is None else seconds_parameter(found[1], "Prefer: wait", default, most)


def write_options_of(request: Request, level: Durability, seconds: float) -> WriteOptions:
    """The options from the headers of a request, over the cluster's defaults. :class:`BadInput` names a wrong
    header."""
    headers = request.headers
    asked = parse_write_options(
        headers.get("TxLog-Durability"), prefer_header(request), headers.get("Idempotency-Key"), level, seconds
    )
    traceparent = headers.get(TRACEPARENT_HEADER)
    if traceparent is not None:
        asked = asked._replace(traceparent=traceparent)
    header, parameter = headers.get(SYNCHRONOUS_HEADER), request.query.get("synchronous")
    if header is not None and parameter is not None and header.strip() != parameter.strip():
        raise BadInput(f"{SYNCHRONOUS_HEADER}: {header[:40]!r}, and the parameter synchronous is {parameter[:40]!r}")
    if header is not None:
        return with_synchronous(asked, header, SYNCHRONOUS_HEADER)
    return asked if parameter is None else with_synchronous(asked, parameter, "parameter synchronous")


def with_synchronous(asked: WriteOptions, text: str, name: str) -> WriteOptions:
    """The options with what a client asked for under this name: ``true``, ``false`` or a quorum, and perhaps
    ``; timeout=10s``. :class:`BadInput` names what is wrong."""
    return asked._replace(synchronous=parse_synchronous(text, name), knows_pending=True)


def parse_synchronous(text: str, name: str) -> SynchronousRequest:
    """What :func:`with_synchronous` reads."""
    value, *more = (part.strip() for part in text.split(";"))
    timeout_ms: int | None = None
    for part in more:
        word, _, duration = part.partition("=")
        if word.strip() != "timeout" or timeout_ms is not None:
            raise BadInput(f"{name}: {part[:40]!r}: expected a value, and perhaps ; timeout=10s")
        try:
            timeout_ms = parse_duration(duration.strip())
        except ValueError as wrong:
            raise BadInput(f"{name}: timeout: {wrong}") from None
    if not value and timeout_ms is None:
        raise BadInput(f"{name}: expected true, false, or a quorum such as N/2+1 or all")
    try:
        return parse_request(value, timeout_ms)
    except BadInput as wrong:
        raise BadInput(f"{name}: {wrong}") from None


def parse_write_options(
    durability: str | None, prefer: str | None, key: str | None, level: Durability, seconds: float
) -> WriteOptions:
    """The options from the headers' values; None for a header that was not sent."""
    if durability is not None:
        level = parse_durability(durability)
    if prefer is not None:
        seconds = preferred_wait(prefer, seconds, WAIT_S_MAX)
    knows_pending = durability is not None or (prefer is not None and _RESPOND_ASYNC.search(prefer) is not None)
    checked = "" if key is None else check_key(key)
    return WriteOptions(level, seconds, checked, names_level=durability is not None, knows_pending=knows_pending)
