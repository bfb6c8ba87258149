"""Corners of updates whose graphs are written out: what stores execute, counted in real ones."""

from __future__ import annotations

from itertools import count

import pyoxigraph
import pytest

from txlog.model.errors import BadInput, NotDeterministic
from txlog.sparql import RequestDataset, prepare_evaluated, prepare_update
from txlog.sparql.rewrite.blank_node_functions import tell_blank_nodes

NOW = "2026-01-01T00:00:00.000Z"
DATA = b"""<a:s> <a:p> <a:o> .
<a:s> <a:p> <a:o> <a:g> .
<a:s> <a:p> <a:o> <a:h> .
<a:x> <a:r> "1" <a:g> .
"""


def after(text: str) -> set[str]:
    """The quads of a store with :data:`DATA` after this operation."""
    store = pyoxigraph.Store()
    store.load(DATA, pyoxigraph.RdfFormat.N_QUADS)
    store.update(text)
    return {str(quad) for quad in store}


def prepared(text: str, dataset: RequestDataset | None = None) -> str:
    draw = count(1)
    found = prepare_update(text, base=None, now=NOW, draw=lambda: next(draw), all_graphs=True, dataset=dataset)
    return found.payload.decode()


@pytest.mark.parametrize("using", [(), ("<a:g>",), ("",)])
@pytest.mark.parametrize("named", ["", "<http://www.openrdf.org/schema/sesame#nil>"])
@pytest.mark.parametrize("clause", ["", "WITH <a:g> "])
def test_the_default_graph_is_no_named_one(using: tuple[str, ...], named: str, clause: str) -> None:
    """``using-named-graph-uri=null``: a store must be able to read what is logged, and GRAPH names no graph."""
    dataset = RequestDataset(using=using, named=(named,))
    written = prepared(clause + "INSERT { <a:n> <a:n> ?s } WHERE { GRAPH ?g { ?s <a:r> ?o } }", dataset)
    assert not any("<a:n>" in quad for quad in after(written)), written
    plain = prepared(clause + "INSERT { <a:n> <a:n> ?s } WHERE { ?s <a:r> ?o }", dataset)
    reads_g = bool(clause) or "<a:g>" in using
    assert any("<a:n>" in quad for quad in after(plain)) == bool(reads_g), plain


def test_a_solution_makes_one_blank_node_however_many_graphs_lose_the_triple() -> None:
    text = "DELETE { <a:s> <a:p> <a:o> } INSERT { ?x <a:n> _:b } WHERE { ?x <a:r> ?o }"
    with pytest.raises(NotDeterministic) as refused:
        prepared(text)
    assert refused.value.once
    draw = count(1)
    evaluated = prepare_evaluated(text, base=None, now=NOW, draw=lambda: next(draw), all_graphs=True)
    assert evaluated.text
    without = prepared("DELETE { <a:s> <a:p> <a:o> } INSERT { ?x <a:n> 1 } WHERE { ?x <a:r> ?o }")
    assert {quad for quad in after(without) if "<a:p>" in quad} == set()


@pytest.mark.parametrize("depth", [9, 12, 16, 30])
def test_conditions_of_conditions_do_not_grow_without_a_bound(depth: int) -> None:
    text = "SELECT * { ?s ?p ?x } ORDER BY ?x"
    for _ in range(depth):
        text = "SELECT * { ?s ?p ?x } ORDER BY (EXISTS { " + text + " })"
    assert len(tell_blank_nodes(text, ranked=True)) < 4 * len(text)
    nested = "?x"
    for _ in range(depth):
        nested = f"IF(true, {nested}, ?y)"
    with_tests = "?x"
    for _ in range(depth):
        with_tests = f"STR({with_tests})"
    for one in (nested, with_tests):
        try:
            found = tell_blank_nodes(f"SELECT * {{ ?s ?p ?x }} ORDER BY {one}", ranked=True)
        except BadInput:
            continue
        assert len(found) < 1 << 20


def test_a_variable_of_a_group_may_be_a_blank_node_beside_an_alias_of_that_name() -> None:
    text = "SELECT ?n { { BIND(STR(<a:b>) AS ?n) } UNION { ?s <a:p> ?n } FILTER isBlank(?n) }"
    assert "STRSTARTS" in tell_blank_nodes(text, ranked=True)
    outer = "SELECT (COUNT(?s) AS ?n) { ?s ?p ?o } GROUP BY ?p ORDER BY ?n"
    assert tell_blank_nodes(outer, ranked=True) == outer, "a count is no blank node"


@pytest.mark.parametrize(
    "pattern",
    [
        "{ SELECT (COUNT(*) AS ?n) { ?s <a:p> ?o } HAVING (COUNT(DISTINCT *) > 1) }",
        "{ SELECT DISTINCT * { ?n <a:p> ?o } }",
        "?s <a:p> ?o GRAPH <a:g> { { SELECT DISTINCT * { ?n <a:r> _:b } } }",
    ],
)
def test_a_star_counts_no_variables_of_ours(pattern: str) -> None:
    with pytest.raises(NotDeterministic) as refused:
        prepared(f"INSERT {{ <a:n> <a:n> ?n }} WHERE {{ {pattern} }}")
    assert refused.value.once
