"""Incremental backups from the log of a real master, by the job and by the commands."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[1] / "server"))

from master_cluster import Cluster
from master_cluster import clusters as clusters
from oxigraph_process import ADAPTER, OxigraphProcess
from synchronous_cluster import insert

from txlog.apply import MasterLog, WorkerState, apply_up_to
from txlog.backup import RestoreTarget, catalogue, make_chain_check, open_target, rebuild_from_backup
from txlog.backup.backup_job import JobResult, main, run_job
from txlog.backup.pinned_snapshot import read_system_graphs
from txlog.cli.main import app
from txlog.client import JsonMarker, MasterClient, WorkerReport
from txlog.config.process_config import BackupJobConfig, FolderConfig


class Site:
    """One master, its only store, and a folder for backups."""

    def __init__(self, cluster: Cluster, store: OxigraphProcess, folder: Path) -> None:
        folder.mkdir()
        self.cluster, self.store, self.folder = cluster, store, folder
        self.target = open_target(FolderConfig(folder=folder))

    async def write(self, *updates: str) -> None:
        for update in updates:
            await self.cluster.write(0, update)
        await asyncio.to_thread(self._execute)

    def _execute(self) -> None:
        with MasterClient(self.cluster.url(0)) as master:
            identity = bytes.fromhex(master.status().cluster_id)
            end = master.status().stable.index
            done = apply_up_to(
                ADAPTER, self.store.transport, MasterLog(master), end, cluster=lambda: identity, budget_s=60
            )
            assert (done.state, done.error) == (WorkerState.WORKING, None)
            marker = read_system_graphs(ADAPTER, self.store.transport).markers[0]
            at = marker.position
            place = JsonMarker(at.epoch, at.index, at.hash.hex(), marker.fence, [], marker.cluster.hex())
            master.report_worker("w-1", WorkerReport(place, "Working"))

    async def command(self, *arguments: str, code: int = 0) -> Any:
        told = ["--target", str(self.folder), "--json"]
        found = await asyncio.to_thread(CliRunner().invoke, app, ["backup", *arguments, *told])
        assert found.exit_code == code, (found.output, found.exception)
        return json.loads(found.stdout)

    async def job(self, **fields: Any) -> JobResult:
        config = BackupJobConfig(
            data_center="uk", masters=[self.cluster.url(0)], target=FolderConfig(folder=self.folder), **fields
        )
        return await asyncio.to_thread(run_job, config)


@pytest.fixture
async def site(tmp_path: Path, clusters: Callable[..., Cluster]) -> AsyncIterator[Site]:
    store = OxigraphProcess(tmp_path / "worker")
    cluster = clusters(1, workers=[{"name": "w-1", "url": store.url}])
    await cluster.start()
    yield Site(cluster, store, tmp_path / "backups")
    store.kill()


async def test_the_job_makes_chains_and_retires_them_whole(site: Site) -> None:
    await site.write(insert("a"), insert("b"))
    chains: list[int] = []
    for n in range(5):
        await site.write(insert(n), insert(n - 1).replace("INSERT", "DELETE"))
        done = await site.job(incremental=True, chain=2, keep=2)
        chains.append(done.made.chain_number)
        assert done.made.quads == len(site.store.quads())
    assert chains == [0, 1, 2, 0, 1]
    kept = catalogue(site.target)
    assert [each.state for each in kept] == ["complete"] * 2, "the first chain went whole, behind the second full one"
    await site.write("DELETE { ?s ?p ?o } INSERT { ?s <urn:q> ?o } WHERE { ?s ?p ?o }")
    done = await site.job(incremental=True, chain=9)
    assert (done.made.chain_number, "is an update" in done.why_full) == (0, True)
    file, answer = site.folder.parent / "job.json", site.folder.parent / "answer"
    config = BackupJobConfig(data_center="uk", masters=[site.cluster.url(0)], target=FolderConfig(folder=site.folder))
    file.write_text(config.model_dump_json())
    for kind, number in (("incremental", 1), ("full", 0)):
        words = ["--config", str(file), "--kind", kind, "--answer", str(answer)]
        assert await asyncio.to_thread(main, words) == 0
        told = json.loads(answer.read_text())
        assert (told.get("of"), "whyFull" in told) == (done.made.name if number else None, False)
    split = await site.job(incremental=True, why="split", name="of-a-split")
    assert (split.made.chain_number, split.why_full) == (0, ""), "what a split needs depends on no other backup"


async def test_the_job_merges_a_full_chain_by_itself(site: Site) -> None:
    """The manifest of the data centre allows one merge in a row; what it retires goes whole."""
    await site.write(insert("a"), insert("b"))
    numbers, merged = [], []
    for n in range(6):
        await site.write(insert(n), insert(n - 1).replace("INSERT", "DELETE"))
        done = await site.job(incremental=True, chain=2, merges=1, keep=2)
        numbers.append(done.made.chain_number)
        merged.append(bool(done.merged))
        assert done.made.quads == len(site.store.quads())
        assert all(each.state == "complete" for each in catalogue(site.target))
    assert numbers == [0, 1, 2, 1, 2, 0]
    assert merged == [False, False, False, True, False, False]
    assert "so a worker is read again" in done.why_full
    told = {"data_center": "uk", "masters": [site.cluster.url(0)], "target": {"folder": str(site.folder)}}
    file, answer = site.folder.parent / "job.json", site.folder.parent / "answer"
    file.write_text(json.dumps({**told, "incremental": True, "chain": 1, "merges": 9}))
    for has_merged in (False, True):
        await site.write(insert(f"more {has_merged}".replace(" ", "-")))
        assert await asyncio.to_thread(main, ["--config", str(file), "--answer", str(answer)]) == 0
        found = json.loads(answer.read_text())
        assert ("merged" in found, "of" in found) == (has_merged, True)
    listed = await site.command("list")
    assert found["merged"] == found["of"]
    assert found["merged"] in [each["name"] for each in listed if each["merged"]]
    text = await asyncio.to_thread(
        CliRunner().invoke, app, ["backup", "list", "--target", str(site.folder)], env={"COLUMNS": "250"}
    )
    assert "merged from a chain" in text.output


async def test_the_commands_know_chains(site: Site, empty: OxigraphProcess) -> None:
    master = ["--master", site.cluster.url(0), "--worker", "w-1"]
    await site.write(insert("a"), insert("b"))
    full = await site.command("create", *master, "--incremental")
    assert "there is none that the log leads on from" in full["whyFull"]
    await site.write(insert("c"))
    made = await site.command("create", *master, "--incremental")
    assert (made["increment"]["of"], made["increment"]["added"], made["quads"]) == (full["name"], 1, 3)
    assert "whyFull" not in made
    refused = CliRunner().invoke(app, ["backup", "create", *master, "--incremental", "--at", "1", "--target", "x"])
    assert refused.exit_code == 1
    assert "expected no --at" in str(refused.exception)

    shown = CliRunner().invoke(app, ["backup", "list", "--target", str(site.folder)])
    assert "number 1 after a full one" in " ".join(shown.output.split())
    needed = CliRunner().invoke(app, ["backup", "delete", full["name"], "--target", str(site.folder)])
    assert f"is needed by {made['name']}" in str(needed.exception)
    found = await site.command("verify")
    assert [(each["sound"], each["quads"]) for each in found] == [(True, 2), (True, 3)]

    def rebuild() -> int:
        into = RestoreTarget("w-2", ADAPTER, empty.transport)
        with MasterClient(site.cluster.url(0)) as client:
            chosen, done = rebuild_from_backup(
                site.target, into, [], client.status().cluster_id, make_chain_check([client])
            )
        assert chosen.name == made["name"], "the newest one is the end of the chain"
        return done.quads

    assert await asyncio.to_thread(rebuild) == 3
    assert empty.quads() == site.store.quads()

    merged = await site.command("merge", made["name"], "--as", "whole")
    assert (merged["name"], merged["format"], merged["digest"]) == ("whole", 1, made["digest"])
    part = site.folder / full["name"] / full["parts"][0]["name"]
    part.write_bytes(part.read_bytes()[:-1])
    verified = {each["name"]: each for each in await site.command("verify", code=1)}
    assert [verified[name]["sound"] for name in (full["name"], made["name"], "whole")] == [False, False, True]
    assert full["name"] in verified[made["name"]]["message"]
    gone = await site.command("delete", full["name"], made["name"])
    assert gone["deleted"] == [made["name"], full["name"]]
