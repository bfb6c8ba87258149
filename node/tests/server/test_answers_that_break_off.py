"""A worker that fails in the middle of an answer: the client's answer ends there, and nothing follows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from master_cluster import Cluster
from worker_driver import Driver, OxigraphProcess

from txlog.server.frontdoor.answer_steps import CONVERTED_BYTES_MAX

HALF = b'{"head":{"vars":["x"]},"results":{"bindings":[{"x":{"type":"uri","value":"urn:'
LONG_HALF = HALF + b"x" * CONVERTED_BYTES_MAX
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/sparql-results+json\r\nTransfer-Encoding: chunked\r\n\r\n"


async def _answer_in_half(half: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As a store answers that fails in the middle and says so nowhere: only a conversion notices."""
    await reader.read(1 << 16)
    writer.write(HEAD + b"%x\r\n%s\r\n0\r\n\r\n" % (len(half), half))
    await writer.drain()
    writer.close()


@pytest.mark.parametrize(("half", "status"), [(LONG_HALF, 200), (HALF, 502)])
async def test_no_second_answer_follows(
    tmp_path: Path, clusters: Callable[..., Cluster], half: bytes, status: int
) -> None:
    """A small answer is read as a whole before anything is sent, so it is an error."""
    server = await asyncio.start_server(partial(_answer_in_half, half), "127.0.0.1", 0)
    broken = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    cluster = clusters(1, workers=[{"name": "w-1", "url": broken}], durability="applied")
    await cluster.start()
    store = OxigraphProcess(tmp_path / "store")
    driver = Driver(cluster.url(0), "w-1", store)  # it reports for the one that breaks off
    try:
        await cluster.write(0, "INSERT DATA { <urn:s> <urn:p> <urn:o> }", TxLog_Durability="applied")
        answer = await _raw(cluster.url(0), "application/x-binary-rdf-results-table")
        assert answer.startswith(b"HTTP/1.1 %d " % status), answer
        assert answer.count(b"HTTP/1.1") == 1, answer
        assert not answer.endswith(b"0\r\n\r\n"), "it looks whole"
    finally:
        await asyncio.to_thread(driver.close)
        store.kill()
        server.close()


async def _raw(url: str, media: str) -> bytes:
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    query = quote("SELECT ?x { ?x ?y ?z }")
    head = f"GET /repositories/demo?query={query} HTTP/1.1\r\nHost: x\r\nAccept: {media}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode())
    try:
        return await asyncio.wait_for(reader.read(), 20)
    finally:
        writer.close()
