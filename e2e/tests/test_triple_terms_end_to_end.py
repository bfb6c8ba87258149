"""Triple terms of RDF 1.2, through a real master into real stores and back: kept where the engine has them, refused by
name elsewhere, before anything is logged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pyoxigraph as ox
import pytest

from e2e.lib.cluster.harness import MasterHarness, StoreKind, start_master_harness

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

TERM = '<<( <urn:s> <urn:q> "x"@en )>>'
DEEP = f"<<( <urn:s> <urn:q> {TERM} )>>"
QUADS = {
    f"<urn:a> <urn:p> {TERM} .",
    f"<urn:a> <urn:p> {DEEP} <urn:g> .",
    "<urn:a> <urn:p> <<( <urn:s> <urn:q> <urn:g> )>> .",
    '<urn:a> <urn:d> "x"@en--ltr .',
}
TURTLE_STAR = '<urn:b> <urn:p> << <urn:s> <urn:q> "<<" >> .'
SUBJECTS = (
    ("text/x-turtlestar", b"<< <urn:s> <urn:q> 1 >> <urn:p> <urn:a> ."),
    ("text/x-turtlestar", b"<urn:s> <urn:q> 1 {| <urn:p> <urn:a> |} ."),
    ("text/turtle", b"<<( <urn:s> <urn:q> 1 )>> <urn:p> <urn:a> ."),
    ("application/n-triples", b'<<( <urn:s> <urn:q> "1" )>> <urn:p> <urn:a> .'),
)
UPDATES = (
    f"INSERT DATA {{ <urn:a> <urn:p> {TERM} }}",
    "INSERT { ?s <urn:r> <<( ?s ?p <urn:z> )>> } WHERE { ?s ?p <urn:z> }",
    "DELETE WHERE { ?s <urn:p> <<( ?x ?y ?z )>> }",
    "INSERT { ?s <urn:r> ?t } WHERE { ?s ?p ?o BIND(TRIPLE(?s, ?p, ?o) AS ?t) }",
)


@pytest.fixture(scope="module", params=["oxigraph", "fuseki"])
def at(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MasterHarness]:
    stores = {"one": StoreKind.DISK if request.param == "oxigraph" else StoreKind.FUSEKI}
    with start_master_harness(tmp_path_factory.mktemp(request.param), stores, ("one",)) as found:
        yield found


@pytest.fixture
def empty(at: MasterHarness) -> MasterHarness:
    assert _delete(at, "/statements") == 204
    return at


def _delete(at: MasterHarness, path: str) -> int:
    return at.exchange("DELETE", path, b"", {"TxLog-Durability": "synced"})[0]


def _post(at: MasterHarness, media: str, body: bytes | str) -> tuple[int, str]:
    text = body.encode() if isinstance(body, str) else body
    status, _, answer = at.exchange("POST", "/statements", text, {"Content-Type": media, "TxLog-Durability": "synced"})
    return status, answer.decode()


def _get(at: MasterHarness, path: str, accept: str) -> str:
    at.apply_all(*at.stores)
    status, _, body = at.exchange("GET", path, b"", {"Accept": accept})
    assert status == 200, body
    return body.decode()


def _quads(at: MasterHarness) -> set[str]:
    return set(_get(at, "/statements", "application/n-quads").splitlines())


def test_what_is_written_is_what_is_read(empty: MasterHarness) -> None:
    assert _post(empty, "application/n-quads", "\n".join(QUADS)) == (204, "")
    assert _quads(empty) == QUADS
    assert _post(empty, "text/x-turtlestar", TURTLE_STAR) == (204, "")
    assert '<urn:b> <urn:p> <<( <urn:s> <urn:q> "<<" )>> .' in _quads(empty)
    star = _get(empty, "/statements?context=null", "text/x-turtlestar")
    assert '<urn:b> <urn:p> <<<urn:s> <urn:q> "<<">> .' in star
    for accept, form in (("text/turtle", ox.RdfFormat.TURTLE), ("application/trig", ox.RdfFormat.TRIG)):
        found = {str(quad.triple) for quad in ox.parse(_get(empty, "/statements", accept), form)}
        assert f"<urn:a> <urn:p> {DEEP}" in found


def test_queries_find_them_in_every_format_of_results(empty: MasterHarness) -> None:
    assert _post(empty, "application/n-quads", "\n".join(QUADS))[0] == 204
    query = f"?query={quote('SELECT ?o { ?s <urn:p> ?o . FILTER(isTRIPLE(?o)) } ORDER BY STR(OBJECT(?o))')}"
    rows = json.loads(_get(empty, query, "application/sparql-results+json"))["results"]["bindings"]
    assert [row["o"]["type"] for row in rows] == ["triple"] * 3
    assert TERM in _get(empty, query, "text/tab-separated-values")
    xml = ox.parse_query_results(_get(empty, query, "application/sparql-results+xml"), ox.QueryResultsFormat.XML)
    assert isinstance(xml, ox.QuerySolutions)
    assert {f"<<( {row[0]} )>>" for row in xml} >= {TERM, DEEP}
    inside = f"?query={quote('SELECT ?z { ?s <urn:p> <<( ?x <urn:q> ?z )>> . FILTER(isLITERAL(?z)) }')}"
    assert '"x"@en' in _get(empty, inside, "text/tab-separated-values")
    made = f"?query={quote('CONSTRUCT { ?o <urn:of> ?t } { ?o <urn:p> ?t }')}"
    assert f"<urn:a> <urn:of> {TERM} ." in _get(empty, made, "application/n-triples")


def test_statements_are_matched_and_removed_by_them(empty: MasterHarness) -> None:
    assert _post(empty, "application/n-quads", "\n".join(QUADS))[0] == 204
    for text in (TERM, '<<<urn:s> <urn:q> "x"@en>>'):
        one = f"/statements?obj={quote(text)}"
        assert _get(empty, one, "application/n-quads") == f"<urn:a> <urn:p> {TERM} .\n"
    assert _delete(empty, f"/statements?obj={quote(TERM)}") == 204
    assert _quads(empty) == QUADS - {f"<urn:a> <urn:p> {TERM} ."}
    status, answer = empty.request("GET", f"/statements?obj={quote('<< <urn:s> >>')}")[:2]
    assert (status, "a triple term" in answer) == (400, True)


def test_updates_name_them(empty: MasterHarness) -> None:
    for text in UPDATES[:1]:
        assert _post(empty, "application/sparql-update", text) == (204, "")
    assert _post(empty, "text/turtle", "<urn:a> <urn:k> <urn:z> .")[0] == 204
    assert _post(empty, "application/sparql-update", UPDATES[1]) == (204, "")
    made = "<urn:a> <urn:r> <<( <urn:a> <urn:k> <urn:z> )>> ."
    assert made in _quads(empty)
    assert _post(empty, "application/sparql-update", UPDATES[2]) == (204, "")
    assert _quads(empty) == {made, "<urn:a> <urn:k> <urn:z> ."}
    renamed = "DELETE { ?s <urn:r> ?t } INSERT { GRAPH <urn:g> { ?s <urn:r2> ?t } } WHERE { ?s <urn:r> ?t }"
    assert _post(empty, "application/sparql-update", renamed) == (204, "")
    assert "<urn:a> <urn:r2> <<( <urn:a> <urn:k> <urn:z> )>> <urn:g> ." in _quads(empty)
    assert _post(empty, "application/sparql-update", f"DELETE DATA {{ <urn:a> <urn:p> {TERM} }}") == (204, "")


def test_an_update_that_is_evaluated_once_compares_them(empty: MasterHarness) -> None:
    assert _post(empty, "application/n-quads", "\n".join(QUADS))[0] == 204
    empty.apply_all(*empty.stores)
    drawn = "INSERT { ?s <urn:r> ?x } WHERE { ?s <urn:p> <<( ?a ?b <urn:g> )>> BIND(STRUUID() AS ?x) }"
    assert _post(empty, "application/sparql-update", drawn)[0] == 204
    assert len(_quads(empty)) == len(QUADS) + 1
    assert _post(empty, "application/n-quads", f"<urn:a> <urn:p> {_nested(6)} .")[0] == 204
    empty.apply_all(*empty.stores)
    status, answer = _post(empty, "application/sparql-update", drawn)
    assert (status, "inside one another" in answer) == (409, True), answer


def _nested(depth: int) -> str:
    return "<<( <urn:s> <urn:q> " * depth + "<urn:o>" + " )>>" * depth


def test_subjects_are_refused_by_name(empty: MasterHarness) -> None:
    for media, body in SUBJECTS:
        status, answer = _post(empty, media, body)
        assert (status, "subject" in answer) == (400, True), answer
    assert _quads(empty) == set()


def test_a_triple_in_literals_of_other_forms_is_one_quad(empty: MasterHarness) -> None:
    integer = "<http://www.w3.org/2001/XMLSchema#integer>"
    assert _post(empty, "application/n-quads", f'<urn:a> <urn:p> <<( <urn:s> <urn:q> "01"^^{integer} )>> .')[0] == 204
    found = quote(f'<<( <urn:s> <urn:q> "1"^^{integer} )>>')
    assert _get(empty, f"/statements?obj={found}", "application/n-quads")
    deleted = "DELETE DATA { <urn:a> <urn:p> <<( <urn:s> <urn:q> 1 )>> }"
    assert _post(empty, "application/sparql-update", deleted) == (204, "")
    assert _quads(empty) == set()


def test_an_engine_without_them_refuses_them_by_name(tmp_path: Path) -> None:
    with start_master_harness(tmp_path, {"one": StoreKind.RDF4J}, ("one",)) as at:
        before = at.request("GET", "/size")[1]
        bodies = [("application/sparql-update", text) for text in UPDATES] + [("text/x-turtlestar", TURTLE_STAR)]
        bodies += [("application/n-quads", quad) for quad in QUADS]
        for media, body in bodies:
            status, answer = _post(at, media, body)
            assert (status, "RDF 1.2" in answer) == (400, True), (body, answer)
        assert _delete(at, f"/statements?obj={quote(TERM)}") == 400
        assert _post(at, "text/turtle", "<urn:a> <urn:p> '<<( {| TRIPLE('  .")[0] == 204
        assert _get(at, "/size", "text/plain") == "1"
        assert before == "0"
