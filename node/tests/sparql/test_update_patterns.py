"""Which quads an update reads and may write: case by case, and never fewer than show themselves on a real store."""

from __future__ import annotations

import random
from collections import Counter

import pyoxigraph
import pytest

from e2e.conformance.determinism.random_updates import RandomUpdates
from txlog.model.entry import KIND_QUADS
from txlog.model.errors import BadInput, Refused
from txlog.model.quad_pattern import DEFAULT_GRAPH, EVERY_QUAD, PATTERNS_MAX, QuadPattern, pattern_of_line
from txlog.model.quads import decode_quads
from txlog.sparql import TransactionBody, prepare_update
from txlog.sparql.analysis.update_patterns import find_query_patterns, find_read_patterns, find_written_patterns

NOW = "2026-01-01T00:00:00Z"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
CHECKS_MIN = 100
"""So many random updates must be of a sort that shows something, or the test shows nothing."""


def _of(text: str) -> set[QuadPattern]:
    """``g s p o`` in each line: ``*`` any, ``-`` the default graph, else an IRI or a string."""
    found: set[QuadPattern] = set()
    for line in text.strip().splitlines():
        terms: list[bytes | None] = []
        for term in line.split():
            if term == "*":
                terms.append(None)
            elif term == "-":
                terms.append(DEFAULT_GRAPH)
            else:
                terms.append(term.encode() if term.startswith('"') else f"<{term}>".encode())
        found.add(QuadPattern(*terms))
    return found


@pytest.mark.parametrize(
    ("where", "reads"),
    [
        ("?s <x:p> ?o", "- * x:p *"),
        ("<x:s> <x:p> <x:o>", "- x:s x:p x:o"),
        ("?s a <x:C>", f"- * {RDF}type x:C"),
        ("<x:s> ?p ?o", "- x:s * *"),
        ("?s <x:p> 'a'", '- * x:p "a"'),
        ('?s <x:p> "a\\"b"', "- * x:p *"),
        ('?s <x:p> "a\\nb"', "- * x:p *"),
        ("?s <x:p> 'a'@en", "- * x:p *"),
        ("?s <x:p> 01", "- * x:p *"),
        ("?s <x:p> true", "- * x:p *"),
        ("?s <x:p> '1'^^<http://www.w3.org/2001/XMLSchema#string>", "- * x:p *"),
        ("?s <x:p> ?o ; <x:q> ?v , <x:w>", "- * x:p *\n- * x:q *"),
        ("?s <x:p> [ <x:q> 1 ]", "- * x:p *\n- * x:q *"),
        ("?s <x:p> (1)", f"- * x:p *\n- * {RDF}first *\n- * {RDF}rest {RDF}nil"),
        ("GRAPH <x:g> { <x:s> <x:p> ?o }", "x:g x:s x:p *"),
        ("GRAPH ?g { <x:s> <x:p> ?o }", "* x:s x:p *"),
        ("GRAPH <x:g> { FILTER(true) }", "x:g * * *"),
        ("GRAPH <x:g> { OPTIONAL { ?s <x:p> ?o } }", "x:g * * *"),
        ("?s <x:p>/<x:q> <x:o>", "- * x:p *\n- * x:q *"),
        ("<x:s> ^<x:p> ?o", "- * x:p x:s"),
        ("<x:s> <x:p>|<x:q> ?o", "- * x:p *\n- * x:q *"),
        ("GRAPH <x:g> { <x:s> <x:p>* ?o }", "x:g * * *"),
        ("GRAPH <x:g> { <x:s> !<x:p> ?o }", "x:g * * *"),
        ("?s <x:p> ?o FILTER NOT EXISTS { ?o <x:q> ?v }", "- * x:p *\n- * x:q *"),
        ("?s <x:p> ?o FILTER(?o > 1 && EXISTS { ?o <x:q> ?v })", "- * x:p *\n- * x:q *"),
        ("?s <x:p> ?o MINUS { ?s <x:q> ?v } OPTIONAL { ?s <x:r> ?v }", "- * x:p *\n- * x:q *\n- * x:r *"),
        ("{ ?s <x:p> ?o } UNION { GRAPH <x:g> { ?s <x:q> ?o } }", "- * x:p *\nx:g * x:q *"),
        ("{ SELECT ?s (COUNT(*) AS ?n) { ?s <x:p> ?o } GROUP BY ?s HAVING (COUNT(*) > 1) }", "- * x:p *"),
        ("BIND(EXISTS { <x:s> <x:q> ?v } AS ?b)", "- x:s x:q *"),
    ],
)
def test_what_a_where_reads(where: str, reads: str) -> None:
    assert set(find_read_patterns(f"INSERT {{ <x:i> <x:j> ?o }} WHERE {{ {where} }}")) == _of(reads)


@pytest.mark.parametrize(
    ("where", "reads"),
    [
        ("VALUES ?s { <x:a> <x:b> } ?s <x:p> ?o", "- x:a x:p *\n- x:b x:p *"),
        ("?s <x:p> ?o VALUES ?s { <x:a> }", "- x:a x:p *"),
        ("VALUES (?s ?o) { (<x:a> <x:c>) (<x:b> UNDEF) } ?s <x:p> ?o", "- x:a x:p x:c\n- x:b x:p *"),
        ("VALUES ?s { <x:a> UNDEF } ?s <x:p> ?o", "- * x:p *"),
        ("VALUES ?s { } ?s <x:p> ?o", ""),
        ("VALUES ?o { 'a' 1 } ?s <x:p> ?o", "- * x:p *"),
        ("VALUES ?s { <x:a> } VALUES ?o { <x:c> } ?s <x:p> ?o", "- x:a x:p x:c"),
        ("VALUES ?s { <x:a> } GRAPH <x:g> { ?s <x:p> ?o }", "x:g x:a x:p *"),
        ("VALUES ?g { <x:g> } GRAPH ?g { ?s <x:p> ?o }", "x:g * x:p *"),
        # Where the group is not joined row by row, all of it is read.
        ("VALUES ?s { <x:a> } OPTIONAL { ?s <x:p> ?o }", "- * x:p *"),
        ("VALUES ?s { <x:a> } MINUS { ?s <x:p> ?o }", "- * x:p *"),
        ("VALUES ?s { <x:a> } FILTER EXISTS { ?s <x:p> ?o }", "- * x:p *"),
        ("VALUES ?s { <x:a> } { SELECT ?s { ?s <x:p> ?o } LIMIT 1 }", "- * x:p *"),
        ("{ SELECT ?s { ?s <x:p> ?o } LIMIT 1 VALUES ?s { <x:a> } }", "- * x:p *"),
        ("VALUES ?g { <x:g> } GRAPH ?g { ?s <x:p> ?o OPTIONAL { ?s <x:q> ?v } }", "x:g * x:p *\n* * x:q *"),
        ("GRAPH ?g { ?s <x:p> ?o OPTIONAL { VALUES ?g { <x:g> } ?s <x:q> ?v } }", "* * x:p *\n* * x:q *"),
        ("VALUES ?g { <x:g> } GRAPH ?g { { SELECT ?s { ?s <x:p> ?o } } }", "x:g * * *\n* * x:p *"),
    ],
)
def test_values_narrow_the_triples_of_their_own_group(where: str, reads: str) -> None:
    assert set(find_read_patterns(f"INSERT {{ <x:i> <x:j> ?o }} WHERE {{ {where} }}")) == _of(reads)


@pytest.mark.parametrize(
    ("text", "union", "reads"),
    [
        ("INSERT DATA { <x:s> <x:p> 1 }", False, ""),
        ("DELETE DATA { <x:s> <x:p> 1 }", False, ""),
        ("CLEAR ALL ; DROP GRAPH <x:g> ; CREATE SILENT GRAPH <x:h>", False, ""),
        ("COPY SILENT <x:a> TO <x:b>", False, "x:a * * *"),
        ("MOVE DEFAULT TO GRAPH <x:b>", False, "- * * *"),
        ("ADD DEFAULT TO <x:b>", True, "* * * *"),
        ("DELETE WHERE { <x:s> <x:p> ?o }", False, "- x:s x:p *"),
        ("WITH <x:w> DELETE { ?s <x:p> ?o } WHERE { ?s <x:q> ?o }", False, "x:w * x:q *"),
        ("DELETE { ?s <x:p> ?o } USING <x:u> USING <x:v> WHERE { ?s <x:q> ?o }", False, "x:u * x:q *\nx:v * x:q *"),
        ("INSERT { <x:s> <x:p> ?o } USING NAMED <x:u> WHERE { ?s <x:q> ?o }", False, "- * x:q *"),
        ("WITH <x:w> INSERT { <x:s> <x:p> ?o } USING <x:u> WHERE { GRAPH ?g { ?s <x:q> ?o } }", False, "* * x:q *"),
        ("INSERT { ?s <x:p> ?o } WHERE { ?s <x:q> ?o }", True, "* * x:q *"),
        ("DELETE { <x:s> <x:p> ?o } WHERE { ?s <x:q> ?o }", True, "* x:s x:p *\n* * x:q *"),
        ("INSERT { <x:s> <x:p> 1 } WHERE { ?s <x:q> 1 } ; DELETE WHERE { ?s <x:r> ?o }", False, "- * x:q *\n- * x:r *"),
    ],
)
def test_what_an_update_reads(text: str, union: bool, reads: str) -> None:
    assert set(find_read_patterns(text, union=union)) == _of(reads)


@pytest.mark.parametrize(
    "text",
    [
        "INSERT { <x:s> <x:p> 1 } WHERE { ?s <http://www.w3.org/2000/01/rdf-schema#member> ?o }",
        "INSERT { <x:s> <x:p> 1 } WHERE { ?s <http://www.openrdf.org/schema/sesame#directType> ?o }",
        "INSERT { <x:s> <x:p> 1 } WHERE { ?s <http://jena.apache.org/text#query> 'a' }",
        "INSERT { <x:s> <x:p> 1 } WHERE { ?s <http://jena.apache.org/ARQ/list#member> ?o }",
        "INSERT { <x:s> <x:p> 1 } WHERE { ?s <x:q>/<http://www.opengis.net/ont/geosparql#sfWithin> ?o }",
        "INSERT { <x:s> <x:p> 1 } WHERE { SERVICE <x:e> { ?s <x:q> ?o } }",
        "INSERT { <x:s> <x:p> 1 } WHERE { FILTER(<x:function>(1)) }",
        "INSERT { <x:s> <x:p> 1 } WHERE { << ?s <x:q> ?o >> <x:r> ?v }",
        "INSERT { <x:s> <x:p> 1 } WHERE { ?s <x:q> ?o",
        "INSERT { <x:s> <x:p> 1 } WHERE { ?s !(<x:q> ?o }",
        "INSERT { <x:s> <x:p> 1 } WHERE { VALUES ?s { <x:a> ",
        "INSERT { <x:s> <x:p> 1 } WHERE { ?s <x:\\uD800> ?o }",
        "LOAD <x:d>",
        "MERGE <x:g>",
        "INSERT",
    ],
)
def test_what_is_not_known_reads_everything(text: str) -> None:
    assert find_read_patterns(text) == (EVERY_QUAD,)


@pytest.mark.parametrize(
    ("text", "writes"),
    [
        ("INSERT DATA { <x:s> <x:p> 1 . GRAPH <x:g> { <x:s> <x:p> <x:o> } }", "- x:s x:p *\nx:g x:s x:p x:o"),
        ("DELETE DATA { <x:s> <x:p> 'a' }", '- x:s x:p "a"'),
        ("DELETE { ?s <x:p> ?o } INSERT { ?s <x:q> 'b' } WHERE { ?s <x:r> ?o }", '- * x:p *\n- * x:q "b"'),
        (
            "WITH <x:w> DELETE { ?s <x:p> ?o . GRAPH ?g { <x:s> ?p ?o } } WHERE { ?s <x:r> ?o }",
            "x:w * x:p *\n* x:s * *",
        ),
        ("DELETE WHERE { ?s <x:p> ?o . GRAPH <x:g> { ?s <x:q> <x:o> } }", "- * x:p *\nx:g * x:q x:o"),
        ("CLEAR GRAPH <x:g> ; DROP DEFAULT", "x:g * * *\n- * * *"),
        ("DROP NAMED", "* * * *"),
        ("COPY <x:a> TO <x:b>", "x:b * * *"),
        ("MOVE <x:a> TO DEFAULT", "x:a * * *\n- * * *"),
        ("ADD DEFAULT TO <x:b>", "x:b * * *"),
        ("INSERT { [] <x:p> [ <x:q> 1 ] } WHERE { }", "- * x:p *\n- * x:q *"),
        ("LOAD <x:d> INTO GRAPH <x:g>", "* * * *"),
        ("MERGE <x:g>", "* * * *"),
    ],
)
def test_what_an_update_may_write(text: str, writes: str) -> None:
    assert set(find_written_patterns(text)) == _of(writes)


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("SELECT * { ?s <x:p> ?o } VALUES ?s { <x:a> }", "- * x:p *"),
        ("PREFIX x: <x:> ASK { x:s x:p ?o }", "- x:s x:p *"),
        ("CONSTRUCT { ?s <x:p> ?o } FROM <x:g> WHERE { ?s <x:q> ?o }", "x:g * x:q *"),
        ("SELECT ?s FROM NAMED <x:g> { ?s <x:q> ?o GRAPH ?g { ?s <x:p> ?o } } ORDER BY ?s", "- * x:q *\n* * x:p *"),
        ("SELECT (EXISTS { <x:s> <x:p> 1 } AS ?b) { }", "- x:s x:p *"),
        ("DESCRIBE <x:s>", "* * * *"),
        ("SELECT * { ?s <p> ?o }", "* * * *"),
        ("SELECT * { ?s <x:p> ?o FILTER(<x:function>(?o)) }", "* * * *"),
        ("no query", "* * * *"),
        ("", "* * * *"),
    ],
)
def test_what_a_query_reads(text: str, reads: str) -> None:
    assert set(find_query_patterns(text)) == _of(reads)


def test_many_values_are_bounded() -> None:
    names = " ".join(f"<x:s{n}>" for n in range(10 * PATTERNS_MAX))
    text = f"INSERT {{ <x:i> <x:j> ?o }} WHERE {{ VALUES ?s {{ {names} }} ?s <x:p> ?o . ?o <x:q> ?v }}"
    assert set(find_read_patterns(text)) == _of("- * x:p *\n- * x:q *")
    data = "INSERT DATA { " + " . ".join(f"<x:s{n}> <x:p> <x:o{n}>" for n in range(10 * PATTERNS_MAX)) + " }"
    assert set(find_written_patterns(data)) == _of("- * x:p *")


# -- on a real store


def _random_store(chance: random.Random) -> list[pyoxigraph.Quad]:
    terms = [pyoxigraph.NamedNode(f"urn:n{n}") for n in range(7)]
    predicates = [pyoxigraph.NamedNode(f"urn:p{n}") for n in range(4)]
    values = [*terms, *(pyoxigraph.Literal(n) for n in range(4)), pyoxigraph.Literal("a")]
    graphs = [pyoxigraph.DefaultGraph(), *(pyoxigraph.NamedNode(f"urn:g{n}") for n in range(4))]
    quads = {
        pyoxigraph.Quad(chance.choice(terms), chance.choice(predicates), chance.choice(values), chance.choice(graphs))
        for _ in range(chance.randint(10, 60))
    }
    return sorted(quads, key=str)


def _execute(quads: list[pyoxigraph.Quad], body: TransactionBody) -> set[pyoxigraph.Quad]:
    store = pyoxigraph.Store()
    store.extend(quads)
    if body.kind != KIND_QUADS:
        store.update(body.payload.decode())
        return set(store)
    for adds, line in decode_quads(body.payload):
        quad = next(iter(pyoxigraph.parse(line, pyoxigraph.RdfFormat.N_QUADS)))
        assert isinstance(quad, pyoxigraph.Quad)
        (store.add if adds else store.remove)(quad)
    return set(store)


def _pattern_of(quad: pyoxigraph.Quad) -> QuadPattern:
    return pattern_of_line(pyoxigraph.serialize([quad], format=pyoxigraph.RdfFormat.N_QUADS).strip())


def _random_bodies(chance: random.Random, count: int) -> list[TransactionBody]:
    updates, bodies = RandomUpdates(chance, drawn=0.0), list[TransactionBody]()
    while len(bodies) < count:
        try:
            body = prepare_update(updates.update(), base=None, now=NOW, draw=lambda: 7)
        except (BadInput, Refused):
            continue
        if body.kind != KIND_QUADS:
            bodies.append(body)
    return bodies


def test_what_random_updates_change_is_what_they_may_write() -> None:
    chance, shown = random.Random(5), Counter[bool]()
    for body in _random_bodies(chance, 400):
        quads = _random_store(chance)
        changed = set(quads) ^ _execute(quads, body)
        declared = find_written_patterns(body.payload.decode())
        for quad in changed:
            assert any(each.covers(_pattern_of(quad)) for each in declared), (body.payload, quad, declared)
        shown[bool(changed) and declared != (EVERY_QUAD,)] += 1
    assert shown[True] >= CHECKS_MIN, shown


def test_random_updates_do_the_same_without_the_quads_that_they_do_not_read() -> None:
    chance, shown = random.Random(6), Counter[bool]()
    for body in _random_bodies(chance, 800):
        text, quads = body.payload.decode(), _random_store(chance)
        reads = find_read_patterns(text)
        unread = {quad for quad in quads if not any(each.meets(_pattern_of(quad)) for each in reads)}
        with_all = _execute(quads, body)
        without = _execute([quad for quad in quads if quad not in unread], body)
        # What it adds it adds to both. What it deletes of the unread ones is not there in the second store.
        assert with_all - unread == without - unread, (text, reads)
        assert without <= with_all, (text, reads)
        shown[bool(unread) and with_all != set(quads)] += 1
    assert shown[True] >= CHECKS_MIN, shown
