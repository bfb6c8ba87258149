"""Which cluster has taken the place of a lost one: one record for each recovery, in the stream that it used.

::

    _archive/<cluster>/<data centre>/recovery/<number, 4 digits>.json

Each is created once. The highest number is in force. A recovery that broke off knows its own record by its token.
"""

from __future__ import annotations

import re
import time
from typing import Any, Final, NamedTuple

import msgspec

from txlog.archive.file_name import Node
from txlog.archive.stream import StreamId
from txlog.backup.backup_errors import UnknownFormat
from txlog.backup.checked_json import decode_checked, encode_checked
from txlog.backup.target import BackupTarget
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.successor.successor_errors import AlreadyRecovered

FORMAT: Final = 1
_BYTES_MAX: Final = 1 << 16
_NAME: Final = re.compile(r"^([0-9]{4})\.json$")


class Claim(msgspec.Struct, frozen=True):
    """``index``, ``hash``: where the new cluster goes on. ``successor``: its id. ``birth``: of its first master's
    journal. Both in hexadecimal digits. ``at``: seconds since 1970, for people."""

    token: str
    moment: str
    index: int
    hash: str
    successor: str
    node: str
    birth: str
    at: float = 0.0

    @property
    def place(self) -> Node:
        """Where the new cluster goes on."""
        return Node(self.index, bytes.fromhex(self.hash))


class FoundClaim(NamedTuple):
    """A claim and its number."""

    number: int
    claim: Claim


def find_claim(target: BackupTarget, stream: StreamId) -> FoundClaim | None:
    """The claim in force. :class:`AlreadyRecovered` for one that cannot be read, since it may be another recovery's.
    :class:`UnknownFormat` for one of a later version."""
    numbers = _find_numbers(target, stream)
    return FoundClaim(numbers[-1], _read(target, _key(stream, numbers[-1]))) if numbers else None


def list_claims(target: BackupTarget, stream: StreamId) -> list[FoundClaim]:
    """All claims, the one in force last. Errors as of :func:`find_claim`, for any of them."""
    return [FoundClaim(number, _read(target, _key(stream, number))) for number in _find_numbers(target, stream)]


def _find_numbers(target: BackupTarget, stream: StreamId) -> list[int]:
    folder = _folder(stream)
    return sorted(
        int(found[1])
        for each in target.list_nested(folder)
        if (found := _NAME.match(each.key.removeprefix(f"{folder}/"))) is not None
    )


def take_claim(target: BackupTarget, stream: StreamId, wanted: Claim, supersede: int | None = None) -> Claim:
    """The claim in force, which is this recovery's own. ``supersede``: the number of the claim that it replaces.

    :class:`AlreadyRecovered` when another recovery has one; nothing is written then."""
    found = find_claim(target, stream)
    if found is not None and found.claim.token == wanted.token:
        return found.claim
    if found is not None and found.number != supersede:
        raise _already(target, stream, found)
    number = found.number + 1 if found is not None else 1
    made = msgspec.structs.replace(wanted, at=round(time.time(), 3))
    fields: dict[str, Any] = {"format": FORMAT, **msgspec.to_builtins(made)}
    if not target.create(_key(stream, number), encode_checked(fields)):
        there = FoundClaim(number, _read(target, _key(stream, number)))
        if there.claim.token != wanted.token:
            raise _already(target, stream, there)
        return there.claim
    return made


def _already(target: BackupTarget, stream: StreamId, found: FoundClaim) -> AlreadyRecovered:
    claim = found.claim
    return AlreadyRecovered(
        f"{target.location}/{_key(stream, found.number)}: the cluster {claim.successor} of {claim.node} has taken the "
        f"place of {stream.cluster.hex()} at {claim.place}; use that one, or found a copy with --as copy, or, if it "
        f"went to a wrong moment, replace it with --supersede {found.number}"
    )


def _read(target: BackupTarget, key: str) -> Claim:
    fields = decode_checked(target.read(key, _BYTES_MAX))
    if fields is not None and fields.get("format") != FORMAT:
        raise UnknownFormat(
            f"{target.location}/{key}: format {fields.get('format')}, this version reads {FORMAT}; "
            "use the TxLog that wrote it"
        )
    try:
        return msgspec.convert(fields, Claim)
    except DECODE_ERRORS:
        raise AlreadyRecovered(
            f"{target.location}/{key} is damaged, so it is not known which cluster has taken the place of the lost "
            "one; look for that cluster, or found a copy with --as copy"
        ) from None


def _folder(stream: StreamId) -> str:
    return f"{stream.folder}/recovery"


def _key(stream: StreamId, number: int) -> str:
    return f"{_folder(stream)}/{number:04d}.json"
