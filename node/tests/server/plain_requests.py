"""Requests as bytes, on one connection: to see which path answers them, and that both give one answer."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote, urlsplit

from master_cluster import Cluster

from txlog.server.frontdoor.fast_path import FastPathConnection
from txlog.server.frontdoor.fast_reads import FastReads

PATH = "/repositories/demo"
WAIT_S = 60
JSON = "Accept: application/sparql-results+json"


def get(query: str, *headers: str, more: str = "") -> bytes:
    lines = [f"GET {PATH}?query={quote(query)}{more} HTTP/1.1", "Host: x", *(headers or (JSON,))]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def post(body: str, media: str, *headers: str) -> bytes:
    data = body.encode()
    lines = [f"POST {PATH} HTTP/1.1", "Host: x", f"Content-Type: {media}", f"Content-Length: {len(data)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def slow(request: bytes) -> bytes:
    """The same request with a header that the fast path leaves to aiohttp, and that changes nothing."""
    return request.replace(b"Host: x\r\n", b"Host: x\r\nTE: trailers\r\n", 1)


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes, *, is_whole: bool = True) -> None:
        self.status, self.headers, self.body, self.is_whole = status, headers, body, is_whole

    @property
    def compared(self) -> tuple[int, dict[str, str], bytes]:
        unlike = ("date", "server", "content-length", "transfer-encoding", "connection")
        headers = {name: value for name, value in self.headers.items() if name not in unlike}
        body = gzip.decompress(self.body) if headers.get("content-encoding") == "gzip" else self.body
        return self.status, headers, body


class Client:
    """One connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, request: bytes) -> Answer:
        self.writer.write(request)
        return await self.answer()

    async def answer(self) -> Answer:
        async with asyncio.timeout(WAIT_S):
            first, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            status, pieces = int(first.split()[1]), list[bytes]()
            if headers.get("transfer-encoding") != "chunked":
                body = await self.reader.readexactly(int(headers.get("content-length", "0")))
                return Answer(status, headers, body)
            try:
                while size := int(await self.reader.readuntil(b"\r\n"), 16):
                    pieces.append((await self.reader.readexactly(size + 2))[:-2])
                await self.reader.readexactly(2)
            except (asyncio.IncompleteReadError, ConnectionResetError):
                return Answer(status, headers, b"".join(pieces), is_whole=False)
            return Answer(status, headers, b"".join(pieces))


@asynccontextmanager
async def connection(cluster: Cluster) -> AsyncIterator[Client]:
    url = urlsplit(cluster.url(0))
    reader, writer = await asyncio.open_connection(url.hostname, url.port, limit=1 << 16)
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()


def connection_of(cluster: Cluster, client: Client) -> FastPathConnection | None:
    """The master's side of a connection; None while aiohttp has it."""
    address = client.writer.get_extra_info("sockname")
    for one in cluster.app(0)._fast_path.connections:
        if one._transport is not None and one._transport.get_extra_info("peername") == address:
            return one
    return None


def is_fast(cluster: Cluster, client: Client) -> bool:
    """Whether a connection is on the fast path."""
    return connection_of(cluster, client) is not None


def reads_of(cluster: Cluster) -> FastReads:
    return cluster.app(0)._fast_path._read_logs[PATH.encode()].reads


async def ask_both_paths(cluster: Cluster, request: bytes) -> tuple[Answer, Answer]:
    """The answers of the fast path and of aiohttp to one request."""
    async with connection(cluster) as one, connection(cluster) as other:
        quick = await one.ask(request)
        assert is_fast(cluster, one)
        ordinary = await other.ask(slow(request))
        assert not is_fast(cluster, other)
    return quick, ordinary


async def assert_left(cluster: Cluster, request: bytes) -> None:
    """The fast path leaves this request to aiohttp, with the same answer."""
    async with connection(cluster) as one, connection(cluster) as other:
        given = await one.ask(request)
        assert not is_fast(cluster, one)
        assert given.compared == (await other.ask(slow(request))).compared
