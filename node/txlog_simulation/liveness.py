"""When everything is healed, how soon must all be good? (rule 32)"""

from __future__ import annotations

from typing import TYPE_CHECKING

from txlog_simulation.fault_profiles import MEMBERS_PROFILE, ORDERS_SHARES
from txlog_simulation.journal_repair import is_repairable
from txlog_simulation.membership_faults import expected_members
from txlog_simulation.process_states import UP
from txlog_simulation.run_plan import RunPlan
from txlog_simulation.simulated_master import SimulatedMaster

if TYPE_CHECKING:
    from txlog_simulation.simulation import Simulation

ROUNDS = 12
"""Round trips from everything lost to everything stable: who, known, propose, accepted, install (founding), a post, a
fetch, its answer, a post that shows it, one that adds, one that tells of it, one that settles."""
RESENDS = 4
"""What was sent before the heal is taken for lost after one resend time; a fetch may ask two silent holders in turn;
one more for the order in which these begin."""

HELLO_MS = 200
"""Between two questions of a master that is not in its place, and two sends of one step of a change of views; a master
waits its rank in round time-outs before it begins one, and gives one up that does not go on for a round time-out."""
SILENT_ROUNDS = 3
"""Of round time-outs, after which those with a majority go on."""
REPEAT_MS = 330
"""``runtime/journal_repair.py`` asks the next master after 300 ms of a clock that may be slow."""


def bound_ms(plan: RunPlan, chain: bool) -> int:
    """Milliseconds from the heal to all good. A master that cannot reach everybody waits a round time-out before
    it votes; in a chain, news travels one idle interval a hop at worst."""
    resend_ms = max(200, plan.round_timeout_ms // 2)
    round_ms = 2 * max(plan.far_ms, plan.near_ms) + 2 * plan.disk_ms + 4
    leftovers_ms = 600  # messages that were slow or repeated before the heal still arrive
    hops = plan.masters if chain else 1
    changes = 2 * (plan.masters + 1) * plan.round_timeout_ms + 12 * (HELLO_MS + round_ms)
    if plan.profile in (MEMBERS_PROFILE, *ORDERS_SHARES):  # what was begun goes on: one is taken out, one is let in
        changes *= 3
    decisions = 4 * plan.masters * plan.round_timeout_ms if plan.synchronous else 0  # by rank, and a view of new votes
    return (
        decisions
        + leftovers_ms
        + changes
        + plan.round_timeout_ms
        + RESENDS * resend_ms
        + ROUNDS * round_ms
        + 3 * hops * (plan.idle_interval_ms + round_ms)
    )


def term_ms(plan: RunPlan) -> int:
    """How long a member may be silent before the others go on without it, and until their backup stands."""
    silent_ms = SILENT_ROUNDS * plan.round_timeout_ms
    return (silent_ms if plan.majority else max(plan.max_peer_lag_ms, silent_ms)) + 2 * plan.round_timeout_ms


def fork_detection_ms(plan: RunPlan) -> int:
    """Milliseconds from the heal until a forked log has been named: a start's round time-out, then two idle rounds
    that arrive, and one fetch of what their counters wait for."""
    return 600 + plan.round_timeout_ms + 2 * max(200, plan.round_timeout_ms // 2) + 3 * plan.idle_interval_ms


def repair_ms(world: Simulation) -> int:
    """How much longer it takes when journals were damaged: each question may meet masters that do not know, one after
    the other, and what was mended is started once more."""
    if not any(machine.flipped for machine in world.simulated_masters):
        return 0
    questions = 2 * max(1, *(len(m.repair.damage_names) if m.repair else 1 for m in world.simulated_masters))
    return world.plan.round_timeout_ms + questions * world.plan.masters * REPEAT_MS


def stays_damaged(world: Simulation) -> bool:
    """Whether what a damaged master asks for is at no master that runs: it stays stopped (rule 28)."""
    return any(machine.repair is not None and not is_repairable(machine) for machine in world.simulated_masters)


def has_converged(world: Simulation) -> bool:
    """Every transaction that any master holds is in every log and stable everywhere."""
    length = len(world.log.longest)
    names = expected_members(world)
    if names is None:
        return False
    for machine in world.simulated_masters:
        if machine.name not in names:
            continue
        if machine.state != UP or machine.executor is None or machine.pending_records:
            return False
        core = machine.executor.core
        agreement = core.log_state
        if (
            agreement is None
            or agreement.stable != length
            or machine.durable_state.stable != length
            or agreement.unstamped
        ):
            return False
        if not core.views.is_active or len(core.peers) + 1 != len(names):
            return False
        if machine.durable_state.log_length != length or any(len(queue) for queue in agreement.queues):
            return False
    return not world.synchronous.is_waiting


def is_at_work(world: Simulation) -> bool:
    """All masters order transactions in one view of all of them, whatever they have not ordered yet."""
    names = expected_members(world)
    if names is None:
        return False
    cores = [m.executor.core for m in world.simulated_masters if m.name in names and m.state == UP and m.executor]
    return (
        len(cores) == len(names)
        and all(core.views.is_active and len(core.peers) + 1 == len(names) for core in cores)
        and len({core.views.number for core in cores}) == 1
    )


def has_converged_without(world: Simulation, deaf: str) -> bool:
    """Those that hear each other work in a view of their own, and all that their clients brought is stable there."""
    return has_converged_among([machine for machine in world.simulated_masters if machine.name != deaf])


def has_converged_among(others: list[SimulatedMaster]) -> bool:
    """These work in a view of their own, and all that their clients brought is stable there."""
    ends: set[tuple[int, bytes]] = set()
    for machine in others:
        if machine.state != UP or machine.executor is None or machine.pending_records:
            return False
        core = machine.executor.core
        agreement = core.log_state
        if agreement is None or agreement.unstamped or not core.views.is_active or core.views.newer_view is not None:
            return False
        if {peer.node for peer in core.peers} != {m.name for m in others if m is not machine}:
            return False
        length = agreement.log_index.length
        if (
            agreement.stable != length
            or machine.durable_state.stable != length
            or any(len(q) for q in agreement.queues)
        ):
            return False
        if machine.released_marks.synced < machine.released_marks.accepted:
            return False
        ends.add((length, agreement.log_index.hash))
    return len(ends) == 1


def has_left(machine: SimulatedMaster) -> bool:
    """It has left the latest view that it knows: it goes on with one that knows what followed, or with all of that view
    (rule 27), a deaf one included."""
    views = machine.executor.core.views if machine.executor is not None else None
    return views is not None and views.left == views.number


def describe_unconverged(world: Simulation) -> str:
    """What is missing where."""
    parts = []
    for machine in world.simulated_masters:
        agreement = machine.executor.core.log_state if machine.executor else None
        state = machine.executor.core.state if machine.executor else "mending" if machine.repair else machine.state
        waiting = {q.origin.node: len(q) for q in agreement.queues} if agreement else {}
        if machine.executor is not None:
            views = machine.executor.core.views
            state += (
                f" view={views.number}{'' if views.installed else '?'} promised={views.promised} {views.blocked_reason}"
            )
        durable = machine.durable_state
        parts.append(f"{machine.name} {state} log={durable.log_length} stable={durable.stable} queue={waiting}")
    return f"log={len(world.log.longest)}; " + "; ".join(parts)
