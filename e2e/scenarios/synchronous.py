"""``python -m e2e.scenarios.synchronous``: graphs with a quorum, through splits, ``kill -9`` and a lost disk.

Five masters in three data centres, and a store for each. Clients at every master write graphs with a rule and others,
while links are cut at random instants. At the end every answer is compared with the log, and the stores with each
other. A store that has executed another order begins again: the log of this cluster is whole, so it is the backup.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from e2e.lib.cluster.backup_reporter import BackupReporter
from e2e.lib.cluster.following_stores import FollowingStore
from e2e.lib.cluster.links import LinkControl, linked_masters
from e2e.lib.cluster.log_ends import wait_at_rest
from e2e.lib.cluster.masters import REPOSITORY, BenchMasters, wait_quorate
from e2e.lib.load.synchronous_load import RULES, SynchronousClients, final_states, read_effects
from e2e.lib.report import BenchReport, CannotMeasure, console
from e2e.lib.synchronous_history import Told, judge_synchronous
from e2e.lib.wait import NotYet, wait_until
from txlog.client import MasterClient
from txlog.model.errors import TxLogError

NODES: Final = (("uk-1", "uk"), ("uk-2", "uk"), ("us-1", "us"), ("us-2", "us"), ("ap-1", "ap"))
LAG_S: Final = 2.0
JOIN_S: Final = 120.0
REST_S: Final = 60.0
KEEP_LOG_MS: Final = 24 * 3600 * 1000
SETTINGS: Final[dict[str, Any]] = {
    "max_peer_lag_ms": int(1000 * LAG_S),
    "round_timeout_ms": 500,
    "idle_interval_ms": 150,
    "log_keep_ms": KEEP_LOG_MS,
}


class Arena:
    """The running masters, and who decides nothing at the moment."""

    def __init__(self, masters: BenchMasters, links: LinkControl, seed: int) -> None:
        self.masters, self.links, self.draw = masters, links, random.Random(seed)
        self.minority: frozenset[str] = frozenset()
        self.faults: Counter[str] = Counter()
        self.clients = SynchronousClients(masters.by_node, REPOSITORY, seed, lambda node: node in self.minority)

    def states(self) -> dict[str, str]:
        """By node, of those that answer."""
        found = {}
        for node, url in self.masters.by_node.items():
            try:
                with MasterClient(url, 2.0) as master:
                    found[node] = str(master.status().state)
            except TxLogError as silent:
                found[node] = type(silent).__name__
        return found

    def wait_state(self, state: str, seconds: float = JOIN_S) -> None:
        """Until all masters are in it."""

        def probe() -> bool:
            states = self.states()
            if set(states.values()) != {state}:
                raise NotYet(", ".join(f"{node} {one}" for node, one in states.items()))
            return True

        wait_until(f"all are {state}", seconds, probe)

    # -- faults

    @contextmanager
    def cut(self, side: Sequence[str]) -> Iterator[None]:
        """These masters and the others do not reach each other."""
        others = [node for node, _ in NODES if node not in side]
        pairs = [pair for a in side for b in others for pair in ((a, b), (b, a))]
        self.links.set_faults([{"from": a, "to": b, "cut": True} for a, b in pairs])
        try:
            yield
        finally:
            self.minority = frozenset()
            self.links.set_faults([])

    def split(self) -> None:
        """A side with less than half of the votes is cut off for some seconds. It has just accepted a write that no
        other master holds."""
        side = self.draw.choice((["ap-1"], ["us-1"], ["uk-1", "uk-2"], ["us-1", "us-2"], ["uk-2", "ap-1"]))
        self.faults["split"] += 1
        console.print(f"  split: {', '.join(side)}", highlight=False)
        with self.cut(side):
            self.clients.write_once(side[0])
            self.wait_state("Isolated")
            self.minority = frozenset(side)
            time.sleep(1.5 + 3 * self.draw.random())
        self.wait_state("Joined")

    def cut_shortly(self) -> None:
        """For less than ``maxPeerLag``."""
        self.faults["short cut"] += 1
        with self.cut([self.draw.choice(NODES)[0]]):
            time.sleep(LAG_S * 0.6 * self.draw.random())
        self.wait_state("Joined")

    def kill(self, *, lose_disk: bool = False) -> None:
        """``kill -9`` of one master, which starts again, perhaps with an empty disk."""
        node = self.draw.choice(NODES)[0]
        self.faults["lost disk" if lose_disk else "kill -9"] += 1
        console.print(f"  {'lost disk' if lose_disk else 'kill -9'}: {node}", highlight=False)
        process = self.masters.processes[node]
        process.send_signal(signal.SIGKILL)
        process.wait()
        if lose_disk:
            shutil.rmtree(self.masters.journal_of(node))
        else:
            time.sleep(self.draw.random())
        self.masters.start(node)
        self.wait_state("Joined")


def run_faults(arena: Arena, seconds: float) -> None:
    """All kinds of faults, one disk lost among them, for so many seconds."""
    until, number = time.monotonic() + seconds, 0
    while time.monotonic() < until or number < 3:
        number += 1
        if number % 3 == 1:
            arena.split()
        elif number == 3:
            arena.kill(lose_disk=True)
        else:
            arena.draw.choice((arena.split, arena.cut_shortly, arena.kill))()
        time.sleep(arena.draw.random())
    if arena.faults["kill -9"] == 0:
        arena.kill()


def _print_differences(stores: Sequence[FollowingStore]) -> None:
    """Some of the quads that the first store or another one lacks."""
    first = set(stores[0].store.sorted_quads())
    for other in stores[1:]:
        quads = set(other.store.sorted_quads())
        for name, some in ((other.store_name, first - quads), (stores[0].store_name, quads - first)):
            for quad in sorted(some)[:10]:
                console.print(f"[red]{name} lacks {quad!r}[/red]", highlight=False)


def check_all(arena: Arena, stores: Sequence[FollowingStore], report: BenchReport) -> None:
    """Compare answers, logs and stores."""
    masters, clients = arena.masters, arena.clients
    masters.wait_at_rest(REST_S)
    pending = sorted({one.txid for one in clients.attempts if one.told is Told.PENDING and one.txid})
    final = final_states(masters.by_node, pending, REST_S)
    end = wait_at_rest(masters.by_node, REST_S)
    for store in stores:
        store.wait_at(end, REST_S)
        store.stop()
    logs = [read_effects(url) for url in masters.urls]
    effects, hashes = logs[0]
    judged = judge_synchronous(clients.attempts, effects, hashes, final)
    executed = Counter(effect.name for effect in effects)
    plain = [one for one in clients.plain if one.told is Told.COMMITTED]
    lost = [one.name for one in plain if executed[one.name] != 1]
    for text in [*(text for texts in vars(judged).values() for text in texts), *lost, *clients.errors][:20]:
        console.print(f"[red]{text}[/red]", highlight=False)
    refused = [one for one in clients.attempts if one.is_minority and one.told is Told.REFUSED]
    in_minority = [one for one in clients.attempts if one.told is Told.PENDING and one.txid]
    by_state = Counter(state for states in final.values() for state in set(states))
    left = 0
    for url in masters.urls:
        with MasterClient(url, 10.0) as master:
            left += int(master.synchro()["queue"]["undecided"])
    digests = [store.store.digest() for store in stores]
    is_equal = all(one == digests[0] for one in digests)
    if not is_equal:
        _print_differences(stores)
    minority = {
        "refused": len(refused),
        "logged": len(judged.logged_though_refused),
        "plain_synced": sum(one.is_minority for one in plain),
    }
    after = {"committed": by_state["committed"], "rolled_back": by_state["rolled-back"]}
    report.nested({"minority": minority, "after_rejoin": after, "faults": dict(arena.faults)})
    told = Counter(one.told.value for one in clients.attempts)
    report.nested({"told": dict(told), "plain_acknowledged": len(plain), "log": end[0]})
    for name, value in (*minority.items(), *after.items()):
        if name == "logged":
            report.require("refused and logged nonetheless", value == 0, value)
        else:
            report.require(f"{name}, more than 0", value > 0, value)
    report.at_least("undecided_at_split", len(in_minority), 1)
    report.equal("contradictions", len(judged.contradictions), 0)
    report.equal("executed_twice", len(judged.executed_twice), 0)
    report.equal("told_rolled_back_by_minority", len(judged.rolled_back_by_minority), 0)
    report.equal("plain_lost_or_doubled", len(lost), 0)
    report.equal("positions_kept", not judged.moved, True)
    report.equal("logs_equal", all(one == logs[0] for one in logs), True)
    report.equal("digests_equal", is_equal, True)
    report.equal("undecided_left", left, 0)
    report.equal("client_errors", len(clients.errors), 0)
    report.figure("restores", sum(store.restores for store in stores))


def main(argv: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m e2e.scenarios.synchronous", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long faults are injected")
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args(argv)
    seed = options.seed if options.seed is not None else random.randrange(1 << 30)
    report = BenchReport("synchronous transactions under faults")
    report.figure("seed", seed)
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as folder,
        report.part("the run"),
        linked_masters(Path(folder), NODES, **SETTINGS) as (masters, links),
        ExitStack() as stack,
    ):
        arena = Arena(masters, links, seed)
        by_center = {center: [masters.by_node[n] for n, at in NODES if at == center] for _, center in NODES}
        stores = [stack.enter_context(FollowingStore(center, urls, Path(folder))) for center, urls in by_center.items()]
        with MasterClient(masters.urls[0], 30.0) as master:
            master.configure({"graphs": list(RULES)})
        wait_quorate(arena.masters.urls, JOIN_S)
        reporter = BackupReporter(masters.urls)
        reporter.start()
        stack.callback(reporter.end)
        arena.clients.start()
        try:
            console.print(f"{len(NODES)} masters decide; faults for {options.seconds:g} s, seed {seed}")
            run_faults(arena, options.seconds)
        finally:
            arena.clients.stop()
        wait_quorate(arena.masters.urls, JOIN_S)
        check_all(arena, stores, report)
    report.figure("seconds", time.monotonic() - began)
    report.print_figures()
    return report.end()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CannotMeasure as why:
        console.print(f"[red]{why}[/red]", highlight=False)
        sys.exit(1)
