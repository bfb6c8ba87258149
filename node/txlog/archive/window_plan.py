"""Which files of a stream no moment of the recovery window needs. Pure; bytes come through a
:data:`~txlog.archive.timeline.FileReader`.

The window begins at a time. What can be restored to every moment since then is: a base backup that is at or before that
time on each timeline that is not over by then, and every file after it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from txlog.archive.archived_effects import fold_range
from txlog.archive.file_name import FileName, Node
from txlog.archive.moment import format_milliseconds
from txlog.archive.path import StreamPaths, find_paths
from txlog.archive.restore_plan import BaseBackup, may_hold_skipped
from txlog.archive.timeline import FileReader, Timeline, Timelines
from txlog.model.namespaces import decode_namespace_change
from txlog.model.restore_points import decode_restore_point
from txlog.model.stamp import stamp_ms


class WindowBase(NamedTuple):
    """A complete backup of the cluster. ``finished_ms``: since 1970, at or after the time of its place. ``is_held``: a
    split pins it."""

    backup: BaseBackup
    finished_ms: int
    is_held: bool = False


class WindowPlan(NamedTuple):
    """``reason``: why no file may be deleted; empty when all that is not needed may. ``floor``: the place after which
    files are needed, to restore a moment of the window: also before what is open at its bases. ``begins``: where the
    paths begin afterwards. ``branches``: files that are deleted before this is recorded, ``files``: after it, both with
    the last one first. ``bases``: the backups of the floor, by name. ``skips``: for each of ``begins`` what is in
    effect there of the skips in deleted files.
    """

    reason: str
    floor: int = 0
    begins: tuple[Node, ...] = ()
    branches: tuple[FileName, ...] = ()
    files: tuple[FileName, ...] = ()
    bases: tuple[str, ...] = ()
    skips: tuple[tuple[tuple[int, str], ...], ...] = ()


def plan_window(
    names: Collection[FileName],
    starts: Sequence[Node],
    timelines: Timelines,
    bases: Sequence[WindowBase],
    begin_ms: int,
    read: FileReader,
) -> WindowPlan:
    """``begin_ms``: the first moment of the window. Raises what ``read`` raises."""
    kept = [one for one in timelines.current if list(one.files())]
    kept += [one for one in timelines.superseded if _last_ms(one) > begin_ms]
    if not kept:
        return WindowPlan("the stream holds nothing yet")
    engines = sorted({base.backup.engine for base in bases})
    if not engines:
        return WindowPlan("there is no backup: without one only the whole log leads to a moment")
    anchors: list[BaseBackup] = []
    for one in kept:
        for engine in engines:
            found = _find_anchor(one, [each for each in bases if each.backup.engine == engine], begin_ms, read)
            if found is None:
                return WindowPlan(
                    f"no backup of {engine} from before {format_milliseconds(begin_ms)} is on the timeline that ends "
                    f"at {one.head}"
                )
            anchors.append(found)
    used_bases = [*anchors, *(base.backup for base in bases if base.is_held)]
    floor = min(_first_needed(kept, base.node, read) for base in used_bases)
    over = {file.name for one in timelines.superseded if one not in kept for file in one.files()}
    used = tuple(sorted({each.name for each in anchors}))
    return _plan_files(names, find_paths(names, starts), kept, over, floor, used)


def _last_ms(one: Timeline) -> int:
    return max((stamp_ms(file.last_stamp) for file in one.files()), default=0)


def _find_anchor(one: Timeline, bases: Sequence[WindowBase], begin_ms: int, read: FileReader) -> BaseBackup | None:
    """The newest base of a timeline that is not behind the beginning of the window."""
    skips = one.skips()
    for base in sorted(bases, key=lambda each: each.backup.node.index, reverse=True):
        if (
            base.finished_ms <= begin_ms
            and one.has(base.backup.node, read)
            and not may_hold_skipped(one, base.backup, skips, read)
        ):
            return base.backup
    return None


def _first_needed(kept: Sequence[Timeline], node: Node, read: FileReader) -> int:
    """The place after which files are needed to go on from a base: what is open there may take effect later, and its
    payload is before."""
    needed = node.index
    for one in kept:
        found = one.find_range(node.index)
        if found is not None and found.find_place(node.index, read) == node:
            needed = min(needed, fold_range(found, node.index, read).first_needed(node.index))
    return needed


def _plan_files(
    names: Collection[FileName],
    before: StreamPaths,
    kept: Sequence[Timeline],
    over: Collection[FileName],
    floor: int,
    bases: tuple[str, ...],
) -> WindowPlan:
    needed: set[FileName] = set()
    begins: dict[Node, tuple[tuple[int, str], ...]] = {}
    for one in kept:
        files = [file.name for file in one.files() if file.name.last > floor]
        begin = files[0].start if files else one.head
        begins[begin] = skips_in_effect((at, key) for key, at in one.skips().items() if at <= begin.index)
        needed.update(files)
    below = {name for name in names if name.last <= floor}
    rest = set(names) - below
    branches = set(over) & rest - needed
    after = find_paths(rest - branches, begins)
    # Of a second archiver: the files before these are not needed, and nothing else leads to them.
    branches |= {name for name in rest - needed if name.start in before.reached and name.start not in after.reached}
    after = find_paths(rest - branches, begins)
    if not all(name.end in after.reached for name in needed):
        return WindowPlan("without the files below, others would lead nowhere; see txlog archive check")
    gone = tuple(sorted(branches, reverse=True)), tuple(sorted(below, reverse=True))
    return WindowPlan("", floor, tuple(begins), *gone, bases, tuple(begins.values()))


def skips_in_effect(rows: Iterable[tuple[int, str]]) -> tuple[tuple[int, str], ...]:
    """Of the skips before a place those that still say something: all skipped transactions, and the last change of each
    namespace that is set. Restore points before it lead nowhere."""
    namespaces: dict[str, tuple[int, str]] = {}
    found: list[tuple[int, str]] = []
    for row in sorted(rows):
        try:
            change = decode_namespace_change(row[1])
        except ValueError:
            change = None  # no master makes such a key
        if change is None:
            found += [row] if decode_restore_point(row[1]) is None else []
        elif change.prefix is None:
            namespaces.clear()
        elif change.name is None:
            namespaces.pop(change.prefix, None)
        else:
            namespaces[change.prefix] = row
    return tuple(sorted([*found, *namespaces.values()]))
