"""Each system as three nodes on loopback, with every acknowledged write synced to a disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from e2e.lib.cluster.masters import stop_processes, three_masters, wait_for_listener
from e2e.lib.ports import free_ports
from e2e.lib.report import CannotMeasure

NODE_COUNT: Final = 3
START_S: Final = 60.0


class RunningSystem(NamedTuple):
    """``host:port`` of each node for clients, and the nodes' processes."""

    addresses: list[str]
    pids: dict[str, int]


class System(NamedTuple):
    """What it promises with an acknowledgement stands beside its figures: they are not one promise."""

    name: str
    durable: str
    ordered: str


TXLOG: Final = System("txlog", "synced on all three", "one order, taken by every master; any of them takes writes")
ETCD: Final = System("etcd", "synced on two of three", "one order, given by the leader; gRPC")
ETCD_HTTP: Final = System("etcd_http", "synced on two of three", "the same servers through their HTTP/JSON gateway")
GALERA: Final = System("galera", "synced on the node asked", "one order, certified; any of them takes writes")
NATS: Final = System("nats", "synced on two of three", "one order a stream, by its leader; a batch is no unit")
SYSTEMS: Final = (TXLOG, ETCD, ETCD_HTTP, GALERA, NATS)


@contextmanager
def start_txlog(folder: Path) -> Iterator[RunningSystem]:
    with three_masters(folder) as masters:
        yield RunningSystem([url.removeprefix("http://") for url in masters.urls], masters.pids)


@contextmanager
def start_etcd(programs: Path, folder: Path) -> Iterator[RunningSystem]:
    clients, peers = free_ports(NODE_COUNT), free_ports(NODE_COUNT)
    ring = ",".join(f"etcd-{at}=http://127.0.0.1:{port}" for at, port in enumerate(peers))
    commands = {
        f"etcd-{at}": [
            str(programs / "etcd"),
            *("--name", f"etcd-{at}", "--data-dir", str(folder / f"etcd-{at}"), "--log-level", "error"),
            *("--listen-client-urls", f"http://127.0.0.1:{client}"),
            *("--advertise-client-urls", f"http://127.0.0.1:{client}"),
            *("--listen-peer-urls", f"http://127.0.0.1:{peer}"),
            *("--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}"),
            *("--initial-cluster", ring, "--quota-backend-bytes", str(8 << 30)),
        ]
        for at, (client, peer) in enumerate(zip(clients, peers, strict=True))
    }
    with _start_processes(commands, folder) as pids:
        for port in clients:
            _wait_ready(lambda port=port: _is_answering(f"http://127.0.0.1:{port}/health"), "etcd", folder)  # type: ignore[misc]
        yield RunningSystem([f"127.0.0.1:{port}" for port in clients], pids)


@contextmanager
def start_nats(programs: Path, folder: Path) -> Iterator[RunningSystem]:
    folder.mkdir(parents=True, exist_ok=True)
    clients, routes, watched = free_ports(NODE_COUNT), free_ports(NODE_COUNT), free_ports(NODE_COUNT)
    ring = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
    commands: dict[str, list[str]] = {}
    for at in range(NODE_COUNT):
        name = f"nats-{at}"
        config = folder / f"{name}.conf"
        config.write_text(
            f"server_name: {name}\nlisten: 127.0.0.1:{clients[at]}\nhttp: 127.0.0.1:{watched[at]}\n"
            f'jetstream {{ store_dir: "{folder / name}", sync_interval: always }}\n'
            f"cluster {{ name: bench, listen: 127.0.0.1:{routes[at]}, routes: [{ring}] }}\n"
        )
        commands[name] = [str(programs / "nats-server"), "--config", str(config)]
    with _start_processes(commands, folder) as pids:
        for port in watched:
            _wait_ready(lambda port=port: _is_answering(f"http://127.0.0.1:{port}/healthz"), "nats", folder)  # type: ignore[misc]
        addresses = [f"127.0.0.1:{port}" for port in clients]
        _prepare_schema(programs, "nats", addresses)
        yield RunningSystem(addresses, pids)


@contextmanager
def start_galera(root: Path, programs: Path, folder: Path) -> Iterator[RunningSystem]:
    """One folder with the tables is made, and copied, with the files that a stop of all three would have left: they
    come back as one group at one position, so none asks another for a transfer of its state."""
    folder.mkdir(parents=True, exist_ok=True)
    clients, groups, transfers = free_ports(NODE_COUNT), free_ports(NODE_COUNT), free_ports(NODE_COUNT)
    group = str(uuid.uuid4())
    surroundings = {**os.environ, "LD_LIBRARY_PATH": str(root / "usr/lib/x86_64-linux-gnu")}

    def command(at: int, *more: str) -> list[str]:
        here = folder / f"galera-{at}"
        return [
            str(root / "usr/sbin/mariadbd"),
            *("--no-defaults", f"--datadir={here}", f"--socket={here}.sock", f"--pid-file={here}.pid"),
            *(f"--lc-messages-dir={root / 'usr/share/mysql'}", "--user=root", "--skip-grant-tables"),
            *(f"--character-sets-dir={root / 'usr/share/mysql/charsets'}", "--skip-name-resolve"),
            *("--innodb-flush-log-at-trx-commit=1", "--innodb-autoinc-lock-mode=2", "--binlog-format=ROW"),
            *("--innodb-buffer-pool-size=256M", "--innodb-log-file-size=256M", "--max-connections=2000"),
            *("--bind-address=127.0.0.1", f"--port={clients[at]}"),
            *more,
        ]

    def grouped(at: int, *more: str) -> list[str]:
        ring = ",".join(f"127.0.0.1:{port}" for port in groups)
        return command(
            at,
            *("--wsrep-on=ON", f"--wsrep-provider={root / 'usr/lib/galera/libgalera_smm.so'}"),
            *(
                f"--wsrep-cluster-address=gcomm://{ring}",
                "--wsrep-cluster-name=bench",
                f"--wsrep-node-name=galera-{at}",
            ),
            *(f"--wsrep-start-position={group}:0", "--wsrep-node-address=127.0.0.1", "--wsrep-slave-threads=4"),
            f"--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:{groups[at]}; "
            f"base_port={groups[at]}; ist.recv_addr=127.0.0.1:{transfers[at]}; gcache.size=256M",
            *more,
        )

    _create_tables(root, command(0), folder / "galera-0", surroundings)
    (folder / "galera-0" / "grastate.dat").write_text(
        f"# GALERA saved state\nversion: 2.1\nuuid:    {group}\nseqno:   0\nsafe_to_bootstrap: 1\n"
    )
    for at in range(1, NODE_COUNT):
        shutil.copytree(folder / "galera-0", folder / f"galera-{at}")
    members = [str(uuid.uuid1()) for _ in range(NODE_COUNT)]
    view = "".join(f"member: {member} 0\n" for member in sorted(members))
    for at, member in enumerate(members):
        (folder / f"galera-{at}" / "gvwstate.dat").write_text(
            f"my_uuid: {member}\n#vwbeg\nview_id: 3 {min(members)} 3\nbootstrap: 0\n{view}#vwend\n"
        )
    with _start_processes({f"galera-{at}": grouped(at) for at in range(NODE_COUNT)}, folder, surroundings) as pids:
        for port in clients:
            wait_for_listener(port, START_S)
        addresses = [f"127.0.0.1:{port}" for port in clients]
        _prepare_schema(programs, "galera", addresses)
        yield RunningSystem(addresses, pids)


def _create_tables(root: Path, command: list[str], data: Path, surroundings: Mapping[str, str]) -> None:
    data.mkdir()
    share = root / "usr/share/mysql"
    text = "CREATE DATABASE mysql;\nUSE mysql;\n" + "".join(
        (share / name).read_text() for name in ("mysql_system_tables.sql", "mysql_system_tables_data.sql")
    )
    text += (
        "CREATE DATABASE bench;\n"
        "CREATE TABLE bench.entries (id BIGINT PRIMARY KEY, value VARCHAR(255) NOT NULL) ENGINE=InnoDB;\n"
    )
    made = subprocess.run(
        [*command, "--bootstrap", "--wsrep-on=OFF"],
        input=text,
        env=surroundings,
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        raise CannotMeasure(f"MariaDB could not make its tables: {made.stderr.strip()[-500:]}")


def _prepare_schema(programs: Path, system: str, addresses: list[str]) -> None:
    """Until every node serves what the clients write to; makes it where it is not there yet."""
    command = [str(programs / "load"), "-system", system, "-nodes", ",".join(addresses), "-setup"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotMeasure(f"{system} is not ready: {done.stderr.strip()[-400:]}")


@contextmanager
def _start_processes(
    commands: Mapping[str, list[str]], folder: Path, surroundings: Mapping[str, str] | None = None
) -> Iterator[dict[str, int]]:
    """Processes whose output goes to ``NAME.log`` in ``folder``, ended at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, command in commands.items():
            with open(folder / f"{name}.log", "ab") as log:
                processes[name] = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=surroundings)
        yield {name: process.pid for name, process in processes.items()}
    finally:
        stop_processes(list(processes.values()), 30.0)


def _is_answering(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2.0) as answer:
            return answer.status == 200 and b"false" not in answer.read()
    except (urllib.error.URLError, OSError):
        return False


def _wait_ready(ready: Callable[[], bool], system: str, folder: Path) -> None:
    until = time.monotonic() + START_S
    while not ready():
        if time.monotonic() > until:
            logs = "; ".join(
                f"{log.name}: {log.read_text(errors='replace')[-200:]}" for log in sorted(folder.glob("*.log"))
            )
            raise CannotMeasure(f"{system} is not ready after {START_S:g} s: {logs}")
        time.sleep(0.1)
