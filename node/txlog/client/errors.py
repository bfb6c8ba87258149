"""Converts a master's error response into the exception that it names."""

from __future__ import annotations

from collections.abc import Mapping
from email.message import Message
from typing import ClassVar

import msgspec

from txlog.model import errors
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.errors import (
    BadInput,
    LogAhead,
    LogDiverged,
    LogGone,
    LogNeedsRestore,
    NoChangeSets,
    PeerFault,
    Refused,
    TxLogError,
    Unavailable,
)


class MasterUnreachable(Refused):
    """No answer: the client could not connect, the time was over, or the connection broke. ``sent`` is False when the
    request certainly never reached the master. Then even a write without a key may be sent to another master."""

    status = 503
    reason: ClassVar[str] = "Unreachable"
    retry_after_s: ClassVar[int] = 1

    def __init__(self, url: str, why: str, *, sent: bool) -> None:
        super().__init__(f"{url}: {why}")
        self.url = url
        self.sent = sent


class MethodNotAllowed(TxLogError):
    """The master has this path, and not for this method: it is of another release."""

    status = 405


class _ErrorBody(msgspec.Struct):
    error: str = ""
    reason: str = ""
    message: str = ""


_LOG_REASONS: dict[str, type[Refused]] = {
    c.reason: c for c in (LogDiverged, LogAhead, LogNeedsRestore, LogGone, NoChangeSets)
}
_BY_STATUS: dict[int, type[TxLogError]] = {
    c.status: c
    for c in (
        BadInput,
        errors.NotFound,
        errors.TooLarge,
        errors.Unsupported,
        errors.NotAcceptable,
        errors.Unauthorized,
        errors.Forbidden,
        MethodNotAllowed,
        Refused,
    )
}
_BY_NAME: dict[str, type[TxLogError]] = {
    c.__name__: c
    for c in (
        *_LOG_REASONS.values(),
        *_BY_STATUS.values(),
        errors.Conflict,
        errors.ChangePending,
        errors.NotAllHere,
        errors.NoQuorumLeft,
        errors.OffTheLog,
        errors.KeyNotTaken,
        errors.KeyTaken,
        errors.SystemGraphNamed,
        errors.JournalFull,
        errors.JournalDamaged,
        errors.JournalBroken,
        errors.WorkerFault,
    )
}
"""Errors whose constructor takes only a message."""


_OF_WRITES = (errors.KeyNotTaken, errors.KeyTaken, errors.RolledBack, errors.OutcomeUndecided, errors.CommitPending)
_BY_REASON: dict[str, type[TxLogError]] = {**_LOG_REASONS, **{c.reason: c for c in _OF_WRITES}}


def parse_error(url: str, status: int, headers: Mapping[str, str] | Message, body: bytes) -> TxLogError:
    """The exception for a response whose status is 400 or more. The RDF4J and SPARQL endpoints send errors as a line
    of text, with the reason in the header ``TxLog-Error``. A body in another format (a proxy's page) becomes the class
    of its status, with the body's first 200 bytes as the message."""
    retry_after, reason = headers.get("Retry-After"), headers.get("TxLog-Error") or ""
    try:
        named = msgspec.json.decode(body, type=_ErrorBody)
    except DECODE_ERRORS:
        named = _ErrorBody(reason=reason, message=body[: 2000 if reason else 200].decode("utf-8", "replace").strip())
    message = named.message or f"{url} answered {status}"
    if named.reason in _BY_REASON:
        return _BY_REASON[named.reason](message)
    if named.error in _BY_NAME:
        return _BY_NAME[named.error](message)
    if named.error == "NotDeterministic":
        return BadInput(message)  # the construct is named in the message; its own field does not travel
    if named.error == "PeerFault":
        return PeerFault(url, named.reason or "Refused", message)
    if status == Unavailable.status:
        return Unavailable(named.reason or "Unavailable", message, _parse_retry_after(retry_after))
    if status in _BY_STATUS:
        return _BY_STATUS[status](message)
    return TxLogError(f"{url} answered {status}: {message}")


def _parse_retry_after(retry_after: str | None) -> int:
    return int(retry_after) if retry_after and retry_after.isdecimal() else 1
