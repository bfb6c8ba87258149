"""The short way for plain writes answers what the long way answers, and leaves everything else to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import urlsplit

import pytest
from master_cluster import Cluster, until
from synchronous_cluster import GRAPH, RULES, decides, rules

PATH = "/repositories/demo/statements"
QUADS = "application/n-quads"
WAIT_S = 60


def quad(number: object) -> bytes:
    return f'<urn:s:{number}> <urn:p> "o" .\n'.encode()


def request(body: bytes, *headers: str, path: str = PATH, kind: str = QUADS) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Raw:
    """One connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        head = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), WAIT_S)).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await asyncio.wait_for(self.reader.readexactly(int(headers.get("content-length", "0"))), WAIT_S)
        return int(first.split()[1]), headers, body

    async def ended(self) -> bool:
        return await asyncio.wait_for(self.reader.read(1), WAIT_S) == b""


Connect = Callable[[], Awaitable[Raw]]


@pytest.fixture
async def connect(one: Cluster) -> AsyncIterator[Connect]:
    made: list[Raw] = []

    async def open_one() -> Raw:
        url = urlsplit(one.url(0, "/"))
        made.append(Raw(*await asyncio.open_connection(url.hostname, url.port)))
        return made[-1]

    yield open_one
    for raw in made:
        raw.writer.close()


def plain(one: Cluster) -> int:
    """Connections that are still on the short way."""
    direct = one.app(0)._fast_path
    assert direct is not None
    return len(direct.connections)


async def payloads(one: Cluster) -> list[str]:
    page = await one.get(0, "/txlog/log?after=0", headers={"Accept": "application/json"})
    return [entry["payload"] for entry in page["entries"]]


async def test_a_plain_write_is_answered_on_the_short_way(one: Cluster, connect: Connect) -> None:
    raw = await connect()
    for number in range(3):
        raw.send(request(quad(number), "TxLog-Durability: synced"))
        status, headers, body = await raw.answer()
        assert (status, body) == (204, b"")
        assert headers["txlog-durability"] == "synced"
        assert headers["txlog-position"].split(":")[1] == str(number + 1)
        assert headers["txlog-transaction"].startswith("uk-1.")
        assert "date" in headers
    assert plain(one) == 1
    raw.send(request(b'INSERT DATA { <urn:s:u> <urn:p> "o" }', kind="application/sparql-update; charset=utf-8"))
    assert (await raw.answer())[0] == 204
    assert plain(one) == 1
    assert len(await payloads(one)) == 4


async def test_in_whatever_pieces_it_comes(one: Cluster, connect: Connect) -> None:
    raw = await connect()
    whole = request(quad("p"))
    for at in range(0, len(whole), 7):
        raw.send(whole[at : at + 7])
        await raw.writer.drain()
        await asyncio.sleep(0)
    assert (await raw.answer())[0] == 204


async def test_many_at_once_are_answered_one_after_the_other(one: Cluster, connect: Connect) -> None:
    raw = await connect()
    raw.send(b"".join(request(quad(number), "TxLog-Durability: synced") for number in range(50)))
    indexes = [int((await raw.answer())[1]["txlog-position"].split(":")[1]) for _ in range(50)]
    assert indexes == list(range(1, 51))
    assert plain(one) == 1


async def test_far_ahead_of_the_answers_nothing_is_lost(one: Cluster, connect: Connect) -> None:
    raw = await connect()
    bodies = b"".join(quad(f"{n}-{'x' * 100}") for n in range(300))
    raw.send(b"".join(request(bodies) for _ in range(40)))  # two megabytes: it is not read for a while
    assert [(await raw.answer())[0] for _ in range(40)] == [204] * 40


OTHERWISE = [
    (b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n", 200),
    (request(quad(1), path="/repositories/other/statements"), 404),
    (request(quad(1), path=PATH + "?context=null"), 204),
    (request(quad(1), "Connection: close"), 204),
    (request(quad(1), "Expect: 100-continue"), 204),
    (request(quad(1), "TxLog-Durability: whenever"), 400),
    (request(quad(1), "Idempotency-Key: a b"), 400),
    (request(quad(1), "Prefer: wait=soon"), 400),
    (request(b"<urn:a> nonsense"), 400),
    (request(b'INSERT DATA { <urn:s> <urn:p> "o"', kind="application/sparql-update"), 400),
    (request(b"\xff", kind="application/sparql-update"), 400),
    (request(b" ", kind="application/sparql-update"), 400),
    (request(b"<urn:a> <urn:b> <urn:txlog:system:x> <urn:txlog:system:g> ."), 400),
    (request(quad(1), kind="text/html"), 415),
    (request(quad(1), "Content-Length: 3"), 400),
    (request(quad(1), "Content-Type: text/turtle"), 400),
    (request(b"", "Transfer-Encoding: chunked"), 400),
    (request(quad(1), " folded: yes"), 400),
    (request(quad(1), "Bad Name: yes"), 400),
    (request(quad(1), "X: \x01"), 400),
    (b"NONSENSE\r\n\r\n", 400),
    (b"POST " + PATH.encode() + b" HTTP/1.1\r\n" + b"X: " + b"y" * 9000 + b"\r\n\r\n", 400),
    (request(b"update=INSERT DATA {<urn:s> <urn:p> 1}", kind="application/x-www-form-urlencoded"), 204),
]


@pytest.mark.parametrize(("sent", "status"), OTHERWISE)
async def test_everything_else_is_left_to_the_long_way(
    one: Cluster,
    connect: Connect,
    sent: bytes,
    status: int,
) -> None:
    raw = await connect()
    raw.send(request(quad(0)))
    assert (await raw.answer())[0] == 204
    raw.send(sent)
    assert (await raw.answer())[0] == status
    assert plain(one) == 0
    assert not one.ended


async def test_after_a_read_the_connection_goes_on_writing(one: Cluster, connect: Connect) -> None:
    raw = await connect()
    read = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"
    raw.send(request(quad(0)) + read + request(quad(1)))
    assert [(await raw.answer())[0] for _ in range(3)] == [204, 200, 204]
    assert len(await payloads(one)) == 2


async def test_the_same_key_is_the_same_transaction(one: Cluster, connect: Connect) -> None:
    raw = await connect()
    told = []
    for body in (quad("k"), quad("k"), quad("other")):
        raw.send(request(body, "Idempotency-Key: k-1", "TxLog-Durability: synced"))
        told.append(await raw.answer())
    assert [status for status, _, _ in told] == [204, 204, 409]
    assert told[0][1]["txlog-transaction"] == told[1][1]["txlog-transaction"]
    assert plain(one) == 1


async def test_what_the_core_refuses_is_told_with_its_reason(one: Cluster, connect: Connect) -> None:
    raw = await connect()
    one.service(0).loop.leave(0)
    raw.send(request(quad(1)))
    status, headers, body = await raw.answer()
    assert (status, headers["txlog-error"], headers["retry-after"]) == (503, "Closing", "1")
    assert b"stopping" in body
    assert plain(one) == 1


async def with_a_silent_member(clusters: Callable[..., Cluster]) -> tuple[Cluster, Raw]:
    """A master that can accept and not order, and a connection to it."""
    cluster = clusters(2)
    await cluster.start()
    await cluster.crash(1)
    url = urlsplit(cluster.url(0, "/"))
    return cluster, Raw(*await asyncio.open_connection(url.hostname, url.port))


async def test_in_time_is_202_with_where_to_ask(clusters: Callable[..., Cluster]) -> None:
    cluster, raw = await with_a_silent_member(clusters)
    raw.send(request(quad(1), "TxLog-Durability: synced", "Prefer: wait=5"))
    status, headers, body = await raw.answer()
    assert status == 202
    assert headers["location"] == f"/txlog/transactions/{headers['txlog-transaction']}"
    assert b"accepted" in body
    raw.writer.close()
    await until(lambda: plain(cluster) == 0)
    assert cluster.service(0).loop.in_flight == 0


async def test_rules_leave_a_connection_on_the_short_way(one: Cluster, connect: Connect) -> None:
    await rules(one, RULES)
    await until(lambda: decides(one, 0))
    raw = await connect()
    ruled = f'<urn:s> <urn:p> "o" <{GRAPH}> .\n'.encode()
    for level in ("quorum", "synced"):
        raw.send(request(ruled, f"TxLog-Durability: {level}"))
        status, headers, _ = await raw.answer()
        assert (status, headers["txlog-durability"], headers["txlog-synchronous"]) == (204, level, "committed")
    raw.send(request(quad(1), "TxLog-Durability: synced"))
    status, headers, _ = await raw.answer()
    assert (status, "txlog-synchronous" in headers) == (204, False)
    raw.send(request(ruled, "TxLog-Durability: accepted"))
    status, headers, _ = await raw.answer()
    assert (status, headers["txlog-synchronous"]) == (202, "pending")
    assert plain(one) == 1


async def test_a_level_that_comes_late_answers_no_later_write(clusters: Callable[..., Cluster]) -> None:
    cluster, raw = await with_a_silent_member(clusters)
    raw.send(request(quad(1), "TxLog-Durability: synced", "Prefer: wait=5"))
    status, headers, _ = await raw.answer()
    assert status == 202
    late = int(headers["txlog-transaction"].rpartition(".")[2])
    raw.send(request(quad(2), "TxLog-Durability: synced", "Prefer: wait=60"))
    loop = cluster.service(0).loop
    await until(lambda: loop.in_flight == 1 and loop.durability.accepted.value > late)
    loop.durability.synced.move_to(late)
    assert loop.in_flight == 1
    await cluster.start(1)
    status, headers, _ = await raw.answer()
    assert (status, headers["txlog-durability"]) == (204, "synced")
    assert int(headers["txlog-transaction"].rpartition(".")[2]) > late
    raw.writer.close()


async def test_a_client_that_goes_away_leaves_nothing_behind(clusters: Callable[..., Cluster]) -> None:
    cluster, raw = await with_a_silent_member(clusters)
    raw.send(request(quad(1), "TxLog-Durability: synced"))
    await until(lambda: cluster.service(0).loop.in_flight == 1)
    raw.writer.transport.abort()
    await until(lambda: cluster.service(0).loop.in_flight == 0)
    await cluster.start(1)
    await until(lambda: cluster.service(0).loop.durability.stable.value == 1)
    assert not cluster.ended


async def test_a_silent_connection_is_closed_and_a_stop_closes_all(one: Cluster, connect: Connect) -> None:
    direct = one.app(0)._fast_path
    assert direct is not None
    silent, started = await connect(), await connect()
    started.send(request(quad(1))[:30])
    await until(lambda: plain(one) == 2)
    direct._idle_s = 0.0
    assert await silent.ended()
    assert await started.ended()
    direct._idle_s = 60.0
    last = await connect()
    await until(lambda: plain(one) == 1)
    await one.stop(0)
    assert await last.ended()
