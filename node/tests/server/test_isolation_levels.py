"""What each isolation level of RDF4J gives, as docs/reference/http-api.md says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from master_cluster import Cluster
from test_open_transactions import QUADS, RESULTS, UPDATE, act, begin
from worker_driver import Driver, OxigraphProcess, Served

from txlog.server.frontdoor import evaluator_pool, rdf4j_transactions, transaction_view
from txlog.server.frontdoor.rdf4j_transactions import ISOLATION_LEVELS

LOWER = [level for level in ISOLATION_LEVELS if level not in ("SNAPSHOT", "SERIALIZABLE")]
KEY = "transaction-setting__org.eclipse.rdf4j.common.transaction.IsolationLevel"


async def at(cluster: Cluster, level: str) -> str:
    return await begin(cluster, data={KEY: level})


async def values(cluster: Cluster, url: str, predicate: str) -> list[str]:
    query = f"PREFIX x: <urn:> SELECT ?o WHERE {{ ?s x:{predicate} ?o }} ORDER BY ?o"
    text = await act(cluster, url, "QUERY&query=" + quote(query), Accept=RESULTS)
    return [row["o"]["value"] for row in json.loads(text)["results"]["bindings"]]


async def put(served: Served, predicate: str, value: str, subject: str = "s") -> None:
    await served.send("POST", "/statements", f'<urn:{subject}> <urn:{predicate}> "{value}" .', Content_Type=QUADS)


@pytest.mark.parametrize("level", [*LOWER, ""])
async def test_lower_levels_read_what_is_committed(served: Served, level: str) -> None:
    await put(served, "p", "1")
    url = await (at(served.cluster, level) if level else begin(served.cluster))
    assert await values(served.cluster, url, "p") == ["1"]
    await put(served, "p", "2")
    assert await values(served.cluster, url, "p") == ["1", "2"]
    assert await act(served.cluster, url, "SIZE") == "2"
    await act(served.cluster, url, "UPDATE", 'INSERT DATA { <urn:s> <urn:p> "3" }', 204, Content_Type=UPDATE)
    assert await values(served.cluster, url, "p") == ["1", "2", "3"]
    await put(served, "p", "4")
    assert await values(served.cluster, url, "p") == ["1", "2", "3", "4"], "also beside its own writes"
    await act(served.cluster, url, "COMMIT")
    assert len(await served.quads()) == 4


@pytest.mark.parametrize("level", ["SNAPSHOT", "SERIALIZABLE"])
async def test_higher_levels_read_one_snapshot(served: Served, level: str) -> None:
    await put(served, "p", "1")
    url = await at(served.cluster, f"http://www.openrdf.org/schema/sesame#{level}")
    assert await values(served.cluster, url, "p") == ["1"]
    await put(served, "p", "2")
    assert await values(served.cluster, url, "p") == ["1"]
    assert await act(served.cluster, url, "SIZE") == "1"
    assert len((await act(served.cluster, url, "GET", Accept=QUADS)).splitlines()) == 1
    await act(served.cluster, url, "COMMIT")  # it has written nothing: it stands where it read
    assert len(await served.quads()) == 2


async def test_two_snapshots_that_overwrite_each_other_both_count(served: Served) -> None:
    await put(served, "p", "0")
    urls = [await at(served.cluster, "SNAPSHOT") for _ in range(2)]
    for number, url in enumerate(urls):
        assert await values(served.cluster, url, "p") == ["0"]
        update = f'DELETE {{ ?s <urn:p> ?o }} INSERT {{ ?s <urn:p> "{number}" }} WHERE {{ ?s <urn:p> ?o }}'
        await act(served.cluster, url, "UPDATE", update, 204, Content_Type=UPDATE)
    for url in urls:
        await act(served.cluster, url, "COMMIT")
    assert await served.quads() == ['<urn:s> <urn:p> "1" .']


UPDATES = {
    "data": 'INSERT DATA { <urn:t> <urn:%s> "%s" }',
    "a pattern": 'DELETE { ?s <urn:nothing> ?o } INSERT { <urn:t> <urn:%s> "%s" } WHERE { ?x <urn:p> ?y }',
    "a graph": 'DROP GRAPH <urn:g> ; INSERT DATA { <urn:t> <urn:%s> "%s" }',
}


@pytest.mark.parametrize("form", UPDATES)
async def test_serializable_refuses_a_write_skew(served: Served, form: str) -> None:
    """Each reads what the other writes: one after the other, the second would have read it."""
    await put(served, "p", "0")
    await put(served, "q", "0")
    one, two = [await at(served.cluster, "SERIALIZABLE") for _ in range(2)]
    assert await values(served.cluster, one, "p") == await values(served.cluster, two, "q") == ["0"]
    await act(served.cluster, one, "UPDATE", UPDATES[form] % ("q", "1"), 204, Content_Type=UPDATE)
    await act(served.cluster, two, "UPDATE", UPDATES[form] % ("p", "1"), 204, Content_Type=UPDATE)
    assert await values(served.cluster, two, "p") == ["0", "1"], "it sees its own"
    await act(served.cluster, one, "COMMIT")
    text = await act(served.cluster, two, "COMMIT", status=409)
    assert "have changed what this one has looked at" in text
    await act(served.cluster, two, "COMMIT", status=409)
    await act(served.cluster, two, "ROLLBACK", status=204)
    assert [line for line in await served.quads() if '"1"' in line] == ['<urn:t> <urn:q> "1" .']


@pytest.mark.parametrize(
    "action", [f"GET&pred={quote('<urn:p>')}", "GET", "SIZE", "QUERY&query=DESCRIBE%20%3Curn:s%3E"]
)
async def test_every_read_counts(served: Served, action: str) -> None:
    await put(served, "p", "0")
    url = await at(served.cluster, "SERIALIZABLE")
    await act(served.cluster, url, "ADD", '<urn:s> <urn:q> "mine" .', Content_Type=QUADS)
    await act(served.cluster, url, action)
    await put(served, "p", "1")
    await act(served.cluster, url, "COMMIT", status=409)


async def test_serializable_lets_pass_what_it_has_not_looked_at(served: Served) -> None:
    await put(served, "p", "0")
    url = await at(served.cluster, "SERIALIZABLE")
    assert await values(served.cluster, url, "p") == ["0"]
    await act(served.cluster, url, "ADD", "_:b <urn:q> _:b <urn:g> .", Content_Type=QUADS)
    await act(served.cluster, url, "DELETE", '<urn:s> <urn:p> "0" .', Content_Type=QUADS)
    await put(served, "other", "1")
    assert "takes none" in await act(served.cluster, url, "COMMIT", status=400, Idempotency_Key="k")
    await act(served.cluster, url, "COMMIT")
    lines = await served.quads()
    assert sorted(line.split(" ")[1] for line in lines) == ["<urn:other>", "<urn:q>"]
    await act(served.cluster, url, "COMMIT")
    assert sorted(await served.quads()) == sorted(lines), "it was answered about the first"


REPLACE = 'DELETE { ?s <urn:p> ?o } INSERT { ?s <urn:p> "2" } WHERE { ?s <urn:p> ?o }'


async def test_the_pattern_of_an_update_is_a_read(served: Served) -> None:
    await put(served, "p", "0")
    url = await at(served.cluster, "SERIALIZABLE")
    await act(served.cluster, url, "UPDATE", REPLACE, 204, Content_Type=UPDATE)
    await put(served, "p", "1")
    await act(served.cluster, url, "PREPARE", status=409)
    assert "Observed State has Changed" in await act(served.cluster, url, "COMMIT", status=409)
    assert len(await served.quads()) == 2


@pytest.mark.parametrize("level", [*LOWER, "SNAPSHOT"])
async def test_an_update_changes_what_it_found_when_it_was_sent(served: Served, level: str) -> None:
    """Also what blank nodes it made stays as it was read."""
    await put(served, "p", "0")
    url = await at(served.cluster, level)
    update = "INSERT { ?s <urn:q> ?o ; <urn:r> _:b } WHERE { ?s <urn:p> ?o }"
    await act(served.cluster, url, "UPDATE", update, 204, Content_Type=UPDATE)
    made = await act(served.cluster, url, f"GET&pred={quote('<urn:r>')}", Accept=QUADS)
    await put(served, "p", "1")
    found = ["0", "1"] if level in LOWER else ["0"]
    assert await values(served.cluster, url, "p") == found
    assert await values(served.cluster, url, "q") == ["0"]
    await act(served.cluster, url, "COMMIT")
    lines = await served.quads()
    assert [line for line in lines if "<urn:q>" in line] == ['<urn:s> <urn:q> "0" .']
    assert len([line for line in lines if "<urn:r>" in line]) == 1
    assert made.count("<urn:r>") == 1


async def test_an_update_that_cannot_be_copied_for_is_evaluated_in_the_log(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(served, "p", "0")
    monkeypatch.setattr(transaction_view, "COPY_BYTES_MAX", 10)
    for level in ("READ_COMMITTED", "SERIALIZABLE"):
        url = await at(served.cluster, level)
        await act(served.cluster, url, "UPDATE", REPLACE, 204, Content_Type=UPDATE)
        await put(served, "p", "1")
        await act(served.cluster, url, "COMMIT")
        assert await served.quads() == ['<urn:s> <urn:p> "2" .']


async def test_serializable_compares_what_was_read_and_not_only_its_predicates(served: Served) -> None:
    await put(served, "p", "0")
    urls = [await at(served.cluster, "SERIALIZABLE") for _ in range(3)]
    for number, url in enumerate(urls[:2]):
        await act(served.cluster, url, "ADD", f'<urn:n{number}> <urn:p> "1" .', Content_Type=QUADS)
        await act(served.cluster, url, f"GET&subj={quote(f'<urn:n{number}>')}", Accept=QUADS)
        await act(served.cluster, url, "QUERY&query=" + quote("ASK { <urn:s> <urn:p> ?o }"))
        await act(served.cluster, url, "UPDATE", REPLACE.replace("?s", f"<urn:n{number}>"), 204, Content_Type=UPDATE)
    assert await act(served.cluster, urls[2], "SIZE") == "1"
    await act(served.cluster, urls[2], "ADD", '<urn:n2> <urn:p> "1" .', Content_Type=QUADS)
    await act(served.cluster, urls[0], "COMMIT")
    await act(served.cluster, urls[1], "PREPARE")
    await act(served.cluster, urls[1], "COMMIT")
    await act(served.cluster, urls[2], "COMMIT", status=409)
    lines = ['<urn:n0> <urn:p> "2" .', '<urn:n1> <urn:p> "2" .', '<urn:s> <urn:p> "0" .']
    assert sorted(await served.quads()) == lines


async def test_a_copy_is_taken_from_who_can_have_another(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    await put(served, "p", "0")
    monkeypatch.setattr(rdf4j_transactions, "VIEWS_MAX", 1)
    lower, upper = await at(served.cluster, "READ_COMMITTED"), await at(served.cluster, "SNAPSHOT")
    await act(served.cluster, lower, "UPDATE", REPLACE, 204, Content_Type=UPDATE)
    assert await values(served.cluster, upper, "p") == ["0"]
    query = "QUERY&query=" + quote("ASK { ?s ?p ?o }")
    assert "read copies of their own" in await act(served.cluster, lower, query, status=503)
    await act(served.cluster, upper, "ROLLBACK", status=204)
    assert await values(served.cluster, lower, "p") == ["2"]


async def test_bounds_of_copies_are_said(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        await put(served, "p", f"{number}{'x' * 50}")
    url = await at(served.cluster, "SERIALIZABLE")
    assert len(await values(served.cluster, url, "p")) == 3
    await act(served.cluster, url, "ADD", '<urn:s> <urn:q> "1" .', Content_Type=QUADS)
    monkeypatch.setattr(evaluator_pool, "QUADS_READ_MAX", 2)
    assert "2 are possible" in await act(served.cluster, url, "COMMIT", status=409)
    monkeypatch.setattr(transaction_view, "COPY_BYTES_MAX", 100)
    url = await at(served.cluster, "SNAPSHOT")
    text = await act(served.cluster, url, "SIZE", status=409)
    assert "begin it at READ_COMMITTED" in text


async def test_where_nothing_is_evaluated_a_read_cannot_be_compared(
    clusters: Callable[..., Cluster], tmp_path: Path
) -> None:
    store = OxigraphProcess(tmp_path / "store")
    workers = [{"name": "w-1", "url": store.url}]
    cluster = clusters(1, workers=workers, durability="applied", non_deterministic_updates="refuse")
    await cluster.start()
    served = Served(cluster, store, Driver(cluster.url(0), "w-1", store))
    try:
        await put(served, "p", "0")
        url = await at(cluster, "SERIALIZABLE")
        assert await values(cluster, url, "p") == ["0"]
        await act(cluster, url, "ADD", '<urn:s> <urn:q> "1" .', Content_Type=QUADS)
        assert "begin it as SNAPSHOT" in await act(cluster, url, "COMMIT", status=409)
        assert len(await served.quads()) == 1
    finally:
        await asyncio.to_thread(served.driver.close)
        store.kill()


async def test_a_removal_of_what_another_has_changed_is_a_conflict(served: Served) -> None:
    """As a Java client increments a value: it reads a statement, removes it from all graphs, and adds another."""
    await put(served, "p", "1")
    urls = [await at(served.cluster, "SERIALIZABLE") for _ in range(2)]
    for url in urls:
        read = await act(served.cluster, url, "GET", Accept=QUADS)
        assert read.splitlines() == ['<urn:s> <urn:p> "1" .']
        await act(served.cluster, url, "DELETE", read, Content_Type=QUADS)
        await act(served.cluster, url, "ADD", '<urn:s> <urn:p> "2" .', Content_Type=QUADS)
    await act(served.cluster, urls[0], "COMMIT")
    assert "Observed State has Changed" in await act(served.cluster, urls[1], "COMMIT", status=409)
    assert await served.quads() == ['<urn:s> <urn:p> "2" .']
