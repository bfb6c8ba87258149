"""Parameters written into queries and updates, judged by Oxigraph's answers and not by their text."""

from __future__ import annotations

import pyoxigraph as ox
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from txlog.model.errors import BadInput
from txlog.sparql.rewrite.bound_parameters import (
    UpdateGraphs,
    apply_limits,
    apply_parameters,
    bind_query,
    parse_binding,
)

DATA = """<urn:a> <urn:p> 1 . <urn:b> <urn:p> 2 . <urn:c> <urn:p> 3 . <urn:a> <urn:q> <urn:b> .
GRAPH <urn:g> { <urn:a> <urn:p> 7 }"""


def store() -> ox.Store:
    made = ox.Store()
    made.load(DATA.encode(), ox.RdfFormat.TRIG)
    return made


def asked(query: str) -> list[str]:
    found = store().query(query)
    if isinstance(found, ox.QuerySolutions):
        names = [variable.value for variable in found.variables]
        return [" ".join(str(row[name]) for name in names) for row in found]
    return [str(bool(found))] if isinstance(found, ox.QueryBoolean) else sorted(map(str, found))


A, B = "<urn:a>", "<urn:b>"
ONE, TWO, THREE = (f'"{n}"^^<http://www.w3.org/2001/XMLSchema#integer>' for n in (1, 2, 3))
LATE = [TWO, THREE]
SEVEN = ONE.replace('"1"', '"7"')


@pytest.mark.parametrize(
    ("query", "bindings", "rows"),
    [
        ("SELECT ?o { ?s <urn:p> ?o }", {"s": A}, [ONE]),
        ("SELECT ?s ?o { ?s <urn:p> ?o }", {"o": TWO}, [f"{B} {TWO}"]),
        ("SELECT * { ?s <urn:p> 2 } # } ?s", {"s": B, "else": A}, [B]),
        ("SELECT ?o { $s <urn:p> ?o FILTER(?o = ?x) }", {"x": THREE}, [THREE]),
        (
            "SELECT ?o { ?s <urn:p> ?o OPTIONAL { ?t <urn:q> ?u FILTER(?s = ?x) } FILTER(!BOUND(?u)) }",
            {"x": A},
            [TWO, THREE],
        ),
        ("SELECT ?n { { SELECT (COUNT(*) AS ?n) { ?s <urn:p> ?o } } }", {"s": A}, ["1".join(('"', ONE[2:]))]),
        ("SELECT ?o { { ?s <urn:p> ?o } UNION { ?s <urn:q> ?o } }", {"s": A}, [ONE, B]),
        ("SELECT ?o { VALUES ?s { <urn:a> <urn:b> } ?s <urn:p> ?o }", {"s": B}, [TWO]),
        ("SELECT ?o { GRAPH ?g { ?s <urn:p> ?o } }", {"g": "<urn:g>"}, [SEVEN]),
        ("ASK { ?s <urn:q> ?o }", {"s": B}, ["False"]),
        ("ASK { ?s <urn:q> ?o }", {"s": A}, ["True"]),
        ("CONSTRUCT { ?s <urn:r> ?o } WHERE { ?s <urn:q> ?o }", {"s": A}, [f"{A} <urn:r> {B}"]),
        ("CONSTRUCT WHERE { ?s <urn:q> ?o }", {"s": A}, [f"{A} <urn:q> {B}"]),
        ("CONSTRUCT WHERE { ?s <urn:q> ?o }", {"s": B}, []),
        ("PREFIX : <urn:> BASE <urn:x> SELECT ?o { ?s :p ?o }", {"s": A}, [ONE]),
        ("DESCRIBE ?s", {"s": B}, [f"{B} <urn:p> {TWO}"]),
        ("DESCRIBE ?s WHERE { ?s <urn:p> ?o }", {"o": TWO}, [f"{B} <urn:p> {TWO}"]),
        ("SELECT ?o { ?s <urn:p> ?o FILTER EXISTS { ?s <urn:q> ?x } }", {"x": B}, [ONE]),
        ("SELECT ?o { ?s <urn:p> ?o }", {}, [ONE, TWO, THREE]),
    ],
)
def test_a_variable_is_bound_everywhere(query: str, bindings: dict[str, str], rows: list[str]) -> None:
    assert sorted(asked(bind_query(query, bindings))) == sorted(rows)


@pytest.mark.parametrize(
    ("query", "limit", "offset", "rows"),
    [
        ("SELECT ?o { ?s <urn:p> ?o } ORDER BY ?o", 2, 0, [ONE, TWO]),
        ("SELECT ?o { ?s <urn:p> ?o } ORDER BY ?o # end", 1, 1, [TWO]),
        ("SELECT ?o { ?s <urn:p> ?o } ORDER BY ?o LIMIT 2", 5, 1, [TWO]),
        ("SELECT ?o { ?s <urn:p> ?o } ORDER BY ?o LIMIT 2", 1, 0, [ONE]),
        ("SELECT ?o { ?s <urn:p> ?o } ORDER BY ?o OFFSET 1 LIMIT 2", 0, 1, [THREE]),
        ("SELECT ?o { ?s <urn:p> ?o } ORDER BY ?o LIMIT 1", 0, 3, []),
        ("SELECT ?o { ?s <urn:p> ?o } ORDER BY ?o VALUES ?o { 2 3 }", 1, 0, [TWO]),
        ("SELECT ?o { { SELECT ?o { ?s <urn:p> ?o } ORDER BY ?o LIMIT 2 } }", 1, 1, [TWO]),
        ("SELECT ?o { ?s <urn:p> ?o } ORDER BY ?o", 0, 0, [ONE, TWO, THREE]),
        ("ASK { ?s ?p ?o }", 1, 5, ["True"]),
        ("CONSTRUCT { ?s <urn:r> ?o } WHERE { ?s <urn:p> ?o } ORDER BY ?o", 1, 2, [f"<urn:c> <urn:r> {THREE}"]),
    ],
)
def test_limit_and_offset_count_behind_the_query_s_own(query: str, limit: int, offset: int, rows: list[str]) -> None:
    assert asked(apply_limits(query, limit, offset)) == rows


def test_distinct() -> None:
    for begin in ("SELECT", "SELECT REDUCED", "SELECT DISTINCT"):
        assert asked(apply_limits(f"{begin} ?p {{ ?s ?p ?o }} ORDER BY ?p", distinct=True)) == ["<urn:p>", "<urn:q>"]


def updated(update: str, bindings: dict[str, str], graphs: UpdateGraphs) -> list[str]:
    made = store()
    made.update(apply_parameters(update, bindings, graphs))
    before, after = set(map(str, store())), set(map(str, made))
    return sorted([f"-{quad}" for quad in before - after] + [f"+{quad}" for quad in after - before])


def changes(update: str, bindings: dict[str, str] | None = None, **graphs: list[str]) -> list[str]:
    return updated(update, bindings or {}, UpdateGraphs(**graphs))


def test_an_update_with_bindings() -> None:
    gone = [f"-{A} <urn:p> {ONE}"]
    assert changes("DELETE WHERE { ?s <urn:p> ?o }", {"s": A}) == gone
    assert changes("DELETE { ?s <urn:p> ?o } WHERE { ?s <urn:p> ?o }", {"s": A}) == gone
    assert changes(
        "INSERT { ?s <urn:r> ?o } WHERE { ?s <urn:q> ?o } ; DELETE WHERE { ?s <urn:p> ?o }", {"s": A}
    ) == sorted([*gone, f"+{A} <urn:r> {B}"])
    assert changes("INSERT DATA { <urn:x> <urn:y> 'DELETE WHERE { ?s }' }", {"s": A}) == [
        '+<urn:x> <urn:y> "DELETE WHERE { ?s }"'
    ]


def test_an_update_with_graphs() -> None:
    copy = "INSERT { ?s <urn:r> ?o } WHERE { ?s <urn:p> ?o }"
    assert changes(copy, using=["urn:g"]) == [f"+{A} <urn:r> {SEVEN}"]
    assert changes(copy, using=["urn:g"], insert=["urn:h"]) == [f"+{A} <urn:r> {SEVEN} <urn:h>"]
    assert len(changes(copy, using=["null"])) == 3
    named = "INSERT { ?s <urn:r> ?g } WHERE { GRAPH ?g { ?s <urn:p> ?o } }"
    assert changes(named, named=["urn:none"]) == []
    assert changes(named, named=["urn:g"]) == [f"+{A} <urn:r> <urn:g>"]
    delete = "DELETE WHERE { ?s <urn:p> 7 }"
    assert changes(delete, using=["urn:g"], remove=["urn:g"]) == [f"-{A} <urn:p> {SEVEN} <urn:g>"]
    assert changes("DELETE DATA { <urn:a> <urn:p> 7 }", remove=["null", "urn:g"]) == [f"-{A} <urn:p> {SEVEN} <urn:g>"]
    assert changes("INSERT DATA { <urn:x> <urn:y> <urn:z> . }", insert=["urn:h"]) == [
        "+<urn:x> <urn:y> <urn:z> <urn:h>"
    ]


@pytest.mark.parametrize(
    ("update", "graphs"),
    [
        ("WITH <urn:g> DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }", {"using": ["urn:g"]}),
        ("DELETE { ?s ?p ?o } USING <urn:g> WHERE { ?s ?p ?o }", {"using": ["urn:g"]}),
        ("INSERT DATA { GRAPH <urn:g> { <urn:a> <urn:p> 1 } }", {"insert": ["urn:h"]}),
    ],
)
def test_what_says_its_graphs_twice_is_refused(update: str, graphs: dict[str, list[str]]) -> None:
    with pytest.raises(BadInput):
        changes(update, **graphs)


def test_graphs_that_sparql_cannot_say() -> None:
    with pytest.raises(BadInput):
        UpdateGraphs(using=["null", "urn:g"])
    with pytest.raises(BadInput):
        UpdateGraphs(insert=["urn:g", "urn:h"])


def test_a_binding_is_a_term() -> None:
    assert parse_binding("x", "<urn:a>") == "<urn:a>"
    assert parse_binding("x", '"a\\"b"@en') == '"a\\"b"@en'
    for wrong in ("urn:a", "_:", "", "<rel>", "<urn:a> . <urn:b> <urn:c> <urn:d>", "7"):
        with pytest.raises(BadInput):
            parse_binding("x", wrong)


_WORDS = ("SELECT", "CONSTRUCT", "DESCRIBE", "ASK", "INSERT", "DELETE", "DATA", "WHERE", "WITH", "USING", "VALUES")
_MORE = ("LIMIT", "OFFSET", "GRAPH", "PREFIX", "BASE")
_pieces = st.sampled_from([*_WORDS, *_MORE, "{", "}", "(", ")", "?s", "<urn:a>", "7", ";", ".", "'", "#\n", "p:"])


@given(st.lists(_pieces, max_size=25).map(" ".join))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_text_makes_it_fail_otherwise(text: str) -> None:
    for change in (
        lambda: bind_query(text, {"s": A}),
        lambda: apply_limits(text, 3, 1, distinct=True),
        lambda: apply_parameters(text, {"s": A}, UpdateGraphs(["urn:g"], [], ["urn:g"], ["urn:g"])),
    ):
        try:
            change()
        except BadInput:
            continue
