"""What a store holds, per named graph, in a sorted file: for stores with any number of graphs.

One line for each graph, ``<IRI> TAB quads TAB sum``, the sum being that of :mod:`txlog.workers.digest`; the default
graph has no IRI. Two such files are compared by reading both once.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from txlog.workers.digest import Digester

GRAPHS_MAX: Final = 50_000
"""In memory at a time, about 10 MB."""
_MODULUS: Final = 1 << 128


class DigestLine(NamedTuple):
    """Of one graph; ``graph`` as in N-Quads, empty for the default graph."""

    graph: bytes
    quads: int
    total: int


def write_digests(chunks: Iterable[bytes], path: Path, *, graphs_max: int = GRAPHS_MAX) -> int:
    """Canonical N-Quads in pieces cut anywhere, as for :func:`~txlog.workers.digest.digest`. The file is there, whole,
    when this returns. Returns how many graphs it names."""
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
    """The graphs that do not hold the same in both, in order: without brackets, with how many quads there were in
    each."""
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
    """A graph of which several runs have quads, as one."""
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
