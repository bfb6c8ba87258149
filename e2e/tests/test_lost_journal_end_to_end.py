"""One master and one store: the journal is lost, and the store's data comes back to work by a person's word."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from e2e.lib.cluster.local import LocalCluster, cluster_up, run_txlog
from e2e.lib.load.requests import write_one
from e2e.lib.report import CannotMeasure
from e2e.lib.wait import wait_until
from txlog.client import MasterClient, StatusResponse, WorkerStatus
from txlog.model.errors import Unavailable

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(600)]

MANIFEST = """
apiVersion: txlog.io/v1alpha1
kind: TxLogCluster
metadata: {name: solo}
spec:
  repository: solo
  dataCenter: solo
  peers:
  - {name: solo, masters: 1, address: "txlog-solo-{index}.example.net"}
  workers: {replicas: 1, engine: oxigraph}
  pipeline: {mode: local}
"""
NODE, WORKER = "solo-1", "solo-worker-1"
COUNT = "SELECT (COUNT(*) AS ?n) { ?s <urn:p> ?o }"
OLD, NEW = 20, 25
PATIENCE_S = 120.0


def status(cluster: LocalCluster) -> StatusResponse:
    with MasterClient(cluster.masters[0], 10.0) as master:
        return master.status()


def worker(cluster: LocalCluster) -> WorkerStatus:
    return cluster.workers()[WORKER]


def quads(cluster: LocalCluster) -> int:
    return int(cluster.query_worker(WORKER, COUNT)[0][0])


def write(cluster: LocalCluster, first: int, count: int, level: str) -> None:
    for at in range(first, first + count):
        update = f"INSERT DATA {{ <urn:s{at}> <urn:p> {at} }}"
        write_one(cluster.masters[0], cluster.repository, update, level)


def report_after(cluster: LocalCluster, since: float) -> bool:
    return float(worker(cluster).reported_at or 0) > since


def again(folder: Path, state: Path, *more: str) -> LocalCluster:
    run_txlog("up", "--detach", "-f", folder, "--state", state, *more)
    return LocalCluster(state)


def lose_journal(cluster: LocalCluster, folder: Path, aside: Path) -> LocalCluster:
    """Stop everything, set the journal aside as the texts about a damaged one say, and start again."""
    run_txlog("down", "--state", cluster.state.root)
    journal = next(cluster.state.master(NODE).rglob("segment-*")).parent
    journal.rename(aside)
    with pytest.raises(CannotMeasure, match=NODE):
        again(folder, cluster.state.root, "--wait", "5")
    return LocalCluster(cluster.state.root)


@pytest.mark.long
def test_a_lone_master_without_its_journal_comes_back_with_what_its_store_holds(tmp_path: Path) -> None:
    folder, state = tmp_path / "manifests", tmp_path / "state"
    folder.mkdir()
    (folder / "solo.yaml").write_text(MANIFEST)
    with cluster_up(state, (folder,), wait_s=240) as cluster:
        write(cluster, 0, OLD, "applied")
        before = status(cluster)
        assert quads(cluster) == OLD
        cluster = lose_journal(cluster, folder, tmp_path / "aside")
        _waits_by_name_for_an_order(cluster, before)
        _refuses_the_store_and_empties_nothing(cluster)
        told = json.loads(run_txlog("worker", "adopt", WORKER, "--yes", "--state", state, "--json"))
        assert told["worker"] == WORKER
        cluster.wait_converged(PATIENCE_S)
        assert quads(cluster) == OLD + NEW
        with pytest.raises(CannotMeasure):  # no backup, no other worker: what it holds is the last copy
            run_txlog("worker", "rebuild", WORKER, "--yes", "--state", state)
        assert quads(cluster) == OLD + NEW
        run_txlog("down", "--state", state)
        cluster = again(folder, state, "--wait", "240")
        write(cluster, OLD + NEW, 1, "applied")
        assert (status(cluster).state, worker(cluster).state) == ("Joined", "Working")
        assert quads(cluster) == OLD + NEW + 1


def _waits_by_name_for_an_order(cluster: LocalCluster, before: StatusResponse) -> None:
    wait_until("the master waits by name", PATIENCE_S, lambda: status(cluster).state == "AwaitingBootstrap")
    wait_until("the store's position is known", PATIENCE_S, lambda: worker(cluster).position is not None)
    position = worker(cluster).position
    assert position is not None
    assert (position.index, position.cluster) == (before.stable.index, before.cluster_id)
    assert "which is lost" in status(cluster).view.holding
    with pytest.raises(Unavailable, match="which is lost"):
        write(cluster, 99, 1, "synced")
    order = ("bootstrap", "--member", NODE, "--yes", "--state", cluster.state.root)
    with pytest.raises(CannotMeasure) as refused:
        run_txlog(*order)
    told = " ".join(str(refused.value).split())
    assert f"up to index {before.stable.index}" in told
    assert str(before.cluster_id) in told
    assert "--forget" in told
    assert quads(cluster) == OLD
    run_txlog(*order, "--forget")
    assert status(cluster).cluster_id not in (None, before.cluster_id)


def _refuses_the_store_and_empties_nothing(cluster: LocalCluster) -> None:
    write(cluster, OLD, NEW, "synced")
    for _ in range(2):
        since = float(worker(cluster).reported_at or 0)
        wait_until("the pipeline reports again", PATIENCE_S, partial(report_after, cluster, since))
    found: Any = worker(cluster)
    assert (found.state, found.error.split(":")[0]) == ("Refused", "OtherCluster")
    assert status(cluster).duties == []
    assert quads(cluster) == OLD
