"""What a query, and a whole update with its data, may look at."""

from __future__ import annotations

import pytest

from txlog.sparql import query_predicates
from txlog.sparql.analysis.predicates import UnknownPredicates, predicates_of_update

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
XSD = "http://www.w3.org/2001/XMLSchema#"


@pytest.mark.parametrize(
    ("query", "predicates"),
    [
        ("SELECT ?o { ?s <a:p> ?o }", "a:p"),
        ("PREFIX x: <a:> PREFIX : <b:> SELECT * FROM <a:g> WHERE { ?s x:p/:q ?o ; a x:t } LIMIT 3",
         f"a:p b:q {RDF}type"),
        ("ASK { GRAPH ?g { ?s <a:p> 'x'^^xsd:int } }", "a:p"),
        ("ASK FROM NAMED <a:g> { { SELECT ?s { ?s <a:p> ?o } ORDER BY ?s } UNION { ?s rdf:value 1 } }",
         f"a:p {RDF}value"),
        ("CONSTRUCT { ?s <a:q> ?o } WHERE { ?s <a:p> ?o FILTER EXISTS { ?o <a:r> ?x } } OFFSET 2", "a:p a:r"),
        ("CONSTRUCT WHERE { ?s <a:p> ?o }", "a:p"),
        ("SELECT (COUNT(*) AS ?n) (EXISTS { ?x <a:q> ?y } AS ?e) { ?s <a:p> ?o } GROUP BY ?s HAVING(?n > 1)",
         "a:p a:q"),
        ("SELECT ?s { ?s <a:p> ?o } VALUES ?o { <a:x> }", "a:p"),
        ("PREFIX x: <a:> ASK { ?s x:p\\-q ?o }", "a:p-q"),
        ("SELECT (1 AS ?x) {}", ""),
        ("BASE <http://x/> SELECT * { ?s <p> ?o }", "http://x/p"),
        ("SELECT * { ?s <a:\\u0070> ?o }", "a:p"),
    ],
)  # fmt: skip
def test_predicates_say_what_a_query_looks_at(query: str, predicates: str) -> None:
    assert query_predicates(query) == {f"<{name}>" for name in predicates.split()}


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * { ?s ?p ?o }",
        "SELECT * { ?s <a:p>* ?o }",
        "DESCRIBE <a:s>",
        "SELECT * { ?s <p> ?o }",
        "SELECT * { ?s nobody:p ?o }",
        "PREFIX x: <rel> SELECT * { ?s x:p ?o }",
        "CONSTRUCT { ?s ?p ?o } WHERE { ?s <a:p> ?o . ?o ?p ?s }",
        "SELECT * { GRAPH ?g {} }",
        "SELECT * { ?s <a:p> ?o",
        "",
        "INSERT DATA { <a:s> <a:p> 1 }",
    ],
)
def test_the_rest_looks_at_everything(query: str) -> None:
    assert query_predicates(query) is None


def test_an_update_looks_at_all_of_its_operations() -> None:
    text = (
        'INSERT DATA {\nGRAPH <a:g> {\n<a:s> <a:p> "; }" }\n<a:s> <a:q> "1"@en .\n} ;\n'
        "DELETE { ?s <a:r> ?o } WHERE { ?s <a:t> ?o ; <a:u> 1 } ;\nDELETE DATA {\n<a:s> <a:v> 1 .\n}"
    )
    assert predicates_of_update(text) == {f"<a:{letter}>" for letter in "pqrtuv"}
    assert predicates_of_update("") == frozenset()
    for everything in (f"{text} ;\nDROP SILENT ALL", "CLEAR SILENT DEFAULT", "DELETE WHERE { ?s ?p <a:o> }"):
        with pytest.raises(UnknownPredicates):
            predicates_of_update(everything)
