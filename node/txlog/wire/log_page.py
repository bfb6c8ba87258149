"""A page of the log as a reader of the feed gets it: MessagePack behind one byte of format version.

A master encodes it for ``GET /txlog/log``; :mod:`txlog.client` decodes it. Entries are flat arrays, so that a page
of thousands costs one pass of msgspec and no dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.entry import KIND_CONFIG, KIND_QUADS, KIND_SKIP, KIND_UPDATE, LogEntry, Position
from txlog.model.errors import PeerFault
from txlog.model.ids import Origin, Txid

LOG_PAGE_FORMAT = 1
"""On the wire. A page of another format is refused by name, never guessed at."""

MEDIA_TYPE = "application/x-txlog-page"
"""What ``Accept`` and ``Content-Type`` say of these bytes."""

KIND_NAMES = {KIND_UPDATE: "update", KIND_QUADS: "quads", KIND_SKIP: "skip", KIND_CONFIG: "configuration"}


class PageEntry(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A :class:`~txlog.model.entry.LogEntry` without nesting. ``hash`` is the chain hash behind this entry."""

    index: int
    hash: bytes
    node: str
    birth: int
    seq: int
    stamp: int
    kind: int
    payload: bytes
    noop: str

    @property
    def txid(self) -> Txid:
        return Txid(Origin(self.node, self.birth), self.seq)

    @property
    def entry(self) -> LogEntry:
        return LogEntry(self.index, self.hash, self.txid, self.stamp, self.kind, self.payload, self.noop)


class LogPage(msgspec.Struct, array_like=True, frozen=True):
    """The entries behind ``after``, consecutive from ``after.index + 1``, none above ``stable.index``.

    Empty when ``after`` is the stable position or the limits of the request left no room. ``after.hash`` is the
    log's own hash there (what the caller sent, when it was checked)."""

    after: Position
    entries: list[PageEntry]
    stable: Position

    def log_entries(self) -> list[LogEntry]:
        """The entries as the rest of the house knows them; one origin object per run of the same origin."""
        made: list[LogEntry] = []
        origin = Origin("", 0)
        for e in self.entries:
            if e.birth != origin.birth or e.node != origin.node:
                origin = Origin(e.node, e.birth)
            made.append(LogEntry(e.index, e.hash, Txid(origin, e.seq), e.stamp, e.kind, e.payload, e.noop))
        return made


def make_page(after: Position, entries: Iterable[LogEntry], stable: Position) -> LogPage:
    """The inverse of :meth:`LogPage.log_entries`."""
    return LogPage(
        after,
        [
            PageEntry(
                e.index,
                e.hash,
                e.txid.origin.node,
                e.txid.origin.birth,
                e.txid.seq,
                e.stamp,
                e.kind,
                e.payload,
                e.noop,
            )
            for e in entries
        ],
        stable,
    )


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[LogPage] = msgspec.msgpack.Decoder(LogPage)
_VERSION = bytes([LOG_PAGE_FORMAT])


def encode_page(page: LogPage) -> bytes:
    """One page to bytes."""
    return _VERSION + _encoder.encode(page)


def decode_page(master: str, data: bytes) -> LogPage:
    """Bytes to a page. :class:`PeerFault` names ``master`` and says ``UnknownFormat`` (another version of TxLog
    wrote it) or ``Malformed`` (cut or broken on the way; also when the indexes are not consecutive)."""
    if data[:1] != _VERSION:
        raise PeerFault(
            master,
            "UnknownFormat",
            f"log page format {data[:1].hex() or 'empty'}, this reader speaks {LOG_PAGE_FORMAT}",
        )
    try:
        page = _decoder.decode(memoryview(data)[1:])
    except DECODE_ERRORS as wrong:
        raise PeerFault(master, "Malformed", f"log page: {wrong}") from None
    expected = page.after.index
    for entry in page.entries:
        expected += 1
        if entry.index != expected:
            raise PeerFault(master, "Malformed", f"log page: index {entry.index} where {expected} follows")
    return page


def page_to_json(page: LogPage) -> dict[str, object]:
    """The page as JSON for people: the same fields, hashes in hexadecimal, payloads as text."""
    return {
        "after": _position_to_json(page.after),
        "entries": [
            {
                "index": e.index,
                "hash": e.hash.hex(),
                "txid": str(e.txid),
                "stamp": e.stamp,
                "kind": KIND_NAMES.get(e.kind, str(e.kind)),
                "payload": e.payload.decode("utf-8", "backslashreplace"),
                "noop": e.noop,
            }
            for e in page.entries
        ],
        "stable": _position_to_json(page.stable),
    }


def _position_to_json(position: Position) -> dict[str, object]:
    return {"epoch": position.epoch, "index": position.index, "hash": position.hash.hex()}
