"""The read side and the feed, with a real store that the apply core brings up to the log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from master_cluster import Cluster, until
from worker_driver import Served

from txlog.model.entry import KIND_UPDATE
from txlog.server.frontdoor import update_request
from txlog.sparql import TransactionBody
from txlog.wire.log_page import MEDIA_TYPE, decode_page

REPO = "/repositories/demo"
STATEMENTS = f"{REPO}/statements"
JSON = {"Accept": "application/json"}
RESULTS = {"Accept": "application/sparql-results+json"}
APPLIED = {"TxLog_Durability": "applied", "Prefer": "wait=30"}


def insert(what: object, graph: str = "") -> str:
    triple = f'<urn:s:{what}> <urn:p> "o"'
    return f"INSERT DATA {{ {f'GRAPH <{graph}> {{ {triple} }}' if graph else triple} }}"


async def test_applied_can_be_read_at_every_master(served: Served) -> None:
    told = await served.cluster.write(0, insert(1), **APPLIED)
    assert told["TxLog-Durability"] in ("applied", "applied-all")
    for at in (0, 1):
        rows = await served.ask(at, "SELECT ?s { ?s <urn:p> ?o }", TxLog_Min_Position=told["TxLog-Position"])
        assert [row["s"]["value"] for row in rows] == ["urn:s:1"]
    other = await served.cluster.write(1, insert(2), **APPLIED)
    index = other["TxLog-Position"].split(":")[1]
    assert len(await served.ask(1, "SELECT ?s { ?s <urn:p> ?o }", TxLog_Min_Position=index)) == 2


async def test_nothing_of_ours_is_ever_shown(served: Served) -> None:
    await served.cluster.write(0, insert(1), **APPLIED)
    await served.cluster.write(0, insert(2, "urn:g"), **APPLIED)
    assert any("urn:txlog:system" in graph for graph in served.store.graphs())
    get = served.cluster.get
    assert await get(0, f"{REPO}/size") == "2"
    assert await get(0, f"{REPO}/size", params={"context": "null"}) == "1"
    assert await get(0, f"{REPO}/size", params={"context": "<urn:g>,null"}) == "2"
    assert await get(0, f"{REPO}/contexts", headers={"Accept": "text/csv"}) == "contextID\r\nurn:g\r\n"
    for text in ("SELECT DISTINCT ?g { GRAPH ?g {} }", "SELECT ?g { GRAPH ?g { ?s ?p ?o } }"):
        assert [row["g"]["value"] for row in await served.ask(0, text)] == ["urn:g"]
    for form in ("application/n-quads", "application/trig", "text/turtle", "application/n-triples"):
        text = await get(0, STATEMENTS, headers={"Accept": form})
        assert "urn:s:1" in text
        assert "urn:txlog" not in text
    await get(0, REPO, 400, params={"query": "SELECT * FROM <urn:txlog:system:1> { ?s ?p ?o }"})
    await get(0, REPO, 400, params={"query": "ASK {}", "named-graph-uri": "urn:txlog:system:1"})
    await get(0, STATEMENTS, 400, params={"context": "<urn:txlog:system:1>"})


async def test_statements_by_pattern(served: Served) -> None:
    await served.cluster.write(0, f"{insert(1)}; {insert(1, 'urn:g')}; {insert(2, 'urn:h')}", **APPLIED)
    for form, first in (("application/n-quads", 2), ("application/n-triples", 1)):

        async def count(form: str = form, **params: str) -> int:
            text = await served.cluster.get(0, STATEMENTS, params=params, headers={"Accept": form})
            return len(text.splitlines())

        assert await count(subj="<urn:s:1>") == first
        assert await count(context="<urn:h>") == 1
        assert await count(obj='"o"', context="null") == 1
        assert await count(pred="<urn:q>") == 0
    for wrong in ({"subj": "urn:s"}, {"context": "urn:g"}):
        await served.cluster.get(0, STATEMENTS, 400, params=wrong)
    await served.cluster.get(0, STATEMENTS, 406, headers={"Accept": "image/png"})
    part = {"params": {"subj": "<urn:s:1>", "context": "<urn:g>"}}
    assert "urn:g" in await served.cluster.get(0, STATEMENTS, headers={"Accept": "application/trig"}, **part)


async def test_every_way_to_ask(served: Served) -> None:
    await served.cluster.write(0, insert(1, "urn:g"), **APPLIED)
    post, get = served.cluster.post, served.cluster.get
    ask = "ASK { <urn:s:1> ?p ?o }"
    for prefix in ("", "/rdf4j-server"):
        assert (await get(0, prefix + REPO, params={"query": ask}, headers=RESULTS))["boolean"]
        query = {"Content-Type": "application/sparql-query", **RESULTS}
        assert (await post(0, prefix + REPO, ask, 200, headers=query))["boolean"]
        assert (await post(0, prefix + REPO, {"query": ask}, 200, headers=RESULTS))["boolean"]
        assert await get(0, f"{prefix}/protocol") == "12"
        rows = (await get(0, f"{prefix}/repositories", headers=RESULTS))["results"]["bindings"]
        assert [row["id"]["value"] for row in rows] == ["demo"]
    assert await get(0, REPO, params={"query": ask}, headers={"Accept": "text/boolean"}) == "true"
    only = {"query": ask, "default-graph-uri": "null"}
    assert not (await get(0, REPO, params=only, headers=RESULTS))["boolean"]
    one = {"query": ask, "default-graph-uri": "urn:g"}
    assert (await get(0, REPO, params=one, headers=RESULTS))["boolean"]
    for form, begins in (("text/csv", "uri,id"), ("application/sparql-results+xml", "<?xml")):
        assert (await get(0, "/repositories", headers={"Accept": form})).startswith(begins)
    await get(0, "/repositories", 406, headers={"Accept": "image/png"})


@pytest.mark.parametrize(
    ("params", "headers", "status", "says"),
    [
        ({}, {}, 400, "Missing parameter: query"),
        ({"query": "SELECT nonsense"}, {}, 400, "MALFORMED QUERY"),
        ({"query": "ASK {}", "queryLn": "serql"}, {}, 400, "Unknown query language: serql"),
        ({"query": "ASK {}", "limit": "x"}, {}, 400, "limit"),
        ({"query": "ASK {}", "$x": "urn:x"}, {}, 400, "$x"),
        ({"query": "ASK {}", "timeout": "soon"}, {}, 400, "timeout"),
        ({"query": "ASK {}"}, {"Accept": "image/png"}, 406, ""),
        ({"query": "ASK {}"}, {"TxLog-Min-Position": "here"}, 400, "TxLog-Min-Position"),
        ({"query": "ASK {}"}, {"TxLog-Min-Position": "1:99:" + 32 * "0", "Prefer": "wait=0.1"}, 503, "99"),
        ({"query": "ASK {}"}, {"TxLog-Min-Position": "1:1:" + 32 * "0"}, 409, "hash"),
    ],
)
async def test_reads_that_cannot_be_answered(
    served: Served, params: dict[str, str], headers: dict[str, str], status: int, says: str
) -> None:
    await served.cluster.write(0, insert(1), **APPLIED)
    text = await served.cluster.get(0, REPO, status, params=params, headers=headers)
    assert says in text
    assert "Traceback" not in text


async def test_a_post_of_another_type_is_415_and_other_repositories_are_404(served: Served) -> None:
    await served.cluster.post(0, REPO, "ASK {}", 415, headers={"Content-Type": "text/html"})
    for path in ("", "/size", "/contexts", "/statements"):
        await served.cluster.get(0, f"/repositories/other{path}", 404, params={"query": "ASK {}"})


async def test_no_worker_is_503(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1, workers=[{"name": "w-1", "url": "http://127.0.0.1:9"}])
    await cluster.start()
    async with cluster.session.get(cluster.url(0, REPO), params={"query": "ASK {}"}) as answer:
        assert answer.status == 503
        assert answer.headers["Retry-After"]


async def test_a_large_answer_is_streamed(served: Served) -> None:
    body = "".join(f'<urn:s:{n}> <urn:p> "{"x" * 200}" .\n' for n in range(20_000))
    await served.cluster.post(
        0, STATEMENTS, body, 204, headers={"Content-Type": "application/n-triples", "Prefer": "wait=60"}
    )
    async with served.cluster.session.get(
        served.cluster.url(0, STATEMENTS), headers={"Accept": "application/n-quads"}
    ) as r:
        assert r.headers.get("Transfer-Encoding") == "chunked"
        assert (await r.text()).count("\n") == 20_000


async def test_what_a_worker_refuses_is_409_with_its_answer_and_the_log_goes_on(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Poison: every reachable worker says no to it alone, so the master on duty skips it."""
    poison = "DROP GRAPH <urn:not:there>"
    with monkeypatch.context() as patched:  # the door itself would make it SILENT
        patched.setattr(
            update_request, "prepare_update", lambda *_, **__: TransactionBody(KIND_UPDATE, poison.encode(), 1)
        )
        told = await served.cluster.write(1, poison, 409, **APPLIED)
    assert "uk/w-1" in told["body"]
    assert "urn:not:there" in told["body"]
    txid = told["TxLog-Transaction"]
    after = await served.cluster.write(0, insert("after"), **APPLIED)
    assert after["TxLog-Durability"] in ("applied", "applied-all")
    for at in (0, 1):

        async def skipped(at: int = at) -> Any:
            state = await served.cluster.get(at, f"/txlog/transactions/{txid}")
            return state if state["state"] == "skipped" else None

        await until(skipped)
    state = await served.cluster.get(0, f"/txlog/transactions/{txid}")
    assert state["workers"]["uk/w-1"]["status"]
    page = await served.cluster.get(0, "/txlog/log?after=0", headers=JSON)
    by_txid = {entry["txid"]: entry for entry in page["entries"]}
    assert by_txid[txid]["noop"] == "skip"
    assert [entry["kind"] for entry in page["entries"]].count("skip") == 1


async def test_a_skip_by_hand(served: Served) -> None:
    await asyncio.to_thread(served.driver.pause)
    told = await served.cluster.write(0, insert(1), TxLog_Durability="synced")
    txid = told["TxLog-Transaction"]
    await served.cluster.post(0, "/txlog/skip/nonsense", b"", 400)
    await served.cluster.post(0, "/txlog/skip/uk-1.00000000000000ff.9", b"", 404)
    done = await served.cluster.post(0, f"/txlog/skip/{txid}", b'{"reason":"test"}', 200)
    assert done["state"] == "skipped"
    await served.cluster.post(0, f"/txlog/skip/{txid}", b"", 409)
    served.driver.resume()
    await served.cluster.write(0, insert(2), **APPLIED)
    assert [row["s"]["value"] for row in await served.ask(0, "SELECT ?s { ?s <urn:p> ?o }")] == ["urn:s:2"]


async def test_pages_are_bounded_and_checked(one: Cluster) -> None:
    payload = "x" * 1000
    for n in range(30):
        await one.write(0, f'INSERT DATA {{ <urn:s:{n}> <urn:p> "{payload}" }}')
    async with one.session.get(one.url(0, "/txlog/log?after=0&maxBytes=5000")) as answer:
        assert answer.content_type == MEDIA_TYPE
        page = decode_page("test", await answer.read())
    assert 1 < len(page.entries) < 8
    seen = 0
    digest = ""
    while seen < 30:
        path = f"/txlog/log?after={seen}&maxBytes=5000&upto=29" + (f"&hash={digest}" if digest else "")
        entries = (await one.get(0, path, headers=JSON))["entries"]
        if not entries:
            break
        assert [e["index"] for e in entries] == list(range(seen + 1, seen + 1 + len(entries)))
        seen, digest = entries[-1]["index"], entries[-1]["hash"]
    assert seen == 29
    wrong = 32 * "0"
    assert (await one.get(0, f"/txlog/log?after=5&hash={wrong}", 409))["reason"] == "Diverged"
    assert (await one.get(0, f"/txlog/log?after=31&hash={wrong}", 409))["reason"] == "Ahead"
    await one.get(0, f"/txlog/log?after=0&hash={wrong}", headers=JSON)
    for bad in ("after=-1", "after=x", "after=0&hash=zz", "after=0&maxBytes=0"):
        await one.get(0, f"/txlog/log?{bad}", 400)
    await one.get(0, "/txlog/log?after=0", 406, headers={"Accept": "image/png"})


async def test_pages_hold_interleaved_origins_and_serve_others_meanwhile(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(2)
    await cluster.start()
    body = b"".join(b'{"quads":"<urn:a> <urn:p> \\"%d\\" ."}\n' % n for n in range(500))
    await asyncio.gather(
        *(
            cluster.post(n % 2, "/txlog/transactions", body, 200, headers={"TxLog-Durability": "synced"})
            for n in range(8)
        )
    )
    await until(lambda: cluster.service(1).loop.durability.stable.value == 4000)
    pages = [await cluster.get(at, "/txlog/log?after=0&maxBytes=8000000", headers=JSON) for at in (0, 1)]
    assert len(pages[0]["entries"]) == 4000
    assert pages[0] == pages[1]


async def test_the_doorbell_rings_for_news_and_for_who_is_behind(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1, workers=[{"name": "w-1", "url": "http://127.0.0.1:9"}])
    await cluster.start()
    waiting = asyncio.ensure_future(cluster.get(0, "/txlog/doorbell?after=0&tick=1000000&timeout=0.1"))
    assert (await waiting)["stable"]["index"] == 0
    tick = cluster.service(0).context.registry.doorbell.tick
    await cluster.write(0, insert(1))
    told = await cluster.get(0, f"/txlog/doorbell?after=0&tick={tick}")
    assert told["stable"]["index"] == 1
    first = await cluster.get(0, f"/txlog/doorbell?after=1&tick={told['tick']}&timeout=30")
    assert first["tick"] > told["tick"]
    place = {**told["stable"], "fence": 0}
    report = {"position": place, "state": "Working"}
    assert await cluster.post(0, "/txlog/workers/w-1", _json(report), 200) == {"hold": None}
    assert (await cluster.get(0, "/txlog/workers"))["workers"][0]["position"]["index"] == 1
    quiet = cluster.service(0).context.registry.doorbell.tick
    began = time.monotonic()
    told = await cluster.get(0, f"/txlog/doorbell?after=1&tick={quiet}&timeout=0.6")
    assert time.monotonic() - began >= 0.55
    assert told["tick"] == quiet


async def test_holds_and_reports(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1, workers=[{"name": "w-1", "url": "http://127.0.0.1:9"}])
    await cluster.start()
    report = _json({"position": None, "state": "Working"})
    await cluster.post(0, "/txlog/workers/w-9", report, 404)
    await cluster.post(0, "/txlog/workers/w-1", b"{}x", 400)
    await cluster.post(0, "/txlog/workers/w-1", _json({"state": "Sleepy"}), 400)
    async with cluster.session.put(cluster.url(0, "/txlog/holds/w-1"), data=b'{"index":7}') as answer:
        assert answer.status == 200
    assert await cluster.post(0, "/txlog/workers/w-1", report, 200) == {"hold": 7}
    assert (await cluster.get(0, "/txlog/doorbell?after=0&timeout=0"))["workers"][0]["hold"] == 7
    async with cluster.session.delete(cluster.url(0, "/txlog/holds/w-1")) as answer:
        assert answer.status == 200
    assert await cluster.post(0, "/txlog/workers/w-1", report, 200) == {"hold": None}
    async with cluster.session.put(cluster.url(0, "/txlog/holds/w-9"), data=b'{"index":7}') as answer:
        assert answer.status == 404


async def test_a_worker_on_another_branch_is_never_asked(served: Served) -> None:
    await served.cluster.write(0, insert(1), **APPLIED)
    await asyncio.to_thread(served.driver.pause)
    registry = served.cluster.service(0).context.registry
    registry.report("w-1", _json({"position": {"epoch": 1, "index": 1, "hash": 32 * "0"}, "state": "Working"}))
    assert served.cluster.service(0).loop.durability.applied.value == 0
    await served.cluster.get(0, REPO, 503, params={"query": "ASK {}"})


async def test_health_and_plain_errors(one: Cluster) -> None:
    for kind in ("live", "ready", "startup"):
        await one.get(0, f"/health/{kind}")
    assert (await one.get(0, "/txlog/nothing", 404))["error"] == "NotFound"
    await one.get(0, "/nothing", 404)
    await one.post(0, "/txlog/log", b"", 405)
    assert "txlog_stable_index 0.0" in await one.get(0, "/metrics")


def _json(value: Any) -> bytes:
    import json

    return json.dumps(value).encode()


async def test_parameters_change_what_is_asked(served: Served) -> None:
    await served.cluster.write(0, f"{insert(1)}; {insert(2)}; {insert(3, 'urn:g')}", **APPLIED)

    async def rows(status: int = 200, **params: str) -> list[str]:
        more = {name.replace("_", "-"): value for name, value in params.items() if name != "s"}
        more |= {"$s": params["s"]} if "s" in params else {}
        asked = {"query": "SELECT ?s { ?s <urn:p> ?o } ORDER BY ?s", **more}
        told = await served.cluster.get(0, REPO, status, params=asked, headers=RESULTS)
        return [row["s"]["value"][-1] for row in told["results"]["bindings"]] if status == 200 else [told]

    assert await rows() == ["1", "2", "3"]
    assert await rows(s="<urn:s:2>") == ["2"]
    assert await rows(limit="1", offset="1", infer="true", timeout="60") == ["2"]
    assert await rows(distinct="true") == ["1", "2", "3"]
    assert await rows(default_graph_uri="urn:g") == ["3"]
    assert await rows(default_graph_uri="null") == ["1", "2"]
    for wrong in (
        {"s": "x"},
        {"s": "<urn:txlog:system:1>"},
        {"limit": "-1"},
        {"explain": "true"},
        {"queryLn": "SeRQL"},
    ):
        assert "Traceback" not in (await rows(400, **wrong))[0]
    several = [("default-graph-uri", "null"), ("default-graph-uri", "urn:g")]
    text = "SELECT (COUNT(*) AS ?n) { ?s ?p ?o }"
    accept = {"Accept": "text/csv"}
    assert await served.cluster.get(0, REPO, params=[("query", text), *several], headers=accept) == "n\r\n3\r\n"
    await served.cluster.get(0, REPO, 400, params=[("query", "ASK { ?s <urn:p>+ ?o }"), *several])
    update = {"update": "INSERT { ?s <urn:q> ?o } WHERE { ?s <urn:p> ?o }", "$s": "<urn:s:3>"}
    graphs = {"using-graph-uri": "urn:g", "insert-graph-uri": "urn:h"}
    await served.cluster.post(0, STATEMENTS, {**update, **graphs})
    assert 'urn:s:3> <urn:q> "o" <urn:h>' in await served.cluster.get(0, STATEMENTS, params={"context": "<urn:h>"})
    for bad in ({"using-graph-uri": "rel"}, {"insert-graph-uri": "urn:txlog:system:1"}, {"queryLn": "SeRQL"}):
        await served.cluster.post(0, STATEMENTS, {**update, **bad}, 400)


async def test_a_query_that_takes_too_long_is_503(served: Served) -> None:
    await served.cluster.write(0, "; ".join(insert(at) for at in range(300)), **APPLIED)
    slow = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l FILTER(STR(?a) < STR(?j)) }"
    text = await served.cluster.get(0, REPO, 503, params={"query": slow, "timeout": "1"})
    assert "longer than 1 s" in text
