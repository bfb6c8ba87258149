"""Masters as processes trim their logs on real disks; one that lost its disk is sent a snapshot (rules 17, 19)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from master_cluster import Cluster, until

LINES = 200
BATCH = 20
SEGMENT_BYTES = 1 << 16


async def load(cluster: Cluster, at: int, tag: str) -> None:
    """Enough for some segments."""
    for first in range(0, LINES, BATCH):
        names = [f"{tag}{n}" for n in range(first, first + BATCH)]
        lines = [{"update": f'INSERT DATA {{ <urn:{name}> <urn:p> "{"x" * 1600}" }}'} for name in names]
        body = "\n".join(json.dumps(line) for line in lines)
        async with cluster.session.post(cluster.url(at, "/txlog/transactions"), data=body) as answer:
            assert answer.status == 200, await answer.text()
            told = (await answer.text()).splitlines()
        assert len(told) == BATCH
        assert all("error" not in line for line in told), told[:3]


async def status(cluster: Cluster, at: int) -> dict[str, Any]:
    async with cluster.session.get(cluster.url(at, "/txlog/status")) as answer:
        return dict(await answer.json())


async def tell_backup(cluster: Cluster, at: int) -> int:
    """A verified backup at the stable index, as whoever takes one says it."""
    stable = (await status(cluster, at))["stable"]
    body = {"backups": [{"name": "nightly", "index": stable["index"], "hash": stable["hash"]}]}
    async with cluster.session.post(cluster.url(at, "/txlog/backups"), json=body) as answer:
        assert answer.status == 200, await answer.text()
    return int(stable["index"])


def segments(cluster: Cluster, at: int) -> int:
    return sum(1 for _ in (cluster.folder / cluster.nodes[at]).glob("segment-*"))


async def page(cluster: Cluster, at: int, after: int) -> tuple[int, Any]:
    url = cluster.url(at, f"/txlog/log?after={after}&maxBytes=8000000")
    async with cluster.session.get(url, headers={"Accept": "application/json"}) as answer:
        return answer.status, await answer.json()


async def test_the_log_goes_from_the_disk_and_a_lost_disk_is_sent_a_snapshot(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 3, segment_bytes=SEGMENT_BYTES, trim_interval_ms=100, round_timeout_ms=3000)
    try:
        cluster.spawn()
        await cluster.ready()
        for turn in range(3):
            await load(cluster, turn, f"a{turn}-")
        grown = segments(cluster, 0)
        assert grown >= 10
        held = (await status(cluster, 0))["trim"]
        assert held["keptFrom"] == 0
        assert held["heldBackBy"][0]["kind"] == "backup"

        index = await tell_backup(cluster, 0)  # the others hear of it from this one
        for at in range(3):

            async def trimmed(at: int = at) -> bool:
                kept = (await status(cluster, at))["trim"]["keptFrom"]  # as far as it had heard of the others
                return bool(index - 2 * BATCH <= kept <= index) and segments(cluster, at) <= 3

            await until(trimmed)
        code, refused = await page(cluster, 1, 5)
        assert (code, refused["reason"]) == (409, "NeedsRestore")

        await load(cluster, 0, "b-")
        cluster.kill(2)
        shutil.rmtree(tmp_path / cluster.nodes[2])
        cluster.spawn(2)

        async def joined() -> bool:
            return {(await status(cluster, at))["state"] for at in range(3)} == {"Joined"}

        await cluster.ready(2)
        await until(joined)
        await load(cluster, 2, "c-")
        assert index - 2 * BATCH <= (await status(cluster, 2))["trim"]["keptFrom"] <= index

        async def same() -> bool:
            ends = [(await status(cluster, at))["stable"] for at in range(3)]
            return len({(end["index"], end["hash"]) for end in ends}) == 1

        await until(same)
        pages = [await page(cluster, at, index) for at in range(3)]
        assert pages[0][0] == 200
        assert len(pages[0][1]["entries"]) == 5 * LINES - index
        assert pages[0][1]["entries"] == pages[1][1]["entries"] == pages[2][1]["entries"]

        cluster.kill(0)  # and one that is there starts from what is left on its disk
        cluster.spawn(0)
        await cluster.ready(0)
        await until(joined)
        assert (await status(cluster, 0))["trim"]["keptFrom"] >= index - 2 * BATCH
    finally:
        await cluster.close()
