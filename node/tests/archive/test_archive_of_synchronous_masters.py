"""From masters with synchronous transactions, over a split and a rejoin, to an archive, and from there to a store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from apart import back_up, cut, states
from archiver_runs import Runner, cluster_id, folder, stable, stream_of
from master_cluster import Cluster, until
from synchronous_cluster import RULES, decides, insert, post, rules
from test_archive_of_trimmed_logs import fill, trim
from test_restore_from_masters import Workers

from txlog.archive.file_name import Node
from txlog.backup import BackupRequest, SourceWorker, take_backup
from txlog.backup.folder_target import FolderTarget
from txlog.workers import ADAPTERS

ADAPTER = ADAPTERS["oxigraph"]


@pytest.fixture
async def three(clusters: Callable[..., Cluster]) -> Cluster:
    cluster = clusters(3, max_peer_lag_ms=2000, archive={"max_delay_ms": 1000})
    await cluster.start()
    await rules(cluster, RULES)
    await until(lambda: all(decides(cluster, at) for at in range(3)))
    return cluster


async def write(cluster: Cluster, at: int, what: str) -> dict[str, str]:
    status, headers = await post(cluster, at, insert(what), TxLog_Durability="synced")
    assert (status, headers["TxLog-Synchronous"]) == (204, "committed"), headers
    return headers


async def own_index(cluster: Cluster, txid: str) -> int:
    page = await cluster.get(0, "/txlog/log?keys=1", headers={"Accept": "application/json"})
    return next(int(entry["index"]) for entry in page["entries"] if entry["txid"] == txid)


async def position(cluster: Cluster, index: int) -> str:
    page = await cluster.get(0, "/txlog/log", headers={"Accept": "application/json"})
    return f"position:{index}:{page['entries'][index - 1]['hash']}"


async def split_and_rejoin(cluster: Cluster) -> tuple[str, str]:
    """Two transactions are pending on the minority. Of one the time is over by the rejoin. Returns both txids."""
    heal = cut(cluster)
    late = {"TxLog_Synchronous": "true; timeout=100ms"}
    pending = [
        await post(cluster, 2, insert(what), again=False, Prefer="wait=0.2", TxLog_Durability="synced", **more)
        for what, more in (("in-time", {}), ("too-late", late))
    ]

    async def apart() -> bool:
        done = [await back_up(cluster, at) for at in range(3)]
        return all(done) and states(cluster) == {"Isolated"}

    await until(apart)
    await write(cluster, 0, "elsewhere")
    heal()
    await until(lambda: states(cluster) == {"Joined"})
    first, second = (headers["Location"].rpartition("/")[2] for _, headers in pending)

    async def decided() -> bool:
        found = [await cluster.get(0, f"/txlog/transactions/{txid}") for txid in (first, second)]
        return [each["synchronous"]["state"] for each in found] == ["committed", "rolled-back"]

    await until(decided)
    return first, second


async def test_moments_before_at_and_after_a_commit(three: Cluster, tmp_path: Path) -> None:
    cluster, target = three, FolderTarget(folder(tmp_path / "target"))
    identity = await cluster_id(cluster)
    archiver = Runner(cluster, target)
    await archiver.start()
    written = await write(cluster, 0, "a")
    own, commit = await own_index(cluster, written["TxLog-Transaction"]), int(written["TxLog-Position"].split(":")[1])
    assert own < commit
    await archiver.reach(await stable(cluster, 0, commit))
    committed, _ = await split_and_rejoin(cluster)
    end = await stable(cluster, 0, commit + 4)
    await archiver.reach(end)
    archiver.close()
    with Workers(tmp_path) as workers:
        place = await position(cluster, own)

        async def restored(moment: str) -> dict[str, Any]:
            return await asyncio.to_thread(workers.restore, moment, target, "--base", "empty")

        found = await restored(place)
        assert (workers.restored.quads(), found["undecided"]) == ([], [written["TxLog-Transaction"]])
        found = await restored(await position(cluster, commit))
        assert (len(workers.restored.quads()), found["undecided"]) == (1, [])
        recorded = await asyncio.to_thread(workers.execute, cluster.url(0), end, identity)
        found = await restored("latest")
        assert (found["digest"], found["undecided"], found["position"]["index"]) == (recorded, [], end.index)
        subjects = sorted(each.split()[0] for each in workers.restored.quads())
        assert subjects == ["<urn:s:a>", "<urn:s:elsewhere>", "<urn:s:in-time>"]
        found = await restored(committed)
        assert found["position"]["index"] > await own_index(cluster, committed)
        assert "<urn:s:in-time>" in {each.split()[0] for each in workers.restored.quads()}


async def test_a_commit_after_the_base_of_what_is_before_it(three: Cluster, tmp_path: Path) -> None:
    """A worker is backed up between a transaction and its COMMIT."""
    cluster, target = three, FolderTarget(folder(tmp_path / "target"))
    identity = await cluster_id(cluster)
    written = await write(cluster, 1, "a")
    own, commit = await own_index(cluster, written["TxLog-Transaction"]), int(written["TxLog-Position"].split(":")[1])
    archiver = Runner(cluster, target)
    await archiver.start()
    end = await stable(cluster, 0, commit)
    await archiver.reach(end)
    archiver.close()
    with Workers(tmp_path) as workers:
        text = await position(cluster, own)
        at = Node(own, bytes.fromhex(text.rpartition(":")[2]))
        await asyncio.to_thread(workers.execute, cluster.url(0), at, identity)
        assert workers.worker.quads() == []
        order = BackupRequest(identity.hex(), "uk")
        source = SourceWorker("uk-worker-1", ADAPTER, workers.worker.transport)
        backup = await asyncio.to_thread(take_backup, source, target, order)
        found = await asyncio.to_thread(workers.restore, "latest", target)
        assert found["base"] == backup.name
        assert len(workers.restored.quads()) == 1


async def test_a_stream_begins_before_what_is_open_where_the_log_is_served_from(
    clusters: Callable[..., Cluster], tmp_path: Path
) -> None:
    """The log is trimmed to a backup between a transaction and its COMMIT: the master keeps the payload, and the stream
    has it."""
    cluster = clusters(1, segment_bytes=1 << 16, trim_interval_ms=100)
    await cluster.start()
    await rules(cluster, RULES)
    await until(lambda: decides(cluster, 0))
    identity, target = await cluster_id(cluster), FolderTarget(folder(tmp_path / "target"))
    await fill(cluster, "filler")
    written = await write(cluster, 0, "a")
    own, commit = await own_index(cluster, written["TxLog-Transaction"]), int(written["TxLog-Position"].split(":")[1])
    text = await position(cluster, own)
    at = Node(own, bytes.fromhex(text.rpartition(":")[2]))
    with Workers(tmp_path) as workers:
        await asyncio.to_thread(workers.execute, cluster.url(0), at, identity)
        source = SourceWorker("uk-worker-1", ADAPTER, workers.worker.transport)
        await asyncio.to_thread(take_backup, source, target, BackupRequest(identity.hex(), "uk"))
        assert await trim(cluster, at) == own - 1
        start = f"/txlog/log?after={own - 1}"
        for path in (start, f"{start}&keys=1"):
            assert (await cluster.get(0, path, 409))["reason"] == "NeedsRestore"
        # A follower from there would get a COMMIT whose payload may be gone.
        assert (await cluster.get(0, f"/txlog/watch?from={own - 1}&until=now", 410))["reason"] == "Gone"
        archiver = Runner(cluster, target)
        await archiver.start()
        await archiver.reach(await stable(cluster, 0, commit))
        archiver.close()
        first = stream_of(target, identity).read_start()
        assert first is not None
        assert first.index == own - 1
        found = await asyncio.to_thread(workers.restore, "latest", target)
        assert found["undecided"] == []
        assert "<urn:s:a>" in {each.split()[0] for each in workers.restored.quads()}


async def test_names_of_effects_are_asked_for_by_name(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1)
    await cluster.start()
    found = await cluster.get(0, "/txlog/log?keys=1&effects=all", 400)
    assert "payloads, or names" in found["message"]
