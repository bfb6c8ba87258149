"""How the files of a stream follow each other, from their names alone. Pure.

A file begins at one place of the log (index and chain hash) and ends at another one, so files are the steps of a graph.
A *path* is a chain of steps from a start of the stream. Files of two archivers may overlap; each is a step of its own.
Two paths that leave one place are two branches of the log, in a split.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from txlog.archive.file_name import FileName, Node


class StreamPaths(NamedTuple):
    """``reached``: each place that a path reaches, with the file by which the path with the longest files reaches it;
    None for a start. ``heads``: the places at which paths end, the highest index first. ``unreached``: files that no
    path from a start uses, by their place."""

    reached: Mapping[Node, FileName | None]
    heads: list[Node]
    unreached: list[FileName]

    def path_to(self, node: Node) -> list[FileName]:
        """The files from a start to a reached place, in order."""
        found: list[FileName] = []
        while (name := self.reached[node]) is not None:
            found.append(name)
            node = name.start
        return found[::-1]

    def nodes_to(self, node: Node) -> list[Node]:
        """The places of :meth:`path_to`, the start included."""
        files = self.path_to(node)
        return [files[0].start if files else node, *(name.end for name in files)]


def find_paths(names: Iterable[FileName], starts: Iterable[Node], damaged: Collection[FileName] = ()) -> StreamPaths:
    """All paths from these starts. ``damaged``: files that no path may use. Where several files end at one place, the
    longest is preferred, then the compacted one, then the lowest attempt."""
    steps: dict[Node, list[FileName]] = {}
    for name in sorted(set(names) - set(damaged)):
        steps.setdefault(name.start, []).append(name)
    reached: dict[Node, FileName | None] = dict.fromkeys(starts)
    waiting = list(reached)
    heapify(waiting)
    used: set[Node] = set()
    heads: list[Node] = []
    while waiting:  # by index, so a place is left after every file that ends there was considered
        node = heappop(waiting)
        used.add(node)
        for name in steps.get(node, ()):
            known = reached.get(name.end, name)
            if name.end not in reached:
                heappush(waiting, name.end)
            if known is not None and _preference(name) <= _preference(known):
                reached[name.end] = name
        if node not in steps:
            heads.append(node)
    unreached = [name for start in sorted(steps.keys() - used) for name in steps[start]]
    return StreamPaths(reached, heads[::-1], unreached)


def _preference(name: FileName) -> tuple[int, int, int]:
    return name.first, -name.level, name.attempt


def find_missing(paths: StreamPaths) -> list[Node]:
    """The places at which files begin that no other file leads to: what is before them is missing."""
    ends = {name.end for name in paths.unreached}
    return sorted({name.start for name in paths.unreached} - ends)
