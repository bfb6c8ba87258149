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
    TRANSFER_STEPS,
    TRANSFER_VERSION,
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


class Plan(NamedTuple):
    """An entry of a link before values are read. ``expected``: the record that must be there for it to take effect;
    None: there must be no record. ``record``: the one that it leaves. ``changes``: of some keys of that record, what
    gives them their value at the position of the decision. For any other key that is the difference between its value
    and the one there."""

    expected: bytes | None
    record: LinkRecord
    changes: Mapping[bytes, ChangeSet]


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
        return Plan(None, next_record(mine, StepKind.BEGIN, [], None), {})
    if mine.is_taking or (batch is not None and not mine.acknowledged <= batch.seen <= mine.index):
        batch = None  # the other site has seen what this link has not read of its own log yet
    if mine.needs and (batch is None or mine.last_step != StepKind.CORRECTION):
        needs = sorted(mine.needs.items())[:keys_max]
        keys = [RecordedKey(key, *need.version, *need.value) for key, need in needs]
        return Plan(mine.record, next_record(mine, StepKind.CORRECTION, keys, None), {})
    return None if batch is None else plan_import(mine, batch)


def plan_seal(mine: SiteBook) -> Plan | None:
    """The entry after which nothing that the link has written before takes effect; None where that is so without
    one."""
    return None if mine.record is None else Plan(mine.record, next_record(mine, StepKind.SEAL, [], None), {})


def plan_import(mine: SiteBook, batch: Batch) -> Plan:
    """The import of a batch: only what wins here."""
    keys: list[RecordedKey] = []
    changes: dict[bytes, ChangeSet] = {}
    conflicts = 0
    for offer in batch.offers:
        present = present_version(mine, offer.key)
        is_conflict = present != NO_VERSION and present.site != batch.site and present.at > batch.seen
        conflicts += is_conflict
        # The other site took a copy of this one: that holds writes which the table here still has.
        is_known_there = present.site == mine.site and present.at <= batch.seen
        if not (wins(offer, present) or is_known_there):
            continue
        keys.append(RecordedKey(offer.key, *offer.version, batch.site, batch.to))
        # A net change fits where the key is what it was when this site had last seen all of its writes.
        if offer.change is not None and present == NO_VERSION:
            changes[offer.key] = offer.change
    return Plan(mine.record, next_record(mine, StepKind.BATCH, keys, batch, conflicts), changes)


def present_version(mine: SiteBook, key: bytes) -> Version:
    """The version that an offer has to beat: that in the table, or of a value that waits for its correction."""
    need = mine.needs.get(key)
    version = mine.version(key)
    return version if need is None else max(version, need.version)


def wins(offer: Offer, present: Version) -> bool:
    """Whether an offered write is the last one."""
    return offer.version >= present


def next_record(
    mine: SiteBook, step: StepKind, keys: list[RecordedKey], batch: Batch | None, conflicts: int = 0
) -> LinkRecord:
    """The record of the next entry. ``batch``: the one that it imports."""
    return LinkRecord(
        version=TRANSFER_VERSION if step in TRANSFER_STEPS else RECORD_VERSION,
        site=mine.other,
        cluster=mine.other_cluster,
        key=mine.kind,
        number=mine.number + 1,
        step=step,
        begin=mine.cursor if batch is None else batch.begin,
        to=mine.cursor if batch is None else batch.to,
        seen=mine.acknowledged if batch is None else batch.seen,
        decided=mine.index,
        clock=mine.clock if batch is None else batch.clock,
        own_clock=mine.clock,
        conflicts=conflicts,
        waiting=len(mine.needs),
        keys=keys,
        anchor=mine.anchor,
    )


def values_needed(plan: Plan, site: str) -> dict[ValueAt, list[bytes]]:
    """The values to read before :func:`finish_plan`, by position. ``site``: the one that writes the entry."""
    here = ValueAt(site, plan.record.decided)
    wanted: dict[ValueAt, list[bytes]] = {}
    for each in plan.record.keys:
        if each.key not in plan.changes:
            wanted.setdefault(each.value, []).append(each.key)
            wanted.setdefault(here, []).append(each.key)
    return wanted


def finish_plan(plan: Plan, site: str, read: ReadValues) -> LinkEntry:
    """The entry: a whole value is written as its difference from what is there at the position of the decision."""
    values = {at: read(at, keys) for at, keys in values_needed(plan, site).items()}
    here = ValueAt(site, plan.record.decided)
    deletes: set[bytes] = set()
    adds: set[bytes] = set()
    for each in plan.record.keys:
        change = plan.changes.get(each.key)
        if change is not None:
            deletes.update(change.deletes)
            adds.update(change.adds)
            continue
        whole, present = values[each.value][each.key], values[here][each.key]
        deletes |= present - whole
        adds |= whole - present
    return LinkEntry(plan.expected, plan.record, sorted(deletes), sorted(adds))
