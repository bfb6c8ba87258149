"""The net effect of payloads of quads, in two steps: of a stretch of the log, then of all stretches of one bucket.

A quad's fate is a letter: ``A`` it is there, ``D`` it is not, ``G`` it is not, but came and went, so that its graph is
there where an engine keeps empty graphs (:mod:`txlog.workers.netting` says why that must not be lost).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from zlib import crc32

from txlog.model.quads import split_graph
from txlog.pipeline.batch.words import Piece
from txlog.workers.canonical import canonical_lines

ADD, DELETE, GONE = 65, 68, 71
_PREFIX = {ADD: b"A ", DELETE: b"D ", GONE: b"G "}


def pieces(first: int, payloads: Sequence[bytes], buckets: int) -> list[tuple[int, Piece]]:
    """The net effect of consecutive payloads of kind QUADS, by bucket. ``first``: the first one's index."""
    # What is one quad to a store has to be one here, too, however its literal was written.
    joined = canonical_lines(b"".join(payloads))
    if not joined:
        return []
    lines = joined.split(b"\n")
    lines.pop()  # behind the last newline
    found: list[list[bytes]] = [[] for _ in range(buckets)]
    # A line of N-Quads holds no newline, so this is the beginning of an operation.
    plain = not (joined.startswith(b"D ") or b"\nD " in joined)
    if plain:
        for line in lines:
            quad = line[2:]
            found[crc32(quad) % buckets].append(quad)
    else:
        for quad, fate in _fates(lines).items():
            found[crc32(quad) % buckets].append(_PREFIX[fate] + quad)
    return [(at, Piece(first, plain, b"\n".join(its) + b"\n")) for at, its in enumerate(found) if its]


def _fates(lines: Iterable[bytes]) -> dict[bytes, int]:
    fates: dict[bytes, int] = {}
    for line in lines:
        quad = line[2:]
        if line[0] == ADD:
            fates[quad] = ADD
        elif fates.get(quad, DELETE) != DELETE:
            fates[quad] = GONE
        else:
            fates[quad] = DELETE
    return fates


class Net(NamedTuple):
    """``adds``: N-Quads, each line with its newline. ``deletes``: lines without. ``left``: graphs in brackets that are
    there afterwards whatever they hold."""

    adds: list[bytes]
    deletes: list[bytes]
    left: list[bytes]


def net(found: Iterable[Piece]) -> Net:
    """Of all pieces of one bucket, in whatever order they come."""
    ordered = sorted(found, key=lambda piece: piece.first)
    if all(piece.plain for piece in ordered):
        # The same quad twice does no harm: a store is a set.
        return Net([piece.lines for piece in ordered], [], [])
    fates: dict[bytes, int] = {}
    for piece in ordered:
        lines = piece.lines.split(b"\n")
        lines.pop()
        if piece.plain:
            fates.update(dict.fromkeys(lines, ADD))
            continue
        for line in lines:
            quad, fate = line[2:], line[0]
            if fate == DELETE and fates.get(quad, DELETE) != DELETE:
                fate = GONE
            fates[quad] = fate
    adds = [quad + b"\n" for quad, fate in fates.items() if fate == ADD]
    deletes = [quad for quad, fate in fates.items() if fate != ADD]
    left = {split_graph(quad)[1] for quad, fate in fates.items() if fate == GONE} - {b""}
    return Net(adds, deletes, sorted(left))
