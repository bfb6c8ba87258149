"""The content of a store by named graph, as a sorted file: for stores with any number of graphs.

One line for each graph, ``<IRI> TAB quads TAB sum``, with the sum of :mod:`txlog.workers.digest`; the default graph has
no IRI. Comparing two such files reads each once.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from txlog.workers.digest import Digester

GRAPHS_MAX: Final = 50_000
"""Graphs in memory at a time, about 10 MB."""
_MODULUS: Final = 1 << 128


class DigestLine(NamedTuple):
    """The digest of one graph; ``graph`` as in N-Quads, empty for the default graph."""

    graph: bytes
    quads: int
    total: int


def write_digests(chunks: Iterable[bytes], path: Path, *, graphs_max: int = GRAPHS_MAX) -> int:
    """Reads canonical N-Quads in pieces with arbitrary boundaries, as :func:`~txlog.workers.digest.digest` does. The
    file is complete on return. Returns the number of its graphs."""
    made = Digester()
    runs: list[Path] = []
    new = path.with_name(path.name + ".new")
    try:
        for chunk in chunks:
            made.feed(chunk)
            if made.pending_graph_count >= graphs_max:
                runs.append(_write_run(made, path, len(runs)))
        made.finish()
        runs.append(_write_run(made, path, len(runs)))
        count = 0
        with ExitStack() as closing, open(new, "wb") as out:
            sorted_runs = [_parse_lines(closing.enter_context(open(run, "rb"))) for run in runs]
            for one in _merge_runs(heapq.merge(*sorted_runs)):
                out.write(b"%s\t%d\t%032x\n" % one)
                count += 1
        new.replace(path)
    finally:
        for left in (new, *runs):
            left.unlink(missing_ok=True)
    return count


def differing_graphs(shown: Path, final: Path) -> Iterator[tuple[str, int, int]]:
    """The graphs whose content differs, in order: IRI without brackets, and the number of quads in each file."""
    with open(shown, "rb") as one, open(final, "rb") as other:
        lines = heapq.merge(
            ((line, 0) for line in _parse_lines(one)),
            ((line, 1) for line in _parse_lines(other)),
            key=lambda pair: pair[0].graph,
        )
        for graph, same in groupby(lines, key=lambda pair: pair[0].graph):
            sides = {side: line for line, side in same}
            before, after = sides.get(0), sides.get(1)
            if before != after:
                quads = [line.quads if line is not None else 0 for line in (before, after)]
                yield graph[1:-1].decode(), quads[0], quads[1]


def _write_run(made: Digester, path: Path, number: int) -> Path:
    run = path.with_name(f"{path.name}.run-{number}")
    with open(run, "wb") as out:
        for one in sorted(DigestLine(graph, quads, total) for graph, (quads, total) in made.pop_partial_sums().items()):
            out.write(b"%s\t%d\t%032x\n" % one)
    return run


def _parse_lines(file: Iterable[bytes]) -> Iterator[DigestLine]:
    for line in file:
        graph, quads, total = line.split(b"\t")
        yield DigestLine(graph, int(quads), int(total, 16))


def _merge_runs(sums: Iterable[DigestLine]) -> Iterator[DigestLine]:
    """Merges the lines of a graph that several runs contain."""
    for graph, lines in groupby(sums, key=lambda line: line.graph):
        same = list(lines)
        yield DigestLine(graph, sum(line.quads for line in same), sum(line.total for line in same) % _MODULUS)
