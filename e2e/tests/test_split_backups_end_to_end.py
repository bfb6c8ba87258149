"""The backup that a split waits for, on real processes: one master that loses everybody else, and a Spark driver that
dies at the moment of the cut."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.lib.cluster.local import LocalCluster, cluster_up
from e2e.lib.load.requests import write_one
from e2e.lib.report import CannotMeasure
from e2e.scenarios.split_demo import SIDES, SplitScenario, entity_batches, manifests
from txlog.backup import catalogue
from txlog.backup.target import open_target
from txlog.cli.content_verification import compare_contents
from txlog.client import MasterClient, WriteRequest
from txlog.config.process_config import FolderConfig
from txlog.model.durability import Durability

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(600)]

LAG_S = 4.0
BACKUP_S = 90.0
"""For a backup and its pauses, also where the processor is busy; what was wrong before lasted as long as the split."""


@contextmanager
def writing(story: SplitScenario, some: Iterator[list[WriteRequest]]) -> Iterator[None]:
    """One piece after the other is written at the first master of each side meanwhile: when links are cut, the masters
    know different things to be stable."""
    over = threading.Event()
    wrong: list[Exception] = []

    def write(side: str) -> None:
        while not over.is_set():
            try:
                with lock:
                    piece = next(some)
                story.load(side, piece, Durability.ACCEPTED)
            except CannotMeasure as why:
                wrong.append(why)
                return

    lock = threading.Lock()
    threads = [threading.Thread(target=write, args=(side,)) for side in SIDES]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(60)
    assert not wrong, wrong


def backups(cluster: LocalCluster, side: str) -> int:
    return len(catalogue(open_target(FolderConfig(folder=cluster.state.split_backups(side)))))


def insert(cluster: LocalCluster, node: str, what: str) -> str:
    update = f'INSERT DATA {{ <urn:e2e:{what}> <urn:e2e:p> "o" }}'
    return write_one(cluster.nodes[node], cluster.repository, update, "synced")["txlog-transaction"]


@pytest.mark.long
def test_one_master_alone_goes_on_with_the_backup_of_stores_that_follow_the_others(tmp_path: Path) -> None:
    with (
        manifests(lag=f"{LAG_S:g}s", recovery="Smart") as folder,
        cluster_up(tmp_path / "state", (folder,)) as cluster,
    ):
        story = SplitScenario(cluster)
        cluster.wait_applying(240)
        some = entity_batches(5)
        story.load("uk", next(some), Durability.SYNCED)
        with writing(story, some):
            for other in ("uk-1", "us-1"):
                cluster.control.cut("uk-2", other)
            story.wait_state("Isolated", LAG_S + BACKUP_S)
        assert backups(cluster, "uk") <= 2
        story.written["uk"] += [insert(cluster, node, f"in-{node}") for node in ("uk-2", "uk-1")]
        cluster.control.heal()
        story.wait_state("Joined")
        cluster.wait_converged(90)
        assert compare_contents(cluster.masters_by_data_center).equal
        assert not story.violations()
        assert {tuple(branch["members"]) for branch in story.report()[0]["branches"]} == {("uk-1", "us-1"), ("uk-2",)}


@pytest.mark.long
def test_a_store_is_backed_up_although_its_spark_driver_has_died(tmp_path: Path) -> None:
    """The masters are new, too: nobody has told them where the store stands."""
    with (
        manifests(lag=f"{LAG_S:g}s", recovery="Smart") as folder,
        cluster_up(tmp_path / "state", (folder,)) as cluster,
    ):
        story = SplitScenario(cluster)
        cluster.wait_applying(240)
        some = entity_batches(20)
        story.load("uk", next(some), Durability.SYNCED)
        cluster.wait_converged(60)
        assert cluster.kill("uk-pipeline")
        story.cut()
        cluster.control.stop("uk-pipeline")
        assert all(cluster.kill(node) for node in ("uk-1", "uk-2"))
        story.wait_state("Isolated", LAG_S + BACKUP_S)
        assert backups(cluster, "uk") == 1
        for node in ("uk-1", "uk-2"):
            with MasterClient(cluster.nodes[node], 5.0) as master:
                assert [worker.position for worker in master.workers()] == [None], "nobody reports"
        story.written["uk"].append(insert(cluster, "uk-1", "without-a-driver"))
        cluster.control.start("uk-pipeline")
        story.heal()
        story.wait_state("Joined")
        cluster.wait_applying(240)
        cluster.wait_converged(90)
        assert compare_contents(cluster.masters_by_data_center).equal
        assert not story.violations()
