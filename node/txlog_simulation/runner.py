"""Many seeds on several processes: progress, a table for people, one line of JSON for machines."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

from txlog_simulation.lives import LIVES, draw_run
from txlog_simulation.run_plan import RunPlan, draw_plan
from txlog_simulation.shrink import shrink
from txlog_simulation.simulation import RunResult, run
from txlog_simulation.view_change_faults import CHANGE_RECORDS, CHANGE_STEPS

REPEAT_EVERY = 20
"""Every so many seeds, one is run twice and the traces are compared (rule 31)."""
LIFE_DIGEST_EVERY = 40
"""One seed of so many is run as each life, too, for a digest."""
CHUNKS_OF_A_PROCESS = 500
"""Chunks of seeds after which a new process takes over: the memory of one that has run thousands of seeds grows."""
SHRINKS_MAX = 2
"""Of many seeds that fail, the first ones are made small."""
COVERAGE_FROM_SEEDS = 400
"""With fewer seeds a rare fault may well not be met."""
REQUIRED_COVERAGE = (
    "amnesia",
    "deaf",
    "batch",
    "clock back",
    "clock forward",
    "crash",
    "crash after append",
    "crash after begin_sync",
    "crash after end_sync",
    "crash after fdatasync",
    "crash after pwrite",
    "crash after receive",
    "crash after release",
    "crash after run",
    "crash after send",
    "crash while founding",
    "crash while mending",
    "cut",
    "cut-one-way",
    "disk-error",
    "failed fsync, and the power stays",
    "ended by name",
    "bit flipped",
    "damage found behind an index",
    "index flipped",
    "sealed segment read again",
    "log forged",
    "full",
    "hearsay",
    "idempotency key repeated",
    "isolate",
    "lasting cut",
    "deaf for good",
    "good without a deaf one",
    "good on both sides",
    "good on three sides",
    "good on the side of a majority",
    "split backup recalled",
    "message cut off",
    "message lost",
    "message overtaken",
    "message repeated",
    "message slow",
    "old-image",
    "partition",
    "pause",
    "refused for a full disk",
    "relapse",
    "repaired",
    "restart-all",
    "single submission",
    "skip entry",
    "stop",
    "submission while founding",
    "torn write",
    "unsynced write lost",
    "wipe",
    "proof of down",
    "stale proof",
    "left",
    "stopped without leaving",
    "stop-all",
    "split backup",
    "split backup failed",
    "asked to add",
    "asked to mode",
    "asked to mute",
    "asked to remove",
    "asked to weight",
    "removed",
    "view of leave",
    "view of down",
    "view of silence",
    "view of loss",
    "view of rejoin, Simple",
    "view of rejoin, Smart",
    "flap",
    "outbid",
    "succession",
    "partial rejoin",
    "order",
    "order-cut",
    "order-heard",
    "order taken",
    "order refused",
    "order given again",
    "order on both sides",
    "order about lost disks",
    "order about one that is heard",
    "view of order",
    "found",
    "come",
    "founded by order",
    "order to found taken",
    "order to found refused",
    "order to found given again",
    "worker sent back",
    "worker unordered",
    "asked to prefer",
    "damaged journal",
    "trimmed",
    "segments removed",
    "learner taken in",
    "crash between promise and accept",
    "crash between accept and install",
    *(f"{fault}: {kind}" for fault in ("cut-at-change", "slow-at-change") for kind in CHANGE_RECORDS[:3]),
)
SYNCHRONOUS_COVERAGE = (
    "answered committed",
    "answered pending",
    "answered rolled-back",
    "commit",
    "commit after a rejoin",
    "decided by another one",
    "electorate changed",
    "fresh birth in a quorate view",
    "isolated with a decision",
    "late, and committed",
    "rollback",
    "synchronous effect",
    "won by decisions",
)
"""What only runs with synchronous transactions meet."""
LIVES_FROM_SEEDS = 1500
LIVES_COVERAGE = (
    "begun old and trimmed",
    "client gave up waiting",
    "all at work while clients write",
    "client sends again",
    "lose-all",
    "message of a liar",
    "older copy put back",
    "client's retry",
    "sleep",
    "told accepted",
    "told applied",
    "told applied-all",
    "told quorum",
    "told synced",
    "client disconnects",
    "slow fsync",
    "sync in the thread",
    "sync on the loop",
    "answered by a task",
    "answered in the turn",
    "too many requests",
    "view changes under waiting clients",
    "waited until durable",
    *SYNCHRONOUS_COVERAGE,
)
"""What only the lives of ``lives.py`` meet."""
RARE_FROM_SEEDS = 5000
RARE_COVERAGE = (
    "crash after tell",
    "nested split",
    "majorities parted by order",
    "two clusters ordered",
    "let in by those of an order",
    "crossing",
    "rejoin of three branches",
    "view of another strategy",
    "snapshot taken over",
    "trimmed behind a lost disk",
)
CRASH_POINTS_FROM_SEEDS = 5000
CRASH_POINTS = tuple(f"crash after {step} of {kind}" for kind in CHANGE_RECORDS for step in CHANGE_STEPS)
"""A crash at every step of every record of a change."""


@dataclass
class SimulationJob:
    """What to run and how."""

    seeds: int
    start: int = 0
    jobs: int = 1
    mutant: str = ""
    stop_at_first: bool = False
    profile: str = ""
    progress: bool = True
    shrink: bool = True
    counting: tuple[str, ...] | None = None
    """The kinds of violation that count; all when None."""


@dataclass
class RunTotals:
    """Of all runs. ``failed``: (seed, text of the first violation)."""

    seeds: int = 0
    transactions: int = 0
    messages: int = 0
    faults: int = 0
    judged: int = 0
    repeated_runs: int = 0
    healed_ms_max: int = 0
    cluster_ms: int = 0
    coverage: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    profiles: Counter[str] = field(default_factory=Counter)
    failed: list[tuple[int, str]] = field(default_factory=list)

    def add(self, result: RunResult, texts: list[str]) -> None:
        """One more run."""
        self.seeds += 1
        self.transactions += result.transactions
        self.messages += result.messages
        self.faults += result.faults
        self.judged += result.judged
        self.healed_ms_max = max(self.healed_ms_max, result.healed_ms if result.judged else 0)
        self.cluster_ms += result.cluster_ms
        self.coverage += result.coverage
        self.refused += result.refused
        self.profiles[result.profile] += 1
        self.failed += [(result.seed, text) for text in texts[:1]]


_job = SimulationJob(0)


def _run_seed(seed: int) -> tuple[RunResult, list[str]]:
    plan = draw_run(seed, _job.profile)
    twice = seed % REPEAT_EVERY == 0 and not _job.mutant
    result = run(plan, trace=twice, counting=_counted_kinds())
    texts = [str(violation) for violation in result.violations]
    if twice:
        again = run(plan, trace=True)
        if again.trace_digest != result.trace_digest:
            texts.append(
                f"determinism (rule 31): two runs differ, first at: {_first_difference(result.trace, again.trace)}"
            )
        result.trace = []
    return result, texts


def _counted_kinds() -> tuple[str, ...] | None:
    return _job.counting


def _first_difference(one: list[str], other: list[str]) -> str:
    for a, b in zip(one, other, strict=False):
        if a != b:
            return f"{a!r} / {b!r}"
    return f"lengths {len(one)} / {len(other)}"


def _results(job: SimulationJob) -> Iterator[tuple[RunResult, list[str]]]:
    seeds = range(job.start, job.start + job.seeds)
    if job.jobs <= 1:
        yield from map(_run_seed, seeds)
        return
    context = multiprocessing.get_context("fork")  # a patched import stays patched in the children
    with context.Pool(job.jobs, maxtasksperchild=CHUNKS_OF_A_PROCESS) as pool:
        yield from pool.imap(_run_seed, seeds, chunksize=4)
        pool.close()
        pool.join()  # what they have cost is known when they have ended


def run_all(job: SimulationJob) -> int:
    """Run, print, and return the exit code: 0, or 1 for a violation or a listed fault that was never met."""
    global _job
    _job = job
    began = time.monotonic()
    total = RunTotals()
    for result, texts in _results(job):
        total.add(result, texts)
        if texts and not job.mutant:
            _print_failure(result.seed, texts, job)
        if result.violations and job.shrink and len(total.failed) <= SHRINKS_MAX:
            _print_smallest(result.seed, job)
        if job.progress and total.seeds % 100 == 0:
            print(f"{total.seeds} seeds, {len(total.failed)} with violations", file=sys.stderr, flush=True)
        if texts and job.stop_at_first:
            break
    missed = _missing_coverage(total, job)
    _print_table(total, missed)
    took_s = time.monotonic() - began
    print(json.dumps(_print_figures(total, missed, took_s, job)), flush=True)
    return 1 if total.failed or missed else 0


def _print_failure(seed: int, texts: Iterable[str], job: SimulationJob) -> None:
    plan = draw_run(seed, job.profile)
    print(f"seed {seed} fails")
    for text in texts:
        print(f"  {text}")
    print(textwrap.indent(plan.describe(), "  "))
    profile = f" --profile {job.profile}" if job.profile else ""
    print(
        f"  again, with every event: python -m txlog_simulation --seeds 1 --start {seed}{profile} --trace", flush=True
    )


def smallest_failing_plan(seed: int, profile: str) -> RunPlan:
    """The smallest plan that fails as this seed does: by the same rule, seen in the same way."""
    plan = draw_run(seed, profile)
    first = run(plan, counting=_counted_kinds()).violations[0]

    def fails(candidate: RunPlan) -> bool:
        found = run(candidate, counting=_counted_kinds()).violations
        return bool(found) and (found[0].kind, found[0].rule) == (first.kind, first.rule)

    return shrink(plan, fails)


def _print_smallest(seed: int, job: SimulationJob) -> None:
    plan, whole = smallest_failing_plan(seed, job.profile), draw_run(seed, job.profile)
    events, of = len(plan.work) + len(plan.faults), len(whole.work) + len(whole.faults)
    print(f"the smallest plan found that fails like seed {seed} ({events} events of {of}):")
    print(textwrap.indent(plan.describe(), "  "))
    print(f"  {run(plan, counting=_counted_kinds()).violations[0]}")
    extra = (f" --profile {job.profile}" if job.profile else "") + (f" --mutant {job.mutant}" if job.mutant else "")
    print(f"  its trace: python -m txlog_simulation --start {seed}{extra} --trace --shrink", flush=True)


def _missing_coverage(total: RunTotals, job: SimulationJob) -> list[str]:
    if total.seeds < COVERAGE_FROM_SEEDS or job.mutant:
        return []
    if job.profile:
        return [name for name in SYNCHRONOUS_COVERAGE if job.profile == "synchronous" and not total.coverage[name]]
    listed = REQUIRED_COVERAGE + (RARE_COVERAGE if total.seeds >= RARE_FROM_SEEDS else ())
    listed += LIVES_COVERAGE if total.seeds >= LIVES_FROM_SEEDS else ()
    listed += CRASH_POINTS if total.seeds >= CRASH_POINTS_FROM_SEEDS else ()
    lives = [name for name in LIVES if not total.profiles[name]] if total.seeds >= LIVES_FROM_SEEDS else []
    return [*(name for name in listed if not total.coverage[name]), *lives]


def _print_table(total: RunTotals, missed: list[str]) -> None:
    for title, counts in (("met", total.coverage), ("refused", total.refused), ("seeds of profile", total.profiles)):
        for name, count in sorted(counts.items()):
            print(f"{title:<18} {name:<28} {count:>9}")
    for name in missed:
        print(f"{'NEVER MET':<18} {name}")
    for seed, text in total.failed[:20]:
        print(f"{'VIOLATION':<18} seed {seed}: {text.splitlines()[0][:200]}")


def _cpu_s() -> float:
    """Of this process and of those that it has waited for."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def _print_figures(total: RunTotals, missed: list[str], took_s: float, job: SimulationJob) -> dict[str, object]:
    first = total.failed[0] if total.failed else None
    return {
        "seeds": total.seeds,
        "start": job.start,
        "violations": len(total.failed),
        "first": f"seed {first[0]}: {first[1].splitlines()[0]}" if first else "",
        "transactions": total.transactions,
        "transactions_per_seed": round(total.transactions / max(1, total.seeds), 1),
        "messages": total.messages,
        "faults": total.faults,
        "faults_per_seed": round(total.faults / max(1, total.seeds), 1),
        "liveness_judged": total.judged,
        "healed_ms_max": total.healed_ms_max,
        "run_twice": sum(1 for s in range(job.start, job.start + total.seeds) if s % REPEAT_EVERY == 0),
        "never_met": missed,
        "synchronous": {name: total.coverage[name] for name in SYNCHRONOUS_COVERAGE},
        "seeds_per_s": round(total.seeds / max(took_s, 1e-9), 1),
        "simulated_hours": round(total.cluster_ms / 3_600_000, 2),
        "simulated_days_per_cpu_hour": round(total.cluster_ms / 86_400_000 / max(_cpu_s() / 3600, 1e-9), 2),
        "seconds": round(took_s, 1),
        "processes": job.jobs,
    }


def show_trace(job: SimulationJob) -> int:
    """One seed, every event on a line; with ``job.shrink`` the smallest plan that fails like it."""
    global _job
    _job = job
    plan = smallest_failing_plan(job.start, job.profile) if job.shrink else draw_run(job.start, job.profile)
    result = run(plan, trace=True, counting=_counted_kinds())
    for line in result.trace:
        print(line)
    for violation in result.violations:
        print(f"# {violation}")
    return 1 if result.violations else 0


def print_digest(job: SimulationJob) -> int:
    """The digest of all events of all seeds of the job: two programs that behave the same print the same. ``lives``:
    that of some seeds of each life.

    The lines of a trace name no class and no module of ``txlog``, so a change of names leaves the digest as it is."""
    began = time.monotonic()
    whole, lives = blake2b(digest_size=16), blake2b(digest_size=16)
    with multiprocessing.get_context("fork").Pool(job.jobs) as pool:
        seeds = range(job.start, job.start + job.seeds)
        for done, digest in enumerate(pool.imap(_trace_digest, seeds, chunksize=4), 1):
            whole.update(digest.encode())
            if job.progress and done % 200 == 0:
                print(f"{done} seeds", file=sys.stderr, flush=True)
        for digest in pool.imap(_digest_of_life, [(s, name) for name in LIVES for s in seeds[::LIFE_DIGEST_EVERY]]):
            lives.update(digest.encode())
    found = {"digest": whole.hexdigest(), "lives": lives.hexdigest()}
    for name, value in {"seeds": job.seeds, "start": job.start, **found}.items():
        print(f"{name:<10} {value}")
    print(json.dumps({"seeds": job.seeds, "start": job.start, **found, "seconds": round(time.monotonic() - began, 1)}))
    return 0


def _trace_digest(seed: int) -> str:
    return run(draw_plan(seed), trace=True).trace_digest


def _digest_of_life(of: tuple[int, str]) -> str:
    return run(draw_run(*of), trace=True).trace_digest


def parallel_runs() -> int:
    """How many runs at once."""
    return len(os.sched_getaffinity(0))
