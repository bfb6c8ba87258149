"""A master whose disk is full leaves, so that the others go on, and comes back when there is room."""

from __future__ import annotations

import json
import signal
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import ClientError
from master_cluster import Cluster, until
from test_leaving import asked, in_one_view, view_of

SEGMENT = 1 << 18
FILLER = 8 << 20


def events(cluster: Cluster, at: int) -> list[str]:
    lines = (cluster.folder / f"{cluster.nodes[at]}.log").read_text().splitlines()
    return [json.loads(line)["event"] for line in lines if line.startswith("{")]


async def fill(cluster: Cluster, at: int) -> None:
    """Writes at this master until it says that there is no room, or somebody is out already."""
    for number in range(400):
        status, headers = await asked(cluster, at, f"{number}-{'x' * 20_000}", **{"TxLog-Durability": "accepted"})
        if status == 503 and headers["TxLog-Error"] in ("DiskFull", "Closing"):
            return
        assert status in (202, 204), (status, headers)
    raise AssertionError("the disk never was full")


def calmly(ask: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
    """False while the door is closed: between leaving and waiting, and before it starts again."""

    async def asked_calmly() -> Any:
        try:
            return await ask()
        except (ClientError, AssertionError, KeyError):
            return False

    return asked_calmly


async def test_with_one_disk_full_the_others_go_on_and_it_comes_back_when_there_is_room(
    clusters: Callable[..., Cluster],
) -> None:
    cluster = clusters(3, segment_bytes=SEGMENT)
    full = cluster.folder / "uk-3"
    full.mkdir()
    (full / "filler").write_bytes(bytes(FILLER))
    cluster.configs[2]["journal_bytes_max"] = FILLER + 8 * SEGMENT
    cluster.spawn()
    await cluster.ready()
    await until(lambda: in_one_view(cluster, 0, 1, 2))
    await fill(cluster, 2)
    await until(lambda: in_one_view(cluster, 0, 1))
    status, _ = await asked(cluster, 0, "while-it-is-out")
    assert status == 204, "not synced"

    async def waits() -> Any:
        told = await cluster.get(2, "/txlog/status")
        return told if told["state"] == "DiskFull" and "LeavesFull" in events(cluster, 2) else None

    told = await until(calmly(waits))
    assert (told["node"], told["start"]) == ("uk-3", 1)
    await until(calmly(lambda: answers_503(cluster, 2)))
    status, headers = await asked(cluster, 2, "while-it-waits")
    assert (status, headers["TxLog-Error"], headers["Retry-After"]) == (503, "DiskFull", "10")
    assert b"ask another master" in await body_of(cluster, 2, "/repositories/demo/size")
    started = events(cluster, 2).count("Started")
    assert started == 1, "it does not come back without room"

    (full / "filler").unlink()
    await until(calmly(lambda: in_one_view(cluster, 0, 1, 2)))
    assert "RoomAgain" in events(cluster, 2)
    logs = [await cluster.get(at, "/txlog/status") for at in range(3)]
    await until(lambda: same_end(cluster))
    assert logs[2]["start"] == 2
    status, _ = await asked(cluster, 2, "with-room-again")
    assert status == 204
    assert [cluster.kill(at, signal.SIGTERM) for at in range(3)] == [0, 0, 0]


async def answers_503(cluster: Cluster, at: int) -> bool:
    async with cluster.session.get(cluster.url(at, "/health/ready")) as answer:
        return answer.status == 503 and (await answer.json()) == {"state": "DiskFull"}


async def body_of(cluster: Cluster, at: int, path: str) -> bytes:
    async with cluster.session.get(cluster.url(at, path)) as answer:
        return await answer.read()


async def same_end(cluster: Cluster) -> bool:
    return len({json.dumps((await cluster.get(at, "/txlog/status"))["log"]) for at in range(3)}) == 1


async def test_one_that_waits_for_room_ends_when_it_is_told_to(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(2, segment_bytes=SEGMENT, round_timeout_ms=400)
    cluster.configs[1]["journal_bytes_max"] = 8 * SEGMENT
    cluster.spawn()
    await cluster.ready()
    await until(lambda: in_one_view(cluster, 0, 1))
    await fill(cluster, 1)
    await until(lambda: in_one_view(cluster, 0))
    await until(calmly(lambda: answers_503(cluster, 1)))
    assert (await view_of(cluster, 0))["out"][0]["why"] == "left"
    assert cluster.kill(1, signal.SIGTERM) == 0
    assert cluster.kill(0, signal.SIGTERM) == 0
