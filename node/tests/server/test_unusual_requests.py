"""Requests as HTTP permits them and few clients send them, and those that it does not permit."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from master_cluster import UPDATE, Cluster, until
from plain_requests import reads_of
from worker_driver import Served

from txlog.http import router
from txlog.server.frontdoor import answer_stream

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
BEGIN = "POST /repositories/demo/transactions"


@asynccontextmanager
async def connected(cluster: Cluster) -> AsyncIterator[Connection]:
    reader, writer = await asyncio.open_connection("127.0.0.1", cluster.ports[0])
    try:
        yield reader, writer
    finally:
        writer.close()


async def send(cluster: Cluster, head: str, *headers: str | bytes, body: str = "") -> tuple[int, str]:
    """The status and the rest of the answer, after which the master closes the connection."""
    lines = [f"{head} HTTP/1.1", "Connection: close", f"Content-Length: {len(body)}", *headers]
    data = b"".join((line if isinstance(line, bytes) else line.encode()) + b"\r\n" for line in lines)
    async with connected(cluster) as (reader, writer), asyncio.timeout(20):
        writer.write(data + b"\r\n" + body.encode())
        answer = (await reader.read()).decode()
    return int(answer.split(" ")[1]), answer


@pytest.mark.parametrize("host", ["x:99999999", "x:abc", "a b", 'x"><y', "[::", "a/b", "u@h", ""])
@pytest.mark.parametrize(
    "head",
    [
        BEGIN,
        "GET /repositories",
        "GET /repositories/demo/config",
        "DELETE /repositories/demo/rdf-graphs/ab",
    ],
)
async def test_a_wrong_host_is_refused_where_the_answer_needs_it(one: Cluster, head: str, host: str) -> None:
    status, answer = await send(one, head, f"Host: {host}")
    assert (status, "\r\n\r\nHost: " in answer) == (400, True), answer
    assert not one.service(0).routes.transactions.open, "nothing was begun"
    assert one.service(0).loop.durability.log_index == 0
    assert "InternalError" not in one.logs[0].getvalue()


@pytest.mark.parametrize("host", ["x", "x:80", "[::1]:7300", "127.0.0.1:7300", "a-b_c.example"])
async def test_a_right_host_is_part_of_what_is_begun(one: Cluster, host: str) -> None:
    status, answer = await send(one, BEGIN, f"Host: {host}")
    assert (status, f"Location: http://{host.removesuffix(':80')}/repositories/demo/transactions/" in answer) == (
        201,
        True,
    ), answer


@pytest.mark.parametrize(
    ("head", "header", "status"),
    [
        ("POST /repositories/demo/statements", b"Content-Type: a/\xff", 415),
        ("POST /repositories/demo/statements", b"Content-Type: text/turtle\r\nContent-Encoding: \xff", 415),
        ("GET /repositories/demo/statements", b"Accept: text/\xff", 406),
        ("POST /txlog/transactions", b"Content-Encoding: \xff", 415),
    ],
)
async def test_a_header_outside_utf_8_is_refused_by_name(one: Cluster, head: str, header: bytes, status: int) -> None:
    """The text shows the header, and must be text all the same."""
    found, answer = await send(one, head, "Host: x", header)
    assert (found, "?" in answer.partition("\r\n\r\n")[2]) == (status, True), answer
    assert "InternalError" not in one.logs[0].getvalue()


async def test_preferences_may_come_in_several_headers(one: Cluster) -> None:
    """RFC 7240, section 2: they mean what they mean in one."""
    head, media = "POST /repositories/demo/statements", f"Content-Type: {UPDATE['Content-Type']}"
    preferences = ("Prefer: respond-async", "Prefer: wait=soon")
    for path in (head, "GET /repositories/demo/namespaces"):
        status, answer = await send(
            one, path, "Host: x", media, *preferences, "TxLog-Min-Position: 1", body="CLEAR ALL" if path == head else ""
        )
        assert (status, "Prefer: wait=soon" in answer) == (400, True), answer


async def test_a_body_that_stalls_ends_its_request(one: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its transaction stays locked for as long as the connection lives: it could not even be rolled back."""
    monkeypatch.setattr(router, "BODY_IDLE_S", 0.3)
    _, answer = await send(one, BEGIN, "Host: x")
    url = answer.partition("Location: http://x")[2].partition("\r\n")[0]
    async with connected(one) as (reader, writer), asyncio.timeout(20):
        writer.write(f"PUT {url}?action=ADD HTTP/1.1\r\nHost: x\r\nContent-Type: text/turtle\r\n".encode())
        writer.write(b"Content-Length: 100\r\n\r\n<urn:s> <urn:p> ")
        status, _ = await send(one, f"DELETE {url}", "Host: x")
        assert status == 204, "the transaction was free again"
        stalled = await reader.readuntil(b"send it again\n")
    assert stalled.startswith(b"HTTP/1.1 408 ")
    assert b"Connection: close" in stalled


async def test_bodies_that_are_read_at_a_time_are_bounded(one: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their clients may take their time; so many of them would fill the memory."""
    monkeypatch.setattr(router, "LONG_BODIES_BYTES_MAX", 3 << 20)
    body = '<urn:s> <urn:p> "' + "x" * (2 << 20)
    head, media = "POST /repositories/demo/statements", "Content-Type: text/turtle"
    async with connected(one) as (_, writer):
        writer.write(f"{head} HTTP/1.1\r\nHost: x\r\n{media}\r\nContent-Length: {4 << 20}\r\n\r\n{body}".encode())
        await until(lambda: router.long_bodies.size >= len(body), 20)
        status, answer = await send(one, head, "Host: x", media, body=f'{body}" .')
        assert (status, "TxLog-Error: BodiesFull" in answer) == (503, True), answer
    await until(lambda: router.long_bodies.size == 0, 20)
    assert (await send(one, head, "Host: x", media, body=f'{body}" .'))[0] == 204
    assert router.long_bodies.size == 0


@pytest.mark.parametrize("unusual", ["", "TE: trailers\r\n"], ids=["fast path", "aiohttp"])
async def test_a_client_that_reads_nothing_gives_its_worker_back(
    served: Served, monkeypatch: pytest.MonkeyPatch, unusual: str
) -> None:
    """All clients of a master share 256 connections to workers."""
    monkeypatch.setattr(answer_stream, "CLIENT_IDLE_S", 0.5)
    cluster, app = served.cluster, served.cluster.service(0)
    reads_of(cluster).client_idle_s = 0.5
    for at in range(12):
        data = f'INSERT DATA {{ <urn:s> <urn:p> "{at}{"x" * (1 << 20)}" }}'
        async with cluster.session.post(
            cluster.url(0, "/repositories/demo/statements"), data=data, headers=UPDATE
        ) as a:
            assert a.status == 204, await a.text()
    with socket.create_connection(("127.0.0.1", cluster.ports[0])) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        head = f"GET /repositories/demo/statements HTTP/1.1\r\nHost: x\r\n{unusual}Accept: text/turtle\r\n\r\n"
        client.sendall(head.encode())
        reading = app.context.registry.reads.active_reads
        await until(lambda: sum(reading.values()) == 1, 20)
        await until(lambda: sum(reading.values()) == 0, 20)
