"""What one trouble costs all the others: small transactions beside a dead master, a slow one, and a large payload.

200-byte transactions in an open load. Before and after each trouble the same load runs undisturbed; the 99th percentile
under the trouble must stay within three times the median of those. Which level is waited for is said with each:

======= ==========================================================================================================
dead    one of three masters is killed (kill -9). The log waits until the others have closed its view, and so does
        what is asked for as synced (``dead_held_ms``); from then on they must be as fast as before, and whatever is
        asked for as accepted must not notice at all
slow    a round trip to one master takes 100 times the undisturbed median. *quorum* does not need that master
        and must not notice; *synced* needs it, by what it promises, and is reported beside it
large   100 MB on their way to all masters, as transactions of the largest size that a master takes; synced. How many
        processors each master, the load and the whole machine used meanwhile is reported beside it
======= ==========================================================================================================
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from e2e.lib.cluster.links import LinkControl, linked_masters
from e2e.lib.cluster.masters import NODES, REPOSITORY, BenchMasters
from e2e.lib.host_metrics import cpu_seconds, machine_seconds
from e2e.lib.load.closed_loop import QUAD_BYTES, RequestTemplate, quad_line
from e2e.lib.load.open_loop import OpenLoad
from e2e.lib.load.requests import timed_upload
from e2e.lib.report import BenchReport, CannotMeasure, Figure, build_table, console, median, print_table
from txlog.model.errors import TxLogError

REQUESTS_PER_S: Final = 300.0
WARM_UP_S: Final = 1.0
P99_FACTOR_MAX: Final = 3.0
SLOWER: Final = 100.0
ONE_WAY_MAX_MS: Final = 250.0
"""A round trip above a round time-out would be silence, no slowness."""
LARGE_BYTES: Final = 100_000_000
PART_BYTES: Final = 14_285_600
"""Of one request: a body above 16 MiB is refused."""
LARGE_S: Final = 10.0
"""How long small ones are sent beside it, at least; what comes behind its end does not count."""
KILLED_AT_S: Final = 2.0
HELD_MAX_S: Final = 12.0
"""Three round time-outs, a round, and room for a slow machine."""


class LoadSample(NamedTuple):
    """One load: milliseconds, answers a second, and what the load knows besides."""

    p50: float
    p99: float
    per_s: float
    generator: OpenLoad


class DisturbanceBench:
    """Loads whose transactions never repeat."""

    def __init__(self, masters: BenchMasters, seconds: float) -> None:
        self.masters = masters
        self.seconds = seconds
        self._number = 0

    def run_load(
        self, level: str, urls: list[str], at: dict[float, Callable[[], None]] | None = None, seconds: float = 0.0
    ) -> LoadSample:
        """One load of ``level``; what happens ``at`` counts from the end of the warm second."""
        seconds = seconds or self.seconds
        load = OpenLoad(urls, RequestTemplate(REPOSITORY, level, 1, "disturbed", self._number), REQUESTS_PER_S)
        load.run(WARM_UP_S + seconds, {WARM_UP_S + when: do for when, do in (at or {}).items()})
        self._number = load.requests.next
        p50, p99 = load.quantile_ms(0.5, WARM_UP_S), load.quantile_ms(0.99, WARM_UP_S)
        if p50 is None or p99 is None:
            raise CannotMeasure(f"no answer for {level}: {(load.wrong or ['nothing came'])[0][:300]}")
        return LoadSample(p50, p99, load.per_s(WARM_UP_S, WARM_UP_S + seconds), load)


def measure_disturbed(folder: Path, seconds: float, report: BenchReport) -> None:
    rows: list[list[Figure]] = []
    with linked_masters(folder, NODES, split_mode="Majority", max_peer_lag_ms=5000) as (masters, links):
        bench = DisturbanceBench(masters, seconds)

        def compare(name: str, level: str, calm: list[LoadSample], found: LoadSample, must: bool = True) -> None:
            p99 = median([each.p99 for each in calm]) or 0.0
            times = found.p99 / p99
            report.figure(f"{name}_{level}_undisturbed_p99_ms", p99)
            report.figure(f"{name}_{level}_p99_ms", found.p99)
            report.figure(f"{name}_{level}_per_s", found.per_s, 0)
            if must:
                report.at_most(f"{name}_{level}_times", times, P99_FACTOR_MAX)
            else:
                report.figure(f"{name}_{level}_times", times)
            report.require(
                f"{name}, {level}: every answer is good",
                not found.generator.wrong,
                found.generator.first_error,
            )
            rows.append([f"{name}, {level}", p99, found.p50, found.p99, times, found.per_s])

        troubles: dict[str, Callable[[], None]] = {
            "large": lambda: _large_payload_case(bench, masters, compare, report),
            "slow": lambda: _slow_master_case(bench, masters, links, compare, report),
            "dead": lambda: _dead_master_case(bench, masters, compare, report),
        }
        for name, trouble in troubles.items():
            with report.part(name):
                trouble()
    columns = ("trouble, level", "undisturbed p99 ms", "p50 ms", "p99 ms", "times", "txn/s")
    print_table(build_table(f"{REQUESTS_PER_S:,.0f} small transactions a second beside a trouble", columns, rows))


def _large_payload_case(
    bench: DisturbanceBench, masters: BenchMasters, compare: Callable[..., None], report: BenchReport
) -> None:
    console.print(f"{LARGE_BYTES / 1e6:,.0f} MB beside small ones ...")
    calm = [bench.run_load("synced", masters.urls)]
    bodies = [_large_body(part) for part in range(round(LARGE_BYTES / PART_BYTES))]
    took: list[float] = []
    wrong: list[str] = []

    used: dict[str, float] = {}

    def send() -> None:
        began, before = time.monotonic(), _cpu_seconds(masters)
        for body in bodies:
            try:
                timed_upload(masters.urls[0], REPOSITORY, body)
            except (CannotMeasure, TxLogError) as why:
                wrong.append(str(why))
                return
        took.append(time.monotonic() - began)
        used.update({name: seconds - before[name] for name, seconds in _cpu_seconds(masters).items()})

    sender = threading.Thread(target=send)
    load = OpenLoad(masters.urls, RequestTemplate(REPOSITORY, "synced", 1, "beside"), REQUESTS_PER_S)
    load.run(WARM_UP_S + max(bench.seconds, LARGE_S), {WARM_UP_S: sender.start})
    sender.join()
    if wrong or not took:
        raise CannotMeasure(f"a large body: {(wrong or ['never sent'])[0]}")
    until = WARM_UP_S + min(took[0], max(bench.seconds, LARGE_S))
    p50, p99 = load.quantile_ms(0.5, WARM_UP_S, until), load.quantile_ms(0.99, WARM_UP_S, until)
    if p50 is None or p99 is None:
        raise CannotMeasure("no small transaction was answered beside the large ones")
    calm.append(bench.run_load("synced", masters.urls))
    report.figure("large_mb", sum(map(len, bodies)) / 1e6, 1)
    report.figure("large_s", took[0])
    for name, seconds in used.items():
        report.figure(f"large_processors_{name}", seconds / took[0])
    compare("large", "synced", calm, LoadSample(p50, p99, load.per_s(WARM_UP_S, until), load))


def _cpu_seconds(masters: BenchMasters) -> dict[str, float]:
    """Seconds that each master, this load and everything on the machine have used."""
    found = {node: cpu_seconds(pid) for node, pid in masters.pids.items()}
    return found | {"load": time.process_time(), "all": machine_seconds()}


def _large_body(part: int) -> bytes:
    """N-Quads of 200 bytes each, as a file that is loaded has them."""
    count = PART_BYTES // QUAD_BYTES
    return b"".join([quad_line(number, "large") for number in range(part * count, part * count + count)])


def _slow_master_case(
    bench: DisturbanceBench,
    masters: BenchMasters,
    links: LinkControl,
    compare: Callable[..., None],
    report: BenchReport,
) -> None:
    console.print("one slow master ...")
    asked = masters.urls[:2]
    for level in ("quorum", "synced"):
        calm = [bench.run_load(level, asked)]
        one_way_ms = min(SLOWER * calm[0].p50 / 2, ONE_WAY_MAX_MS)
        links.delay_node(NODES[-1][0], one_way_ms)
        found = bench.run_load(level, asked)
        links.set_faults([])
        bench.run_load(level, asked)  # what waited is over
        calm.append(bench.run_load(level, asked))
        compare("slow", level, calm, found, must=level == "quorum")
        report.figure(f"slow_{level}_one_way_ms", one_way_ms)


def _dead_master_case(
    bench: DisturbanceBench, masters: BenchMasters, compare: Callable[..., None], report: BenchReport
) -> None:
    """The last of all: the master stays dead."""
    console.print("one dead master ...")
    victim = masters.processes[NODES[-1][0]]
    alive = masters.urls[:2]
    calm = {level: [bench.run_load(level, alive), bench.run_load(level, alive)] for level in ("accepted", "synced")}

    def kill() -> None:
        victim.send_signal(signal.SIGKILL)  # the process that runs by then

    found = bench.run_load("accepted", alive, {bench.seconds / 4: kill})
    compare("dead", "accepted", calm["accepted"], found)
    victim.wait(10)
    masters.start(NODES[-1][0])
    masters.wait_joined()
    victim = masters.processes[NODES[-1][0]]
    found = bench.run_load("synced", alive, {KILLED_AT_S: kill}, KILLED_AT_S + HELD_MAX_S + bench.seconds)
    killed = WARM_UP_S + KILLED_AT_S
    held = max(answer.took_s for answer in found.generator.answers)
    report.at_most("dead_held_ms", 1000 * held, 1000 * HELD_MAX_S)
    since = killed + held + 1.0
    p50, p99 = found.generator.quantile_ms(0.5, since), found.generator.quantile_ms(0.99, since)
    if p50 is None or p99 is None:
        raise CannotMeasure("nothing was ordered without the dead master")
    per_s = found.generator.per_s(since, WARM_UP_S + KILLED_AT_S + HELD_MAX_S + bench.seconds)
    compare("dead", "synced", calm["synced"], LoadSample(p50, p99, per_s, found.generator))
