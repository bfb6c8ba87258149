"""RDF4J's transactions: what they write is seen by themselves only, and is one entry of the log at the commit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from master_cluster import Cluster, until
from worker_driver import Served

from txlog.server.frontdoor import transaction_view
from txlog.sparql import prepare_removal

PATH = "/repositories/demo/transactions"
QUADS = "application/n-quads"
UPDATE = "application/sparql-update"
RESULTS = "application/sparql-results+json"
WILDCARD = "<http://www.openrdf.org/schema/sesame#wildcard>"


async def begin(cluster: Cluster, at: int = 0, data: Any = None, query: str = "") -> str:
    """Its URL, as the master names it."""
    async with cluster.session.post(cluster.url(at, PATH + query), data=data) as answer:
        assert answer.status == 201, await answer.text()
        location = answer.headers["Location"]
        assert location.startswith(cluster.url(at, PATH + "/"))
        return location


async def act(
    cluster: Cluster, url: str, action: str, body: str = "", status: int = 200, method: str = "PUT", **headers: str
) -> str:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with cluster.session.request(method, f"{url}?action={action}", data=body.encode(), headers=sent) as answer:
        text = await answer.text()
        assert answer.status == status, (answer.status, text)
        return text


async def count(cluster: Cluster, url: str) -> int:
    text = await act(cluster, url, "QUERY&query=SELECT*%7B?s%20?p%20?o%7D", Accept=RESULTS)
    return len(json.loads(text)["results"]["bindings"])


async def test_a_transaction_sees_itself_and_is_seen_at_the_commit(served: Served) -> None:
    cluster = served.cluster
    await served.send("POST", "/statements", '<urn:s> <urn:p> "0" .', Content_Type=QUADS)
    index = cluster.service(0).loop.durability.stable.value
    url = await begin(cluster, query="?isolation-level=SNAPSHOT")
    assert await count(cluster, url) == 1
    assert await act(cluster, url, "SIZE") == "1"
    await act(cluster, url, "ADD", '<urn:s> <urn:p> "1" <urn:g> .\n<urn:s> <urn:p> "2" .', Content_Type=QUADS)
    assert await count(cluster, url) == 3
    await served.send("POST", "/statements", '<urn:other> <urn:p> "x" .', Content_Type=QUADS)
    assert await count(cluster, url) == 3, "somebody else's write is seen"
    await act(cluster, url, "DELETE", '<urn:s> <urn:p> "0" .', Content_Type=QUADS)
    update = 'INSERT { ?s <urn:q> ?o } WHERE { ?s <urn:p> ?o FILTER(?o = "2") }'
    await act(cluster, url, "UPDATE", update, 204, Content_Type=UPDATE)
    await act(cluster, url, "UPDATE", 'update=DELETE WHERE { <urn:s> <urn:p> "2" }', 204, Content_Type=FORM)
    mine = ['<urn:s> <urn:p> "1" <urn:g> .', '<urn:s> <urn:q> "2" .']
    assert sorted((await act(cluster, url, "GET", Accept=QUADS)).splitlines()) == mine
    assert await act(cluster, url, "SIZE") == "2"
    assert await act(cluster, url, "SIZE&context=%3Curn:g%3E") == "1"
    assert await act(cluster, url, "GET&pred=%3Curn:q%3E", Accept=QUADS) == mine[1] + "\n"
    assert await act(cluster, url, "QUERY&query=ASK%7B?s%20%3Curn:q%3E%20?o%7D", Accept="text/boolean") == "true"
    before = ['<urn:other> <urn:p> "x" .', '<urn:s> <urn:p> "0" .']
    assert await served.quads() == before
    assert await act(cluster, url, "PING") == "60000"
    await act(cluster, url, "PREPARE")
    await act(cluster, url, "COMMIT")
    assert await served.quads() == sorted([before[0], *mine])
    assert cluster.service(0).loop.durability.stable.value == index + 2, "a commit is one entry"
    assert "it was committed" in await act(cluster, url, "PING", status=400)


FORM = "application/x-www-form-urlencoded"


async def test_a_rollback_leaves_nothing(served: Served) -> None:
    cluster = served.cluster
    for method, action in (("DELETE", ""), ("PUT", "ROLLBACK"), ("POST", "ROLLBACK")):
        url = await begin(cluster)
        await act(cluster, url, "ADD", '<urn:s> <urn:p> "1" .', Content_Type=QUADS)
        await act(cluster, url, action, status=204, method=method)
        assert "it was rolled back" in await act(cluster, url, "COMMIT", status=400)
    assert await served.quads() == []
    assert cluster.service(0).loop.durability.stable.value == 0
    empty = await begin(cluster)
    await act(cluster, empty, "COMMIT")
    assert cluster.service(0).loop.durability.stable.value == 0


async def test_a_commit_without_an_answer_may_be_repeated(one: Cluster) -> None:
    url = await begin(one)
    await act(one, url, "ADD", '<urn:s> <urn:p> "1" .', Content_Type=QUADS)
    text = await act(one, url, "COMMIT", status=202, TxLog_Durability="applied", Prefer="wait=0.01")
    assert "/txlog/transactions/" in text
    assert "send COMMIT again" in await act(one, url, "ROLLBACK", status=409)
    assert "send COMMIT again" in await act(one, url, "ADD", "", status=400, Content_Type=QUADS)
    await act(one, url, "COMMIT", TxLog_Durability="synced")
    assert one.service(0).loop.durability.log_index == 1


async def test_a_commit_whose_answer_was_lost_is_answered_again(one: Cluster) -> None:
    """What the client learns is about the first one, at the level that it asks for now."""
    url = await begin(one)
    await act(one, url, "ADD", '<urn:s> <urn:p> "1" .', Content_Type=QUADS)
    found = []
    for level, status in (("synced", 200), ("synced", 200), ("applied", 202)):
        sent = {"TxLog-Durability": level, "Prefer": "wait=0.5"}
        async with one.session.put(f"{url}?action=COMMIT", headers=sent) as answer:
            assert answer.status == status, await answer.text()
            found.append(answer.headers["TxLog-Transaction"])
    assert len(set(found)) == 1
    assert one.service(0).loop.durability.log_index == 1, "it took effect once"
    assert "it was committed" in await act(one, url, "ROLLBACK", status=400)
    empty = await begin(one)
    await act(one, empty, "COMMIT")
    await act(one, empty, "COMMIT")


async def test_open_transactions_hold_no_more_than_the_memory(one: Cluster) -> None:
    rooms, quad = one.service(0).routes.transactions, '<urn:s> <urn:p> "{}" .'
    rooms.open_bytes_max = 100
    first, second = await begin(one), await begin(one)
    await act(one, first, "ADD", quad.format("x" * 50), Content_Type=QUADS)
    assert "commit some first" in await act(one, second, "ADD", quad.format("y" * 50), status=503, Content_Type=QUADS)
    await act(one, first, "COMMIT")
    await act(one, second, "ADD", quad.format("y" * 50), Content_Type=QUADS)


async def test_what_is_idle_expires_by_name_and_their_number_is_bounded(one: Cluster) -> None:
    rooms = one.service(0).routes.transactions
    rooms.idle_s, rooms.open_max = 0.3, 2
    first = await begin(one)
    await begin(one)
    async with one.session.post(one.url(0, PATH)) as answer:
        assert answer.status == 503
        assert answer.headers["TxLog-Error"] == "TransactionsOpen"
        assert "Retry-After" in answer.headers
    await until(lambda: not rooms.open)
    assert "it expired: no request used it for 0.3 s" in await act(one, first, "PING", status=400)
    await begin(one)


async def test_a_transaction_is_as_large_as_one_entry_at_most(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1, limits={"body_bytes": 2048})
    await cluster.start()
    url = await begin(cluster)
    line = f'<urn:s> <urn:p> "{"x" * 1200}" .'
    await act(cluster, url, "ADD", line, Content_Type=QUADS)
    assert "2048 bytes" in await act(cluster, url, "ADD", line.replace("urn:s", "urn:t"), 413, Content_Type=QUADS)
    await act(cluster, url, "COMMIT", TxLog_Durability="synced")


async def test_too_much_data_to_copy_is_said(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_view, "COPY_BYTES_MAX", 100)
    await served.send("POST", "/statements", f'<urn:s> <urn:p> "{"x" * 200}" .', Content_Type=QUADS)
    url = await begin(served.cluster)
    assert await count(served.cluster, url) == 1
    await act(served.cluster, url, "ADD", '<urn:s> <urn:p> "1" .', Content_Type=QUADS)
    everything = "QUERY&query=SELECT*%7B?s%20?p%20?o%7D"
    assert "read before writing" in await act(served.cluster, url, everything, status=409, Accept=RESULTS)
    await act(served.cluster, url, "COMMIT")
    assert await served.send("GET", "/size", status=200) == "2"


async def test_plain_writes_are_read_with_a_store_of_any_size(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a copy, which this one is too large for, and the same as after the commit."""
    monkeypatch.setattr(transaction_view, "COPY_BYTES_MAX", 100)
    cluster = served.cluster
    integer = "http://www.w3.org/2001/XMLSchema#integer"
    held = [
        *(f'<urn:s{n}> <urn:p> "{n}" .' for n in range(50)),
        *(f'<urn:s{n}> <urn:p> "{n}" <urn:g> .' for n in range(40, 60)),
        f'<urn:typed> <urn:p> "1"^^<{integer}> .',
        '<urn:typed> <urn:p> "x"@en-us <urn:g> .',
    ]
    await served.send("POST", "/statements", "\n".join(held), Content_Type=QUADS)
    url = await begin(cluster)
    adds = ['<urn:s1> <urn:p> "1" .', '<urn:new> <urn:p> "1" .', '<urn:new> <urn:q> "2" <urn:g> .', '_:b <urn:p> "3" .']
    await act(cluster, url, "ADD", "\n".join(adds), Content_Type=QUADS)
    for query, gone in (
        ("&context=null", f'<urn:s2> <urn:p> "2" .\n<urn:typed> <urn:p> "01"^^<{integer}> .'),
        ("", '<urn:typed> <urn:p> "x"@EN-us <urn:g> .\n<urn:s45> <urn:p> "45" <urn:g> .'),
        ("&context=null", '<urn:new> <urn:p> "1" .\n<urn:none> <urn:p> "1" .'),
    ):
        await act(cluster, url, f"DELETE{query}", gone, Content_Type=QUADS)
    await act(cluster, url, "ADD", '<urn:s2> <urn:p> "again" .', Content_Type=QUADS)
    patterns = ("", "&context=null", "&context=%3Curn:g%3E", "&subj=%3Curn:s45%3E", "&pred=%3Curn:q%3E&context=null")
    mine = {each: sorted((await act(cluster, url, f"GET{each}", Accept=QUADS)).splitlines()) for each in patterns}
    sizes = {each: await act(cluster, url, f"SIZE{each}") for each in patterns[:3]}
    turtle = await act(cluster, url, "GET&context=%3Curn:g%3E", Accept="text/turtle")
    assert await served.quads() == sorted(held), "somebody else sees it"
    await served.send("POST", "/statements", '<urn:other> <urn:p> "x" .', Content_Type=QUADS)
    assert int(await act(cluster, url, "SIZE")) == int(sizes[""]) + 1, "what others do is seen, as of each read"
    await served.send("DELETE", "/statements?subj=%3Curn:other%3E")
    await act(cluster, url, "COMMIT")
    for each in patterns:
        after = await served.send("GET", f"/statements?{each[1:]}", status=200, Accept=QUADS)
        assert mine[each] == sorted(after.splitlines()), each
    for each, size in sizes.items():
        assert size == await served.send("GET", f"/size?{each[1:]}", status=200)
    assert len(mine[""]) == len(held) + 3 - 4
    assert turtle.count('"') == 2 * 20
    assert not cluster.app(0).evaluators._all, "a process was started"


async def test_of_a_large_store_what_a_query_names_is_copied(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its own updates those that the query's predicates depend on, and no others."""
    monkeypatch.setattr(transaction_view, "COPY_BYTES_MAX", 5000)
    cluster = served.cluster
    bulk = [f'<urn:b{n}> <urn:bulk> "{"x" * 50}{n}" .' for n in range(200)]
    few = [f'<urn:s{n}> <urn:p> "{n}" .' for n in range(10)] + [f'<urn:s{n}> <urn:r> "{n}" <urn:g> .' for n in range(5)]
    await served.send("POST", "/statements", "\n".join(bulk + few), Content_Type=QUADS)

    async def named(url: str, pattern: str) -> list[list[str]]:
        text = await act(cluster, url, "QUERY", f"SELECT * {{ {pattern} }}", Content_Type=QUERY, Accept=RESULTS)
        rows = json.loads(text)["results"]["bindings"]
        return sorted([value["value"] for value in row.values()] for row in rows)

    url = await begin(cluster)
    await act(cluster, url, "ADD", '<urn:own> <urn:p> "own" .\n<urn:own> <urn:bulk> "own" .', Content_Type=QUADS)
    assert len(await named(url, "?s <urn:p> ?o")) == 11
    update = "INSERT { ?s <urn:q> ?o } WHERE { ?s <urn:p> ?o . GRAPH ?g { ?s <urn:r> ?o } }"
    await act(cluster, url, "UPDATE", update, 204, Content_Type=UPDATE)
    await act(cluster, url, "UPDATE", "DELETE WHERE { <urn:s1> ?p ?o }", 204, Content_Type=UPDATE)
    # What names the frequent predicate alone does not show in the others.
    await act(cluster, url, "UPDATE", "DELETE { ?s <urn:bulk> ?o } WHERE { ?s <urn:bulk> ?o FILTER(?o != 'own') }", 204,
              Content_Type=UPDATE)  # fmt: skip
    mine = {pattern: await named(url, pattern) for pattern in ("?s <urn:q> ?o", "?s <urn:p> ?o . ?s <urn:q> ?o", "")}
    assert [len(rows) for rows in mine.values()] == [4, 4, 1]
    line = await act(cluster, url, "GET&pred=%3Curn:q%3E&subj=%3Curn:s2%3E", Accept=QUADS)
    assert line == '<urn:s2> <urn:q> "2" .\n'
    for pattern in ("?s ?p ?o", "?s <urn:bulk> ?o"):
        text = f"SELECT * {{ {pattern} }}"
        said = await act(cluster, url, "QUERY", text, 409, Content_Type=QUERY, Accept=RESULTS)
        assert "read before writing, or name predicates that fewer have" in said
    assert "the repository is larger" in await act(cluster, url, "SIZE", status=409)
    assert await named(url, "?s <urn:q> ?o") == mine["?s <urn:q> ?o"]
    await act(cluster, url, "COMMIT")
    fresh = await begin(cluster)
    for pattern, rows in mine.items():
        assert await named(fresh, pattern) == rows, pattern


QUERY = "application/sparql-query"


async def test_who_asked_to_see_one_state_copies(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    url = await begin(served.cluster, query="?isolation-level=SERIALIZABLE")
    await act(served.cluster, url, "ADD", '<urn:s> <urn:p> "1" .', Content_Type=QUADS)
    assert await act(served.cluster, url, "SIZE") == "1"
    await served.send("POST", "/statements", '<urn:other> <urn:p> "x" .', Content_Type=QUADS)
    assert await act(served.cluster, url, "SIZE") == "1"
    other = await begin(served.cluster, query="?isolation-level=SNAPSHOT")
    await act(served.cluster, other, "ADD", '<urn:s> <urn:p> "1" .', Content_Type=QUADS)
    monkeypatch.setattr(transaction_view, "COPY_BYTES_MAX", 10)
    assert "begin it at READ_COMMITTED" in await act(served.cluster, other, "SIZE", status=409)


@pytest.mark.parametrize(
    ("action", "body", "kind", "status", "says"),
    [
        ("", "", QUADS, 400, "action="),
        ("JUMP", "", QUADS, 400, "action=JUMP"),
        ("ADD", "<urn:a>", QUADS, 400, "MALFORMED DATA"),
        ("ADD", "x", "image/png", 415, "Unsupported MIME type"),
        ("ADD", "<urn:a> <urn:b> <urn:txlog:system:1> .", QUADS, 400, "belong to TxLog"),
        ("DELETE", "_:a <urn:b> <urn:c>", QUADS, 400, "MALFORMED DATA"),
        ("UPDATE", "", UPDATE, 400, "must be non-empty"),
        ("UPDATE", "INSERT", UPDATE, 400, "MALFORMED QUERY"),
        ("QUERY", "", UPDATE, 415, "application/sparql-query"),
        ("QUERY&query=SELECT", "", UPDATE, 400, "MALFORMED QUERY"),
        ("QUERY&query=SELECT*%7BSERVICE%20%3Curn:x%3E%7B%7D%7D", "", UPDATE, 400, "SERVICE"),
        ("QUERY&query=ASK%7B%7D&Accept=image/png", "", UPDATE, 406, "there are"),
        ("GET&Accept=image/png", "", UPDATE, 406, "there are"),
        ("GET&subj=x", "", UPDATE, 400, "a term in N-Triples"),
        ("SIZE&context=x", "", UPDATE, 400, "an IRI in <>"),
    ],
)
async def test_what_is_wrong_is_said_and_ends_nothing(
    served: Served, action: str, body: str, kind: str, status: int, says: str
) -> None:
    url = await begin(served.cluster)
    await act(served.cluster, url, "ADD", '<urn:s> <urn:p> "1" .', Content_Type=QUADS)
    text = await act(served.cluster, url, action, body, status, Content_Type=kind)
    assert says in text
    assert "Traceback" not in text
    await act(served.cluster, url, "COMMIT")
    assert await served.quads() == ['<urn:s> <urn:p> "1" .']


async def test_what_is_no_transaction_is_said(one: Cluster) -> None:
    base = one.url(0, PATH)
    assert "not a valid transaction id" in await act(one, f"{base}/7", "PING", status=400)
    unknown = "unable to find registered connection for transaction id"
    assert unknown in await act(one, f"{base}/00000000-0000-0000-0000-000000000000", "PING", status=400)
    await act(one, f"{one.url(0, '/repositories/other/transactions')}/x", "PING", status=404)
    await act(one, f"{base}/x", "PING", status=405, method="PATCH")
    async with one.session.post(f"{base}?isolation-level=WILD") as answer:
        assert answer.status == 400
        assert "SERIALIZABLE" in await answer.text()
    setting = "transaction-setting__org.eclipse.rdf4j.common.transaction.IsolationLevel"
    await begin(one, data={setting: "SNAPSHOT"})
    await begin(one, query="?isolation-level=http://www.openrdf.org/schema/sesame%23SERIALIZABLE")


async def test_requests_of_one_transaction_take_turns(served: Served) -> None:
    url = await begin(served.cluster)
    lines = [f'<urn:s:{at}> <urn:p> "1" .' for at in range(20)]
    await asyncio.gather(*(act(served.cluster, url, "ADD", line, Content_Type=QUADS) for line in lines))
    await asyncio.gather(*(act(served.cluster, url, "SIZE") for _ in range(5)))
    await act(served.cluster, url, "COMMIT")
    assert await served.quads() == sorted(lines)


async def test_a_removal_says_from_where(served: Served) -> None:
    lines = [f"<urn:s> <urn:{p}> <urn:o>{g} ." for p in "pq" for g in ("", " <urn:g>", " <urn:h>")]
    for body, query, gone in (
        ("<urn:s> <urn:p> <urn:o> .", "", [0, 1, 2]),
        ("<urn:s> <urn:p> <urn:o> <urn:g> .", "", [1]),
        ("<urn:s> <urn:p> <urn:o> <urn:g> .", "&context=%3Curn:h%3E", [2]),
        (f"<urn:s> {WILDCARD} {WILDCARD} .", "&context=null", [0, 3]),
        (f"{WILDCARD} <urn:q> {WILDCARD} .", "", [3, 4, 5]),
        (f"{WILDCARD} {WILDCARD} {WILDCARD} <urn:h> .", "", [2, 5]),
        (f"{WILDCARD} {WILDCARD} {WILDCARD} .", "", [0, 1, 2, 3, 4, 5]),
    ):
        await served.send("PUT", "/statements", "\n".join(lines), Content_Type=QUADS)
        url = await begin(served.cluster)
        await act(served.cluster, url, f"DELETE{query}", body, Content_Type=QUADS)
        kept = sorted(line for at, line in enumerate(lines) if at not in gone)
        assert sorted((await act(served.cluster, url, "GET", Accept=QUADS)).splitlines()) == kept, body
        await act(served.cluster, url, "COMMIT")
        assert await served.quads() == kept, body


def test_a_removal_of_what_is_named_stays_quads() -> None:
    made = prepare_removal(b'<urn:s> <urn:p> "\\" <x> " <urn:g> .', QUADS, base=None, graphs=None)
    assert made.payload == b'D <urn:s> <urn:p> "\\" <x> " <urn:g> .\n'
