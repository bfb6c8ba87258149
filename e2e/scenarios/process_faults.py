"""``python -m e2e.scenarios.process_faults``: what breaks in real life, in real processes, under load. Scenarios:

=========== ========================================================================================
kills       kill -9 of every master, worker and Spark driver, at least 20 times each, at any moment
delayed     the link between the data centres takes 50 ms each way: how long ``synced`` takes
cut         that link is cut for 10 s: nothing but a delay
down        a worker is down for a minute, and catches up without a new transaction
restored    a worker comes back with an older copy of its folder
checkpoint  the Spark checkpoint is deleted under load
=========== ========================================================================================

After each, every log is scanned from its first to its last entry and every worker is read: what was acknowledged is
there once, what is there was sent, and what was acknowledged as synced stands before what was sent later.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from e2e.lib.checks import Verdict, check_counters, check_log, check_worker
from e2e.lib.cluster.local import LocalCluster, cluster_up, worker_number
from e2e.lib.history import LogRecord, counter_raises, logged_operations
from e2e.lib.load.requests import WriteProber
from e2e.lib.load.writers import RetryingSender, WriteClients, rotated
from e2e.lib.readers import read_log, read_worker
from e2e.lib.report import BenchReport, Figure, build_table, console, print_table, quantile
from txlog.cli.content_verification import compare_contents
from txlog.client import MasterClient
from txlog.model.errors import TxLogError

STATE: Final = Path(".txlog-faults")
KILLS: Final = 20
DELAY_MS: Final = 50.0
STABLE_AFTER_S: Final = 10.5
"""How long a process lives at least before it is killed again: a shorter life would be punished by the supervisor's
pauses, and what is looked for happens while it works, not while it waits."""
SETTLE_S: Final = 180.0
CLIENTS: Final = 8


class ScenarioResult(NamedTuple):
    """Of one scenario: what the checkers say, and remarks for the table."""

    verdict: Verdict
    counters: list[str]
    digests_equal: bool
    seconds: float
    remark: str


class ScenarioRun:
    """One cluster and one history, for all scenarios."""

    def __init__(self, cluster: LocalCluster, clients: WriteClients, report: BenchReport, kills: int) -> None:
        self.cluster = cluster
        self.clients = clients
        self.report = report
        self.kills = kills
        self.killed: dict[str, int] = {}

    def check(self) -> tuple[Verdict, list[str], bool]:
        """Wait until everything has come to rest, then look at all logs and all workers."""
        cluster, history = self.cluster, self.clients.history
        cluster.wait_converged(SETTLE_S)
        verdict = Verdict()
        log: list[LogRecord] = []
        for url in cluster.masters:
            log = read_log(url)
            verdict.add(check_log(history, logged_operations(log)))
        raised = counter_raises(log)  # all logs are one, so any will do
        counters: list[str] = []
        for worker in cluster.topology.workers:
            names, values = read_worker(cluster, worker.name)
            verdict.add(check_worker(history, names))
            counters += [f"{worker.name}: {wrong}" for wrong in check_counters(raised, values)]
        return verdict, counters, compare_contents(cluster.masters_by_data_center, 120).equal


# -- scenarios: each makes its fault under load and returns a remark; what it finds wrong it says to the report


def scenario_kills(run: ScenarioRun) -> str:
    """kill -9 of each process, each by a killer of its own, so that any of them are down together."""
    names = [name for name in run.cluster.pids() if name != "links"]
    killers = [
        threading.Thread(
            target=_kill_repeatedly, args=(run, name, random.Random(name)), name=f"killer-{name}", daemon=True
        )
        for name in names
    ]
    run.clients.start()
    for killer in killers:
        killer.start()
    while any(killer.is_alive() for killer in killers):
        time.sleep(10)
        done = " ".join(f"{name} {run.killed.get(name, 0)}" for name in names)
        console.print(f"  kills: {done}; acknowledged {run.clients.acknowledged:,}", highlight=False)
    run.clients.stop()
    for name in names:
        run.report.require(
            f"{name} killed {run.kills} times", run.killed.get(name, 0) >= run.kills, run.killed.get(name, 0)
        )
    return ", ".join(f"{name} {run.killed.get(name, 0)}" for name in names)


def _kill_repeatedly(run: ScenarioRun, name: str, draw: random.Random) -> None:
    cluster = run.cluster
    give_up = time.monotonic() + run.kills * 90 + 120
    last: int | None = None
    time.sleep(STABLE_AFTER_S * draw.random())  # or all would be down at the same moment each time
    while run.killed.get(name, 0) < run.kills and time.monotonic() < give_up:
        try:
            pid = cluster.pids().get(name)
            if pid is None or pid == last:
                time.sleep(0.2)
                continue
            born = time.monotonic()
            while not _is_working(cluster, name) and time.monotonic() < born + 60:
                time.sleep(0.2)
            time.sleep(max(0.0, born + STABLE_AFTER_S - time.monotonic()) + 2 * draw.random())
            last = cluster.kill(name)
            if last is not None:
                run.killed[name] = run.killed.get(name, 0) + 1
        except (TxLogError, OSError) as error:
            console.print(f"[yellow]killer of {name}: {error}[/yellow]", highlight=False)
            time.sleep(0.5)


def _is_working(cluster: LocalCluster, name: str) -> bool:
    """Whether a process does again what it is for."""
    if name in cluster.nodes:
        return _is_joined(cluster.nodes[name])
    if name.endswith("-pipeline"):
        mine = [worker.name for worker in cluster.topology.workers if name == f"{worker.data_center}-pipeline"]
        before = cluster.worker_indexes()
        time.sleep(1.0)
        after = cluster.worker_indexes()
        return any(after[each] > before[each] for each in mine if each in before and each in after)
    try:
        cluster.query_worker(name, "SELECT ?one { VALUES ?one { 1 } }", 2.0)
    except TxLogError:
        return False
    return True


def _is_joined(url: str) -> bool:
    try:
        with MasterClient(url, 2.0, connect_s=0.5) as master:
            return master.status().state == "Joined"
    except TxLogError:
        return False


def scenario_delayed(run: ScenarioRun) -> str:
    """50 ms each way between the data centres: synced is one round trip and little more."""
    control, cluster = run.cluster.control, run.cluster
    first, second = cluster.topology.data_centers[:2]
    control.delay(first, second, DELAY_MS)
    latencies: list[float] = []
    try:
        time.sleep(1.0)
        probers = [WriteProber(url, cluster.repository, "synced") for url in cluster.masters]
        for number in range(90):
            took = probers[number % len(probers)].write(b'<urn:probe:%d> <urn:probe> "x" <urn:probe> .\n' % number)
            if took is not None and number >= len(probers) * 3:
                latencies.append(took)
        for prober in probers:
            prober.close()
        run.clients.run_for(5.0)
    finally:
        control.delay(first, second, 0)
    p50 = quantile(latencies, 0.5)
    run.report.at_most("delayed_synced_p50_ms", 1000 * p50 if p50 is not None else None, 120.0)
    p99 = quantile(latencies, 0.99)
    run.report.figure("delayed_synced_p99_ms", 1000 * p99 if p99 is not None else None)
    return f"synced p50 {1000 * (p50 or 0):.0f} ms with {DELAY_MS:g} ms each way"


def scenario_cut(run: ScenarioRun) -> str:
    """10 s without a link, less than maxPeerLag: nobody leaves the view, nothing is refused."""
    control, cluster = run.cluster.control, run.cluster
    first, second = cluster.topology.data_centers[:2]
    before = _epochs(cluster)
    retries = run.clients.retries
    run.clients.start()
    time.sleep(3)
    control.cut(first, second)
    time.sleep(10)
    control.heal(first, second)
    time.sleep(5)
    run.clients.stop()
    cluster.wait_converged(SETTLE_S)
    after = _epochs(cluster)
    run.report.require("a cut of 10 s changes no view", before == after, f"epochs {after}")
    longest = max((op.ended_at - op.started_at for op in run.clients.history), default=0.0)
    return f"longest answer ever {longest:.1f} s, {run.clients.retries - retries} retries"


def scenario_down(run: ScenarioRun, seconds: float = 60.0) -> str:
    """A worker that was down catches up although nothing new arrives."""
    cluster, name = run.cluster, run.cluster.topology.workers[0].name
    cluster.control.stop(name)
    run.clients.run_for(seconds / 2)
    time.sleep(seconds / 2)
    end = max(cluster.stable_ends().values())
    behind = end[0] - worker_number(cluster.workers()[name])  # it is down, so what it last reported
    cluster.control.start(name)
    began = time.monotonic()
    cluster.wait_converged(SETTLE_S)
    took = time.monotonic() - began
    run.report.require("it catches up without a new transaction", max(cluster.stable_ends().values()) == end)
    return f"{name} was {behind:,} entries behind, and was there after {took:.1f} s"


def scenario_restored(run: ScenarioRun) -> str:
    """A store's folder from before: its position is inside, so what is missing follows."""
    cluster, name = run.cluster, run.cluster.topology.workers[-1].name
    folder = cluster.state.worker(name)
    copy = cluster.state.root / f"{name}-copy"
    cluster.control.stop(name)
    shutil.copytree(folder, copy)
    cluster.control.start(name)
    run.clients.run_for(5)
    cluster.wait_converged(SETTLE_S)
    cluster.control.stop(name)
    shutil.rmtree(folder)
    copy.rename(folder)
    cluster.control.start(name)
    began = time.monotonic()
    cluster.wait_converged(SETTLE_S)
    return f"{name} was there {time.monotonic() - began:.1f} s after it came back"


def scenario_checkpoint(run: ScenarioRun) -> str:
    """Spark's checkpoint is a cache. It is deleted twice: under the running query, and before a restart."""
    cluster = run.cluster
    gone = 0
    run.clients.start()
    time.sleep(3)
    for data_center in cluster.topology.data_centers:
        name = f"{data_center}-pipeline"
        for _ in range(2):
            for path in list((cluster.state.pipeline(data_center) / "scratch").iterdir()):
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                    gone += 1
            time.sleep(2)
            cluster.kill(name)
            time.sleep(3)
    time.sleep(5)
    run.clients.stop()
    run.report.require("there was a checkpoint to delete", gone > 0, gone)
    return f"{gone} folders deleted"


SCENARIOS: Final[dict[str, Callable[[ScenarioRun], str]]] = {
    "delayed": scenario_delayed,
    "cut": scenario_cut,
    "down": scenario_down,
    "restored": scenario_restored,
    "checkpoint": scenario_checkpoint,
    "kills": scenario_kills,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.scenarios.process_faults", description="faults; see the module's head"
    )
    parser.add_argument("--only", default=",".join(SCENARIOS), help="with commas: " + ", ".join(SCENARIOS))
    parser.add_argument("--kills", type=int, default=KILLS, help="of each process")
    parser.add_argument("--state", type=Path, default=STATE)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="leave the cluster running")
    options = parser.parse_args(arguments)
    wanted = [name.strip() for name in options.only.split(",") if name.strip()]
    wrong = [name for name in wanted if name not in SCENARIOS]
    if wrong:
        parser.error(f"no scenario is called {', '.join(wrong)}; there are {', '.join(SCENARIOS)}")
    report = BenchReport("make faults")
    found: dict[str, ScenarioResult] = {}
    clients: WriteClients | None = None
    killed: dict[str, int] = {}
    with report.part("the faults"), cluster_up(options.state, keep=options.keep) as cluster:
        sender = RetryingSender(cluster.repository, f"faults-{options.seed}")
        homes = {client: rotated(cluster.masters, client) for client in range(CLIENTS)}
        clients = WriteClients(sender, homes, seed=options.seed)
        clients.reset_counters()
        cluster.wait_applying(240)
        run = ScenarioRun(cluster, clients, report, options.kills)
        killed = run.killed
        for name in wanted:
            _run_scenario(name, run, found)
    _report_results(report, found, clients, killed)
    return report.end()


def _run_scenario(name: str, run: ScenarioRun, found: dict[str, ScenarioResult]) -> None:
    console.print(f"[bold]{name}[/bold]: {(SCENARIOS[name].__doc__ or '').splitlines()[0]}", highlight=False)
    began = time.monotonic()
    with run.report.part(name):
        remark = SCENARIOS[name](run)
        found[name] = ScenarioResult(*run.check(), time.monotonic() - began, remark)
    if name not in found:
        return
    verdict, counters, equal, _, remark = found[name]
    for what, wrong in (*verdict.findings.items(), ("counters", counters)):
        if wrong:
            console.print(f"[red]{what}:[/red] {'; '.join(wrong[:5])}", highlight=False)
    console.print(
        f"  {remark}; {'clean' if verdict.is_clean and not counters and equal else 'NOT CLEAN'}", highlight=False
    )


def _report_results(
    report: BenchReport, found: dict[str, ScenarioResult], clients: WriteClients | None, killed: dict[str, int]
) -> None:
    rows: list[list[Figure]] = [
        [
            name,
            each.verdict.acknowledged,
            each.verdict.unknown,
            len(each.verdict.lost),
            len(each.verdict.doubled) + len(each.counters),
            len(each.verdict.foreign),
            len(each.verdict.disordered),
            each.digests_equal,
            each.seconds,
            each.remark,
        ]
        for name, each in found.items()
    ]
    columns = (
        *("after", "acknowledged", "unknown", "lost", "doubled", "ghosts", "disordered", "digests equal", "seconds"),
        "remark",
    )
    print_table(build_table("all that was written so far, in all logs and all workers", columns, rows))
    report.figure("kills", sum(killed.values()))
    report.figure("acknowledged", clients.acknowledged if clients else 0)
    report.require("something was acknowledged", bool(clients and clients.acknowledged))
    report.figure("unknown", max((each.verdict.unknown for each in found.values()), default=0))
    report.equal("lost", len({lost for each in found.values() for lost in each.verdict.lost}), 0)
    doubled = {each for one in found.values() for each in (*one.verdict.doubled, *one.counters)}
    report.equal("doubled", len(doubled), 0)
    report.equal("ghosts", len({ghost for each in found.values() for ghost in each.verdict.foreign}), 0)
    report.equal("disordered", len({each for one in found.values() for each in one.verdict.disordered}), 0)
    report.equal("digests_equal", bool(found) and all(each.digests_equal for each in found.values()), True)
    if clients is not None:
        report.figure("retries", clients.retries)
        report.figure("repeated_on_purpose", clients.repeats)
        report.require(
            "no client met an error that is none of these", not clients.errors, "; ".join(clients.errors[:3])
        )


def _epochs(cluster: LocalCluster) -> dict[str, int]:
    epochs = {}
    for node, url in cluster.nodes.items():
        with MasterClient(url, 10.0) as master:
            epochs[node] = master.status().epoch
    return epochs


if __name__ == "__main__":
    sys.exit(main())
