"""The smallest plan that still goes wrong: what a person reads instead of a whole seed.

Greedy: leave out faults, then work, by halves and then one by one; then make the rest plainer, and begin again until
nothing more can go. Every candidate is run anew; the number of runs and the time are bounded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from txlog_simulation.run_plan import PlannedWork, RunPlan

RUNS_MAX = 400
SECONDS_MAX = 40.0

PlanFails = Callable[[RunPlan], bool]
"""Whether a plan goes wrong in the same way."""
PlanStep = Callable[[RunPlan], RunPlan]
T = TypeVar("T")


class _BoundedCheck:
    """``fails`` until the bounds are reached; then nothing fails any more, so that what was found stands."""

    def __init__(self, fails: PlanFails, runs_max: int, seconds_max: float) -> None:
        self._fails = fails
        self._left = runs_max
        self._until = time.monotonic() + seconds_max

    def __call__(self, plan: RunPlan) -> bool:
        if self._left <= 0 or time.monotonic() > self._until:
            return False
        self._left -= 1
        return self._fails(plan)


def shrink(plan: RunPlan, fails: PlanFails, runs_max: int = RUNS_MAX, seconds_max: float = SECONDS_MAX) -> RunPlan:
    """The smallest plan found that fails as ``plan`` does."""
    bounded = _BoundedCheck(fails, runs_max, seconds_max)
    before = None
    while plan != before:
        before = plan
        plan = _with_fewer_events(plan, bounded)
        for step in _simpler_plans(plan):
            candidate = step(plan)
            if candidate != plan and bounded(candidate):
                plan = candidate
    return plan


def _with_fewer_events(plan: RunPlan, fails: PlanFails) -> RunPlan:
    faults = _smallest_subset(plan.faults, lambda some: fails(replace(plan, faults=tuple(some))))
    plan = replace(plan, faults=tuple(faults))
    work = _smallest_subset(plan.work, lambda some: fails(replace(plan, work=tuple(some))))
    return replace(plan, work=tuple(work))


def _smallest_subset(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> Sequence[T]:
    size = len(items)
    while size:
        at = 0
        while at < len(items):
            rest = [*items[:at], *items[at + size :]]
            if fails(rest):
                items = rest
            else:
                at += size
        size //= 2
    return items


def _simpler_plans(plan: RunPlan) -> Iterator[PlanStep]:
    """Single steps towards an ordinary cluster, the telling ones first."""
    for masters in range(2, plan.masters):
        yield partial(with_masters, masters)
    yield lambda p: replace(p, links=(), partition=())
    yield lambda p: replace(p, links=())
    yield lambda p: replace(p, loss=0.0)
    yield lambda p: replace(p, repeat=0.0)
    yield lambda p: replace(p, jitter_ms=0, reorder=False)
    yield lambda p: replace(p, disk_ms=0)
    yield lambda p: replace(p, far_ms=1, near_ms=1)
    yield lambda p: replace(p, clock_offsets_ms=(0,) * p.masters)
    yield lambda p: replace(p, clock_rates=(1.0,) * p.masters)
    yield lambda p: replace(p, weights=(1,) * p.masters)
    yield lambda p: replace(p, supervised=False)
    yield lambda p: replace(p, flow=())
    yield lambda p: replace(p, loop=p.loop._replace(stalls=0.0) if p.loop else None)
    yield lambda p: replace(p, loop=p.loop._replace(sync_us=(50, 900)) if p.loop else None)
    yield lambda p: replace(p, strategy_changes=())
    yield lambda p: replace(p, clock_jumps=())
    for at in range(len(plan.clients)):
        yield partial(_without_client, at)
    yield _with_early_end
    for at in range(len(plan.work)):
        yield partial(_with_work, at, lambda work: work._replace(many=1))
        yield partial(_with_work, at, lambda work: work._replace(keyed=False, repeat=False, skip=False))


def with_masters(masters: int, plan: RunPlan) -> RunPlan:
    """The plan with so many masters at most."""
    if masters >= plan.masters:
        return plan
    return replace(
        plan,
        masters=masters,
        centres=plan.centres[:masters],
        weights=plan.weights[:masters],
        clock_offsets_ms=plan.clock_offsets_ms[:masters],
        clock_rates=plan.clock_rates[:masters],
        links=tuple(link for link in plan.links if max(link) < masters),
        work=tuple(work for work in plan.work if work.a < masters),
        faults=tuple(fault for fault in plan.faults if max(fault.a, fault.b) < masters),
        late_master=plan.late_master if plan.late_master < masters else -1,
        deaf_master=plan.deaf_master if plan.deaf_master < masters else -1,
        preferred_strategies=plan.preferred_strategies[:masters],
        strategy_changes=tuple(one for one in plan.strategy_changes if one[1] < masters),
        clock_jumps=tuple(one for one in plan.clock_jumps if one[1] < masters),
        clients=tuple(client._replace(a=client.a % masters) for client in plan.clients),
        absent_at_start=tuple(slot for slot in plan.absent_at_start if slot < masters),
        partition=((0,), tuple(range(1, masters))) if plan.partition and masters > 1 else (),
    )


def _with_early_end(plan: RunPlan) -> RunPlan:
    times = [300, *(work.at_ms + 150 for work in plan.work), *(fault.at_ms + 150 for fault in plan.faults)]
    return replace(plan, safety_ms=min(plan.safety_ms, max(times)))


def _with_work(at: int, change: Callable[[PlannedWork], PlannedWork], plan: RunPlan) -> RunPlan:
    if at >= len(plan.work):  # an earlier step has left less of it
        return plan
    return replace(plan, work=(*plan.work[:at], change(plan.work[at]), *plan.work[at + 1 :]))


def _without_client(at: int, plan: RunPlan) -> RunPlan:
    return replace(plan, clients=(*plan.clients[:at], *plan.clients[at + 1 :]))
