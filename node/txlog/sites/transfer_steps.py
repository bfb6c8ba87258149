"""The entries of a state transfer: a site takes the state of the other one, while both go on with writes.

Two anchors begin it: ``take`` in the log of the taker, then ``reset`` in that of the other site, which refers to it.
From there on both books begin again. The taker then copies the other site at one position, writes what differs in
pages, and ends with that position as its cursor. A key that a client of the taker writes after the ``take`` keeps that
value, and it crosses later as any change does (docs/decisions/0130-a-site-takes-the-state-of-the-other-one.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from txlog.sites.decisions import Plan, next_record, present_version
from txlog.sites.link_record import (
    ANCHORS,
    NO_VERSION,
    TRANSFER_VERSION,
    LinkRecord,
    RecordedKey,
    StepKind,
    Version,
)
from txlog.sites.site_book import SiteBook


class LinkBase(NamedTuple):
    """What an anchor goes on from. ``record``: the name of the record in the store, None: there is none. ``number``:
    how many entries the link has. ``decided``: the final index of the own log. ``clock``: no version up to there has a
    greater stamp, but those of the log's own stamps."""

    record: bytes | None
    number: int
    decided: int
    clock: int


def base_of_record(name: bytes | None, record: LinkRecord | None, decided: int) -> LinkBase:
    """Of the record in a store, without a book."""
    if record is None:
        return LinkBase(name, 0, decided, 0)
    return LinkBase(name, record.number, decided, max(record.clock + 1, record.own_clock))


def anchor_start(record: LinkRecord | None) -> int:
    """The entry after which the own log holds the last anchor, by the record in the store; 0: there is none."""
    if record is None:
        return 0
    if record.step in ANCHORS:
        return record.decided
    return max(0, record.anchor - 1)


def last_anchor(record: LinkRecord | None) -> int:
    """A final index that the last anchor is not before: a later order has not been followed. By the record in the
    store."""
    if record is None:
        return 0
    return record.decided if record.step in ANCHORS else record.anchor


def is_reset_due(mine: SiteBook, theirs: SiteBook) -> bool:
    """Whether the other site takes the state of this one, and waits for its ``reset``."""
    return theirs.is_taking and mine.cursor != theirs.anchor


def is_reset(mine: SiteBook, theirs: SiteBook) -> bool:
    """Whether the other site has answered the ``take`` of this one."""
    has_both = mine.anchor > 0 and theirs.anchor > 0
    return has_both and theirs.cursor == mine.anchor


def is_torn(mine: SiteBook, theirs: SiteBook) -> bool:
    """Whether one of the sites has written its ``reset`` once more, after the other one took its copy: what it wrote
    between the two is in neither the copy nor a batch."""
    return _has_missed(mine, theirs) or _has_missed(theirs, mine)


def _has_missed(taker: SiteBook, other: SiteBook) -> bool:
    return not taker.is_taking and is_reset(taker, other) and taker.cursor < other.anchor


def plan_take(book: SiteBook, base: LinkBase, end_there: int) -> Plan:
    """The beginning of a transfer at the taker. ``end_there``: the final index of the other site's log: its ``reset``
    comes later."""
    return _anchor(book, base, StepKind.TAKE, 0, end_there)


def plan_reset(book: SiteBook, base: LinkBase, take: int) -> Plan:
    """The answer to it: nothing that the taker wrote up to its entry ``take`` is imported any more."""
    return _anchor(book, base, StepKind.RESET, take, 0)


def _anchor(book: SiteBook, base: LinkBase, step: StepKind, to: int, seen: int) -> Plan:
    record = LinkRecord(
        version=TRANSFER_VERSION,
        site=book.other,
        cluster=book.other_cluster,
        key=book.kind,
        number=base.number + 1,
        step=step,
        begin=to,
        to=to,
        seen=seen,
        decided=base.decided,
        clock=base.clock,
        own_clock=base.clock,
        conflicts=0,
        waiting=0,
        keys=[],
    )
    return Plan(base.record, record, {})


def plan_page(mine: SiteBook, keys: Sequence[bytes], at: int) -> Plan | None:
    """Give keys the value that they had at the other site's entry ``at``; None where clients have written all of them
    since the transfer began."""
    lowest = Version(0, mine.other, 0)  # any write of a client wins
    taken = [RecordedKey(key, *lowest, mine.other, at) for key in keys if present_version(mine, key) == NO_VERSION]
    return Plan(mine.record, next_record(mine, StepKind.PAGE, taken, None), {}) if taken else None


def plan_end(mine: SiteBook, theirs: SiteBook, at: int) -> Plan:
    """All keys have what they had at the other site's entry ``at``: batches follow from there."""
    record = next_record(mine, StepKind.END, [], None)
    return Plan(mine.record, msgspec.structs.replace(record, to=at, clock=theirs.clock), {})
