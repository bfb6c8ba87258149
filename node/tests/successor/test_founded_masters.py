"""Real masters, real journals: everything is lost, and a new cluster goes on from the archive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from apart import insert
from archiver_runs import Runner, cluster_id, folder, stable
from master_cluster import Cluster, until
from oxigraph_process import ADAPTER, OxigraphProcess

from txlog.apply import MasterLog, WorkerState, apply_up_to
from txlog.archive.file_name import Node
from txlog.archive.moment import parse_moment
from txlog.archive.moment_restore import MomentRequest
from txlog.archive.restore_plan import EMPTY_BASE
from txlog.archive.stream import find_streams
from txlog.archive.stream_reader import StreamReader
from txlog.backup.dataset_load import RestoreTarget
from txlog.backup.folder_target import FolderTarget
from txlog.client import JsonPosition, MasterClient, StatusResponse
from txlog.config.process_config import NodeConfig
from txlog.successor.store_fill import fill_store
from txlog.successor.succession import Succession, SuccessionRequest, found_successor
from txlog.workers.digest import digest_worker

WRITES = 6


class Lost:
    """What a lost cluster of three masters leaves. ``writes``: its answers, by key; the last one is not archived."""

    def __init__(self, cluster: Cluster, target: FolderTarget) -> None:
        self.cluster, self.target = cluster, target
        self.writes: dict[str, str] = {}
        self.identity = b""
        self.end = Node(0, b"")

    async def live(self) -> None:
        cluster = self.cluster
        await cluster.start()
        self.identity = await cluster_id(cluster)
        archiver = Runner(cluster, self.target)
        await archiver.start()
        for number in range(WRITES):
            await self._write(number)
        self.end = await stable(cluster, 0, WRITES)
        await archiver.reach(self.end)
        archiver.close()
        await self._write(WRITES)
        await cluster.crash(0, 1, 2)

    async def _write(self, number: int) -> None:
        key = f"key-{number}"
        answer = await self.cluster.write(number % 3, insert(number), Idempotency_Key=key)
        self.writes[key] = answer["TxLog-Transaction"]

    def folder(self, at: int) -> Path:
        return self.cluster.folder / self.cluster.nodes[at]

    def give_up(self, *which: int) -> None:
        for at in which:
            self.folder(at).rename(self.folder(at).with_suffix(".lost"))

    def found(self) -> Succession:
        config = NodeConfig.model_validate(self.cluster.configs[0])
        reader = StreamReader(find_streams(self.target)[0])
        request = MomentRequest(parse_moment("latest"), self.target, EMPTY_BASE)
        return found_successor(SuccessionRequest(config, self.target, reader, request))


async def joined(cluster: Cluster, *which: int) -> None:
    """These are in one view, and no other one is."""

    async def are() -> bool:
        views = [(await cluster.get(at, "/txlog/status")) for at in which]
        return all({m["node"] for m in each["members"]} == {cluster.nodes[at] for at in which} for each in views)

    await until(are)


async def test_it_goes_on_with_its_keys(clusters: Callable[..., Cluster], tmp_path: Path) -> None:
    lost = Lost(clusters(3), FolderTarget(folder(tmp_path / "target")))
    cluster = lost.cluster
    await lost.live()
    lost.give_up(0, 1, 2)
    done = await asyncio.to_thread(lost.found)
    await cluster.start(ready=False)
    await joined(cluster, 0, 1, 2)
    assert (await cluster_id(cluster)).hex() == done.claim.successor != lost.identity.hex()
    for at, (key, txid) in enumerate(lost.writes.items()):
        answer = await cluster.write(at % 3, insert(at), Idempotency_Key=key)
        if at < WRITES:
            assert answer["TxLog-Transaction"] == txid, "it is in the archive, and a retry is told so"
        else:
            assert answer["TxLog-Transaction"] != txid, "it was lost, and is given again"
    place = await stable(cluster, 0, WRITES + 1)
    assert place.index == WRITES + 1, "one transaction is new"
    log = await log_of_after(cluster, lost.end)
    assert [(entry[0], entry[3]) for entry in log] == [(WRITES + 1, f"key-{WRITES}")]


async def log_of_after(cluster: Cluster, node: Node) -> list[tuple[int, bytes, str, str, bytes]]:
    def ask() -> list[tuple[int, bytes, str, str, bytes]]:
        with MasterClient(cluster.url(0)) as master:
            page = master.log_page(node.index, keys=True, max_bytes=8 << 20)
        return [(e.index, e.hash, str(e.txid), e.key, e.payload) for e in page.entries]

    return await asyncio.to_thread(ask)


async def test_a_master_of_the_lost_cluster_is_refused_by_name(
    clusters: Callable[..., Cluster], tmp_path: Path
) -> None:
    """Its disk is put back, with the transaction that the archive lacks."""
    lost = Lost(clusters(3), FolderTarget(folder(tmp_path / "target")))
    cluster = lost.cluster
    await lost.live()
    lost.give_up(0, 1)
    done = await asyncio.to_thread(lost.found)
    await cluster.start(ready=False)
    await joined(cluster, 0, 1)
    await until(lambda: any("OtherCluster" in log.getvalue() for log in cluster.logs))
    assert (await cluster_id(cluster)).hex() == done.claim.successor
    assert (await cluster_id(cluster, 2)) == lost.identity
    await cluster.write(0, insert("new"))
    assert (await stable(cluster, 1, WRITES + 1)).index == WRITES + 1


@pytest.mark.parametrize("mode", ["Continue", "Majority"])
async def test_a_master_that_founded_restarts_like_any_other(
    clusters: Callable[..., Cluster], tmp_path: Path, mode: str
) -> None:
    lost = Lost(clusters(3, split_mode=mode), FolderTarget(folder(tmp_path / "target")))
    cluster = lost.cluster
    await lost.live()
    lost.give_up(0, 1, 2)
    await asyncio.to_thread(lost.found)
    await cluster.start(0)
    await cluster.write(0, insert("alone"))  # before the others arrive
    await cluster.stop(0)
    await cluster.start(ready=False)
    await joined(cluster, 0, 1, 2)
    if mode == "Majority":
        await cluster.crash(1)  # two of three go on
    await cluster.write(0, insert("later"))
    assert (await stable(cluster, 2, WRITES + 2)).index == WRITES + 2


class Learner:
    """A master that has no log yet."""

    url = "http://learner"

    def status(self) -> StatusResponse:
        nowhere = JsonPosition(0, 0, "")
        return StatusResponse(node="uk-2", state="Learning", stable=nowhere, log=nowhere)


async def test_the_new_archive_begins_where_the_new_log_does(clusters: Callable[..., Cluster], tmp_path: Path) -> None:
    """Also while another master still learns: the log from its first entry is in no new master."""
    lost = Lost(clusters(3), FolderTarget(folder(tmp_path / "target")))
    cluster = lost.cluster
    await lost.live()
    lost.give_up(0, 1, 2)
    done = await asyncio.to_thread(lost.found)
    await cluster.start(ready=False)
    await joined(cluster, 0, 1, 2)
    archiver = Runner(cluster, lost.target)
    archiver.archiver._masters = [Learner(), *archiver.masters]  # type: ignore[list-item]
    await archiver.start()
    archiver.archiver._masters = archiver.masters
    assert archiver.archiver.stream.id.cluster.hex() == done.claim.successor
    assert archiver.archiver.stream.read_start() == lost.end
    await cluster.write(1, insert("after"))
    await archiver.reach(await stable(cluster, 0, WRITES + 1))
    assert not archiver.archiver.gaps
    archiver.close()


async def test_stores_follow_the_new_log(clusters: Callable[..., Cluster], tmp_path: Path) -> None:
    lost = Lost(clusters(3), FolderTarget(folder(tmp_path / "target")))
    cluster = lost.cluster
    await lost.live()
    lost.give_up(0, 1, 2)
    done = await asyncio.to_thread(lost.found)
    identity = bytes.fromhex(done.claim.successor)
    await cluster.start(ready=False)
    await joined(cluster, 0, 1, 2)
    await cluster.write(1, insert("after"))
    end = await stable(cluster, 0, WRITES + 1)
    store = OxigraphProcess(tmp_path / "store")
    try:

        def follow() -> WorkerState:
            with MasterClient(cluster.url(0)) as master:
                log = MasterLog(master)
                return apply_up_to(ADAPTER, store.transport, log, end.index, cluster=lambda: identity).state

        def fill() -> object:
            reader = StreamReader(find_streams(lost.target)[0])
            moment = parse_moment(f"position:{done.claim.index}:{done.claim.hash}")
            into = RestoreTarget("store", ADAPTER, store.transport)
            return fill_store(reader, MomentRequest(moment, lost.target, EMPTY_BASE), into, identity)

        assert await asyncio.to_thread(follow) is WorkerState.NEEDS_RESTORE, "an empty store is left alone"
        filled = await asyncio.to_thread(fill)
        assert filled is not None
        assert filled.marker.cluster == identity  # type: ignore[attr-defined]
        assert await asyncio.to_thread(follow) is WorkerState.WORKING
        assert digest_worker(ADAPTER, store.transport).quads == WRITES + 1
        assert await asyncio.to_thread(fill) is None, "a store that is filled stays as it is"
    finally:
        store.kill()
