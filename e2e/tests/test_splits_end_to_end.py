"""Splits of a whole cluster, as a user meets them: the links are cut, both sides write, and are one again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from e2e.lib.cluster.local import LocalCluster, cluster_up, run_txlog
from e2e.lib.load.requests import write_one
from e2e.lib.report import CannotMeasure
from e2e.scenarios.split_demo import GRAPH, SIDES, SplitScenario, entity_batches, manifests, split_and_write
from txlog.backup import catalogue
from txlog.backup.target import open_target
from txlog.cli.content_verification import compare_contents
from txlog.cli.split_commands import PHASE_TITLES
from txlog.client import MasterClient, WriteRequest
from txlog.config.process_config import FolderConfig
from txlog.model.durability import Durability

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.mark.parametrize("strategy", ["Smart", pytest.param("Simple", marks=pytest.mark.long)])
def test_both_sides_go_on_and_are_one_log_again(tmp_path: Path, strategy: str) -> None:
    with (
        manifests(lag="4s", recovery=strategy) as folder,
        cluster_up(tmp_path / "state", (folder,)) as cluster,
    ):
        story = SplitScenario(cluster)
        cluster.wait_applying(240)
        some = entity_batches(20)
        story.load("uk", next(some), Durability.SYNCED)
        cluster.wait_converged(60)
        first: dict[str, Sequence[WriteRequest]] = {side: next(some) for side in SIDES}
        second: dict[str, Sequence[WriteRequest]] = {side: next(some) for side in SIDES}
        split_and_write(story, first, second)
        held = {side: catalogue(open_target(FolderConfig(folder=cluster.state.split_backups(side)))) for side in SIDES}
        assert all([each.held for each in backups] == [True] for backups in held.values()), held
        assert story.population("uk") != story.population("us")
        foreseen = json.loads(run_txlog("rejoin", "--dry-run", "--json", "--state", cluster.state.root))
        behind = backed_up_on_a_branch(cluster, tmp_path)
        story.heal()
        story.wait_state("Joined")
        cluster.wait_converged(90)
        refused_off_the_chain(cluster, behind, tmp_path)
        assert compare_contents(cluster.masters_by_data_center).equal
        assert story.population("uk") == story.population("us")
        assert not story.violations()
        (split,) = story.report()
        assert split["strategy"] == strategy
        assert split["moved"] > 0
        assert {tuple(branch["members"]) for branch in split["branches"]} == {("uk-1", "uk-2"), ("us-1",)}
        assert [branch["transactions"] for branch in split["branches"]] == [42, 42]
        wanted = {"Smart": ["us-worker-1"], "Simple": ["uk-worker-1", "us-worker-1"]}[strategy]
        assert split["restoredWorkers"] == wanted
        assert foreseen["winner"] == ["uk-1", "uk-2"]
        assert foreseen["moved"] == split["moved"]
        going = {row["worker"]: row["from"] for row in foreseen["workers"] if row["what"] == "goes back"}
        assert sorted(going) == wanted
        happened = {
            d["worker"]: f"backup {d['from']} at {d['index']}" for d in split["duties"] if d["kind"] == "restore"
        }
        assert going == happened
        assert all(split["seconds"][phase] is not None for phase in PHASE_TITLES)
        wrote = {side: graphs_of([*first[side], *second[side]]) for side in SIDES}
        assert split["graphs"]["notTold"] == []
        differ = {side["side"]: named_in(side["file"]) for side in split["graphs"]["sides"]}
        # the last word on London was that of the us, so that is what the us had shown
        theirs = "uk-worker-1" if strategy == "Simple" else "the branch that went on"
        assert differ == {"us-worker-1": wrote["uk"], theirs: wrote["us"] | {GRAPH.strip("<>")}}


def backed_up_on_a_branch(cluster: LocalCluster, target: Path) -> str:
    """By hand, of the losing side's worker, behind the index at which the branches part; the backup's name."""
    taken = ("--worker", "us-worker-1", "--data-center", "us", "--target", target / "by-hand")
    (target / "by-hand").mkdir()
    made = json.loads(run_txlog("backup", "create", *taken, "--json", "--state", cluster.state.root))
    with MasterClient(cluster.master_of("uk"), 5.0) as other:
        assert made["position"]["index"] <= other.status().stable.index, "as an index, the other branch has it, too"
        assert other.branch(made["position"]["index"])["hash"] != made["position"]["hash"]
    return str(made["name"])


def refused_off_the_chain(cluster: LocalCluster, backup: str, target: Path) -> None:
    """A backup of a branch that did not win, by each way back, by name, and nobody is touched."""
    before = cluster.worker_indexes()
    where = ("--target", target / "by-hand", "--state", cluster.state.root)
    rebuild = ("worker", "rebuild", "us-worker-1", "--yes", *where)
    for command in (
        (*rebuild, "--from", backup),
        rebuild,
        ("restore", backup, "--into", "us-worker-1", *where),
        ("worker", "rebuild", "uk-worker-1", "--yes", "--from", backup, *where),
    ):
        with pytest.raises(CannotMeasure, match=r"ended with 1: (NoSuchBackup: .*)?OffTheChain: .*another branch"):
            run_txlog(*command)
    assert cluster.worker_indexes() == before
    states = {name: worker.state for name, worker in cluster.workers().items()}
    assert set(states.values()) == {"Working"}, states


def graphs_of(writes: Sequence[WriteRequest]) -> set[str]:
    """The named graphs of N-Quads that are added."""
    lines = [line for write in writes for line in (write.quads or "").splitlines()]
    return {line.rsplit(" ", 2)[1].strip("<>") for line in lines}


def named_in(file: str) -> set[str]:
    return {json.loads(line)["graph"] for line in Path(file).read_text().splitlines()}


COUNT = "<urn:e2e:count>"
ADD_ONE = (
    f"DELETE {{ {COUNT} {COUNT} ?n }} INSERT {{ {COUNT} {COUNT} ?m }} WHERE {{ {COUNT} {COUNT} ?n BIND(?n + 1 AS ?m) }}"
)
READ = f"SELECT ?n {{ {COUNT} {COUNT} ?n }}"


def counts(cluster: LocalCluster) -> dict[str, str]:
    """What every store has counted: each transaction once, or it tells."""
    return {worker.name: cluster.query_worker(worker.name, READ)[0][0] for worker in cluster.topology.workers}


@pytest.mark.long
def test_under_none_nobody_goes_back_and_each_store_executes_each_transaction_once(tmp_path: Path) -> None:
    with (
        manifests(lag="4s", recovery="None") as folder,
        cluster_up(tmp_path / "state", (folder,)) as cluster,
    ):
        story = SplitScenario(cluster)
        cluster.wait_applying(240)

        def add(side: str, times: int) -> None:
            for _ in range(times):
                answer = write_one(cluster.master_of(side), cluster.repository, ADD_ONE, "applied")
                story.written[side].append(answer["txlog-transaction"])

        write_one(cluster.master_of("uk"), cluster.repository, f"INSERT DATA {{ {COUNT} {COUNT} 0 }}", "applied")
        add("uk", 2)
        cluster.wait_converged(60)
        some = entity_batches(20)
        split_and_write(story, {side: next(some) for side in SIDES}, {side: next(some) for side in SIDES})
        add("uk", 3)
        add("us", 4)
        assert counts(cluster) == {"uk-worker-1": "5", "us-worker-1": "6"}
        assert not [each for side in SIDES for each in cluster.state.split_backups(side).iterdir()], "no backup"
        story.heal()
        story.wait_state("Joined")
        assert cluster.kill("us-1"), "what was abandoned is in the journal"
        cluster.wait_converged(120)
        story.wait_state("Joined")
        add("uk", 1)
        add("us", 1)
        cluster.wait_converged(60)
        assert counts(cluster) == {"uk-worker-1": "11", "us-worker-1": "11"}
        assert not story.violations()
        splits = story.report()
        assert {(split["strategy"], tuple(split["restoredWorkers"])) for split in splits} == {("None", ())}
        # A master killed before anybody heard it at work in the new view is silent for its term: another split.
        assert {name for split in splits for name in split["unorderedWorkers"]} == {"us-worker-1"}
        states = {name: worker.state for name, worker in cluster.workers().items()}
        assert states == {"uk-worker-1": "Working", "us-worker-1": "Unordered"}

        root = cluster.state.root
        with pytest.raises(CannotMeasure, match="us-worker-1 executed in another order"):
            run_txlog("set", "splitRecovery", "Smart", "--state", root)
        run_txlog("worker", "rebuild", "us-worker-1", "--yes", "--live", "--state", root)
        cluster.wait_converged(120)
        assert compare_contents(cluster.masters_by_data_center).equal
        run_txlog("set", "splitRecovery", "Smart", "--state", root)
        add("us", 1)
        assert compare_contents(cluster.masters_by_data_center).equal


@pytest.mark.long
def test_in_majority_the_smaller_side_holds_and_nobody_backs_up(tmp_path: Path) -> None:
    with (
        manifests(lag="4s", mode="Majority") as folder,
        cluster_up(tmp_path / "state", (folder,)) as cluster,
    ):
        story = SplitScenario(cluster)
        cluster.wait_applying(240)
        story.cut()
        story.wait_until("the larger side goes on", lambda states: states["uk-1"] == "Isolated")
        story.change("uk", 1, "applied")
        story.change("us", 2, "accepted")
        with MasterClient(cluster.master_of("us"), 5.0) as master:
            assert master.status().state == "Suspected"
            assert master.transaction(story.written["us"][0], 2.0, Durability.SYNCED).position is None
            assert master.duties() == []
        story.heal()
        story.wait_state("Joined")
        cluster.wait_converged(90)
        assert compare_contents(cluster.masters_by_data_center).equal
        assert not story.violations()
        assert not [each for side in SIDES for each in cluster.state.split_backups(side).iterdir()]
        write_one(cluster.master_of("us"), cluster.repository, "INSERT DATA { <urn:a> <urn:b> 1 }", "applied")
