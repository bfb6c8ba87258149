"""Three masters without workers, each with its own configuration file: the log alone, as it is measured."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.lib.cluster.log_ends import wait_at_rest
from e2e.lib.ports import free_ports
from e2e.lib.report import CannotMeasure
from e2e.lib.wait import NotYet, wait_until
from txlog.client import MasterClient, MasterUnreachable
from txlog.config.process_config import NodeConfig, PeerConfig
from txlog.model.errors import TxLogError

REPOSITORY = "bench"
NODES = (("uk-1", "uk"), ("uk-2", "uk"), ("us-1", "us"))
START_S = 60.0


class BenchMasters:
    """Running masters: their URLs and processes, in the cluster's order."""

    def __init__(self, folder: Path, urls: dict[str, str]) -> None:
        self.folder = folder
        self.by_node = urls
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def config_of(self, node: str) -> Path:
        return self.folder / f"{node}.json"

    def journal_of(self, node: str) -> Path:
        return self.folder / node / "journal"

    def start(self, node: str) -> None:
        """A process of that master; the one before must have ended."""
        with open(self.folder / f"{node}.log", "ab") as log:
            self.processes[node] = subprocess.Popen(
                [sys.executable, "-m", "txlog.server", "--config", str(self.config_of(node))],
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def urls(self) -> list[str]:
        return list(self.by_node.values())

    @property
    def pids(self) -> dict[str, int]:
        return {node: process.pid for node, process in self.processes.items()}

    def wait_joined(self, deadline_s: float = START_S) -> None:
        """Until every master is in the view and may be written to. :class:`CannotMeasure` with its log when not."""
        until = time.monotonic() + deadline_s
        for node, url in self.by_node.items():
            last = "nothing"
            while True:
                if self.processes[node].poll() is not None:
                    raise CannotMeasure(
                        f"{node} ended with {self.processes[node].returncode}: {self.last_log_lines(node)}"
                    )
                try:
                    with MasterClient(url, 2.0) as master:
                        state = master.status().state
                        if state == "Joined" and master.health("ready"):
                            break
                        last = state
                except (MasterUnreachable, TxLogError) as not_yet:
                    last = str(not_yet)
                if time.monotonic() > until:
                    raise CannotMeasure(f"{node} is not ready: {last}; its log ends: {self.last_log_lines(node)}")
                time.sleep(0.05)

    def wait_at_rest(self, deadline_s: float = 30.0) -> int:
        """Until nothing waits and all logs end alike; the index of that end."""
        return wait_at_rest(self.by_node, deadline_s)[0]

    def last_log_lines(self, node: str) -> str:
        with contextlib.suppress(OSError):
            return "\n".join((self.folder / f"{node}.log").read_text(errors="replace").splitlines()[-12:])
        return "(no log)"


@contextmanager
def three_masters(
    folder: Path,
    *,
    keep: bool = False,
    nodes: Sequence[tuple[str, str]] = NODES,
    start_s: float = START_S,
    ports: Mapping[str, int] | None = None,
    routes: Mapping[tuple[str, str], str] | None = None,
    **settings: Any,
) -> Iterator[BenchMasters]:
    """Start three masters (or ``nodes``: other names and data centres) with journals in ``folder``, end them and
    remove it. ``start_s``: how long they may take; ``ports``: theirs, free ones without it; ``routes``: the URL at
    which the first of a pair reaches the second, where that is not the second's own; ``settings``: further fields of
    their configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    token = folder / "peer-token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32) + "\n")
    ports = ports or dict(zip([node for node, _ in nodes], free_ports(len(nodes)), strict=True))
    urls = {node: f"http://127.0.0.1:{ports[node]}" for node, _ in nodes}
    masters = BenchMasters(folder, urls)
    try:
        for node, where in nodes:
            peers = [
                PeerConfig(node=peer, data_center=there, url=(routes or {}).get((node, peer), urls[peer]))
                for peer, there in nodes
            ]
            config = NodeConfig(
                node=node,
                data_center=where,
                repository=REPOSITORY,
                port=ports[node],
                journal_folder=masters.journal_of(node),
                peer_token_file=token,
                peers=peers,
                **settings,
            )
            masters.config_of(node).write_text(config.model_dump_json(indent=1))
            masters.start(node)
        masters.wait_joined(start_s)
        yield masters
    finally:
        stop_processes(list(masters.processes.values()))
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def wait_quorate(urls: Sequence[str], deadline_s: float = START_S) -> None:
    """Until every master is in a view that decides about synchronous transactions."""

    def probe() -> bool:
        for url in urls:
            with MasterClient(url, 5.0) as master:
                if not master.synchro()["quorate"]:
                    raise NotYet(f"{url} decides nothing")
        return True

    wait_until("every master decides", deadline_s, probe)


def stop_processes(processes: list[subprocess.Popen[bytes]], deadline_s: float = 10.0) -> None:
    """SIGTERM to all, SIGKILL to those that stay."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    until = time.monotonic() + deadline_s
    for process in processes:
        try:
            process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for_listener(port: int, deadline_s: float = START_S) -> None:
    """Until a process listens on a loopback port."""

    def probe() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError as not_yet:
            raise NotYet(str(not_yet)) from None
        return True

    wait_until(f"a process listens on port {port}", deadline_s, probe)
