"""What an update does must not hang on graphs without quads: stores do not agree on which there are."""

from __future__ import annotations

import pyoxigraph
import pytest

from txlog.model.errors import NotDeterministic
from txlog.sparql import prepare_evaluated, prepare_update
from txlog.sparql.analysis.empty_graphs import may_match_empty_graph

ON_QUADS = (
    "GRAPH <urn:g> { ?s ?p ?o }",
    "GRAPH ?g { ?s <urn:p>/^<urn:q> ?o }",
    "GRAPH ?g { ?s <urn:p>+ ?o }",
    "GRAPH ?g { OPTIONAL { ?a ?b ?c } ?s ?p ?o }",
    "GRAPH ?g { FILTER(EXISTS { ?a ?b ?c }) ?s ?p ?o }",
    "GRAPH ?g { FILTER NOT EXISTS { ?a ?b ?c } . ?s ?p ?o }",
    "GRAPH ?g { { ?s ?p ?o } UNION { ?s a <urn:t> } }",
    "GRAPH ?g { BIND(1 AS ?x) VALUES (?y) { (UNDEF) } [ <urn:p> ?o ] }",
    "GRAPH ?g { { SELECT DISTINCT ?s WHERE { ?s ?p ?o } } }",
    "GRAPH ?g { SELECT * { { ?s ?p ?o } } }",
    "OPTIONAL { GRAPH <urn:g> { (1 2) <urn:p> ?o } }",
    "{} FILTER(1 * 2 > 1)",
)
ON_GRAPHS = (
    "GRAPH <urn:g> {}",
    "GRAPH ?g {}",
    "?a ?b ?c . GRAPH <urn:g> { }",
    "GRAPH ?g { { } }",
    "GRAPH ?g { ?s <urn:p>* ?o }",
    "GRAPH ?g { <urn:a> <urn:p>? ?o }",
    "GRAPH ?g { OPTIONAL { ?s ?p ?o } }",
    "GRAPH ?g { MINUS { ?s ?p ?o } }",
    "GRAPH ?g { { ?s ?p ?o } UNION { } }",
    "GRAPH ?g { GRAPH <urn:h> { ?s ?p ?o } }",
    "GRAPH ?g { BIND(1 AS ?x) }",
    "GRAPH ?g { VALUES ?x { 1 } }",
    "GRAPH ?g { FILTER NOT EXISTS { ?s ?p ?o } }",
    "GRAPH ?g { FILTER(1 = 1) }",
    "GRAPH ?g { { SELECT (COUNT(*) AS ?n) { ?s ?p ?o } } }",
    "GRAPH ?g { SELECT ?s { ?s ?p ?o } GROUP BY ?s HAVING(COUNT(*) = 0) }",
    "GRAPH ?g { SELECT ?s { } }",
    "GRAPH ?g { ?s ?p ?o { SELECT ?x { } } }",
    "GRAPH ?g { ?s ?p ?o { SELECT (COUNT(*) AS ?n) { { ?a ?b ?c } UNION { FILTER(true) } } } }",
    "OPTIONAL { GRAPH ?g { } }",
    "FILTER EXISTS { GRAPH ?g { } }",
    "FILTER(1 = 1 && NOT EXISTS { GRAPH <urn:g> { } })",
    "BIND(EXISTS { GRAPH <urn:g> { } } AS ?x)",
    "{ SELECT ?s { ?s ?p ?o } GROUP BY ?s HAVING(EXISTS { GRAPH <urn:g> { } }) }",
    "{ SELECT ?s { GRAPH <urn:g> { } ?s ?p ?o } }",
)


def update(where: str) -> str:
    return f"INSERT {{ GRAPH <urn:t> {{ }} <urn:a> <urn:b> <urn:c> }} WHERE {{ {where} }}"


@pytest.mark.parametrize("where", ON_QUADS)
def test_what_needs_a_quad_in_its_graph_travels_as_it_is(where: str) -> None:
    prepare_update(update(where), base=None, now="2020-01-01T00:00:00Z", draw=lambda: 1)


@pytest.mark.parametrize("where", ON_GRAPHS)
def test_what_an_empty_graph_may_satisfy_is_evaluated_once(where: str) -> None:
    with pytest.raises(NotDeterministic, match="put a triple pattern into its group") as refused:
        prepare_update(update(where), base=None, now="2020-01-01T00:00:00Z", draw=lambda: 1)
    assert (refused.value.construct, refused.value.once) == ("GRAPH over empty graphs", True)
    once = prepare_evaluated(update(where), base=None, now="2020-01-01T00:00:00Z", draw=lambda: 1)
    assert once.read_predicates is None, "what there is of graphs is more than any predicates"


def test_delete_where_and_templates() -> None:
    assert may_match_empty_graph("DELETE WHERE { GRAPH ?g { } }")
    assert not may_match_empty_graph("DELETE WHERE { GRAPH ?g { ?s ?p ?o } }")
    assert not may_match_empty_graph("DELETE { GRAPH <urn:g> { } } INSERT { GRAPH ?g { } } WHERE { ?s ?p ?g }")


@pytest.mark.parametrize("where", ON_QUADS)
def test_a_store_shows_that_empty_graphs_change_nothing_in_what_travels(where: str) -> None:
    """The claim itself: two stores of the same quads, one of which knows two graphs more."""
    results = list[set[pyoxigraph.Quad]]()
    for empty in ((), ("urn:g", "urn:h")):
        store = pyoxigraph.Store()
        for graph in empty:
            store.add_graph(pyoxigraph.NamedNode(graph))
        store.update(update(where))
        results.append(set(store))
    assert results[0] == results[1]
