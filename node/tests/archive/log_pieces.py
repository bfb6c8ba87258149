"""Pieces of a log that no master wrote."""

from __future__ import annotations

from collections.abc import Sequence

from txlog.archive.block_codec import ArchivedEntry
from txlog.archive.file_name import Node
from txlog.archive.format import EncodedFile, FileMeta, encode_file
from txlog.model.entry import CONTROL_KINDS, KIND_QUADS, KIND_SKIP, KIND_UPDATE
from txlog.model.hashes import chain_hash, chain_start, content_hash, origin_tag
from txlog.model.ids import Origin

CLUSTER = bytes(range(16))
START = Node(0, chain_start(CLUSTER))
META = FileMeta(CLUSTER, "uk", view=(3, 1, "uk-1"), history=["1.1.uk-1"], software="0.1.0", written=1.5)
UK, US = Origin("uk-1", 7), Origin("us-1", (1 << 64) - 2)

Row = tuple[Origin, int, int, int, bool, str, bytes]
"""Origin, step of the stamp, how much older the first stamp is (0: none), kind, no-op, key, payload."""


def chained(rows: Sequence[Row], after: Node = START) -> list[ArchivedEntry]:
    """Entries with right hashes; the seq of each origin counts on from the index."""
    made: list[ArchivedEntry] = []
    stamp, value = after.index << 20, after.hash
    for at, (origin, step, older, kind, is_noop, key, payload) in enumerate(rows):
        stamp += step
        index = after.index + 1 + at
        value = chain_hash(value, stamp, origin_tag(origin), index, content_hash(kind, key, payload))
        first_stamp = max(stamp - older, 1) if older else 0
        is_noop = is_noop and bool(key) and kind not in CONTROL_KINDS
        made.append(ArchivedEntry(index, value, origin, index, stamp, first_stamp, kind, is_noop, key, payload))
    return made


def some(count: int, after: Node = START, text: str = "a") -> list[ArchivedEntry]:
    return chained(
        [(UK, 3, 0, KIND_QUADS, False, "", f"A <urn:{text}:{at}> <urn:p> <urn:o> .\n".encode()) for at in range(count)],
        after,
    )


def small() -> list[ArchivedEntry]:
    """One of each sort."""
    return chained(
        [
            (UK, 5 << 16, 0, KIND_QUADS, False, "", b"A <urn:s> <urn:p> <urn:o> .\n"),
            (US, 1, 9, KIND_UPDATE, False, "first ✓", b"DELETE WHERE { ?s ?p ?o }"),
            (UK, 0, 7, KIND_UPDATE, True, "first ✓", b"DELETE WHERE { ?s ?p ?o }"),
            (US, 1 << 30, 0, KIND_SKIP, False, f"{UK}.1", b"it ends stores"),
            (UK, 2, 0, KIND_QUADS, False, "", b""),
        ]
    )


def encoded(entries: Sequence[ArchivedEntry], before: bytes = START.hash) -> EncodedFile:
    return encode_file(entries, before, META, settled=entries[0].index, writer=77)
