"""From real masters over an archiver and a backup to a store: deleted data is there again, digest for digest."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

from apart import go_apart, insert
from archiver_runs import Runner, cluster_id, folder, stable
from master_cluster import Cluster, until
from oxigraph_process import ADAPTER, OxigraphProcess
from typer.testing import CliRunner

from txlog.apply import MasterLog, WorkerState, apply_up_to
from txlog.archive.file_name import Node
from txlog.backup import (
    BackupManifest,
    BackupRequest,
    ChainBounds,
    SourceWorker,
    take_backup,
    take_incremental_or_full,
)
from txlog.backup.folder_target import FolderTarget
from txlog.cli.main import app
from txlog.client import MasterClient
from txlog.workers.digest import digest_worker

UPDATE = "INSERT { GRAPH <urn:g> { ?s <urn:q> ?o } } WHERE { ?s <urn:p> ?o }"


class Workers:
    """``worker`` executes the log of a master as a pipeline does. ``restored`` belongs to no cluster."""

    def __init__(self, path: Path) -> None:
        self.worker = OxigraphProcess(path / "worker")
        self.restored = OxigraphProcess(path / "restored")

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.worker.kill()
        self.restored.kill()

    def execute(self, url: str, place: Node, cluster: bytes) -> str:
        """The digest there."""
        with MasterClient(url) as master:
            done = apply_up_to(
                ADAPTER, self.worker.transport, MasterLog(master), place.index, cluster=lambda: cluster, budget_s=60
            )
        assert (done.state, done.error) == (WorkerState.WORKING, None)
        assert done.position is not None
        assert done.position.position.hash == place.hash
        return self.digest(self.worker)

    def digest(self, store: OxigraphProcess) -> str:
        return f"{digest_worker(ADAPTER, store.transport).total:032x}"

    def restore(self, moment: str, target: FolderTarget, *more: str) -> dict[str, object]:
        assert self.restored.update("DROP ALL").ok
        words = ["restore", "--to", moment, "--into", self.restored.url, "--target", target.location, "--json", *more]
        done = CliRunner().invoke(app, [*words, "--state", str(Path(target.location) / "none")])
        assert done.exit_code == 0, (done.output, done.exception)
        found: dict[str, object] = json.loads(done.stdout)
        return found


async def test_deleted_data_is_restored(clusters: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = clusters(1)
    await cluster.start()
    target = FolderTarget(folder(tmp_path / "target"))
    identity = await cluster_id(cluster)
    with Workers(tmp_path) as workers:
        for what in range(3):
            await cluster.write(0, insert(what))
        place = await stable(cluster, 0, 3)
        await asyncio.to_thread(workers.execute, cluster.url(0), place, identity)
        order = BackupRequest(identity.hex(), "uk")
        source = SourceWorker("uk-worker-1", ADAPTER, workers.worker.transport)
        backup = await asyncio.to_thread(take_backup, source, target, order)
        await cluster.write(0, insert("later"))
        place = await stable(cluster, 0, 4)
        quads_alone = await asyncio.to_thread(workers.execute, cluster.url(0), place, identity)
        await cluster.write(0, UPDATE)
        await cluster.write(0, insert("last"), Idempotency_Key="once")
        place = await stable(cluster, 0, 6)
        recorded = await asyncio.to_thread(workers.execute, cluster.url(0), place, identity)
        wrong = (await cluster.write(0, "CLEAR ALL"))["TxLog-Transaction"]
        end = await stable(cluster, 0, 7)
        archiver = Runner(cluster, target)
        await archiver.start()
        await archiver.reach(end)
        archiver.close()
        await asyncio.to_thread(workers.execute, cluster.url(0), end, identity)
        assert workers.worker.quads() == []

        found = await asyncio.to_thread(workers.restore, f"before:{wrong}", target)
        assert (found["position"]["index"], found["base"], found["entries"]) == (6, backup.name, 3)  # type: ignore[index]
        assert (found["digest"], workers.digest(workers.restored), found["executed"]) == (recorded, recorded, 2)
        assert found["firstOut"]["transaction"] == wrong  # type: ignore[index]
        (marker,) = workers.restored.system().markers
        assert (marker.position.hash, marker.cluster) == (place.hash, identity)

        found = await asyncio.to_thread(workers.restore, f"before:{wrong}", target, "--base", "empty")
        assert (found["digest"], found["base"]) == (recorded, None)

        found = await asyncio.to_thread(workers.restore, "latest", target)
        assert workers.restored.quads() == []

        entry = f"position:4:{(await _hash_at(cluster, 4))}"
        found = await asyncio.to_thread(workers.restore, entry, target)
        assert (found["digest"], found["digestComputedHere"]) == (quads_alone, True)
        # It is a worker like any other: the log goes on from there.
        with MasterClient(cluster.url(0)) as master:
            transport = workers.restored.transport
            done = await asyncio.to_thread(
                apply_up_to, ADAPTER, transport, MasterLog(master), end.index, cluster=lambda: identity, budget_s=60
            )
        assert done.state is WorkerState.WORKING
        assert (done.applied, workers.restored.quads()) == (3, [])


async def test_a_chain_of_incremental_backups_is_a_base(clusters: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = clusters(1, workers=[{"name": "uk-worker-1", "url": "http://127.0.0.1:9"}])
    await cluster.start()
    target = FolderTarget(folder(tmp_path / "target"))
    identity = await cluster_id(cluster)

    def back_up(store: OxigraphProcess) -> BackupManifest:
        with MasterClient(cluster.url(0)) as master:
            source = SourceWorker("uk-worker-1", ADAPTER, store.transport, [master])
            return take_incremental_or_full(
                source, target, BackupRequest(identity.hex(), "uk"), ChainBounds(9)
            ).manifest

    with Workers(tmp_path) as workers:
        made = []
        for what in range(3):
            await cluster.write(0, insert(what))
            await asyncio.to_thread(workers.execute, cluster.url(0), await stable(cluster, 0, what + 1), identity)
            made.append(await asyncio.to_thread(back_up, workers.worker))
        assert [each.chain_number for each in made] == [0, 1, 2]
        await cluster.write(0, UPDATE)
        end = await stable(cluster, 0, 4)
        archiver = Runner(cluster, target)
        await archiver.start()
        await archiver.reach(end)
        archiver.close()
        recorded = await asyncio.to_thread(workers.execute, cluster.url(0), end, identity)
        found = await asyncio.to_thread(workers.restore, "latest", target)
        assert (found["base"], found["entries"], found["digest"]) == (made[-1].name, 1, recorded)
        entry = f"position:2:{(await _hash_at(cluster, 2))}"
        found = await asyncio.to_thread(workers.restore, entry, target)
        assert (found["base"], found["digest"]) == (made[1].name, made[1].digest)


async def _hash_at(cluster: Cluster, index: int) -> str:
    def ask() -> str:
        with MasterClient(cluster.url(0)) as master:
            return master.log_page(index - 1, upto=index).entries[0].hash.hex()

    return await asyncio.to_thread(ask)


async def test_the_merged_log_of_a_split_is_the_only_timeline(clusters: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = clusters(3, max_peer_lag_ms=1000, none_split_delay_ms=1000)
    await cluster.start()
    target = FolderTarget(folder(tmp_path / "target"))
    await cluster.write(0, insert("before"))
    await stable(cluster, 2, 1)
    heal = await go_apart(cluster)
    for at in (0, 2):
        await cluster.write(at, insert(f"apart-{at}"))
    ends = [await stable(cluster, at, 2) for at in (0, 2)]
    archiver = Runner(cluster, target)
    await archiver.start()
    await archiver.reach(*ends)
    with Workers(tmp_path) as workers:
        words = ["restore", "--to", "latest", "--dry-run", "--base", "empty", "--target", target.location]
        refused = await asyncio.to_thread(CliRunner().invoke, app, words)
        assert "ambiguous" in str(refused.exception)
        for end in ends:
            found = await asyncio.to_thread(
                workers.restore, "latest", target, "--base", "empty", "--timeline", str(end)
            )
            assert found["position"]["hash"] == end.hash.hex()  # type: ignore[index]
        heal()

        async def is_joined() -> bool:
            return {(await cluster.get(at, "/txlog/status"))["state"] for at in range(3)} == {"Joined"}

        await until(is_joined)
        await cluster.write(0, insert("after"))
        place = await stable(cluster, 0, 7)
        await archiver.reach(place)
        archiver.close()
        found = await asyncio.to_thread(workers.restore, "latest", target, "--base", "empty")
        identity = await cluster_id(cluster)
        recorded = await asyncio.to_thread(workers.execute, cluster.url(0), place, identity)
        assert (found["position"]["index"], found["digest"]) == (place.index, recorded)  # type: ignore[index]
        for end in ends:
            moment = f"position:{end.index}:{end.hash.hex()[:8]}"
            found = await asyncio.to_thread(workers.restore, moment, target, "--base", "empty")
            assert found["position"]["hash"] == end.hash.hex()  # type: ignore[index]
