"""The entry of a bulk load: an update that names what was loaded, and has none of it.

Its payload is the SPARQL operation ``LOAD <urn:txlog:bulk:ID:SHA256:QUADS>``. No client can write one, for a master
fetches what a client's LOAD names, or refuses it. A worker's pipeline puts the named parts into the store instead. A
pipeline that does not know bulk loads sends the operation to its store, which refuses it: the worker is ``Blocked``,
and never without the data. A reader that takes updates for a change of everything is right without knowing more.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from txlog.model.entry import KIND_UPDATE, LogEntry

BULK_KEY_PREFIX: Final = "bulk."
"""Of the keys of loads. No client may use one: the load's entry would be taken for a repetition."""
_PREFIX: Final = b"LOAD <urn:txlog:bulk:"
_PAYLOAD: Final = re.compile(rb"LOAD <urn:txlog:bulk:([0-9a-f]{32}):([0-9a-f]{64}):([0-9]{1,15})>")
_ID: Final = re.compile(r"[0-9a-f]{32}")


class BulkReference(NamedTuple):
    """A load. ``id``: 32 hexadecimal digits, drawn by who loads. ``manifest``: the SHA-256 of its manifest in
    hexadecimal. ``quads``: lines of N-Quads in all parts."""

    id: str
    manifest: str
    quads: int


def is_bulk_id(text: str) -> bool:
    """Whether this may be the id of a load."""
    return _ID.fullmatch(text) is not None


def bulk_key(load: str) -> str:
    """The Idempotency-Key of the load's entry: however often it is written, the first one counts."""
    return f"{BULK_KEY_PREFIX}{load}"


def encode_bulk_load(load: BulkReference) -> bytes:
    """The payload of the load's entry, of kind ``KIND_UPDATE``."""
    return b"%s%s:%s:%d>" % (_PREFIX, load.id.encode(), load.manifest.encode(), load.quads)


def decode_bulk_load(payload: bytes) -> BulkReference | None:
    """The load of an entry of kind ``KIND_UPDATE``; None for another update."""
    if not payload.startswith(_PREFIX):
        return None
    found = _PAYLOAD.fullmatch(payload)
    return None if found is None else BulkReference(found[1].decode(), found[2].decode(), int(found[3]))


def find_bulk_load(entry: LogEntry) -> BulkReference | None:
    """The load that a worker executes at this entry; None for every other entry, and for one that is skipped."""
    if entry.kind != KIND_UPDATE or entry.noop:
        return None
    return decode_bulk_load(entry.payload)
