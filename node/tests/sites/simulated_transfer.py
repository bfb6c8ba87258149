"""State transfers of the simulated sites (:mod:`site_world`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from txlog.sites.decisions import Plan, Value
from txlog.sites.link_record import LinkRecord, RecordNotRead, StepKind, Version, decode_contents
from txlog.sites.transfer_steps import (
    LinkBase,
    anchor_start,
    base_of_record,
    is_reset,
    is_reset_due,
    is_torn,
    last_anchor,
    plan_end,
    plan_page,
    plan_reset,
    plan_take,
)

if TYPE_CHECKING:
    from site_world import SimulatedLink, SimulatedSite

BASE = Version(-1, "", -1)
"""Of a value that a site took with the state."""


def stored_record(site: SimulatedSite) -> LinkRecord | None:
    """The record in the store of a site."""
    for contents in sorted(site.contents):
        try:
            found = decode_contents(contents)
        except RecordNotRead:
            continue
        if isinstance(found, LinkRecord):
            return found
    return None


def begin_again(link: SimulatedLink) -> None:
    """A table that is lost begins with the last anchors: that of the own store, and what the other link reports."""
    record = stored_record(link.site)
    start = anchor_start(record)
    if record is None or not start:
        return
    link.mine.await_anchor(start)
    reported = reported_anchor(link.source)
    link.theirs.await_anchor(record.seen if record.step is StepKind.TAKE else max(0, reported - 1))


def reported_anchor(site: SimulatedSite) -> int:
    return max((each.mine.anchor for each in site.world.links if each.site is site), default=0)


def is_order_pending(link: SimulatedLink) -> bool:
    """Whether a person has ordered this site to take the other one's state, and it has not begun."""
    begun = max(link.mine.anchor, last_anchor(stored_record(link.site)))
    return begun < link.site.ordered_at <= min(link.mine.index, len(link.site.events))


def await_transfer(link: SimulatedLink) -> bool:
    """Let the books whose changes are gone begin again with the anchors that a transfer makes. False where none is
    under way."""
    mine, theirs = link.mine, link.theirs
    takes = [each.mine.anchor for each in link.world.links if each.site is link.source and each.mine.is_taking]
    is_mine_gone = mine.index < link.site.kept or is_torn(mine, theirs)
    begun = max(mine.anchor, last_anchor(stored_record(link.site)))
    if begun < link.site.ordered_at <= len(link.site.events):
        start = len(link.source.events)
    elif takes and takes[0] > theirs.anchor and takes[0] > link.source.kept:
        start = takes[0] - 1
    elif theirs.is_taking and is_mine_gone:
        start = theirs.index
    else:
        return False
    link.world.count["anchored"] += 1
    if is_mine_gone:
        mine.await_anchor(len(link.site.events))
    if theirs.index < link.source.kept:
        theirs.await_anchor(start)
    return True


def is_waiting(link: SimulatedLink) -> bool:
    """Whether a book waits for an anchor that no link is about to write."""
    mine, theirs = link.mine, link.theirs
    has_read = mine.index == len(link.site.events) and theirs.index == len(link.source.events)
    is_awaiting = mine.awaits_anchor or (theirs.awaits_anchor and not mine.is_taking)
    return is_awaiting and has_read and not is_order_pending(link) and not theirs.is_taking


def plan_anchor(link: SimulatedLink) -> Plan:
    mine, site = link.mine, link.site
    base = LinkBase(mine.record, mine.number, mine.index, mine.clock)  # of a book that has read the log
    if mine.awaits_anchor or mine.record is None:
        name = next(iter(sorted(site.names)), None)
        base = base_of_record(name, stored_record(site), len(site.events))
    if is_reset_due(mine, link.theirs):
        return plan_reset(mine, base, link.theirs.anchor)
    return plan_take(mine, base, len(link.source.events))


def take_state(link: SimulatedLink) -> Iterator[None]:
    """Copy the other site, write what differs, and end."""
    mine, theirs, rng = link.mine, link.theirs, link.world.rng
    if not is_reset(mine, theirs):
        yield
        return
    at = len(link.source.events)
    there = copy_of(link.source)
    for _ in range(rng.choice([0, 3, 20]) if link.world.is_faulty else 0):
        yield
    read, here = len(link.site.events), copy_of(link.site)
    while mine.index < read or theirs.index < at:
        yield
    keys = sorted(key for key in {*there, *here} if there.get(key) != here.get(key))
    size = rng.choice([1, 3])
    for begin in range(0, len(keys), size):
        plan = plan_page(mine, keys[begin : begin + size], at)
        if plan is None:
            continue
        if not (yield from link.write(plan)) or mine.needs:
            return
    if mine.is_taking and is_reset(mine, theirs) and theirs.anchor <= at:
        yield from link.write(plan_end(mine, theirs, at))


def copy_of(site: SimulatedSite) -> dict[bytes, Value]:
    return {key: rows[-1][1] for key, rows in site.history.items() if rows[-1][1]}


def execute_step(site: SimulatedSite, index: int, record: LinkRecord, stamp: int) -> None:
    """What a step means for the values that the sites have in the end."""
    if record.step in (StepKind.TAKE, StepKind.RESET):
        site.anchor, site.is_taking = index, record.step is StepKind.TAKE
        site.reference_clock = max(record.own_clock, stamp)
    elif record.step is StepKind.END:
        site.is_taking = False
        site.reference_clock = max(site.reference_clock, record.clock + 1)
        other = site.world.sites[record.site]
        site.local = [each for each in site.local if each[1].at > site.anchor]
        other.local = [each for each in other.local if each[1].at > record.to]
        site.local += [(key, BASE, other.value(key, record.to)) for key in other.history]
        lost = {key for key in site.history if key not in other.history}
        site.local += [(key, BASE, frozenset()) for key in lost]
