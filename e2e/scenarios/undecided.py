"""``python -m e2e.scenarios.undecided``: synchronous transactions that stay undecided.

The only master in the United States is suspended, so forty transactions that need it stay undecided. A backup is made
of them, a store is rebuilt from it, and the log goes on.

Then the two countries are far from each other, so that some transactions are always undecided. Backups are made, and
the logs are trimmed behind them. A master is killed and one loses its disk; both are asked once more for what was
written with a key.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from e2e.lib.cluster.local import LocalCluster, empty_folder, run_txlog
from e2e.lib.cluster.masters import wait_quorate
from e2e.lib.cluster.supervised import supervised_up
from e2e.lib.load.synchronous_load import RULES, effects_of
from e2e.lib.report import BenchReport, CannotMeasure, console
from e2e.lib.synchronous_history import LoggedEffect
from e2e.lib.wait import NotYet, wait_until
from e2e.scenarios.split_demo import JOIN_S, manifests
from txlog.backup.backup_manifest import MANIFEST_NAME
from txlog.cli.content_verification import compare_contents
from txlog.client import MasterClient
from txlog.client.responses import WriteRequest, WriteResult
from txlog.model.durability import Durability
from txlog.model.errors import TxLogError

FOLDER: Final = Path(".txlog-undecided")
UNDECIDED: Final = 40
GRAPH: Final = "http://ex.org/ledger/forty"
LOAD_GRAPH: Final = "http://ex.org/ledger/load"
LEARNER, WRITER = "uk-2", "us-1"
DELAY: Final = "80ms"
ROUND_S: Final = 0.16
PACE_S: Final = 0.01
SAMPLE_S: Final = 0.25
BACKUP_EVERY_S: Final = 5.0
REPEATS: Final = 300
REQUEST_S: Final = 30.0


def _row(name: str, graph: str) -> str:
    return f'<urn:sync:op:{name}> <urn:sync:by> "x" <{graph}> .'


def _steady(name: str) -> WriteRequest:
    return WriteRequest(quads=_row(name, LOAD_GRAPH), key=name, synchronous="all", timeout="1h")


class FortyUndecided:
    """The cluster with stores."""

    def __init__(self, cluster: LocalCluster, target: Path) -> None:
        self._cluster, self._target = cluster, target
        self._master = cluster.master_of("uk")

    def run(self, report: BenchReport) -> None:
        cluster = self._cluster
        wait_quorate(cluster.masters, JOIN_S)
        cluster.wait_applying(240)
        cluster.wait_converged(60)
        with self._suspended(cluster.topology.masters_of("us")[0].node):
            self._write()
            name = self._backup(report)
            self._rebuild(name)
            report.equal("effects_before_the_decision", len(self._rows("uk-worker-1")), 0)
        self._wait_decided()
        end = cluster.wait_converged(JOIN_S)
        self._check(report, "equal", "after the decision every store has the forty, and all have the same")
        console.print(f"decided, {end[0]} entries; the backup is restored once more, before what is decided now")
        self._rebuild(name)
        cluster.wait_converged(JOIN_S)
        self._check(report, "equal_again", "the backup, the decision and what follows give the same")

    @contextmanager
    def _suspended(self, process: str) -> Iterator[None]:
        pid = self._cluster.pids()[process]
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def _write(self) -> None:
        """At once, while the door still takes the suspended master for present."""
        lines = [
            WriteRequest(quads=_row(f"forty-{number}", GRAPH), synchronous="all", timeout="1h")
            for number in range(UNDECIDED)
        ]
        with MasterClient(self._master, REQUEST_S) as master:
            answers = list(master.submit(lines, Durability.ACCEPTED, wait_s=1.0))
            if refused := [one for one in answers if one.error is not None]:
                raise CannotMeasure(f"{len(refused)} of {UNDECIDED} are refused: {refused[0].message}")
            console.print(f"{len(answers)} transactions need all masters, one of which is suspended")

            def probe() -> bool:
                shown, status = master.synchro(), master.status()
                if shown["queue"]["undecided"] != UNDECIDED or not shown["quorate"] or status.state != "Isolated":
                    raise NotYet(f"{shown['queue']['undecided']} undecided, {status.state}")
                return True

            wait_until("the others go on without it", JOIN_S, probe)
            plain = _row("plain", "http://ex.org/plain")
            list(master.submit([WriteRequest(quads=plain)], Durability.APPLIED_ALL, wait_s=REQUEST_S))

    def _backup(self, report: BenchReport) -> str:
        state, target = self._cluster.state.root, self._target
        run_txlog(
            "backup", "create", "--worker", "uk-worker-1", "--target", target, "--name", "forty", "--state", state
        )
        manifest = json.loads((target / "forty" / MANIFEST_NAME).read_bytes())
        report.equal("undecided_at_backup", len(manifest["undecided"]), UNDECIDED)
        return "forty"

    def _rebuild(self, backup: str) -> None:
        arguments = ("--from", backup, "--yes", "--state", self._cluster.state.root)
        run_txlog("worker", "rebuild", "uk-worker-1", *arguments)
        with MasterClient(self._master, REQUEST_S) as master:
            stable = master.status().stable.index

        def probe() -> bool:
            if (at := self._cluster.worker_index("uk-worker-1")) < stable:
                raise NotYet(f"the store is at {at} of {stable}")
            return True

        wait_until("the rebuilt store has executed the log", JOIN_S, probe)

    def _wait_decided(self) -> None:
        def probe() -> bool:
            for url in self._cluster.masters:
                with MasterClient(url, REQUEST_S) as master:
                    if left := master.synchro()["queue"]["undecided"]:
                        raise NotYet(f"{left} undecided at {url}")
            return True

        wait_until("all are decided", JOIN_S, probe)

    def _rows(self, worker: str) -> list[list[str]]:
        return self._cluster.query_worker(worker, f"SELECT ?s {{ GRAPH <{GRAPH}> {{ ?s ?p ?o }} }}")

    def _check(self, report: BenchReport, name: str, what: str) -> None:
        counts = {worker.name: len(self._rows(worker.name)) for worker in self._cluster.topology.workers}
        report.require(what, set(counts.values()) == {UNDECIDED}, str(counts))
        report.equal(name, compare_contents(self._cluster.masters_by_data_center).equal, True)


class BackgroundActivity(threading.Thread):
    """Until :meth:`end`: does one thing at a master. ``error``: why it ended before."""

    def __init__(self, url: str, activity: Callable[[MasterClient, threading.Event], None]) -> None:
        super().__init__(daemon=True)
        self.error = ""
        self._url, self._activity, self._over = url, activity, threading.Event()

    def end(self) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        try:
            with MasterClient(self._url, REQUEST_S) as master:
                self._activity(master, self._over)
        except TxLogError as wrong:
            self.error = repr(wrong)


class EffectReader:
    """Reads what takes effect along the log of a master, which is trimmed behind it. ``index``: how far it is."""

    def __init__(self, index: int) -> None:
        self.effects: list[LoggedEffect] = []
        self.index = index

    def follow(self, master: MasterClient, over: threading.Event) -> None:
        while not over.is_set():
            entries = master.log_page(self.index).log_entries()
            self.effects += [effect for entry in entries for effect in effects_of(entry)]
            self.index = entries[-1].index if entries else self.index
            over.wait(0 if entries else SAMPLE_S / 2)


class SteadyLoad:
    """Writes transactions with keys at one pace. ``written``: the answer to each, by its name."""

    def __init__(self) -> None:
        self.written: dict[str, WriteResult] = {}

    def write(self, master: MasterClient, over: threading.Event) -> None:
        sent: list[str] = []
        answers = master.submit(self._lines(sent, over), Durability.SYNCED, wait_s=REQUEST_S, batch_bytes=0)
        for number, answer in enumerate(answers):
            self.written[sent[number]] = answer

    @staticmethod
    def _lines(sent: list[str], over: threading.Event) -> Iterator[WriteRequest]:
        while not over.wait(PACE_S):
            sent.append(f"steady-{len(sent)}")
            yield _steady(sent[-1])


class LogStartWatch:
    """How the beginnings of the logs move. ``lags``: entries between where readers may begin and where the log does."""

    def __init__(self) -> None:
        self.starts: dict[str, set[int]] = {}
        self.lags: list[int] = []
        self.undecided: list[int] = []
        self.held_back_by: list[dict[str, object]] = []

    def sample(self, nodes: Mapping[str, str]) -> None:
        for node, url in nodes.items():
            with MasterClient(url, REQUEST_S) as master:
                trim, shown = master.status().trim or {}, master.synchro()
            self.starts.setdefault(node, set()).add(int(trim["keptFrom"]))
            self.held_back_by = trim["heldBackBy"][:2]
            self.lags.append(int(trim["servedFrom"]) - int(trim["keptFrom"]))
            if node == WRITER:
                self.undecided.append(int(shown["queue"]["undecided"]))


class AlwaysUndecided:
    """The same cluster under a load whose transactions need both countries."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster, self._backups = cluster, 0

    def run(self, seconds: float, report: BenchReport) -> None:
        cluster = self._cluster
        run_txlog("link", "delay", "uk", "us", DELAY, "--state", cluster.state.root)
        reader, load = EffectReader(cluster.wait_converged(JOIN_S)[0]), SteadyLoad()
        reads = BackgroundActivity(cluster.nodes["uk-1"], reader.follow)
        writes = BackgroundActivity(cluster.nodes[WRITER], load.write)
        first, began = reader.index, time.monotonic()
        reads.start()
        writes.start()
        watch = self._watch(began + seconds)
        writes.end()
        took_s = time.monotonic() - began
        self._repeat_everywhere(load, report)
        end = cluster.wait_converged(JOIN_S)[0]
        wait_until("all is read", JOIN_S, lambda: reader.index >= end or bool(reads.error))
        reads.end()
        report.require("the load was not refused", not writes.error, writes.error or None)
        report.require("the log could be read to its end", not reads.error, reads.error or None)
        self._judge(watch, load, reader.effects, seconds, report)
        entries = ROUND_S * (end - first) / took_s
        report.at_most("foot_lag_entries", max(watch.lags), 2 * entries)
        report.figure("entries_of_a_round", entries)
        report.equal("equal_in_the_end", compare_contents(cluster.masters_by_data_center).equal, True)

    def _watch(self, until: float) -> LogStartWatch:
        watch, next_backup = LogStartWatch(), 0.0
        while time.monotonic() < until:
            watch.sample(self._cluster.nodes)
            if time.monotonic() > next_backup:
                self._back_up()
                next_backup = time.monotonic() + BACKUP_EVERY_S
            time.sleep(SAMPLE_S)
        return watch

    def _back_up(self) -> None:
        self._backups += 1
        run_txlog("backup", "create", "--name", f"steady-{self._backups}", "--state", self._cluster.state.root)

    def _judge(
        self,
        watch: LogStartWatch,
        load: SteadyLoad,
        effects: Sequence[LoggedEffect],
        seconds: float,
        report: BenchReport,
    ) -> None:
        times = Counter(effect.name for effect in effects if effect.name)
        committed = [name for name, answer in load.written.items() if answer.synchronous == "committed"]
        wrong = {name for name in committed if times[name] != 1} | {name for name, count in times.items() if count > 1}
        undecided = sorted(watch.undecided)
        report.at_least("undecided_p50", undecided[len(undecided) // 2], 10)
        report.at_least("committed", len(committed), seconds / PACE_S / 4)
        report.equal("lost_or_doubled", len(wrong), 0)
        report.nested({"held_back_by": watch.held_back_by})
        report.at_least("log_start_moves", min(len(starts) for starts in watch.starts.values()) - 1, seconds / 60)

    def _repeat_everywhere(self, load: SteadyLoad, report: BenchReport) -> None:
        """At a master that is killed, and at one that has to learn the log since its disk is lost."""
        different, repeated = [], 0
        for node in (WRITER, LEARNER):
            self._restart(node, lose_disk=node == LEARNER)
            names = list(load.written)[-REPEATS:]
            with MasterClient(self._cluster.nodes[node], REQUEST_S) as master:
                answers = list(master.submit(map(_steady, names), Durability.SYNCED, wait_s=REQUEST_S))
            repeated += len(answers)
            different += [
                f"{name} at {node}: {answer}"
                for name, answer in zip(names, answers, strict=True)
                if (answer.txid, answer.synchronous) != (load.written[name].txid, "committed")
            ]
        for text in different[:5]:
            console.print(f"[red]{text}[/red]", highlight=False)
        report.at_least("repeated", repeated, 2)
        report.equal("repeats_answered_otherwise", len(different), 0)

    def _restart(self, node: str, *, lose_disk: bool) -> None:
        """By kill -9; its supervisor starts it again. The journal goes while the process is suspended."""
        cluster = self._cluster
        with MasterClient(cluster.nodes[node], REQUEST_S) as master:
            before = master.status()
        os.kill(cluster.pids()[node], signal.SIGSTOP)
        if lose_disk:
            shutil.rmtree(next(cluster.state.master(node).rglob("segment-*")).parent)
        cluster.kill(node)

        def probe() -> bool:
            with MasterClient(cluster.nodes[node], REQUEST_S) as master:
                status = master.status()
            is_another = (status.birth, status.start) != (before.birth, before.start)
            if not is_another or status.state != "Joined" or (status.birth != before.birth) != lose_disk:
                raise NotYet(f"{node} is {status.state}, birth {status.birth}")
            return True

        wait_until(f"{node} is back", JOIN_S, probe)
        wait_quorate(cluster.masters, JOIN_S)


def main(argv: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m e2e.scenarios.undecided", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="how long the steady load lasts")
    options = parser.parse_args(argv)
    report = BenchReport("make undecided")
    folder = empty_folder(FOLDER)
    target = (folder / "backups").absolute()
    target.mkdir()
    where = {"folder": {"path": str(target)}}
    with (
        report.part("what stays undecided"),
        manifests(lag="5s", graphs=RULES, more={"log": {"keep": "0s"}, "backup": {"target": where}}) as files,
        supervised_up(folder / "state", files) as cluster,
    ):
        FortyUndecided(cluster, target).run(report)
        AlwaysUndecided(cluster).run(options.seconds, report)
    report.print_figures()
    return report.end()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CannotMeasure as why:
        console.print(f"[red]{why}[/red]", highlight=False)
        sys.exit(1)
