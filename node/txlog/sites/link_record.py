"""The record that each entry of a link leaves in the log of the target: what it imported, and the version of each key.

It consists of two quads of the graph :data:`~txlog.sites.keys.SITES_GRAPH`, which the next entry of the link replaces.
``name``: a short text that no other record has. An entry takes effect only where the record before it is there, so
entries of a link form a chain, and a repeated or late one changes nothing. ``contents``: a :class:`LinkRecord`.
"""

from __future__ import annotations

import base64
import re
import zlib
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.errors import TxLogError
from txlog.model.stamp import PEER_STAMP_MAX
from txlog.sites.keys import SITES_GRAPH, KeyKind, is_key

RECORD_VERSION: Final = 1
TRANSFER_VERSION: Final = 2
"""Of the records of a state transfer: a program that knows none stops there (:class:`LaterRecord`)."""
CONTENT_BYTES_MAX: Final = 64 << 20
"""Of a record, unpacked."""
NAME_PREDICATE: Final = "urn:txlog:site:record"
CONTENTS_PREDICATE: Final = "urn:txlog:site:contents"
_SUBJECT: Final = "urn:txlog:site:from:"
_LINE: Final = re.compile(
    rf'<{_SUBJECT}([^<> ]+)> <({NAME_PREDICATE}|{CONTENTS_PREDICATE})> "([^"\\]*)" <{SITES_GRAPH}> \.'.encode()
)


class RecordNotRead(TxLogError):
    """A record of a link is damaged, of a later version, or in the way of this link."""


class LaterRecord(RecordNotRead):
    """The log holds a record of this link that a later version of the program has written."""


class Version(NamedTuple):
    """The version of a key: its last write. Of two versions the greater one wins at every site. ``stamp``: as
    :attr:`~txlog.sites.site_book.SiteBook.clock` counts; ``at``: the index of the
    write in the log of ``site``."""

    stamp: int
    site: str
    at: int


NO_VERSION: Final = Version(-1, "", -1)
"""Of a key whose last write every site has seen."""


class ValueAt(NamedTuple):
    """Names a value of a key: the quads that it had in the log of ``site`` after the entry
    ``at``."""

    site: str
    at: int


class StepKind(StrEnum):
    """``begin``: the record is made, or made again. ``batch``: changes of the other site. ``correction``: keys get
    the value that won over a write in the window of an import. ``seal``: no entry of the link that was written before
    it takes effect any more.

    A state transfer (docs/decisions/0130-a-site-takes-the-state-of-the-other-one.md): ``take``: this site begins to
    take the state of the other one. ``reset``: the other site has begun to, so what it wrote before is not imported.
    ``page``: keys get the values of a copy of the other site. ``end``: all of them have."""

    BEGIN = "begin"
    BATCH = "batch"
    CORRECTION = "correction"
    SEAL = "seal"
    TAKE = "take"
    RESET = "reset"
    PAGE = "page"
    END = "end"


ANCHORS: Final = (StepKind.TAKE, StepKind.RESET)
"""With these a book can begin, without anything before."""
TRANSFER_STEPS: Final = (*ANCHORS, StepKind.PAGE, StepKind.END)


class RecordedKey(msgspec.Struct, array_like=True, frozen=True):
    """A key that an entry wrote. ``value_site`` and ``value_index``: where the value that it should have now is known,
    as :class:`ValueAt`."""

    key: bytes
    stamp: int
    site: str
    at: int
    value_site: str
    value_index: int

    @property
    def version(self) -> Version:
        """The version that it has now."""
        return Version(self.stamp, self.site, self.at)

    @property
    def value(self) -> ValueAt:
        """The value that it should have."""
        return ValueAt(self.value_site, self.value_index)


class RecordHead(msgspec.Struct, array_like=True, frozen=True):
    """What a record of any version begins with. ``site``, ``cluster``: the name and the id of the source's cluster.
    ``key``: the kind of its keys. ``number``: how many entries the link has with this one."""

    version: int
    site: str
    cluster: str
    key: str
    number: int


class LinkRecord(RecordHead, array_like=True, frozen=True):
    """``begin``, ``to``: of a batch, the source's entries after ``begin`` up to ``to``; of any other step, the cursor
    twice. ``seen``: up to where the source had then imported the target's log. ``decided``: the target's index at which
    the entry was composed. ``clock``: the source's clock at ``to``; ``own_clock``: the target's at ``decided``.
    ``conflicts``: keys of which one write lost. ``waiting``: keys that waited for a correction at ``decided``.
    ``nonce``: no other record has it. ``anchor``: the last entry of the link of :data:`ANCHORS` before this one, 0:
    there is none.

    ``to`` of a ``reset``: the entry of the source's log that is its ``take``. ``seen`` of a ``take``: the end of the
    source's log then."""

    step: StepKind
    begin: int
    to: int
    seen: int
    decided: int
    clock: int
    own_clock: int
    conflicts: int
    waiting: int
    keys: list[RecordedKey]
    nonce: str = ""
    anchor: int = 0


_decoder: Final = msgspec.msgpack.Decoder(LinkRecord)
_head_decoder: Final = msgspec.msgpack.Decoder(RecordHead)


class RecordText(NamedTuple):
    """A record as two literals: its name and its contents."""

    name: bytes
    contents: bytes


def encode_record(record: LinkRecord, nonce: str) -> RecordText:
    """The texts of a record. ``nonce``: hexadecimal digits that no other record has."""
    packed = zlib.compress(msgspec.msgpack.encode(msgspec.structs.replace(record, nonce=nonce)), 1)
    return RecordText(_name_of(record.number, nonce), base64.b64encode(packed))


def _name_of(number: int, nonce: str) -> bytes:
    return f"{number}.{nonce}".encode()


def decode_contents(contents: bytes) -> RecordHead:
    """The inverse of :func:`encode_record`: a :class:`LinkRecord`; of a later version its head alone. Raises
    :class:`RecordNotRead`."""
    try:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(base64.b64decode(contents, validate=True), CONTENT_BYTES_MAX)
        if not unpacker.eof:
            raise ValueError("it does not end")
        head = _head_decoder.decode(data)
        if head.version > TRANSFER_VERSION:
            return head
        if head.version < RECORD_VERSION:
            raise ValueError(f"version {head.version}")
        return _decoder.decode(data)
    except (zlib.error, *DECODE_ERRORS) as wrong:
        raise RecordNotRead(f"the record of a link is damaged: {wrong}") from None


def is_sound(record: LinkRecord, name: bytes, kind: KeyKind, sites: tuple[str, str]) -> bool:
    """Whether a record may be of a link between these sites: its numbers are in their ranges, its keys are keys, each
    once, and its name belongs to it."""
    numbers = [record.number, record.begin, record.to, record.seen, record.decided, record.clock, record.own_clock]
    numbers += [record.conflicts, record.waiting, record.anchor]
    for each in record.keys:
        numbers += [each.stamp, each.at, each.value_index]
    return (
        all(0 <= number <= PEER_STAMP_MAX for number in numbers)
        and name == _name_of(record.number, record.nonce)
        and len({each.key for each in record.keys}) == len(record.keys)
        and all(is_key(e.key, kind) and e.site in sites and e.value_site in sites for e in record.keys)
    )


class RecordLines(NamedTuple):
    """The texts of a change set that belong to the record of one link."""

    names: tuple[bytes, ...] = ()
    contents: tuple[bytes, ...] = ()


def find_record(lines: tuple[bytes, ...], site: str) -> RecordLines:
    """The texts of a record of the link from ``site`` among lines of N-Quads."""
    names: list[bytes] = []
    contents: list[bytes] = []
    for line in lines:
        found = _LINE.fullmatch(line)
        if found is None or found[1] != site.encode():
            continue
        (names if found[2] == NAME_PREDICATE.encode() else contents).append(found[3])
    return RecordLines(tuple(names), tuple(contents))


def record_subject(site: str) -> str:
    """The IRI of the link from a site."""
    return f"{_SUBJECT}{site}"
