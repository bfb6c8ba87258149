"""Masters and each other: who may speak, what happens when one dies, stops, or has no room."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientError
from master_cluster import TOKEN, Cluster, until

PEER = "/txlog/peer"
JSON = {"Accept": "application/json"}


def insert(what: object) -> str:
    return f'INSERT DATA {{ <urn:s:{what}> <urn:p> "o" }}'


@pytest.mark.parametrize(
    ("node", "token", "status", "reason"),
    [
        ("uk-2", "wrong", 401, "WrongToken"),
        ("uk-2", "", 401, "WrongToken"),
        ("fr-1", TOKEN.decode(), 403, "UnknownPeer"),
        ("uk-1", TOKEN.decode(), 403, "UnknownPeer"),
        ("", TOKEN.decode(), 403, "UnknownPeer"),
    ],
)
async def test_strangers_are_refused_by_name_and_counted(
    three: Cluster, node: str, token: str, status: int, reason: str
) -> None:
    headers = {"TxLog-Node": node, "Authorization": f"Bearer {token}"}
    told = await three.get(0, PEER, status, headers={**headers, "Connection": "Upgrade", "Upgrade": "txlog-frames"})
    assert (told["error"], told["reason"]) == ("PeerFault", reason)
    told = await three.get(0, PEER, status, headers=headers)
    assert (told["error"], told["reason"]) == ("PeerFault", reason)
    shown = await three.get(0, "/txlog/peers")
    assert {"node": node or "?", "reason": reason, "count": 2} in shown["refused"]
    assert f'txlog_peers_refused_total{{reason="{reason}"}} 2.0' in await three.get(0, "/metrics")
    assert reason in three.logged(0)


async def as_peer(cluster: Cluster, at: int, node: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that speaks frames, as that master."""
    url = urlsplit(cluster.url(at, PEER))
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    writer.write(
        f"GET {PEER} HTTP/1.1\r\nHost: {url.netloc}\r\nConnection: Upgrade\r\nUpgrade: txlog-frames\r\n"
        f"TxLog-Node: {node}\r\nAuthorization: Bearer {TOKEN.decode()}\r\n\r\n".encode()
    )
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 "), head
    return reader, writer


def frame(message: bytes) -> bytes:
    return len(message).to_bytes(4, "big") + message


async def test_nonsense_of_a_peer_is_named_and_dropped(three: Cluster) -> None:
    _, writer = await as_peer(three, 0, "uk-2")
    nonsense = frame(b"\xffunknown format") + frame(b"") + frame(b"\x01broken")
    for at in range(0, len(nonsense), 3):  # whatever pieces it comes in
        writer.write(nonsense[at : at + 3])
        await writer.drain()
    await until(lambda: {"UnknownFormat", "Malformed"} <= set(three.logged(0)))
    shown = (await three.get(0, "/txlog/peers"))["peers"]
    assert next(p for p in shown if p["node"] == "uk-2")["faultsByReason"] == {"UnknownFormat": 1, "Malformed": 1}
    await three.write(0, insert(1))
    assert not three.ended
    writer.close()


async def test_a_frame_that_is_too_long_ends_the_connection(three: Cluster) -> None:
    reader, writer = await as_peer(three, 0, "uk-2")
    writer.write((1 << 31).to_bytes(4, "big"))
    await asyncio.wait_for(_end_of(reader), 60)
    await three.write(0, insert(1))
    writer.close()


async def _end_of(reader: asyncio.StreamReader) -> None:
    while await reader.read(1 << 16):
        pass


async def test_who_asks_for_no_frames_is_told_what_to_ask_for(three: Cluster) -> None:
    headers = {"TxLog-Node": "uk-2", "Authorization": f"Bearer {TOKEN.decode()}"}
    told = await three.get(0, PEER, 400, headers=headers)
    assert "txlog-frames" in told["message"]


async def test_a_stopped_master_comes_back_and_follows(three: Cluster) -> None:
    await three.write(0, insert(0))
    await three.stop(2)
    await asyncio.gather(*(three.write(n % 2, insert(n), Prefer="wait=20") for n in range(1, 10)))  # it has left
    await three.start(2)
    await until(lambda: three.service(2).context.state == "Joined")
    await three.crash(2)
    late = [asyncio.ensure_future(three.write(n % 2, insert(n), Prefer="wait=20")) for n in range(10, 20)]
    await until(lambda: three.service(0).loop.in_flight > 0)  # it has not
    await three.start(2)
    await asyncio.gather(*late)
    await until(lambda: three.service(2).loop.durability.stable.value == 20)
    assert not three.ended


async def test_killed_and_started_again_nothing_accepted_is_lost(clusters: Callable[..., Cluster]) -> None:
    """Processes, kill -9 in the middle of writes, twice; every 204 is in every log once."""
    cluster = clusters(3)
    cluster.spawn()
    await cluster.ready()
    done: list[str] = []
    stop = False

    async def client(at: int) -> None:
        number = 0
        while not stop:
            number += 1
            try:
                told = await cluster.write(at, insert(f"{at}-{number}"), Prefer="wait=20")
            except (OSError, ClientError, AssertionError):
                await asyncio.sleep(0.05)
            else:
                done.append(told["TxLog-Transaction"])

    clients = [asyncio.ensure_future(client(at)) for at in (0, 0, 1, 1, 2)]
    for victim in (2, 0):
        before = len(done)
        await until(lambda before=before: len(done) > before + 30)
        assert cluster.kill(victim) == -signal.SIGKILL
        cluster.spawn(victim)
        await cluster.ready(victim)
    before = len(done)
    await until(lambda: len(done) > before + 30)
    stop = True
    await asyncio.gather(*clients)

    async def logs() -> list[list[str]]:
        pages = [
            (await cluster.get(at, "/txlog/log?after=0&maxBytes=8000000", headers=JSON))["entries"] for at in range(3)
        ]
        return [[entry["hash"] + entry["txid"] for entry in page] for page in pages]

    async def equal() -> list[str] | None:
        first, *others = await logs()
        return first if all(other == first for other in others) else None

    log = await until(equal)
    txids = [entry[32:] for entry in log]
    assert len(set(txids)) == len(txids)
    assert set(done) <= set(txids)
    for at in range(3):
        assert cluster.kill(at, signal.SIGTERM) == 0


async def test_a_stop_lets_what_was_accepted_reach_the_others(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(3)
    cluster.spawn()
    await cluster.ready()
    told = [await cluster.write(0, insert(n), TxLog_Durability="accepted") for n in range(20)]
    assert cluster.kill(0, signal.SIGTERM) == 0
    last = told[-1]["TxLog-Transaction"]
    await cluster.get(1, f"/txlog/transactions/{last}")
    events = [json.loads(line)["event"] for line in (cluster.folder / "uk-1.log").read_text().splitlines()]
    assert [event for event in events if event.startswith("Stop")] == ["Stopping", "Stopped"]
    assert events[-1] == "Stopped"


async def test_a_closing_master_takes_no_work_and_says_so(one: Cluster) -> None:
    one.service(0).loop.leave(0)
    one.service(0).context.is_closing = True
    told = await one.write(0, insert(1), 503)
    assert told["TxLog-Error"] == "Closing"
    assert told["Retry-After"]
    await one.get(0, "/health/ready", 503)
    await one.get(0, "/health/live")


async def test_a_full_disk_is_503_by_name_and_the_master_goes_on(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1, journal_bytes_max=4 << 20, segment_bytes=1 << 18)
    await cluster.start()
    big = "x" * 60_000
    for n in range(200):
        async with cluster.session.post(
            cluster.url(0, "/repositories/demo/statements"),
            data=f'INSERT DATA {{ <urn:s:{n}> <urn:p> "{big}" }}',
            headers={"Content-Type": "application/sparql-update", "TxLog-Durability": "synced"},
        ) as answer:
            if answer.status == 503:
                assert answer.headers["TxLog-Error"] == "DiskFull"
                assert answer.headers["Retry-After"]
                break
            assert answer.status == 204
    else:
        raise AssertionError("the disk never was full")
    assert (await cluster.get(0, "/txlog/status"))["state"] == "DiskFull"
    assert 'txlog_refused_total{reason="DiskFull"}' in await cluster.get(0, "/metrics")
    assert not cluster.ended


async def test_an_error_of_the_core_ends_the_master_by_name_and_nothing_leaves(one: Cluster) -> None:
    def broken(*_: object) -> int:
        raise AssertionError("a mistake of ours")

    loop = one.service(0).loop
    loop.executor.poll = broken  # type: ignore[method-assign]
    told = await one.write(0, insert(1), 202, Prefer="wait=0.3")
    assert "TxLog-Transaction" not in told or told.get("TxLog-Durability") != "synced"
    assert [str(error) for error in one.ended] == ["a mistake of ours"]
    assert loop.durability.synced.value == 0


async def test_a_task_that_ends_ends_the_master(one: Cluster) -> None:
    async def ends() -> None:
        return

    one.service(0)._tasks.start({"meant-for-ever": ends()})
    await until(lambda: one.ended)
    assert "TaskEnded: meant-for-ever" in str(one.ended[0])


async def test_the_process_ends_with_70_by_name(clusters: Callable[..., Cluster]) -> None:
    """An old disk image: the others have heard more of this master than its journal knows."""
    import shutil

    cluster = clusters(2)
    cluster.spawn()
    await cluster.ready()
    assert cluster.kill(0, signal.SIGTERM) == 0
    shutil.copytree(cluster.folder / "uk-1", cluster.folder / "image")
    cluster.spawn(0)
    await cluster.ready(0)
    for n in range(5):
        await cluster.write(0, insert(n))
    cluster.kill(0)
    shutil.rmtree(cluster.folder / "uk-1")
    shutil.copytree(cluster.folder / "image", cluster.folder / "uk-1")
    cluster.spawn(0)
    assert cluster.process(0).wait(30) == 70
    cluster.processes[0] = None
    last = json.loads((cluster.folder / "uk-1.log").read_text().splitlines()[-1])
    assert last["event"] in ("OldJournal", "Superseded")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"node": "Not Valid"}, "node"),
        ({"unknown_field": 1}, "unknown_field"),
        ({"port": 0}, "port"),
        ({"peers": [{"node": "fr-1", "data_center": "fr", "url": "http://127.0.0.1:1"}]}, "itself must be among them"),
        ({"peer_token_file": "/nowhere"}, "peer_token_file"),
    ],
)
async def test_a_wrong_configuration_is_64_in_a_line(
    clusters: Callable[..., Cluster], change: dict[str, object], says: str
) -> None:
    cluster = clusters(1, **change)
    path = cluster.folder / "wrong.json"
    path.write_text(json.dumps(cluster.configs[0]))
    run = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-m", "txlog.server", "--config", str(path)], capture_output=True, text=True
    )
    assert run.returncode == 64
    assert says in run.stderr
    assert "Traceback" not in run.stderr


async def test_two_processes_in_one_folder_the_second_says_so(one: Cluster) -> None:
    path = one.folder / "second.json"
    path.write_text(json.dumps(one.configs[0]))
    run = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-m", "txlog.server", "--config", str(path)], capture_output=True, text=True
    )
    assert run.returncode == 74
    assert "another process" in run.stderr
    assert "Traceback" not in run.stderr


async def test_a_damaged_journal_is_mended_from_the_others(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(3)
    cluster.spawn()
    await cluster.ready()
    for n in range(40):
        await cluster.write(n % 3, insert(n))
    assert cluster.kill(1, signal.SIGTERM) == 0
    folder = cluster.folder / "uk-2"
    segment = min(folder.glob("*.seg*"), default=None) or min(p for p in folder.iterdir() if p.stat().st_size > 10_000)
    raw = bytearray(segment.read_bytes())
    at = raw.find(b"urn:s:20")
    assert at > 0
    raw[at] ^= 1
    segment.write_bytes(raw)
    cluster.spawn(1)
    await cluster.ready(1)

    async def joined() -> bool:
        status = await cluster.get(1, "/txlog/status")
        return bool((status["state"], status["stable"]["index"]) == ("Joined", 40))

    await until(joined)
    events = [json.loads(line)["event"] for line in (cluster.folder / "uk-2.log").read_text().splitlines()]
    assert "Damaged" in events
    assert "Mended" in events
    pages = [(await cluster.get(at, "/txlog/log?after=0", headers=JSON))["entries"] for at in (0, 1)]
    assert pages[0] == pages[1]
    await cluster.write(1, insert("after"))
