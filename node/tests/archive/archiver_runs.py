"""An archiver in a thread of the test, beside masters in the test's own loop; and what a stream then holds."""

from __future__ import annotations

import asyncio
import io
import time
from pathlib import Path
from typing import Any

from master_cluster import Cluster, until

from txlog.archive.archiver import TARGET_ERRORS, Archiver, ArchiverSettings
from txlog.archive.block_codec import ArchivedEntry
from txlog.archive.file_name import Node
from txlog.archive.path import StreamPaths, find_paths
from txlog.archive.stream import Stream, StreamId
from txlog.backup.target import BackupTarget
from txlog.client import MasterClient
from txlog.model.errors import TxLogError
from txlog.telemetry.event_log import EventLog
from txlog.wire.log_page import LogPage

DEADLINE_S = 60.0


class Runner:
    """``which``: the masters of the data centre, by their place in the cluster."""

    def __init__(self, cluster: Cluster, target: BackupTarget, *which: int, **settings: Any) -> None:
        self.output = io.StringIO()
        self.masters = [MasterClient(cluster.url(at)) for at in which or range(len(cluster.nodes))]
        fields = {"data_center": "uk", "max_delay_s": 0.1, "file_bytes": 1 << 20, **settings}
        self.archiver = Archiver(target, self.masters, ArchiverSettings(**fields), EventLog("archiver", self.output, 0))
        self.failed = 0

    async def start(self) -> None:
        await asyncio.to_thread(self.archiver.start)

    async def reach(self, *wanted: Node) -> None:
        """Rounds until these places are archived."""

        def run() -> None:
            deadline = time.monotonic() + DEADLINE_S
            while not all(node in self.archiver._paths().reached for node in wanted):
                assert time.monotonic() < deadline, (wanted, self.archiver.reported, self.output.getvalue()[-3000:])
                try:
                    wait_s = self.archiver.run_round()
                except TARGET_ERRORS:
                    self.failed += 1
                    wait_s = 0.02
                time.sleep(wait_s)

        await asyncio.to_thread(run)

    def events(self, name: str) -> int:
        return self.output.getvalue().count(f'"event":"{name}"')

    def close(self) -> None:
        for master in self.masters:
            master.close()


async def stable(cluster: Cluster, at: int = 0, index: int = 0) -> Node:
    """The stable place of a master, once it has at least that index."""

    async def reached() -> Node | None:
        found = (await cluster.get(at, "/txlog/status"))["stable"]
        return Node(found["index"], bytes.fromhex(found["hash"])) if found["index"] >= index else None

    found: Node = await until(reached)
    return found


async def cluster_id(cluster: Cluster, at: int = 0) -> bytes:
    return bytes.fromhex((await cluster.get(at, "/txlog/status"))["clusterId"])


def paths_of(stream: Stream) -> StreamPaths:
    start = stream.read_start()
    assert start is not None
    names = [each.name for each in stream.list_files()]
    damaged = []
    for name in names:
        try:
            stream.read_file(name)
        except TxLogError:
            damaged.append(name)
    return find_paths(names, [start, *stream.read_gaps()], damaged)


def entries_to(stream: Stream, node: Node) -> list[ArchivedEntry]:
    """Every file on the path is read and proved."""
    return [entry for name in paths_of(stream).path_to(node) for entry in stream.read_file(name).entries]


def stream_of(target: BackupTarget, cluster: bytes) -> Stream:
    return Stream(target, StreamId(cluster, "uk"))


async def log_of(cluster: Cluster, at: int = 0) -> list[tuple[int, bytes, str, str, bytes]]:
    """As a master gives it."""

    def ask() -> LogPage:
        with MasterClient(cluster.url(at)) as master:
            return master.log_page(0, keys=True, max_bytes=8 << 20)

    page = await asyncio.to_thread(ask)
    return [(e.index, e.hash, str(e.txid), e.key, e.payload) for e in page.entries]


def told(entries: list[ArchivedEntry]) -> list[tuple[int, bytes, str, str, bytes]]:
    return [(e.index, e.hash, str(e.txid), e.key, e.payload) for e in entries]


def folder(path: Path) -> Path:
    path.mkdir(exist_ok=True)
    return path
