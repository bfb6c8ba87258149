"""What a restore to a moment needs: a timeline, a place on it, a base backup, and the files from there. Pure; bytes
come through a :data:`~txlog.archive.timeline.FileReader`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from txlog.archive.archive_errors import (
    AmbiguousPoint,
    AmbiguousTimeline,
    ArchiveGap,
    BeforeWindow,
    BeyondArchive,
    NoBase,
)
from txlog.archive.archived_effects import find_effect_index
from txlog.archive.block_codec import ArchivedEntry
from txlog.archive.file_name import Node
from txlog.archive.moment import Moment, MomentKind, format_milliseconds
from txlog.archive.timeline import ArchivedRange, FileFacts, FileReader, Timeline, Timelines
from txlog.model.entry import CONTROL_KINDS
from txlog.model.errors import BadInput
from txlog.model.hashes import chain_start
from txlog.model.ids import Txid, parse_txid
from txlog.model.restore_points import decode_restore_point
from txlog.model.stamp import stamp_ms
from txlog.model.synchronous_entry import SYNCHRONOUS_KINDS

_POINTS_SHOWN: Final = 10
EMPTY_BASE: Final = "empty"
"""As the name of a base: the workers held nothing before the first entry of the log."""


class BaseBackup(NamedTuple):
    """A complete backup of the cluster. ``content``: what the worker had before the first entry of the log
    (:class:`~txlog.workers.adapter.MarkerPosition`)."""

    name: str
    node: Node
    engine: str
    content: bytes
    quads: int
    plain_bytes: int


class BaseChoice(NamedTuple):
    """``backups``: of the cluster, in any order. ``engine``: of the store; None for any. ``name``: only this backup, or
    :data:`EMPTY_BASE`."""

    backups: Sequence[BaseBackup]
    engine: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class EntryFacts:
    """An entry for people. ``written``: when its file was written, in seconds since 1970."""

    index: int
    txid: str
    milliseconds: int
    written: float


class RestorePlan(NamedTuple):
    """``place``: the restored position. ``epoch``: of the view in which it was stable. ``base``: None for an empty
    store. ``after``: where the log is executed from. ``files``: those that hold the entries from there to ``place``, in
    order. ``skipped``: transactions that no worker of this timeline keeps. ``last_in``, ``first_out``: the entries at
    and behind ``place``; None where there is none."""

    timeline: Timeline
    place: Node
    epoch: int
    base: BaseBackup | None
    after: Node
    files: tuple[FileFacts, ...]
    skipped: frozenset[str]
    last_in: EntryFacts | None
    first_out: EntryFacts | None

    @property
    def entries(self) -> int:
        """The number of entries to execute."""
        return self.place.index - self.after.index

    def is_executed(self, entry: ArchivedEntry) -> bool:
        """Whether a worker executes this entry of the plan, which is not synchronous. Over the others it only moves its
        position."""
        if not self.after.index < entry.index <= self.place.index or entry.is_noop or entry.kind in CONTROL_KINDS:
            return False
        return not self.skipped or str(entry.txid) not in self.skipped


def make_plan(
    timelines: Timelines, cluster: bytes, moment: Moment, bases: BaseChoice, read: FileReader, wanted: str | None = None
) -> RestorePlan:
    """``wanted``: a timeline by its view (``epoch.ballot.coordinator``) or its head (``INDEX:HASH``).

    Raises :class:`BeyondArchive`, :class:`BeforeWindow`, :class:`ArchiveGap`, :class:`AmbiguousTimeline`,
    :class:`NoBase`, :class:`~txlog.model.errors.BadInput` for a timeline that is not there, and what ``read`` raises.
    """
    timeline, place = _choose_place(timelines, moment, read, wanted)
    found = timeline.find_range(place.index)
    assert found is not None, "the place was found there"
    skips = timeline.skips()
    base = _choose_base(timeline, found, place, bases, skips, cluster, read)
    after = base.node if base is not None else found.start
    files = tuple(file for file in found.files if file.name.last > after.index and file.name.first <= place.index)
    last, first_out = found.find_file(place.index), found.find_file(place.index + 1)
    nearest = last or first_out
    return RestorePlan(
        timeline,
        place,
        nearest.view[0] if nearest is not None else 0,
        base,
        after,
        files,
        frozenset(skips),
        _entry_facts(last, place.index, read),
        _entry_facts(first_out, place.index + 1, read),
    )


# -- the timeline and the place


def _choose_place(timelines: Timelines, moment: Moment, read: FileReader, wanted: str | None) -> tuple[Timeline, Node]:
    if wanted is not None:
        every = [*timelines.current, *timelines.superseded]
        named = [one for one in every if wanted == one.view_text or (":" in wanted and _is_named(one.head, wanted))]
        if len(named) != 1:
            known = ", ".join(f"{one.head} (view {one.view_text})" for one in every)
            raise BadInput(f"--timeline {wanted[:100]}: expected one of {known}")
        return named[0], _find_place(named[0], moment, read)
    if moment.kind is MomentKind.POSITION:
        # Its hash tells branches apart, so an abandoned one need not be named besides.
        every = [one for one in (*timelines.current, *timelines.superseded) if _has_position(one, moment, read)]
        current = [one for one in every if one in timelines.current]
        return _agree(current or every or timelines.current, moment, read)
    return _agree(timelines.current, moment, read)


def _agree(candidates: Sequence[Timeline], moment: Moment, read: FileReader) -> tuple[Timeline, Node]:
    """The place on all of these. :class:`AmbiguousTimeline` when it is not the same state on each."""
    if len(candidates) == 1:
        return candidates[0], _find_place(candidates[0], moment, read)
    heads = " and ".join(f"{one.head} (view {one.view_text})" for one in candidates)
    ambiguous = AmbiguousTimeline(f"{moment.text} is ambiguous: branches end at {heads}; choose one with --timeline")
    if moment.kind is MomentKind.LATEST:
        raise ambiguous
    found: set[Node] = set()
    for one in candidates:
        try:
            found.add(_find_place(one, moment, read))
        except (BeyondArchive, ArchiveGap):
            raise ambiguous from None
    if len(found) != 1 or any(one.skips() != candidates[0].skips() for one in candidates):
        raise ambiguous
    return candidates[0], found.pop()


def _is_named(node: Node, text: str) -> bool:
    index, _, digits = text.partition(":")
    return index == str(node.index) and len(digits) >= 8 and node.hash.hex().startswith(digits.lower())


def _has_position(timeline: Timeline, moment: Moment, read: FileReader) -> bool:
    found = timeline.find_place(moment.index, read)
    return found is not None and found.hash.hex().startswith(moment.hash_digits)


def _find_place(timeline: Timeline, moment: Moment, read: FileReader) -> Node:
    if moment.kind is MomentKind.LATEST:
        return timeline.head
    if moment.kind is MomentKind.TIME:
        return _place_at_time(timeline, moment, read)
    if moment.kind is MomentKind.TRANSACTION:
        return _place_of_transaction(timeline, moment, read)
    if moment.kind is MomentKind.POINT:
        return _place_of_point(timeline, moment, read)
    head = timeline.head
    if moment.index > head.index:
        raise BeyondArchive(f"{moment.text} is beyond the archive, which ends at {head}; wait, or choose latest")
    if moment.index < timeline.ranges[0].start.index:
        raise _before_window(timeline, moment)
    found = timeline.find_place(moment.index, read)
    if found is None:
        raise _in_gap(timeline, moment)
    if not found.hash.hex().startswith(moment.hash_digits):
        raise BeyondArchive(
            f"{moment.text} is on no timeline of the archive: index {moment.index} is {found}; check it"
        )
    return found


def _place_at_time(timeline: Timeline, moment: Moment, read: FileReader) -> Node:
    """After the last entry whose stamp is not later. Stamps grow along the log, so every worker has the same one."""
    files = list(timeline.files())
    if not files or stamp_ms(files[-1].last_stamp) < moment.milliseconds:
        last = f" of {format_milliseconds(stamp_ms(files[-1].last_stamp))}" if files else ""
        raise BeyondArchive(
            f"{moment.text} is beyond the archive, which ends at {timeline.head}{last}; wait, or choose latest"
        )
    earlier = [at for at, file in enumerate(files) if stamp_ms(file.first_stamp) <= moment.milliseconds]
    if not earlier:
        raise _before_window(timeline, moment)
    file = files[earlier[-1]]
    if stamp_ms(file.last_stamp) <= moment.milliseconds:
        following = files[earlier[-1] + 1] if earlier[-1] + 1 < len(files) else None
        if following is not None and following.name.start != file.name.end:
            raise _in_gap(timeline, moment)
        return file.name.end
    entry = [each for each in read(file.name) if stamp_ms(each.stamp) <= moment.milliseconds][-1]
    return Node(entry.index, entry.hash)


def _place_of_transaction(timeline: Timeline, moment: Moment, read: FileReader) -> Node:
    assert moment.txid is not None
    index = find_transaction(timeline, moment.txid, read)
    if index is None:
        raise BeyondArchive(
            f"the archive from {timeline.ranges[0].start} to {timeline.head} has no transaction {moment.txid}; "
            "check the id, or wait until it is archived"
        )
    index = _index_of_effect(timeline, index, read)
    found = timeline.find_place(index - 1 if moment.is_before else index, read)
    assert found is not None, "a place before an archived entry is known"
    return found


def _index_of_effect(timeline: Timeline, index: int, read: FileReader) -> int:
    """Where the transaction at ``index`` takes effect: a synchronous one at its COMMIT."""
    among = timeline.find_range(index)
    entry = among.find_entry(index, read) if among is not None else None
    if among is None or entry is None or entry.kind not in SYNCHRONOUS_KINDS:
        return index
    found = find_effect_index(among, entry, read)
    if found is None:
        raise BeyondArchive(
            f"{entry.txid} at index {index} is undecided at {among.end}, where these files end: wait for its COMMIT"
        )
    return found


def find_points(timeline: Timeline) -> list[tuple[int, str]]:
    """Index and name of each restore point, the oldest first."""
    found = ((index, decode_restore_point(key)) for key, index in timeline.skips().items())
    return sorted((index, name) for index, name in found if name is not None)


def _place_of_point(timeline: Timeline, moment: Moment, read: FileReader) -> Node:
    every = find_points(timeline)
    indexes = [index for index, name in every if name == moment.name]
    if not indexes:
        names = ", ".join(dict.fromkeys(name for _, name in every[-_POINTS_SHOWN:])) or "none"
        raise BeyondArchive(
            f"the archive up to {timeline.head} has no restore point {moment.name}; the last ones are: {names}"
        )
    places = [timeline.find_place(index, read) for index in indexes]
    if len(places) > 1:
        forms = " or ".join(f"position:{place.index}:{place.hash.hex()}" for place in places if place is not None)
        raise AmbiguousPoint(f"{len(places)} restore points are called {moment.name}: choose {forms}")
    assert places[0] is not None, "an archived entry has a place"
    return places[0]


def find_transaction(timeline: Timeline, txid: Txid, read: FileReader) -> int | None:
    """The index of a transaction, by binary search: the seqs of an origin grow along the log."""
    files = [file for file in timeline.files() if txid.origin in file.origins]
    low, high = 0, len(files) - 1
    while low <= high:
        middle = (low + high) // 2
        entries = [entry for entry in read(files[middle].name) if entry.origin == txid.origin]
        found = next((entry.index for entry in entries if entry.seq == txid.seq), None)
        if found is not None:
            return found
        low, high = (middle + 1, high) if entries[-1].seq < txid.seq else (low, middle - 1)
    return None


def _before_window(timeline: Timeline, moment: Moment) -> BeforeWindow:
    start = timeline.ranges[0].start
    return BeforeWindow(
        f"{moment.text} is before the archive, which begins after {start}; restore a backup of that time"
    )


def _in_gap(timeline: Timeline, moment: Moment) -> ArchiveGap:
    return ArchiveGap(
        f"{moment.text} is in a gap: the archive has {_describe(timeline)}; choose a moment in one of these"
    )


def _describe(timeline: Timeline) -> str:
    return " and ".join(f"{each.start} to {each.end}" for each in timeline.ranges)


# -- the base


def _choose_base(
    timeline: Timeline,
    found: ArchivedRange,
    place: Node,
    bases: BaseChoice,
    skips: dict[str, int],
    cluster: bytes,
    read: FileReader,
) -> BaseBackup | None:
    """The newest base from which the files lead to the place; None for an empty store."""
    if bases.name == EMPTY_BASE:
        if found.start.index:
            raise NoBase(f"the files begin after {found.start}, so an empty store is no base; name a backup")
        return None
    named = [each for each in bases.backups if bases.name in (None, each.name)]
    if bases.name is not None and not named:
        raise NoBase(f"{bases.name} is no complete backup of this cluster on the target; see txlog backup list")
    below_gap = False
    for base in sorted(named, key=lambda each: each.node.index, reverse=True):
        if base.node.index > place.index or bases.engine not in (None, base.engine):
            continue
        if base.node.index < found.start.index:
            below_gap = below_gap or timeline.has(base.node, read)
        elif found.find_place(base.node.index, read) == base.node and not may_hold_skipped(timeline, base, skips, read):
            return base
    if bases.name is None and _is_log_enough(found, bases.backups, cluster):
        return None
    if below_gap:
        raise ArchiveGap(
            f"a gap lies between the last backup before {place} and that place: the archive has {_describe(timeline)}; "
            "choose an earlier moment, or one after a later backup"
        )
    hint = "" if found.start.index else "; if the workers were empty before the first transaction: --base empty"
    raise NoBase(
        f"no backup{f' of the engine {bases.engine}' if bases.engine else ''} between {found.start} and {place} is on "
        f"this timeline; name the target of the backups with --backups{hint}"
    )


def may_hold_skipped(timeline: Timeline, base: BaseBackup, skips: dict[str, int], read: FileReader) -> bool:
    """Whether a worker may have executed a transaction by the place of this base that the log skips only later."""
    for txid, at in skips.items():
        if at <= base.node.index or " " in txid:
            continue
        try:
            index = find_transaction(timeline, parse_txid(txid), read)
        except BadInput:
            continue
        if index is None or index <= base.node.index:
            return True
    return False


def _is_log_enough(found: ArchivedRange, backups: Sequence[BaseBackup], cluster: bytes) -> bool:
    """Whether the log alone makes the state: a backup says that the workers held nothing before its first entry."""
    if found.start != Node(0, chain_start(cluster)):
        return False
    return bool(backups) and not any(each.content for each in backups)


def _entry_facts(file: FileFacts | None, index: int, read: FileReader) -> EntryFacts | None:
    if file is None:
        return None
    entry = read(file.name)[index - file.name.first]
    return EntryFacts(index, str(entry.txid), stamp_ms(entry.stamp), file.written)
