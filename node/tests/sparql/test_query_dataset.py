"""Queries that name the default graph have RDF4J's answers in a store that does not know the name."""

from __future__ import annotations

from contextlib import suppress

import pyoxigraph as ox
import pytest

from txlog.model.errors import BadInput
from txlog.sparql.rewrite.query_dataset import write_out_dataset

DATA = """INSERT DATA { <urn:a> <urn:p> 1 . <urn:d> <urn:q> <urn:a>
GRAPH <urn:g> { <urn:b> <urn:p> 2 . <urn:d> <urn:q> <urn:b> }
GRAPH <urn:h> { <urn:c> <urn:p> 3 . <urn:a> <urn:q> 4 } }"""
SESAME = "<http://www.openrdf.org/schema/sesame#nil>"


@pytest.fixture(scope="module")
def store() -> ox.Store:
    made = ox.Store()
    made.update(DATA)
    return made


def answer(store: ox.Store, text: str, default: tuple[str, ...] = (), named: tuple[str, ...] = ()) -> list[str]:
    """The last character of each term of the rows, the names of the variables first."""
    found = store.query(write_out_dataset(text, default, named))
    if isinstance(found, ox.QueryBoolean):
        return [str(bool(found))]
    if isinstance(found, ox.QueryTriples):
        return sorted(f"{each.subject.value[-1]}{each.object.value[-1]}" for each in found)  # type: ignore[union-attr]
    names = " ".join(each.value for each in found.variables)
    return [names, *sorted("".join("-" if term is None else term.value[-1] for term in row) for row in found)]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT ?s FROM DEFAULT { ?s ?p ?o }", "s a d"),
        (f"SELECT * FROM {SESAME} {{ ?s ?p ?o }}", "s_p_o ap1 dqa"),
        ("PREFIX r: <http://rdf4j.org/schema/rdf4j#> SELECT ?s FROM r:nil { ?s <urn:q>/<urn:p> ?v }", "s d"),
        ("SELECT * FROM rdf4j:nil FROM <urn:g> { ?s <urn:q> ?o . ?o <urn:p> ?v BIND(?v AS $w) }", "s_o_v_w da11 db22"),
        ("SELECT * FROM DEFAULT FROM <urn:g> { ?s <urn:q> ?o MINUS { ?o <urn:p> ?x } }", "s_o"),
        ("SELECT * FROM DEFAULT FROM <urn:g> { { SELECT (?s AS ?t) ?p { ?s ?p 2 } } ?z ?p 1 }", "t_p_z bpa"),
        ("SELECT * FROM DEFAULT { { SELECT * { ?s ?p 1 } } VALUES (?s ?n) { (<urn:a> 5) } }", "s_p_n ap5"),
        ("SELECT ?s FROM NAMED rdf4j:nil { ?s ?p ?o }", "s"),
        ("SELECT ?s ?g FROM DEFAULT FROM NAMED <urn:g> { GRAPH ?g { ?s ?p ?o } }", "s_g bg dg"),
        ("SELECT ?s { GRAPH rdf4j:nil { ?s ?p ?o } FILTER NOT EXISTS { ?s <urn:q> 4 } }", "s d"),
        ("SELECT ?s { GRAPH rdf4j:nil { ?s <urn:q>+ ?o } } ORDER BY ?s LIMIT 1", "s d"),
        ("SELECT * WHERE { GRAPH rdf4j:nil { ?s <urn:p> ?o } }", "s_o a1"),
        ("SELECT ?s FROM rdf4j:nil { GRAPH rdf4j:nil { ?s ?p ?o } }", "s"),
        ("SELECT (COUNT(*) AS ?n) FROM DEFAULT FROM <urn:h> { ?s ?p ?o } HAVING (COUNT(*) > 1) VALUES ?z { 4 }", "n 4"),
        ("CONSTRUCT FROM DEFAULT FROM <urn:h> WHERE { ?s <urn:q> ?o }", "a4 da"),
        ("CONSTRUCT { ?o <urn:x> ?s } FROM DEFAULT WHERE { ?s <urn:q> ?o }", "ad"),
        ("ASK FROM DEFAULT { ?s ?p 2 }", "False"),
        ("DESCRIBE <urn:d> FROM DEFAULT", "da"),
    ],
)
def test_it_is_the_default_graph(store: ox.Store, text: str, rows: str) -> None:
    wanted = rows.split(" ")
    assert answer(store, text) == [wanted[0].replace("_", " ") if "SELECT" in text else wanted[0], *wanted[1:]]


def test_a_request_may_name_it_beside_others(store: ox.Store) -> None:
    assert answer(store, "SELECT ?s { ?s <urn:p> ?o }", ("null", "urn:g")) == ["s", "a", "b"]
    assert answer(store, "SELECT ?s ?g { ?s <urn:p> 1 GRAPH ?g { ?x ?y 2 } }", ("null",), ("urn:g",)) == ["s g", "ag"]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ?s { ?s rdf:rest rdf:nil }",
        "SELECT ?s FROM <urn:g> { GRAPH rdf4j:nil { ?s ?p ?o } }",
        "SELECT ?s { ?s ?p 'FROM DEFAULT' }",
        "SELECT ?s FROM DEFAULT",
        "SELECT ?s FROM DEFAULT { ?s ?p ?o",
        "not a query of rdf4j:nil",
    ],
)
def test_other_texts_stay(text: str) -> None:
    assert write_out_dataset(text, (), ()) == text


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ?s FROM rdf4j:nil FROM <urn:g> { ?s <urn:q>+ ?o }",
        "SELECT ?s FROM rdf4j:nil FROM <urn:g> { { SELECT DISTINCT * { ?s ?p ?o } } }",
        "SELECT ?s FROM DEFAULT FROM <urn:g> { ?s ?p ?o } ORDER BY (EXISTS { ?s ?p 1 })",
        "DESCRIBE <urn:d> FROM DEFAULT FROM <urn:g>",
        "DESCRIBE ?s { GRAPH rdf4j:nil { ?s ?p ?o } }",
    ],
)
def test_what_plain_sparql_cannot_say_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="cannot be asked"):
        write_out_dataset(text, (), ())
    with pytest.raises(BadInput, match="none: is not declared"):
        write_out_dataset("SELECT ?s FROM DEFAULT { ?s none:p ?o }", (), ())


@pytest.mark.parametrize(
    "inside", ["{ SELECT * } }", "{ SELECT DISTINCT ( * ) FILTER } }", "FILTER }", "{ FILTER ?a } }"]
)
def test_malformed_patterns_come_to_an_end(inside: str) -> None:
    """They are refused, by this code or by a worker."""
    with suppress(BadInput):
        write_out_dataset(f"SELECT * FROM DEFAULT FROM <urn:g> {{ {inside}", (), ())
