"""A variable that a triple has twice is compared by every engine: an RDF4J by itself forgets that where its plan binds
the variable first."""

from __future__ import annotations

import pytest
from engines import ALL, stores_of
from marked_subjects import mark_subjects
from server_process import StoreProcess

from txlog.workers.rdf4j_repeats import separate_repeats

running, worker = stores_of(ALL)
DATA = (
    '<urn:n> <urn:q> <urn:n> , <urn:m> . <urn:m> <urn:q> "m" . <urn:k> <urn:k> <urn:k2> . <urn:r> <urn:s> <urn:s> '
    'GRAPH <urn:g> { <urn:n> <urn:p> "x" , <urn:n> . <urn:m> <urn:p> "x" . <urn:g> <urn:p> <urn:m> . <urn:a> <urn:p> '
    "<urn:g> }"
)
ALL_NODES = "VALUES ?x { <urn:n> <urn:m> <urn:k> <urn:g> <urn:s> <urn:a> }"


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("GRAPH ?h { ?x <urn:p> ?e } GRAPH ?i { ?x ?a ?x }", "n"),
        (f"{ALL_NODES} ?x ?a ?x", "n"),
        (f"{ALL_NODES} ?x <urn:q> ?x", "n"),
        (f"{ALL_NODES} ?x ?x ?o", "k"),
        (f"{ALL_NODES} ?s ?x ?x", "s"),
        (f"{ALL_NODES} GRAPH ?x {{ ?x ?a ?o }}", "g"),
        (f"{ALL_NODES} GRAPH ?x {{ ?s ?a ?x }}", "g"),
        (f"{ALL_NODES} GRAPH <urn:g> {{ ?x <urn:p> ?o , ?x }}", "n"),
        (f"{ALL_NODES} ?x (<urn:q>|<urn:k>) ?x", "n"),
        (f"{ALL_NODES} {{ ?x ?a ?x }} UNION {{ GRAPH ?g1 {{ ?x ?g2 ?g1 }} }}", "an"),
        (f"{ALL_NODES} ?x ?b ?c FILTER EXISTS {{ ?x ?a ?x }}", "n"),
        (f"{ALL_NODES} ?x ?b ?c MINUS {{ ?x ?a ?x }}", "km"),
        (f"{ALL_NODES} ?x ?b ?c OPTIONAL {{ ?x ?a ?x }} FILTER(!BOUND(?a))", "km"),
        (f"{ALL_NODES} {{ SELECT * WHERE {{ {ALL_NODES} ?x ?a ?x }} }}", "n"),
        ("?x ?a ?x", "n"),
    ],
)
def test_a_variable_is_compared_in_both_places(worker: StoreProcess, pattern: str, wanted: str) -> None:
    assert mark_subjects(worker, DATA, pattern) == wanted


def test_only_triples_with_a_variable_twice_change() -> None:
    plain = (
        "INSERT { ?x ?x ?x } WHERE { ?x <urn:p> ?y . ?y <urn:p> ?x GRAPH ?g { ?x ?p ?o } FILTER(?x = ?x) "
        'BIND("?x ?x" AS ?t) VALUES ?x { 1 } '
        "{ SELECT ?x (COUNT(?x) AS ?n) WHERE { ?x <urn:p>* ?x } GROUP BY ?x HAVING (?n > 1) } }"
    )
    assert separate_repeats(plain) == plain
    twice = "DELETE { ?x ?x ?x } WHERE { ?x <urn:p> ?y , ?x . OPTIONAL { ?g1 ?z $z } } ; INSERT DATA { <a> <b> <c> }"
    assert separate_repeats(twice) == (
        "DELETE { ?x ?x ?x } WHERE { ?x <urn:p> ?y , ?g_1 . OPTIONAL { ?g1 ?z ?g_2  "
        "FILTER(isIRI(?g_2)&&STR($z)=STR(?g_2)) }  FILTER(isIRI(?g_1)&&STR(?x)=STR(?g_1)) } ; "
        "INSERT DATA { <a> <b> <c> }"
    )


def test_a_text_that_does_not_parse_stays() -> None:
    for text in ("INSERT { ?x ?x ?x } WHERE { ?x ?y", "DELETE { ?x ?y ?x } WHERE { ?x ?y ?x ; }", "?x ?x", "WHERE {"):
        assert separate_repeats(text) == text or "isIRI" in separate_repeats(text)
