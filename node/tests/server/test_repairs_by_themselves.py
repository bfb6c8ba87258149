"""Workers that differ, repaired without anybody asking: real stores, real masters, the supervisor's own performer."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from master_cluster import Cluster, until
from oxigraph_process import OxigraphProcess
from test_comparing import comparing_of
from worker_driver import Driver

from txlog.config.process_config import DutyJobConfig, FolderConfig
from txlog.local.duty_runner import DutyRunner
from txlog.local.state_folder import StateFolder

NAMES = ("w-1", "w-2", "w-3")
DATA = "INSERT DATA { <urn:s> <urn:p> 0 . GRAPH <urn:g> { <urn:s> <urn:p> 1 , 2 } GRAPH <urn:h> { <urn:s> <urn:p> 3 } }"
TAKEN = "DELETE DATA { GRAPH <urn:g> { <urn:s> <urn:p> 2 } }"


class Three:
    """A data centre of one master and three stores; ``perform`` is what `txlog up` does."""

    def __init__(self, cluster: Cluster, stores: dict[str, OxigraphProcess], folder: Path) -> None:
        self.cluster, self.stores = cluster, stores
        self.comparing = comparing_of(cluster, stores, folder)
        self.drivers = [Driver(cluster.url(0), name, store) for name, store in stores.items()]
        self.state = StateFolder(folder / "state")
        self.state.prepare()
        self.plan = DutyJobConfig(
            data_center="uk",
            masters=[cluster.url(0)],
            target=FolderConfig(folder=self.state.split_backups("uk")),
            repaired=self.state.repair_patches("uk"),
        )
        self.state.write_config(self.state.duties("uk"), self.plan)
        self.duties = DutyRunner({"uk": self.plan}, self.state)
        self._performing: asyncio.Task[None] | None = None

    def perform(self) -> None:
        self._performing = asyncio.create_task(self.duties.run())

    async def close(self) -> None:
        if self._performing is not None:
            self._performing.cancel()
            with suppress(asyncio.CancelledError):
                await self._performing
        for driver in self.drivers:
            await asyncio.to_thread(driver.close)
        self.comparing.__exit__()
        for store in self.stores.values():
            store.kill()

    async def counted(self) -> dict[str, dict[str, Any]]:
        await asyncio.to_thread(self.comparing.compare_counts)
        return await self.workers()

    async def workers(self) -> dict[str, dict[str, Any]]:
        return {worker["name"]: worker for worker in (await self.cluster.get(0, "/txlog/workers"))["workers"]}

    async def plant(self, name: str, text: str = TAKEN) -> None:
        assert all(each["divergence"] is None for each in (await self.counted()).values())
        assert self.stores[name].update(text).ok

    async def write(self, text: str) -> None:
        headers = {"Content-Type": "application/sparql-update", "TxLog-Durability": "applied-all"}
        await self.cluster.post(0, "/repositories/demo/statements", text, 204, headers=headers)

    async def repaired(self, name: str, times: int = 1) -> dict[str, Any]:
        """The worker, when it was repaired so often and does not differ any more. A look may miss what was planted:
        workers that stood at different places are not compared."""

        async def equal() -> dict[str, Any] | None:
            found = (await self.counted())[name]
            done = found["repair"] is not None and found["repair"]["done"] >= times
            return found if done and found["divergence"] is None else None

        found: dict[str, Any] = await until(equal)
        return found

    async def standing(self, name: str, state: str) -> dict[str, Any]:
        async def stands() -> dict[str, Any] | None:
            found = (await self.counted())[name]
            return found if found["repair"] is not None and found["repair"]["state"] == state else None

        found: dict[str, Any] = await until(stands)
        return found


@pytest.fixture
async def trio(tmp_path: Path, clusters: Callable[..., Cluster]) -> AsyncIterator[Three]:
    stores = {name: OxigraphProcess(tmp_path / name) for name in NAMES}
    cluster = clusters(1, workers=[{"name": name, "url": store.url} for name, store in stores.items()])
    await cluster.start()
    made = Three(cluster, stores, tmp_path)
    await made.write(DATA)
    yield made
    await made.close()


async def test_a_difference_is_repaired_by_copying_that_graph_and_the_log_goes_on(trio: Three) -> None:
    whole = trio.stores["w-1"].quads()
    trio.perform()
    await trio.plant("w-2", TAKEN + " ; INSERT DATA { GRAPH <urn:g> { <urn:s> <urn:p> 8 , 9 } }")
    worker = await trio.repaired("w-2")
    last = worker["repair"]["last"]
    assert (worker["repair"]["state"], worker["repair"]["done"], last["source"]) == ("Done", 1, "uk/w-1")
    assert (last["graphs"], last["graphCount"], last["added"], last["removed"]) == (["urn:g"], 1, 1, 2)
    assert last["fence"] == trio.stores["w-2"].system().markers[0].fence == 1
    assert trio.stores["w-2"].quads() == whole
    assert "WorkerRepaired" in trio.cluster.logged(0)
    (noted,) = await until(trio.duties.describe)  # when its process has ended
    assert (noted["kind"], noted["worker"], noted["graphs"]) == ("repair", "w-2", ["urn:g"])
    kept = (await asyncio.to_thread(Path(noted["kept"]).read_text)).splitlines()
    assert [line.split(" ")[0] for line in kept] == ["D", "D", "A"]
    assert all(line.endswith(" <urn:g> .") for line in kept)
    assert all(each["hold"] is None for each in (await trio.workers()).values()), "nobody is held afterwards"
    await trio.write("INSERT DATA { GRAPH <urn:g> { <urn:after> <urn:p> 1 } }")
    assert trio.stores["w-2"].quads() == trio.stores["w-1"].quads() != whole
    assert (await trio.cluster.get(0, "/txlog/duties"))["duties"] == []
    assert (await trio.cluster.get(0, "/txlog/status"))["workers"][1]["repair"]["done"] == 1


async def test_what_was_done_outlives_the_master(trio: Three) -> None:
    trio.perform()
    await trio.plant("w-2")
    await trio.repaired("w-2")
    await trio.cluster.stop(0)
    await trio.cluster.start(0)
    found = (await trio.workers())["w-2"]["repair"]
    assert (found["state"], found["last"]["graphs"]) == ("Done", ["urn:g"])


async def test_an_undecided_one_is_named_and_left(tmp_path: Path, clusters: Callable[..., Cluster]) -> None:
    stores = {name: OxigraphProcess(tmp_path / name) for name in NAMES[:2]}
    cluster = clusters(1, workers=[{"name": name, "url": store.url} for name, store in stores.items()])
    await cluster.start()
    pair = Three(cluster, stores, tmp_path)
    try:
        await pair.write(DATA)
        assert stores["w-2"].update(TAKEN).ok  # before anybody looked
        pair.perform()
        before = {name: store.quads() for name, store in stores.items()}
        for name in stores:
            worker = await pair.standing(name, "Undecided")
            assert (worker["divergence"]["wrong"], worker["divergence"]["graphs"]) == (False, ["urn:g"])
            assert "--source OTHER" in worker["repair"]["why"]
        assert (await cluster.get(0, "/txlog/duties"))["duties"] == []
        assert {name: store.quads() for name, store in stores.items()} == before
        assert pair.duties.describe() == []
    finally:
        await pair.close()


async def test_nothing_is_repaired_where_somebody_wants_to_do_it_by_hand(trio: Three) -> None:
    async with trio.cluster.session.patch(
        trio.cluster.url(0, "/txlog/settings"), json={"worker-repair": "Manual"}
    ) as answer:
        assert (await answer.json())["changed"] == ["workerRepair"]
    await trio.plant("w-2")
    planted = trio.stores["w-2"].quads()
    worker = await trio.standing("w-2", "ByHand")
    assert worker["divergence"]["wrong"]
    assert (await trio.cluster.get(0, "/txlog/duties"))["duties"] == []
    assert trio.stores["w-2"].quads() == planted
    async with trio.cluster.session.patch(
        trio.cluster.url(0, "/txlog/settings"), json={"workerRepair": "now"}
    ) as answer:
        assert answer.status == 400
        assert "expected auto or manual" in (await answer.json())["message"]


async def test_one_is_out_at_a_time(trio: Three) -> None:
    await trio.plant("w-2")
    await trio.standing("w-2", "Due")
    (duty,) = (await trio.cluster.get(0, "/txlog/duties"))["duties"]
    assert (duty["id"], duty["kind"], duty["worker"]) == ("repair-w-2-0", "repair", "w-2")
    await asyncio.to_thread(trio.drivers[2].close)
    report = {"position": None, "state": "Unreachable", "error": "gone"}
    await trio.cluster.post(0, "/txlog/workers/w-3", None, 200, json=report)
    found = (await trio.workers())["w-2"]["repair"]
    assert (found["state"], found["why"]) == ("Waiting", "w-3 is Unreachable")
    assert (await trio.cluster.get(0, "/txlog/duties"))["duties"] == []


async def test_nothing_is_repaired_while_a_master_is_silent(tmp_path: Path, clusters: Callable[..., Cluster]) -> None:
    stores = {name: OxigraphProcess(tmp_path / name) for name in NAMES}
    workers = [{"name": name, "url": store.url} for name, store in stores.items()]
    cluster = clusters(2, workers=workers, round_timeout_ms=500, idle_interval_ms=100)
    await cluster.start()
    trio = Three(cluster, stores, tmp_path)
    try:
        await trio.write(DATA)
        await trio.plant("w-2")
        await trio.standing("w-2", "Due")
        await cluster.crash(1)
        await until(lambda: cluster.service(0).loop.executor.core.state == "Suspected")
        found = (await trio.workers())["w-2"]["repair"]
        assert (found["state"], found["why"]) == ("Waiting", "uk-1 is Suspected")
        assert [duty["kind"] for duty in (await cluster.get(0, "/txlog/duties"))["duties"]] == ["backup"]
    finally:
        await trio.close()


async def test_killed_in_the_middle_it_goes_on(trio: Three, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txlog.server.feed.worker_reports.REPAIR_PAUSE_S", 4.0)
    monkeypatch.setattr("txlog.divergence.repair_policy.RETRY_PAUSES_S", (0.5, 0.5))
    await trio.plant("w-2")
    await trio.standing("w-2", "Due")
    await asyncio.to_thread(trio.drivers[1].pause)  # they come to one index only when it goes on
    await trio.cluster.write(0, "INSERT DATA { <urn:more> <urn:p> 1 }")
    await until(lambda: "<urn:more>" in "".join(trio.stores["w-1"].quads()))
    command = (sys.executable, "-m", "txlog.backup.duty", "--config", str(trio.state.duties("uk")), "--repair=w-2")
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)

    async def running() -> bool:
        return bool((await trio.workers())["w-2"]["repair"]["state"] == "Running")

    await until(running)
    child.kill()
    assert await child.wait() == -signal.SIGKILL, "it was in the middle"
    assert not any("<urn:g>" in quad and '"2"' in quad for quad in trio.stores["w-2"].quads())
    trio.drivers[1].resume()
    trio.perform()
    await trio.repaired("w-2")
    assert trio.stores["w-2"].quads() == trio.stores["w-1"].quads()

    async def free() -> bool:
        return all(each["hold"] is None for each in (await trio.workers()).values())

    await until(free)  # also the holds that were left behind
    await trio.write("INSERT DATA { <urn:after> <urn:p> 1 }")


async def test_one_that_differs_again_and_again_is_left_to_people_until_they_act(trio: Three) -> None:
    trio.perform()
    for times in range(1, 4):
        await trio.plant("w-2")
        worker = await trio.repaired("w-2", times)
        assert worker["repair"]["done"] == times
    await trio.plant("w-2")
    planted = trio.stores["w-2"].quads()
    worker = await trio.standing("w-2", "GivenUp")
    assert "repaired 3 times" in worker["repair"]["why"]
    assert "WorkerLeftToPeople" in trio.cluster.logged(0)
    assert (await trio.cluster.get(0, "/txlog/duties"))["duties"] == []
    await trio.cluster.stop(0)
    await trio.cluster.start(0)
    await trio.standing("w-2", "GivenUp")
    assert trio.stores["w-2"].quads() == planted
    kept = json.loads((trio.cluster.folder / "uk-1" / "repairs.json").read_text())
    assert kept["given_up"] == {"w-2": 3}


async def test_reports_of_a_repair_that_are_none_are_refused(trio: Three) -> None:
    done = {"state": "done", "index": 1, "hash": "00" * 16, "fence": 1, "graphCount": 1, "graphs": ["urn:g"]}
    path = "/txlog/duties/repair-w-2-0"
    for wrong in ({"fence": 0}, {"fence": -1}, {"added": -1}, {"graphs": "urn:g"}, {"hash": "xy"}, {"state": "ended"}):
        told = await trio.cluster.post(0, path, None, 400, json={**done, **wrong})
        assert told["error"] == "BadInput"
    await trio.cluster.post(0, "/txlog/duties/repair-w-9-0", None, 404, json=done)
    assert await trio.cluster.post(0, path, None, 200, json=done) == {"open": False}
    assert await trio.cluster.post(0, path, None, 200, json=done) == {"open": False}
    assert (await trio.workers())["w-2"]["repair"]["done"] == 1, "told twice, done once"


async def test_one_that_fails_is_tried_later_and_says_why(trio: Three) -> None:
    await trio.plant("w-2")
    await trio.standing("w-2", "Due")
    told = {"state": "failed", "message": "TooMuchDiffers: rebuild it"}
    await trio.cluster.post(0, "/txlog/duties/repair-w-2-0", None, 200, json=told)
    found = (await trio.workers())["w-2"]["repair"]
    assert found["state"] == "Waiting"
    assert found["why"].endswith(" s: TooMuchDiffers: rebuild it")
    assert (await trio.cluster.get(0, "/txlog/duties"))["duties"] == []
