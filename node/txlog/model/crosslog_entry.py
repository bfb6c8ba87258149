"""Entries of the logs for transactions over several repositories: what their keys mean.

PREPARE and OUTCOME are entries of each repository that has a part (a *participant*), DECIDE and FINISHED of the system
log. The key of an entry is a part of its content hash, so every master reads the same. A gid names the transaction: it
is the txid of the PREPARE in the first participant. One meaning has one text, and every other text is refused.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from txlog.model.bounds import COUNT_MAX
from txlog.model.errors import BadInput
from txlog.model.ids import Origin, Txid, parse_txid

SYSTEM_LOG: Final = 1
"""The number of the log that has the decisions. It holds no data, so no transaction has a part in it."""
PARTICIPANTS_MIN: Final = 2
PARTICIPANTS_MAX: Final = 64
EXPIRE_AFTER_MAX_MS: Final = 24 * 3600 * 1000
_COMMIT, _ABORT = "commit", "abort"
_OWN = "-"
"""In place of the gid, in the first participant: the PREPARE's own txid."""


class PrepareKey(NamedTuple):
    """The key of a PREPARE; its payload is the part. ``gid``: None in the first participant, where the txid of the
    entry is the gid. ``participants``: numbers of logs, the first participant first. ``expire_after_ms``: a master that
    has had the PREPARE for so long may abort. ``client_key``: the Idempotency-Key, empty when there is none."""

    gid: Txid | None
    participants: tuple[int, ...]
    expire_after_ms: int
    client_key: str = ""


class DecideKey(NamedTuple):
    """The key of a DECIDE. Only a commit has the client's key."""

    gid: Txid
    commits: bool
    participants: tuple[int, ...]
    client_key: str = ""


class OutcomeKey(NamedTuple):
    """The key of an OUTCOME. ``place``: the index of the DECIDE in the system log; 0 for a transaction that is
    forgotten, and presumed to be aborted."""

    gid: Txid
    commits: bool
    place: int


class FinishedKey(NamedTuple):
    """The key of a FINISHED: all that ``origin`` began up to ``seq`` is forgotten."""

    origin: Origin
    seq: int


SystemKey = DecideKey | FinishedKey


def encode_prepare(key: PrepareKey) -> str:
    """``GID EXPIRE_AFTER_MS LOG,LOG CLIENTKEY``."""
    gid = _OWN if key.gid is None else str(key.gid)
    return f"{gid} {key.expire_after_ms} {_logs_text(key.participants)} {key.client_key}"


def decode_prepare(text: str) -> PrepareKey:
    """The inverse of :func:`encode_prepare`; :class:`BadInput` for any other text."""
    gid, expire_after, participants, client_key = _split(text, 4, "PREPARE")
    found = PrepareKey(
        None if gid == _OWN else parse_txid(gid), _parse_logs(participants), _parse_count(expire_after), client_key
    )
    if not 0 < found.expire_after_ms <= EXPIRE_AFTER_MAX_MS or encode_prepare(found) != text:
        raise _bad(text, "PREPARE")
    return found


def encode_outcome(key: OutcomeKey) -> str:
    """``commit GID PLACE`` or ``abort GID PLACE``."""
    return f"{_verdict_text(commits=key.commits)} {key.gid} {key.place}"


def decode_outcome(text: str) -> OutcomeKey:
    """The inverse of :func:`encode_outcome`; :class:`BadInput` for any other text. A commit has a place."""
    verdict, gid, place = _split(text, 3, "OUTCOME")
    found = OutcomeKey(parse_txid(gid), _parse_verdict(verdict, text), _parse_count(place))
    if (found.commits and not found.place) or encode_outcome(found) != text:
        raise _bad(text, "OUTCOME")
    return found


def encode_system(key: SystemKey) -> str:
    """``decide commit GID LOG,LOG CLIENTKEY``, ``decide abort GID LOG,LOG``, or ``finished TXID``."""
    if isinstance(key, FinishedKey):
        return f"finished {Txid(key.origin, key.seq)}"
    words = ["decide", _verdict_text(commits=key.commits), str(key.gid), _logs_text(key.participants)]
    return " ".join([*words, key.client_key] if key.commits else words)


def decode_system(text: str) -> SystemKey:
    """The inverse of :func:`encode_system`; :class:`BadInput` for any other text."""
    word, rest = _split(text, 2, "the system log")
    if word == "finished":
        return FinishedKey(*parse_txid(rest))
    if word != "decide":
        raise _bad(text, "the system log")
    commits = _parse_verdict(rest.partition(" ")[0], text)
    _, gid, participants, *client_key = _split(rest, 4 if commits else 3, "DECIDE")
    found = DecideKey(parse_txid(gid), commits, _parse_logs(participants), "".join(client_key))
    if encode_system(found) != text:
        raise _bad(text, "DECIDE")
    return found


def check_participants(participants: tuple[int, ...]) -> None:
    """:class:`BadInput` unless these are repositories in which one transaction may have parts."""
    if not PARTICIPANTS_MIN <= len(participants) <= PARTICIPANTS_MAX:
        raise BadInput(
            f"a transaction has parts in {PARTICIPANTS_MIN} to {PARTICIPANTS_MAX} repositories, not in "
            f"{len(participants)}"
        )
    if len(set(participants)) < len(participants):
        raise BadInput(f"a transaction has two parts in one repository: {_logs_text(participants)}")
    if SYSTEM_LOG in participants:
        raise BadInput(f"the system log ({SYSTEM_LOG}) is no repository")


def _logs_text(logs: tuple[int, ...]) -> str:
    return ",".join(map(str, logs))


def _parse_logs(text: str) -> tuple[int, ...]:
    found = tuple(_parse_count(each) for each in text.split(","))
    check_participants(found)
    return found


def _parse_count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= COUNT_MAX):
        raise BadInput(f"not a number of a transaction over several repositories: {text[:100]!r}")
    return int(text)


def _verdict_text(*, commits: bool) -> str:
    return _COMMIT if commits else _ABORT


def _parse_verdict(word: str, text: str) -> bool:
    if word not in (_COMMIT, _ABORT):
        raise _bad(text, "a decision")
    return word == _COMMIT


def _split(text: str, count: int, what: str) -> list[str]:
    words = text.split(" ", count - 1)
    if len(words) != count:
        raise _bad(text, what)
    return words


def _bad(text: str, what: str) -> BadInput:
    return BadInput(f"not the key of {what}: {text[:100]!r}")
