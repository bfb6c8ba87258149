"""`txlog worker add` and `remove` while clients write and read: nobody is refused, everybody holds the same."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.lib.cluster.local import LocalCluster, cluster_up, run_txlog
from e2e.lib.load.requests import write_one
from e2e.lib.report import CannotMeasure
from e2e.scenarios.split_demo import manifests
from txlog.cli.content_verification import compare_contents
from txlog.model.errors import TxLogError

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(900)]
COUNT = "SELECT (COUNT(*) AS ?n) { ?s <urn:e2e:number> ?n }"


class ReadWriteClients:
    """One that writes, one that reads; ``wrong`` is every refusal."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.written = self.read = 0
        self.wrong: list[str] = []
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self._run, args=(act,)) for act in (self._write, self._read)]

    def _run(self, act: object) -> None:
        assert callable(act)
        while not self.over.is_set():
            try:
                act()
            except (TxLogError, CannotMeasure, OSError, AssertionError) as error:
                self.wrong.append(repr(error))
                return
            self.over.wait(0.02)

    def _write(self) -> None:
        number = self.written + 1
        update = f"INSERT DATA {{ <urn:e2e:{number}> <urn:e2e:number> {number} }}"
        write_one(self.cluster.master_of("uk"), self.cluster.repository, update, "synced")
        self.written = number

    def _read(self) -> None:
        seen = int(self.cluster.query(self.cluster.master_of("uk"), COUNT)[0][0])
        assert seen >= self.read, f"a read went back from {self.read} to {seen}"
        self.read = seen


@contextmanager
def clients(cluster: LocalCluster) -> Iterator[ReadWriteClients]:
    both = ReadWriteClients(cluster)
    for thread in both.threads:
        thread.start()
    try:
        yield both
    finally:
        both.over.set()
        for thread in both.threads:
            thread.join(120)


def progress(both: ReadWriteClients) -> None:
    """Both clients have been answered some times more."""
    written, until = both.written, time.monotonic() + 120
    while both.written < written + 20:
        assert not both.wrong, both.wrong
        assert time.monotonic() < until, "nothing is written any more"
        time.sleep(0.05)


def test_a_worker_comes_and_another_goes_while_clients_write_and_read(tmp_path: Path) -> None:
    with manifests(lag="10s") as folder, cluster_up(tmp_path / "state", (folder,)) as cluster:
        root = cluster.state.root
        cluster.wait_applying(400)
        with clients(cluster) as both:
            progress(both)
            told = json.loads(run_txlog("worker", "add", "uk-worker-2", "--state", root, "--json"))
            assert (told["worker"], told["from"]) == ("uk-worker-2", "uk-worker-1")
            assert told["quads"] >= 20
            progress(both)
            with pytest.raises(CannotMeasure, match="is a worker already"):
                run_txlog("worker", "add", "uk-worker-2", "--state", root)
            run_txlog("worker", "remove", "uk-worker-1", "--purge", "--yes", "--state", root)
            progress(both)
        assert not both.wrong
        assert both.read > 20
        with pytest.raises(CannotMeasure, match="only worker of uk"):
            run_txlog("worker", "remove", "uk-worker-2", "--state", root)
        assert cluster.kill("uk-1"), "what it was told while it ran, it is told again when it starts"
        assert not (root / "workers" / "uk-worker-1").exists()
        cluster = LocalCluster(root)
        assert {worker.name for worker in cluster.topology.workers} == {"us-worker-1", "uk-worker-2"}
        last = "INSERT DATA { <urn:e2e:x> <urn:e2e:number> 0 }"
        write_one(cluster.master_of("us"), cluster.repository, last, "applied-all")
        cluster.wait_converged(120)
        verdict = compare_contents(cluster.masters_by_data_center, 120)
        assert verdict.equal
        assert {each.worker.name for each in verdict.workers} == {"us-worker-1", "uk-worker-2"}
        rows = cluster.query_worker("uk-worker-2", COUNT)
        assert int(rows[0][0]) == both.written + 1
