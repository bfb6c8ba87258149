"""The net effect of payloads of quads, in two steps: of a run of the log, then of all runs of one bucket.

A quad ends in one of three states: present, absent, or absent but added and deleted in the run. In the last case its
graph exists where an engine keeps empty graphs (:mod:`txlog.workers.update_batches` explains why that must not be
lost). Python's own sets and dictionaries process each of millions of quads where possible, not lines of this file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple
from zlib import crc32

from txlog.model.quads import split_graph
from txlog.pipeline.batch.task_messages import BucketPiece
from txlog.workers.canonical_literals import canonical_lines, lines_with_lower_tags

ADD_BYTE = 65
BLOCK_BYTES = 1 << 20
"""Approximate size of one piece of N-Quads to load."""


def split_into_buckets(
    first: int, payloads: Sequence[bytes], buckets: int, *, as_written: bool = False
) -> list[tuple[int, BucketPiece]]:
    """The net effect of consecutive payloads of kind QUADS, by bucket. ``first``: the index of the first one.
    ``as_written``: the store holds literals as they were sent."""
    # Spellings of a literal that a store treats as one quad must be one quad here.
    joined = b"".join(payloads)
    joined = lines_with_lower_tags(joined) if as_written else canonical_lines(joined)
    if not joined:
        return []
    lines = joined.split(b"\n")
    lines.pop()  # after the last newline
    quads = [line[2:] for line in lines]
    # A line of N-Quads holds no newline, so an operation begins here.
    if not (joined.startswith(b"D ") or b"\nD " in joined):
        return [(at, BucketPiece(first, adds)) for at, adds in enumerate(_partition(quads, buckets)) if adds]
    came = [line[0] == ADD_BYTE for line in lines]
    last = dict(zip(quads, came, strict=True))
    ever = {quad for quad, add in zip(quads, came, strict=True) if add}
    off = [quad for quad, add in last.items() if not add]
    dealt = zip(
        _partition([quad for quad, add in last.items() if add], buckets),
        _partition([quad for quad in off if quad not in ever], buckets),
        _partition([quad for quad in off if quad in ever], buckets),
        strict=True,
    )
    return [(at, BucketPiece(first, *three)) for at, three in enumerate(dealt) if any(three)]


def _partition(quads: Sequence[bytes], buckets: int) -> list[bytes]:
    """The lines of each bucket, each with a newline."""
    found: list[list[bytes]] = [[] for _ in range(buckets)]
    for quad in quads:
        found[crc32(quad) % buckets].append(quad)
    return [_join_lines(its) for its in found]


def _join_lines(quads: Sequence[bytes]) -> bytes:
    return b"\n".join(quads) + b"\n" if quads else b""


def _split_lines(joined: bytes) -> list[bytes]:
    lines = joined.split(b"\n")
    lines.pop()
    return lines


class NetEffect(NamedTuple):
    """``adds``: N-Quads, whole lines, one or many in each. ``deletes``: lines without newline. ``kept_graphs``: graphs
    in brackets that exist afterwards, even if empty."""

    adds: list[bytes]
    deletes: list[bytes]
    kept_graphs: list[bytes]


def merge_pieces(found: Iterable[BucketPiece]) -> NetEffect:
    """Merges all pieces of one bucket, in any order of arrival."""
    ordered = sorted(found, key=lambda piece: piece.first)
    if not any(piece.deletes or piece.transient for piece in ordered):
        # Duplicate quads are harmless: a store is a set.
        return NetEffect([piece.adds for piece in ordered], [], [])
    there: set[bytes] = set()
    gone: set[bytes] = set()
    never: set[bytes] = set()
    for piece in ordered:  # each quad is in one of its three parts
        if piece.deletes:
            off = set(_split_lines(piece.deletes))
            went = off & there
            there -= went
            gone |= went
            never |= off - gone
        if piece.transient:
            went = set(_split_lines(piece.transient))
            there -= went
            gone |= went
            never -= went
        if piece.adds:
            adds = _split_lines(piece.adds)
            there.update(adds)
            gone.difference_update(adds)
            never.difference_update(adds)
    return NetEffect(_blocks(list(there)), [*never, *gone], _named_graphs(gone))


def _blocks(quads: Sequence[bytes]) -> list[bytes]:
    if not quads:
        return []
    each = max(1, BLOCK_BYTES // max(map(len, quads)))
    return [_join_lines(quads[at : at + each]) for at in range(0, len(quads), each)]


def _named_graphs(quads: Collection[bytes]) -> list[bytes]:
    """The named graphs of the lines, in brackets."""
    graphs: set[bytes] = set()
    for quad in quads:
        # The last term is the graph, or an object; it is parsed only if no graph of that name is known yet.
        if quad[quad.rfind(b" ", 0, -2) + 1 : -2] not in graphs:
            graphs.add(split_graph(quad)[1])
    return sorted(graphs - {b""})
