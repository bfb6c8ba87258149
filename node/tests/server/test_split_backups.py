"""The backup that a split waits for, where one master is cut off from the others of its own data centre: its stores
follow them, and its stable index is behind theirs. Real masters, a real store; messages are lost as by a cut link."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from apart import back_up as told_backup
from apart import go_apart, states
from master_cluster import Cluster, until
from oxigraph_process import OxigraphProcess

from txlog.apply import WorkerState, apply_up_to
from txlog.apply.log_source import MasterLog
from txlog.backup import catalogue, open_target
from txlog.backup.split_backup import back_up_for_duty
from txlog.client import MasterClient
from txlog.config.process_config import DutyJobConfig, FolderConfig
from txlog.model.errors import OffTheLog, Unavailable
from txlog.wire import messages as wire
from txlog.workers import OxigraphAdapter

ALONE = 1
"""uk-2, which loses everybody else."""
TIMES = {"max_peer_lag_ms": 2000, "round_timeout_ms": 500, "idle_interval_ms": 100}


class Pen(NamedTuple):
    cluster: Cluster
    store: OxigraphProcess
    folder: Path

    def jobs(self, *masters: int, target: str = "own", others: tuple[str, ...] = ()) -> DutyJobConfig:
        where = [FolderConfig(folder=self.folder / name) for name in (target, *others)]
        for each in where:
            each.folder.mkdir(exist_ok=True)
        urls = [self.cluster.url(at) for at in masters]
        return DutyJobConfig(data_center="uk", masters=urls, target=where[0], others=list(where[1:]))

    def backups(self, target: str = "own") -> list[str]:
        return [each.name for each in catalogue(open_target(FolderConfig(folder=self.folder / target)))]

    async def duty(self, at: int) -> dict[str, Any]:
        async def listed() -> list[dict[str, Any]]:
            duties: list[dict[str, Any]] = (await self.cluster.get(at, "/txlog/duties"))["duties"]
            return [duty for duty in duties if duty["kind"] == "backup"]

        (found,) = await until(listed)
        return dict(found)

    async def apply(self, at: int) -> int:
        """The store follows that master, and nobody reports where it stands, as when a Spark driver has died."""
        index: int = (await self.cluster.get(at, "/txlog/status"))["stable"]["index"]

        def run() -> None:
            with MasterClient(self.cluster.url(at)) as master:
                epoch = master.status().stable.epoch
                log = MasterLog(master)
                done = apply_up_to(OxigraphAdapter(), self.store.transport, log, index, epoch=epoch, budget_s=30)
                assert (done.state, done.position and done.position.position.index) == (WorkerState.WORKING, index), (
                    done
                )

        await asyncio.to_thread(run)
        return index


def insert(what: object) -> str:
    return f'INSERT DATA {{ <urn:s:{what}> <urn:p> "o" }}'


def lose(cluster: Cluster, source: int, to: str = "", behind: bytes = b"") -> None:
    """What this master says (``to`` one) is lost from now on, or behind the first message that has these bytes."""
    loop = cluster.service(source).loop
    send = loop._send
    begun = not behind

    def some(peer: str, data: bytes) -> None:
        nonlocal begun
        concerned = not to or peer == to
        if not (concerned and begun):
            send(peer, data)
        begun = begun or (concerned and behind in data)

    loop._send = some  # type: ignore[method-assign]


@pytest.fixture
async def pen(clusters: Callable[..., Cluster], tmp_path: Path) -> AsyncIterator[Pen]:
    """uk-2 holds the second transaction, and cannot know that uk-3 does: the others have it in their stable log."""
    store = OxigraphProcess(tmp_path / "store")
    cluster = clusters(3, workers=[{"name": "w-1", "url": store.url, "engine": "oxigraph"}], **TIMES)
    await cluster.start()
    await until(lambda: {cluster.service(at).loop.executor.core.state for at in range(3)} == {"Joined"})
    await cluster.write(0, insert(1))
    await until(lambda: all(cluster.service(at).loop.durability.stable.value == 1 for at in range(3)))
    lose(cluster, 2, "uk-2")
    lose(cluster, 0, "uk-2", b"urn:s:2")
    await cluster.write(0, insert(2))
    lose(cluster, ALONE)
    yield Pen(cluster, store, tmp_path)
    store.kill()


async def test_a_store_above_the_stable_index_of_a_master_alone_is_backed_up_once_for_both_sides(pen: Pen) -> None:
    alone = pen.cluster.service(ALONE).loop
    assert await pen.apply(0) == 2
    duty = await pen.duty(ALONE)
    assert duty["id"] == (await pen.duty(0))["id"]
    assert alone.durability.stable.value == 1
    told = await asyncio.to_thread(back_up_for_duty, pen.jobs(0, ALONE), duty["id"])
    assert told["index"] == 2
    assert len(pen.backups()) == 1
    await until(lambda: {pen.cluster.service(at).loop.executor.core.state for at in range(3)} == {"Isolated"})
    assert alone.durability.position_at(2).hash.hex() == told["hash"], (
        "the side alone has closed its view over the backup"
    )
    assert await asyncio.to_thread(back_up_for_duty, pen.jobs(0, ALONE), duty["id"]) == {"already": True}
    await pen.cluster.write(ALONE, insert("alone"))
    await pen.cluster.write(0, insert("others"))


async def test_a_store_that_left_for_the_others_is_not_backed_up_again_and_what_they_made_helps(pen: Pen) -> None:
    await pen.apply(0)
    duty = await pen.duty(0)
    elsewhere = await asyncio.to_thread(back_up_for_duty, pen.jobs(0, target="theirs"), duty["id"])
    await until(lambda: pen.cluster.service(0).loop.executor.core.state == "Isolated")
    await pen.cluster.write(0, insert("others"))
    assert await pen.apply(0) == 3

    assert (await pen.duty(ALONE))["id"] == duty["id"]
    for _ in range(2):
        with pytest.raises(OffTheLog, match="w-1 at 3"):
            await asyncio.to_thread(back_up_for_duty, pen.jobs(0, ALONE), duty["id"])
        assert pen.backups() == []
        assert (await pen.duty(ALONE))["error"] is None, (
            "a question changes nothing; the supervisor reports the failure"
        )
    assert pen.cluster.service(ALONE).loop.executor.core.state == "Suspected"
    told = await asyncio.to_thread(back_up_for_duty, pen.jobs(0, ALONE, others=("theirs",)), duty["id"])
    assert (told["name"], told["already"]) == (elsewhere["name"], True)
    await until(lambda: pen.cluster.service(ALONE).loop.executor.core.state == "Isolated")


async def test_a_store_that_does_not_answer_is_named(pen: Pen) -> None:
    await pen.apply(0)
    duty = await pen.duty(0)
    pen.store.kill()
    with pytest.raises(Unavailable, match=pen.store.url):
        await asyncio.to_thread(back_up_for_duty, pen.jobs(0, ALONE), duty["id"])
    pen.store.start()
    assert (await asyncio.to_thread(back_up_for_duty, pen.jobs(0, ALONE), duty["id"]))["index"] == 2


async def test_no_position_counts_that_the_log_and_the_queue_do_not_give(pen: Pen) -> None:
    duty = await pen.duty(ALONE)
    loop = pen.cluster.service(0).loop
    path, at = f"/txlog/duties/{duty['id']}", loop.durability.position_at(2)
    good = {"state": "begun", "index": 2, "hash": at.hash.hex(), "epoch": loop.executor.core.log_state.view.epoch}  # type: ignore[union-attr]
    for wrong in ({"hash": "ab" * 16}, {"epoch": -1}, {"epoch": good["epoch"] + 1}, {"index": 3}, {"index": 1 << 40}):
        told = await pen.cluster.post(ALONE, path, None, 409, json={**good, **wrong})
        assert told["error"] == "OffTheLog"
    assert await pen.cluster.post(ALONE, path, None, 200, json=good) == {"open": True}
    assert await pen.cluster.post(ALONE, path, None, 200, json={**good, "state": "done"}) == {"open": False}


def cut_at_install(cluster: Cluster) -> list[str]:
    """From the first word that a view is installed on, nothing passes between the two sides; whom it was said to."""
    whole = [cluster.service(at).loop._send for at in range(3)]
    begun: list[str] = []

    def sender(at: int) -> Callable[..., None]:
        def send(peer: str, data: bytes, *more: Any) -> None:
            if isinstance(wire.decode(peer, data), wire.InstallView):
                begun.append(peer)
            if not begun or "uk-3" not in (peer, cluster.nodes[at]):
                whole[at](peer, data, *more)

        return send

    for at in range(3):
        cluster.service(at).loop._send = sender(at)  # type: ignore[method-assign]
    return begun


async def test_a_rejoin_that_is_cut_off_before_its_install_goes_on_with_the_backup_of_before(
    clusters: Callable[..., Cluster],
) -> None:
    cluster = clusters(3, split_recovery="Simple", trim_interval_ms=50, **TIMES)
    await cluster.start()
    await until(lambda: states(cluster) == {"Joined"})
    await cluster.write(0, insert("first"))
    await until(lambda: all(cluster.service(at).loop.durability.stable.value == 1 for at in range(3)))
    stood = (await cluster.get(0, "/txlog/status"))["stable"]
    heal = await go_apart(cluster)
    for at in (2, 0, 1):
        await cluster.write(at, insert(f"alone-{at}"))
    heal()
    begun = cut_at_install(cluster)
    await until(lambda: begun)
    none = {"name": "elsewhere", "index": stood["index"], "hash": "00" * 16, "split": True}
    before = {"name": "before", "index": stood["index"], "hash": stood["hash"], "split": True}
    waited: set[int] = set()

    async def apart() -> bool:
        for at in range(3):
            if cluster.service(at).loop.executor.core.accepts_earlier_backup:
                await cluster.post(at, "/txlog/backups", json.dumps({"backups": [none, before]}), 200)
                waited.add(at)
            else:
                await told_backup(cluster, at)
        return states(cluster) == {"Isolated"}

    await until(apart)
    assert waited
    assert any("BackupRecalled" in cluster.logged(at) for at in waited)
