"""The content of a store by named graph, as a sorted file: for stores with any number of graphs.

One line for each graph, ``<IRI> TAB quads TAB sum``, with the sum of :mod:`txlog.workers.digest`; the default graph has
no IRI. Comparing two such files reads each once.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
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
        before: DigestLine | None = None
        was_final = False
        for each, where in heapq.merge(
            ((line, 0) for line in _parse_lines(one)),
            ((line, 1) for line in _parse_lines(other)),
            key=lambda pair: pair[0].graph,
        ):
            if before is not None and before.graph == each.graph:
                if before != each:
                    yield _graph_iri(each.graph), before.quads, each.quads
                before = None
                continue
            if before is not None:
                yield _one_sided(before, after=was_final)
            before, was_final = each, bool(where)
        if before is not None:
            yield _one_sided(before, after=was_final)


def _one_sided(one: DigestLine, *, after: bool) -> tuple[str, int, int]:
    return (_graph_iri(one.graph), 0, one.quads) if after else (_graph_iri(one.graph), one.quads, 0)


def _graph_iri(graph: bytes) -> str:
    return graph[1:-1].decode()


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
    last: DigestLine | None = None
    for one in sums:
        if last is not None and last.graph == one.graph:
            last = DigestLine(one.graph, last.quads + one.quads, (last.total + one.total) % _MODULUS)
            continue
        if last is not None:
            yield last
        last = one
    if last is not None:
        yield last
