"""Damage in an old part of a journal, which a start does not read: the master finds it while it runs, ends by name, and
its next start mends it (rule 28)."""

from __future__ import annotations

import json
from pathlib import Path

from master_cluster import DEADLINE_S, Cluster, until
from test_trimming_on_disk import load, status

SEGMENT_BYTES = 1 << 16


def indexed(folder: Path) -> list[Path]:
    return sorted(folder.glob("index-*"))


async def test_a_bit_that_turned_in_an_old_segment_is_found_and_mended(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 3, segment_bytes=SEGMENT_BYTES, round_timeout_ms=3000)
    try:
        cluster.spawn()
        await cluster.ready()
        await load(cluster, 0, "a-")
        folder = tmp_path / cluster.nodes[1]
        await until(lambda: len(indexed(folder)) >= 3)
        cluster.kill(1)

        index = indexed(folder)[1]
        segment = folder / index.name.replace("index", "segment")
        data = bytearray(segment.read_bytes())
        at = data.rindex(b"x" * 200)  # in a payload
        data[at] ^= 4
        segment.write_bytes(data)

        cluster.spawn(1)
        process = cluster.process(1)
        assert await until(lambda: process.poll() is not None)
        assert process.wait(DEADLINE_S) == 74
        cluster.processes[1] = None
        last = json.loads((tmp_path / f"{cluster.nodes[1]}.log").read_text().splitlines()[-1])
        assert last["event"] == "JournalDamaged"
        assert segment.name in last["message"]
        assert not index.exists()

        cluster.spawn(1)
        await cluster.ready()
        events = [json.loads(line)["event"] for line in (tmp_path / f"{cluster.nodes[1]}.log").read_text().splitlines()]
        assert "Damaged" in events
        assert "Mended" in events
        await load(cluster, 1, "b-")

        async def alike() -> bool:
            return len({(await status(cluster, each))["log"]["hash"] for each in range(3)}) == 1

        await until(alike)
    finally:
        await cluster.close()
