"""``python -m bench.scale``: what a transaction costs, against what there is more of. One short point after the other:

======== ===============================================================================================
masters  3, 5, 7 on this machine: 64 clients, one transaction in a request, synced
log      entries that the log has already (written by :mod:`bench.journal_fill`): the same load
queue    transactions that wait because a master is gone: what accepting one more costs
behind   entries that came while a master was dead: from its command until its log ends like the others'
payload  bytes of one transaction: one client, synced. Above 16 MiB it is several transactions, as masters refuse more
latency  ms of round trip between two sites: an open load of 300 transactions a second, synced
centres  2 to 5 data centres of one master, 50 ms of round trip between each two: the same load
workers  1 to 16 in one data centre: a transaction until all have executed it (:mod:`bench.scale_workers`)
======== ===============================================================================================

Models go with them, each checked against what was measured (``model``, ``deviation_pct``):

- *masters*: processor for a transaction = a x masters + b x pairs (what each does alone, and what each says to each
  other one), from the points with 3 and 5, told for 7. Where each master has a core of its own, what one of them uses
  bounds the rate (``own_cores_per_s``): that is told by the model, for this machine has not so many.
- *latency*, *centres*: synced = what it takes without distance + one round trip, however many data centres there are.
- *workers*: each adds the same.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bench.curve_points import Point, deviation_pct
from bench.journal_fill import fill_journals
from bench.scale_workers import curve_workers
from e2e.lib.cluster.links import linked_masters
from e2e.lib.cluster.masters import NODES, REPOSITORY, BenchMasters, stop_processes, three_masters
from e2e.lib.host_metrics import NotOnDisk, cpu_seconds, disk_of, fsync_rate, rss_mb
from e2e.lib.load.closed_loop import QUAD_BYTES, ClosedLoad, RequestTemplate, quad_line
from e2e.lib.load.open_loop import OpenLoad
from e2e.lib.load.requests import timed_upload
from e2e.lib.report import BenchReport, CannotMeasure, Figure, build_table, console, median, print_table, quantile
from txlog.client import MasterClient

SEVEN_NODES: Final = (*NODES, ("us-2", "us"), ("de-1", "de"), ("de-2", "de"), ("uk-3", "uk"))
MASTER_COUNTS: Final = (3, 5, 7)
LOG_ENTRIES: Final = (1_000, 100_000, 1_000_000)
QUEUED_TRANSACTIONS: Final = (1_000, 10_000, 100_000, 1_000_000)
MISSING_ENTRIES: Final = (1_000, 10_000, 100_000, 1_000_000)
PAYLOAD_BYTES: Final = (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
LATENCIES_MS: Final = (0, 10, 50, 100, 200)
DATA_CENTER_COUNTS: Final = (2, 3, 4, 5)
DATA_CENTER_LATENCY_MS: Final = 50.0
"""Of round trip."""
PART_BYTES: Final = 14_285_600
"""The most that is sent as one transaction: a body above 16 MiB is refused."""
REQUESTS_PER_S: Final = 300.0
WARM_UP_S: Final = 1.5
POINT_S: Final = 20.0
"""No point goes on for longer, whatever it was to reach."""


class LoadCost(NamedTuple):
    """Of a closed load: transactions a second, ms, and microseconds of processor that all masters use for one."""

    per_s: float
    p50: float
    p99: float
    us: float


def run_closed_load(
    masters: BenchMasters, clients: int, batch: int, seconds: float, run: str, level: str = "synced"
) -> LoadCost:
    """A load of so many clients for so long."""
    load = ClosedLoad(masters.urls, RequestTemplate(REPOSITORY, level, batch, run), clients)
    used: list[float] = []

    def look() -> None:
        used.append(sum(cpu_seconds(pid) for pid in masters.pids.values()))

    round_ = load.run(0.7, seconds, look, look)
    if load.wrong:
        raise CannotMeasure(load.wrong[0][:300])
    count = len(round_.latencies) * batch
    p50, p99 = quantile(round_.latencies, 0.5), quantile(round_.latencies, 0.99)
    if p50 is None or p99 is None:
        raise CannotMeasure(f"nothing was acknowledged in {seconds:g} s")
    return LoadCost(round_.per_s, 1000 * p50, 1000 * p99, 1e6 * (used[1] - used[0]) / count)


def fit_masters_model(three: float, five: float, count: int) -> float:
    """Of ``count`` masters, from the costs of three and of five: what each does alone, and for each other one."""
    for_pair = (3 * five - 5 * three) / 30  # 3 a + 6 b = three, 5 a + 20 b = five
    return count * (three - 6 * for_pair) / 3 + count * (count - 1) * for_pair


def curve_masters(folder: Path, seconds: float) -> list[Point]:
    points: list[Point] = []
    costs: dict[int, float] = {}
    for count in MASTER_COUNTS:
        with three_masters(folder / str(count), nodes=SEVEN_NODES[:count], start_s=60) as masters:
            cost = run_closed_load(masters, 64, 1, seconds, "masters")
        costs[count] = cost.us
        model = fit_masters_model(costs[3], costs[5], count) if len(costs) > 1 else cost.us
        point = _build_point("masters", count, cost)
        point["own_cores_per_s"] = round(1e6 * count / model)
        if count > 5:
            point |= {"model_us": round(model, 1), "off_pct": round(deviation_pct(model, cost.us), 1)}
        points.append(point)
    return points


def curve_log(folder: Path, seconds: float) -> list[Point]:
    points = []
    with three_masters(folder, log_bytes_max=1 << 40) as masters:
        ClosedLoad(masters.urls, RequestTemplate(REPOSITORY, "synced", 1, "first"), 3).run(
            0.0, 0.2, lambda: None, lambda: None
        )
        for entries in LOG_ENTRIES:
            have = masters.wait_at_rest()
            stop_processes(list(masters.processes.values()), 30)
            if entries > have:
                fill_journals(
                    [masters.journal_of(node) for node in masters.by_node], "uk-1", entries - have, QUAD_BYTES
                )
            began = time.monotonic()
            for node in masters.by_node:
                masters.start(node)
            masters.wait_joined(60)
            started = time.monotonic() - began
            point = _build_point("log", entries, run_closed_load(masters, 64, 1, seconds, f"log-{entries}"))
            memory = max(rss_mb(pid) for pid in masters.pids.values())
            points.append(point | {"three_start_s": round(started, 2), "rss_mb": round(memory)})
    return points


def curve_queue(folder: Path, seconds: float) -> list[Point]:
    """A master is killed, so the log is held; batches of 100 are accepted until so many wait."""
    points = []
    with three_masters(folder, max_peer_lag_ms=600_000) as masters:
        masters.processes[NODES[-1][0]].send_signal(signal.SIGKILL)
        masters.processes[NODES[-1][0]].wait(10)
        alive = BenchMasters(masters.folder, dict(list(masters.by_node.items())[:2]))
        alive.processes = {node: masters.processes[node] for node in alive.by_node}
        for target in QUEUED_TRANSACTIONS:
            number = queued_transactions(alive)
            until = time.monotonic() + POINT_S - seconds
            while number < target and time.monotonic() < until:
                batch = ClosedLoad(alive.urls, RequestTemplate(REPOSITORY, "accepted", 100, "fill", number), 16)
                batch.run(0.0, min(2.0, max(0.05, (target - number) / 60_000)), lambda: None, lambda: None)
                if batch.wrong:
                    raise CannotMeasure(batch.wrong[0][:300])
                number = queued_transactions(alive)
            cost = run_closed_load(alive, 8, 1, seconds / 2, f"queue-{target}", "accepted")
            memory = max(rss_mb(pid) for pid in alive.pids.values())
            point = _build_point("queue", target, cost) | {"waiting": number, "rss_mb": round(memory)}
            points.append(point)
            if number < 0.9 * target:
                console.print(f"  {number:,} of {target:,} waiting after {POINT_S:g} s: the point says what it reached")
                break
    return points


def curve_behind(folder: Path, seconds: float) -> list[Point]:
    """The others go on without it (``Majority``); ``seconds`` is not used: a point is one start."""
    points = []
    node = NODES[-1][0]
    with three_masters(folder, split_mode="Majority", max_peer_lag_ms=5000) as masters:
        others = BenchMasters(masters.folder, dict(list(masters.by_node.items())[:2]))
        for target in MISSING_ENTRIES:
            have = masters.wait_at_rest()
            masters.processes[node].send_signal(signal.SIGKILL)
            masters.processes[node].wait(10)
            end = have
            until = time.monotonic() + 3 * POINT_S
            while end < have + target and time.monotonic() < until:
                batch = ClosedLoad(others.urls, RequestTemplate(REPOSITORY, "synced", 100, f"behind-{target}", end), 16)
                batch.run(0.0, min(2.0, max(0.05, (have + target - end) / 80_000)), lambda: None, lambda: None)
                if batch.wrong:
                    raise CannotMeasure(batch.wrong[0][:300])
                end = others.wait_at_rest()
            cpu = sum(cpu_seconds(masters.pids[other]) for other in others.by_node)
            began = time.monotonic()
            masters.start(node)
            masters.wait_joined(60)
            joined = time.monotonic() - began
            end = masters.wait_at_rest(60)
            took = time.monotonic() - began
            givers = sum(cpu_seconds(masters.pids[other]) for other in others.by_node) - cpu
            points.append(
                {
                    "of": "behind",
                    "at": target,
                    "entries": end - have,
                    "joined_s": round(joined, 2),
                    "level_s": round(took, 2),
                    "per_s": round((end - have) / took),
                    "givers_cpu_us": round(1e6 * givers / (end - have), 1),
                    "rss_mb": round(rss_mb(masters.pids[node])),
                }
            )
    return points


def queued_transactions(masters: BenchMasters) -> int:
    """Transactions that have no place in the log, as the master that knows of most tells."""
    found = []
    for url in masters.urls:
        with MasterClient(url, 30.0) as master:
            found.append(master.status().queue.transactions)
    return max(found)


def curve_payload(folder: Path, seconds: float) -> list[Point]:
    points: list[Point] = []
    with three_masters(folder) as masters:
        for size in PAYLOAD_BYTES:
            parts = [min(PART_BYTES, size - at) for at in range(0, size, PART_BYTES)]
            latencies: list[float] = []
            before = sum(cpu_seconds(pid) for pid in masters.pids.values())
            began = time.monotonic()
            while not latencies or time.monotonic() - began < min(seconds, POINT_S):
                took = 0.0
                for part in parts:
                    body = build_body(size, len(latencies), part)
                    took += timed_upload(masters.urls[len(latencies) % len(masters.urls)], REPOSITORY, body)
                latencies.append(took)
            used = sum(cpu_seconds(pid) for pid in masters.pids.values()) - before
            p50 = median(latencies) or 0.0
            points.append(
                {
                    "of": "payload",
                    "at": size,
                    "transactions": len(parts),
                    "p50_ms": round(1000 * p50, 2),
                    "mb_per_s": round(size / p50 / 1e6, 2),
                    "cpu_us": round(1e6 * used / len(latencies), 1),
                    "cpu_ms_per_mb": round(1e9 * used / len(latencies) / size, 1),
                    "n": len(latencies),
                }
            )
    return points


def build_body(size: int, number: int, part: int) -> bytes:
    """N-Quads of 200 bytes as far as they fit, then one with what is left."""
    run = f"p{size}-{part}"
    if part < 2 * QUAD_BYTES:
        start, end = b'<urn:%s:%d> <urn:p> "' % (run.encode(), number), b'" .\n'
        return start + b"x" * (part - len(start) - len(end)) + end
    count = part // QUAD_BYTES
    return b"".join([quad_line(1_000_000 * number + at, run) for at in range(count)])


def curve_latency(folder: Path, seconds: float) -> list[Point]:
    points: list[Point] = []
    with linked_masters(folder, NODES) as (masters, links):
        number, near = 0, 0.0
        for round_trip in LATENCIES_MS:
            links.delay_between_sites(round_trip / 2)
            point, number = _run_open_load(masters, "latency", round_trip, number, seconds)
            near = point["p50_ms"] if not round_trip else near
            points.append(point | _with_model(near + round_trip, point))
    return points


def curve_data_centers(folder: Path, seconds: float) -> list[Point]:
    points: list[Point] = []
    near = 0.0
    for count in DATA_CENTER_COUNTS:
        nodes = [(f"{name}-1", name) for name in ("uk", "us", "de", "jp", "br")[:count]]
        with linked_masters(folder / str(count), nodes) as (masters, links):
            number = 0
            if not near:
                point, number = _run_open_load(masters, "centres", count, number, seconds)
                near = point["p50_ms"]
            links.delay_between_sites(DATA_CENTER_LATENCY_MS / 2)
            before = sum(cpu_seconds(pid) for pid in masters.pids.values())
            point, number = _run_open_load(masters, "centres", count, number, seconds)
            used = sum(cpu_seconds(pid) for pid in masters.pids.values()) - before
        point["cpu_us"] = round(1e6 * used / (REQUESTS_PER_S * (WARM_UP_S + seconds)))
        points.append(point | _with_model(near + DATA_CENTER_LATENCY_MS, point))
    return points


def _run_open_load(masters: BenchMasters, of: str, at: int, number: int, seconds: float) -> tuple[Point, int]:
    """An open load, and the number of the next transaction."""
    masters.wait_joined()
    load = OpenLoad(masters.urls, RequestTemplate(REPOSITORY, "synced", 1, of, number), REQUESTS_PER_S)
    load.run(WARM_UP_S + seconds)
    p50, p99 = load.quantile_ms(0.5, WARM_UP_S), load.quantile_ms(0.99, WARM_UP_S)
    if load.wrong or p50 is None or p99 is None:
        raise CannotMeasure((load.wrong or ["no answer came"])[0][:300])
    point: Point = {"of": of, "at": at, "p50_ms": round(p50, 2), "p99_ms": round(p99, 2)}
    return point | {"per_s": round(load.per_s(WARM_UP_S, WARM_UP_S + seconds))}, load.requests.next


def _with_model(model_ms: float, point: Point) -> Point:
    return {"model_p50_ms": round(model_ms, 2), "off_pct": round(deviation_pct(model_ms, point["p50_ms"]), 1)}


def _build_point(of: str, at: int, cost: LoadCost) -> Point:
    return {
        "of": of,
        "at": at,
        "per_s": round(cost.per_s),
        "p50_ms": round(cost.p50, 2),
        "p99_ms": round(cost.p99, 2),
        "cpu_us": round(cost.us, 1),
    }


CURVES: Final[dict[str, Callable[[Path, float], list[Point]]]] = {
    "masters": curve_masters,
    "log": curve_log,
    "queue": curve_queue,
    "behind": curve_behind,
    "payload": curve_payload,
    "latency": curve_latency,
    "centres": curve_data_centers,
    "workers": curve_workers,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description="see the module's head")
    parser.add_argument("--only", default=",".join(CURVES), help="curves, with commas: " + ", ".join(CURVES))
    parser.add_argument("--seconds", type=float, default=4.0, help="measured at each point")
    options = parser.parse_args(arguments)
    only = [name.strip() for name in options.only.split(",") if name.strip()]
    wrong = [name for name in only if name not in CURVES]
    if wrong or not 0 < options.seconds <= POINT_S:
        parser.error(f"curves are {', '.join(CURVES)}; a point takes above 0 and at most {POINT_S:g} s")
    report = BenchReport("make bench-scale")
    scratch = Path.cwd() / ".txlog-bench"
    scratch.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="scale-", dir=scratch))
    points: list[Point] = []
    try:
        report.figure("file_system", disk_of(folder))
        report.figure("cores", os.cpu_count())
        report.figure("fsync_per_s", fsync_rate(folder), 0)
        for name in only:
            console.print(f"{name} ...")
            with report.part(name):
                found = CURVES[name](folder / name, options.seconds)
                points += found
                _print_points(name, found)
                report.require(f"{name}: every point", True, len(found))
    except NotOnDisk as why:
        report.failed("journals on a disk", str(why))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report.nested({"points": points})
    if set(only) == set(CURVES):
        report.save(Path("build/figures/bench-scale.json"))
    return report.end()


def _print_points(name: str, points: Sequence[Point]) -> None:
    columns = list(dict.fromkeys(key for point in points for key in point if key != "of"))
    rows: list[list[Figure]] = [[point.get(column) for column in columns] for point in points]
    print_table(build_table(f"against {name}", [name, *columns[1:]], rows))


if __name__ == "__main__":
    sys.exit(main())
