"""What one seed means: sizes, links, clocks, disks, work and faults, all drawn before the run begins (swarm).

A *profile* leaves some faults out and makes others frequent, so that each rule's safeguard is tried hard by a share
of the seeds. Times are milliseconds since the run began.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field, fields, replace
from random import Random
from typing import NamedTuple

from txlog_simulation.fault_profiles import (
    DEAF_FROM,
    DEAF_PROFILE,
    DEAF_SHARE,
    DIFFERING_PROFILES,
    DIFFERING_SHARE,
    DIRECTED_PROFILES,
    FOUNDINGS_PROFILE,
    MEMBERS_PROFILE,
    MEMBERS_SHARE,
    MIXES,
    ORDERS_PROFILE,
    ORDERS_SHARES,
    PARTED_LAG_MS,
    PARTITION_PROFILES,
    PROFILES,
    TERMINATING_FAULTS,
)
from txlog_simulation.old_journals import OldCluster

NAMES = ["a", "b", "c", "d", "e", "f", "g"]
DATA_CENTRES = ("uk", "us", "de", "jp")
_MONTH_MS = 30 * 86_400_000
BEGIN_MS = 250
"""Work and faults begin near here, so that most clusters are founded; some begin at once."""


class PlannedFault(NamedTuple):
    """``kind`` at ``at_ms`` to master ``a`` (and ``b``), for ``lasts_ms``; ``size`` means what the kind says."""

    at_ms: int
    kind: str
    a: int
    b: int
    lasts_ms: int
    size: int


class PlannedWork(NamedTuple):
    """A client brings ``many`` transactions to master ``a``. ``repeat``: with a key that was used before, at
    another master; ``skip``: one of them says that an earlier transaction is to be passed over."""

    at_ms: int
    a: int
    many: int
    keyed: bool
    repeat: bool
    skip: bool


class PlannedClient(NamedTuple):
    """A client with one write under a key. It sends it to master ``a`` and then to the next ones, until it is told of
    ``level``; it waits ``patience_ms`` for each answer. It sends the write once more ``again_ms`` later, if not 0."""

    at_ms: int
    a: int
    level: str
    patience_ms: int
    tries: int
    again_ms: int


class PlannedLoop(NamedTuple):
    """Masters run the shipped loop. ``sync_us``: how long a sync takes at least and at most. ``stalls``: the share of
    syncs that take much longer. ``batch_max``, ``in_flight_max``: the loop's limits of transactions and requests."""

    sync_us: tuple[int, int]
    stalls: float
    batch_max: int
    in_flight_max: int


@dataclass(frozen=True)
class RunPlan:
    """``links``: pairs (a, b) cut one way for good from ``links_ms`` on, once founded, healed or not; the rest stays
    connected. With a ``deaf_master`` master they are those to it: the others must come good while it is deaf, then
    all."""

    seed: int
    profile: str
    masters: int
    centres: tuple[int, ...]
    weights: tuple[int, ...]
    round_timeout_ms: int
    idle_interval_ms: int
    key_retention_ms: int
    near_ms: int
    far_ms: int
    jitter_ms: int
    loss: float
    repeat: float
    reorder: bool
    disk_ms: int
    segment_bytes: int
    clock_offsets_ms: tuple[int, ...]
    clock_rates: tuple[float, ...]
    supervised: bool
    proofs: float
    majority: bool
    max_peer_lag_ms: int
    strategy: str
    safety_ms: int
    links: tuple[tuple[int, int], ...]
    work: tuple[PlannedWork, ...]
    faults: tuple[PlannedFault, ...] = field(repr=False)
    late_master: int = -1
    """The master that is not there from the beginning."""
    links_ms: int = BEGIN_MS // 2
    deaf_master: int = -1
    absent_at_start: tuple[int, ...] = ()
    """Configured masters that do not start with the others."""
    partition: tuple[tuple[int, ...], ...] = ()
    """The sides of a split that comes when all else is healed, and lasts until those that go on are good."""
    preferred_strategies: tuple[str, ...] = ()
    """The strategy that each master prefers, where they differ; else all prefer ``strategy``."""
    strategy_changes: tuple[tuple[int, int, str], ...] = ()
    """When which master is told to prefer which other one (``txlog set splitRecovery``)."""
    clock_jumps: tuple[tuple[int, int, int], ...] = ()
    """When the clock of which master jumps, and by how many milliseconds: less than ``maxClockSkew``, or a month and
    more at one master only."""
    clients: tuple[PlannedClient, ...] = ()
    true_time: bool = False
    """Wall clocks advance with the time of the run, not a thousand times more slowly."""
    max_clock_skew_ms: int = 60_000
    liar: int = -1
    """The master that changes some of the messages that it sends; only what ends processes is judged then."""
    flow: tuple[int, ...] = ()
    """Work that goes on while the masters come good: every so many milliseconds, so many transactions at one of them.
    Empty: none."""
    old: OldCluster | None = None
    """The journals that the masters find when the run begins; None: empty disks."""
    loop: PlannedLoop | None = None
    """None: the simulator drives the executors itself."""
    synchronous: bool = False
    """Synchronous transactions are allowed, and clients bring some."""

    def network_ms(self, a: int, b: int) -> int:
        """How long a message takes from one master to another, when nothing is wrong."""
        return self.near_ms if self.centres[a] == self.centres[b] else self.far_ms

    def describe(self) -> str:
        """Every parameter on a few lines, then what happens when, for whoever reads a failing run."""
        plain = [f"{f.name}={getattr(self, f.name)}" for f in fields(self) if f.name not in ("work", "faults")]
        events = [
            (w.at_ms, f"{NAMES[w.a]} work {_format_event(w, ('many', 'keyed', 'repeat', 'skip'))}") for w in self.work
        ]
        for fault in self.faults:
            events.append(
                (fault.at_ms, f"{NAMES[fault.a]} {fault.kind} b={NAMES[fault.b]} {_format_event(fault, _SIZES)}")
            )
        lines = textwrap.wrap(" ".join(plain), 110, break_long_words=False, break_on_hyphens=False)
        return "\n".join([*lines, *(f"  {at_ms:>6} ms  {text}" for at_ms, text in sorted(events))])


_SIZES = ("lasts_ms", "size")


def _format_event(event: PlannedFault | PlannedWork, names: tuple[str, ...]) -> str:
    return " ".join(f"{name}={value}" for name in names if (value := getattr(event, name)))


def _strategy(rng: Random, seed: int, profile: str) -> str:
    """``None`` by a draw of its own: all the others of a seed stay what they were."""
    chosen = rng.choice(("Simple", "Smart", "Smart"))
    return "None" if profile == "splits" and Random(f"none {seed}").random() < 0.3 else chosen


def draw_plan(seed: int, only: str = "") -> RunPlan:
    """The plan of a seed (``only``: of one of these profiles, with commas between); the same for ever as long as this
    file is."""
    rng = Random(f"plan {seed}")
    names = [name for name in only.split(",") if name in PROFILES] if only else list(PROFILES)
    apart = _separate_profile(seed, only)
    profile = apart or rng.choices(names, [PROFILES[name][0] for name in names])[0]
    if not only and profile == DEAF_FROM and Random(f"deaf {seed}").random() < DEAF_SHARE:
        profile = DEAF_PROFILE
    orders = profile in ORDERS_SHARES
    deafened = profile == DEAF_PROFILE
    masters = _masters(rng, profile)
    late = masters - 1 if profile == MEMBERS_PROFILE and rng.random() < 0.7 else -1
    directed = profile in DIRECTED_PROFILES
    centres = rng.randint(1, min(4, masters))
    forgetful, forged, hearsay = (profile == name for name in ("forgetful", "forged", "hearsay"))
    steered = forgetful or forged or hearsay or directed
    safety_ms = 1600 if forgetful else rng.choice((900, 1200, 1600))
    if masters > 4:  # their posts grow with the square
        safety_ms = 900
    skewed = profile in ("clocks", "isolated") or (rng.random() < 0.4 and not hearsay)
    calm_network = forgetful or rng.random() < (0.9 if steered else 0.4)
    weights = tuple(rng.choice((1, 1, 1, 2, 3)) for _ in range(masters))
    if profile in ("splits", "duels", ORDERS_PROFILE, *DIRECTED_PROFILES):
        safety_ms = rng.choice((1600, 2400)) if profile != "flaps" else 2400
    if profile == "outbids":  # any two of the three are a majority
        weights = (1, 1, 1)
    initial = weights[:late] if late >= 0 else weights
    deaf = rng.randrange(masters) if deafened else -1
    majority = (
        profile not in ("splits", "successions", "flaps")
        and 2 * max(initial) < sum(initial)
        and not forged
        and rng.random() < _majority_share(profile)
    )
    duels = profile == "duels" or directed or orders
    far_ms = rng.choice((1, 5, 20) if forged or hearsay or duels else (1, 5, 20, 60))
    jitter_ms = rng.choice((0, 2)) if steered or duels else rng.choice((0, 2, 10, 40))
    disk_ms = (
        15 if forgetful else rng.choice((0, 1, 3)) if directed else rng.choice((0, 1) if hearsay else (0, 0, 1, 3, 15))
    )
    round_timeout_ms = (
        100 if forgetful or hearsay or duels else rng.choice((100, 200) if forged else (100, 200, 300, 600))
    )
    if not steered:  # a change of views needs answers within it
        round_timeout_ms = max(round_timeout_ms, 4 * far_ms + 3 * jitter_ms + 2 * disk_ms)
    drawn = RunPlan(
        seed=seed,
        profile=profile,
        masters=masters,
        centres=tuple(sorted(rng.randrange(centres) for _ in range(masters))),
        weights=weights,
        round_timeout_ms=round_timeout_ms,
        idle_interval_ms=60 if forgetful else min(rng.choice((50, 100, 200, 400)), round_timeout_ms * 3 // 4),
        key_retention_ms=rng.choice((100, 1000, 24 * 3600 * 1000)),
        near_ms=rng.choice((1, 1, 2)),
        far_ms=far_ms,
        jitter_ms=jitter_ms,
        loss=0.0 if calm_network else rng.choice((0.01, 0.05, 0.1, 0.3)),
        repeat=0.0 if calm_network else rng.choice((0.0, 0.02, 0.2)),
        reorder=rng.random() < 0.6,
        disk_ms=disk_ms,
        segment_bytes=rng.choice((4 << 10, 24 << 10)) if profile != "disks" else 4 << 10,
        clock_offsets_ms=tuple(_offset(rng, skewed) for _ in range(masters)),
        clock_rates=tuple(1.0 if hearsay else rng.choice((1.0, 1.0, 0.98, 1.02)) for _ in range(masters)),
        supervised=rng.random() < 0.5,
        proofs=0.0 if forged or (orders and seed % 3) else rng.choice((0.0, 0.5, 1.0)),
        majority=majority,
        max_peer_lag_ms=300
        if profile == "flaps"
        else rng.choice((300, 500))
        if profile in ("splits", "duels", MEMBERS_PROFILE, DEAF_PROFILE) or (profile == ORDERS_PROFILE and seed % 2)
        else 60_000,
        strategy=_strategy(rng, seed, profile),
        safety_ms=safety_ms,
        links=_links(rng, masters, profile, deaf),
        work=_work(rng, masters, safety_ms, profile),
        faults=_faults(rng, profile, masters, safety_ms),
        late_master=late,
        links_ms=rng.randrange(BEGIN_MS // 2, safety_ms) if deafened else BEGIN_MS // 2,
        deaf_master=deaf,
        absent_at_start=_away(rng, masters) if profile == FOUNDINGS_PROFILE else (),
    )
    drawn = replace(_with_differing_strategies(drawn), clock_jumps=_clock_jumps(drawn))
    return replace(drawn, partition=_with_partition(drawn)) if profile in PARTITION_PROFILES else drawn


def _masters(rng: Random, profile: str) -> int:
    masters = rng.choices((2, 3, 4, 5, 6, 7), (16, 24, 6, 2, 1, 1))[0]
    if profile == "chain":
        return rng.choice((3, 3, 4))
    if profile in ("forgetful", "forged", "hearsay"):
        return rng.choice((3, 3, 3, 4))
    if profile in ("majority", "duels", MEMBERS_PROFILE, DEAF_PROFILE):
        return rng.choice((3, 3, 4, 5))
    if profile in ORDERS_SHARES:
        return rng.choice((2, 3, 3, 3, 4, 5))
    if profile == "successions":
        return rng.choice((2, 3))
    return 3 if profile in DIRECTED_PROFILES else masters


def _majority_share(profile: str) -> float:
    """How often ``splitMode`` is ``Majority``, where the weights allow it."""
    if profile == "outbids":
        return 1.0
    return 0.7 if profile in ("majority", "duels") else 0.5 if profile in ORDERS_SHARES else 0.3


def _separate_profile(seed: int, only: str) -> str:
    """The profile, where it is drawn apart from the others; empty for theirs."""
    if only:
        return only if only in MIXES else ""
    if Random(f"members {seed}").random() < MEMBERS_SHARE:
        return MEMBERS_PROFILE
    share = Random(f"orders {seed}").random()
    if share < ORDERS_SHARES[ORDERS_PROFILE]:
        return ORDERS_PROFILE
    return FOUNDINGS_PROFILE if share < sum(ORDERS_SHARES.values()) else ""


def _away(rng: Random, masters: int) -> tuple[int, ...]:
    """Mostly not all of them can answer when the cluster is to begin."""
    return tuple(sorted(rng.sample(range(masters), rng.choice((0, 1, 1, 1, min(2, masters - 1))))))


def _with_differing_strategies(plan: RunPlan) -> RunPlan:
    """By draws of their own: all the others of a seed stay what they were."""
    chance = Random(f"preferences {plan.seed}")
    if plan.profile not in DIFFERING_PROFILES or plan.majority or chance.random() >= DIFFERING_SHARE:
        return plan
    choices = ("Simple", "Smart", "None")
    preferring = [
        (chance.randrange(BEGIN_MS, plan.safety_ms), chance.randrange(plan.masters), chance.choice(choices))
        for _ in range(chance.choice((0, 1, 3)))
    ]
    prefers = tuple(chance.choice(choices) for _ in range(plan.masters))
    return replace(plan, preferred_strategies=prefers, strategy_changes=tuple(sorted(preferring)))


def _clock_jumps(plan: RunPlan) -> tuple[tuple[int, int, int], ...]:
    """By draws of their own: all the others of a seed stay what they were."""
    chance = Random(f"clock jumps {plan.seed}")
    if plan.profile != "clocks" or chance.random() < 0.2:
        return ()
    wrong, jumps = chance.randrange(plan.masters), []
    for _ in range(chance.choice((1, 2, 3))):
        slot, size_ms = chance.randrange(plan.masters), chance.choice((59_000, -59_000, 61_000, -61_000, -_MONTH_MS))
        if chance.random() < 0.6:
            slot, size_ms = wrong, chance.choice((_MONTH_MS, 12 * _MONTH_MS, 12 * _MONTH_MS))
        jumps.append((chance.randrange(BEGIN_MS, plan.safety_ms), slot, size_ms))
        if chance.random() < 0.3:  # somebody puts it right
            jumps.append((chance.randrange(jumps[-1][0], plan.safety_ms + 1), slot, -size_ms))
    return tuple(sorted(jumps))


def _with_partition(plan: RunPlan) -> tuple[tuple[int, ...], ...]:
    """By draws of its own: all the others of a seed stay what they were."""
    if not plan.majority and plan.max_peer_lag_ms > PARTED_LAG_MS:
        return ()
    chance, everybody = Random(f"parted {plan.seed}"), range(plan.masters)
    if chance.random() >= 0.5:
        return ()
    one = tuple(sorted(chance.sample(everybody, chance.randint(1, plan.masters - 1))))
    other = tuple(slot for slot in everybody if slot not in one)
    third = Random(f"third side {plan.seed}")
    if plan.masters == 2 or third.random() >= 0.3:
        return one, other
    small, large = sorted((one, other), key=len)
    cut = third.randint(1, len(large) - 1)
    return small, large[:cut], large[cut:]


def _offset(rng: Random, skewed: bool) -> int:
    return rng.choice((0, 5, -5, 300, -300, 5000, -5000)) if skewed else 0


def _links(rng: Random, masters: int, profile: str, deaf: int) -> tuple[tuple[int, int], ...]:
    if deaf >= 0:
        return tuple((other, deaf) for other in range(masters) if other != deaf)
    return _lasting_cuts(rng, masters) if profile == "chain" else ()


def _lasting_cuts(rng: Random, masters: int) -> tuple[tuple[int, int], ...]:
    """What posts relayed by others must make good (rule 22): a chain, two disjoint cuts, or one lost link."""
    shape = rng.choice(("chain", "chain", "disjoint", "one"))
    order = list(range(masters))
    rng.shuffle(order)
    if shape == "chain":
        near = {(order[i], order[i + 1]) for i in range(masters - 1)}
        lost = [(a, b) for a in order for b in order if a != b and (a, b) not in near and (b, a) not in near]
    elif shape == "disjoint" and masters >= 4:
        lost = [(order[0], order[1]), (order[1], order[0]), (order[2], order[3]), (order[3], order[2])]
    else:
        lost = [(order[0], order[1]), (order[1], order[0])]
    return tuple(sorted(lost))


def _work(rng: Random, masters: int, safety_ms: int, profile: str) -> tuple[PlannedWork, ...]:
    begin = 0 if profile in ("founding", FOUNDINGS_PROFILE) or rng.random() < 0.1 else BEGIN_MS
    rounds = rng.randint(8, 12)
    busy = rng.sample(range(masters), rng.randint(1, masters))
    keyed_share = rng.choice((0.0, 0.3, 0.6))
    work: list[PlannedWork] = []
    for _ in range(rounds):
        at_ms = rng.randrange(begin, safety_ms)
        several = rng.choice((1, 1, 2, 3)) if len(busy) > 1 else 1
        for a in rng.sample(busy, min(several, len(busy))):
            count = 1 if rng.random() < 0.3 else rng.randint(3, 24)
            keyed = rng.random() < keyed_share
            repeat = keyed and rng.random() < 0.6
            # at the same instant at several masters, or within a few milliseconds: that is where orders are decided
            work.append(PlannedWork(at_ms + rng.choice((0, 0, 1, 3)), a, count, keyed, repeat, rng.random() < 0.08))
    return tuple(sorted(work))


def _faults(rng: Random, profile: str, masters: int, safety_ms: int) -> tuple[PlannedFault, ...]:
    kinds = dict(MIXES[profile] if profile in MIXES else PROFILES[profile][1])
    if profile == "everything":  # swarm: a different half each time
        kinds = {kind: share for kind, share in kinds.items() if rng.random() < 0.6} or {"crash": 1}
    count = rng.randint(8, 14) if profile in ("duels", MEMBERS_PROFILE) else rng.randint(5, 10)
    if profile in DIRECTED_PROFILES:
        count = rng.choice((1, 1, 2)) if profile != "outbids" else 1
    faults: list[PlannedFault] = []
    ending = False
    for _ in range(count):
        kind = rng.choices(list(kinds), list(kinds.values()))[0]
        begin = 0 if profile in ("founding", FOUNDINGS_PROFILE) else BEGIN_MS - 100
        at_ms = rng.randrange(begin, BEGIN_MS + 200 if profile == "founding" and rng.random() < 0.7 else safety_ms)
        if profile in DIRECTED_PROFILES and not faults:
            kind, at_ms = next(iter(kinds)), rng.randrange(BEGIN_MS, BEGIN_MS + 150)
        if kind in ("amnesia", "relapse"):
            at_ms = rng.randrange(BEGIN_MS, max(BEGIN_MS + 1, safety_ms - 700))
        if kind in TERMINATING_FAULTS:
            if ending:
                kind = "crash"
            ending = kind in TERMINATING_FAULTS or ending
        a, b = rng.sample(range(masters), 2)
        size = rng.randint(1, 60)
        if kind == "clock":
            size = rng.choice((3_600_000, -3_600_000, 30_000, -30_000, 1000, -1000, 50, -50))
        lasts_ms = rng.choice((10, 50, 150, 150, 300))
        if kind in ("cut", "cut-one-way", "partition", "isolate"):
            lasts_ms = rng.choice((30, 100, 250, 500))
        if kind.startswith("order"):  # late enough to be founded, early enough that something follows
            at_ms = rng.randrange(BEGIN_MS, safety_ms - 500)
            lasts_ms = rng.choice((200, 500, 900))
        if profile == "splits" and kind in ("cut", "partition", "isolate"):
            lasts_ms = rng.choice((200, 700, 1200))
        if kind == "forge":  # late enough that the log has neighbours to exchange, early enough to be relied on
            at_ms, lasts_ms = rng.randrange(BEGIN_MS, max(BEGIN_MS + 1, safety_ms - 600)), 20
        if kind == "full":
            lasts_ms = rng.choice((300, 600, 1000))
        if kind == "deaf":
            lasts_ms = rng.choice((100, 250, 500))
        faults.append(PlannedFault(at_ms, kind, a, b, lasts_ms, size))
    return tuple(sorted(faults))
