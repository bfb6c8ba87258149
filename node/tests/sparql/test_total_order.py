"""ORDER BY over values of several kinds ends the process that sorts them by itself: here it does not."""

from __future__ import annotations

import random
import subprocess
import sys

import pyoxigraph as ox
import pytest

from txlog.sparql import prepare_evaluated, prepare_update
from txlog.sparql.rewrite.total_order import make_order_total, remove_order_by

NOW = "2026-01-02T03:04:05Z"
XSD = "http://www.w3.org/2001/XMLSchema#"
VALUES = [
    *("1", "2", "10", "1.0", "1.50", "0.1", "true", "1e0", "1e16", "-1e16", "9007199254740993", "9007199254740992e0"),
    *("'x'", "'1x'", "'10'", "'9'", "''", "'x'@en", "'a'@de", "'x'@de", "<urn:a>", "<urn:1>", "'1'^^<urn:t>"),
    *(f"'{text}'^^<{XSD}double>" for text in ("NaN", "INF")),
    *(f"'{text}'^^<{XSD}date>" for text in ("2020-01-02", "2020-01-02Z", "2020-01-02+05:00", "zz")),
    *(f"'2020-01-02T{text}'^^<{XSD}dateTime>" for text in ("03:04:05Z", "03:04:05", "10:04:05+09:00", "12:04:05")),
    *(f"'{text}'^^<{XSD}duration>" for text in ("P1D", "P1M", "P30D")),
    *(f"'{text}'^^<{XSD}gYear>" for text in ("1999", "1999Z")),
]
SORT = """
import sys, pyoxigraph as ox
for data in sys.argv[2:]:
    store = ox.Store()
    store.update(data)
    assert len(list(store.query(sys.argv[1]))) == 200
"""


def mixed(seed: int) -> str:
    chance = random.Random(seed)
    values = [*VALUES, *(f"'{n}x'" for n in range(40)), *(str(n) for n in range(40))]
    return "INSERT DATA {" + " ".join(f"<urn:s{n}> <urn:p> {chance.choice(values)} ." for n in range(200)) + "}"


def sorts(query: str) -> bool:
    """Whether a process that sorts lives."""
    datas = [mixed(seed) for seed in range(20)]
    return not subprocess.run([sys.executable, "-c", SORT, query, *datas], capture_output=True, check=False).returncode


def test_an_order_as_it_is_written_ends_the_process_now_and_then() -> None:
    """What this is for; once Oxigraph's order is a total one, all of this can go."""
    assert not sorts("SELECT ?s { ?s ?p ?o } ORDER BY ?o")


@pytest.mark.parametrize("order", ["?o", "DESC(?o)", "ASC(?o) DESC(?s)", "(?o) STR(?o)", "RAND()", "COALESCE(?o, 1)"])
def test_a_total_order_never_does(order: str) -> None:
    assert sorts(make_order_total(f"SELECT ?s {{ ?s ?p ?o }} ORDER BY {order}"))


@pytest.mark.parametrize(
    ("values", "order"),
    [
        ("UNDEF <urn:b> <urn:a> 1", "ASC"),
        ("10 9 1.5 -1 2e0 true", "ASC"),
        ("'b' 'a' '10' '9'", "ASC"),
        (f"'2020-01-02T10:00:00+09:00'^^<{XSD}dateTime> '2020-01-02T02:00:00Z'^^<{XSD}dateTime>", "ASC"),
        ("3 1 2", "DESC"),
    ],
)
def test_where_sparql_says_an_order_it_is_that(values: str, order: str) -> None:
    query = f"SELECT ?o {{ VALUES ?o {{ {values} }} FILTER(!BOUND(?o) || !sameTerm(?o, true)) }} ORDER BY {order}(?o)"
    store = ox.Store()
    plain, total = store.query(query), store.query(make_order_total(query))
    assert isinstance(plain, ox.QuerySolutions)
    assert isinstance(total, ox.QuerySolutions)
    assert [row["o"] for row in plain] == [row["o"] for row in total]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("{ SELECT ?a { ?a ?b ?c } ORDER BY ?a DESC(?b) }", "{ SELECT ?a { ?a ?b ?c }  }"),
        ("{ SELECT ?a { ?a ?b ?c } ORDER BY (?a) STR(?b) <urn:f>(?c, (1)) }", "{ SELECT ?a { ?a ?b ?c }  }"),
        ("SELECT ?a { ?a ?b ?c } order by ?a VALUES ?a { 1 }", "SELECT ?a { ?a ?b ?c }  VALUES ?a { 1 }"),
        ("SELECT ?a { ?a ?b ?c } ORDER BY # a remark\n ?a", "SELECT ?a { ?a ?b ?c }  "),
        ("SELECT ?a { ?a ?b 'ORDER BY ?a' }", "SELECT ?a { ?a ?b 'ORDER BY ?a' }"),
    ],
)
def test_an_order_that_means_nothing_is_left_out(text: str, left: str) -> None:
    assert remove_order_by(text) == left


@pytest.mark.parametrize("text", ["ORDER BY", "ORDER BY (", "ORDER BY STR", "ORDER BY ASC", "ORDER BY ASC()", "ORDER"])
def test_what_does_not_parse_does_no_harm(text: str) -> None:
    make_order_total(text)
    remove_order_by(text)


def test_updates_carry_no_order_to_stores_and_a_total_one_where_they_are_evaluated_once() -> None:
    text = "INSERT { ?s <urn:q> ?o } WHERE { { SELECT ?s ?o { ?s ?p ?o } ORDER BY ?o STR(?s) %s } }"
    carried = prepare_update(text % "", base=None, now=NOW, draw=lambda: 7).payload.decode()
    assert "ORDER" not in carried
    once = prepare_evaluated(text % "LIMIT 3", base=None, now=NOW, draw=lambda: 7)
    assert "ORDER BY ASC(COALESCE(IF(isLiteral(?o)" in once.text
    assert "LIMIT 3" in once.text
    for seed in range(20):
        store = ox.Store()
        store.update(mixed(seed))
        store.update(carried)
        store.update(once.text)
