"""What ``make w3c`` rests on, and a part of it: when answers are the same, and that a difference is seen."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyoxigraph as ox
import pytest

from e2e.conformance.w3c.case_kinds import QueryTest, SyntaxTest, UpdateTest, UploadTest
from e2e.conformance.w3c.result_comparison import (
    CSV,
    JSON,
    XML,
    Statements,
    is_equal,
    read_answer,
    read_result,
    statements_of,
)
from e2e.conformance.w3c.run import (
    EXPECTATIONS_FILE,
    ExpectedVerdict,
    RequestRejected,
    TestRunner,
    TestVerdict,
    parse_listed,
    run_both,
    unexplained,
)
from e2e.conformance.w3c.suite import W3cSuite
from txlog.local.local_errors import CannotRun

pytestmark = pytest.mark.cluster
HEAD = '{"head":{"vars":["a","b"]},"results":{"bindings":['
EACH = 12
"""Of the tests that both pass, one of so many is carried out here."""


def answer(*rows: str) -> bytes:
    return (HEAD + ",".join(rows) + "]}}").encode()


def row(a: str, b: str) -> str:
    return "{" + ",".join(f'"{name}":{cell}' for name, cell in (("a", a), ("b", b)) if cell) + "}"


def blank(label: str) -> str:
    return f'{{"type":"bnode","value":"{label}"}}'


def number(text: str) -> str:
    return f'{{"type":"literal","datatype":"http://www.w3.org/2001/XMLSchema#integer","value":"{text}"}}'


def is_same(one: bytes, other: bytes, *, lax: bool = False) -> bool:
    return is_equal(read_answer(one, JSON), read_answer(other, JSON), lax=lax)


def test_solutions_are_compared_up_to_the_names_of_blank_nodes() -> None:
    crossed = answer(row(blank("x"), blank("y")), row(blank("y"), blank("x")))
    assert is_same(crossed, answer(row(blank("2"), blank("1")), row(blank("1"), blank("2"))))
    assert not is_same(crossed, answer(row(blank("1"), blank("1")), row(blank("2"), blank("2"))))
    through = row('{"type":"uri","value":"urn:txlog:bnode:00:1"}', blank("y"))
    assert is_same(answer(row(blank("x"), blank("y"))), answer(through)), "a master's name of a blank node"
    assert not is_same(answer(row(blank("x"), "")), answer(row('{"type":"uri","value":"urn:x"}', "")))


def test_solutions_are_counted_and_their_values_compared() -> None:
    one, two = answer(row(number("1"), "")), answer(row(number("1"), ""), row(number("1"), ""))
    assert is_same(one, answer(row(number("01"), "")))
    assert not is_same(one, answer(row("", number("1"))))
    assert not is_same(one, two)
    assert not is_same(two, one)
    assert is_same(two, one, lax=True)
    assert not is_same(one, two, lax=True)
    assert not is_same(one, answer())
    assert not is_same(one, one.replace(b'["a","b"]', b'["a"]')), "the same rows of other columns"
    assert not is_equal(True, read_answer(b'{"head":{},"boolean":false}', JSON))
    assert not is_equal(True, read_answer(one, JSON))


def test_an_order_counts_where_the_suite_says_one() -> None:
    text = b"""@prefix rs: <http://www.w3.org/2001/sw/DataAccess/tests/result-set#> .
        [] a rs:ResultSet ; rs:resultVariable "a" ;
           rs:solution [ rs:index 2 ; rs:binding [ rs:variable "a" ; rs:value 2 ] ] ,
                       [ rs:index 1 ; rs:binding [ rs:variable "a" ; rs:value 1 ] ] ."""

    def wanted(text: bytes) -> object:
        quads = ox.parse(text, ox.RdfFormat.TURTLE)
        return read_result(text, "x.ttl", [quad.triple for quad in quads])

    up, down = (
        read_answer(b"<sparql xmlns='http://www.w3.org/2005/sparql-results#'><head><variable name='a'/></head><results>"
        + b"".join(b"<result><binding name='a'><literal datatype='http://www.w3.org/2001/XMLSchema#integer'>%d"
                   b"</literal></binding></result>" % number for number in numbers) + b"</results></sparql>", XML)
        for numbers in ((1, 2), (2, 1))
    )  # fmt: skip
    ordered, free = wanted(text), wanted(text.replace(b"rs:index 2 ;", b"").replace(b"rs:index 1 ;", b""))
    assert is_equal(ordered, up)  # type: ignore[arg-type]
    assert not is_equal(ordered, down)  # type: ignore[arg-type]
    assert is_equal(free, down)  # type: ignore[arg-type]


def test_tables_are_compared_by_column_and_graphs_by_shape() -> None:
    table = read_answer(b"a,b\r\n1.0,_:x\r\nfoo,\r\n", CSV)
    assert is_equal(table, read_answer(b"b,a\r\n,foo\r\n_:0,1\r\n", CSV))
    assert not is_equal(table, read_answer(b"b,a\r\n,foo\r\n_:0,2\r\n", CSV))
    assert not is_equal(table, read_answer(b"a,c\r\n1.0,_:x\r\nfoo,\r\n", CSV))

    def ring(*nodes: str) -> bytes:
        pairs = zip(nodes, (*nodes[1:], nodes[0]), strict=True)
        return b"".join(f"_:{one} <urn:p> _:{next_} .\n".encode() for one, next_ in pairs)

    def graph(text: bytes) -> object:
        return statements_of(ox.parse(text, ox.RdfFormat.N_QUADS))

    four, twice_two = graph(ring("a", "b", "c", "d")), graph(ring("a", "b") + ring("c", "d"))
    assert is_equal(four, graph(ring("z", "y", "x", "w")))  # type: ignore[arg-type]
    assert not is_equal(four, twice_two)  # type: ignore[arg-type]
    named = b"<urn:s> <urn:p> <urn:o> <urn:g> .\n"
    assert not is_equal(graph(named), graph(named.replace(b" <urn:g>", b"")))  # type: ignore[arg-type]


def test_triple_terms_are_compared_by_their_parts() -> None:
    def graph(*lines: str) -> object:
        return statements_of(ox.parse("\n".join(lines).encode(), ox.RdfFormat.N_TRIPLES))

    one = graph('_:a <urn:p> <<( _:b <urn:p> <<( <urn:s> <urn:p> "01"^^<urn:d> )>> )>> .', '_:b <urn:q> "x"@en--ltr .')
    same = graph('_:x <urn:p> <<( _:y <urn:p> <<( <urn:s> <urn:p> "01"^^<urn:d> )>> )>> .', '_:y <urn:q> "x"@en--ltr .')
    assert is_equal(one, same)  # type: ignore[arg-type]
    for other in ("_:x <urn:q>", '_:y <urn:q> "x"@en--rtl .', '_:y <urn:q> "x"@en .'):
        line = other if other.endswith(".") else f'{other} "x"@en--ltr .'
        first = '_:x <urn:p> <<( _:y <urn:p> <<( <urn:s> <urn:p> "01"^^<urn:d> )>> )>> .'
        assert not is_equal(one, graph(first, line))  # type: ignore[arg-type]
    stored = graph("_:a <urn:p> <<( <urn:txlog:bnode:kept:b> <urn:p> <urn:o> )>> .")
    assert is_equal(stored, graph("_:a <urn:p> <<( _:b <urn:p> <urn:o> )>> ."))  # type: ignore[arg-type]


class _Taker:
    """A system that takes everything, or refuses it."""

    def __init__(self, status: int) -> None:
        self.status = status

    def fill(self, quads: object) -> None: ...

    def query(self, text: str, media: str) -> bytes:
        if self.status != 200:
            raise RequestRejected(self.status, "no")
        return b""

    def update(self, text: str) -> None:
        self.query(text, "")

    def contents(self) -> Statements:
        return Statements(frozenset())

    def upload(self, body: bytes, form: ox.RdfFormat, base: str) -> Statements:
        self.query("", "")
        return self.contents()


@pytest.mark.parametrize(
    ("status", "valid", "passes"),
    [(200, True, True), (200, False, False), (400, True, False), (400, False, True), (500, False, False)],
)
@pytest.mark.parametrize("is_update", [True, False])
def test_a_malformed_text_is_to_be_refused_as_such(status: int, valid: bool, passes: bool, is_update: bool) -> None:
    class Suite(W3cSuite):
        def __init__(self) -> None: ...

        def read(self, path: str) -> bytes:
            return b""

    runner = TestRunner(Suite(), _Taker(status))
    assert (runner.verdict(SyntaxTest("t", "ASK {}", is_update, valid)).why == "") == passes
    assert (runner.verdict(UploadTest("t", "t.ttl", "urn:t", "", valid)).why == "") == passes


def test_a_difference_that_is_not_listed_is_a_miss_and_so_is_a_listed_one_that_is_none() -> None:
    passed, failed = TestVerdict("t", ""), TestVerdict("t", "0: ; wanted: 1")
    known = {"t": ExpectedVerdict("failed", "passed", "because")}
    assert unexplained([failed], [passed], known) == []
    assert unexplained([passed], [passed], {}) == []
    assert "the master failed, the engine passed" in unexplained([failed], [passed], {})[0]
    assert "the master passed, the engine passed" in unexplained([passed], [passed], known)[0]
    assert "the master failed, the engine failed" in unexplained([failed], [failed], known)[0]
    assert "no test of the suite" in unexplained([], [], known)[0]
    with pytest.raises(ValueError, match="says nothing"):
        parse_listed("| `t` | failed | passed |  |")
    with pytest.raises(ValueError, match="twice"):
        parse_listed("| `t` | failed | passed | x |\n| `t` | failed | passed | x |")


def test_a_part_of_the_suite_comes_to_what_the_document_says(tmp_path: Path) -> None:
    try:
        suite = W3cSuite()
    except CannotRun as why:
        pytest.skip(str(why))
    known = parse_listed(EXPECTATIONS_FILE.read_text())
    assert sum(isinstance(test, QueryTest) for test in suite.tests) == 427
    assert sum(isinstance(test, UpdateTest) for test in suite.tests) == 93
    assert Counter(type(test) for test in suite.rdf12_tests) == {
        UploadTest: 1230,
        SyntaxTest: 181,
        QueryTest: 46,
        UpdateTest: 3,
    }
    every = [*suite.tests, *suite.rdf12_tests]
    assert not known.keys() - {test.name for test in every}
    assert len({test.name for test in every}) == len(every)
    tests = [test for at, test in enumerate(every) if test.name in known or at % EACH == 0]
    master, engine = run_both(tmp_path, suite, tests)
    assert len(master) == len(tests)
    assert unexplained(master, engine, known) == []
