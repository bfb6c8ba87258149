"""A literal where a triple term of a pattern can hold none matches nothing; an Oxigraph would end the request."""

from __future__ import annotations

import pyoxigraph
import pytest

from txlog.sparql import prepare_update

DATA = """
INSERT DATA {
  <urn:x> <urn:p0> 'lit' , <urn:y> , 5 ; <urn:p3> 1 ; <urn:q> 'lit' .
  <urn:y> <urn:p2> <<( <urn:y> <urn:p3> 1 )>> , <<( <urn:x> <urn:q> <<( <urn:y> <urn:q> 1 )>> )>> ; <urn:p0> <urn:x> .
  <urn:k> <urn:p> 5 , <urn:q> .
}
"""
FOUND = {
    # Subjects and predicates that another triple may bind to a literal.
    "?e <urn:p0> ?a . ?a <urn:p2> <<( ?a <urn:p3> 1 )>>": {"<urn:y>"},
    "?e <urn:p0> ?a . ?z <urn:p2> <<( ?a <urn:p3> 1 )>>": {"<urn:y>"},
    "?e <urn:p> ?a . ?z <urn:p2> <<( ?x ?a ?y )>>": {"<urn:q>"},
    "GRAPH <urn:g> { ?e <urn:p0> ?a . ?z <urn:p2> <<( ?a <urn:p3> 1 )>> }": {"<urn:y>"},
    "?e <urn:p0> ?a . ?z <urn:p2> <<( ?y <urn:q> <<( ?a <urn:q> 1 )>> )>>": {"<urn:y>"},
    "VALUES ?a { 'lit' <urn:y> 5 } ?z ?w <<( ?a ?v 1 )>>": {"<urn:y>"},
    "?e <urn:p0> ?a . _:b <urn:p2> <<( ?a <urn:p3> 1 )>> . FILTER(true) _:b <urn:p0> ?l": {"<urn:y>"},
    # What holds them together with the rest of the pattern.
    "?e <urn:p0> ?a OPTIONAL { ?z <urn:p2> <<( ?a ?v 1 )>> } FILTER(!BOUND(?v))": {"'lit'", "5", "<urn:x>"},
    "?e <urn:p0> ?a MINUS { ?z <urn:p2> <<( ?a ?v 1 )>> }": {"'lit'", "5", "<urn:x>"},
    "?e <urn:p0> ?a FILTER EXISTS { ?z <urn:p2> <<( ?a ?v 1 )>> }": {"<urn:y>"},
    "?e <urn:p0> ?a FILTER NOT EXISTS { ?z <urn:p2> <<( ?a ?v 1 )>> }": {"'lit'", "5", "<urn:x>"},
    "?e <urn:p0> ?a FILTER(EXISTS { ?z <urn:p2> <<( ?a ?v 1 )>> } || ?a = 5)": {"<urn:y>", "5"},
    "?e <urn:p0> ?a . { SELECT ?a (COUNT(*) AS ?n) { ?z ?w <<( ?a ?b ?c )>> . ?q ?r ?a } GROUP BY ?a }": {
        "<urn:x>",
        "<urn:y>",
    },
}
STAYS = (
    "?r <urn:reifies> <<( ?s ?p ?o )>> . ?s ?p ?o",
    "?r <urn:reifies> <<( ?s <urn:p> ?o )>> . ?x ?y ?o FILTER(?s != <urn:n>)",
    "VALUES ?t { <<( <urn:s> <urn:p> 1 )>> } ?r ?p ?t",
    "?e <urn:p> ?a . BIND(<<( ?a <urn:p> 1 )>> AS ?t)",
)


def _logged(
    where: str, *, all_graphs: bool, head: str = "INSERT { GRAPH <urn:out> { <urn:n> <urn:found> ?a } }"
) -> str:
    text = f"{head} WHERE {{ {where} }}" if head else f"DELETE WHERE {{ {where} }}"
    made = prepare_update(text, base=None, now="2026-01-01T00:00:00Z", draw=lambda: 7, all_graphs=all_graphs)
    return made.payload.decode()


def _store() -> pyoxigraph.Store:
    store = pyoxigraph.Store()
    store.update(DATA)
    store.update("COPY DEFAULT TO <urn:g>")
    return store


@pytest.mark.parametrize("all_graphs", [False, True])
@pytest.mark.parametrize("where", FOUND)
def test_a_literal_matches_nothing(where: str, all_graphs: bool) -> None:
    store = _store()
    store.update(_logged(where, all_graphs=all_graphs))
    found = {str(quad.object) for quad in store.quads_for_pattern(None, None, None, pyoxigraph.NamedNode("urn:out"))}
    plain = {
        f"'{term[1:-1]}'" if term[0] == '"' and "^" not in term else term.partition("^")[0].strip('"') for term in found
    }
    assert plain == FOUND[where]


def test_an_oxigraph_ends_the_request_without_it() -> None:
    where = "?e <urn:p0> ?a . ?z <urn:p2> <<( ?a <urn:p3> 1 )>>"
    with pytest.raises(RuntimeError, match=r"not a valid RDF 1\.2 term"):
        _store().update(f"INSERT {{ GRAPH <urn:out> {{ <urn:n> <urn:found> ?a }} }} WHERE {{ {where} }}")


def test_a_deletion_whose_pattern_is_its_template() -> None:
    store = _store()
    store.update(_logged("?e <urn:p0> ?a . ?z <urn:p2> <<( ?a <urn:p3> 1 )>>", all_graphs=False, head=""))
    left = {f"{quad.subject} {quad.predicate}" for quad in store.quads_for_pattern(None, None, None, None)}
    assert len(list(store.quads_for_pattern(None, None, None, pyoxigraph.DefaultGraph()))) == 8
    assert "<urn:y> <urn:p2>" in left


@pytest.mark.parametrize("where", STAYS)
def test_variables_that_are_no_literals_stay(where: str) -> None:
    text = f"INSERT {{ <urn:n> <urn:found> ?r }} WHERE {{ {where} }}"
    assert _logged(where, all_graphs=False, head="INSERT { <urn:n> <urn:found> ?r }") == text
