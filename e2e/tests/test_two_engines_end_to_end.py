"""One cluster, two engines: what is written at either master is the same in an Oxigraph and in a store of the other
engine, and each of them answers clients."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from e2e.lib.cluster.local import LocalCluster, cluster_up, run_txlog
from e2e.lib.load.requests import WriteProber, http_get, write_one
from txlog.cli.content_verification import compare_contents
from txlog.client import MasterClient
from txlog.local.engines.fuseki_server import obtain_fuseki
from txlog.local.engines.rdf4j_server import obtain_rdf4j
from txlog.wire.divergence_report import DivergenceFinding
from txlog.workers import ADAPTERS
from txlog.workers.http_transport import HttpTransport

ROOT = Path(__file__).parents[2]
XSD = "http://www.w3.org/2001/XMLSchema#"
ALL = "SELECT ?s ?p { ?s ?p ?o } ORDER BY ?s ?p"
GRAPHS = "SELECT ?g (COUNT(*) AS ?n) { GRAPH ?g { ?s ?p ?o } } GROUP BY ?g ORDER BY ?g"
BOTH = "SELECT ?s ?g { ?s <urn:e2e:name> ?n GRAPH ?g { ?s ?p ?o } } ORDER BY ?s ?g"
QUADS = f"""\
<urn:e2e:a> <urn:e2e:name> "01"^^<{XSD}int> .
<urn:e2e:a> <urn:e2e:name> "1.10"^^<{XSD}decimal> .
<urn:e2e:a> <urn:e2e:name> "x"@EN-us <urn:e2e:g> .
<urn:e2e:b> <urn:e2e:when> "2020-01-02T03:04:05+00:00"^^<{XSD}dateTime> <urn:e2e:g> .
<urn:e2e:b> <urn:e2e:size> "2.5e-3"^^<{XSD}double> <urn:e2e:h> .
"""


@pytest.mark.cluster
@pytest.mark.spark
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("engine", "example"),
    [("fuseki", "two-engines"), pytest.param("rdf4j", "two-engines-rdf4j", marks=pytest.mark.long)],
)
def test_an_oxigraph_and_another_engine_in_one_cluster(engine: str, example: str, tmp_path: Path) -> None:
    fetched(tmp_path, engine)  # before anything is timed
    folder = tmp_path / "state"
    with cluster_up(folder, (ROOT / "examples" / example,)) as cluster:
        cluster.wait_applying(180)
        engines = {worker.name: worker.engine for worker in cluster.topology.workers}
        assert engines == {"uk-worker-1": "oxigraph", "us-worker-1": engine}
        uk, us = (cluster.master_of(dc) for dc in cluster.topology.data_centers)
        prober = WriteProber(us, cluster.repository, "applied-all")
        assert prober.write(QUADS.encode()) is not None
        prober.close()
        copy = "INSERT { GRAPH <urn:e2e:copy> { ?s <urn:e2e:copied> ?o } } WHERE { GRAPH ?g { ?s ?p ?o } }"
        once = "INSERT { ?s <urn:e2e:id> ?id } WHERE { ?s <urn:e2e:name> ?n BIND(STRUUID() AS ?id) }"
        for master, text in ((uk, copy), (us, once), (uk, "DELETE DATA { <urn:e2e:a> <urn:e2e:name> 1.1 }")):
            assert write_one(master, cluster.repository, text, "applied-all")["txlog-durability"] == "applied-all"
        _both_answer_the_same(cluster, uk, us)
        verdict = compare_contents(cluster.masters_by_data_center)
        assert verdict.equal
        assert {each.worker.engine for each in verdict.workers} == {"oxigraph", engine}
        assert {each.digest.quads for each in verdict.workers if each.digest} == {10}
        told = json.loads(run_txlog("verify", "--state", folder, "--json"))
        assert told["equal"] is True
        _a_quad_that_one_of_them_has_alone_is_found(cluster, uk, us)


def _a_quad_that_one_of_them_has_alone_is_found(cluster: LocalCluster, uk: str, us: str) -> None:
    """Nobody but the Oxigraph of the other data centre can contradict it: by the next write it stands at a position at
    which it was not seen before."""
    place = next(worker for worker in cluster.topology.workers if worker.name == "us-worker-1")
    adapter, planted = ADAPTERS[place.engine], b"<urn:e2e:planted> <urn:e2e:name> <urn:e2e:a> <urn:e2e:g> ."
    with HttpTransport(place.url, 60.0) as transport:
        assert transport.send(adapter.load(planted + b"\n")).ok
        write_one(uk, cluster.repository, "INSERT DATA { <urn:e2e:c> <urn:e2e:name> 1 }", "applied-all")
        found = _await_divergence(us, "us-worker-1", lambda known: known is not None)
        assert found is not None
        assert found.graphs == ["urn:e2e:g"]
        if not found.wrong:  # a look between the planting and the write is the other way to know it
            other = _await_divergence(uk, "uk-worker-1", lambda known: known is not None)
            assert other is not None
            assert (other.wrong, other.graphs) == (False, ["urn:e2e:g"])
        assert transport.send(adapter.delete_quads([planted], [])).ok
    for master, name in ((uk, "uk-worker-1"), (us, "us-worker-1")):
        _await_divergence(master, name, lambda known: known is None)


def _await_divergence(
    master: str, name: str, wanted: Callable[[DivergenceFinding | None], bool]
) -> DivergenceFinding | None:
    until = time.monotonic() + 60
    with MasterClient(master, 10.0) as client:
        while time.monotonic() < until:
            known = next(worker for worker in client.workers() if worker.name == name).divergence
            if wanted(known):
                return known
            time.sleep(0.1)
    raise AssertionError(f"{name}: {known}")


def fetched(folder: Path, engine: str) -> None:
    obtain_fuseki() if engine == "fuseki" else obtain_rdf4j(folder)


def _both_answer_the_same(cluster: LocalCluster, uk: str, us: str) -> None:
    path = f"/repositories/{quote(cluster.repository)}"
    for question in (ALL, GRAPHS, BOTH):
        answers = [cluster.query(master, question) for master in (uk, us)]
        assert answers[0] == answers[1]
        assert answers[0]
    for what, accept in (("/size", "text/plain"), ("/contexts", "text/csv"), ("/statements", "application/n-quads")):
        said = [sorted(http_get(master, path + what, accept, 30).decode().split("\n")) for master in (uk, us)]
        assert said[0] == said[1], what
        assert "txlog:system" not in "".join(said[1])
    triples = http_get(us, f"{path}/statements", "application/n-triples", 30).decode()
    assert triples.count("\n") > 5
    assert "txlog:system" not in triples
    trig = http_get(us, f"{path}/statements", "application/trig", 30).decode()
    assert "urn:e2e:copied" in trig
    assert "txlog:system" not in trig
