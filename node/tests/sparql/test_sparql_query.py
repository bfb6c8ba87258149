"""Whatever a query asks, a position marker in the store changes nothing in the answer."""

from __future__ import annotations

import itertools

import pyoxigraph
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from txlog.model.errors import BadInput, SystemGraphNamed
from txlog.sparql import hide_system_graphs, query_form, refuse_services

DATA = """
<a:s> <a:p> <a:o> . <a:o> <a:p> "x" . <a:g1> <a:p> 1 .
GRAPH <a:g1> { <a:s> <a:p> <a:o> . <a:o> <a:q> <a:s> }
GRAPH <a:g2> { <a:s> <a:q> "y"@en }
"""
MARKER = pyoxigraph.NamedNode("urn:txlog:system:7:0123456789abcdef:1")


def stores() -> tuple[pyoxigraph.Store, pyoxigraph.Store]:
    plain, marked = pyoxigraph.Store(), pyoxigraph.Store()
    for store in (plain, marked):
        store.update(f"INSERT DATA {{ {DATA} }} ; CREATE GRAPH <a:empty>")
    marked.add_graph(MARKER)
    return plain, marked


PLAIN, MARKED = stores()


def answer(store: pyoxigraph.Store, query: str, *, union: bool = False) -> object:
    found = store.query(query, use_default_graph_as_union=union)
    if isinstance(found, pyoxigraph.QueryBoolean):
        return bool(found)
    if isinstance(found, pyoxigraph.QuerySolutions):
        names = [variable.value for variable in found.variables]
        return names, sorted(str([str(row[name]) for name in names]) for row in found)
    return sorted(str(triple) for triple in found)


GROUPS = [
    "",
    "?s ?p ?o",
    "?s ?p ?o . OPTIONAL { ?o ?q ?z }",
    "OPTIONAL { ?s ?p ?o }",
    "BIND(1 AS ?x)",
    "VALUES ?x { 1 2 }",
    "FILTER(true)",
    "FILTER NOT EXISTS { ?s ?p ?o }",
    "FILTER EXISTS { GRAPH ?h {} }",
    "<a:s> <a:p>* ?o",
    "<a:s> <a:p>? ?o",
    "?s <a:p>|<a:q> ?o",
    "{ ?s ?p ?o } UNION {}",
    "{ SELECT (COUNT(*) AS ?n) { ?s ?p ?o } }",
    "{ SELECT ?g { GRAPH ?g {} } }",
    "GRAPH ?h { }",
    "GRAPH <a:g1> { ?s ?p ?o }",
    "?s a [] MINUS { ?s ?p 1 }",
    "[] ?p ?o",
    "MINUS { ?s ?p ?o }",
]
SHAPES = [
    "SELECT * {{ GRAPH ?g {{ {0} }} }}",
    "SELECT (COUNT(*) AS ?n) WHERE {{ GRAPH ?g {{ {0} }} }}",
    "SELECT DISTINCT ?g {{ GRAPH ?g {{ {0} }} FILTER(?g != <a:g2>) }} ORDER BY ?g",
    "SELECT * {{ ?s ?p ?o . GRAPH ?g {{ {0} }} }}",
    "SELECT * {{ ?a ?b ?c OPTIONAL {{ GRAPH ?g {{ {0} }} }} }}",
    "SELECT * {{ ?a ?b ?c OPTIONAL {{ GRAPH ?g {{ {0} }} FILTER(?g = ?a) }} }}",
    "SELECT * {{ ?g ?b ?c FILTER EXISTS {{ GRAPH ?g {{ {0} }} }} }}",
    "SELECT * {{ ?g ?b ?c FILTER NOT EXISTS {{ GRAPH ?g {{ {0} }} }} }}",
    "SELECT * {{ ?g ?b ?c MINUS {{ GRAPH ?g {{ {0} }} }} }}",
    "SELECT * {{ {{ GRAPH ?g {{ {0} }} }} UNION {{ GRAPH $g {{}} }} }}",
    "SELECT * {{ BIND(<a:g1> AS ?g) GRAPH ?g {{ {0} }} }}",
    "SELECT * {{ VALUES ?g {{ <a:g1> <a:empty> <a:no> }} GRAPH ?g {{ {0} }} }}",
    "SELECT ?g (COUNT(*) AS ?n) {{ GRAPH ?g {{ {0} }} }} GROUP BY ?g HAVING (COUNT(*) > 0)",
    "SELECT * {{ GRAPH <a:g2> {{ GRAPH ?g {{ {0} }} }} }}",
    "SELECT * {{ {{ SELECT ?g {{ GRAPH ?g {{ {0} }} }} }} ?a ?b ?c }}",
    "ASK {{ GRAPH ?g {{ {0} }} FILTER(STRLEN(STR(?g)) > 10) }}",
    "CONSTRUCT {{ ?g <a:is> <a:graph> }} WHERE {{ GRAPH ?g {{ {0} }} }}",
    "DESCRIBE ?g {{ GRAPH ?g {{ {0} }} }}",
    "# GRAPH ?x {{\nPREFIX e: <a:> select * where{{graph#c\n?g#d\n{{{0}}}}}",
    "SELECT * FROM NAMED <a:g1> FROM <a:g2> {{ GRAPH ?g {{ {0} }} }}",
]


@pytest.mark.parametrize("shape", SHAPES)
def test_no_answer_shows_the_marker(shape: str) -> None:
    for group in GROUPS:
        query = shape.format(group)
        hidden = hide_system_graphs(query)
        for union in (False, True):
            assert answer(MARKED, hidden, union=union) == answer(PLAIN, query, union=union), (query, hidden)


def test_the_marker_would_show_without_the_rewriting() -> None:
    # Otherwise the test above would prove nothing.
    query = "SELECT * { GRAPH ?g {} }"
    assert answer(MARKED, query) != answer(PLAIN, query)


@st.composite
def patterns(draw: st.DrawFn, depth: int = 3) -> str:
    if depth == 0:
        return draw(st.sampled_from(GROUPS[:12]))
    inner = patterns(depth=depth - 1)
    graph = st.builds("GRAPH {} {{ {} }}".format, st.sampled_from(["?g", "?h", "$s", "<a:g1>"]), inner)
    wrap = st.sampled_from(
        ["{}", "{{ {} }}", "OPTIONAL {{ {} }}", "MINUS {{ {} }}", "{{ {} }} UNION {{ {} }}", "FILTER EXISTS {{ {} }}"]
    )
    parts = st.one_of(graph, st.builds(lambda form, a, b: form.format(a, b), wrap, inner, inner))
    return " ".join(draw(st.lists(parts, min_size=1, max_size=2)))


@settings(max_examples=60, deadline=None)
@given(patterns())
def test_no_nesting_shows_the_marker(pattern: str) -> None:
    query = f"SELECT * {{ {pattern} }}"
    try:
        expected = answer(PLAIN, query)
    except SyntaxError:
        return
    assert answer(MARKED, hide_system_graphs(query)) == expected, hide_system_graphs(query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * { ?s ?p ?o }",
        "SELECT * { GRAPH ?g { ?s ?p ?o } }",
        "SELECT * { GRAPH <a:g> {} }",
        "SELECT * { ?s ?p 'GRAPH ?g {}' }",
        "SELECT ?graph { ?graph ?p ?o } # GRAPH ?g {}",
        "PREFIX graph: <a:> SELECT * { ?s graph:g ?g {} }",
        "PREFIX rdf: <a:> SELECT * { ?s rdf:type ?o }",
        "this is no query { at all",
    ],
)
def test_what_cannot_show_a_marker_stays_as_it_is(query: str) -> None:
    assert hide_system_graphs(query) == query


def test_a_rewritten_query_keeps_its_lines() -> None:
    query = "# c\nASK\n{ GRAPH ?g\n {} # d\n ?s ?p\n'x' }"
    assert hide_system_graphs(query).split("\n") == [
        "# c",
        "ASK",
        "{ { GRAPH ?g",
        ' {} FILTER(COALESCE(!STRSTARTS(STR(?g),"urn:txlog:system"),true))} # d',
        " ?s ?p",
        "'x' }",
    ]


def test_rdf4js_default_prefixes_and_base_are_declared_when_used() -> None:
    assert hide_system_graphs("ASK { ?s rdf:type xsd:int }") == (
        "PREFIX rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> "
        "PREFIX xsd: <http://www.w3.org/2001/XMLSchema#> ASK { ?s rdf:type xsd:int }"
    )
    assert hide_system_graphs("ASK { <s> ?p ?o }", base="<a:b/>") == "BASE <a:b/> ASK { <s> ?p ?o }"
    assert answer(PLAIN, hide_system_graphs("ASK { <s> <a:p> <a:o> }", base="a:")) is True


@pytest.mark.parametrize(
    ("query", "base"),
    [
        ("SELECT * { GRAPH <urn:txlog:system:7:0:1> {} }", None),
        ("SELECT * FROM NAMED <urn:txlog:system> {}", None),
        ("SELECT * FROM <urn:txlog:\\u0073ystem> {}", None),
        ("PREFIX u: <urn:> ASK { GRAPH u:txlog:system {} }", None),
        ("PREFIX u: <urn:txlog:sys>\nASK { GRAPH#c\nu:tem {} }", None),
        ("BASE <urn:x> ASK { GRAPH <./txlog:system> {} }", None),
        ("ASK { GRAPH <./txlog:system> {} }", "urn:x"),
        ("DESCRIBE <urn:txlog:system:1>", None),
        ("SELECT * { VALUES ?g { <urn:txlog:system:1> } GRAPH ?g {} }", None),
    ],
)
def test_a_query_that_names_a_graph_of_ours_is_refused(query: str, base: str | None) -> None:
    with pytest.raises(SystemGraphNamed, match="urn:txlog:system"):
        hide_system_graphs(query, base=base)


def test_a_name_computed_in_a_query_finds_nothing() -> None:
    query = f"SELECT * {{ BIND(IRI('{MARKER.value}') AS ?g) GRAPH ?g {{}} }}"
    assert answer(MARKED, hide_system_graphs(query)) == answer(PLAIN, query)


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("ASK { GRAPH ?g { ", "} is missing at the end"),
        ("ASK { GRAPH ?g } }", "1:18: } closes nothing"),
        ("ASK { GRAPH x:g {} }", "1:13: the prefix x: is not declared"),
        ("PREFIX a:b <a:> ASK { GRAPH ?g {} }", "1:8: a:b is no prefix"),
        ("ASK { GRAPH ?g { ?s ?p 'x } }", "1:24: a string is opened and not closed"),
        ("ASK { ?s ?p trueGRAPH ?g {} }", "1:13: trueGRAPH is no word"),
        ("ASK " + "{" * 700 + "}" * 700, "more than 64 brackets"),
        ("ASK { FILTER(" + "(" * 700 + "1" + ")" * 700 + "}", "more than 64 brackets"),
        ("ASK { FILTER(1" + "+1" * 3000 + ") }", "more than 500 groups and operators"),
        ("ASK {" + "OPTIONAL{?s ?p ?o}" * 2000 + "}", "more than 500 groups and operators"),
        ("ASK {" + "GRAPH ?g {}" * 2000 + "}", "more than 500 groups and operators"),
        ("ASK {" + "".join(f"BIND(1 AS ?x{n})" for n in range(2000)) + "}", "more than 500 groups and operators"),
    ],
)
def test_bad_queries_are_refused(query: str, why: str) -> None:
    with pytest.raises(BadInput, match="MALFORMED QUERY: error at ") as refused:
        hide_system_graphs(query)
    assert why in str(refused.value)


def test_long_data_is_no_depth() -> None:
    rows = " ".join(f"({n} -{n})" for n in range(3000))
    query = f"SELECT * {{ VALUES (?x ?y) {{ {rows} }} FILTER(?x IN ({','.join(map(str, range(3000)))})) }}"
    assert hide_system_graphs(query) == query


def test_the_limits_leave_room_on_a_small_stack() -> None:
    # What passes must not end a worker; its threads have 2 MiB.
    import threading

    queries = [
        "ASK " + "{" * 60 + "GRAPH ?g {}" + "}" * 60,
        "ASK { " + "GRAPH ?g { " * 60 + "}" * 61,
        "ASK { FILTER(1" + "||1" * 490 + ") }",
        "ASK {" + "OPTIONAL{?s ?p ?o}" * 240 + "}",
        "ASK {{}" + " UNION {}" * 240 + "}",
    ]
    before = threading.stack_size(2 * 1024 * 1024)
    try:
        answers = itertools.count()

        def ask() -> None:
            for query in queries:
                answer(MARKED, hide_system_graphs(query))
                next(answers)

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        assert next(answers) == len(queries)
    finally:
        threading.stack_size(before)


@pytest.mark.parametrize(
    ("query", "form"),
    [
        ("SELECT * {}", "SELECT"),
        ("# SELECT\nPREFIX ask: <urn:select> BASE <urn:x> ask {}", "ASK"),
        ("prefix:<urn:x>construct where {}", ""),
        ("PREFIX : <urn:x> cOnStRuCt WHERE {}", "CONSTRUCT"),
        ("DESCRIBE <urn:x>", "DESCRIBE"),
        ("INSERT DATA {}", ""),
        ("", ""),
        ("PREFIX", ""),
    ],
)
def test_what_a_query_asks_for(query: str, form: str) -> None:
    assert query_form(query) == form


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * { SERVICE <http://x/> { ?s ?p ?o } }",
        "ASK {service silent ?where {}}",
        "SELECT * { ?s ?p ?o . # SERVICE\n{ SELECT * { SERVICE<urn:x>{} } } }",
    ],
)
def test_service_is_refused_with_its_place(query: str) -> None:
    with pytest.raises(BadInput, match=r"MALFORMED QUERY: error at \d+:\d+: SERVICE "):
        refuse_services(query)


@pytest.mark.parametrize(
    "query",
    ["SELECT ?service { ?service <urn:service> 'SERVICE <x>' }", "ASK { ?s ex:SERVICE service: } # SERVICE <x> {}"],
)
def test_what_is_only_called_service_is_none(query: str) -> None:
    refuse_services(query)
