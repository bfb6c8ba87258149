"""``python -m e2e.scenarios.split_demo``: the United Kingdom and the United States lose each other, both go on, and
are one again.

Real data (GeoNames) is loaded, the links are cut, both sides write, each backs a worker up, and goes on alone after
``maxPeerLag``. When the links are healed the branches become one log; what had executed another order goes back.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

from e2e.lib.checks import check_exactly_once
from e2e.lib.cluster.local import MANIFESTS, LocalCluster, cluster_up, run_txlog
from e2e.lib.history import effects_by_txid
from e2e.lib.load.requests import SPARQL_UPDATE, submit_all, write_one
from e2e.lib.load.synchronous_load import RULES
from e2e.lib.readers import read_log
from e2e.lib.report import BenchReport, CannotMeasure, build_table, console, print_table
from e2e.lib.wait import NotYet, wait_until
from e2e.scenarios.geonames import GN, creation_write, data_folder, read_release
from txlog.cli.content_verification import compare_contents
from txlog.client import MasterClient, WriteRequest
from txlog.model.durability import Durability
from txlog.model.errors import TxLogError, Unavailable

STATE: Final = Path(".txlog-demo-split")
SECONDS_MAX: Final = 300
SIDES: Final = ("uk", "us")
CONFLICTING_SUBJECT: Final = "<https://sws.geonames.org/2643743/>"
"""London: both sides change it."""
GRAPH: Final = "<https://txlog.example/graph/split>"
JOIN_S: Final = 90.0
PROGRESS_S: Final = 0.5


@contextmanager
def manifests(
    *,
    lag: str,
    mode: str = "Continue",
    recovery: str = "Smart",
    workers: int = 1,
    graphs: Sequence[Mapping[str, str]] = (),
    more: Mapping[str, object] | None = None,
) -> Iterator[Path]:
    """The example's two data centres with shorter times. ``graphs``: the rules with which the cluster is founded.
    ``more``: further fields of ``spec``."""
    with tempfile.TemporaryDirectory() as folder:
        for side in SIDES:
            text = (MANIFESTS / f"{side}.yaml").read_text()
            text = re.sub(r"splitRecovery: \w+", f"splitRecovery: {recovery}\n  splitMode: {mode}", text)
            text = re.sub(
                r"maxPeerLag: \w+",
                f"maxPeerLag: {lag}\n  noneSplitDelay: {lag}\n  roundTimeout: 1s\n  idleInterval: 300ms",
                text,
            )
            text = re.sub(r"replicas: \d+", f"replicas: {workers}", text)
            if graphs:
                rules = json.dumps([dict(rule) for rule in graphs])
                text = text.replace("durability: {", f"durability: {{graphs: {rules}, ")
            text += "".join(f"  {name}: {json.dumps(value)}\n" for name, value in (more or {}).items())
            (Path(folder) / f"{side}.yaml").write_text(text)
        yield Path(folder)


class SplitScenario:
    """One split of a running cluster. ``written``: txids by side, each acknowledged."""

    def __init__(self, cluster: LocalCluster, tell: Callable[[str], None] = lambda _: None) -> None:
        self.cluster = cluster
        self.report_progress = tell
        self.written: dict[str, list[str]] = {side: [] for side in SIDES}

    # -- doing

    def cut(self) -> None:
        run_txlog("link", "cut", *SIDES, "--state", self.cluster.state.root)

    def heal(self) -> None:
        run_txlog("link", "heal", *SIDES, "--state", self.cluster.state.root)

    def load(self, side: str, writes: Sequence[WriteRequest], level: Durability) -> None:
        """Through the first master of that side; each answer that names a txid counts as acknowledged."""
        self.written[side] += submit_all(self.cluster.master_of(side), writes, level, wait_s=30)

    def change(self, side: str, population: int, level: str) -> None:
        """Both sides say how many live in London; the order of the log decides."""
        what = f"{CONFLICTING_SUBJECT} <{GN}population>"
        update = (
            f"DELETE {{ GRAPH {GRAPH} {{ {what} ?old }} }} INSERT {{ GRAPH {GRAPH} {{ {what} {population} }} }} "
            f"WHERE {{ OPTIONAL {{ GRAPH {GRAPH} {{ {what} ?old }} }} }}"
        )
        answer = write_one(self.cluster.master_of(side), self.cluster.repository, update, level)
        self.written[side].append(answer["txlog-transaction"])

    # -- looking

    def states(self) -> dict[str, str]:
        found = {}
        for node, url in self.cluster.nodes.items():
            with MasterClient(url, 5.0) as master:
                status = master.status()
                found[node] = status.state
        return found

    def wait_until(self, what: str, is_so: Callable[[dict[str, str]], bool], seconds: float = JOIN_S) -> float:
        """How long it took."""
        began, last = time.monotonic(), ""
        while time.monotonic() < began + seconds:
            try:
                states = self.states()
                line = ", ".join(f"{node} {state}" for node, state in states.items())
                if line != last:
                    self.report_progress(f"{time.monotonic() - began:5.1f} s  {line}")
                    last = line
                if is_so(states):
                    return time.monotonic() - began
            except TxLogError as not_now:
                last = str(not_now)
            time.sleep(0.2)
        raise CannotMeasure(f"not within {seconds:g} s: {what}; {last}")

    def wait_state(self, state: str, seconds: float = JOIN_S) -> float:
        return self.wait_until(f"all are {state}", lambda states: set(states.values()) == {state}, seconds)

    def population(self, side: str) -> list[list[str]]:
        text = f"SELECT ?p {{ GRAPH {GRAPH} {{ {CONFLICTING_SUBJECT} <{GN}population> ?p }} }}"
        return self.cluster.query(self.cluster.master_of(side), text)

    def counts_in_logs(self) -> list[Counter[str]]:
        """How often each txid takes effect, for every master's log, read from its first entry on."""
        return [effects_by_txid(read_log(url)) for url in self.cluster.masters]

    def violations(self) -> list[str]:
        """Acknowledged transactions that do not stand exactly once in each log."""
        every = [txid for txids in self.written.values() for txid in txids]
        return check_exactly_once(every, self.counts_in_logs())

    def report(self) -> list[dict[str, Any]]:
        told = json.loads(run_txlog("split-report", "--json", "--state", self.cluster.state.root))
        splits: list[dict[str, Any]] = told["splits"]
        return splits


class SplitProgress(threading.Thread):
    """While it is entered: what each data centre has to do and where each worker stands, whenever that has changed.
    The masters' states are told by :meth:`Story.wait_until`."""

    def __init__(self, cluster: LocalCluster, tell: Callable[[str], None]) -> None:
        super().__init__(daemon=True)
        self._cluster = cluster
        self._tell = tell
        self._began = time.monotonic()
        self._last: dict[str, str] = {}
        self._over = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.is_set():
            self.report_changes()
            self._over.wait(PROGRESS_S)
        self.report_changes()

    def report_changes(self) -> None:
        """A line for each thing that is not as it was told last."""
        for about, line in self.current_lines().items():
            if self._last.get(about) != line:
                self._last[about] = line
                self._tell(f"{time.monotonic() - self._began:5.1f} s  {line}")

    def current_lines(self) -> dict[str, str]:
        """By data centre and worker; what does not answer is left out."""
        found: dict[str, str] = {}
        end = 0
        for side, urls in self._cluster.masters_by_data_center.items():
            duties: dict[str, str] = {}
            for url in urls:
                with suppress(TxLogError), MasterClient(url, 5.0) as master:
                    duties |= {d["id"]: f"{d['kind']} {d['worker'] or ''}".strip() for d in master.duties()}
                    end = max(end, master.status().stable.index)
                    found[side] = f"{side} has to: {', '.join(sorted(set(duties.values()))) or 'nothing'}"
        for name, index in self._cluster.worker_indexes().items():
            found[name] = f"{name} stands at {index:,} of {end:,}" if index else f"{name} is being made anew"
        return found


def split_and_write(
    story: SplitScenario, first: dict[str, Sequence[WriteRequest]], second: dict[str, Sequence[WriteRequest]]
) -> float:
    """Cut, write on both sides, until both go on, and write again. How long both waited."""
    story.cut()
    for number, side in enumerate(SIDES):
        story.load(side, first[side], Durability.ACCEPTED)
        story.change(side, 8_000_000 + number, "accepted")
    waited = story.wait_state("Isolated")
    for number, side in enumerate(SIDES):
        story.load(side, second[side], Durability.SYNCED)
        story.change(side, 9_000_000 + number, "applied")
    return waited


def entity_batches(count: int) -> Iterator[list[WriteRequest]]:
    """Real things, ``count`` at a time."""
    release = read_release(data_folder())
    writes = [creation_write(name, thing) for name, thing in release.items()]
    for at in range(0, len(writes), count):
        yield writes[at : at + count]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.scenarios.split_demo", description="a split and its end, on real data"
    )
    parser.add_argument("--state", type=Path, default=STATE)
    parser.add_argument("--strategy", choices=["Smart", "Simple"], default="Smart")
    parser.add_argument("--synchronous", action="store_true", help="with a graph that needs a quorum")
    options = parser.parse_args(arguments)
    started = float(os.environ.get("TXLOG_STARTED") or time.time())
    report = BenchReport("make demo-split")
    with (
        report.part("the demonstration"),
        manifests(lag="10s", recovery=options.strategy, graphs=RULES if options.synchronous else ()) as folder,
        cluster_up(options.state, (folder,)) as cluster,
    ):
        _demo(cluster, report, options.synchronous)
    report.at_most("seconds", round(time.time() - started, 1), SECONDS_MAX)
    return report.end()


class QuorumStory:
    """What becomes of writes to a graph that needs a quorum: two of the three masters are in the United Kingdom."""

    def __init__(self, cluster: LocalCluster, tell: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._tell = tell
        self._rows: list[tuple[str, str, str]] = []

    def write_apart(self, report: BenchReport) -> None:
        """While both sides go on alone: one has the quorum."""
        graph = RULES[0]["match"].replace("*", "demo")
        found: dict[str, str] = {}
        for side in reversed(SIDES):
            update = f"INSERT DATA {{ GRAPH <{graph}> {{ <urn:demo:{side}> <urn:demo:wrote> true }} }}"
            with MasterClient(self._cluster.master_of(side), 30.0) as master:
                try:
                    written = master.write(
                        self._cluster.repository,
                        update.encode(),
                        SPARQL_UPDATE,
                        key=f"quorum-{side}",
                        durability=Durability.SYNCED,
                        wait_s=20,
                    )
                    found[side] = str(written.synchronous)
                except Unavailable as refused:
                    found[side] = refused.reason
                rule = master.synchro()["graphs"][0]
            self._rows.append((side, f"{rule['here']} of {rule['needs']} votes", found[side]))
        print_table(build_table(f"a write to {graph}", ("asked in", "here of needed", "answer"), self._rows))
        report.equal("quorum_side", found["uk"], "committed")
        report.equal("other_side", found["us"], "NoQuorum")

    def check_joined(self, report: BenchReport) -> None:
        """Both sides decide, and the graph has what the quorum accepted, in every worker."""

        def probe() -> bool:
            for url in self._cluster.masters:
                with MasterClient(url, 10.0) as master:
                    shown = master.synchro()
                if not (shown["quorate"] and all(rule["reached"] for rule in shown["graphs"])):
                    raise NotYet(f"{url} decides nothing")
                if shown["queue"]["undecided"]:
                    raise NotYet(f"{shown['queue']['undecided']} undecided at {url}")
            return True

        report.require("every master decides, nothing is undecided", wait_until("all decide", JOIN_S, probe))
        graph = RULES[0]["match"].replace("*", "demo")
        text = f"SELECT ?s {{ GRAPH <{graph}> {{ ?s <urn:demo:wrote> true }} }}"
        rows = [self._cluster.query(self._cluster.master_of(side), text) for side in SIDES]
        report.equal("in_the_graph", str(rows[0]), str([["urn:demo:uk"]]))
        report.require("the same everywhere", rows[0] == rows[1])


def _demo(cluster: LocalCluster, report: BenchReport, synchronous: bool) -> None:
    tell: Callable[[str], None] = lambda text: console.print(text, highlight=False)  # noqa: E731
    story = SplitScenario(cluster, tell)
    tell(f"every worker applies, {cluster.wait_applying(240):.1f} s after the masters were ready")
    some = entity_batches(500)
    story.load("uk", next(some), Durability.SYNCED)
    cluster.wait_converged(60)
    tell("500 things of GeoNames are everywhere. Now the ocean's cables are cut; both sides write on ...")
    parts = {side: (next(some), next(some)) for side in SIDES}
    waited = split_and_write(story, {s: p[0] for s, p in parts.items()}, {s: p[1] for s, p in parts.items()})
    tell(f"after {waited:.1f} s both have backed a worker up and go on alone:")
    tell(run_txlog("status", "--state", cluster.state.root))
    said = {side: story.population(side) for side in SIDES}
    print_table(
        build_table(
            "how many live in London?", ("asked in", "answer"), [[side, str(rows)] for side, rows in said.items()]
        )
    )
    quorum = QuorumStory(cluster, tell) if synchronous else None
    if quorum is not None:
        quorum.write_apart(report)
    story.heal()
    tell("the cables are mended ...")
    with SplitProgress(cluster, tell):
        took = story.wait_state("Joined")
        end = cluster.wait_converged(JOIN_S)
    tell(f"one log again after {took:.1f} s, {end[0]:,} entries; every worker is there")
    same = {side: story.population(side) for side in SIDES}
    print_table(
        build_table(
            "how many live in London now?", ("asked in", "answer"), [[s, str(rows)] for s, rows in same.items()]
        )
    )
    verdict = compare_contents(cluster.masters_by_data_center)
    tell(run_txlog("split-report", "--state", cluster.state.root))
    splits = story.report()
    report.equal("splits", len(splits), 1)
    report.equal("digests_equal", verdict.equal, True)
    report.at_least("moved", sum(split["moved"] or 0 for split in splits), 1)
    report.at_least("restored_workers", sum(len(split["restoredWorkers"]) for split in splits), 1)
    report.require("the two sides answered differently while they were apart", said["uk"] != said["us"])
    report.require("they answer the same now", same["uk"] == same["us"] and len(same["uk"]) == 1)
    if quorum is not None:
        quorum.check_joined(report)
    wrong = story.violations()
    report.require("every acknowledged transaction stands once in every log", not wrong, "; ".join(wrong[:3]))


if __name__ == "__main__":
    sys.exit(main())
