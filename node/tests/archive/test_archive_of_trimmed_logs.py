"""A real master that has trimmed its log: where a stream begins, and where it has a gap."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from archiver_runs import Runner, cluster_id, entries_to, folder, stable, stream_of
from master_cluster import Cluster, until

from txlog.archive.file_name import Node
from txlog.backup.folder_target import FolderTarget

LINES = 120
BATCH = 20


async def fill(cluster: Cluster, tag: str) -> Node:
    """Some segments of a log."""
    before = await stable(cluster)
    for first in range(0, LINES, BATCH):
        names = [f"{tag}{n}" for n in range(first, first + BATCH)]
        lines = [{"update": f'INSERT DATA {{ <urn:{name}> <urn:p> "{"x" * 1600}" }}'} for name in names]
        body = "\n".join(json.dumps(line) for line in lines)
        async with cluster.session.post(cluster.url(0, "/txlog/transactions"), data=body) as answer:
            assert answer.status == 200, await answer.text()
            await answer.read()
    return await stable(cluster, 0, before.index + LINES)


async def trim(cluster: Cluster, place: Node) -> int:
    """As far as a backup at this place allows; the log start then."""
    backup = {"name": f"at-{place.index}", "index": place.index, "hash": place.hash.hex()}
    async with cluster.session.post(cluster.url(0, "/txlog/backups"), json={"backups": [backup]}) as answer:
        assert answer.status == 200, await answer.text()

    async def trimmed() -> int:
        kept = int((await cluster.get(0, "/txlog/status"))["trim"]["keptFrom"])
        return kept if kept >= place.index - BATCH else 0

    return int(await until(trimmed))


async def test_a_stream_of_a_trimmed_log_and_its_gap(clusters: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = clusters(1, segment_bytes=1 << 16, trim_interval_ms=100)
    await cluster.start()
    start = await trim(cluster, await fill(cluster, "a"))
    assert start > 0
    target = FolderTarget(folder(tmp_path / "target"))
    runner = Runner(cluster, target)
    await runner.start()
    archived = await fill(cluster, "b")
    await runner.reach(archived)
    runner.close()
    stream = stream_of(target, await cluster_id(cluster))
    first = stream.read_start()
    assert first is not None
    assert first.index == start
    assert [entry.index for entry in entries_to(stream, archived)] == list(range(start + 1, archived.index + 1))

    await fill(cluster, "c")
    begin = await trim(cluster, await fill(cluster, "d"))
    assert begin > archived.index
    runner = Runner(cluster, target)
    await runner.start()
    assert runner.archiver.reported == archived
    last = await fill(cluster, "e")
    await runner.reach(last)
    runner.close()
    assert [node.index for node in stream.read_gaps()] == [begin]
    assert runner.events("ArchiveGap") == 1
    assert [entry.index for entry in entries_to(stream, last)] == list(range(begin + 1, last.index + 1))
