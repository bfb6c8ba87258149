"""Writes over HTTP: levels, keys, what is refused and how."""

from __future__ import annotations

import asyncio
import gzip
import json

import pytest
from aiohttp import ClientSession
from master_cluster import SYNCED, UPDATE, Cluster, until

STATEMENTS = "/repositories/demo/statements"
LINES = "/txlog/transactions"


def insert(what: object) -> str:
    return f'INSERT DATA {{ <urn:s:{what}> <urn:p> "o" }}'


async def lines_of(cluster: Cluster, at: int, body: bytes, **headers: str) -> list[dict[str, object]]:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with cluster.session.post(cluster.url(at, LINES), data=body, headers=sent) as answer:
        text = await answer.text()
        assert answer.status == 200, text
        return [json.loads(line) for line in text.splitlines()]


async def test_a_write_is_synced_and_says_where(three: Cluster) -> None:
    told = await three.write(0, insert(1))
    assert told["TxLog-Durability"] == "synced"
    epoch, index, digest = told["TxLog-Position"].split(":")
    assert (epoch, index) == ("1", "1")
    for at in range(3):
        await until(lambda at=at: three.service(at).loop.durability.stable.value == 1)
        page = await three.get(at, "/txlog/log?after=0", headers={"Accept": "application/json"})
        assert [e["hash"] for e in page["entries"]] == [digest]
        assert page["entries"][0]["txid"] == told["TxLog-Transaction"]


async def test_writes_at_all_masters_come_into_one_order(three: Cluster) -> None:
    await asyncio.gather(*(three.write(n % 3, insert(n)) for n in range(60)))
    pages = []
    for at in range(3):
        await until(lambda at=at: three.service(at).loop.durability.stable.value == 60)
        pages.append((await three.get(at, "/txlog/log?after=0", headers={"Accept": "application/json"}))["entries"])
    assert pages[0] == pages[1] == pages[2]
    assert len({entry["txid"] for entry in pages[0]}) == 60
    assert not three.ended


@pytest.mark.parametrize("level", ["accepted", "quorum", "synced"])
async def test_every_level_below_applied_is_told_by_name(three: Cluster, level: str) -> None:
    told = await three.write(1, insert(level), TxLog_Durability=level)
    assert told["TxLog-Durability"] == level


async def test_what_is_not_reached_in_time_is_202_with_its_address(one: Cluster) -> None:
    told = await one.write(0, insert(1), 202, TxLog_Durability="applied", Prefer="wait=0.2")
    assert told["TxLog-Durability"] == "synced"
    state = await one.get(0, told["Location"])
    assert state["state"] == "synced"
    assert state["position"]["index"] == 1


async def test_a_master_alone_accepts_and_says_what_is_missing(three: Cluster) -> None:
    await three.crash(1, 2)
    told = await three.write(0, insert(1), 202, TxLog_Durability="synced", Prefer="wait=0.3")
    assert told["TxLog-Durability"] == "accepted"
    assert "TxLog-Position" not in told
    state = await three.get(0, told["Location"])
    assert state["position"] is None
    await three.start(1, 2)
    state = await three.get(0, f"{told['Location']}?wait=20&durability=synced")
    assert state["durability"] == "synced"


@pytest.mark.parametrize(
    ("headers", "body", "status", "says"),
    [
        ({**UPDATE}, "INSERT DATA { <urn:s> <urn:p> }", 400, "MALFORMED QUERY"),
        ({**UPDATE}, "", 400, "must be non-empty"),
        ({**UPDATE}, b"\xff\xfe", 400, "not UTF-8"),
        ({"Content-Type": "text/turtle"}, "<urn:s> <urn:p>", 400, "MALFORMED DATA"),
        ({"Content-Type": "application/n-quads"}, "nonsense", 400, "MALFORMED DATA"),
        ({"Content-Type": "application/json"}, "{}", 415, "Unsupported MIME type"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, "query=ASK{}", 400, "update="),
        ({**UPDATE, "TxLog-Durability": "eternal"}, insert(1), 400, "TxLog-Durability"),
        ({**UPDATE, "Prefer": "wait=soon"}, insert(1), 400, "Prefer: wait"),
        ({**UPDATE, "Idempotency-Key": "two words"}, insert(1), 400, "Idempotency-Key"),
        ({**UPDATE, "Idempotency-Key": "k" * 201}, insert(1), 400, "Idempotency-Key"),
        ({**UPDATE}, "INSERT { ?s ?p 1 } WHERE { GRAPH <urn:txlog:system:x> { ?s ?p ?o } }", 400, "urn:txlog:system"),
        ({**UPDATE}, "INSERT { ?s ?p ?r } WHERE { ?s ?p ?o BIND(BNODE(?o) AS ?r) }", 400, "BNODE"),
        ({**UPDATE}, "LOAD <http://127.0.0.1:1/x>", 400, "LOAD"),
    ],
)
async def test_what_is_wrong_is_named(
    one: Cluster, headers: dict[str, str], body: str | bytes, status: int, says: str
) -> None:
    text = await one.post(0, STATEMENTS, body, status, headers=headers)
    assert says in text
    assert "Traceback" not in text
    assert one.service(0).loop.durability.accepted.value == 0
    await one.write(0, insert("after"))


async def test_a_body_without_a_type_is_415(one: Cluster) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", one.ports[0])
    writer.write(b"POST /repositories/demo/statements HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
    assert b" 415 " in await reader.readline()
    writer.close()


async def test_an_unknown_repository_is_404(one: Cluster) -> None:
    text = await one.post(0, "/repositories/other/statements", insert(1), 404, headers=SYNCED)
    assert "unknown repository" in text


async def test_too_large_a_body_is_413_whether_its_length_is_told_or_not(clusters) -> None:  # type: ignore[no-untyped-def]
    cluster = clusters(1, limits={"body_bytes": 4096})
    await cluster.start()

    async def pieces():  # type: ignore[no-untyped-def]
        for _ in range(8):
            yield b"#" * 1000

    await cluster.post(0, STATEMENTS, b"#" * 5000, 413, headers=SYNCED)
    await cluster.post(0, STATEMENTS, pieces(), 413, headers=SYNCED)
    packed = gzip.compress(b"#" * 50_000)
    await cluster.post(0, STATEMENTS, packed, 413, headers={**SYNCED, "Content-Encoding": "gzip"})
    await cluster.write(0, insert(1))


@pytest.mark.parametrize(
    ("media", "body", "query"),
    [
        ("application/n-quads", "<urn:s> <urn:p> <urn:o> <urn:g> .\n", ""),
        ("application/n-triples", "<urn:s> <urn:p> <urn:o> .\n", "?context=%3Curn:g%3E"),
        ("text/turtle", "@prefix : <urn:> . :s :p :o, _:b .", "?context=null"),
        ("text/turtle", "<s> <p> <o> .", "?baseURI=%3Chttp://example.org/%3E"),
        ("application/trig", "<urn:g> { <urn:s> <urn:p> 1 }", ""),
        ("application/x-www-form-urlencoded", "update=INSERT+DATA+%7B+%3Curn:s%3E+%3Curn:p%3E+1+%7D", ""),
    ],
)
async def test_every_way_to_write(one: Cluster, media: str, body: str, query: str) -> None:
    for prefix in ("", "/rdf4j-server"):
        await one.post(0, f"{prefix}{STATEMENTS}{query}", body, 204, headers={**SYNCED, "Content-Type": media})
    page = await one.get(0, "/txlog/log?after=0", headers={"Accept": "application/json"})
    assert [entry["kind"] for entry in page["entries"]] == ["quads", "quads"]


async def test_a_body_is_asked_for_with_100_continue(one: Cluster) -> None:
    body = insert(1).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", one.ports[0])
    head = "POST /repositories/demo/statements HTTP/1.1\r\nHost: x\r\nContent-Type: application/sparql-update\r\n"
    writer.write(f"{head}Expect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n".encode())
    assert await asyncio.wait_for(reader.readline(), 60) == b"HTTP/1.1 100 Continue\r\n"
    await reader.readline()
    writer.write(body)
    assert b"204" in await asyncio.wait_for(reader.readline(), 60)
    writer.close()


async def test_a_key_counts_once_at_whichever_master(three: Cluster) -> None:
    first = await three.write(0, insert(1), Idempotency_Key="order-7")
    await until(lambda: three.service(1).loop.durability.stable.value == 1)
    again = await three.write(1, insert(1), Idempotency_Key="order-7")
    assert again["TxLog-Transaction"] == first["TxLog-Transaction"]
    assert again["TxLog-Position"] == first["TxLog-Position"]
    assert three.service(1).loop.durability.stable.value == 1
    await three.write(2, insert(2), 409, Idempotency_Key="order-7")


async def test_one_key_at_two_masters_at_once_is_one_change(three: Cluster) -> None:
    both = await asyncio.gather(*(three.write(at, insert(1), Idempotency_Key="once") for at in (0, 1, 2)))
    await until(lambda: len({three.service(at).loop.durability.stable.value for at in range(3)}) == 1)
    page = await three.get(0, "/txlog/log?after=0", headers={"Accept": "application/json"})
    counting = [entry for entry in page["entries"] if not entry["noop"]]
    assert len(counting) == 1
    assert counting[0]["txid"] in {told["TxLog-Transaction"] for told in both}
    for entry in page["entries"]:
        if entry["noop"]:
            assert entry["noop"] == f"key {counting[0]['txid']}"
            state = await three.get(0, f"/txlog/transactions/{entry['txid']}")
            assert state["noop"] == counting[0]["txid"]


async def test_lines_are_answered_in_order_and_a_wrong_one_hurts_nobody(three: Cluster) -> None:
    body = (
        b'{"quads":"<urn:a> <urn:p> \\"1\\" ."}\n'
        b"not json\n"
        b'{"update":"DELETE WHERE { ?s <urn:q> ?o }"}\n'
        b'{"quads":"<urn:a> <urn:p>"}\n'
        b"\n"
        b'{"add":"<urn:a> <urn:p> \\"2\\" .","delete":"<urn:a> <urn:p> \\"1\\" .","key":"k"}\n'
        b'{"update":"INSERT DATA {}","quads":"x"}\n'
        b'{"add":"<urn:a> <urn:p> \\"2\\" .","delete":"<urn:a> <urn:p> \\"1\\" .","key":"k"}'
    )
    told = await lines_of(three, 0, body, TxLog_Durability="synced")
    assert ["txid" in line for line in told] == [True, False, True, False, True, False, True]
    assert all(line["error"] and line["message"] for line in told if "txid" not in line)
    assert [line["position"]["index"] for line in told if "txid" in line] == [1, 2, 3, 3]  # type: ignore[index]
    assert three.service(0).loop.durability.stable.value == 3


async def test_a_line_that_is_no_text_or_nested_without_end_hurts_nobody(one: Cluster) -> None:
    good = b'{"quads":"<urn:a> <urn:b> <urn:c> .\\n"}\n'
    body = b"".join([good, b'{"quads":"\xff"}\n', b'{"x":' + b"[" * 100_000 + b"\n", good])
    async with one.session.post(one.url(0, LINES), data=body, headers={"TxLog-Durability": "synced"}) as answer:
        assert answer.status == 200
        told = [json.loads(line) for line in (await answer.text()).splitlines()]
    assert [line.get("error") for line in told] == [None, "BadInput", "BadInput", None]


async def test_a_request_of_many_lines_becomes_one_record(one: Cluster) -> None:
    body = b"".join(b'{"quads":"<urn:a> <urn:p> \\"%d\\" ."}\n' % n for n in range(100))
    await lines_of(one, 0, body, TxLog_Durability="synced")
    syncs = one.service(0).loop.counts.syncs
    told = await lines_of(one, 0, body, TxLog_Durability="synced")
    assert [line["position"]["index"] for line in told] == list(range(101, 201))  # type: ignore[index]
    assert one.service(0).loop.counts.syncs - syncs <= 3


async def test_lines_without_end_are_answered_as_they_come(one: Cluster) -> None:
    answered = 0
    more = asyncio.Event()

    async def lines():  # type: ignore[no-untyped-def]
        for n in range(30):
            yield b'{"quads":"<urn:a> <urn:p> \\"%d\\" ."}\n' % n
            await more.wait()  # the next line leaves only when this one is answered
            more.clear()

    async with one.session.post(one.url(0, LINES), data=lines(), headers={"TxLog-Durability": "synced"}) as answer:
        async for line in answer.content:
            assert json.loads(line)["position"]["index"] == answered + 1
            answered += 1
            more.set()
    assert answered == 30


async def test_more_lines_than_a_batch_holds(clusters) -> None:  # type: ignore[no-untyped-def]
    cluster = clusters(1, limits={"batch_transactions": 50})
    await cluster.start()
    body = b"".join(b'{"quads":"<urn:a> <urn:p> \\"%d\\" ."}\n' % n for n in range(333))
    told = await lines_of(cluster, 0, body, TxLog_Durability="synced")
    assert [line["position"]["index"] for line in told] == list(range(1, 334))  # type: ignore[index]


async def test_a_line_too_long_is_named_and_what_was_before_is_kept(clusters) -> None:  # type: ignore[no-untyped-def]
    cluster = clusters(1, limits={"body_bytes": 2048})
    await cluster.start()

    async def lines():  # type: ignore[no-untyped-def]
        yield b'{"quads":"<urn:a> <urn:p> \\"1\\" ."}\n'
        for _ in range(5):
            yield b"x" * 1000

    async with cluster.session.post(cluster.url(0, LINES), data=lines()) as answer:
        told = [json.loads(line) for line in (await answer.text()).splitlines()]
    assert told[0]["txid"]
    assert told[1]["error"] == "TooLarge"


async def test_clients_that_go_away_do_no_harm(three: Cluster) -> None:
    """Cut at every stage: before the body, in it, while waiting, in the answer."""
    body = insert("gone").encode()
    head = (
        f"POST {STATEMENTS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/sparql-update\r\n"
        f"TxLog-Durability: applied\r\nPrefer: wait=1\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    whole = head + body
    for cut in (10, len(head), len(head) + 5, len(whole)):
        _, writer = await asyncio.open_connection("127.0.0.1", three.ports[0])
        writer.write(whole[:cut])
        await writer.drain()
        writer.transport.abort()
    for _ in range(5):
        async with ClientSession() as session:
            task = asyncio.ensure_future(session.post(three.url(1, STATEMENTS), data=body, headers=SYNCED))
            await asyncio.sleep(0)
            task.cancel()
    await three.write(0, insert(1))
    await until(lambda: three.service(0).loop.in_flight == 0)
    assert not three.ended
    assert "InternalError" not in three.logged(0) + three.logged(1)


async def test_too_many_requests_at_once_are_503(clusters) -> None:  # type: ignore[no-untyped-def]
    cluster = clusters(1, limits={"requests_in_flight": 2})
    await cluster.start()
    waiting = [
        asyncio.ensure_future(cluster.write(0, insert(n), 202, TxLog_Durability="applied", Prefer="wait=4"))
        for n in range(2)
    ]
    await until(lambda: cluster.service(0).loop.in_flight == 2)
    async with cluster.session.post(cluster.url(0, STATEMENTS), data=insert(9), headers=SYNCED) as answer:
        assert answer.status == 503
        assert answer.headers["Retry-After"]
        assert answer.headers["TxLog-Error"] == "QueueFull"
    await asyncio.gather(*waiting)
