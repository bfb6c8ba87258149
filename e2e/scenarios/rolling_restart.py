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

from e2e.lib.cluster.masters import CannotMeasure
from e2e.lib.cluster.supervised import SupervisedMasters, masters_up
from e2e.lib.history import ClientOperation, HistoryVerdict, WriteOutcome, check_log
from e2e.lib.load.write_clients import read_log
from e2e.lib.report import BenchReport, Figure, build_table, console, print_table, quantile
from txlog.client import MasterUnreachable
from txlog.client.connection import MasterConnection
from txlog.model.errors import TxLogError, Unavailable

STATE: Final = Path(".txlog-rolling")
RETRYING_CLIENTS: Final = 4
PLAIN_CLIENTS: Final = 2
PAUSE_ROLLING_S: Final = 1.0
PAUSE_KILLED_S: Final = 1.0
"""Beside the round time-out."""
GIVE_UP_S: Final = 60.0
THINK_S: Final = 0.01
SETTLE_S: Final = 1.0
"""Of load before and after each restart."""


class RollingLoad:
    """Clients over all masters. :attr:`waits` holds, per patient write, when it was synced and how long that took."""

    def __init__(self, masters: SupervisedMasters) -> None:
        self.masters = masters
        self.history: list[ClientOperation] = []
        self.waits: list[tuple[float, float]] = []
        self.plain: Counter[str] = Counter()
        self.retries = 0
        self.failed: list[str] = []
        self._urls = masters.masters
        self._path = f"/repositories/{masters.repository}/statements"
        self._over = threading.Event()
        self._lock = threading.Lock()
        clients = [(self._retrying_client, n) for n in range(RETRYING_CLIENTS)] + [
            (self._plain_client, n) for n in range(PLAIN_CLIENTS)
        ]
        self._threads = [
            threading.Thread(target=self._run, args=(client, n), name=f"{client.__name__}-{n}", daemon=True)
            for client, n in clients
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(GIVE_UP_S + 10)

    def longest_wait_s(self, since: float) -> float:
        """The longest wait of a patient write that was synced since then, in seconds."""
        with self._lock:
            return max((took for at, took in self.waits if at >= since), default=0.0)

    def _run(self, client: object, number: int) -> None:
        assert callable(client)
        try:
            client(number)
        except Exception as wrong:  # noqa: BLE001 - a client that ends early would make everything look well
            self.failed.append(f"{threading.current_thread().name} ended: {wrong!r}")

    # -- patient

    def _retrying_client(self, client: int) -> None:
        connections = {url: MasterConnection(url, timeout_s=10.0, connect_s=0.5) for url in self._urls}
        at, number = client, 0
        while not self._over.is_set():
            number += 1
            name = f"patient-{client}-{number}"
            began = time.monotonic()
            while not self._attempt(connections[self._urls[at % len(self._urls)]], name):
                at += 1
                with self._lock:
                    self.retries += 1
                if time.monotonic() > began + GIVE_UP_S:
                    self.failed.append(f"{name} is not synced after {GIVE_UP_S:g} s")
                    self._record(name, began, WriteOutcome.UNKNOWN)
                    break
                time.sleep(THINK_S)
            else:
                self._record(name, began, WriteOutcome.ACKNOWLEDGED)
            time.sleep(THINK_S)

    def _attempt(self, connection: MasterConnection, name: str) -> bool:
        headers = {
            "Content-Type": "application/n-quads",
            "TxLog-Durability": "synced",
            "Prefer": "wait=5",
            "Idempotency-Key": name,
        }
        try:
            reply = connection.request("POST", self._path, body=_quad(name), headers=headers, repeatable=False)
        except (MasterUnreachable, Unavailable):
            return False
        return reply.status == 204

    def _record(self, name: str, began: float, outcome: WriteOutcome) -> None:
        now = time.monotonic()
        with self._lock:
            self.history.append(ClientOperation(name, began, now, outcome, "synced"))
            if outcome is WriteOutcome.ACKNOWLEDGED:
                self.waits.append((now, now - began))

    # -- plain

    def _plain_client(self, client: int) -> None:
        at, number = client, 0
        connection = self._plain_connection(at)
        headers = {"Content-Type": "application/n-quads", "TxLog-Durability": "synced", "Prefer": "wait=30"}
        while not self._over.is_set():
            number += 1
            name = f"plain-{client}-{number}"
            began, outcome, said = time.monotonic(), WriteOutcome.UNKNOWN, ""
            try:
                connection.request("POST", self._path, body=_quad(name), headers=headers)
                answer = connection.getresponse()
                answer.read()
                said = str(answer.status)
                if answer.status == 204:
                    outcome = WriteOutcome.ACKNOWLEDGED
                elif answer.status == 503 and answer.headers["Retry-After"]:
                    said, outcome = "503 with Retry-After", WriteOutcome.REFUSED
            except (OSError, http.client.HTTPException) as broken:
                said = type(broken).__name__
            with self._lock:
                self.plain[said] += 1
            level = "synced" if outcome is WriteOutcome.ACKNOWLEDGED else ""
            with self._lock:
                self.history.append(ClientOperation(name, began, time.monotonic(), outcome, level))
            if outcome is not WriteOutcome.ACKNOWLEDGED:
                connection.close()
                at += 1
                connection = self._plain_connection(at)
            time.sleep(THINK_S)

    def _plain_connection(self, at: int) -> http.client.HTTPConnection:
        url = urlsplit(self._urls[at % len(self._urls)])
        return http.client.HTTPConnection(url.hostname or "", url.port, timeout=40)


def _quad(name: str) -> bytes:
    return f'<urn:faults:op:{name}> <urn:faults:by> "rolling" <urn:faults:graph> .\n'.encode()


# -- what happens


def restart_master(masters: SupervisedMasters, load: RollingLoad, node: str) -> list[Figure]:
    """SIGTERM, a new process, and everybody in one view again."""
    began = time.monotonic()
    masters.control.stop(node)
    stopped = time.monotonic() - began
    masters.control.start(node)
    back = masters.wait_joined()
    time.sleep(SETTLE_S)
    return [f"restart {node}", stopped, back, load.longest_wait_s(began)]


def kill_master(masters: SupervisedMasters, load: RollingLoad, node: str) -> list[Figure]:
    """kill -9; the supervisor proves it and starts it again."""
    masters.wait_seen(node)
    start = masters.status(node).start
    began = time.monotonic()
    if masters.kill(node) is None:
        raise CannotMeasure(f"{node} does not run, so it cannot be killed")
    until = began + GIVE_UP_S
    while not _has_restarted(masters, node, start):
        if time.monotonic() > until:
            raise CannotMeasure(f"{node} did not come back after kill -9")
        time.sleep(0.02)
    masters.wait_joined()
    back = time.monotonic() - began
    time.sleep(SETTLE_S)
    return [f"kill -9 {node}", None, back, load.longest_wait_s(began)]


def _has_restarted(masters: SupervisedMasters, node: str, start: int) -> bool:
    try:
        return masters.status(node).start > start
    except TxLogError:
        return False


def check_logs(masters: SupervisedMasters, load: RollingLoad) -> HistoryVerdict:
    """Every log against what the clients were told."""
    masters.wait_joined()
    until = time.monotonic() + GIVE_UP_S
    while len(set(masters.stable_ends().values())) > 1:
        if time.monotonic() > until:
            raise CannotMeasure(f"the logs do not become equal: {masters.stable_ends()}")
        time.sleep(0.05)
    verdict = HistoryVerdict(0, 0, [], [], [], [])
    for url in masters.masters:
        found, _ = read_log(url)
        verdict = check_log(load.history, found).merge(verdict)
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
    try:
        with masters_up(options.state) as masters:
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
    except (CannotMeasure, TxLogError) as why:
        console.print(f"[red]{why}[/red]", highlight=False)
        report.failed("the rolling restart", str(why).splitlines()[0][:300])
    else:
        if not options.keep:
            shutil.rmtree(options.state, ignore_errors=True)
    return report.end()


def _report_results(
    report: BenchReport,
    rows: list[list[Figure]],
    restarts: int,
    load: RollingLoad,
    plain: dict[str, int],
    verdict: HistoryVerdict,
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
    for name, wrong in verdict._asdict().items():
        if isinstance(wrong, list):
            report.equal(name, len(wrong), 0)
    for line in (*load.failed[:5], *verdict.lost[:3], *verdict.duplicated[:3], *verdict.ghosts[:3]):
        console.print(f"[red]{line}[/red]", highlight=False)


if __name__ == "__main__":
    sys.exit(main())
