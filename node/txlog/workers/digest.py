"""Digests of a store's N-Quads for each graph, independent of the order of lines: equal digests mean equal data.

A digest is the sum modulo 2^128 of the blake2b-128 of each line: equal sets give equal sums in any order. It detects
stores that diverged by accident; it is no defence against an attacker who chooses quads to collide. Two stores are
compared at one position. Engines rewrite literals in different ways (``"01"`` to ``"1"``), so lines are cleaned first
(:meth:`~txlog.workers.adapter.Adapter.clean_snapshot`).
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b

from txlog.workers.adapter import SYSTEM, Adapter, StreamTransport, UnexpectedAnswer, WorkerResponse

_MODULUS = 1 << 128
_SYSTEM_TERM = b"<" + SYSTEM.encode()
DEFAULT_GRAPH = ""
"""The key of the default graph in :attr:`Digest.graphs`."""


@dataclass(frozen=True)
class Digest:
    """The digest of a store. ``quads``: the number of quads. ``total``: the sum over all of them. ``graphs``:
    ``(quads, sum)`` by graph IRI without brackets; empty graphs are left out."""

    quads: int
    total: int
    graphs: dict[str, tuple[int, int]]

    def differs_from(self, other: Digest) -> list[str]:
        """The graphs to copy so that one store equals the other; empty when they are equal."""
        names = self.graphs.keys() | other.graphs.keys()
        return sorted(name for name in names if self.graphs.get(name) != other.graphs.get(name))


def digest(chunks: Iterable[bytes]) -> Digest:
    """The digest of canonical N-Quads. A chunk may end inside a line. Each line ends in a newline (the last may lack
    it); no line comes twice. Lines of system graphs are dropped."""
    made = Digester()
    for chunk in chunks:
        made.feed(chunk)
    return made.digest()


class Digester:
    """:func:`digest` for a caller that has the chunks one by one."""

    def __init__(self) -> None:
        self._graphs: dict[bytes, list[int]] = {}
        self._last, self._suffix, self._rest = b"", b"", b""

    def feed(self, chunk: bytes) -> None:
        """Add the next chunk."""
        head, newline, tail = chunk.rpartition(b"\n")
        if not newline:
            self._rest += chunk
            return
        self._add_lines([line for line in (self._rest + head).split(b"\n") if line])
        self._rest = tail

    @property
    def pending_graph_count(self) -> int:
        """The number of graphs that had quads since the last :meth:`pop_partial_sums`."""
        return len(self._graphs)

    def finish(self) -> None:
        """End the input: a last line without a newline counts, too."""
        if self._rest:
            self._add_lines([self._rest])
            self._rest = b""

    def pop_partial_sums(self) -> dict[bytes, tuple[int, int]]:
        """``(quads, sum)`` of the lines since the last call, by graph in brackets (empty: the default graph), without
        system graphs. The digester forgets them: later lines may name the same graphs again."""
        taken, self._graphs = self._graphs, {}
        return {
            graph: (count, total % _MODULUS)
            for graph, (count, total) in taken.items()
            if count and not graph.startswith(_SYSTEM_TERM)
        }

    def digest(self) -> Digest:
        """The digest of all lines; call it once, at the end."""
        self.finish()
        made = {graph[1:-1].decode(): sums for graph, sums in self.pop_partial_sums().items()}
        return Digest(sum(c for c, _ in made.values()), sum(t for _, t in made.values()) % _MODULUS, made)

    def _add_lines(self, lines: list[bytes]) -> None:
        last, suffix, run = self._last, self._suffix, list[bytes]()
        for line in lines:
            # Stores return quads graph by graph, so a line nearly always has the graph of the line before it.
            # Three spaces are a triple without a graph, whose object may be that IRI.
            if not (suffix and line.endswith(suffix) and line.count(b" ") > 3):
                graph = _graph_term(line)
                if graph != last:
                    _count_by_graph(self._graphs, last, run)
                    last, suffix, run = graph, graph and b" " + graph + b" .", []
            run.append(line)
        _count_by_graph(self._graphs, last, run)
        self._last, self._suffix = last, suffix


def digest_worker(adapter: Adapter, transport: StreamTransport) -> Digest:
    """Read a worker's whole data set once, as of one moment: about a second for 200,000 quads, nearly all of it the
    worker's. Raises :class:`~txlog.workers.adapter.Unreachable`, also in the middle."""
    with stream_statements(adapter, transport) as chunks:
        return digest(chunks)


@contextmanager
def stream_statements(adapter: Adapter, transport: StreamTransport) -> Iterator[Iterator[bytes]]:
    """All quads of a worker as of one moment, as canonical N-Quads. A chunk may end inside a line. Raises
    :class:`~txlog.workers.adapter.Unreachable` and :class:`~txlog.workers.adapter.UnexpectedAnswer`."""
    with transport.stream(adapter.snapshot()) as answer:
        if answer.status != 200:
            body = b"".join(answer.chunks)
            raise UnexpectedAnswer("reading all statements", WorkerResponse(answer.status, answer.headers, body))
        yield iter(adapter.clean_snapshot(answer.chunks))


def _graph_term(line: bytes) -> bytes:
    """The graph of an N-Quads line, in brackets; empty for the default graph."""
    at = line.rfind(b" ", 0, -2) + 1
    # The last term is a graph when it is an IRI (a literal's tail holds a quote) and there are at least three terms
    # before it, which is more than two spaces: a literal may hold any number of them.
    if line[at] != 60 or line.count(b" ", 0, at) < 3:
        return b""
    graph = line[at:-2]
    return b"" if b'"' in graph else graph


def sum_lines(lines: list[bytes]) -> tuple[int, int]:
    """The number of these lines and the sum of their hashes, not yet modulo 2^128."""
    # Two sums of 64-bit halves in C instead of one sum of 128-bit integers, which Python would have to build first.
    halves = array("Q", b"".join([blake2b(line, digest_size=16).digest() for line in lines]))
    if sys.byteorder == "big":
        halves.byteswap()
    return len(lines), sum(halves[0::2]) + (sum(halves[1::2]) << 64)


def _count_by_graph(graphs: dict[bytes, list[int]], graph: bytes, run: list[bytes]) -> None:
    if not run:
        return
    count, total = sum_lines(run)
    tally = graphs.setdefault(graph, [0, 0])
    tally[0] += count
    tally[1] += total
