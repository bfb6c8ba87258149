"""``python -m e2e.scenarios.rolling_restart``: every master is restarted in turn, then every one killed, while clients
write.

*Patient* clients repeat a write at another master under its Idempotency-Key until it is synced: none may fail, and the
longest that one of them waits is the *pause*. *Plain* clients know nothing of keys: they send each write once, and go
to another master when the one they use says 503 with Retry-After; in a rolling restart they may see nothing else.
"""

from __future__ import annotations

import argparse
import http.client
import shutil
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from e2e.lib.checks import Verdict, check_log
from e2e.lib.cluster.log_ends import wait_at_rest
from e2e.lib.cluster.supervised import SupervisedCluster, supervised_up
from e2e.lib.history import ClientOperation, WriteOutcome, logged_operations, transaction_quads
from e2e.lib.load.requests import N_QUADS
from e2e.lib.load.writers import ClientPatience, RetryingSender, WriteClients, WriteMix, rotated
from e2e.lib.readers import read_log
from e2e.lib.report import BenchReport, CannotMeasure, Figure, build_table, console, print_table, quantile
from e2e.lib.wait import wait_until

STATE: Final = Path(".txlog-rolling")
RETRYING_CLIENTS: Final = 4
PLAIN_CLIENTS: Final = 2
PAUSE_ROLLING_S: Final = 1.0
PAUSE_KILLED_S: Final = 1.0
"""Beside the round time-out."""
GIVE_UP_S: Final = 60.0
THINK_S: Final = 0.01
PATIENCE: Final = ClientPatience(wait_s=5, give_up_s=GIVE_UP_S, pause_s=THINK_S, connect_s=0.5, exact=True, stays=True)
PATIENT_MIX: Final = WriteMix(("synced",), 0, counters=0.0, repeats=0.0, pause_s=THINK_S)
SETTLE_S: Final = 1.0
"""Of load before and after each restart."""


class RollingLoad:
    """Clients over all masters. ``plain``: how often plain clients got each answer."""

    def __init__(self, masters: SupervisedCluster) -> None:
        self.plain: Counter[str] = Counter()
        sender = RetryingSender(masters.repository, "rolling", PATIENCE)
        homes = {client: rotated(masters.masters, client) for client in range(RETRYING_CLIENTS)}
        self._patient = WriteClients(sender, homes, PATIENT_MIX)
        self._plain_history: list[ClientOperation] = []
        self._plain_broken: list[str] = []
        self._urls = masters.masters
        self._path = f"/repositories/{masters.repository}/statements"
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run_plain, args=(client,), name=f"plain-{client}", daemon=True)
            for client in range(PLAIN_CLIENTS)
        ]

    def start(self) -> None:
        self._patient.start()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        self._patient.stop()
        for thread in self._threads:
            thread.join(PATIENCE.give_up_s + 10)

    @property
    def history(self) -> list[ClientOperation]:
        return [*self._patient.history, *self._plain_history]

    @property
    def waits(self) -> list[tuple[float, float]]:
        """Per patient write that was synced: when, and how long that took."""
        done = (op for op in list(self._patient.history) if op.outcome is WriteOutcome.ACKNOWLEDGED)
        return [(op.ended_at, op.ended_at - op.started_at) for op in done]

    @property
    def retries(self) -> int:
        return self._patient.retries

    @property
    def failed(self) -> list[str]:
        """Patient writes that were never synced, and clients that ended."""
        never = [op for op in list(self._patient.history) if op.outcome is not WriteOutcome.ACKNOWLEDGED]
        late = [f"{op.name} is not synced after {PATIENCE.give_up_s:g} s" for op in never]
        return [*late, *self._patient.errors, *self._plain_broken]

    def longest_wait_s(self, since: float) -> float:
        """The longest wait of a patient write that was synced since then, in seconds."""
        return max((took for at, took in self.waits if at >= since), default=0.0)

    def _run_plain(self, client: int) -> None:
        try:
            self._write_plain(client)
        except Exception as wrong:  # noqa: BLE001 - a client that ends early would make everything look well
            self._plain_broken.append(f"plain client {client} ended: {wrong!r}")

    def _write_plain(self, client: int) -> None:
        at, number = client, 0
        connection = self._plain_connection(at)
        headers = {"Content-Type": N_QUADS, "TxLog-Durability": "synced", "Prefer": "wait=30"}
        while not self._over.is_set():
            number += 1
            name = f"plain-{client}-{number}"
            began, outcome, answered = time.monotonic(), WriteOutcome.UNKNOWN, ""
            try:
                connection.request("POST", self._path, body=transaction_quads(name).encode(), headers=headers)
                answer = connection.getresponse()
                answer.read()
                answered = str(answer.status)
                if answer.status == 204:
                    outcome = WriteOutcome.ACKNOWLEDGED
                elif answer.status == 503 and answer.headers["Retry-After"]:
                    answered, outcome = "503 with Retry-After", WriteOutcome.REFUSED
            except (OSError, http.client.HTTPException) as broken:
                answered = type(broken).__name__
            level = "synced" if outcome is WriteOutcome.ACKNOWLEDGED else ""
            with self._lock:
                self.plain[answered] += 1
                self._plain_history.append(ClientOperation(name, began, time.monotonic(), outcome, level))
            if outcome is not WriteOutcome.ACKNOWLEDGED:
                connection.close()
                at += 1
                connection = self._plain_connection(at)
            time.sleep(THINK_S)

    def _plain_connection(self, at: int) -> http.client.HTTPConnection:
        url = urlsplit(self._urls[at % len(self._urls)])
        return http.client.HTTPConnection(url.hostname or "", url.port, timeout=40)


# -- what happens


def restart_master(masters: SupervisedCluster, load: RollingLoad, node: str) -> list[Figure]:
    """SIGTERM, a new process, and all masters in one view again."""
    began = time.monotonic()
    masters.control.stop(node)
    stopped = time.monotonic() - began
    masters.control.start(node)
    back = masters.wait_joined()
    time.sleep(SETTLE_S)
    return [f"restart {node}", stopped, back, load.longest_wait_s(began)]


def kill_master(masters: SupervisedCluster, load: RollingLoad, node: str) -> list[Figure]:
    """kill -9; the supervisor proves it and starts it again."""
    masters.wait_seen(node)
    start = masters.status(node).start
    began = time.monotonic()
    if masters.kill(node) is None:
        raise CannotMeasure(f"{node} does not run, so it cannot be killed")
    wait_until(f"{node} starts again", GIVE_UP_S, lambda: masters.status(node).start > start, pause_s=0.02)
    masters.wait_joined()
    back = time.monotonic() - began
    time.sleep(SETTLE_S)
    return [f"kill -9 {node}", None, back, load.longest_wait_s(began)]


def check_logs(masters: SupervisedCluster, load: RollingLoad) -> Verdict:
    """Every log against what the clients were answered."""
    masters.wait_joined()
    wait_at_rest(masters.nodes, GIVE_UP_S)
    verdict = Verdict()
    for url in masters.masters:
        verdict.add(check_log(load.history, logged_operations(read_log(url))))
    return verdict


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.scenarios.rolling_restart", description="rolling restart and kill -9 under load"
    )
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--state", type=Path, default=STATE)
    parser.add_argument("--keep", action="store_true", help="keep the state folder")
    options = parser.parse_args(arguments)
    report = BenchReport("make rolling")
    rows: list[list[Figure]] = []
    with report.part("the rolling restart"):
        with supervised_up(options.state) as masters:
            load = RollingLoad(masters)
            load.start()
            time.sleep(SETTLE_S)
            calm = quantile([took for _, took in load.waits], 0.99)
            report.figure("calm_p99_ms", 1000 * calm if calm is not None else None)
            for _ in range(options.rounds):
                rows += [restart_master(masters, load, node) for node in masters.nodes]
            plain = dict(load.plain)
            restarts = len(rows)
            for _ in range(options.rounds):
                rows += [kill_master(masters, load, node) for node in masters.nodes]
            load.stop()
            _report_results(report, rows, restarts, load, plain, check_logs(masters, load), masters.round_timeout_s)
        if not options.keep:
            shutil.rmtree(options.state, ignore_errors=True)
    return report.end()


def _report_results(
    report: BenchReport,
    rows: list[list[Figure]],
    restarts: int,
    load: RollingLoad,
    plain: dict[str, int],
    verdict: Verdict,
    round_timeout_s: float,
) -> None:
    print_table(
        build_table("under load", ("what", "stopped in s", "all joined after s", "longest pause of synced, s"), rows)
    )
    print_table(build_table("plain clients during the restarts", ("answer", "times"), sorted(plain.items())))
    rolling = [float(row[3] or 0) for row in rows[:restarts]]
    killed = [float(row[3] or 0) for row in rows[restarts:]]
    report.at_most("rolling_pause_s", max(rolling), PAUSE_ROLLING_S)
    report.figure("rolling_stop_s", max(float(row[1] or 0) for row in rows[:restarts]))
    report.at_most("kill_pause_s", max(killed), round_timeout_s + PAUSE_KILLED_S)
    report.figure("kill_back_s", max(float(row[2] or 0) for row in rows[restarts:]))
    report.figure("writes", len(load.history))
    report.figure("retries", load.retries)
    report.equal("failed_writes", len(load.failed), 0)
    # A master that stops tells plain clients so before it closes its port: at least one of them has to have heard it.
    report.at_least("plain_503", plain.get("503 with Retry-After", 0), 1)
    others = {said: count for said, count in plain.items() if said not in ("204", "503 with Retry-After")}
    report.equal("plain_anything_else", sum(others.values()), 0)
    report.equal("lost", len(verdict.lost), 0)
    report.equal("duplicated", len(verdict.doubled), 0)
    report.equal("ghosts", len(verdict.foreign), 0)
    report.equal("reordered", len(verdict.disordered), 0)
    for line in (*load.failed[:5], *verdict.lost[:3], *verdict.doubled[:3], *verdict.foreign[:3]):
        console.print(f"[red]{line}[/red]", highlight=False)


if __name__ == "__main__":
    sys.exit(main())
