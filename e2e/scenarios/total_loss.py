"""``python -m e2e.scenarios.total_loss``: everything of a cluster is killed and deleted but its archive.

Two data centres are under load, and one of them has an archive. A part of the clients waits until the archive has
each of its transactions. Every process is killed with SIGKILL, and every journal and store is deleted.
``txlog up --from-archive`` founds a new cluster. Each client gives its transactions again under their keys. Each one is
in the new log once: the archived ones under their old ids, the others under new ones, which the report has named.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from e2e.lib.cluster.local import LocalCluster, cluster_up, empty_folder, run_txlog
from e2e.lib.host_metrics import descendants
from e2e.lib.load.requests import N_QUADS
from e2e.lib.report import BenchReport, CannotMeasure, console
from e2e.lib.wait import NotYet, wait_until
from txlog.archive.path import find_paths
from txlog.archive.stream import find_streams
from txlog.backup.folder_target import FolderTarget
from txlog.client import MasterClient
from txlog.client.connection import MasterConnection
from txlog.model.durability import Durability
from txlog.model.entry import CONTROL_KINDS
from txlog.model.errors import TxLogError
from txlog.workers import ADAPTERS
from txlog.workers.digest import digest, digest_worker
from txlog.workers.http_transport import HttpTransport

STATE: Final = Path(".txlog-lost")
DATA_CENTERS: Final = (("uk", 2), ("us", 1))
LOAD_S: Final = 10.0
CLIENTS_PER_MASTER: Final = 4
READY_S: Final = 1200.0
SETTLE_S: Final = 1200.0
PAUSE_S: Final = 0.2
RTO_WRITES_S: Final = 15.0
MANIFEST: Final = """\
apiVersion: txlog.io/v1alpha1
kind: TxLogCluster
metadata: {{name: demo}}
spec:
  repository: demo
  dataCenter: {data_center}
  peers: [{peers}]
  workers: {{replicas: 1}}
  backup: {{target: {{folder: {{path: {target}}}}}}}
"""
ARCHIVE: Final = "  archive: {maxDelay: 500ms}\n"
"""Of the first data centre: the masters of the other one learn from its masters what is archived."""


@dataclass(frozen=True)
class Written:
    """An acknowledged transaction. ``level``: what the answer named. ``index``: its place in the log then; 0 where the
    answer had none."""

    key: str
    txid: str
    level: str
    index: int


class Loss(NamedTuple):
    """What clients and archiver knew when everything ended. ``given``: every key, answered or not."""

    cluster: str
    given: list[str]
    acknowledged: list[Written]
    archived: int


def write_manifests(folder: Path) -> list[Path]:
    """One for each data centre, with a target of its own for backups."""
    peers = ", ".join(
        f'{{name: {name}, masters: {count}, address: "{name}-{{index}}.example.net"}}' for name, count in DATA_CENTERS
    )
    made = []
    for number, (name, _) in enumerate(DATA_CENTERS):
        target = folder / f"target-{name}"
        target.mkdir(parents=True)
        path = folder / f"{name}.yaml"
        text = MANIFEST.format(data_center=name, peers=peers, target=target)
        path.write_text(text if number else text + ARCHIVE)
        made.append(path)
    return made


def quad(key: str) -> str:
    return f'<urn:thing:{key}> <urn:p> "{key}" <urn:graph:{len(key) % 3}> .\n'


class Client:
    """Gives transactions under keys, one after the other, over a kept connection. ``level``: what each waits for."""

    def __init__(self, master: str, name: str, level: Durability = Durability.SYNCED) -> None:
        self._connection = MasterConnection(master, timeout_s=30.0)
        self._name, self._level = name, level
        self.given: list[str] = []
        self.acknowledged: list[Written] = []

    def run(self, stop: threading.Event) -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            key = f"{self._name}-{number}"
            self.given.append(key)
            try:
                found = self.give(key)
            except (TxLogError, OSError):
                stop.wait(PAUSE_S)  # else a dead master would be given thousands
                continue
            if found is not None:
                self.acknowledged.append(found)

    def give(self, key: str) -> Written | None:
        """None unless it has reached the level."""
        headers = {
            "Content-Type": N_QUADS,
            "TxLog-Durability": self._level.value,
            "Prefer": "wait=30",
            "Idempotency-Key": key,
        }
        path = f"/repositories/{quote('demo')}/statements"
        reply = self._connection.request("POST", path, body=quad(key).encode(), headers=headers, repeatable=False)
        if reply.status not in (200, 204):
            return None
        headers_back = {name.lower(): value for name, value in reply.headers.items()}
        position = headers_back.get("txlog-position", "").split(":")  # epoch:index:hash
        index = int(position[1]) if len(position) == 3 else 0
        return Written(key, headers_back["txlog-transaction"], headers_back["txlog-durability"], index)

    def close(self) -> None:
        self._connection.close()


def load_and_kill(cluster: LocalCluster, load_s: float) -> Loss:
    """Clients of every master write until everything has ended."""
    clients = [
        Client(url, f"{node}-{number}", Durability.SYNCED if number else Durability.ARCHIVED)
        for node, url in cluster.nodes.items()
        for number in range(CLIENTS_PER_MASTER)
    ]
    with MasterClient(cluster.masters[0], 30.0) as master:
        identity = master.status().cluster_id or ""
    stop = threading.Event()
    threads = [threading.Thread(target=client.run, args=(stop,), daemon=True) for client in clients]
    for thread in threads:
        thread.start()
    time.sleep(load_s)
    archived = archived_index(cluster)
    kill_everything(cluster)
    stop.set()
    for thread in threads:
        thread.join(60.0)
    for client in clients:
        client.close()
    given = [key for client in clients for key in client.given]
    return Loss(identity, given, [each for client in clients for each in client.acknowledged], archived)


def archived_index(cluster: LocalCluster) -> int:
    """The place that the archiver of the first data centre has reported."""
    name = DATA_CENTERS[0][0]
    with MasterClient(cluster.masters[0], 30.0) as master:
        streams = (master.status().archive or {}).get("streams", [])
    return max(
        (each["archived"]["index"] for each in streams if each["dataCenter"] == name and each["archived"]), default=0
    )


def kill_everything(cluster: LocalCluster) -> None:
    """The supervisor first, so that it restarts nothing, and no master leaves its view. With its children: Spark's JVM
    would outlive its driver for a moment, and write into folders that are being deleted."""
    marks = [cluster.state.read("supervisor.json", {}), *cluster.state.read("processes.json", {}).values()]
    pids = [int(mark["pid"]) for mark in marks if "pid" in mark]
    pids += [child for pid in pids for child in descendants(pid) if child not in pids]
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_until("everything has ended", 60.0, lambda: _refuse_alive(pids))


def _refuse_alive(pids: Sequence[int]) -> bool:
    alive = [pid for pid in pids if _runs(pid)]
    if alive:
        raise NotYet(f"{alive} still run")
    return True


def _runs(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    return False


class Recovery:
    """``txlog up --from-archive``, timed from its start to the first write and the first read that a client sees."""

    def __init__(self, state: Path, manifests: Sequence[Path], archive: Path) -> None:
        files = [part for manifest in manifests for part in ("-f", str(manifest))]
        program = str(Path(sys.executable).with_name("txlog"))
        command = [program, "up", *files, "--from-archive", str(archive), "--detach", "--json"]
        self._state = state
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            [*command, "--wait", str(READY_S), "--state", str(state)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def first_write_s(self) -> float:
        """Until a new transaction is ``synced``."""
        wait_until("a write", READY_S, self._write)
        return time.monotonic() - self._began

    def first_read_s(self) -> float:
        """Until a query finds what was written before the loss."""
        wait_until("a read", READY_S, self._read)
        return time.monotonic() - self._began

    def end(self) -> dict[str, Any]:
        """What the command has said of the recovery."""
        output, errors = self._process.communicate(timeout=2 * READY_S)
        if self._process.returncode != 0:
            raise CannotMeasure(f"txlog up --from-archive ended with {self._process.returncode}: {errors}{output}")
        found: dict[str, Any] = json.loads(output)["recovery"]
        return found

    def _cluster(self) -> LocalCluster:
        if self._process.poll() not in (None, 0):
            raise CannotMeasure(f"txlog up --from-archive ended: {self._process.communicate()[1]}")
        if not (self._state / "topology.json").exists():
            raise NotYet("no topology")
        return LocalCluster(self._state)

    def _write(self) -> bool:
        client = Client(self._cluster().masters[0], "probe")
        try:
            if client.give("probe-0") is None:
                raise NotYet("not synced")
        except (TxLogError, OSError) as error:
            raise NotYet(str(error)) from error
        finally:
            client.close()
        return True

    def _read(self) -> bool:
        try:
            rows = self._cluster().query(
                self._cluster().masters[0], "SELECT ?s { GRAPH ?g { ?s <urn:p> ?o } FILTER(?o != 'probe-0') } LIMIT 1"
            )
        except (TxLogError, OSError) as error:
            raise NotYet(str(error)) from error
        if not rows:
            raise NotYet("nothing is there")
        return True


def give_again(cluster: LocalCluster, keys: Iterable[str]) -> dict[str, str]:
    """The transaction that counts for each key, as the answer to a retry names it."""
    masters, found = itertools.cycle([Client(url, "again") for url in cluster.masters]), dict[str, str]()
    for key in keys:
        answer = next(masters).give(key)
        if answer is None:
            raise CannotMeasure(f"{key} was not synced")
        found[key] = answer.txid
    return found


def archived_uses(target: Path, cluster: str, last: int, value: str) -> Counter[str]:
    """How often each key counts in the archive up to the place where the new cluster begins."""
    stream = next(each for each in find_streams(FolderTarget(target)) if each.id.cluster.hex() == cluster)
    start = stream.read_start()
    if start is None:
        raise CannotMeasure("no archive")
    paths = find_paths([each.name for each in stream.list_files()], [start])
    end = next((node for node in paths.reached if (node.index, node.hash.hex()) == (last, value)), None)
    if end is None:
        raise CannotMeasure(f"the archive has no file that ends at {last}:{value}")
    entries = (entry for name in paths.path_to(end) for entry in stream.read_file(name).entries)
    return Counter(
        entry.key for entry in entries if entry.key and not entry.is_noop and entry.kind not in CONTROL_KINDS
    )


def logged_uses(master: str, after: int) -> Counter[str]:
    """How often each key counts in the new log."""
    found: Counter[str] = Counter()
    with MasterClient(master, 60.0) as client:
        end = client.status().stable.index
        while after < end:
            page = client.log_page(after, upto=end, keys=True)
            for entry in page.entries:
                if entry.key and not entry.noop and entry.kind not in CONTROL_KINDS:
                    found[entry.key] += 1
            after = page.entries[-1].index
    return found


def is_named(txid: str, recovery: dict[str, Any]) -> bool:
    """Whether the report of the recovery says that this transaction is not in the new cluster."""
    origin, _, seq = txid.rpartition(".")
    kept = dict(each.rpartition(".")[::2] for each in recovery["keptUpTo"])
    return int(seq) > int(kept.get(origin, 0))


def store_digests(cluster: LocalCluster) -> Iterator[str]:
    for worker in cluster.topology.workers:
        with HttpTransport(worker.url, 120.0) as transport:
            yield f"{digest_worker(ADAPTERS[worker.engine], transport).total:032x}"


def judge(report: BenchReport, cluster: LocalCluster, loss: Loss, recovery: dict[str, Any], target: Path) -> None:
    """Gives everything again, and accounts for each transaction."""
    begin, value = int(recovery["position"]["index"]), recovery["position"]["hash"]
    counting = give_again(cluster, loss.given)
    kept = [each for each in loss.acknowledged if counting[each.key] == each.txid]
    gone = [each for each in loss.acknowledged if counting[each.key] != each.txid]
    named = [each for each in gone if is_named(each.txid, recovery) and not 0 < each.index <= begin]
    cluster.wait_converged(SETTLE_S)
    uses = archived_uses(target, loss.cluster, begin, value) + logged_uses(cluster.masters[0], begin)
    missing = [key for key in loss.given if not uses[key]]
    expected = "".join(sorted({quad(key) for key in [*loss.given, "probe-0"]})).encode()
    wanted = f"{digest(iter([expected])).total:032x}"
    report.require("a load", len(loss.acknowledged) > 0, len(loss.acknowledged))
    report.figure("acknowledged", len(loss.acknowledged))
    report.figure("kept", len(kept))
    report.figure("lost_named", len(named))
    report.equal("unexplained", len(gone) - len(named) + len(missing), 0)
    report.equal("doubled", sum(1 for key in loss.given if uses[key] > 1), 0)
    waited = [each for each in loss.acknowledged if each.level == Durability.ARCHIVED]
    report.require("answered_archived", len(waited) > 0, len(waited))
    report.equal("archived_lost", sum(1 for each in gone if each in waited or 0 < each.index <= loss.archived), 0)
    report.equal("digests_equal", set(store_digests(cluster)) == {wanted}, True)


def run(folder: Path, load_s: float, report: BenchReport) -> None:
    """The whole story in one folder."""
    manifests, state, target = write_manifests(folder), folder / "state", folder / f"target-{DATA_CENTERS[0][0]}"
    with cluster_up(state, manifests, wait_s=READY_S) as cluster:
        cluster.wait_applying(SETTLE_S)
        run_txlog("backup", "create", "--data-center", DATA_CENTERS[0][0], "--state", state, timeout_s=SETTLE_S)
        loss = load_and_kill(cluster, load_s)
        console.print(f"{len(loss.acknowledged)} acknowledged, archived up to {loss.archived}; everything is deleted")
        shutil.rmtree(state)
        recovery = Recovery(state, manifests, target)
        writes_s, reads_s = recovery.first_write_s(), recovery.first_read_s()
        found = recovery.end()
        judge(report, LocalCluster(state), loss, found, target)
        report.at_most("rto_writes_s", writes_s, RTO_WRITES_S)
        report.figure("rto_reads_s", reads_s)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.scenarios.total_loss", description="a cluster that has its archive alone"
    )
    parser.add_argument("--state", type=Path, default=STATE, help="a folder that is deleted first")
    parser.add_argument("--seconds", type=float, default=LOAD_S, help="of load before everything is killed")
    options = parser.parse_args(arguments)
    report = BenchReport("make lost-everything")
    with report.part("a new cluster from the archive", OSError):
        run(empty_folder(options.state.absolute()), options.seconds, report)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
