"""``make bench ONLY=synchronous``: what a quorum costs a write, beside the same write without a rule.

Two clusters of three masters take turns, of which one has a rule for the graph of every write. *quorum*: a quorum holds
it, so that it takes effect whatever comes. *synced*: its COMMIT is stable. Rounds are interleaved. A must compares the
two clusters within each round, since a machine has slow and fast minutes; what counts is the median of the rounds.

Then two sites whose masters are 25 ms apart one way, and a cluster with stores, before and after it has the rule.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from e2e.lib.cluster.links import linked_masters
from e2e.lib.cluster.local import LocalCluster, cluster_up
from e2e.lib.cluster.masters import NODES, REPOSITORY, three_masters, wait_quorate
from e2e.lib.load.closed_loop import ClosedLoad, RequestTemplate
from e2e.lib.readers import same_log
from e2e.lib.report import BenchReport, CannotMeasure, Figure, build_table, console, median, print_table, quantile
from txlog.client import MasterClient

RULE: Final = {"match": "http://example.org/graph"}
"""The graph of the load's quads."""
ONE_WAY_MS: Final = 25.0
ABOVE_ROUND_TRIPS_MS: Final = 20.0
ROUND_TRIPS: Final = {"quorum": 1, "synced": 2}
""":func:`measure_apart`: of the level, at most."""
START_S: Final = 240.0


class Shape(NamedTuple):
    """A load of one cluster. ``rule``: its writes are synchronous."""

    name: str
    has_rule: bool
    clients: int
    level: str


SHAPES: Final = (
    Shape("plain_p50_synced_ms", False, 1, "synced"),
    Shape("p50_quorum_ms", True, 1, "quorum"),
    Shape("p50_synced_ms", True, 1, "synced"),
    Shape("plain_tps_c64", False, 64, "synced"),
    Shape("tps_c64", True, 64, "quorum"),
    Shape("tps_synced_c64", True, 64, "synced"),
)
MUSTS: Final = (
    ("quorum_by_plain", "p50_quorum_ms", "plain_p50_synced_ms", 1.0),
    ("synced_by_plain", "p50_synced_ms", "plain_p50_synced_ms", 2.0),
    ("plain_by_tps", "plain_tps_c64", "tps_c64", 1 / 0.6),
)
"""Of each quotient the figures, and the most that it may be."""


def measure_synchronous(folder: Path, rounds: int, seconds: float, rest_s: float, report: BenchReport) -> None:
    """The figures, and their musts."""
    found: dict[str, list[float]] = {shape.name: [] for shape in SHAPES}
    with three_masters(folder / "plain") as plain, three_masters(folder / "quorum") as quorum:
        _set_rule(quorum.urls)
        number = 0
        for turn in range(rounds):
            for shape in SHAPES:
                time.sleep(rest_s)
                console.print(f"round {turn + 1} of {rounds}: {shape.name} ...", highlight=False)
                masters = quorum if shape.has_rule else plain
                requests = RequestTemplate(REPOSITORY, shape.level, 1, "synchronous", number)
                load = ClosedLoad(masters.urls, requests, shape.clients)
                measured = load.run(1.0, seconds, _nothing, _nothing)
                number = requests.next
                _require_good(load, shape.name, report)
                p50_ms = 1000 * (quantile(measured.latencies, 0.5) or 0.0)
                found[shape.name].append(measured.per_s if "tps" in shape.name else p50_ms)
        quorum.wait_at_rest(60.0)
        agree, lengths = same_log(quorum.urls)
        with MasterClient(quorum.urls[0], 10.0) as master:
            report.equal("undecided_left", master.synchro()["queue"]["undecided"], 0)
        report.require("the logs with a rule are one", agree)
        report.figure("log_entries", min(lengths))
    _compare(found, report)
    measure_apart(folder / "apart", seconds, report)
    with cluster_up(folder / "cluster") as cluster:
        cluster.wait_applying(START_S)
        measure_applied(cluster, seconds, report)


def measure_apart(folder: Path, seconds: float, report: BenchReport) -> None:
    """One client, at the site of two masters and at the site of one: a quorum needs the other site only from the
    second."""
    rows: list[list[Figure]] = []
    with linked_masters(folder, NODES) as (masters, links):
        _set_rule(masters.urls)
        links.delay_between_sites(ONE_WAY_MS)
        masters.wait_joined()
        number = 0
        for where, node in (("two", NODES[0][0]), ("one", NODES[-1][0])):
            row: list[Figure] = [f"the site of {where}"]
            for level, round_trips in ROUND_TRIPS.items():
                name = f"apart_{where}_p50_{level}_ms"
                console.print(f"{ONE_WAY_MS:g} ms one way: {name} ...", highlight=False)
                requests = RequestTemplate(REPOSITORY, level, 1, "apart", number)
                load = ClosedLoad([masters.by_node[node]], requests, 1)
                measured = load.run(1.0, seconds, _nothing, _nothing)
                number = requests.next
                _require_good(load, name, report)
                p50_ms = 1000 * (quantile(measured.latencies, 0.5) or 0.0)
                report.at_most(name, p50_ms, 2 * ONE_WAY_MS * round_trips + ABOVE_ROUND_TRIPS_MS)
                row.append(p50_ms)
            rows.append(row)
    columns = ("masters there", *(f"{level} p50 ms" for level in ROUND_TRIPS))
    print_table(build_table(f"two sites, {2 * ONE_WAY_MS:g} ms of a round trip", columns, rows))


def measure_applied(cluster: LocalCluster, seconds: float, report: BenchReport) -> None:
    """One client, until a store of its master's data centre has executed its write: without the rule, then with it."""
    number = 0
    for name, has_rule in (("plain_p50_applied_ms", False), ("p50_applied_ms", True)):
        if has_rule:
            _set_rule(cluster.masters)
        console.print(f"{name} ...", highlight=False)
        requests = RequestTemplate(cluster.repository, "applied", 1, "applied", number)
        load = ClosedLoad(cluster.masters, requests, 1)
        measured = load.run(2.0, seconds, _nothing, _nothing)
        number = requests.next
        _require_good(load, name, report)
        report.figure(name, 1000 * (quantile(measured.latencies, 0.5) or 0.0))


def _require_good(load: ClosedLoad, name: str, report: BenchReport) -> None:
    if load.wrong:
        report.require(f"{name}: every answer is good", False, load.wrong[0][:300])


def _set_rule(urls: Sequence[str]) -> None:
    """Every write of the loads is synchronous from now on."""
    with MasterClient(urls[0], 30.0) as master:
        master.configure({"graphs": [RULE]})
    wait_quorate(urls)


def _compare(found: dict[str, list[float]], report: BenchReport) -> None:
    if not all(value for values in found.values() for value in values):
        raise CannotMeasure("a round without an answer")
    rows: list[list[Figure]] = []
    for name, values in found.items():
        report.figure(name, median(values), 0 if "tps" in name else 2)
        rows.append([name, median(values)])
    for name, above, below, most in MUSTS:
        quotients = [a / b for a, b in zip(found[above], found[below], strict=True)]
        report.at_most(name, median(quotients), most)
    print_table(build_table("synchronous transactions", ("figure", "median"), rows))


def _nothing() -> None:
    """Nothing is measured beside the load."""
