"""What a store would have to plan is bounded before it is logged or sent to a store."""

from __future__ import annotations

from contextlib import suppress

import pytest

from txlog.model.errors import BadInput
from txlog.sparql import hide_system_graphs, prepare_update
from txlog.sparql.plan_limit import JOIN_PARTS_MAX, PATTERNS_MAX


def _star(count: int) -> str:
    return " ".join(f"?s <urn:p{n}> ?o{n} ." for n in range(count))


def _prepare(update: str) -> None:
    prepare_update(update, base=None, now="2026-01-01T00:00:00Z", draw=lambda: 1)


JOINS = {
    "star": _star,
    "semicolons": lambda n: "?s " + " ; ".join(f"<urn:p{i}> ?o{i}" for i in range(n)),
    "commas": lambda n: "?s <urn:p> " + ", ".join(f"?o{i}" for i in range(n)),
    "path": lambda n: "?s " + "/".join(["<urn:p>"] * n) + " ?o",
    "alternatives": lambda n: "?s " + "|".join(["<urn:p>"] * n) + " ?o",
    "list": lambda n: "?s <urn:p> ( " + " ".join(f"?o{i}" for i in range(n - 1)) + " )",
    "optional": lambda n: "?s <urn:k> ?o " * (n % 2) + "OPTIONAL { ?s <urn:p> ?o } " * (n // 2),
    "groups": lambda n: "{ ?s <urn:p> ?o } " * n,
    "blank nodes": lambda n: "?s <urn:k> ?o . " * (n % 2) + "[ <urn:p> ?o ] <urn:q> ?r . " * (n // 2),
    "objects of constants": lambda n: " ".join(f"<urn:s> <urn:p> ?o{i} ." for i in range(n)),
    "verbs of constants": lambda n: "<urn:s> " + " ; ".join(f"?p{i} <urn:o>" for i in range(n)),
    "behind a verb": lambda n: "<urn:s> ?p " + ", ".join(f"<urn:o{i}>" for i in range(n)),
    "behind a subject": lambda n: "?s " + " ; ".join(f"<urn:p{i}> <urn:o>" for i in range(n)),
    "paths of constants": lambda n: "<urn:s> <urn:p>+ <urn:o> . " * n,
    "constants in a graph": lambda n: "GRAPH ?g { { " + "<urn:s> <urn:p> <urn:o> . " * n + " } }",
    "constants of a blank node": lambda n: "[ " + " ; ".join(["<urn:p> 1"] * (n - 1)) + " ] <urn:q> 1",
    "graph": lambda n: "GRAPH <urn:g> { " + _star(n) + " }",
    "behind filters": lambda n: "FILTER(true) ?s <urn:p> ?o . " * n,
    "a branch": lambda n: "{ ?s <urn:p> ?o } UNION { " + _star(n) + " }",
    "nested select": lambda n: "{ SELECT * { " + _star(n) + " } }",
    "exists": lambda n: "?s ?p ?o FILTER EXISTS { " + _star(n) + " }",
    "not exists": lambda n: "?s ?p ?o FILTER(?s != ?o && NOT EXISTS { " + _star(n) + " })",
}
HARMLESS = {
    "union": " UNION ".join(["{ ?s <urn:p> ?o . ?s <urn:q> ?r }"] * 150),
    "constants": "?s <urn:k> ?o . " + " ".join(f"<urn:s{n}> a <urn:o>, 1 ; <urn:p> 'x' ." for n in range(300)),
    "values": "VALUES ?s { " + "<urn:s> " * 5000 + "} ?s <urn:k> ?o",
    "in": "?s <urn:k> ?o FILTER(?o IN (" + ", ".join(map(str, range(5000))) + "))",
    "function": "?s <urn:k> ?o BIND(CONCAT(" + ", ".join(["STR(?o)"] * 400) + ") AS ?c)",
    "exists": "?s <urn:k> ?o " + "FILTER EXISTS { ?s <urn:k> ?o } " * 150,
    "minus": "?s <urn:k> ?o " + "MINUS { ?s <urn:k> ?o } " * 200,
    "filters": "?s <urn:k> ?o " + "FILTER(?o > 1) " * 300,
}


@pytest.mark.parametrize("name", JOINS)
def test_the_parts_of_a_join_are_bounded(name: str) -> None:
    """In an update and in a query, a bound more is a 400 that names it; the bound itself passes."""
    allowed, refused = JOINS[name](JOIN_PARTS_MAX), JOINS[name](JOIN_PARTS_MAX + 1)
    for head, ask in (("DELETE { ?s <urn:k> 1 } WHERE", _prepare), ("ASK", hide_system_graphs)):
        ask(f"{head} {{ {allowed} }}")
        with pytest.raises(BadInput, match="more than 100 triple patterns, steps of paths and OPTIONALs"):
            ask(f"{head} {{ {refused} }}")


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_no_join_is_not_counted(name: str) -> None:
    _prepare(f"DELETE {{ ?s <urn:k> 1 }} WHERE {{ {HARMLESS[name]} }}")
    hide_system_graphs(f"ASK {{ {HARMLESS[name]} }}")


def test_templates_and_data_have_no_such_bound() -> None:
    lines = " ".join(f"?s <urn:p{n}> ?o ." for n in range(3000))
    _prepare(f"DELETE {{ {lines} }} INSERT {{ GRAPH <urn:g> {{ {lines} }} }} WHERE {{ ?s <urn:k> ?o }}")
    _prepare("INSERT DATA { " + lines.replace("?s", "<urn:s>").replace("?o", "1") + " }")
    hide_system_graphs(f"CONSTRUCT {{ {lines} }} WHERE {{ ?s <urn:k> ?o }}")
    hide_system_graphs("SELECT " + " ".join(f"(STR(?o) AS ?o{n})" for n in range(300)) + " { ?s <urn:k> ?o }")


def test_all_joins_of_an_operation_are_bounded_together() -> None:
    branch = "{ " + _star(80) + " }"
    with pytest.raises(BadInput, match=f"more than {PATTERNS_MAX} triple patterns and steps"):
        _prepare("DELETE { ?s <urn:k> 1 } WHERE { " + " UNION ".join([branch] * 13) + " }")
    operation = "DELETE { ?s <urn:k> 1 } WHERE { " + " UNION ".join([branch] * 12) + " }"
    _prepare(" ; ".join([operation] * 3))


def test_many_patterns_of_delete_where_are_refused() -> None:
    """10,000 of them overflow the stack of each Oxigraph that executes them."""
    with pytest.raises(BadInput, match="more than 100 triple patterns"):
        _prepare("DELETE WHERE { " + _star(10_000) + " }")


def test_short_queries_are_bounded_too() -> None:
    with pytest.raises(BadInput, match="more than 100 triple patterns"):
        hide_system_graphs("PREFIX :<u:> ASK{?s " + "/".join([":"] * 200) + " ?o}")
    with pytest.raises(BadInput, match="more than 100 triple patterns"):
        hide_system_graphs("ASK{?s ?p (" + "?a" * 200 + ")}")


@pytest.mark.parametrize("text", ["", "}", "{{{", ") ( ]", "ASK " + "{ ( [ " * 50, "ASK { " + "} . ?a " * 60])
def test_brackets_that_match_nothing_are_left_to_the_parser(text: str) -> None:
    for read in (_prepare, hide_system_graphs):
        with suppress(BadInput):
            read(text + " ?a ?b ?c ." * 60)
