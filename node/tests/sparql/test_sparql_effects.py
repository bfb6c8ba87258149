"""Updates that are evaluated once: what they may look at, the condition of their effect, and what needs no evaluation
because a constant says it."""

from __future__ import annotations

import itertools

import pyoxigraph
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.model.errors import BadInput, NotDeterministic
from txlog.sparql import DataFingerprint, build_effect, fingerprint_query, prepare_evaluated, prepare_update

NOW = "2026-11-21T10:00:00.123Z"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"


def evaluated(text: str) -> tuple[str, ...] | None:
    return prepare_evaluated(text, base=None, now=NOW, draw=lambda: 7).read_predicates


@pytest.mark.parametrize(
    ("text", "predicates"),
    [
        ("INSERT { ?s <a:p> ?u } WHERE { ?s <a:q> ?o BIND(UUID() AS ?u) }", "a:p a:q"),
        ("DELETE { ?s <a:p> ?o ; <a:q> 1 , 'x'@en } WHERE { ?s <a:r> ?o . ?o a <a:t> FILTER(RAND() > 0.5) }",
         f"a:p a:q a:r {RDF}type"),
        ("INSERT { _:x <a:p> [ <a:q> ?s ; <a:r> () ] } WHERE { ?s <a:t> (1 ?o) }",
         f"a:p a:q a:r a:t {RDF}first {RDF}rest"),
        ("INSERT { GRAPH ?g { _:x <a:p> ?s } } WHERE { GRAPH ?g { ?s ^<a:q>/(<a:r>|<a:t>)+ -1 } }", "a:p a:q a:r a:t"),
        ("WITH <a:g> DELETE { ?s <a:p> ?o } INSERT { ?s <a:p> ?x } USING <a:h> USING NAMED <a:i> WHERE "
         "{ { SELECT ?s (SAMPLE(?v) AS ?x) { ?s <a:q> ?v FILTER EXISTS { ?v <a:r> ?w } } GROUP BY ?s "
         "HAVING(COUNT(*) > 1) LIMIT 3 } OPTIONAL { ?s <a:t> ?o } MINUS { ?s <a:u> 1 } "
         "VALUES (?s ?o) { (<a:x> UNDEF) } }", "a:p a:q a:r a:t a:u"),
        ("INSERT { ?s <a:p> _:x } WHERE { { ?s <a:q> 1 } UNION { ?s <a:r> +1.5 } FILTER NOT EXISTS { ?s <a:t> true } "
         "FILTER REGEX(STR(?s), '}') BIND(IF(EXISTS { ?s <a:u> ?x }, 1, 2) AS ?y) }", "a:p a:q a:r a:t a:u"),
        ("DELETE WHERE { ?s <a:p> ?o . GRAPH <a:g> { ?s <a:q> ?o } } ; INSERT { <a:s> <a:r> _:x } WHERE {?a <a:t> ?b} ;"
         " INSERT DATA { <a:s> <a:u> 1 }", "a:p a:q a:r a:t a:u"),
        ("INSERT { ?s <a:p> _:x } WHERE { [ <a:q> ?s ] . [] <a:r> ?s ; a ?t ; . ?s <a:t> <a:x>, <a:y> }",
         f"a:p a:q a:r a:t {RDF}type"),
    ],
)  # fmt: skip
def test_predicates_say_what_an_update_looks_at(text: str, predicates: str) -> None:
    found = evaluated(text)
    assert found is not None
    assert list(found) == sorted(f"<{name}>" for name in predicates.split())


@pytest.mark.parametrize(
    "text",
    [
        "INSERT { ?s <a:p> _:x } WHERE { ?s ?p ?o }",
        "INSERT { ?s ?p _:x } WHERE { ?s <a:p> ?p }",
        "INSERT { ?s <a:p> _:x } WHERE { ?s !<a:p> ?o }",
        "INSERT { ?s <a:p> _:x } WHERE { ?s !(<a:p>|^<a:q>) ?o }",
        "INSERT { ?s <a:p> _:x } WHERE { ?s <a:p>* ?o }",
        "INSERT { ?s <a:p> _:x } WHERE { ?s <a:q> ?o GRAPH <a:g> { FILTER(true) } }",
        "INSERT { ?s <a:p> _:x } WHERE { ?s <a:p>/<a:q>? ?o }",
        "INSERT { ?s <a:p> _:x } WHERE { GRAPH ?s {} }",
        "INSERT { ?s <a:p> _:x } WHERE { GRAPH ?s { OPTIONAL { ?a <a:p> ?b } } }",
        "INSERT { ?s <a:p> _:x } WHERE { ?s <a:p> ?o FILTER EXISTS { ?s ?q ?o } }",
        "INSERT { ?s <a:p> _:x } WHERE { ?s <a:p> ?o } ; CLEAR GRAPH <a:g>",
        "COPY DEFAULT TO <a:g> ; INSERT { ?s <a:p> _:x } WHERE { ?s <a:p> ?o }",
        "INSERT { <a:s> <a:p> _:x } WHERE { " + " . ".join(f"?s <a:p{n}> ?o" for n in range(70)) + " }",
    ],
)
def test_what_no_predicates_say_is_everything(text: str) -> None:
    assert evaluated(text) is None


# Quads with other predicates change nothing of what such an update does.

NODES = st.sampled_from(["?s", "?o", "<a:a>", "<a:b>", "_:n"])
STEPS = st.sampled_from(["<a:p>", "<a:q>", "a"])
VERBS = st.one_of(
    STEPS,
    st.builds("{}/{}".format, STEPS, STEPS),
    st.builds("({}|^{})+".format, STEPS, STEPS),
    st.sampled_from(["?v", "!<a:p>", "<a:q>*"]),
)
TRIPLES = st.builds("{} {} {} . ".format, NODES, VERBS, NODES)
GROUPS = st.recursive(
    st.lists(TRIPLES, min_size=1, max_size=2).map("".join),
    lambda inner: st.one_of(
        inner.map("OPTIONAL {{ {} }} ".format),
        inner.map("GRAPH ?g {{ {} }} ".format),
        inner.map("FILTER NOT EXISTS {{ {} }} ".format),
        inner.map("{{ SELECT ?s (COUNT(*) AS ?n) {{ {} }} GROUP BY ?s }} ".format),
        st.builds("{{ {} }} UNION {{ {} }} ".format, inner, inner),
        st.builds("{} {}".format, inner, inner),
    ),
    max_leaves=4,
)
SEED = """INSERT DATA { <a:a> <a:p> <a:b> . <a:b> <a:q> <a:a>, <a:c> . <a:c> a <a:b> .
GRAPH <a:g> { <a:a> <a:q> <a:b> . <a:b> <a:p> <a:c> . <a:c> a <a:a> } GRAPH <a:h> { <a:a> a <a:b> } }"""
OTHERS = """INSERT DATA { <a:a> <a:x> <a:b>, <a:c> . <a:b> <a:y> <a:a> . <a:n> <a:x> <a:m> .
GRAPH <a:g> { <a:b> <a:x> <a:a> } GRAPH <a:k> { <a:a> <a:y> <a:b> } }"""


@settings(deadline=None, max_examples=400)
@given(GROUPS)
def test_other_predicates_are_never_seen(where: str) -> None:
    text = f"INSERT {{ ?s <a:new> ?o . _:x <a:new> ?g }} WHERE {{ {where} }}"
    try:
        update = prepare_evaluated(text, base=None, now=NOW, draw=lambda: 7)
    except BadInput:
        assume(False)
        raise
    if update.read_predicates is None:
        return
    made = []
    for seed in ((SEED,), (SEED, OTHERS)):
        store = pyoxigraph.Store()
        for each in seed:
            store.update(each)
        store.update(update.text)
        new = store.quads_for_pattern(None, pyoxigraph.NamedNode("a:new"), None, None)
        made.append(sorted(f"{'_' if isinstance(q.subject, pyoxigraph.BlankNode) else q.subject} {q.object}"
                           for q in new))  # fmt: skip
    assert made[0] == made[1]


# The condition

QUADS = [
    "<a:s> <a:p> <a:o> .", '<a:s> <a:p> "x" .', '<a:s> <a:p> "x"@en .', '<a:s> <a:p> "1"^^<http://www.w3.org/2001/'
    'XMLSchema#integer> .', '<a:s> <a:p> "a:o" .', "<a:s> <a:p> <a:o> <a:g> .", "<a:s> <a:p> <a:o> <a:h> .",
    '<a:s> <a:p> "a b" .', '<a:s> <a:p> "" .', "<a:t> <a:p> <a:o> .", "<a:s> <a:q> <a:o> .",
]  # fmt: skip


def sums_of(lines: tuple[str, ...], looks_at: tuple[str, ...] | None) -> DataFingerprint:
    store = pyoxigraph.Store()
    store.load("\n".join(lines).encode(), pyoxigraph.RdfFormat.N_QUADS)
    [row] = store.query(fingerprint_query(looks_at))  # type: ignore[misc]
    return DataFingerprint(*(int(row[name].value) for name in "nab"))  # type: ignore[union-attr]


def test_sums_tell_data_apart_and_see_nothing_else() -> None:
    all_ = [chosen for count in (0, 1, 2) for chosen in itertools.combinations(QUADS, count)]
    assert len({sums_of(chosen, None) for chosen in all_}) == len(all_)
    assert len({sums_of(chosen, ("<a:p>", "<a:q>")) for chosen in all_}) == len(all_)
    one = sums_of((QUADS[0],), ("<a:p>",))
    assert one == sums_of((QUADS[0], QUADS[10]), ("<a:p>",)) == sums_of((QUADS[0],), None)
    assert one.count == 1
    assert sums_of((), None) == sums_of((QUADS[0],), ("<a:z>",)) == DataFingerprint(0, 0, 0)


@pytest.mark.parametrize("looks_at", [None, ("<a:p>", "<a:q>")])
def test_an_effect_happens_where_its_condition_holds_and_nowhere_else(looks_at: tuple[str, ...] | None) -> None:
    sums = sums_of(tuple(QUADS), looks_at)
    deletes, adds = [QUADS[0].encode(), QUADS[5].encode()], [b"<a:n> <a:p> 'x' <a:g> .".replace(b"'", b'"'),
                                                           b"<a:n> <a:q> <a:n> ."]  # fmt: skip
    for gone, come in ((deletes, adds), (deletes, []), ([], adds)):
        prepared = build_effect(gone, come, looks_at, sums)
        assert prepared.kind == KIND_UPDATE
        assert prepared.change_count == len(gone) + len(come)
        for changed in ((), (QUADS[1],)):
            store = pyoxigraph.Store()
            before = [line for line in QUADS if line not in changed]
            store.load("\n".join(before).encode(), pyoxigraph.RdfFormat.N_QUADS)
            # Others may stand before and behind it in one request.
            store.update(f"INSERT DATA {{}} ;\n{prepared.payload.decode()} ;\nINSERT DATA {{}}")
            expected = set(before)
            if not changed:
                expected = (expected - {line.decode() for line in gone}) | {line.decode() for line in come}
            assert {f"{quad} ." for quad in store} == expected
    assert build_effect([], [], looks_at, sums).payload == b""


# What a constant says

DRAWN = iter(())


def pinned(text: str) -> str:
    numbers = itertools.count(0x1234_5678_9ABC_DEF0_1234_5678_9ABC_DEF0)
    prepared = prepare_update(text, base=None, now=NOW, draw=lambda: next(numbers))
    assert prepared.kind in (KIND_UPDATE, KIND_QUADS)
    return prepared.payload.decode()


def test_with_one_solution_at_most_a_constant_says_it() -> None:
    text = pinned(
        "INSERT { _:x <a:p> ?u ; <a:q> _:y . ?b <a:p> ?r , _:x , ?t } WHERE "
        "{ BIND(UUID() AS ?u) BIND(STRUUID() AS ?t) . BIND(RAND() AS ?r) FILTER(?r < 2) BIND(BNODE() AS ?b) }"
    )
    stores = [pyoxigraph.Store(), pyoxigraph.Store()]
    for store in stores:
        store.update(text)
    first, second = (sorted(map(str, store)) for store in stores)
    assert first == second
    assert len(first) == 5
    assert not any(isinstance(q.subject, pyoxigraph.BlankNode) for q in stores[0])
    assert len({q.subject for q in stores[0]}) == 2
    [uuid] = [q.object for q in stores[0] if isinstance(q.object, pyoxigraph.NamedNode) and "uuid" in q.object.value]
    assert uuid.value == "urn:uuid:12345678-9abc-4ef0-9234-56789abcdef2"
    for empty in ("INSERT { _:x <a:p> 1 } WHERE {}", "INSERT { GRAPH <a:g> { _:x <a:p> 1 } } WHERE { FILTER(true) }"):
        assert "<urn:txlog:bnode:12345678" in pinned(empty)


def test_each_call_has_a_value_of_its_own() -> None:
    text = pinned("INSERT { ?a <a:p> ?b } WHERE { BIND(UUID() AS ?a) BIND(UUID() AS ?b) }")
    assert len(set(pinned_iris(text))) == 2


def pinned_iris(text: str) -> list[str]:
    return [part.partition(">")[0] for part in text.split("<urn:uuid:")[1:]]


@pytest.mark.parametrize(
    "text",
    [
        "INSERT { ?s <a:p> ?u } WHERE { ?s <a:p> ?o BIND(UUID() AS ?u) }",
        "INSERT { ?s <a:p> ?u } WHERE { VALUES ?s { <a:a> <a:b> } BIND(UUID() AS ?u) }",
        "INSERT { ?s <a:p> ?u } WHERE { { BIND(UUID() AS ?u) } UNION { BIND(UUID() AS ?u) } }",
        "INSERT { <a:s> <a:p> ?u } WHERE { FILTER EXISTS { ?s <a:p> ?o FILTER(RAND() > 0.5) } }",
        "INSERT { <a:s> <a:p> [] } WHERE {}",
        "INSERT { ?x <a:p> ?u } WHERE { (?x ?y) BIND(UUID() AS ?u) }",
        "INSERT { ?x <a:p> ?u } WHERE { BIND(UUID() AS ?u) (?x ?y) }",
        "INSERT { ?x <a:p> ?u } WHERE { [ <a:p> ?x ] BIND(UUID() AS ?u) }",
        "INSERT { _:x <a:p> ?x } WHERE { SELECT ?x {} VALUES ?x { 1 2 } }",
        "INSERT { _:x <a:p> ?o } WHERE { ?s <a:p> ?o }",
    ],
)
def test_where_solutions_may_be_several_no_constant_is_right(text: str) -> None:
    with pytest.raises(NotDeterministic) as refused:
        prepare_update(text, base=None, now=NOW, draw=lambda: 7)
    assert refused.value.once
    prepare_evaluated(text, base=None, now=NOW, draw=lambda: 7)


def test_reduced_may_remove_all_duplicates_and_does() -> None:
    text = pinned("INSERT { <a:s> <a:p> ?n } WHERE { SELECT (COUNT(*) AS ?n) { SELECT REDUCED ?s { ?s ?p ?o } } }")
    assert "SELECT DISTINCT ?s" in text


@pytest.mark.parametrize(
    ("text", "construct"),
    [
        ("LOAD <http://a/b> ; INSERT { _:x <a:p> ?o } WHERE { ?s <a:p> ?o }", "LOAD"),
        ("INSERT { _:x <a:p> ?o } WHERE { SERVICE <a:e> { ?s <a:p> ?o } }", "SERVICE"),
        ("INSERT { ?s <a:p> ?x } WHERE { ?s <a:p> ?o BIND(BNODE('k') AS ?x) }", "BNODE"),
        ("INSERT { ?s <a:p> ?x } WHERE { ?s <a:p> ?o BIND(<a:f>(UUID()) AS ?x) }", "the function <a:f>"),
    ],
)
def test_what_no_evaluation_makes_right_is_refused_by_name(text: str, construct: str) -> None:
    with pytest.raises(NotDeterministic) as refused:
        prepare_evaluated(text, base=None, now=NOW, draw=lambda: 7)
    assert refused.value.construct == construct
    assert not refused.value.once
