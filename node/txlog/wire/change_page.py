"""A page of change sets, as the process that makes them gives it to a master: one byte of format version, then
MessagePack. Flat arrays, as in :mod:`txlog.wire.log_page`.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

import msgspec

from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.model.errors import PeerFault
from txlog.model.namespaces import decode_namespace_change
from txlog.model.synchronous_entry import KIND_DECISION
from txlog.wire.change_feed import LARGE_KIND, NAMESPACE_KIND, FeedEvent, format_feed_position
from txlog.wire.log_page import KIND_NAMES

CHANGE_PAGE_FORMAT: Final = 1
"""On the wire. A reader refuses a page of another format by name."""
MEDIA_TYPE: Final = "application/x-txlog-changes"
PAGES_PATH: Final = "/changes"
_TOKEN_PURPOSE: Final = b"txlog change sets"
_EFFECTS: Final = (KIND_UPDATE, KIND_QUADS, KIND_DECISION)


class PageChange(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An entry of the log without its payload, and its change set: lines ``D`` and ``A`` of N-Quads. ``graphs``: of a
    change that is too large to be kept, the IRIs of the graphs that it changed (empty: the default graph)."""

    index: int
    hash: bytes
    txid: str
    stamp: int
    kind: int
    noop: str
    key: str
    change: bytes
    graphs: list[str] = []


class ChangePage(msgspec.Struct, array_like=True, frozen=True):
    """The change sets of the entries above ``after``, consecutive. ``hash``: that of the log at ``after``. ``begin``:
    change sets are kept above this index. ``end``: the last entry that the store has executed."""

    after: int
    hash: bytes
    changes: list[PageChange]
    begin: int
    end: int


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[ChangePage] = msgspec.msgpack.Decoder(ChangePage)
_VERSION: Final = bytes([CHANGE_PAGE_FORMAT])


def encode_change_page(page: ChangePage) -> bytes:
    """Encode one page with its format byte."""
    return _VERSION + _encoder.encode(page)


def decode_change_page(sender: str, data: bytes) -> ChangePage:
    """Decode one page. :class:`PeerFault` names ``sender``: ``UnknownFormat`` or ``Malformed``."""
    if data[:1] != _VERSION:
        what = f"change page format {data[:1].hex() or 'empty'}, this reader speaks {CHANGE_PAGE_FORMAT}"
        raise PeerFault(sender, "UnknownFormat", what)
    try:
        page = _decoder.decode(memoryview(data)[1:])
    except DECODE_ERRORS as wrong:
        raise PeerFault(sender, "Malformed", f"change page: {wrong}") from None
    expected = range(page.after + 1, page.after + 1 + len(page.changes))
    if any(each.index != index for each, index in zip(page.changes, expected, strict=True)):
        raise PeerFault(sender, "Malformed", "change page: the indexes are not consecutive")
    return page


def change_set_token(peer_token: bytes) -> str:
    """What a master shows to the process that makes change sets. Both know the token of the cluster, and it does not
    travel."""
    return hmac.new(peer_token, _TOKEN_PURPOSE, hashlib.sha256).hexdigest()


def change_event(change: PageChange, previous: bytes, *, settled: bool) -> FeedEvent:
    """The event of an entry: data, updates and commits alike as the quads that they deleted and added. ``previous``:
    the chain hash before it."""
    kind = KIND_NAMES.get(change.kind, str(change.kind))
    has_effect = change.kind in _EFFECTS
    if has_effect:
        kind = LARGE_KIND if change.graphs else KIND_NAMES[KIND_QUADS]
    elif kind == "skip" and decode_namespace_change(change.key) is not None:
        kind = NAMESPACE_KIND
    return FeedEvent(
        event="entry",
        id=format_feed_position(change.index, change.hash),
        previous=format_feed_position(change.index - 1, previous),
        index=change.index,
        txid=change.txid,
        stamp=change.stamp,
        kind=kind,
        noop=change.noop,
        key="" if has_effect else change.key,
        settled=settled,
        payload=change.change.decode("utf-8", "backslashreplace"),
        graphs=change.graphs,
    )
