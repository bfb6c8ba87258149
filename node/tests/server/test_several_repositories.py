"""Several repositories in one cluster: the system log creates them, and every master serves them."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from master_cluster import Cluster, until
from test_log_links import FURTHER, log_of, write
from test_repository_config import NEW, OLD
from typer.testing import CliRunner
from worker_driver import Driver, OxigraphProcess

from txlog.cli.main import app
from txlog.client import MasterClient
from txlog.config.process_config import PipelineConfig
from txlog.model.crosslog_entry import SYSTEM_LOG
from txlog.model.errors import Fatal
from txlog.pipeline.worker_applier import WorkerApplier
from txlog.pipeline.worker_lanes import ApplyRequest, LaneSet
from txlog.server.log_service import LogService

ANYBODY = {"repositories": {"create": "anybody"}}
LIST = "/txlog/repositories"
TURTLE = {"Content-Type": "text/turtle"}
STOCK = 2


async def put(cluster: Cluster, at: int, name: str, body: Any = None, status: int = 201, **query: str) -> Any:
    url, data = cluster.url(at, f"{LIST}/{name}"), json.dumps(body) if body is not None else None
    async with cluster.session.put(url, data=data, params=query) as answer:
        text = await answer.text()
        assert answer.status == status, (answer.status, text)
        return json.loads(text) if text else None


async def delete(cluster: Cluster, at: int, path: str, status: int = 204) -> str:
    async with cluster.session.delete(cluster.url(at, path)) as answer:
        text = await answer.text()
        assert answer.status == status, (answer.status, text)
        return text


async def names(cluster: Cluster, at: int) -> list[str]:
    told = await cluster.get(at, LIST)
    return [one["name"] for one in told["repositories"]]


def service(cluster: Cluster, at: int, number: int = STOCK) -> LogService | None:
    return cluster.app(at).logs.get(number)


def is_open(cluster: Cluster, at: int, number: int = STOCK) -> bool:
    found = service(cluster, at, number)
    return found is not None and found.context.is_ready and found.context.state == "Joined"


async def is_unknown(cluster: Cluster, at: int, name: str) -> bool:
    return await write(cluster, at, name, 0) == 404


async def all_open(cluster: Cluster, *which: int, number: int = STOCK) -> None:
    await until(lambda: all(is_open(cluster, at, number) for at in which or range(len(cluster.nodes))))


async def start_all(cluster: Cluster) -> None:
    """Every master is ready, and present for each other one: a further log is founded by all of them."""
    await cluster.start()
    nodes = set(cluster.nodes)

    def is_complete(at: int) -> bool:
        return nodes <= {cluster.nodes[at], *cluster.service(at).loop.status.present_peers}

    await until(lambda: all(is_complete(at) for at in range(len(nodes))))


@pytest.fixture
async def several(clusters: Callable[..., Cluster]) -> AsyncIterator[Cluster]:
    cluster = clusters(3, **ANYBODY)
    await start_all(cluster)
    yield cluster
    assert cluster.ended == []


async def equal_logs(cluster: Cluster, name: str, count: int) -> list[tuple[str, str]]:
    async def have_all() -> bool:
        logs = [await log_of(cluster, at, name) for at in range(len(cluster.nodes))]
        return all(len(log) == count for log in logs)

    await until(have_all)
    logs = [await log_of(cluster, at, name) for at in range(len(cluster.nodes))]
    assert logs.count(logs[0]) == len(logs)
    return logs[0]


async def test_a_repository_is_created_and_written_at_every_master(several: Cluster) -> None:
    assert await names(several, 0) == ["demo"]
    told = await put(several, 1, "stock")
    assert (told["name"], told["log"], told["wantedBy"]) == ("stock", STOCK, ["request"])
    await all_open(several)
    wrote = await asyncio.gather(*(write(several, n % 3, name, n) for n in range(30) for name in ("demo", "stock")))
    assert wrote == [204] * 60
    for name in ("demo", "stock"):
        assert all(f"urn:{name}" in payload for _, payload in await equal_logs(several, name, 30))
    lists = [await several.get(at, LIST) for at in range(3)]
    assert all(told["behind"] is False for told in lists)
    assert [[one["name"] for one in told["repositories"]] for told in lists] == [["demo", "stock"]] * 3
    assert len({told["repositories"][1]["clusterId"] for told in lists}) == 1
    assert lists[0]["repositories"][0]["clusterId"] != lists[0]["repositories"][1]["clusterId"]
    found = await several.get(2, "/repositories", headers={"Accept": "application/sparql-results+json"})
    assert [row["id"]["value"] for row in found["results"]["bindings"]] == ["demo", "stock"]
    assert (await several.get(0, f"{LIST}/stock/status"))["repository"] == "stock"
    assert (await several.get(0, f"{LIST}/system/status"))["state"] == "Joined"
    await several.get(0, "/repositories/system/size", 404)
    await several.get(0, f"{LIST}/system/workers", 404)
    metrics = await several.get(0, "/metrics")
    assert 'txlog_state{repository="stock",state="Joined"} 1.0' in metrics


async def test_two_creates_of_one_name_at_two_masters_give_one_repository(several: Cluster) -> None:
    async def create(at: int) -> int:
        async with several.session.put(several.url(at, f"{LIST}/stock")) as answer:
            await answer.read()
            return answer.status

    answers = await asyncio.gather(*(create(at) for at in range(3)))
    assert sorted(answers) == [201, 409, 409]
    for at in range(3):
        assert await names(several, at) == ["demo", "stock"]
    other = await asyncio.gather(*(put(several, at, f"r-{at}") for at in range(3)))
    assert sorted(one["log"] for one in other) == [3, 4, 5], "each got its own number"
    for number in range(STOCK, 6):
        await all_open(several, number=number)


async def test_a_master_that_starts_again_knows_all_its_logs(several: Cluster) -> None:
    await put(several, 0, "stock")
    await all_open(several)
    assert await write(several, 0, "stock", 1) == 204
    before = service(several, 1)
    assert before is not None
    birth = before.loop.status.birth
    await several.stop(1)
    assert await write(several, 0, "stock", 2) == 204
    await several.start(1)
    await all_open(several)
    after = service(several, 1)
    assert after is not None
    assert (after.loop.status.birth, after.loop.status.start) == (birth, 2 + 1), "the founding opened it once more"
    assert await write(several, 1, "stock", 3) == 204
    await equal_logs(several, "stock", 3)
    await several.stop()
    await several.start()
    await all_open(several)
    await equal_logs(several, "stock", 3)


async def test_a_repository_is_removed_and_its_name_is_free(several: Cluster) -> None:
    await put(several, 0, "stock")
    await all_open(several)
    assert await write(several, 0, "stock", 1) == 204
    await delete(several, 2, f"{LIST}/stock")
    await until(lambda: all(service(several, at) is None for at in range(3)))
    for at in range(3):
        assert await names(several, at) == ["demo"]
        await until(lambda at=at: is_unknown(several, at, "stock"))
        kept = several.folder / several.nodes[at] / "logs" / "removed-2"
        await until(kept.is_dir)
        assert any(kept.iterdir()), "its journal is kept"
    told = await put(several, 1, "stock")
    assert told["log"] == 3
    await all_open(several, number=3)
    assert await write(several, 2, "stock", 3) == 204
    assert len(await equal_logs(several, "stock", 1)) == 1
    await several.stop(0)
    await several.start(0)
    await all_open(several, number=3)
    await equal_logs(several, "stock", 1)


async def test_the_ways_of_rdf4j(several: Cluster) -> None:
    async def make(name: str, body: str, prefix: str = "") -> int:
        url = several.url(0, f"{prefix}/repositories/{name}")
        async with several.session.put(url, data=body.encode(), headers=TURTLE) as answer:
            await answer.read()
            return answer.status

    assert await make("stock", OLD) == 204
    assert await make("stock", OLD) == 409
    assert await make("other", NEW) == 400, "the id is another"
    assert await make("other", NEW.replace("stock", "other").replace("LmdbStore", "ShaclSail")) == 400
    assert await make("Stock", OLD.replace('"stock"', '"Stock"')) == 409, "it differs by case only"
    assert await make("-", OLD.replace('"stock"', '"-"')) == 400
    assert await make("other", NEW.replace("stock", "other"), "/rdf4j-server") == 204
    assert await names(several, 0) == ["demo", "stock", "other"]
    await delete(several, 0, "/repositories/stock?query=ASK", 400)
    await delete(several, 0, "/repositories/demo", 409)
    await delete(several, 0, "/repositories/none", 404)
    await all_open(several)
    await delete(several, 1, "/rdf4j-server/repositories/stock")
    assert await names(several, 1) == ["demo", "other"]


async def test_settings_of_a_new_log_are_checked(several: Cluster) -> None:
    for body, says in (
        ({"splitRecovery": "Best"}, "splitRecovery"),
        ({"splitMode": "None"}, "splitMode"),
        ({"keyRetention": "1"}, "keyRetention"),
        ({"keyRetention": "1ms"}, "keyRetention"),
        ({"colour": "red"}, "colour"),
    ):
        told = await put(several, 0, "stock", body, 400)
        assert says in told["message"]
    for name in ("system", "a" * 64, "-a"):
        await put(several, 0, name, None, 400)
    assert (await put(several, 0, "DEMO", None, 409))["reason"] == "RepositoryExists"
    await put(several, 0, "stock", {"splitRecovery": "Simple", "splitMode": "Majority", "keyRetention": "1h"})
    await all_open(several)
    for at in range(3):
        told = await several.get(at, f"{LIST}/stock/configuration")
        assert (told["splitMode"], told["keyRetention"]) == ("Majority", "1h")
        found = service(several, at)
        assert found is not None
        assert found.loop.status.view is not None
        assert found.loop.status.view.strategy == "Simple"


async def test_the_first_create_needs_every_master_and_its_program(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(3, **FURTHER)
    older = cluster.configs[2].pop("repositories")
    await cluster.start()
    told = await put(cluster, 0, "stock", None, 503)
    assert (told["reason"], "uk-3" in told["message"]) == ("OlderProgram", True)
    assert SYSTEM_LOG not in cluster.app(0).logs
    assert cluster.app(0).links.links["uk-3"].dropped_older == 0, "nothing was sent to it"
    await cluster.get(2, LIST, 404)
    await cluster.stop(2)
    told = await put(cluster, 0, "stock", None, 503)
    assert (told["reason"], "uk-3" in told["message"]) == ("NotAllHere", True)
    assert not (cluster.folder / "uk-1" / "logs.json").exists()
    assert not (cluster.folder / "uk-1" / "logs").exists()
    cluster.configs[2]["repositories"] = older
    await cluster.start(2)
    await until(lambda: cluster.service(0).loop.status.is_present("uk-3"))
    await put(cluster, 0, "stock")
    await all_open(cluster)
    assert await write(cluster, 2, "stock", 1) == 204


async def test_clients_create_nothing_unless_the_configuration_says_so(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1, **FURTHER)
    await cluster.start()
    async with cluster.session.put(cluster.url(0, "/repositories/stock"), data=OLD.encode(), headers=TURTLE) as answer:
        assert (answer.status, answer.headers["TxLog-Error"]) == (405, "RepositoriesByManifest"), await answer.text()
    assert SYSTEM_LOG not in cluster.app(0).logs
    await put(cluster, 0, "stock")
    assert await names(cluster, 0) == ["demo", "stock"]


async def test_a_side_without_a_majority_creates_nothing(several: Cluster) -> None:
    await put(several, 0, "stock")
    await all_open(several)
    await several.crash(1, 2)
    system = several.app(0).logs[SYSTEM_LOG]
    await until(lambda: not system.loop.status.present_peers)
    told = await put(several, 0, "other", None, 503, wait="1")
    assert told["reason"] == "NoMajority"
    assert (await several.get(0, LIST))["behind"] is True
    await several.start(1, 2)
    await all_open(several)
    await put(several, 0, "other")
    assert await names(several, 0) == ["demo", "stock", "other"]


async def test_a_master_that_was_away_learns_what_was_created(several: Cluster) -> None:
    await put(several, 0, "stock")
    await all_open(several)
    await several.stop(2)
    told = await put(several, 0, "other")
    assert told["log"] == 3
    assert await write(several, 1, "other", 1) == 204
    await several.start(2)
    await all_open(several, number=3)
    assert await write(several, 2, "other", 2) == 204
    await equal_logs(several, "other", 2)


async def test_a_killed_process_comes_back_with_all_its_logs(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(3, **FURTHER)
    cluster.spawn()
    await cluster.ready()
    await put(cluster, 2, "stock")

    async def took(at: int, name: str, number: int) -> bool:
        return await write(cluster, at, name, number) == 204

    for name in ("demo", "stock"):
        for at in range(3):
            await until(lambda at=at, name=name: took(at, name, 0))
    writing = [asyncio.ensure_future(write(cluster, 0, name, n)) for n in range(1, 20) for name in ("demo", "stock")]
    cluster.kill(1)
    cluster.spawn(1)
    await cluster.ready(1)
    assert set(await asyncio.gather(*writing)) <= {202, 204}
    for name in ("demo", "stock"):
        await until(lambda name=name: took(1, name, 20))
        await equal_logs(cluster, name, 23)
    assert await names(cluster, 1) == ["demo", "stock"]


async def test_a_proof_that_a_process_is_gone_counts_for_each_of_its_logs(several: Cluster) -> None:
    await put(several, 0, "stock")
    await all_open(several)
    first, further = several.service(2).loop.status, several.app(0).further
    proof = {"birth": f"{first.birth:016x}", "start": first.start}
    assert further is not None
    key = (first.birth, first.start)
    await until(lambda: STOCK in [one for one, *_ in further.processes.logs_of("uk-3", *key)])
    await several.crash(2)
    for at in range(2):  # each supervisor tells the masters of its data centre
        await several.post(at, "/txlog/members/uk-3/down", json.dumps(proof), 200)

    def members(number: int) -> list[str]:
        view = several.app(0).logs[number].loop.status.view
        assert view is not None
        return [member.node for member in view.members]

    for number in (0, SYSTEM_LOG, STOCK):
        await until(lambda number=number: members(number) == ["uk-1", "uk-2"], 20)
    assert await write(several, 0, "stock", 1) == 204
    await several.start(2)
    await all_open(several)
    await equal_logs(several, "stock", 1)


async def test_a_log_that_fails_is_closed_alone(several: Cluster) -> None:
    await put(several, 0, "stock")
    await put(several, 0, "other")
    await all_open(several)
    await all_open(several, number=3)
    failing = service(several, 1)
    assert failing is not None
    failing.loop.end(Fatal("TwoContents", "a test"))
    assert await write(several, 1, "stock", 1) == 503
    assert await write(several, 1, "other", 1) == 204
    assert await write(several, 1, "demo", 1) == 204
    told = await several.get(1, f"{LIST}/stock")
    assert (told["state"], told["failed"]) == ("Failed", {"uk-2": "TwoContents"})
    await until(lambda: STOCK not in several.app(1).logs)
    assert "LogFailed" in several.logged(1)
    await several.stop(1)
    await several.start(1)
    await all_open(several)
    assert await write(several, 1, "stock", 2) == 204


async def test_a_lost_folder_is_learnt_again_and_an_older_one_refused(several: Cluster) -> None:
    await put(several, 0, "stock")
    await all_open(several)
    folder = several.folder / "uk-3" / "logs" / "2"
    await several.stop(2)
    shutil.copytree(folder, several.folder / "copy")
    await several.start(2)
    await all_open(several)
    assert await write(several, 2, "stock", 1) == 204
    await several.stop(2)
    kept = several.folder / "kept"
    folder.rename(kept)
    shutil.copytree(several.folder / "copy", folder)
    await several.start(2)
    await until(lambda: cluster_failed(several, 2) == {STOCK: "OldJournal"})
    assert await write(several, 2, "stock", 2) == 503
    assert await write(several, 2, "demo", 2) == 204
    await several.stop(2)
    shutil.rmtree(folder)
    await several.start(2)
    await all_open(several)
    assert await write(several, 2, "stock", 3) == 204
    await equal_logs(several, "stock", 2)


async def test_an_older_folder_is_refused_without_other_masters(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1, **FURTHER)
    await cluster.start()
    await put(cluster, 0, "stock")
    folder = cluster.folder / "uk-1" / "logs" / "2"
    await cluster.stop(0)
    shutil.copytree(folder, cluster.folder / "copy")
    await cluster.start(0)
    await all_open(cluster)
    await cluster.stop(0)
    shutil.rmtree(folder)
    shutil.copytree(cluster.folder / "copy", folder)
    await cluster.start(0)
    await until(lambda: cluster_failed(cluster, 0) == {STOCK: "OldJournal"})
    assert await write(cluster, 0, "demo", 1) == 204


async def test_stores_of_a_further_repository_execute_its_log_alone(
    clusters: Callable[..., Cluster], tmp_path: Path
) -> None:
    stores = {name: OxigraphProcess(tmp_path / f"store-{name}") for name in ("demo", "stock")}
    workers = {name: [{"name": "w-1", "url": store.url}] for name, store in stores.items()}
    further = {"repositories": {"workers": {"stock": workers["stock"]}}}
    cluster = clusters(2, workers=workers["demo"], durability="applied", **further)
    await start_all(cluster)
    drivers = [Driver(cluster.url(0), "w-1", stores["demo"])]
    await put(cluster, 0, "stock", None, 202, wait="0.5")

    async def waits_for_its_store() -> bool:
        told = await cluster.get(0, LIST)
        return [one["workers"] for one in told["repositories"] if one["name"] == "stock"] == [{"working": 0, "of": 1}]

    await until(waits_for_its_store)
    drivers.append(Driver(cluster.url(0, f"{LIST}/stock"), "w-1", stores["stock"]))
    await all_open(cluster)
    try:
        for name in stores:
            for at in range(2):
                assert await write(cluster, at, name, at, **{"TxLog-Durability": "applied"}) == 204
        for name, store in stores.items():
            assert store.select("SELECT DISTINCT ?o { ?o ?p ?x }") == [f"urn:{name}"], "one worker name, two stores"
        assert await cluster.get(1, "/repositories/stock/size") == "2"
        told = await cluster.get(0, LIST)
        assert told["operational"] == "full"
        assert [one["workers"] for one in told["repositories"]] == [{"working": 1, "of": 1}] * 2
        await asyncio.to_thread(drivers.pop().close)
        assert await write(cluster, 1, "stock", 2) == 204
        here = [cluster.url(0, f"{LIST}/stock")]
        lanes = LaneSet(
            PipelineConfig.model_validate(
                {
                    "data_center": "uk",
                    "masters": here,
                    "workers": workers["stock"],
                    "scratch_folder": tmp_path / "turns",
                }
            ),
            WorkerApplier,
        )
        await asyncio.to_thread(lanes.apply_workers, [ApplyRequest("w-1", 3)], 20.0)
        assert stores["stock"].select("SELECT ?p { ?o ?p <urn:2> }") == ["urn:uk-2"]
        await until(lambda: service(cluster, 1).loop.durability.applied.value == 3)  # type: ignore[union-attr]
        client = MasterClient(cluster.url(0, f"{LIST}/stock"), 5)
        assert (await asyncio.to_thread(client.status)).repository == "stock"
        await asyncio.to_thread(client.close)
    finally:
        for driver in drivers:
            await asyncio.to_thread(driver.close)
        for store in stores.values():
            store.kill()


async def test_the_command_line_lists_adds_and_removes(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1, **FURTHER)
    await cluster.start()

    async def run(*arguments: str, code: int = 0) -> str:
        found = await asyncio.to_thread(CliRunner().invoke, app, ["repository", *arguments, "--master", cluster.url(0)])
        assert found.exit_code == code, (found.output, found.exception)
        return found.output

    assert json.loads(await run("list", "--json"))["operational"] == "full"
    assert "stock is log 2" in await run("add", "stock", "--split-recovery", "Simple")
    assert re.search(r"demo +0 +Joined.*\n.*stock +2 +Joined +0 +0 +0/0 +request", await run("list"))
    assert "stock is removed" in await run("remove", "stock", "--yes")
    assert [one["name"] for one in json.loads(await run("list", "--json"))["repositories"]] == ["demo"]


def cluster_failed(cluster: Cluster, at: int) -> dict[int, str]:
    further = cluster.app(at).further
    assert further is not None
    return further.failed


@pytest.mark.parametrize(
    ("damage", "reason"),
    [(lambda path: path.write_text("{"), "LogsFileDamaged"), (lambda path: path.unlink(), "LogsFileMissing")],
    ids=["torn", "missing"],
)
async def test_a_list_that_cannot_be_used_closes_further_logs_alone(
    several: Cluster, damage: Callable[[Any], None], reason: str
) -> None:
    await put(several, 0, "stock")
    await all_open(several)
    await several.stop(2)
    damage(several.folder / "uk-3" / "logs.json")
    await several.start(2)
    assert cluster_failed(several, 2) == {SYSTEM_LOG: reason}
    assert await write(several, 2, "demo", 1) == 204
    assert await write(several, 2, "stock", 1) == 404
    assert (await put(several, 2, "other", None, 503))["reason"] == reason
    assert (await several.get(2, LIST))["behind"] is True
    await several.stop(2)
    shutil.rmtree(several.folder / "uk-3" / "logs")
    (several.folder / "uk-3" / "logs.json").unlink(missing_ok=True)
    await several.start(2)
    await all_open(several)
    assert await write(several, 2, "stock", 2) == 204


async def test_masters_are_fixed_while_there_are_several(several: Cluster) -> None:
    await put(several, 0, "stock")
    for path in ("/txlog/peers/uk-3", f"{LIST}/stock/peers/uk-3"):
        assert "keeps its masters" in await delete(several, 0, path, 409)
    body = json.dumps({"node": "uk-4", "dataCenter": "uk", "urls": ["http://h:1"]})
    await several.post(1, "/txlog/peers", body, 409)
    async with several.session.patch(several.url(2, "/txlog/peers/uk-3"), data='{"weight": 2}') as answer:
        assert answer.status == 409


async def test_a_cluster_with_one_repository_has_no_system_log(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(3, **FURTHER)
    await cluster.start()
    assert await write(cluster, 0, "demo", 1) == 204
    for at in range(3):
        assert list(cluster.app(at).logs) == [0]
        assert not (cluster.folder / cluster.nodes[at] / "logs.json").exists()
        assert await names(cluster, at) == ["demo"]
    assert (await cluster.get(0, LIST))["operational"] == "full"
    await delete(cluster, 0, f"{LIST}/stock", 404)
    await delete(cluster, 0, f"{LIST}/demo", 409)
