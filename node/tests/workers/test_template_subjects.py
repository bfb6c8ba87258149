"""A template makes only what RDF allows: a Fuseki by itself writes triple terms as subjects, and literals as subjects
of triple terms."""

from __future__ import annotations

import pytest
from engines import RDF_1_2, stores_of
from server_process import StoreProcess

from txlog.model.entry import KIND_UPDATE, Position
from txlog.workers.adapter import ApplyResult, MarkerPosition, StoreOperation
from txlog.workers.jena_templates import guard_templates

running, worker = stores_of(RDF_1_2)
DATA = '<urn:s> <urn:p> <<( <urn:a> <urn:b> <urn:c> )>> , "lit" , <urn:x>'
AT = MarkerPosition(Position(2, 7, bytes([7]) * 16), 0)
NEW = b"<urn:x> <urn:new> <urn:s> ."


@pytest.mark.parametrize(
    ("update", "wanted"),
    [
        ("INSERT { ?o <urn:new> ?s } WHERE { ?s <urn:p> ?o }", [NEW]),
        ("DELETE { ?s <urn:p> <urn:none> } INSERT { ?o <urn:new> ?s } WHERE { ?s <urn:p> ?o }", [NEW]),
        ("INSERT { GRAPH <urn:g> { ?o <urn:new> ?s } } WHERE { ?s <urn:p> ?o }", [NEW[:-1] + b"<urn:g> ."]),
        ("INSERT { ?o <urn:new> ?s } WHERE { SELECT ?s ?o { ?s <urn:p> ?o } }", [NEW]),
        ("INSERT { ?t <urn:new> ?s } WHERE { ?s <urn:p> ?o BIND(?o AS ?t) }", [NEW]),
        ("INSERT { ?o <urn:new> ?s } WHERE { OPTIONAL { ?s <urn:p> ?o } OPTIONAL { ?o <urn:no> ?z } }", [NEW]),
        ("INSERT { ?s <urn:new> <<( ?o <urn:q> ?o )>> } WHERE { ?s <urn:p> ?o }",
         [b"<urn:s> <urn:new> <<( <urn:x> <urn:q> <urn:x> )>> ."]),
        ("INSERT { ?s <urn:new> ?o } WHERE { ?s <urn:p> ?o FILTER(isIRI(?o)) }", [b"<urn:s> <urn:new> <urn:x> ."]),
    ],
)  # fmt: skip
def test_a_template_makes_triples_of_rdf(worker: StoreProcess, update: str, wanted: list[bytes]) -> None:
    operations = [StoreOperation(KIND_UPDATE, each.encode()) for each in (f"INSERT DATA {{ {DATA} }}", update)]
    applied = worker.send(worker.adapter.apply(operations, None, AT))
    assert worker.adapter.parse_apply_result(applied) is ApplyResult.APPLIED, applied.text
    snapshot = worker.send(worker.adapter.snapshot())
    lines = b"".join(worker.adapter.clean_snapshot([snapshot.body])).splitlines()
    assert [line for line in lines if b"<urn:new>" in line] == wanted


def test_only_what_may_be_no_iri_is_guarded() -> None:
    for text in (
        "INSERT { ?s <urn:new> ?o } WHERE { ?s <urn:p> ?o }",
        "INSERT { GRAPH ?g { ?s ?p ?o } } WHERE { GRAPH <urn:g> { { ?s ?p ?o } } }",
        "DELETE { ?o <urn:p> ?s } WHERE { ?s <urn:p> ?o }",
        'INSERT DATA { <urn:a> <urn:b> "WHERE { ?s ?p ?o }" }',
    ):
        assert guard_templates(text) == text
    guarded = guard_templates("INSERT { ?o <urn:new> ?s ; <urn:n> ?o } WHERE { { ?o ?p ?s } UNION { ?s ?p ?o } }")
    assert guarded == (
        "INSERT { ?g1 <urn:new> ?s ; <urn:n> ?o } WHERE { { ?o ?p ?s } UNION { ?s ?p ?o }  "
        "BIND(IF(isIRI(?o),?o,1/0) AS ?g1) }"
    )
