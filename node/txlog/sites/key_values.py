"""The values of keys at one position of the log, read from the capture store.

The store is at its own end. The change log takes what came after the position off, key by key. So a value is exact at
any position from which change sets are kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec
import pyoxigraph as ox

from txlog.changesets.capture_store import CaptureStore
from txlog.changesets.change_log import LogEnd
from txlog.changesets.change_log_reader import ChangeLogReader
from txlog.changesets.change_set import ChangeSet, combine
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.errors import BadInput, TooLarge, Unavailable
from txlog.sites.keys import KeyKind, KeyPattern, key_of, pattern_of
from txlog.sites.site_book import NeedsState
from txlog.workers.canonical_literals import canonical_lines

KEYS_MAX: Final = 10_000
REQUEST_BYTES_MAX: Final = 16 << 20
ANSWER_BYTES_MAX: Final = 64 << 20
CHANGE_BYTES_MAX: Final = 256 << 20
"""Of what changed after the position, of the keys that were asked for."""
_PAGE_BYTES: Final = 8 << 20
VALUES_PATH: Final = "/values"


class ValuesRequest(msgspec.Struct, frozen=True):
    """``index``: the position; ``hash``: that of the log there in hexadecimal, empty: not compared. ``kind``: what a
    key is. ``keys``: as :mod:`txlog.sites.keys` writes them. ``cluster``: the id of the cluster; empty: not
    compared."""

    index: int
    kind: KeyKind
    keys: list[str]
    hash: str = ""
    cluster: str = ""


class ValuesAnswer(msgspec.Struct, frozen=True):
    """``values``: of each key its quads, as sorted lines of canonical N-Quads."""

    values: list[list[str]]


def decode_values_request(body: bytes) -> ValuesRequest:
    """The request in a body. Raises :class:`BadInput` and :class:`TooLarge`."""
    try:
        request = msgspec.json.decode(body, type=ValuesRequest)
    except DECODE_ERRORS as wrong:
        raise BadInput(f'expected {{"index": 118, "kind": "property", "keys": […]}}: {wrong}') from None
    if request.index < 0:
        raise BadInput(f"index={request.index}: an index of the log")
    if len(request.keys) > KEYS_MAX:
        raise TooLarge(f"{len(request.keys)} keys: at most {KEYS_MAX} in one request")
    try:
        for key in request.keys:
            pattern_of(key.encode(), request.kind)
        bytes.fromhex(request.hash)
    except ValueError as wrong:
        raise BadInput(f"keys, hash: {wrong}") from None
    return request


def read_values(store: CaptureStore, reader: ChangeLogReader, request: ValuesRequest) -> ValuesAnswer:
    """The values at the position. Raises :class:`~txlog.changesets.ChangesGone`, :class:`LogAhead`,
    :class:`LogDiverged`, :class:`TooLarge`, :class:`NeedsState` after a change that was not kept, and
    :class:`Unavailable` while the store goes back."""
    keys = [key.encode() for key in request.keys]
    end, present = store.read_at_end(lambda quads: _present(quads, keys, request.kind))
    after = _changes_after(reader, request, end)
    _take_back(present, after, request.kind)
    values = [sorted(line.decode() for line in present[key]) for key in keys]
    if sum(len(line) for value in values for line in value) > ANSWER_BYTES_MAX:
        raise TooLarge(f"the values of these keys have more than {ANSWER_BYTES_MAX} bytes; ask for fewer")
    return ValuesAnswer(values)


def _present(quads: ox.Store, keys: Iterable[bytes], kind: KeyKind) -> dict[bytes, set[bytes]]:
    found: dict[bytes, set[bytes]] = {}
    size = 0
    for key in keys:
        found[key] = _lines(quads, pattern_of(key, kind), ANSWER_BYTES_MAX - size)
        size += sum(map(len, found[key]))
    return found


def _lines(quads: ox.Store, wanted: KeyPattern, bytes_max: int) -> set[bytes]:
    """The quads of a pattern. Raises :class:`TooLarge` before it reads many more than ``bytes_max`` bytes of them."""
    graph = ox.NamedNode(wanted.graph[1:-1].decode()) if wanted.graph else ox.DefaultGraph()
    subject = ox.NamedNode(wanted.subject[1:-1].decode())
    predicate = ox.NamedNode(wanted.predicate[1:-1].decode()) if wanted.predicate is not None else None
    term = None
    if wanted.object is not None and wanted.predicate is not None:
        line = b" ".join(each for each in (wanted.subject, wanted.predicate, wanted.object, wanted.graph) if each)
        (quad,) = ox.parse(line + b" .", ox.RdfFormat.N_QUADS, lenient=True)
        term = quad.object
    texts: list[str] = []
    size = 0
    for found in quads.quads_for_pattern(subject, predicate, term, graph):
        texts.append(str(found))
        size += len(texts[-1])
        if size > bytes_max:
            raise TooLarge(f"the values of these keys have more than {ANSWER_BYTES_MAX} bytes; ask for fewer")
    joined = " .\n".join(texts)
    return set(canonical_lines(f"{joined} .".encode()).split(b"\n")) if texts else set()


def _changes_after(reader: ChangeLogReader, request: ValuesRequest, end: LogEnd) -> ChangeSet:
    """The net change of the entries after the position, up to the end, of the keys that were asked for."""
    keys = {key.encode() for key in request.keys}
    changes: list[ChangeSet] = []
    at, at_hash, chain, size = request.index, bytes.fromhex(request.hash) or None, b"", 0
    while True:
        at_hash, records = reader.read(at, at_hash, end.index, _PAGE_BYTES)
        if not records:
            break
        for record in records:
            if record.large_graphs:
                raise NeedsState(f"entry {record.entry.index} changed more quads than change sets keep")
            change = _of_keys(record.change_set, keys, request.kind)
            if len(change):
                changes.append(change)
                size += sum(map(len, (*change.deletes, *change.adds)))
        last = records[-1]
        at, at_hash, chain = last.entry.index, last.entry.hash, last.chain
        if size > CHANGE_BYTES_MAX:
            raise TooLarge(
                f"more than {CHANGE_BYTES_MAX} bytes of these keys have changed since index {request.index}; "
                "ask for fewer"
            )
    if (at, at_hash) != (end.index, end.hash) or (chain and chain != end.chain):
        raise Unavailable("ChangeSetsLoading", "the change sets go back after a rejoin; ask again")
    return combine(changes)


def _of_keys(change: ChangeSet, keys: Collection[bytes], kind: KeyKind) -> ChangeSet:
    deletes, adds = (
        tuple(line for line in lines if key_of(line, kind) in keys) for lines in (change.deletes, change.adds)
    )
    return ChangeSet(deletes, adds)


def _take_back(present: Mapping[bytes, set[bytes]], after: ChangeSet, kind: KeyKind) -> None:
    for line in after.adds:
        value = present.get(key_of(line, kind))
        if value is not None:
            value.discard(line)
    for line in after.deletes:
        value = present.get(key_of(line, kind))
        if value is not None:
            value.add(line)
