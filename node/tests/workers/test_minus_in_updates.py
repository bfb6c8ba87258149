"""A MINUS compares the variables of its own two parts in every engine: an RDF4J by itself compares those that it is
joined with, too, where its plan has bound them first."""

from __future__ import annotations

import pyoxigraph
import pytest
from engines import PARTED_MINUS, stores_of
from marked_subjects import mark_subjects
from server_process import StoreProcess

from txlog.workers.rdf4j_minus import isolate_minus

running, worker = stores_of(PARTED_MINUS)
DATA = "<urn:b> <urn:r> <urn:a> . <urn:x> <urn:p> <urn:y> . <urn:k> <urn:p> <urn:l> . <urn:k> <urn:q> <urn:d>"
PLANS = ("", *(" ".join(f"<urn:m{number}> <urn:{kind}> <urn:n> ." for number in range(30)) for kind in "qr"))
"""With more triples of a kind, RDF4J begins elsewhere."""
OTHERS = "MINUS { ?c <urn:q> ?d }"


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        (f"{OTHERS} <urn:b> <urn:r> ?a . ?x <urn:p> ?y", "kx"),
        (f"?x <urn:p> ?y {OTHERS} <urn:b> <urn:r> ?a", "kx"),
        (f"?x <urn:p> ?y {OTHERS} ?x <urn:p> ?z", "kx"),
        ("?x <urn:p> ?y MINUS { ?x <urn:q> ?d } <urn:b> <urn:r> ?a", "x"),
        ("?x <urn:p> ?y MINUS { ?x <urn:q> ?d } MINUS { ?c <urn:q> ?x } ?x <urn:p> ?z", "x"),
        (f"<urn:b> <urn:r> ?a {{ ?x <urn:p> ?y {OTHERS} }}", "kx"),
        (f"<urn:b> <urn:r> ?a OPTIONAL {{ ?x <urn:p> ?y {OTHERS} }}", "kx"),
        (f"?x <urn:p> ?y FILTER(?z = <urn:y>) {OTHERS} ?x <urn:p> ?z", "x"),
        (f"{{ SELECT ?x WHERE {{ ?x <urn:p> ?y {OTHERS} <urn:b> <urn:r> ?a }} }}", "kx"),
        (f"?x <urn:p> ?y {OTHERS} VALUES ?y {{ <urn:y> }} <urn:b> <urn:r> ?a", "x"),
    ],
)
def test_a_minus_compares_the_variables_of_its_parts(worker: StoreProcess, pattern: str, wanted: str) -> None:
    for more in PLANS:
        worker.clear()
        assert mark_subjects(worker, f"{DATA} . {more}", pattern) == wanted


def test_only_groups_with_a_minus_change() -> None:
    plain = (
        'INSERT { ?s ?p ?o } WHERE { ?s ?p ?o FILTER(?o = "MINUS {") } ; DELETE DATA { <urn:minus> <urn:p> "minus" }'
    )
    assert isolate_minus(plain) == plain
    text = (
        "DELETE { ?s ?p ?o } WHERE { { ?s ?p ?o FILTER(?o > 1) MINUS { ?s ?p 2 } } VALUES ?p { <urn:p> } } ; CLEAR ALL"
    )
    parted = isolate_minus(text)
    assert " ".join(parted.split()) == (
        "DELETE { ?s ?p ?o } WHERE { { { SELECT * WHERE { ?s ?p ?o MINUS { ?s ?p 2 } } } FILTER(?o > 1) } "
        "VALUES ?p { <urn:p> } } ; CLEAR ALL"
    )
    pyoxigraph.Store().update(parted)


def test_a_text_that_does_not_parse_stays() -> None:
    for text in ("INSERT { ?x ?y ?x } WHERE { ?x ?y MINUS", "DELETE { } WHERE { MINUS { ( }", "WHERE { FILTER MINUS"):
        assert isolate_minus(text) == text
