"""A real master with a worker, an archive and a backup, of which a recovery is rehearsed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from archiver_runs import Runner, folder, stable
from master_cluster import Cluster
from worker_driver import Driver, OxigraphProcess

from txlog.archive.file_name import Node
from txlog.backup import BackupRequest, SourceWorker, take_backup
from txlog.backup.backup_manifest import BackupManifest
from txlog.backup.chain_check import read_cluster_id
from txlog.backup.folder_target import FolderTarget
from txlog.backup.pinned_snapshot import read_system_graphs
from txlog.client import MasterClient
from txlog.rehearsal.rehearsal import RehearsalRequest, rehearse
from txlog.wire.rehearsal_report import RehearsalReport
from txlog.workers import OxigraphAdapter
from txlog.workers.adapter import SystemGraphs
from txlog.workers.digest import Digest, digest_worker
from txlog.workers.http_transport import HttpTransport


def insert(what: object) -> str:
    return f'INSERT DATA {{ GRAPH <urn:g:{len(str(what)) % 2}> {{ <urn:s:{what}> <urn:p> "{what}" }} }}'


class Rehearsed:
    """``request``: of a rehearsal that should be good."""

    def __init__(self, path: Path, cluster: Cluster, store: OxigraphProcess) -> None:
        self.cluster = cluster
        self.store = store
        self.target = FolderTarget(folder(path / "target"))
        self.master = MasterClient(cluster.url(0), 30.0)
        self.runner = Runner(cluster, self.target)
        self._folder = folder(path / "scratch")
        self._runs = 0

    async def write(self, *updates: str) -> Node:
        """The place after them, which the worker has reached."""
        for update in updates:
            await self.cluster.write(0, update, TxLog_Durability="applied")
        place: Node = await stable(self.cluster)
        return place

    async def archive(self, *updates: str) -> Node:
        """Each one in a file of its own."""
        place = await self.write()
        for update in updates:
            place = await self.write(update)
            await self.runner.reach(place)
        return place

    async def back_up(self) -> BackupManifest:
        def take() -> BackupManifest:
            with HttpTransport(self.store.url) as transport:
                source = SourceWorker("w-1", OxigraphAdapter(), transport, [self.master])
                return take_backup(source, self.target, BackupRequest(read_cluster_id([self.master]), "uk"))

        return await asyncio.to_thread(take)

    async def content(self) -> tuple[SystemGraphs, Digest]:
        """Of the live worker. The driver's own connection is in use."""

        def read() -> tuple[SystemGraphs, Digest]:
            with HttpTransport(self.store.url) as transport:
                adapter = OxigraphAdapter()
                return read_system_graphs(adapter, transport), digest_worker(adapter, transport)

        return await asyncio.to_thread(read)

    def request(self, **changes: Any) -> RehearsalRequest:
        self._runs += 1
        scratch = folder(self._folder / str(self._runs))
        made = RehearsalRequest("uk", [self.master], self.target, self.target, scratch, archived_s=10.0)
        return replace(made, **changes)

    async def rehearse(self, **changes: Any) -> RehearsalReport:
        return await asyncio.to_thread(rehearse, self.request(**changes))


@pytest.fixture
async def rehearsed(tmp_path: Path, clusters: Callable[..., Cluster]) -> AsyncIterator[Rehearsed]:
    store = OxigraphProcess(tmp_path / "live")
    cluster = clusters(1, workers=[{"name": "w-1", "url": store.url}])
    await cluster.start()
    driver = Driver(cluster.url(0), "w-1", store)
    made = Rehearsed(tmp_path, cluster, store)
    await made.runner.start()
    yield made
    made.runner.close()
    await asyncio.to_thread(driver.close)
    made.master.close()
    store.kill()
