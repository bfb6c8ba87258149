"""Lines, keys and records of the simulated sites, and records that no link has written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from txlog.sites.decisions import LinkEntry
from txlog.sites.keys import SITES_GRAPH, KeyKind, key_of
from txlog.sites.link_record import (
    CONTENTS_PREDICATE,
    NAME_PREDICATE,
    LinkRecord,
    RecordedKey,
    StepKind,
    encode_record,
    record_subject,
)

KIND = KeyKind.PROPERTY
FORGERIES = ("name", "contents", "noise", "cluster", "key", "number", "huge", "twice", "renamed")


def line_of(key: int, text: bytes) -> bytes:
    return b'<urn:s%d> <urn:p> "%s" .' % (key, text)


def key_bytes(key: int) -> bytes:
    return key_of(line_of(key, b""), KIND)


def record_lines(site: str, names: Iterable[bytes], contents: Iterable[bytes]) -> set[bytes]:
    subject = record_subject(site)
    pairs = [(NAME_PREDICATE, each) for each in names] + [(CONTENTS_PREDICATE, each) for each in contents]
    return {f'<{subject}> <{p}> "{v.decode()}" <{SITES_GRAPH}> .'.encode() for p, v in pairs}


def forge_record(last: LinkRecord, how: str, nonce: str) -> tuple[set[bytes], set[bytes]]:
    """Names and contents of a record that no link has written, after the record ``last``."""
    following = msgspec.structs.replace(last, number=last.number + 1, begin=last.to, to=last.to + 5)
    following = msgspec.structs.replace(following, step=StepKind.BATCH, keys=[])
    changes: dict[str, dict[str, Any]] = {
        "cluster": {"cluster": "c-par"},
        "key": {"key": "quad"},
        "number": {"number": last.number + 7},
        "huge": {"clock": 1 << 63},
        "twice": {"keys": [RecordedKey(key_bytes(0), 1, last.site, 1, last.site, 1)] * 2},
    }
    name, contents = encode_record(msgspec.structs.replace(following, **changes.get(how, {})), nonce)
    if how == "name":
        return {name}, set()
    if how == "contents":
        return set(), {contents}
    return {b"9." + name if how == "renamed" else name}, {b"AAAA" if how == "noise" else contents}


class LocalWrite(NamedTuple):
    """A client's transaction: for each key, how its value changes, and the text of a new quad. ``forged``: what it does
    to the record of the link: ``drop``, or one of :data:`FORGERIES`."""

    operations: list[tuple[int, str, bytes]]
    forged: str = ""


class LinkWrite(NamedTuple):
    entry: LinkEntry
    nonce: str


class LogItem:
    """An entry of a log; a rejoin gives it another stamp."""

    def __init__(self, write: LocalWrite | LinkWrite) -> None:
        self.write = write
        self.stamp = 0
