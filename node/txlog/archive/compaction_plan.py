"""Which small files of a stream become one, and which are deleted then. Pure: a listing decides, no clock.

The time is that of the newest file. An idle stream is not compacted further.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from txlog.archive.file_name import FileName, Node
from txlog.archive.path import StreamPaths, find_paths


class CompactionLimits(NamedTuple):
    """``span_s``: files of so many seconds become one. ``bytes_max``: their bytes on the target, ``entries_max``: their
    entries. ``grace_s``: how long small files stay beside the compacted one."""

    span_s: float = 300.0
    bytes_max: int = 4 << 20
    entries_max: int = 50_000
    grace_s: float = 3600.0


def plan_merges(
    paths: StreamPaths,
    modified: Mapping[FileName, float],
    final: Mapping[Node, int],
    limits: CompactionLimits,
    sizes: Mapping[FileName, int],
) -> list[tuple[FileName, ...]]:
    """Groups of two or more files that follow each other. ``final``: by head, the index up to which no log ever leaves
    its path: only there no log needs the place between two files. A place where known branches part stays one.
    """
    now = max(modified.values(), default=0.0)
    joints = _joints(paths)
    seen: set[FileName] = set()
    found: list[tuple[FileName, ...]] = []

    def close(group: list[FileName], *, is_full: bool) -> None:
        if len(group) > 1 and (is_full or now - modified[group[0]] >= limits.span_s):
            found.append(tuple(group))
        group.clear()

    for head in paths.heads:
        group: list[FileName] = []
        for name in paths.path_to(head):
            if name.level or name in seen or name.last > final.get(head, 0):
                close(group, is_full=name.level > 0)
                continue
            seen.add(name)
            if group and not _fits(group, name, modified, sizes, limits):
                close(group, is_full=True)
            group.append(name)
            if name.end in joints:
                close(group, is_full=True)
        close(group, is_full=False)
    return found


def _fits(
    group: Sequence[FileName],
    name: FileName,
    modified: Mapping[FileName, float],
    sizes: Mapping[FileName, int],
    limits: CompactionLimits,
) -> bool:
    return (
        modified[name] - modified[group[0]] < limits.span_s
        and sum(sizes[each] for each in (*group, name)) <= limits.bytes_max
        and name.last - group[0].first < limits.entries_max
    )


def _joints(paths: StreamPaths) -> set[Node]:
    """The places after which the paths to two heads part."""
    following: dict[Node, set[Node]] = {}
    for head in paths.heads:
        for name in paths.path_to(head):
            following.setdefault(name.start, set()).add(name.end)
    heads = set(paths.heads)
    return {node for node, ends in following.items() if len(ends) > 1 or node in heads}


def compacted_runs(
    paths: StreamPaths, modified: Mapping[FileName, float], grace_s: float
) -> list[tuple[FileName, ...]]:
    """The compacted files that are old enough to replace what they hold, in runs without a gap."""
    now = max(modified.values(), default=0.0)
    found: dict[tuple[FileName, ...], None] = {}
    for head in paths.heads:
        run: list[FileName] = []
        for name in paths.path_to(head):
            if name.level and now - modified[name] >= grace_s:
                run.append(name)
                continue
            if run:
                found[tuple(run)] = None
            run = []
        if run:
            found[tuple(run)] = None
    return list(found)


def covered_files(names: Iterable[FileName], nodes: Collection[Node]) -> list[FileName]:
    """The small files whose every entry a run of compacted files holds. ``nodes``: the places of that run. The chain
    proves it: with the same hash at the end, everything before is the same."""
    return [name for name in names if not name.level and name.start in nodes and name.end in nodes]


def plan_deletions(
    names: Collection[FileName], starts: Sequence[Node], covered: Iterable[FileName], inside: Collection[Node]
) -> list[FileName]:
    """Those of the covered files without which each end of a path, and each place from which another file goes on, can
    still be reached. ``inside``: the places of the compacted files, where a path of small files alone may end. The last
    one first: what is left after a crash is reached from its start."""
    before = find_paths(names, starts)
    gone = set(covered)
    while gone:
        rest = set(names) - gone
        after = find_paths(rest, starts)
        ends = {head for head in before.heads if head not in inside}
        needed = ends | {name.start for name in rest if name.start in before.reached}
        lost = [node for node in needed if node not in after.reached]
        if not lost:
            break
        kept = {name for node in lost for name in before.path_to(node)} & gone
        gone = gone - kept if kept else set()
    return sorted(gone, reverse=True)
