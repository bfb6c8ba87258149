"""A page of the log as a follower gets it: one byte of format version, then MessagePack.

A master encodes it for ``GET /txlog/log``; :mod:`txlog.client` decodes it. Entries are flat arrays, so that a page of
thousands costs one pass of msgspec and no dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.entry import KIND_CONFIG, KIND_QUADS, KIND_SKIP, KIND_UPDATE, LogEntry, Position
from txlog.model.entry_effects import EntryEffect, find_effects
from txlog.model.errors import PeerFault
from txlog.model.ids import Origin, Txid
from txlog.model.synchronous_entry import KIND_DECISION, KIND_SYNCHRONOUS_QUADS, KIND_SYNCHRONOUS_UPDATE
from txlog.model.view import NO_VIEW, Number

LOG_PAGE_FORMAT = 1
"""On the wire. A reader refuses a page of another format by name and never guesses."""

MEDIA_TYPE = "application/x-txlog-page"
"""The media type of these bytes in ``Accept`` and ``Content-Type``."""

KIND_NAMES = {
    KIND_UPDATE: "update",
    KIND_QUADS: "quads",
    KIND_SKIP: "skip",
    KIND_CONFIG: "configuration",
    KIND_SYNCHRONOUS_UPDATE: "synchronous-update",
    KIND_SYNCHRONOUS_QUADS: "synchronous-quads",
    KIND_DECISION: "decision",
}


class PageEntry(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A :class:`~txlog.model.entry.LogEntry` without nesting. ``hash`` is the chain hash after this entry.

    ``key`` and ``first_stamp`` are those of :class:`~txlog.model.entry.RunItem`, in a page with keys; otherwise they
    have their defaults. A page with keys has a synchronous transaction and a decision as they are in the log, and in
    ``effects`` what takes effect there. Another page has what takes effect in place of the entry
    (:func:`~txlog.model.entry_effects.find_effects`): so one transaction may have its txid at two indexes, and is a
    no-op at the first of them."""

    index: int
    hash: bytes
    node: str
    birth: int
    seq: int
    stamp: int
    kind: int
    payload: bytes
    noop: str
    key: str = ""
    first_stamp: int = 0
    effects: list[EntryEffect] = []

    @property
    def txid(self) -> Txid:
        """The id of the entry's transaction."""
        return Txid(Origin(self.node, self.birth), self.seq)

    @property
    def entry(self) -> LogEntry:
        """The same entry as a model object."""
        return LogEntry(self.index, self.hash, self.txid, self.stamp, self.kind, self.payload, self.noop)


class LogPage(msgspec.Struct, array_like=True, frozen=True):
    """The entries after ``after``, consecutive from ``after.index + 1``, none above ``stable.index``.

    Empty when ``after`` is the stable position or the limits of the request left no room. ``after.hash`` is the log's
    own hash there (the caller's own value, once checked). ``cluster``: the id of the log's cluster; empty from a master
    of an earlier version.

    A page with keys has ``view``, the number of the master's view; it is ``NO_VIEW`` in any other page, also in one of
    a master of an earlier version. None of its entries is above ``stable_index``, which counts under every strategy for
    splits (``stable`` is how far workers may execute). ``settled``: the final index.
    """

    after: Position
    entries: list[PageEntry]
    stable: Position
    cluster: bytes = b""
    stable_index: int = 0
    settled: int = 0
    view: Number = NO_VIEW

    @property
    def has_keys(self) -> bool:
        """Whether the master gave the keys of the entries, as was asked."""
        return self.view != NO_VIEW

    def log_entries(self) -> list[LogEntry]:
        """The entries as model objects; one origin object per run of the same origin."""
        made: list[LogEntry] = []
        origin = Origin("", 0)
        for e in self.entries:
            if e.birth != origin.birth or e.node != origin.node:
                origin = Origin(e.node, e.birth)
            made.append(LogEntry(e.index, e.hash, Txid(origin, e.seq), e.stamp, e.kind, e.payload, e.noop))
        return made


def make_page(after: Position, entries: Iterable[LogEntry], stable: Position, cluster: bytes = b"") -> LogPage:
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
        cluster,
    )


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[LogPage] = msgspec.msgpack.Decoder(LogPage)
_VERSION = bytes([LOG_PAGE_FORMAT])


def encode_page(page: LogPage) -> bytes:
    """Encode one page with its format byte."""
    return _VERSION + _encoder.encode(page)


def decode_page(master: str, data: bytes) -> LogPage:
    """Decode one page. :class:`PeerFault` names ``master`` and the reason. ``UnknownFormat``: another version of TxLog
    wrote it. ``Malformed``: it was truncated or damaged on the way, or the indexes are not consecutive."""
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
    more: dict[str, object] = {}
    if page.has_keys:
        more = {
            "stableIndex": page.stable_index,
            "settled": page.settled,
            "view": ".".join(str(part) for part in page.view),
        }
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
                **({"key": e.key, "firstStamp": e.first_stamp} if page.has_keys else {}),
                **_effects_to_json(e),
            }
            for e in page.entries
        ],
        "stable": _position_to_json(page.stable),
        "cluster": page.cluster.hex(),
        **more,
    }


def _effects_to_json(entry: PageEntry) -> dict[str, object]:
    """What takes effect at an entry, where that is not the entry itself."""
    effects = entry.effects or find_effects(entry.entry)
    if not effects or (entry.kind != KIND_DECISION and not entry.effects):
        return {}
    shown = [
        {
            "txid": str(effect.txid),
            "kind": KIND_NAMES.get(effect.kind, str(effect.kind)),
            "payload": effect.payload.decode("utf-8", "backslashreplace"),
        }
        for effect in effects
    ]
    return {"effects": shown, "payload": ""} if entry.kind == KIND_DECISION else {"effects": shown}


def _position_to_json(position: Position) -> dict[str, object]:
    return {"epoch": position.epoch, "index": position.index, "hash": position.hash.hex()}
