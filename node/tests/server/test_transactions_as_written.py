"""Transactions and evaluated updates of a master whose worker is a real RDF4J server that holds literals as sent."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from urllib.parse import quote

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "workers"))
from engines import kept_store
from master_cluster import Cluster, until
from rdf4j_process import AsWrittenProcess
from server_process import StoreProcess
from test_isolation_levels import KEY
from test_open_transactions import QUADS, RESULTS, UPDATE, act, begin
from worker_driver import Driver, Served

XSD = "http://www.w3.org/2001/XMLSchema#"
pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def store(request: pytest.FixtureRequest) -> StoreProcess:
    return kept_store(request.config, AsWrittenProcess)


@pytest.fixture
async def served(store: StoreProcess, clusters: Callable[..., Cluster]) -> AsyncIterator[Served]:
    store.clear()
    workers = [{"name": "w-1", "url": store.url, "engine": "rdf4j"}]  # a new cluster keeps forms by itself
    cluster = clusters(1, workers=workers, durability="applied", write_timeout_s=120.0)
    await cluster.start()
    driver = Driver(cluster.url(0), "w-1", store)
    yield Served(cluster, store, driver)
    await asyncio.to_thread(driver.close)  # its last question is answered on this loop


def _int(value: int) -> str:
    return f'<urn:s> <urn:p> "{value}"^^<{XSD}int> .'


async def _put(served: Served, *lines: str) -> None:
    await served.send("POST", "/statements", "\n".join(lines), Content_Type=QUADS)


async def _increment(cluster: Cluster, url: str) -> None:
    """As a Java client does: it reads a statement, removes it as it was read, and adds another."""
    read = await act(cluster, url, "GET", Accept=QUADS)
    [line] = read.splitlines()
    value = int(line.split('"')[1])
    assert line == _int(value)
    await act(cluster, url, "DELETE", line, Content_Type=QUADS)
    await act(cluster, url, "ADD", _int(value + 1), Content_Type=QUADS)


_TERMS = {"subj": "<urn:s>", "pred": "<urn:p>", "obj": f'"01"^^<{XSD}int>'}


@pytest.mark.parametrize("graphs", [(), ("<urn:g>",), ("null",), ("null", "<urn:g>")])
async def test_a_pattern_gives_what_it_matches_in_its_graphs(served: Served, graphs: tuple[str, ...]) -> None:
    """RDF4J's own search answers, which knows nothing of the marker's place and of forms."""
    literals = [f'"01"^^<{XSD}int>', f'"1"^^<{XSD}int>', '"x"@en-us', '"\\u00e9\\n"', "<urn:o>"]
    lines = [f"<urn:s> <urn:p> {term} {graph}." for term in literals for graph in ("", "<urn:g> ", "<urn:h> ")]
    await _put(served, *lines)
    everything = await served.quads()
    assert len(everything) == len(lines)
    for names in (("subj",), ("pred",), ("obj",), ("subj", "pred", "obj")):
        query = "&".join(f"{name}={quote(_TERMS[name])}" for name in names)
        query += "".join(f"&context={quote(graph)}" for graph in graphs)
        found = (await served.send("GET", f"/statements?{query}", status=200, Accept=QUADS)).splitlines()
        wanted = [line for line in everything if _graph_of(line) in (graphs or (_graph_of(line),))]
        wanted = [line for line in wanted if "obj" not in names or _TERMS["obj"] in line]
        assert sorted(found) == sorted(wanted), (names, graphs)
        assert found


def _graph_of(line: str) -> str:
    return next((name for name in ("<urn:g>", "<urn:h>") if line.endswith(f" {name} .")), "null")


@pytest.mark.parametrize("level", ["READ_COMMITTED", "SNAPSHOT", "SERIALIZABLE"])
async def test_what_a_transaction_reads_it_can_remove(served: Served, level: str) -> None:
    await _put(served, _int(1))
    url = await begin(served.cluster, data={KEY: level})
    await _increment(served.cluster, url)
    assert (await act(served.cluster, url, "GET", Accept=QUADS)).splitlines() == [_int(2)]
    await act(served.cluster, url, "COMMIT")
    assert await served.quads() == [_int(2)]


async def test_of_two_that_increment_one_value_one_counts(served: Served) -> None:
    await _put(served, _int(1))
    urls = [await begin(served.cluster, data={KEY: "SERIALIZABLE"}) for _ in range(2)]
    for url in urls:
        await _increment(served.cluster, url)
    await act(served.cluster, urls[0], "COMMIT")
    await act(served.cluster, urls[1], "COMMIT", status=409)
    assert await served.quads() == [_int(2)]


async def test_an_update_in_a_transaction_finds_values_and_keeps_forms(served: Served) -> None:
    other = f'<urn:s> <urn:p> "01"^^<{XSD}integer> .'
    await _put(served, _int(1), _int(7), other)
    url = await begin(served.cluster, data={KEY: "SNAPSHOT"})
    text = "DELETE { ?s <urn:p> ?o } INSERT { ?s <urn:q> ?o , 02 } WHERE { ?s <urn:p> ?o FILTER(?o < 7) }"
    await act(served.cluster, url, "UPDATE", text, 204, Content_Type=UPDATE)
    query = quote("SELECT (STR(?o) AS ?x) { ?s <urn:q> ?o } ORDER BY ?x")
    rows = json.loads(await act(served.cluster, url, f"QUERY&query={query}", Accept=RESULTS))["results"]["bindings"]
    assert [row["x"]["value"] for row in rows] == ["01", "02", "1"]
    await act(served.cluster, url, "COMMIT")
    moved = [line.replace("urn:p", "urn:q") for line in (_int(1), other, other.replace('"01"', '"02"'))]
    assert await served.quads() == sorted([_int(7), *moved])


async def test_an_update_that_is_evaluated_once_finds_values_and_keeps_forms(served: Served) -> None:
    await _put(served, _int(1), _int(7))
    text = (
        "DELETE { ?s <urn:p> ?o } INSERT { ?s <urn:q> ?o } "
        "WHERE { { SELECT ?s ?o { ?s <urn:p> ?o FILTER(?o >= 1) } ORDER BY ?o LIMIT 1 } }"
    )
    await served.send("POST", "/statements", text, Content_Type="application/sparql-update")
    assert await served.quads() == sorted([_int(1).replace("urn:p", "urn:q"), _int(7)])


async def test_an_update_waits_for_the_store_that_shows_what_was_computed_before(served: Served) -> None:
    """No copy knows in which form an engine writes a computed value."""
    reads = served.cluster.service(0).context.registry.reads
    await _put(served, _int(1), _int(7))
    await asyncio.to_thread(served.driver.pause)
    computed = "INSERT { ?s <urn:half> ?x } WHERE { ?s <urn:p> ?o BIND(?o / 2 AS ?x) }"
    await served.send(
        "POST", "/statements", computed, Content_Type="application/sparql-update", TxLog_Durability="synced"
    )
    text = "DELETE { ?s <urn:half> ?x } WHERE { { SELECT ?s ?x { ?s <urn:half> ?x } ORDER BY ?x LIMIT 1 } }"
    asked = asyncio.create_task(
        served.send("POST", "/statements", text, Content_Type="application/sparql-update", TxLog_Durability="synced")
    )
    await until(lambda: asked.done() or "w-1" in reads.worker_watermarks)
    assert not asked.done(), "it was refused"
    served.driver.resume()
    await asked
    await served.send("POST", "/statements", _int(9), Content_Type=QUADS)  # it is applied after all before
    assert [line for line in await served.quads() if "urn:half" in line] == [
        f'<urn:s> <urn:half> "3.5"^^<{XSD}decimal> .'
    ]
