"""On the quads with some predicates, queries and updates see and do what they would on all."""

from __future__ import annotations

import pyoxigraph as ox
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from txlog.model.errors import BadInput
from txlog.sparql import (
    DataFingerprint,
    UnknownPredicates,
    prepare_evaluated,
    query_predicates,
    required_predicates,
    restrict_to_predicates,
)
from txlog.sparql.analysis.partial_copy import split_operations
from txlog.sparql.update_effect import build_effect, fingerprint_query

SEED = """INSERT DATA { <a:a> <a:p> <a:b>, <a:c> . <a:b> <a:q> <a:a>, 1, "x"@en . <a:c> a <a:b> .
GRAPH <a:g> { <a:a> <a:q> <a:b> . <a:b> <a:p> <a:c> } GRAPH <a:h> { <a:a> a <a:b> . <a:c> <a:r> 2 } }"""
TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
VERBS = ("<a:p>", "<a:q>", "<a:r>", TYPE)


def at(*texts: str) -> ox.Store:
    store = ox.Store()
    for text in texts:
        store.update(text)
    return store


def with_predicates(store: ox.Store, held: frozenset[str]) -> list[str]:
    return sorted(str(quad) for quad in store if str(quad.predicate) in held)


def part_of(store: ox.Store, held: frozenset[str]) -> ox.Store:
    part = ox.Store()
    part.extend(quad for quad in store if str(quad.predicate) in held)
    return part


NODES = st.sampled_from(["?s", "?o", "?o", "<a:a>", "<a:b>", "<a:c>", "[]"])
PATHS = st.sampled_from(
    ["<a:p>", "<a:q>", "<a:r>", "a", "<a:p>/<a:q>", "^<a:q>", "(<a:p>|<a:q>)+", "?v", "!<a:p>", "<a:r>?"]
)
PATTERNS = st.recursive(
    st.one_of(
        st.builds("{} {} {} . ".format, NODES, PATHS, NODES),
        st.sampled_from(["BIND(1 AS ?one) ", "FILTER(?s != ?o) ", "VALUES ?s { <a:a> } "]),
    ),
    lambda inner: st.one_of(
        inner.map("OPTIONAL {{ {} }} ".format),
        inner.map("GRAPH ?g {{ {} }} ".format),
        inner.map("GRAPH <a:g> {{ {} }} ".format),
        inner.map("FILTER NOT EXISTS {{ {} }} ".format),
        inner.map("MINUS {{ {} }} ".format),
        inner.map("{{ SELECT ?s (COUNT(*) AS ?n) {{ {} }} GROUP BY ?s }} ".format),
        st.builds("{} {}".format, inner, inner),
        st.builds("{{ {} }} UNION {{ {} }} ".format, inner, inner),
    ),
    max_leaves=4,
)
PLAIN = st.sampled_from(["<a:p>", "<a:q>", "<a:r>", "a"])
ENDS = st.sampled_from(["?s", "?o", "<a:a>", "<a:c>"])
TEMPLATES = st.one_of(
    st.builds("{} {} {} . ".format, ENDS, PLAIN, ENDS),
    st.builds("GRAPH <a:h> {{ {} {} {} }} ".format, ENDS, PLAIN, ENDS),
)
OPERATIONS = st.one_of(
    st.builds("DELETE {{ {} }} WHERE {{ {} }}".format, TEMPLATES, PATTERNS),
    st.builds("DELETE {{ {} }} INSERT {{ {} }} WHERE {{ {} }}".format, TEMPLATES, TEMPLATES, PATTERNS),
    st.sampled_from(
        [
            *("CLEAR SILENT GRAPH <a:g>", "DROP SILENT DEFAULT", "DROP SILENT ALL", "COPY SILENT <a:g> TO <a:h>"),
            *("MOVE SILENT <a:h> TO DEFAULT", "ADD SILENT <a:none> TO <a:g>", "COPY SILENT <a:none> TO <a:g>"),
            *(
                "DELETE WHERE { ?s ?p <a:b> }",
                "DELETE WHERE { GRAPH ?g { <a:a> ?p ?o } }",
                "DELETE WHERE { ?s ?p ?s . }",
            ),
            *("DELETE WHERE { ?s <a:p> ?o . ?o ?p ?s }", "DELETE WHERE { GRAPH <a:g> { ?s <a:q> 'x'@en } }"),
            *("INSERT DATA { <a:c> <a:p> 'a ; b }' }", "DELETE DATA { GRAPH <a:g> { <a:a> <a:q> <a:b> } }"),
        ]
    ),
)
UPDATES = st.lists(OPERATIONS, min_size=1, max_size=3).map(" ;\n".join)
HELD = st.sets(st.sampled_from(VERBS), min_size=1).map(frozenset)


@settings(deadline=None, max_examples=120)
@given(
    PATTERNS, st.sampled_from(["SELECT *", "ASK", "CONSTRUCT { ?s ?x ?o }", "SELECT (COUNT(*) AS ?n)"]), st.booleans()
)
def test_a_query_sees_on_its_predicates_what_it_sees_on_all(pattern: str, form: str, union: bool) -> None:
    query = f"{form} WHERE {{ {pattern} }}"
    found = query_predicates(query)
    try:
        whole = at(SEED).query(query, use_default_graph_as_union=union)
    except SyntaxError:
        assume(False)
    if found is None:
        event("everything")
        return
    event("a part")
    held = part_of(at(SEED), found).query(query, use_default_graph_as_union=union)
    assert said(held) == said(whole)


def said(found: ox.QuerySolutions | ox.QueryBoolean | ox.QueryTriples) -> object:
    if isinstance(found, ox.QueryBoolean):
        return bool(found)
    if isinstance(found, ox.QueryTriples):
        return sorted(map(str, found))
    return sorted(str([str(value) for value in row]) for row in found)


@settings(deadline=None, max_examples=120)
@given(UPDATES, HELD)
def test_an_update_does_on_a_part_what_it_does_on_all_or_says_that_it_cannot(text: str, held: frozenset[str]) -> None:
    try:
        update = prepare_evaluated(text, base=None, now="2026-11-21T10:00:00Z", draw=lambda: 7).text
    except BadInput:
        assume(False)
        raise
    part = part_of(at(SEED), held)
    try:
        texts = restrict_to_predicates(update, held)
    except UnknownPredicates:
        event("not on a part")
        return
    event("on a part")
    for each in texts:
        part.update(each)
    assert with_predicates(part, held) == with_predicates(at(SEED, update), held)


@settings(deadline=None, max_examples=80)
@given(st.lists(UPDATES, min_size=1, max_size=3), HELD)
def test_what_is_needed_is_enough(texts: list[str], wanted: frozenset[str]) -> None:
    try:
        updates = [
            prepare_evaluated(text, base=None, now="2026-11-21T10:00:00Z", draw=lambda: 7).text for text in texts
        ]
    except BadInput:
        assume(False)
        raise
    held = required_predicates(updates, wanted)
    if held is None:
        event("everything")
        return
    event("more" if held > wanted else "as it is")
    part = part_of(at(SEED), held)
    for update in updates:
        for each in restrict_to_predicates(update, held):
            part.update(each)
    assert with_predicates(part, wanted) == with_predicates(at(SEED, *updates), wanted)


def test_an_effect_follows_on_what_it_looks_at() -> None:
    store = at(SEED)
    looks = ("<a:p>", "<a:q>")
    [row] = store.query(fingerprint_query(looks))  # type: ignore[misc]
    sums = DataFingerprint(*(int(row[name].value) for name in "nab"))
    effect = build_effect([b"<a:a> <a:p> <a:b> ."], [b"<a:a> <a:q> <a:new> <a:g> ."], looks, sums).payload.decode()
    assert [step.predicates for step in split_operations(effect)] == [frozenset(looks)]


@pytest.mark.parametrize(
    ("query", "predicates"),
    [
        ("PREFIX x: <a:> SELECT * { ?s x:p/x:q ?o }", "<a:p> <a:q>"),
        ("BASE <http://h/> SELECT * FROM <g> { ?s <p> ?o } ORDER BY DESC(?o) LIMIT 3 OFFSET 1", "<http://h/p>"),
        (
            "SELECT (EXISTS { ?s <a:r> 1 } AS ?x) { ?s <a:p> ?o } HAVING (COUNT(?s) > 1) VALUES ?s { <a:a> }",
            "<a:p> <a:r>",
        ),
        ("SELECT * { ?s rdfs:label ?o }", "<http://www.w3.org/2000/01/rdf-schema#label>"),
        ("CONSTRUCT { ?s ?any ?o } WHERE { GRAPH ?g { ?s a ?o } }", TYPE),
        ("CONSTRUCT WHERE { ?s <a:p> [ <a:q> ?o ] }", "<a:p> <a:q>"),
        ("ASK {}", ""),
        ("SELECT * { ?s <rel> ?o }", None),
        ("SELECT * { ?s none:p ?o }", None),
        ("DESCRIBE ?s { ?s <a:p> ?o }", None),
        ("SELECT * { GRAPH <a:g> {} }", None),
        ("SELECT * { GRAPH <a:g> { OPTIONAL { ?s <a:p> ?o } } }", None),
        ("SELECT * { ?s <a:p>* ?o }", None),
        ("SELECT * { <<?s <a:p> ?o>> <a:q> ?x }", None),
        ("SELECT * { ?s <a:p> ?o", None),
        ("SELECT", None),
        ("", None),
        ("INSERT DATA { <a:a> <a:p> 1 }", None),
        ("SELECT * { " + " . ".join(f"?s <a:p{n}> ?o" for n in range(65)) + " }", None),
    ],
)
def test_the_predicates_of_a_query(query: str, predicates: str | None) -> None:
    found = query_predicates(query)
    assert found == (None if predicates is None else frozenset(predicates.split()))
