"""What a site takes of a batch: which writes win, which keys are read whole, and what an entry of a link then changes.

The last writer wins: the greater version, the same at every site. Nothing here reads a clock or a store. Values are
named (:class:`~txlog.sites.link_record.ValueAt`), and the caller reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from txlog.changesets.change_set import ChangeSet
from txlog.sites.batches import KEYS_MAX, Batch, Offer
from txlog.sites.link_record import (
    NO_VERSION,
    RECORD_VERSION,
    LinkRecord,
    RecordedKey,
    StepKind,
    ValueAt,
    Version,
)
from txlog.sites.site_book import SiteBook

Value = frozenset[bytes]
"""The quads of a key, as lines of canonical N-Quads."""
ReadValues = Callable[[ValueAt, Collection[bytes]], Mapping[bytes, Value]]
"""The values of keys at one position of one site's log."""


class PlannedKey(NamedTuple):
    """A key that an entry writes. ``value``: what it should have then. ``change``: what makes it so at the position of
    the decision; None: the difference between that value and the one there."""

    key: bytes
    version: Version
    value: ValueAt
    change: ChangeSet | None


class Plan(NamedTuple):
    """An entry of a link before values are read. ``expected``: the record that must be there for it to take effect;
    None: there must be no record. ``cluster``, ``kind``: the id of the source's cluster, and what a key is."""

    step: StepKind
    site: str
    number: int
    begin: int
    to: int
    seen: int
    decided: int
    clock: int
    own_clock: int
    conflicts: int
    waiting: int
    expected: bytes | None
    keys: list[PlannedKey]
    cluster: str
    kind: str


class LinkEntry(NamedTuple):
    """An entry of a link, ready to be written. ``deletes``, ``adds``: quads of data, sorted."""

    expected: bytes | None
    record: LinkRecord
    deletes: list[bytes]
    adds: list[bytes]


def plan_step(mine: SiteBook, batch: Batch | None, keys_max: int = KEYS_MAX) -> Plan | None:
    """The next entry of the link that ``mine`` needs. A correction and a batch take turns, so that hot keys do not stop
    the others. ``keys_max``: of a correction."""
    if mine.record is None:
        return _plan(mine, StepKind.BEGIN, None, [], 0)
    if mine.needs and (batch is None or mine.last_step != StepKind.CORRECTION):
        keys = [PlannedKey(key, need.version, need.value, None) for key, need in sorted(mine.needs.items())[:keys_max]]
        return _plan(mine, StepKind.CORRECTION, None, keys, 0)
    return None if batch is None else plan_import(mine, batch)


def plan_import(mine: SiteBook, batch: Batch) -> Plan:
    """The import of a batch: only what wins here."""
    keys: list[PlannedKey] = []
    conflicts = 0
    value = ValueAt(batch.site, batch.to)
    for offer in batch.offers:
        present = present_version(mine, offer.key)
        is_conflict = present != NO_VERSION and present.site != batch.site and present.at > batch.seen
        conflicts += is_conflict
        if not wins(offer, present):
            continue
        # A net change fits where the key is what it was when this site had last seen all of its writes.
        change = offer.change if present == NO_VERSION else None
        keys.append(PlannedKey(offer.key, offer.version, value, change))
    return _plan(mine, StepKind.BATCH, batch, keys, conflicts)


def present_version(mine: SiteBook, key: bytes) -> Version:
    """The version that an offer has to beat: that in the table, or of a value that waits for its correction."""
    need = mine.needs.get(key)
    version = mine.version(key)
    return version if need is None else max(version, need.version)


def wins(offer: Offer, present: Version) -> bool:
    """Whether an offered write is the last one."""
    return offer.version >= present


def _plan(mine: SiteBook, step: StepKind, batch: Batch | None, keys: list[PlannedKey], conflicts: int) -> Plan:
    begin, to, seen, clock = mine.cursor, mine.cursor, mine.heard, mine.clock
    if batch is not None:
        begin, to, seen, clock = batch.begin, batch.to, batch.seen, batch.clock
    expected = None if step is StepKind.BEGIN else mine.record
    return Plan(
        *(step, mine.other, mine.number + 1, begin, to, seen, mine.index, clock, mine.clock, conflicts),
        *(len(mine.needs), expected, keys, mine.other_cluster, mine.kind),
    )


def values_needed(plan: Plan, site: str) -> dict[ValueAt, list[bytes]]:
    """The values to read before :func:`finish_plan`, by position. ``site``: the one that writes the entry."""
    wanted: dict[ValueAt, list[bytes]] = {}
    for each in plan.keys:
        if each.change is None:
            wanted.setdefault(each.value, []).append(each.key)
            wanted.setdefault(ValueAt(site, plan.decided), []).append(each.key)
    return wanted


def finish_plan(plan: Plan, site: str, read: ReadValues) -> LinkEntry:
    """The entry: a whole value is written as its difference from what is there at the position of the decision."""
    values = {at: read(at, keys) for at, keys in values_needed(plan, site).items()}
    here = ValueAt(site, plan.decided)
    deletes: set[bytes] = set()
    adds: set[bytes] = set()
    for each in plan.keys:
        if each.change is not None:
            deletes.update(each.change.deletes)
            adds.update(each.change.adds)
            continue
        whole, present = values[each.value][each.key], values[here][each.key]
        deletes |= present - whole
        adds |= whole - present
    keys = [RecordedKey(each.key, *each.version, *each.value) for each in plan.keys]
    record = LinkRecord(
        RECORD_VERSION,
        plan.site,
        plan.cluster,
        plan.kind,
        plan.number,
        plan.step,
        plan.begin,
        plan.to,
        plan.seen,
        plan.decided,
        plan.clock,
        plan.own_clock,
        plan.conflicts,
        plan.waiting,
        keys,
    )
    return LinkEntry(plan.expected, record, sorted(deletes), sorted(adds))
