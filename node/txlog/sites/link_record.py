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
from txlog.sites.keys import SITES_GRAPH

RECORD_VERSION: Final = 1
CONTENT_BYTES_MAX: Final = 64 << 20
"""Of a record, unpacked."""
NAME_PREDICATE: Final = "urn:txlog:site:record"
CONTENTS_PREDICATE: Final = "urn:txlog:site:contents"
_SUBJECT: Final = "urn:txlog:site:from:"
_LINE: Final = re.compile(
    rf'<{_SUBJECT}([^<> ]+)> <({NAME_PREDICATE}|{CONTENTS_PREDICATE})> "([^"\\]*)" <{SITES_GRAPH}> \.'.encode()
)


class RecordNotRead(TxLogError):
    """The log holds a record of a link that this version cannot read, or that no link of this site has written."""


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
    the value that won over a write in the window of an import."""

    BEGIN = "begin"
    BATCH = "batch"
    CORRECTION = "correction"


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


class LinkRecord(msgspec.Struct, array_like=True, frozen=True):
    """``begin``, ``to``: of a batch, the source's entries after ``begin`` up to ``to``; of any other step, the cursor
    twice. ``seen``: up to where the source had then imported the target's log. ``decided``: the target's index at which
    the entry was composed. ``clock``: the source's clock at ``to``; ``own_clock``: the target's at ``decided``.
    ``conflicts``: keys of which one write lost. ``waiting``: keys that waited for a correction at ``decided``.
    ``nonce``: no other record has it."""

    version: int
    step: StepKind
    site: str
    number: int
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


_decoder: Final = msgspec.msgpack.Decoder(LinkRecord)


class RecordText(NamedTuple):
    """A record as two literals: its name and its contents."""

    name: bytes
    contents: bytes


def encode_record(record: LinkRecord, nonce: str) -> RecordText:
    """The texts of a record. ``nonce``: hexadecimal digits that no other record has."""
    packed = zlib.compress(msgspec.msgpack.encode(msgspec.structs.replace(record, nonce=nonce)), 1)
    return RecordText(f"{record.number}.{nonce}".encode(), base64.b64encode(packed))


def decode_contents(contents: bytes) -> LinkRecord:
    """The inverse of :func:`encode_record`. Raises :class:`RecordNotRead`."""
    try:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(base64.b64decode(contents, validate=True), CONTENT_BYTES_MAX)
        if not unpacker.eof:
            raise ValueError("it does not end")
        record = _decoder.decode(data)
    except (zlib.error, *DECODE_ERRORS) as wrong:
        raise RecordNotRead(f"the record of a link is damaged: {wrong}") from None
    if record.version != RECORD_VERSION:
        raise RecordNotRead(f"the record of a link has version {record.version}, this program reads {RECORD_VERSION}")
    return record


class RecordLines(NamedTuple):
    """The lines of a change set that belong to the record of one link; None where there is none."""

    name: bytes | None = None
    contents: bytes | None = None


def find_record(lines: tuple[bytes, ...], site: str) -> RecordLines:
    """The texts of a record of the link from ``site`` among lines of N-Quads."""
    name = contents = None
    for line in lines:
        found = _LINE.fullmatch(line)
        if found is None or found[1] != site.encode():
            continue
        if found[2] == NAME_PREDICATE.encode():
            name = found[3]
        else:
            contents = found[3]
    return RecordLines(name, contents)


def record_subject(site: str) -> str:
    """The IRI of the link from a site."""
    return f"{_SUBJECT}{site}"
