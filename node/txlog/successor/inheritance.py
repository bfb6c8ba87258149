"""What a new cluster takes over from the archive of a lost one, at one place of the log. Pure; bytes come through a
:data:`~txlog.archive.timeline.FileReader`.

The order of the log, its skips and its namespaces are in the headers. Entries are read only where an idempotency key
may still be repeated, where an origin was seen last, and where the new cluster goes on without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from txlog.archive.archived_effects import EffectFold, fold_range, synchronous_entries
from txlog.archive.block_codec import ArchivedEntry
from txlog.archive.file_name import Node
from txlog.archive.moment import format_milliseconds
from txlog.archive.restore_plan import RestorePlan
from txlog.archive.timeline import FileFacts, FileReader, Timeline, Timelines
from txlog.model.entry import KIND_CONFIG, Span
from txlog.model.ids import Origin, Txid
from txlog.model.stamp import LOGICAL_BITS, stamp_ms
from txlog.model.synchronous_entry import KIND_DECISION, KINDS_WITH_OWN_KEYS
from txlog.protocol.log.key_table import FirstUse
from txlog.successor.successor_errors import KeysUnknown, NothingArchived


@dataclass(frozen=True, slots=True)
class Inheritance:
    """``place``: where the log goes on. ``last``, ``stamp``: origin and stamp of the entry there. ``epoch``,
    ``highest_stamp``: the highest of any timeline. ``seqs``: the last seq of each origin up to the place. ``skips``:
    transaction, or change of a namespace, with the index. ``keys``: the uses that count and may still be repeated, in
    the order of the log. ``lost``: archived transactions that the new cluster does not have. ``undecided``: of these,
    synchronous ones that no decision up to the place names. ``rolled_back``: synchronous ones that take no effect in
    the new cluster, with ``undecided``: to its clients they are rolled back."""

    place: Node
    last: Origin
    stamp: int
    epoch: int
    highest_stamp: int
    seqs: dict[Origin, int]
    skips: list[tuple[str, int]]
    keys: list[tuple[str, FirstUse]]
    has_first_stamps: bool
    lost: list[Span]
    undecided: list[Txid] = field(default_factory=list)
    rolled_back: list[Txid] = field(default_factory=list)


class _KeyUse(NamedTuple):
    """``at``: the index where it counts."""

    at: int
    key: str
    use: FirstUse


class _Synchronous(NamedTuple):
    """What synchronous transactions come to up to the place. ``uses``: of keys."""

    uses: list[_KeyUse]
    undecided: list[Txid]
    rolled_back: set[Txid]


def read_inheritance(
    timelines: Timelines, plan: RestorePlan, read: FileReader, key_retention_ms: int, *, without_older_keys: bool
) -> Inheritance:
    """``without_older_keys``: found also where the archive lacks entries whose keys may still be repeated.

    Raises :class:`NothingArchived`, :class:`KeysUnknown`, and what ``read`` raises."""
    place, timeline = plan.place, plan.timeline
    found = timeline.find_range(place.index)
    last = found.find_entry(place.index, read) if found is not None else None
    if last is None:
        raise NothingArchived(
            f"the archive has no entry at {place}; choose a later moment, or restore a backup into a new cluster"
        )
    kept = [file for file in timeline.files() if file.name.first <= place.index]
    oldest = last.stamp - (key_retention_ms << LOGICAL_BITS)
    if not without_older_keys:
        _refuse_unknown_keys(timeline, place, oldest)
    uses, has_first_stamps = _read_keys(kept, place, oldest, read)
    synchronous = _fold_synchronous(timeline, place, oldest, read)
    uses = sorted([*uses, *synchronous.uses], key=lambda use: use.at)
    seqs = _last_seqs(kept, place, read)
    every = [file for one in (*timelines.current, *timelines.superseded) for file in one.files()]
    return Inheritance(
        place,
        last.origin,
        last.stamp,
        max(file.view[0] for file in every),
        max(last.stamp, *(file.last_stamp for file in every)),
        seqs,
        sorted((txid, index) for txid, index in timeline.skips().items() if index <= place.index),
        [(use.key, use.use) for use in uses],
        has_first_stamps,
        _read_lost(timelines, timeline, place, seqs, synchronous.undecided, read),
        synchronous.undecided,
        sorted(synchronous.rolled_back.union(synchronous.undecided)),
    )


def _refuse_unknown_keys(timeline: Timeline, place: Node, oldest: int) -> None:
    """Each range that does not begin with the log follows entries that the archive lacks."""
    for each in timeline.ranges:
        first = each.files[0].first_stamp if each.files else 0
        if 0 < each.start.index < place.index and first > oldest:
            raise KeysUnknown(
                f"the archive lacks what was ordered before {each.start}, and the entry after it is of "
                f"{format_milliseconds(stamp_ms(first))}, younger than keyRetention: the new cluster would not know "
                "these idempotency keys, so a client's retry could be executed twice; if no client retries any "
                "more: --without-older-keys"
            )


def _read_keys(kept: Iterable[FileFacts], place: Node, oldest: int, read: FileReader) -> tuple[list[_KeyUse], bool]:
    """The uses by ordinary transactions that count and are not older than ``oldest``, a stamp; and whether an entry has
    a first stamp."""
    keys: list[_KeyUse] = []
    has_first_stamps = False
    for file in kept:
        if file.last_stamp < oldest:
            continue
        for entry in read(file.name):
            if entry.index > place.index:
                break
            has_first_stamps |= entry.first_stamp > 0
            stamp = entry.first_stamp or entry.stamp
            if entry.key and entry.kind not in KINDS_WITH_OWN_KEYS and not entry.is_noop and stamp >= oldest:
                keys.append(_KeyUse(entry.index, entry.key, FirstUse(entry.txid, stamp, entry.content)))
    return keys, has_first_stamps


def _fold_synchronous(timeline: Timeline, place: Node, oldest: int, read: FileReader) -> _Synchronous:
    """The key of a synchronous transaction counts where it takes effect. What is open before a gap is decided in it, or
    is in the files after it again."""
    uses: list[_KeyUse] = []
    rolled_back: set[Txid] = set()
    fold = EffectFold()
    for each in timeline.ranges:
        if each.start.index > place.index:
            break
        fold = EffectFold()
        for entry in synchronous_entries(each.files, place.index, read):
            for effect in fold.apply(entry).effects:
                one = effect.transaction
                if one.key.client_key and effect.stamp >= oldest:
                    uses.append(_KeyUse(entry.index, one.key.client_key, FirstUse(one.txid, effect.stamp, one.content)))
        rolled_back.update(fold.rolled_back)
    return _Synchronous(uses, [one.txid for one in fold.open], rolled_back)


def _last_seqs(kept: list[FileFacts], place: Node, read: FileReader) -> dict[Origin, int]:
    """Seqs of one origin grow along the log, so each one's last file is enough."""
    seqs: dict[Origin, int] = {}
    for file in reversed(kept):
        missing = file.origins - seqs.keys()
        if missing:
            for entry in read(file.name):
                if entry.index <= place.index and entry.origin in missing:
                    seqs[entry.origin] = entry.seq
    return dict(sorted(seqs.items()))


def _read_lost(
    timelines: Timelines,
    chosen: Timeline,
    place: Node,
    seqs: dict[Origin, int],
    undecided: Iterable[Txid],
    read: FileReader,
) -> list[Span]:
    """Of every timeline, a superseded one, too: its end may have been archived before the rejoin was. What is rolled
    back later was never done, so it is not lost."""
    kept = {file.name for file in chosen.files() if file.name.last <= place.index}
    found, rolled_back = set(undecided), set[Txid]()
    for timeline in (*timelines.current, *timelines.superseded):
        for file in timeline.files():
            if file.name not in kept:
                found.update(entry.txid for entry in read(file.name) if _is_lost(entry, seqs))
        for each in timeline.ranges:
            rolled_back.update(fold_range(each, each.end.index, read).rolled_back)
    return to_spans(found - rolled_back)


def _is_lost(entry: ArchivedEntry, seqs: dict[Origin, int]) -> bool:
    is_transaction = not entry.is_noop and entry.kind not in (KIND_CONFIG, KIND_DECISION)
    return is_transaction and entry.seq > seqs.get(entry.origin, 0)


def to_spans(txids: Iterable[Txid]) -> list[Span]:
    """The same transactions as spans, in order."""
    return list(_merge(sorted(txids)))


def _merge(txids: Iterable[Txid]) -> Iterator[Span]:
    span: Span | None = None
    for txid in txids:
        if span is not None and (txid.origin.node, txid.origin.birth, txid.seq) == (
            span.node,
            span.birth,
            span.first_seq + span.count,
        ):
            span = Span(span.node, span.birth, span.first_seq, span.count + 1)
            continue
        if span is not None:
            yield span
        span = Span(txid.origin.node, txid.origin.birth, txid.seq, 1)
    if span is not None:
        yield span
