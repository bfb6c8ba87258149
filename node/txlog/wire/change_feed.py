"""The events of a change feed, and three formats for them: server-sent events (WHATWG HTML, section 9.2), JSON lines,
and RDF Patch (Apache Jena) with ids.

A position in the log is named ``INDEX:HASH``, the chain hash in hexadecimal; two masters never give one name to two
different logs. The writers and :func:`parse_event_line` are pure; a master and ``txlog watch`` use the same ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.entry_effects import NOOP_ROLLED_BACK, EntryEffect
from txlog.model.errors import BadInput, PeerFault
from txlog.model.hashes import HASH_BYTES
from txlog.model.namespaces import decode_namespace_change
from txlog.model.synchronous_entry import KIND_DECISION, SYNCHRONOUS_KINDS, DecisionKind, decode_decision
from txlog.wire.log_page import KIND_NAMES, PageEntry

SSE_MEDIA_TYPE: Final = "text/event-stream"
RDF_PATCH_MEDIA_TYPE: Final = "application/rdf-patch"
NDJSON_MEDIA_TYPE: Final = "application/x-ndjson"
FEED_MEDIA_TYPES: Final = (SSE_MEDIA_TYPE, RDF_PATCH_MEDIA_TYPE, NDJSON_MEDIA_TYPE)
"""The first is the default for a client that names none."""

NAMESPACE_KIND: Final = "namespace"
"""The kind of an entry that changes the prefixes; in the log it is of kind skip."""
LARGE_KIND: Final = "large"
"""The kind of an entry whose change set is too large to be kept. ``graphs`` names what it changed."""
HEARTBEAT: Final = {SSE_MEDIA_TYPE: b": \n\n", RDF_PATCH_MEDIA_TYPE: b"#\n", NDJSON_MEDIA_TYPE: b"\n"}
"""Bytes that keep a connection alive and carry no event."""
_PLACE = re.compile(r"([0-9]{1,18})|(?:[0-9]{1,18}:)?([0-9]{1,18}):([0-9A-Fa-f]{32})")
_ESCAPED: Final = {ord("\\"): "\\\\", ord('"'): '\\"', ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}


UNDECIDED: Final = "undecided"
"""``FeedEvent.synchronous``: the transaction takes no effect here; a later decision may commit it, or roll it back."""
ROLLED_BACK: Final = "rolled-back"
"""``FeedEvent.synchronous``: a decision before this entry has rolled the transaction back."""


class CommittedTransaction(msgspec.Struct, frozen=True):
    """A synchronous transaction that takes effect at a decision: ``kind`` and ``payload`` as of an event. ``kind``
    ``skip``, without payload: it would, and every worker skips it."""

    txid: str
    kind: str
    payload: str


class FeedEvent(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One event; ``event`` is its kind:

    - ``position``: where the feed begins; ``id`` names that position, nothing has happened.
    - ``entry``: the log's next entry. ``id`` is the position after it, ``previous`` the one before. ``kind``:
      ``quads`` (``payload``: lines ``D`` and ``A`` of N-Quads, deletes first), ``update`` (a SPARQL update), ``skip``
      (every worker skips the transaction named by ``key``), ``namespace`` (``key`` encodes the change),
      ``configuration``. ``noop`` is empty, or why this entry changes nothing: ``key TXID``, ``skip``, ``synchronous``
      or ``rolled-back``. ``settled`` is False while a rejoin may still move it. A synchronous transaction without
      effect at its own place has ``synchronous``, :data:`UNDECIDED` or :data:`ROLLED_BACK`, and no payload. A
      ``decision`` has ``commits``: what takes effect there, in order, all at once; or ``rollsBack``: transactions that
      never take effect. In a feed of change sets every kind with an effect is ``quads``: what the entry deleted and
      added. ``large``: more than is kept; ``graphs`` has the IRIs of what it changed, empty for the default graph.
    - ``rewound``: a rejoin has reordered what this follower received after ``id``; ``previous`` is the follower's old
      position. All events in between are void, and the log's present entries follow.
    - ``gone``, ``diverged``: this feed cannot continue from ``id``; ``message`` is the reason. ``closing``: this
      master ends; continue from ``id`` at another one. ``not-quads``: of RDF Patch only, see
      :func:`is_inexpressible_in_patch`. Each of these is the last event of its feed.
    """

    event: str
    id: str
    previous: str = ""
    index: int = 0
    txid: str = ""
    stamp: int = 0
    kind: str = ""
    noop: str = ""
    key: str = ""
    settled: bool = True
    payload: str = ""
    message: str = ""
    synchronous: str = ""
    commits: list[CommittedTransaction] = []
    rolls_back: list[str] = msgspec.field(default_factory=list, name="rollsBack")
    graphs: list[str] = []


class FeedPosition(msgspec.Struct, frozen=True):
    """A position as a follower names it; ``hash`` is None where only the index was given, and nothing is compared."""

    index: int
    hash: bytes | None


def parse_feed_position(text: str, name: str) -> FeedPosition:
    """``INDEX``, ``INDEX:HASH`` or a whole position ``EPOCH:INDEX:HASH``; :class:`BadInput` calls it ``name``."""
    found = _PLACE.fullmatch(text)
    if found is None:
        raise BadInput(f"{name}={text[:80]!r}: expected INDEX, INDEX:HASH or EPOCH:INDEX:HASH, as a feed names places")
    return (
        FeedPosition(int(found[1]), None)
        if found[1] is not None
        else FeedPosition(int(found[2]), bytes.fromhex(found[3]))
    )


def format_feed_position(index: int, value: bytes) -> str:
    """The name of the position after ``index``, where the chain hash is ``value``."""
    assert len(value) == HASH_BYTES
    return f"{index}:{value.hex()}"


def entry_event(entry: PageEntry, previous: bytes, key: str, settled: bool) -> FeedEvent:
    """The event of an entry. ``previous``: the chain hash before it; ``key``: its key, of kinds that workers skip, and
    of a decision. A synchronous transaction and a decision are as in a page with keys."""
    kind = KIND_NAMES.get(entry.kind, str(entry.kind))
    commits, rolls_back, synchronous, payload = [_committed(each) for each in entry.effects], [], "", entry.payload
    if entry.kind == KIND_DECISION:
        decision, key = decode_decision(key), ""
        if decision.verdict is DecisionKind.ROLLBACK:
            rolls_back = [str(txid) for txid in decision.names()]
    elif entry.kind in SYNCHRONOUS_KINDS and not commits:
        synchronous, payload = ROLLED_BACK if entry.noop == NOOP_ROLLED_BACK else UNDECIDED, b""
    elif commits:
        kind, commits = commits[0].kind, []
    return FeedEvent(
        event="entry",
        id=format_feed_position(entry.index, entry.hash),
        previous=format_feed_position(entry.index - 1, previous),
        index=entry.index,
        txid=str(entry.txid),
        stamp=entry.stamp,
        kind=NAMESPACE_KIND if kind == "skip" and decode_namespace_change(key) is not None else kind,
        noop=entry.noop,
        key=key,
        settled=settled,
        payload=payload.decode("utf-8", "backslashreplace"),
        synchronous=synchronous,
        commits=commits,
        rolls_back=rolls_back,
    )


def _committed(effect: EntryEffect) -> CommittedTransaction:
    kind = KIND_NAMES.get(effect.kind, str(effect.kind))
    return CommittedTransaction(str(effect.txid), kind, effect.payload.decode("utf-8", "backslashreplace"))


def is_inexpressible_in_patch(event: FeedEvent, *, reads_updates: bool = False) -> bool:
    """Whether RDF Patch cannot express this entry: each store itself decides what a SPARQL update changes. Unless the
    follower declares that it reads updates, its feed ends before this entry, by name. Of several transactions that one
    decision commits, no header can say which quads come before an update."""
    if event.event != "entry" or event.noop:
        return False
    if len(event.commits) > 1:
        return any(each.kind == "update" for each in event.commits)
    return not reads_updates and (event.kind == "update" or any(each.kind == "update" for each in event.commits))


# Writing

_encoder = msgspec.json.Encoder()


def render_event(event: FeedEvent, form: str) -> bytes:
    """One event in one of :data:`FEED_MEDIA_TYPES`."""
    if form == RDF_PATCH_MEDIA_TYPE:
        return _render_rdf_patch(event).encode()
    data = _encoder.encode(event)
    if form == NDJSON_MEDIA_TYPE:
        return data + b"\n"
    head = f"id: {event.id}\n".encode()
    if event.event == "position":
        return head + b"\n"  # without data a client stores the id and fires no event
    return b"%bevent: %b\ndata: %b\n\n" % (head, event.event.encode(), data)


PIECE_CHARS: Final = 256 << 10


def render_event_in_pieces(event: FeedEvent, form: str) -> Iterator[bytes]:
    """The same bytes as :func:`render_event` up to the order of fields in JSON, in pieces: for an event with a long
    payload."""
    small = msgspec.structs.replace(event, payload="")
    if form == RDF_PATCH_MEDIA_TYPE:
        text = _render_rdf_patch(small)
        head, tail = text.removesuffix(_PATCH_END), _PATCH_END
    else:
        line = _encoder.encode(small)
        assert line.endswith(b"}"), line[-20:]
        head, tail = line[:-1].decode() + ',"payload":"', '"}\n'
        if form == SSE_MEDIA_TYPE:
            head, tail = f"id: {event.id}\nevent: {event.event}\ndata: {head}", '"}\n\n'
    yield head.encode()
    for piece in _cut_lines(event.payload):
        yield piece.encode() if form == RDF_PATCH_MEDIA_TYPE else _encoder.encode(piece)[1:-1]
    yield tail.encode()


def _cut_lines(payload: str) -> Iterator[str]:
    """Pieces of whole lines."""
    begin = 0
    while begin < len(payload):
        end = payload.find("\n", begin + PIECE_CHARS) + 1
        yield payload[begin : end or len(payload)]
        begin = end or len(payload)


_PATCH_END: Final = "TC .\n\n"


def _render_rdf_patch(event: FeedEvent) -> str:
    """A header, and one transaction; where nothing changes, one that is aborted or empty."""
    if event.event == "position":
        return f"# from {event.id}\n"
    rows = [f"H id <urn:txlog:log:{event.id}> ."]
    if event.previous and (event.event != "entry" or event.index > 1):
        rows.append(f"H {'prev' if event.event == 'entry' else event.event} <urn:txlog:log:{event.previous}> .")
    elif event.event != "entry":
        rows.append(f"H {event.event} {_quote_literal(event.message)} .")
    if event.event != "entry":
        return "\n".join([*rows, "TX .", "TA .", "", ""])
    rows.append(f"H transaction {_quote_literal(event.txid)} .")
    rows += [f"H {word} {_quote_literal(text)} ." for word, text in _patch_headers(event)]
    rows.append("TX .")
    change = decode_namespace_change(event.key) if event.kind == NAMESPACE_KIND else None
    if event.noop:
        pass
    elif event.kind in ("quads", "decision"):
        payloads = [event.payload, *(each.payload for each in event.commits if each.kind == "quads")]
        rows += [row for each in payloads for row in each.split("\n")]  # splitlines() would break literals at U+2028
    elif change is not None and change.prefix is not None:
        end = f" <{change.name}> ." if change.name is not None else " ."
        rows.append(f"{'PD' if change.name is None else 'PA'} {_quote_literal(change.prefix)}{end}")
    return "\n".join([*(row for row in rows if row), "TC .", "", ""])


def _patch_headers(event: FeedEvent) -> list[tuple[str, str]]:
    """The properties of an entry that only an RDF Patch header can express."""
    fields: list[tuple[str, str]] = [("rolled-back", txid) for txid in event.rolls_back]
    fields += [("skip" if each.kind == "skip" else "commits", each.txid) for each in event.commits]
    fields += [("update", each.payload) for each in event.commits if each.kind == "update"]
    if event.synchronous:
        fields.append(("synchronous", event.synchronous))
    if event.noop:
        fields.append(("noop", event.noop))
    elif event.kind == "decision":
        pass
    elif event.kind == LARGE_KIND:
        fields += [("large", graph or "default") for graph in event.graphs]
    elif event.kind == "update":
        fields.append(("update", event.payload))
    elif event.kind != "quads":
        fields.append((event.kind, event.key))
    if not event.settled:
        fields.append(("settled", "false"))
    return fields


def _quote_literal(text: str) -> str:
    return f'"{text.translate(_ESCAPED)}"'


# Reading

_decoder = msgspec.json.Decoder(FeedEvent)


def parse_event_line(master: str, line: bytes) -> FeedEvent | None:
    """A line of :data:`NDJSON_MEDIA_TYPE`; None for a heartbeat. :class:`PeerFault` ``Malformed`` names ``master``."""
    if not line.strip():
        return None
    try:
        return _decoder.decode(line)
    except DECODE_ERRORS as wrong:
        raise PeerFault(master, "Malformed", f"feed: {wrong}") from None
