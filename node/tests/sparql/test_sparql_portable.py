"""What goes into the log as it is where workers are of several engines, and what is evaluated once."""

from __future__ import annotations

import pytest

from txlog.model.errors import NotDeterministic
from txlog.sparql import prepare_update, refuse_unportable


def prepared(text: str) -> None:
    refuse_unportable(prepare_update(text, base=None, now="2020-01-01T00:00:00Z", draw=lambda: 1))


@pytest.mark.parametrize(
    "text",
    [
        "INSERT DATA { <urn:a> <urn:p> 1.50 , 'x'@EN , '1'^^<http://www.w3.org/2001/XMLSchema#int> }",
        "INSERT { ?s <urn:q> ?o } WHERE { ?s <urn:p> ?o ; <urn:p> 1 , 'x'@en . GRAPH ?g { ?s a <urn:t> } }",
        "WITH <urn:g> DELETE { ?s ?p ?o } INSERT { ?s ?p -2 } WHERE { ?s ?p ?o . ?o <urn:p> ?x }",
        "DELETE WHERE { ?s ?p ?o } ; COPY <urn:a> TO <urn:b> ; CLEAR ALL",
    ],
)
def test_plain_patterns_data_and_management_travel(text: str) -> None:
    prepared(text)


@pytest.mark.parametrize(
    ("where", "construct"),
    [
        ("?s ?p ?o OPTIONAL { ?o ?q ?r }", "OPTIONAL"),
        ("?s ?p ?o FILTER(?o > 1)", "FILTER"),
        ("?s ?p ?o BIND(1 AS ?x)", "BIND"),
        ("{ SELECT ?s { ?s ?p ?o } }", "SELECT"),
        ("?s <urn:p>* ?o", "a path"),
        ("?s <urn:p>+ ?o", "a path"),
        ("?s <urn:p> [ <urn:q> ?o ]", "a blank node or a list"),
        ("?s <urn:p> 1.5", "a literal that engines write differently"),
        ("?s <urn:p> 'x'@EN", "a literal that engines write differently"),
        ("?s <urn:p> 'x'^^<urn:t>", "a literal that engines write differently"),
        ("{ ?s ?p ?o } UNION { ?s <urn:p> 1.5 }", "a literal that engines write differently"),
        ("?s ?p ?o . ?p a <urn:t>", "a predicate that is a variable elsewhere, too"),
        ("?s ?p ?o ; ?q ?p", "a predicate that is a variable elsewhere, too"),
    ],
)
def test_everything_else_is_refused_by_name_or_evaluated_once(where: str, construct: str) -> None:
    with pytest.raises(NotDeterministic) as refused:
        prepared(f"INSERT {{ ?s <urn:q> ?o }} WHERE {{ {where} }}")
    assert (refused.value.construct, refused.value.once) == (construct, True)


def test_an_update_of_all_graphs_is_executed_by_every_engine_itself() -> None:
    for where in ("?s <urn:p> ?o", "?s ?p ?o . ?s <urn:q> <urn:x>"):
        text = f"DELETE {{ ?s <urn:p> ?o }} INSERT {{ ?s <urn:p> 'x' }} WHERE {{ {where} }}"
        body = prepare_update(text, base=None, now="2026-11-21T10:00:00Z", draw=lambda: 7, all_graphs=True)
        assert refuse_unportable(body) == body
        assert b"UNION" in body.payload
