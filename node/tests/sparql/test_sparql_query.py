"""Whatever a query asks, a position marker in the store changes nothing in the answer."""

from __future__ import annotations

import itertools

import pyoxigraph
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from txlog.model.errors import BadInput, SystemGraphNamed
from txlog.sparql import hide_system_graphs, query_form, refuse_services

DATA = """
<a:s> <a:p> <a:o> . <a:o> <a:p> "x" . <a:g1> <a:p> 1 .
GRAPH <a:g1> { <a:s> <a:p> <a:o> . <a:o> <a:q> <a:s> }
GRAPH <a:g2> { <a:s> <a:q> "y"@en }
"""
MARKER = pyoxigraph.NamedNode("urn:txlog:system:7:0123456789abcdef:1")


def stores(update: str) -> tuple[pyoxigraph.Store, pyoxigraph.Store]:
    plain, marked = pyoxigraph.Store(), pyoxigraph.Store()
    for store in (plain, marked):
        store.update(update)
    marked.add_graph(MARKER)
    return plain, marked


PLAIN, MARKED = stores(f"INSERT DATA {{ {DATA} }} ; CREATE GRAPH <a:empty>")
PAIRS = [
    (PLAIN, MARKED),
    # Where a client has no empty graph, or none at all, the marker is the only one that a group can match.
    stores(f"INSERT DATA {{ {DATA} }}"),
    stores("INSERT DATA { <a:s> <a:p> <a:o> . <a:o> <a:p> 'x' . <a:g1> <a:p> 1 }"),
]


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
        [
            "{}",
            "{{ {} }}",
            "OPTIONAL {{ {} }}",
            "OPTIONAL {{ SELECT ?g ?o {{ {} }} }}",
            "MINUS {{ {} }}",
            "OPTIONAL {{ }} VALUES ?y {{ 2 }} {}",
            "FILTER NOT EXISTS {{ }} VALUES ?x {{ 1 }} {}",
            "{{ {} }} UNION {{ {} }}",
            "FILTER EXISTS {{ {} }}",
            "{{ SELECT * {{ {} }} }}",
            "{{ SELECT DISTINCT ?g ?s {{ {} }} }}",
            "{{ SELECT ?h (COUNT(*) AS ?n) {{ {} }} GROUP BY ?h }}",
        ]
    )
    parts = st.one_of(graph, st.builds(lambda form, a, b: form.format(a, b), wrap, inner, inner))
    return " ".join(draw(st.lists(parts, min_size=1, max_size=2)))


@settings(max_examples=60, deadline=None)
@given(patterns())
@example(
    "GRAPH ?h { GRAPH ?g { } <a:s> <a:p>? ?o } GRAPH ?h { OPTIONAL { GRAPH ?g { FILTER NOT EXISTS { ?s ?p ?o } } } }"
)
@example("GRAPH ?g { VALUES ?x { 1 } OPTIONAL { } }")
@example("GRAPH ?g { VALUES ?x { 1 } FILTER NOT EXISTS { } }")
@example("GRAPH ?g { VALUES ?x { 1 } MINUS { BIND(1 AS ?x) } }")
@example("GRAPH ?g { { SELECT ?g { } VALUES ?x { UNDEF } } }")
@example("GRAPH ?g { OPTIONAL { SELECT ?g { OPTIONAL { ?s ?p ?o } } } MINUS { SELECT ?s { ?s ?p ?o } } }")
@example("GRAPH ?g { VALUES ?x { 1 } OPTIONAL { } VALUES ?y { 2 } }")
@example("GRAPH ?g { VALUES ?x { 1 } FILTER NOT EXISTS { } VALUES ?y { 2 } }")
@example("GRAPH ?g { VALUES ?x { 1 } MINUS { } VALUES ?y { 2 } }")
@example("GRAPH ?g { ?s ?p ?o { VALUES ?x { 1 } FILTER EXISTS { FILTER NOT EXISTS { ?a ?b ?c } } } }")
@example("GRAPH ?g { ?s ?p ?o . { VALUES ?x { 1 } OPTIONAL { BIND(2 AS ?y) } } UNION { } }")
def test_no_nesting_shows_the_marker(pattern: str) -> None:
    query = f"SELECT * {{ {pattern} }}"
    hidden, refused = query, ""
    try:
        answer(PLAIN, query)
        hidden = hide_system_graphs(query)
    except SyntaxError:
        return
    except BadInput as error:
        refused = str(error)
    if refused:
        assert COUNTED in refused
        return
    for plain, marked in PAIRS:
        assert answer(marked, hidden) == answer(plain, query), hidden


def test_the_variables_of_an_exists_hang_on_what_its_group_is_joined_with() -> None:
    """Why the filters stand as far out as they may, and not behind each GRAPH: they would part joins there.

    A group is evaluated for itself, so ``?o`` in the EXISTS is free: there is such a triple, and no row. Oxigraph puts
    the values of what it joins the group with into it, unless it takes that group apart.
    """
    group = "?h ?q ?y FILTER NOT EXISTS { ?o <a:p> ?z }"
    assert answer(PLAIN, f"SELECT * {{ ?h <a:p> ?o {{ SELECT * {{ {group} }} }} }}") == (["h", "o", "q", "y"], [])
    assert answer(PLAIN, f"SELECT * {{ ?h <a:p> ?o {{ {group} }} }}") != (["h", "o", "q", "y"], [])


FILTER = 'FILTER(COALESCE(!STRSTARTS(STR(?g),"urn:txlog:system"),true))'


@pytest.mark.parametrize(
    ("query", "hidden"),
    [
        ("ASK { ?s ?p ?o { { GRAPH ?g {} } UNION { GRAPH $g {} } } }",
         "ASK { ?s ?p ?o { { GRAPH ?g {} } UNION { GRAPH $g {} } } # }"),
        ("ASK { GRAPH ?g {} ?s ?p ?o}", "ASK { GRAPH ?g {} ?s ?p ?o # }"),
        ("ASK { { } { GRAPH ?g {} } }", "ASK { { } { GRAPH ?g {} } # }"),
        ("ASK { GRAPH <a:g> { GRAPH ?g {} } }", "ASK { GRAPH <a:g> { GRAPH ?g {} } # }"),
        ("ASK { ?s a <a:t> { GRAPH ?g {} } }", "ASK { ?s a <a:t> { GRAPH ?g {} } # }"),
        ("ASK { FILTER(true) { GRAPH ?g {} } }", "ASK { FILTER(true) { GRAPH ?g {} } # }"),
        ("ASK { SERVICE <a:e> { GRAPH ?g {} } }", "ASK { SERVICE <a:e> { GRAPH ?g {} # } }"),
        ("ASK { ?s ?p true { GRAPH ?g {} } }", "ASK { ?s ?p true { GRAPH ?g {} # } }"),
        ("ASK { OPTIONAL { GRAPH ?g {} } }", "ASK { OPTIONAL { GRAPH ?g {} # } }"),
        ("ASK { MINUS { GRAPH ?g {} } }", "ASK { MINUS { GRAPH ?g {} # } }"),
        ("ASK { FILTER(1 = 1 || EXISTS { GRAPH ?g {} }) }", "ASK { FILTER(1 = 1 || EXISTS { GRAPH ?g {} # }) }"),
        ("ASK { { SELECT ?g { GRAPH ?g {} } LIMIT 1 } }", "ASK { { SELECT ?g { GRAPH ?g {} # } LIMIT 1 } }"),
        ("ASK { { SELECTDISTINCT ?g { GRAPH ?g {} } } }", "ASK { { SELECTDISTINCT ?g { GRAPH ?g {} # } } }"),
        ("ASK { { SELECT ?x WHERE { GRAPH ?g {} } } }", "ASK { { SELECT ?x WHERE { GRAPH ?g {} # } } }"),
        ("ASK { GRAPH ?g { { SELECT ?g { } LIMIT 1 } } }", "ASK { GRAPH ?g { { SELECT ?g { # } LIMIT 1 } } # }"),
        ("ASK { GRAPH ?g { ?s ?p ?o OPTIONAL { } } }", "ASK { GRAPH ?g { ?s ?p ?o OPTIONAL { } } }"),
    ],
)  # fmt: skip
def test_where_a_filter_stands(query: str, hidden: str) -> None:
    assert hide_system_graphs(query) == hidden.replace("#", FILTER)


COUNTED = "a SELECT inside of GRAPH ?g that may match without a quad"


@pytest.mark.parametrize(
    "pattern",
    [
        "GRAPH ?g { { SELECT ?s { } } }",
        "GRAPH ?g { SELECT * { OPTIONAL { ?s ?p ?o } } }",
        "GRAPH ?g { ?s ?p ?o { SELECT (COUNT(*) AS ?n) { { ?a ?b ?c } UNION { FILTER(true) } } } }",
        "GRAPH ?g { ?s ?p ?o { { SELECT ?h { BIND(1 AS ?x) } } } }",
        "GRAPH ?g { { SELECT (EXISTS { } AS ?e) { VALUES ?x { 1 } } } }",
        "GRAPH ?g { { SELECT ?o { OPTIONAL { } { SELECT ?g { ?s ?p ?o } } } } }",
        "GRAPH ?g { { SELECT ?x { VALUES ?x { 1 } { SELECT ?x { MINUS { ?s ?p ?o } } } } } }",
        "GRAPH ?g { { SELECT ?h { ?h ?p ?o } GROUP BY ?h HAVING(NOT EXISTS { FILTER EXISTS { ?s ?p ?o } }) } }",
    ],
)
def test_a_select_that_may_count_graphs_of_ours_is_refused(pattern: str) -> None:
    with pytest.raises(BadInput, match=r"MALFORMED QUERY: error at 1:\d+: ") as refused:
        hide_system_graphs(f"SELECT * {{ {pattern} }}")
    assert COUNTED in str(refused.value)


@pytest.mark.parametrize(
    "pattern",
    [
        "GRAPH ?g { { SELECT (COUNT(*) AS ?n) { ?s ?p ?o OPTIONAL { } } } }",
        "GRAPH ?g { { SELECT ?x { VALUES ?x { 1 2 } } } }",
        "GRAPH ?g { { SELECT ?h { GRAPH ?h { } } } }",
        "GRAPH ?g { { SELECT (EXISTS { ?s <a:q> ?o } AS ?e) { VALUES ?x { 1 } } } }",
        "GRAPH ?g { { SELECT ?g (COUNT(*) AS ?n) { OPTIONAL { ?s <a:q> ?o } } GROUP BY ?g } }",
        "GRAPH <a:g1> { { SELECT ?x { BIND(1 AS ?x) } } }",
        "{ SELECT (COUNT(?g) AS ?n) { GRAPH ?g { } } }",
    ],
)
def test_a_select_that_needs_a_quad_or_names_its_graph_is_answered(pattern: str) -> None:
    query = f"SELECT * {{ {pattern} }}"
    for plain, marked in PAIRS:
        assert answer(marked, hide_system_graphs(query)) == answer(plain, query)


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
        "{ GRAPH ?g",
        " {} # d",
        " ?s ?p",
        "'x' FILTER(COALESCE(!STRSTARTS(STR(?g),\"urn:txlog:system\"),true)) }",
    ]


def test_rdf4js_default_prefixes_and_base_are_declared_when_used() -> None:
    assert hide_system_graphs("ASK { ?s rdf:type xsd:int }") == (
        "PREFIX rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> "
        "PREFIX xsd: <http://www.w3.org/2001/XMLSchema#> ASK { ?s rdf:type xsd:int }"
    )
    assert hide_system_graphs("ASK { <s> ?p ?o }", base="<a:b/>") == "BASE <a:b/> ASK { <s> ?p ?o }"
    own = "PREFIX p: <q#> BASE <c/> PREFIX : <> ASK { <s> p:x :y }"
    one = "BASE <a:b/c/> PREFIX p: <a:b/q#> PREFIX : <a:b/c/> ASK { <s> p:x :y }"
    assert hide_system_graphs(own, base="<a:b/>") == one, "RDF4J takes the first of two"
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
        ("ASK { GRAPH ?g { OPTIONAL {", "} is missing at the end"),
        ("ASK { GRAPH ?g { SELECT ?x", "} is missing at the end"),
        ("ASK { GRAPH ?g } }", "1:18: } closes nothing"),
        ("ASK { GRAPH x:g {} }", "1:13: the prefix x: is not declared"),
        ("PREFIX a:b <a:> ASK { GRAPH ?g {} }", "1:8: a:b is no prefix"),
        ("ASK { GRAPH ?g { ?s ?p 'x } }", "1:24: a string is opened and not closed"),
        ("ASK { ?s ?p trueGRAPH ?g {} }", "1:13: trueGRAPH is no word"),
        ("ASK " + "{" * 700 + "}" * 700, "more than 64 brackets"),
        ("ASK { FILTER(" + "(" * 700 + "1" + ")" * 700 + "}", "more than 64 brackets"),
        ("ASK { FILTER(1" + "+1" * 3000 + ") }", "more than 500 groups and operators"),
        ("ASK {" + "OPTIONAL{?s ?p ?o}" * 2000 + "}", "more than 100 triple patterns"),
        ("ASK {" + "OPTIONAL{}" * 2000 + "}", "more than 100 triple patterns"),
        ("ASK {" + "MINUS{}" * 2000 + "}", "more than 500 groups and operators"),
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
        "ASK {" + "OPTIONAL{?s ?p ?o}" * 50 + "}",
        "ASK {{}" + " UNION {}" * 240 + "}",
        "ASK { GRAPH <a:no> { ?s ?p ?o } " + "".join(f"OPTIONAL {{ GRAPH ?g{n} {{}} }}" for n in range(98)) + "}",
        "ASK { GRAPH <a:no> { ?s ?p ?o } " + "".join(f"{{ GRAPH ?g{n} {{}} }} UNION {{}}" for n in range(82)) + "}",
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
