"""A whole cluster as a user meets it: two data centres from their manifests, a master lost and back, and its end."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from e2e.lib.cluster.local import MANIFESTS, LocalCluster, cluster_up
from e2e.lib.load.requests import WriteProber, write_one
from e2e.lib.wait import wait_until
from txlog.cli.content_verification import compare_contents
from txlog.client import MasterClient
from txlog.model.durability import Durability

ROOT = Path(__file__).parents[2]
NAMES = "SELECT ?name { GRAPH ?g { ?s <urn:e2e:name> ?name } } ORDER BY ?name"


def quad(name: str) -> bytes:
    return f'<urn:e2e:{name}> <urn:e2e:name> "{name}" <urn:e2e:graph> .\n'.encode()


@pytest.mark.cluster
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_two_data_centres_from_up_to_down(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    with cluster_up(folder, (ROOT / MANIFESTS,)) as cluster:
        pids = cluster.pids()
        cluster.wait_applying(180)
        _writes_at_every_master_are_seen_everywhere(cluster)
        _what_is_evaluated_once_is_the_same_everywhere(cluster)
        _a_lost_master_holds_the_order_up_and_loses_nothing(cluster)
        verdict = compare_contents(cluster.masters_by_data_center)
        assert verdict.equal
        assert len(verdict.workers) == 3
    assert not folder.exists()
    assert not [name for name, pid in pids.items() if Path(f"/proc/{pid}").exists() and name in _cmdline(pid)]


def _cmdline(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def _writes_at_every_master_are_seen_everywhere(cluster: LocalCluster) -> None:
    for node, url in cluster.nodes.items():
        headers = write_one(url, cluster.repository, f'INSERT DATA {{ <urn:{node}> <urn:e2e:says> "up" }}', "applied")
        assert headers["txlog-durability"] in ("applied", "applied-all")
        assert headers["txlog-transaction"].startswith(node + ".")
        prober = WriteProber(url, cluster.repository, "applied-all")
        assert prober.write(quad(f"from-{node}")) is not None
        prober.close()
    answers = {dc: cluster.query(cluster.master_of(dc), NAMES) for dc in cluster.topology.data_centers}
    wanted = sorted([f"from-{node}"] for node in cluster.nodes)
    assert answers == dict.fromkeys(cluster.topology.data_centers, wanted)
    for worker in cluster.topology.workers:
        assert cluster.query_worker(worker.name, NAMES) == wanted


def _what_is_evaluated_once_is_the_same_everywhere(cluster: LocalCluster) -> None:
    update = (
        "INSERT { GRAPH <urn:e2e:ids> { ?s <urn:e2e:id> ?id } } "
        "WHERE { GRAPH ?g { ?s <urn:e2e:name> ?name } BIND(UUID() AS ?id) }"
    )
    for url in cluster.nodes.values():
        headers = write_one(url, cluster.repository, update, "applied-all")
        assert headers["txlog-durability"] == "applied-all"
    ids = "SELECT ?id { GRAPH <urn:e2e:ids> { ?s <urn:e2e:id> ?id } } ORDER BY ?id"
    found = [cluster.query_worker(worker.name, ids) for worker in cluster.topology.workers]
    assert found == [found[0]] * len(found)
    assert len(found[0]) == len(cluster.nodes) ** 2, "one for each name, by each master"


def _a_lost_master_holds_the_order_up_and_loses_nothing(cluster: LocalCluster) -> None:
    lost, *others = reversed(cluster.nodes)
    os.kill(cluster.pids()[lost], signal.SIGSTOP)  # it neither leaves nor is down: nobody may go on without it
    txids = []
    for node in others:
        with MasterClient(cluster.nodes[node], 10.0) as master:
            update = f'INSERT DATA {{ GRAPH <urn:e2e:graph> {{ <urn:e2e:late> <urn:e2e:name> "late-{node}" }} }}'
            txids.append(write_one(master.url, cluster.repository, update, "accepted")["txlog-transaction"])
            held = master.transaction(txids[-1], 1.0, Durability.SYNCED)
            assert held.position is None, "ordered although a master of the view cannot hold it"
            assert held.durability in ("accepted", "quorum")
    os.kill(cluster.pids()[lost], signal.SIGCONT)
    cluster.kill(others[0])  # and one by force, which the supervisor proves, and starts again
    for node, url in cluster.nodes.items():
        for txid in txids:
            wait_until(f"{txid} is synced, as {node} knows", 60.0, partial(_is_placed, url, txid))
    cluster.wait_converged(90)
    for dc in cluster.topology.data_centers:
        names = [row[0] for row in cluster.query(cluster.master_of(dc), NAMES)]
        assert [name for name in names if name.startswith("late-")] == sorted(f"late-{node}" for node in others)


def _is_placed(url: str, txid: str) -> bool:
    with MasterClient(url, 5.0) as master:
        return master.transaction(txid).position is not None
