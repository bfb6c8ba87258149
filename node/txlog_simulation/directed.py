"""Schedules of several masters for rules that chance alone would hardly ever try: who does what to whom, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txlog.wire import messages as wire
from txlog.wire.messages import AcceptView, Hello, HelloReply, Post
from txlog_simulation.machine import UP
from txlog_simulation.plan import Fault, Work

if TYPE_CHECKING:
    from txlog_simulation.machine import Machine
    from txlog_simulation.world import World

DIRECTED = ("outbid", "succession", "flap")


def begin(world: World, fault: Fault) -> None:
    """The schedule of this kind begins now; two masters are too few for most."""
    if world.plan.masters < 3 and fault.kind != "succession":
        return
    match fault.kind:
        case "outbid" if fault.size % 2:
            _outbid(world, fault)
        case "outbid":
            _crossing(world, fault)
        case "succession":
            _succession(world, fault)
        case _:
            _flap(world, fault)


def _links(one: int, other: int) -> list[tuple[int, int]]:
    return [(one, other), (other, one)]


def _work(world: World, slot: int, at_ms: int, many: int = 3) -> None:
    world.at(at_ms, world.work, Work(at_ms, slot, many, False, False, False))


def _outbid(world: World, fault: Fault) -> None:
    """What makes a forgotten promise do harm (rule 34). The first master is cut off; the second proposes a view to the
    third, has its report, accepts the view durably, and is cut off before anybody hears of it. Then the first and the
    third find each other. They have a majority, and a proposal of the first has a lower number than that view: the
    third must not go along. ``size``: whether it crashes in between, and whether its disk is slow then."""
    first, second, third = 0, 1, 2
    plan, machine = world.plan, world.machines
    for other in (second, third):
        world.hold_cut(_links(first, other))

    def stall() -> None:
        machine[third].disk_stalls_until = world.now_ms + 60

    def spring() -> None:
        if world.healing:
            return
        world.met["outbid"] += 1
        now_ms = world.now_ms
        world.cut(_links(second, third) + _links(second, first), now_ms + 12 * plan.round_timeout_ms)
        world.mend(_links(first, third))
        if fault.size % 3:
            world.at(now_ms, world.crash_for, machine[third], now_ms + 10)
        for later_ms in range(2, 9, 2):
            for slot in (first, third):
                _work(world, slot, now_ms + later_ms * plan.round_timeout_ms)

    if fault.size % 3 == 2:
        machine[third].traps["Promised"] = stall
    machine[second].traps["ViewAccepted"] = spring


def _crossing(world: World, fault: Fault) -> None:
    """What makes an accept or an install do harm that comes behind a higher promise (rule 34). All are apart; the first
    finds the second, which does not know that it is heard, and is cut off as soon as it has accepted (``size``:
    installed) a view of the two. The third finds the second and has its report; while its own accept is on the way, the
    first is back with the view that the second has stopped."""
    first, second, third = 0, 1, 2
    plan, machine = world.plan, world.machines
    between, kind = _links(first, second), "ViewInstalled" if fault.size % 4 else "ViewAccepted"
    for links in (between, _links(first, third), _links(second, third)):
        world.hold_cut(links)
    losing = world.network.losing
    losing[first, second] = _tells_that_it_hears

    def part() -> None:
        world.hold_cut([(first, second)])
        world.mend([(third, second)])
        machine[second].traps["Promised"] = cross

    def cross() -> None:
        if world.healing:
            return
        world.met["crossing"] += 1
        now_ms = world.now_ms
        del losing[first, second]
        losing[third, second] = lambda data: isinstance(wire.decode("", data), AcceptView)
        world.mend([(first, second)])
        world.at(now_ms + 45 + 2 * max(plan.near_ms, plan.far_ms), losing.clear)
        if kind == "ViewAccepted":  # it would propose again at once
            machine[second].traps[kind] = losing.clear
            machine[first].traps["ViewInstalled"] = lambda: world.cut(between, world.now_ms + 3 * plan.round_timeout_ms)
        for later_ms in (1, 1 + fault.size % 8):
            for slot in (first, second):
                _work(world, slot, now_ms + later_ms)

    machine[first].traps[kind] = part
    begin_ms = world.now_ms + 4 * plan.round_timeout_ms
    world.at(begin_ms, world.mend, [(second, third)])  # it is told that the second hears nobody
    world.at(begin_ms + 60, losing.update, {(second, third): _tells_whom_it_hears})
    world.at(begin_ms + 60, world.mend, [(first, second)])
    world.at(begin_ms + 120, world.mend, [(second, first)])


def _tells_whom_it_hears(data: bytes) -> bool:
    return isinstance(wire.decode("", data), Hello | Post)


def _tells_that_it_hears(data: bytes) -> bool:
    """Whether the receiver can tell from this message that its sender hears it."""
    match wire.decode("", data):
        case Hello(peers_heard=hears):
            return bool(hears)
        case HelloReply() | Post():
            return True
        case _:
            return False


def _succession(world: World, fault: Fault) -> None:
    """What makes a proof that nobody can vouch for do harm (rule 27): one master lets all others go as down and works
    on alone; then it ends, too, and they come back and are told so. Nobody of them knows what it went on to."""
    plan, last = world.plan, world.machines[fault.a]
    others = [machine for machine in world.machines if machine is not last]
    if last.state != UP:
        return
    world.met["succession"] += 1
    now_ms, round_ms = world.now_ms, plan.round_timeout_ms
    end_ms = now_ms + 5 * round_ms
    for other in others:
        process = other.last_seen
        world.crash_for(other, end_ms + 5)
        world.at(now_ms + 5, last.told_down, other, *process)
        world.at(now_ms + 2 * round_ms, last.told_down, other, *process)
    for at_ms in (now_ms + 3 * round_ms, now_ms + 4 * round_ms):
        _work(world, last.slot, at_ms)
    world.at(end_ms, _end, world, last, others, fault.size % 3 == 0)


def _end(world: World, last: Machine, others: list[Machine], gently: bool) -> None:
    if world.healing or last.state != UP:
        return
    process, now_ms, round_ms = last.last_seen, world.now_ms, world.plan.round_timeout_ms
    back_ms = now_ms + 14 * round_ms
    if gently:
        last.stop_gently(last.life, now_ms + 60)
        world.at(now_ms + 95, world.crash_for, last, back_ms)
    else:
        world.crash_for(last, back_ms)
    for other in others:
        for rounds in (1, 3, 7):
            world.at(now_ms + 100 + rounds * round_ms, other.told_down, last, *process)
        _work(world, other.slot, now_ms + 10 * round_ms)
        _work(world, other.slot, now_ms + 12 * round_ms)


def _flap(world: World, fault: Fault) -> None:
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
    world.cut([pair for slot in range(plan.masters) if slot != away for pair in _links(away, slot)], apart_ms)
    world.cut(_links(away, other), end_ms)
    world.at(apart_ms - 20, world.cut, _links(one, other), back_ms)
    if back_ms > met_ms:
        world.cut(_links(away, one), back_ms)
    for slot in range(plan.masters):
        for at_ms in (apart_ms - 60, apart_ms - 30):
            _work(world, slot, at_ms)
    world.at(met_ms - 1, world.cut, _links(away, one), end_ms)
    for at_ms in (met_ms + 20, met_ms + 2 * plan.round_timeout_ms):
        _work(world, one, at_ms)
        _work(world, other, at_ms + 3)
