"""Patterns of quads, and what the bytes of an entry say that it may write."""

from __future__ import annotations

import random

import pyoxigraph
import pytest

from txlog.model.declared_writes import (
    WRITES_ANYTHING,
    WRITES_NOTHING,
    WriteSet,
    decode_declaration,
    encode_declaration,
    find_writes,
)
from txlog.model.entry import KIND_CONFIG, KIND_QUADS, KIND_SKIP, KIND_UPDATE
from txlog.model.quad_pattern import (
    EVERY_QUAD,
    PATTERN_BYTES_MAX,
    PATTERNS_MAX,
    PatternCollector,
    QuadPattern,
    bound_patterns,
    pattern_of_line,
)
from txlog.model.quads import encode_quads
from txlog.sparql import prepare_update
from txlog.workers.canonical_literals import canonical_literal

XSD = b"http://www.w3.org/2001/XMLSchema#"
S, P, V, G = b"<x:s>", b"<x:p>", b"<x:o>", b"<x:g>"


@pytest.mark.parametrize(
    ("line", "pattern"),
    [
        (b"<x:s> <x:p> <x:o> .", QuadPattern(b"", S, P, V)),
        (b"<x:s> <x:p> <x:o> <x:g> .", QuadPattern(G, S, P, V)),
        (b'<x:s> <x:p> "a b" .', QuadPattern(b"", S, P, b'"a b"')),
        (b'<x:s> <x:p> "" <x:g> .', QuadPattern(G, S, P, b'""')),
        (b'<x:s> <x:p> "a <x:g>" .', QuadPattern(b"", S, P, b'"a <x:g>"')),
        (b'<x:s> <x:p> "a <x:g> ." <x:h> .', QuadPattern(b"<x:h>", S, P, b'"a <x:g> ."')),
        (b'<x:s> <x:p> "a <x"^^<x:d> .', QuadPattern(b"", S, P)),
        (b'<x:s> <x:p> "a <x"^^<x:d> <x:g> .', QuadPattern(G, S, P)),
        (b'<x:s> <x:p> "a"@en <x:g> .', QuadPattern(G, S, P)),
        (b'<x:s> <x:p> "a\\" <x:g>" .', QuadPattern(b"", S, P)),
        (b"<x:s> <x:p> <<( <x:a> <x:b> <x:c> )>> .", QuadPattern(b"", S, P)),
        (b'<x:s> <x:p> <<( <x:a> <x:b> "c" )>> <x:g> .', QuadPattern(G, S, P)),
        (b"<x:\\u0073> <x:p> <x:o> .", QuadPattern(b"", None, P, V)),
    ],
)
def test_the_pattern_of_a_line(line: bytes, pattern: QuadPattern) -> None:
    assert pattern_of_line(line) == pattern


def test_the_pattern_of_any_line_that_a_parser_writes() -> None:
    chance = random.Random(1)
    for _ in range(2000):
        text = "".join(chance.choice('ab <>"\\.\n\té') for _ in range(chance.randint(0, 6)))
        datatype = chance.choice([None, pyoxigraph.NamedNode("x:d")])
        value = pyoxigraph.Literal(text, datatype=datatype) if datatype else pyoxigraph.Literal(text)
        graph = chance.choice([pyoxigraph.DefaultGraph(), pyoxigraph.NamedNode("x:g")])
        quad = pyoxigraph.Quad(pyoxigraph.NamedNode("x:s"), pyoxigraph.NamedNode("x:p"), value, graph)
        line = pyoxigraph.serialize([quad], format=pyoxigraph.RdfFormat.N_QUADS).strip()
        found = pattern_of_line(line)
        assert found[:3] == (G if isinstance(graph, pyoxigraph.NamedNode) else b"", S, P), line
        is_plain = datatype is None and not set(text) & set('"\\\n\t')
        assert found.value == (f'"{text}"'.encode() if is_plain else None) or (is_plain is False and b"\t" in line)


@pytest.mark.parametrize(
    "literal",
    [
        b'"01"^^<%sinteger>' % XSD,
        b'"1.50"^^<%sdecimal>' % XSD,
        b'"1E0"^^<%sdouble>' % XSD,
        b'"1"^^<%sboolean>' % XSD,
        b'"2026-01-01T00:00:00+00:00"^^<%sdateTime>' % XSD,
        b'"a"^^<%sstring>' % XSD,
        b'"a"@EN',
        b'"\\u0061"',
    ],
)
def test_forms_of_one_literal_meet(literal: bytes) -> None:
    one, other = (pattern_of_line(b"<x:s> <x:p> %s ." % each) for each in (literal, canonical_literal(literal)))
    assert one.meets(other)
    assert one.value is None


def test_patterns_meet_term_by_term() -> None:
    assert QuadPattern(G, None, P).meets(QuadPattern(None, S, P, V))
    assert EVERY_QUAD.meets(QuadPattern(b"", S, P, V))
    for at in range(4):
        one, other = [S] * 4, [S] * 4
        other[at] = P
        assert not QuadPattern(*one).meets(QuadPattern(*other))
        other[at] = None  # type: ignore[call-overload]
        assert QuadPattern(*one).meets(QuadPattern(*other))
        assert QuadPattern(*other).covers(QuadPattern(*one))
        assert not QuadPattern(*one).covers(QuadPattern(*other))
    assert not QuadPattern(b"", S).meets(QuadPattern(G, S))


def test_too_many_patterns_lose_values_then_subjects_then_graphs_then_predicates() -> None:
    def names(count: int) -> list[bytes]:
        return [b"<x:%d>" % n for n in range(count)]

    many = PATTERNS_MAX + 1
    values = [QuadPattern(G, S, P, each) for each in names(many)]
    assert bound_patterns(values[:PATTERNS_MAX]) == tuple(values[:PATTERNS_MAX])
    assert bound_patterns(values) == (QuadPattern(G, S, P),)
    assert bound_patterns([QuadPattern(G, each, P, each) for each in names(many)]) == (QuadPattern(G, None, P),)
    assert bound_patterns([QuadPattern(each, each, P, V) for each in names(many)]) == (QuadPattern(None, None, P),)
    assert bound_patterns([QuadPattern(G, S, each, V) for each in names(many)]) == (EVERY_QUAD,)
    long = b"<x:%s>" % (b"a" * PATTERN_BYTES_MAX)
    assert bound_patterns([QuadPattern(G, S, P, long)]) == (QuadPattern(G, S, P),)


def test_what_was_added_stays_covered_within_the_bounds() -> None:
    chance = random.Random(2)
    for _ in range(300):
        collector = PatternCollector(count_max=4, bytes_max=60)
        added = [
            QuadPattern(*(chance.choice([None, b"<x:a>", b"<x:b>", b"<x:c>"]) for _ in range(4)))
            for _ in range(chance.randint(0, 12))
        ]
        for each in added:
            collector.add(each)
        found = collector.patterns()
        assert len(found) <= 4
        assert sum(each.size for each in found) <= 60
        assert all(any(one.covers(each) for one in found) for each in added)
        assert not any(one.covers(other) for one in found for other in found if one is not other)


def test_the_writes_of_each_kind() -> None:
    payload = encode_quads([b"<x:s> <x:p> 'a' .".replace(b"'", b'"')], [b"<x:s> <x:p> <x:o> <x:g> ."])
    assert find_writes(KIND_QUADS, "", payload) == WriteSet(
        (QuadPattern(b"", S, P, b'"a"'),), (QuadPattern(G, S, P, V),)
    )
    assert find_writes(KIND_QUADS, "", b"") == WRITES_NOTHING
    assert find_writes(KIND_UPDATE, "", b"CLEAR ALL") == WRITES_ANYTHING
    declared = encode_declaration([QuadPattern(b"", S)]).encode() + b"DELETE WHERE { <x:s> ?p ?o }"
    assert find_writes(KIND_UPDATE, "", declared) == WriteSet(may_write=(QuadPattern(b"", S),))
    assert list(WriteSet((EVERY_QUAD,), (), (EVERY_QUAD,)).patterns()) == [EVERY_QUAD] * 2
    assert find_writes(KIND_CONFIG, "a change", b"") == WRITES_NOTHING
    assert find_writes(KIND_SKIP, "namespace 1 set ex http://e.org/", b"") == WRITES_NOTHING
    assert find_writes(KIND_SKIP, "uk-1.00c0ffee00c0ffee.42", b"") == WRITES_ANYTHING
    assert find_writes(99, "", b"") == WRITES_ANYTHING


def test_a_declaration_is_what_was_declared() -> None:
    chance = random.Random(3)
    terms = [None, b"<x:a>", b"<x:\xc3\xa9>", b'"a b"', b'"*"', b'"- <x:s>"']
    for _ in range(300):
        patterns = [
            QuadPattern(chance.choice([b"", b"<x:g>", None]), *(chance.choice(terms) for _ in range(3)))
            for _ in range(chance.randint(0, 4))
        ]
        text = encode_declaration(patterns)
        assert text.startswith("#w1")
        assert text.index("\n") == len(text) - 1
        assert decode_declaration(text.encode() + b"CLEAR ALL") == bound_patterns(patterns)


@pytest.mark.parametrize(
    "text",
    [
        b"CLEAR ALL",
        b"#w1 * * * *",
        b"#w1 * * *\nCLEAR ALL",
        b"#w1 * * * x\nCLEAR ALL",
        b"#w1* * * *\nCLEAR ALL",
        b"#w1  * * * *\nCLEAR ALL",
        b"#w2 * * * *\nCLEAR ALL",
        b'#w1 - <x:s> <x:p> "a\\"\nCLEAR ALL',
        b" #w1 * * * *\nCLEAR ALL",
        b"#w1" + b" * * * *" * (PATTERNS_MAX + 1) + b"\nCLEAR ALL",
        b"#w1" + b" * * * *" * 100_000 + b"\nCLEAR ALL",
        b"",
    ],
)
def test_any_other_comment_declares_nothing(text: bytes) -> None:
    assert decode_declaration(text) is None
    assert find_writes(KIND_UPDATE, "", text) == WRITES_ANYTHING


def test_a_client_declares_nothing_and_stores_pass_over_a_declaration() -> None:
    clients = encode_declaration([]) + "DELETE { ?s <x:p> ?o } WHERE { ?s <x:p> ?o } ;\n#w1\nCLEAR ALL"
    body = prepare_update(clients, base=None, now="2026-01-01T00:00:00Z", draw=lambda: 1)
    assert b"#w1" not in body.payload
    store = pyoxigraph.Store()
    store.update(encode_declaration([EVERY_QUAD]) + "INSERT DATA { <x:s> <x:p> <x:o> }")
    assert len(store) == 1
