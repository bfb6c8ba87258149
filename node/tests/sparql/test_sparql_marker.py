"""On a store whose marker is a triple a query gives what it gives without."""

from __future__ import annotations

import pyoxigraph as ox
import pytest

from txlog.sparql import hide_marker, uses_graph_clause, with_dataset

DATA = b"""
<urn:a> <urn:p> <urn:b> .
<urn:b> <urn:p> <urn:c> <urn:g> .
<urn:b> <urn:q> "x" <urn:g> .
"""
MARKER = b"<urn:txlog:system> <urn:txlog:system> <urn:txlog:system> <urn:txlog:system:1> .\n"
QUERIES = [
    "SELECT * { ?s ?p ?o }",
    "SELECT (COUNT(*) AS ?n) WHERE { ?s ?p ?o . FILTER(?o != 1) ?a <urn:p> ?b OPTIONAL { ?x ?q ?c } }",
    "CONSTRUCT WHERE { ?s ?p ?o }",
    "CONSTRUCT { ?s ?p ?o } WHERE { GRAPH ?g { ?s ?p ?o ; ?q ?x } }",
    "ASK { ?s !<urn:p> ?o . FILTER isIRI(?o) }",
    "SELECT ?x ?y { ?x <urn:p>* ?y . ?z (<urn:p>/<urn:q>)? 3 }",
    "SELECT ?s ?o { ?s !(<urn:p>|^<urn:q>) ?o ; <urn:q>+ ?k , 'y'@en , 'z'^^<urn:t> }",
    "SELECT ?p (COUNT(?s) AS ?n) { VALUES ?x { <urn:a> 1 } { ?s ?p ?o } } GROUP BY ?p HAVING(COUNT(?s) > 0)",
    "SELECT * { { SELECT ?p { ?s ?p ?o } ORDER BY ?s } UNION { [] ?p [] } MINUS { ?s ?p <urn:c> } }",
    "DESCRIBE ?s { ?s ?p ?o ; }",
    "SELECT * { ?s <urn:p> ?t . FILTER NOT EXISTS { [] ?p ?s } BIND(?s AS ?k) ?k ?p2 ?x . ?x ?u -1 }",
    "SELECT * { ?s <urn:p> ?o . FILTER regex(str(?s), 'x') . ?m ?n ?o . ?e a true }",
    "SELECT (?p AS ?q) { ?s ?p (1 ?x [ ?u ?v ]) }",
]


def answer(store: ox.Store, query: str) -> object:
    found = store.query(query, use_default_graph_as_union=True)
    if isinstance(found, ox.QueryBoolean):
        return bool(found)
    if isinstance(found, ox.QueryTriples):
        return sorted(map(str, found))
    return sorted(str([row[name] for name in found.variables]) for row in found)


@pytest.mark.parametrize("query", QUERIES)
def test_the_marker_is_in_no_answer(query: str) -> None:
    clean, marked = ox.Store(), ox.Store()
    clean.load(DATA, format=ox.RdfFormat.N_QUADS)
    marked.load(DATA + MARKER, format=ox.RdfFormat.N_QUADS)
    assert answer(marked, hide_marker(query)) == answer(clean, query)
    named = with_dataset(hide_marker(query), ["urn:g"], ["urn:g"])
    marked.query(named)
    assert " FROM <urn:g> FROM NAMED <urn:g>" in named


def test_what_cannot_meet_it_stays_as_it_is() -> None:
    for query in ("SELECT * { ?s <urn:p> ?o }", "SELECT * { <urn:a> ?p ?o }", "ASK { ?s ?p 1 }", "DESCRIBE <urn:a>"):
        assert hide_marker(query) == query
    assert uses_graph_clause("ASK { GRAPH ?g { } }")
    assert not uses_graph_clause("ASK { ?s <urn:GRAPH> 'GRAPH' }")
