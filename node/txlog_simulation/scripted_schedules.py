"""Schedules of several masters for rules that chance alone would hardly ever try: who does what to whom, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txlog.wire import messages as wire
from txlog.wire.messages import AcceptView, Hello, HelloReply, Post
from txlog_simulation.process_states import UP
from txlog_simulation.run_plan import PlannedFault, PlannedWork

if TYPE_CHECKING:
    from txlog_simulation.simulated_master import SimulatedMaster
    from txlog_simulation.simulation import Simulation

MAJORITY_MOVES = "majority-moves"
SCRIPTED_FAULTS = ("outbid", "succession", "flap", MAJORITY_MOVES)


def run_schedule(world: Simulation, fault: PlannedFault) -> None:
    """The schedule of this kind begins now; two masters are too few for most."""
    if world.plan.masters < 3 and fault.kind != "succession":
        return
    match fault.kind:
        case "outbid" if fault.size % 2:
            _outbid(world, fault)
        case "outbid":
            _crossing_proposals(world, fault)
        case "succession":
            _succession(world, fault)
        case "flap":
            _flap(world, fault)
        case _:
            _majority_moves(world, fault)


def _links_between(one: int, other: int) -> list[tuple[int, int]]:
    return [(one, other), (other, one)]


def _schedule_work(world: Simulation, slot: int, at_ms: int, many: int = 3) -> None:
    world.schedule(at_ms, world.submit_work, PlannedWork(at_ms, slot, many, False, False, False))


def _outbid(world: Simulation, fault: PlannedFault) -> None:
    """What makes a forgotten promise do harm (rule 34). The first master is cut off; the second proposes a view to the
    third, has its report, accepts the view durably, and is cut off before anybody hears of it. Then the first and the
    third find each other. They have a majority, and a proposal of the first has a lower number than that view: the
    third must not go along. ``size``: whether it crashes in between, and whether its disk is slow then."""
    first, second, third = 0, 1, 2
    plan, machine = world.plan, world.simulated_masters
    for other in (second, third):
        world.cut_until_healed(_links_between(first, other))

    def stall() -> None:
        machine[third].disk_stalls_until = world.now_ms + 60

    def spring() -> None:
        if world.healing:
            return
        world.coverage["outbid"] += 1
        now_ms = world.now_ms
        world.cut(_links_between(second, third) + _links_between(second, first), now_ms + 12 * plan.round_timeout_ms)
        world.restore_links(_links_between(first, third))
        if fault.size % 3:
            world.schedule(now_ms, world.crash_for, machine[third], now_ms + 10)
        for later_ms in range(2, 9, 2):
            for slot in (first, third):
                _schedule_work(world, slot, now_ms + later_ms * plan.round_timeout_ms)

    if fault.size % 3 == 2:
        machine[third].record_traps["ViewPromised"] = stall
    machine[second].record_traps["ViewAccepted"] = spring


def _crossing_proposals(world: Simulation, fault: PlannedFault) -> None:
    """What makes an accept or an install do harm that comes behind a higher promise (rule 34). All are apart; the first
    finds the second, which does not know that it is heard, and is cut off as soon as it has accepted (``size``:
    installed) a view of the two. The third finds the second and has its report; while its own accept is on the way, the
    first is back with the view that the second has stopped."""
    first, second, third = 0, 1, 2
    plan, machine = world.plan, world.simulated_masters
    between, kind = _links_between(first, second), "ViewInstalled" if fault.size % 4 else "ViewAccepted"
    for links in (between, _links_between(first, third), _links_between(second, third)):
        world.cut_until_healed(links)
    losing = world.network.losing
    losing[first, second] = _acknowledges_receiver

    def part() -> None:
        world.cut_until_healed([(first, second)])
        world.restore_links([(third, second)])
        machine[second].record_traps["ViewPromised"] = cross

    def cross() -> None:
        if world.healing:
            return
        world.coverage["crossing"] += 1
        now_ms = world.now_ms
        del losing[first, second]
        losing[third, second] = lambda data: isinstance(wire.decode("", data), AcceptView)
        world.restore_links([(first, second)])
        world.schedule(now_ms + 45 + 2 * max(plan.near_ms, plan.far_ms), losing.clear)
        if kind == "ViewAccepted":  # it would propose again at once
            machine[second].record_traps[kind] = losing.clear
            machine[first].record_traps["ViewInstalled"] = lambda: world.cut(
                between, world.now_ms + 3 * plan.round_timeout_ms
            )
        for later_ms in (1, 1 + fault.size % 8):
            for slot in (first, second):
                _schedule_work(world, slot, now_ms + later_ms)

    machine[first].record_traps[kind] = part
    begin_ms = world.now_ms + 4 * plan.round_timeout_ms
    world.schedule(begin_ms, world.restore_links, [(second, third)])  # it is told that the second hears nobody
    world.schedule(begin_ms + 60, losing.update, {(second, third): _carries_connectivity})
    world.schedule(begin_ms + 60, world.restore_links, [(first, second)])
    world.schedule(begin_ms + 120, world.restore_links, [(second, first)])


def _carries_connectivity(data: bytes) -> bool:
    return isinstance(wire.decode("", data), Hello | Post)


def _acknowledges_receiver(data: bytes) -> bool:
    """Whether the receiver can tell from this message that its sender hears it."""
    match wire.decode("", data):
        case Hello(peers_heard=hears):
            return bool(hears)
        case HelloReply() | Post():
            return True
        case _:
            return False


def _succession(world: Simulation, fault: PlannedFault) -> None:
    """What makes a proof that nobody can vouch for do harm (rule 27): one master lets all others go as down and works
    on alone; then it ends, too, and they come back and are told so. Nobody of them knows what it went on to."""
    plan, last = world.plan, world.simulated_masters[fault.a]
    others = [machine for machine in world.simulated_masters if machine is not last]
    if last.state != UP:
        return
    world.coverage["succession"] += 1
    now_ms, round_ms = world.now_ms, plan.round_timeout_ms
    end_ms = now_ms + 5 * round_ms
    for other in others:
        process = other.last_seen
        world.crash_for(other, end_ms + 5)
        world.schedule(now_ms + 5, last.on_peer_down, other, *process)
        world.schedule(now_ms + 2 * round_ms, last.on_peer_down, other, *process)
    for at_ms in (now_ms + 3 * round_ms, now_ms + 4 * round_ms):
        _schedule_work(world, last.slot, at_ms)
    world.schedule(end_ms, _end_succession, world, last, others, fault.size % 3 == 0)


def _end_succession(world: Simulation, last: SimulatedMaster, others: list[SimulatedMaster], gently: bool) -> None:
    if world.healing or last.state != UP:
        return
    process, now_ms, round_ms = last.last_seen, world.now_ms, world.plan.round_timeout_ms
    back_ms = now_ms + 14 * round_ms
    if gently:
        last.stop_gracefully(last.incarnation, now_ms + 60)
        world.schedule(now_ms + 95, world.crash_for, last, back_ms)
    else:
        world.crash_for(last, back_ms)
    for other in others:
        for rounds in (1, 3, 7):
            world.schedule(now_ms + 100 + rounds * round_ms, other.on_peer_down, last, *process)
        _schedule_work(world, other.slot, now_ms + 10 * round_ms)
        _schedule_work(world, other.slot, now_ms + 12 * round_ms)


def _flap(world: Simulation, fault: PlannedFault) -> None:
    """What makes parked transactions do harm that enter the queue (protocol section 3). Two masters and a third are
    apart and go on; the third is heard by one of the two for a moment, while the other is away. ``size``: whether that
    one stays away, which is a split within a split."""
    plan, away = world.plan, fault.a
    one, other = [slot for slot in range(plan.masters) if slot != away][:2]
    now_ms = world.now_ms
    apart_ms = now_ms + plan.max_peer_lag_ms + 4 * plan.round_timeout_ms + 150
    met_ms = apart_ms + plan.max_peer_lag_ms // 3
    end_ms = met_ms + 8 * plan.round_timeout_ms
    back_ms = met_ms if fault.size % 3 else apart_ms + plan.max_peer_lag_ms + 4 * plan.round_timeout_ms + 100
    world.cut([pair for slot in range(plan.masters) if slot != away for pair in _links_between(away, slot)], apart_ms)
    world.cut(_links_between(away, other), end_ms)
    world.schedule(apart_ms - 20, world.cut, _links_between(one, other), back_ms)
    if back_ms > met_ms:
        world.cut(_links_between(away, one), back_ms)
    for slot in range(plan.masters):
        for at_ms in (apart_ms - 60, apart_ms - 30):
            _schedule_work(world, slot, at_ms)
    world.schedule(met_ms - 1, world.cut, _links_between(away, one), end_ms)
    for at_ms in (met_ms + 20, met_ms + 2 * plan.round_timeout_ms):
        _schedule_work(world, one, at_ms)
        _schedule_work(world, other, at_ms + 3)


def _majority_moves(world: Simulation, fault: PlannedFault) -> None:
    """What makes a branch win by its decisions and not by its votes (rule S12). Three of five masters go on and decide.
    Then one of them is apart from both others, and afterwards meets the two that lack the decisions. ``a``: that one;
    ``size``: how long the three are together after clients have written."""
    plan, moving = world.plan, fault.a
    rest = [slot for slot in range(plan.masters) if slot != moving]
    deciding, lacking = rest[:2], rest[2:]
    now_ms = world.now_ms
    view_ms = plan.max_peer_lag_ms + 4 * plan.round_timeout_ms + 150  # until those that are left have a view
    apart_ms = now_ms + view_ms
    moves_ms = apart_ms + 40 + 2 * fault.size
    meets_ms = moves_ms + view_ms
    end_ms = meets_ms + view_ms
    world.cut([pair for a in deciding for b in lacking for pair in _links_between(a, b)], end_ms)
    world.cut([pair for b in lacking for pair in _links_between(moving, b)], meets_ms)
    world.schedule(moves_ms, world.cut, [pair for a in deciding for pair in _links_between(moving, a)], end_ms)
    for slot in (*deciding, moving):
        for at_ms in (apart_ms - 20, apart_ms, apart_ms + 20):
            _schedule_work(world, slot, at_ms)
    for slot in lacking:
        _schedule_work(world, slot, apart_ms, 1 + fault.size % 5)
