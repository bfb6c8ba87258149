"""Two sites that are far apart: what a transaction waits for beyond the light's way.

*Apart*: so long one way, as a table of round trips between data centres halves it. Each byte between masters of the
two sites leaves its link proxy that much later; inside a site nothing is slow. An open load, so that what is under way
does not slow what comes: 1,000 transactions a second, each in a request of its own, to all masters in turn.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from e2e.lib.cluster.links import linked_masters
from e2e.lib.cluster.masters import NODES, REPOSITORY
from e2e.lib.host_metrics import CpuMeter
from e2e.lib.load.closed_loop import RequestTemplate
from e2e.lib.load.open_loop import OpenLoad
from e2e.lib.readers import same_log
from e2e.lib.report import BenchReport, Figure, build_table, console, print_table

ONE_WAY_MS: Final = (25.0, 50.0)
RATE: Final = 1000.0
P50_ABOVE_MS: Final = 20.0
P99_ABOVE_MS: Final = 60.0
WARM_S: Final = 3.0


def measure_sites(folder: Path, seconds: float, report: BenchReport) -> None:
    """``seconds``: measured at each distance, after three that are not."""
    rows: list[list[Figure]] = []
    near = 0.0
    with linked_masters(folder, NODES) as (masters, links):
        site = {url: "two masters" if node.startswith("uk") else "one master" for node, url in masters.by_node.items()}
        number = 0
        for one_way_ms in (0.0, *ONE_WAY_MS):
            links.delay_between_sites(one_way_ms)
            masters.wait_joined()
            console.print(f"{one_way_ms:g} ms one way, {RATE:,.0f} transactions a second ...", highlight=False)
            meter = CpuMeter(masters.pids)
            load = OpenLoad(masters.urls, RequestTemplate(REPOSITORY, "synced", 1, "sites", number), RATE)
            load.run(WARM_S + seconds, {WARM_S: meter.begin})
            number = load.requests.next
            shares = meter.shares()
            round_trip = 2 * one_way_ms
            p50, p99 = load.quantile_ms(0.5, WARM_S), load.quantile_ms(0.99, WARM_S)
            name = f"sites_{round_trip:g}ms"
            report.require(f"{name}: every answer is good", not load.wrong and not load.lost, load.first_error)
            report.figure(f"{name}_per_s", load.per_s(WARM_S, WARM_S + seconds), 0)
            if one_way_ms:
                report.at_most(f"{name}_synced_p50_ms", p50, round_trip + P50_ABOVE_MS)
                report.at_most(f"{name}_synced_p99_ms", p99, round_trip + P99_ABOVE_MS)
                report.figure(f"{name}_above_round_trip_and_near_p50_ms", (p50 or 0.0) - round_trip - near)
            else:
                near = p50 or 0.0
                report.figure(f"{name}_synced_p50_ms", p50)
                report.figure(f"{name}_synced_p99_ms", p99)
            used = " ".join(f"{shares[node]:.0f}" for node in masters.pids)
            for where in sorted(set(site.values())):
                there = [1000 * a.took_s for a in load.answers if a.due_s >= WARM_S and site[a.master] == where]
                there.sort()
                middle = there[len(there) // 2] if there else None
                late = there[int(0.99 * len(there))] if there else None
                rows.append([f"{round_trip:g} ms, at the site of {where}", middle, late, used, shares["others"]])
        agree, _ = same_log(masters.urls)
        report.require("the logs are one", agree)
    columns = ("round trip", "synced p50 ms", "p99 ms", "masters cpu %", "others %")
    print_table(build_table(f"two sites, {RATE:,.0f} transactions a second in an open load", columns, rows))
