"""A connection goes to aiohttp for a request that only aiohttp answers, and comes back for the next plain one."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from master_cluster import Cluster, until
from plain_requests import PATH, Answer, Client, connection, connection_of, get, is_fast
from test_fast_statements import statements
from worker_driver import Served

from txlog.server.frontdoor.http_connection import HttpConnection, missing_bytes

PROTOCOL = b"GET /protocol HTTP/1.1\r\nHost: x\r\n\r\n"
ASK = get("ASK { <urn:s> ?p ?o }")
CHUNKED = (
    f"POST {PATH}/statements HTTP/1.1\r\nHost: x\r\nContent-Type: application/n-quads\r\nTransfer-Encoding: chunked\r\n"
    "Expect: 100-continue\r\nTxLog-Durability: applied\r\n\r\n"
).encode()
CHUNKS = b"1c\r\n<urn:s> <urn:p> <urn:late> .\r\n0\r\n\r\n"
WITH_LENGTH = (
    f"PUT {PATH}/namespaces/ex HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 19\r\n\r\n"
    "http://example.org/"
).encode()
DELETED = f"DELETE {PATH}/namespaces/ex HTTP/1.1\r\nHost: x\r\n\r\n".encode()
MIXED = [
    (PROTOCOL, 200),
    (ASK, 200),
    (WITH_LENGTH, 204),
    (ASK, 200),
    (statements(), 200),
    (DELETED, 204),
    (PROTOCOL, 200),
    (statements("Accept: text/turtle", subj="<urn:s>"), 200),
]


@pytest.fixture
async def filled(served: Served) -> Served:
    await served.cluster.write(0, "INSERT DATA { <urn:s> <urn:p> <urn:o> }", TxLog_Durability="applied")
    return served


@pytest.mark.parametrize("first", [PROTOCOL, WITH_LENGTH, DELETED, get("ASK {}", "Accept: text/boolean")])
async def test_a_plain_request_after_any_other_is_answered_on_the_fast_path(filled: Served, first: bytes) -> None:
    async with connection(filled.cluster) as client:
        assert (await client.ask(first)).status in (200, 204)
        assert not is_fast(filled.cluster, client)
        for request in (ASK, statements()):
            assert (await client.ask(request)).status == 200
            assert is_fast(filled.cluster, client)
        assert (await client.ask(PROTOCOL)).body == b"12"
        assert not is_fast(filled.cluster, client)


async def test_what_java_clients_upload_ends_before_the_fast_path_begins(filled: Served) -> None:
    async with connection(filled.cluster) as client:
        client.writer.write(CHUNKED)
        assert (await client.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        client.writer.write(CHUNKS)
        assert (await client.answer()).status == 204
        found = await client.ask(statements("Accept: application/n-quads", obj="<urn:late>"))
        assert found.body == b"<urn:s> <urn:p> <urn:late> .\n"
        assert is_fast(filled.cluster, client)


async def test_a_head_that_comes_in_two_parts_is_one_request(filled: Served) -> None:
    """aiohttp has the first part already, so it gets the second one, too."""
    async with connection(filled.cluster) as client:
        await client.ask(PROTOCOL)
        for at in range(1, len(ASK)):
            client.writer.write(ASK[:at])
            await client.writer.drain()
            await asyncio.sleep(0)
            client.writer.write(ASK[at:])
            assert b"true" in (await client.answer()).body


async def test_the_rest_of_a_head_is_no_head(filled: Served) -> None:
    """A header's value that begins a packet and looks like a request is still a header's value."""
    async with connection(filled.cluster) as client:
        await client.ask(PROTOCOL)
        client.writer.write(b"GET /protocol HTTP/1.1\r\nReferer: ")
        await client.writer.drain()
        await until(lambda: server_of(client)._missing != 0)
        client.writer.write(ASK)
        assert (await client.answer()).body == b"12"


async def test_a_mixture_in_any_pieces_is_answered_in_order(filled: Served) -> None:
    wanted = await answers_to(filled.cluster, iter([request for request, _ in MIXED]))
    assert [answer.status for answer in wanted] == [status for _, status in MIXED]
    stream = b"".join(request for request, _ in MIXED)
    for size in (7, 64, 333, len(stream)):
        pieces = (stream[at : at + size] for at in range(0, len(stream), size))
        found = await answers_to(filled.cluster, pieces)
        assert [(answer.status, answer.body) for answer in found] == [(answer.status, answer.body) for answer in wanted]


async def test_a_connection_does_not_change_sides_for_each_request(filled: Served) -> None:
    """A position that is not reached is waited for on aiohttp's side. The second time, it stays there."""
    later = get("ASK {}", "TxLog-Min-Position: 1:2")
    async with connection(filled.cluster) as client:
        for request, there in ((later, False), (ASK, True), (later, False), (ASK, False), (ASK, False)):
            await client.ask(request)
            assert is_fast(filled.cluster, client) is there


async def test_a_connection_that_came_back_is_closed_when_it_is_idle(filled: Served) -> None:
    app = filled.cluster.app(0)
    async with connection(filled.cluster) as client:
        await client.ask(PROTOCOL)
        await client.ask(ASK)
        one = connection_of(filled.cluster, client)
        assert one is not None
        one.check_timeout(one._last_activity + app._fast_path._idle_s + 1, app._fast_path._idle_s)
        assert await client.reader.read() == b""
        assert not is_fast(filled.cluster, client)


def server_of(client: Client) -> HttpConnection:
    """aiohttp's side of a connection, as long as it has it."""
    address = client.writer.get_extra_info("sockname")
    (found,) = (
        one
        for one in gc.get_objects()
        if isinstance(one, HttpConnection)
        and one._transport is not None
        and one._transport.get_extra_info("peername") == address
    )
    return found


async def answers_to(cluster: Cluster, pieces: Iterator[bytes]) -> list[Answer]:
    async with connection(cluster) as client:

        async def send() -> None:
            for piece in pieces:
                client.writer.write(piece)
                await client.writer.drain()
                await asyncio.sleep(0)

        sending = asyncio.create_task(send())
        found = [await client.answer() for _ in MIXED]
        await sending
        return found


REQUESTS = st.sampled_from([PROTOCOL, ASK, WITH_LENGTH, DELETED, CHUNKED + CHUNKS, statements()])


@given(requests=st.lists(REQUESTS, min_size=1, max_size=4), cuts=st.lists(st.integers(0, 2000), max_size=6))
def test_no_byte_is_missing_only_at_the_end_of_a_request(requests: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(requests)
    ends = {sum(map(len, requests[: at + 1])) for at in range(len(requests))}
    places = sorted({cut for cut in cuts if 0 < cut < len(stream)} | {len(stream)})
    missing, before = 0, 0
    for place in places:
        missing = missing_bytes(missing, stream[before:place])
        before = place
        assert missing != 0 or place in ends, (stream[:place], missing)


def test_a_length_is_counted_to_its_end() -> None:
    count: Callable[[int, bytes], int] = missing_bytes
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"
    assert count(0, head) == 10
    assert count(0, head + b"12345") == 5
    assert count(5, b"67890") == 0
    assert count(5, b"67890G") == -1
    assert count(0, PROTOCOL + head + b"123") == 7
    assert count(0, PROTOCOL + PROTOCOL) == 0
    assert count(-1, PROTOCOL) == -1
    assert count(0, b"GET / HT") == -1


def test_a_body_that_looks_like_a_request_is_a_body() -> None:
    """Its author would choose what the next request on this connection is."""
    body = b"a\r\n\r\nGET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nGET /"
    missing = missing_bytes(0, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (len(body) + 3))
    for part in (body[:5], body[5:]):
        missing = missing_bytes(missing, part)
        assert missing > 0
