"""Backups of a further repository: by the command line, apart from those of the first one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from master_cluster import Cluster
from test_log_links import write
from test_several_repositories import LIST, all_open, put, start_all
from typer.testing import CliRunner
from worker_driver import Driver, OxigraphProcess

from txlog.cli.main import app

NAMES = ("demo", "stock")


class Backups:
    """One master with a store for each of two repositories, and the command line."""

    def __init__(self, cluster: Cluster, folder: Path, stores: dict[str, OxigraphProcess]) -> None:
        self.cluster, self.target, self.stores = cluster, folder / "backups", stores
        self.target.mkdir()
        self._drivers = {name: self._drive(name) for name in NAMES}

    def _drive(self, name: str) -> Driver:
        path = "" if name == "demo" else f"{LIST}/{name}"
        return Driver(self.cluster.url(0, path), "w-1", self.stores[name])

    async def run(self, *words: str, code: int = 0, with_master: bool = True, with_target: bool = True) -> Any:
        given = [] if not with_master else ["--master", self.cluster.url(0)]
        given += [] if not with_target else ["--target", str(self.target)]
        done = await asyncio.to_thread(CliRunner().invoke, app, [*words, *given, "--json"])
        assert done.exit_code == code, (words, done.output, done.exception)
        return json.loads(done.stdout) if code == 0 else f"{done.output}{done.exception}"

    async def create(self, *words: str) -> dict[str, Any]:
        made: dict[str, Any] = await self.run("backup", "create", *words)
        return made

    async def names(self, *words: str) -> list[str]:
        return [each["name"] for each in await self.run("backup", "list", *words, with_master=False)]

    def subjects(self, name: str) -> list[str]:
        return self.stores[name].select("SELECT DISTINCT ?p { ?s ?p ?o } ORDER BY ?p")

    async def close(self) -> None:
        for driver in self._drivers.values():
            await asyncio.to_thread(driver.close)


@pytest.fixture
async def backups(clusters: Callable[..., Cluster], tmp_path: Path) -> AsyncIterator[Backups]:
    stores = {name: OxigraphProcess(tmp_path / f"store-{name}") for name in NAMES}
    workers = {name: [{"name": "w-1", "url": store.url}] for name, store in stores.items()}
    cluster = clusters(
        1, workers=workers["demo"], durability="applied", repositories={"workers": {"stock": workers["stock"]}}
    )
    await start_all(cluster)
    await put(cluster, 0, "stock", None, 202, wait="0.5")
    await all_open(cluster)
    made = Backups(cluster, tmp_path, stores)
    for number, name in enumerate((*NAMES, "stock")):
        assert await write(cluster, 0, name, number, **{"TxLog-Durability": "applied"}) == 204
    yield made
    await made.close()
    for store in stores.values():
        store.kill()


async def test_backups_of_two_repositories_are_apart_and_each_is_restored(backups: Backups) -> None:
    first = await backups.create("--name", "same")
    made = await backups.create("--name", "same", "--repository", "stock")
    assert made["cluster"] != first["cluster"]
    assert made["target"] == f"{backups.target}/_repositories/stock"
    assert (first["position"]["index"], made["position"]["index"]) == (1, 2), "the position is of its own log"
    again = await backups.create("--repository", "stock", "--incremental", "--name", "next")
    assert again["target"] == made["target"]
    assert (await backups.names(), await backups.names("--repository", "stock")) == (["same"], ["same", "next"])
    assert await backups.names("--repository", "demo") == [], "without a state folder it is a name as any other"
    for words in ((), ("--repository", "stock")):
        found = await backups.run("backup", "verify", *words, with_master=False)
        assert all(each["sound"] for each in found), found

    held = backups.subjects("stock")
    backups.stores["stock"].update("DROP ALL")
    done = await backups.run("worker", "rebuild", "w-1", "--yes", "--from", "same", "--repository", "stock")
    assert (done["worker"], done["from"]) == ("w-1", "same")
    assert backups.subjects("stock") == held
    assert backups.subjects("demo") == ["urn:uk-1"], "the store of the other repository keeps what it has"
    assert await write(backups.cluster, 0, "stock", 9, **{"TxLog-Durability": "applied"}) == 204
    gone = await backups.run("backup", "delete", "next", "--repository", "stock", with_master=False)
    assert gone == {"deleted": ["next"]}
    assert (await backups.names(), await backups.names("--repository", "stock")) == (["same"], ["same"])


async def test_a_backup_of_another_repository_is_refused_by_its_log(backups: Backups) -> None:
    await backups.create("--name", "same")
    (backups.target / "_repositories").mkdir()
    (backups.target / "same").rename(backups.target / "_repositories" / "moved")
    (backups.target / "_repositories" / "stock").mkdir()
    (backups.target / "_repositories" / "moved").rename(backups.target / "_repositories" / "stock" / "same")
    held = backups.subjects("stock")
    said = await backups.run("worker", "rebuild", "w-1", "--yes", "--from", "same", "--repository", "stock", code=1)
    assert "OtherCluster" in said or "cluster" in said
    assert backups.subjects("stock") == held


async def test_names_that_no_repository_has(backups: Backups) -> None:
    for words in (("backup", "create"), ("worker", "rebuild", "w-1", "--yes"), ("restore", "b", "--into", "w-1")):
        said = await backups.run(*words, "--repository", "none", code=1)
        assert "unknown repository none; there are demo, stock" in said, said
    for name in ("../x", "a/b", "system", "", "a" * 64):
        said = await backups.run("backup", "list", "--repository", name, code=1, with_master=False)
        assert "--repository" in said, said
    said = await backups.run("restore", "--to", "latest", "--into", "http://h:1", "--repository", "stock", code=1)
    assert "has an archive" in said
    rebuild = ("worker", "rebuild", "w-1", "--discard", "--yes", "--repository", "stock")
    assert "expected --from BACKUP" in await backups.run(*rebuild, code=1, with_target=False)
    assert "no backup on" in await backups.run(*rebuild, code=1)
    assert list(backups.target.iterdir()) == []


async def test_the_first_repository_by_name_is_the_first_one(backups: Backups) -> None:
    made = await backups.create("--name", "one", "--repository", "demo")
    assert made["target"] == str(backups.target)
    assert await backups.names() == ["one"]


async def test_a_repository_that_was_made_again_starts_with_other_backups(backups: Backups) -> None:
    old = await backups.create("--name", "old", "--repository", "stock")
    async with backups.cluster.session.delete(backups.cluster.url(0, f"{LIST}/stock")) as answer:
        assert answer.status == 204, await answer.text()
    await put(backups.cluster, 0, "stock", None, 202, wait="0.5")
    await all_open(backups.cluster, number=3)
    said = await backups.run(
        "worker", "rebuild", "w-1", "--yes", "--discard", "--from", "old", "--repository", "stock", code=1
    )
    assert "cluster" in said
    listed = await backups.run("backup", "list", "--repository", "stock", with_master=False)
    assert [(each["name"], each["state"]) for each in listed] == [("old", "complete")]
    assert listed[0]["manifest"]["cluster"] == old["cluster"]
