"""Which graphs a transaction may write: case by case, and never fewer than a real store changes."""

from __future__ import annotations

import random
from collections import Counter

import pyoxigraph
import pytest

from e2e.conformance.determinism.random_updates import RandomUpdates
from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.model.errors import BadInput, Refused
from txlog.model.graph_set import EVERY_GRAPH, EveryGraph, GraphSet, WrittenGraphs
from txlog.model.quads import decode_quads
from txlog.sparql import (
    DataFingerprint,
    LoadedDocument,
    RequestDataset,
    TransactionBody,
    build_effect,
    concatenate,
    delete_matching,
    drop_graphs,
    find_written_graphs,
    prepare_loaded,
    prepare_rdf,
    prepare_update,
)

NOW = "2026-01-01T00:00:00Z"
DEFAULT = GraphSet(default=True)
CHANGES_SHOWN_MIN = 300
"""Of the random updates so many must really change quads in each meaning, or the test shows nothing."""


def _named(*iris: str, default: bool = False) -> GraphSet:
    return GraphSet(frozenset(iris), default)


def _prepare(text: str, *, all_graphs: bool = False, dataset: RequestDataset | None = None) -> TransactionBody:
    return prepare_update(
        text, base=None, now=NOW, draw=lambda: 7, all_graphs=all_graphs or dataset is not None, dataset=dataset
    )


def _written(text: str, *, all_graphs: bool = False, dataset: RequestDataset | None = None) -> WrittenGraphs:
    return find_written_graphs(_prepare(text, all_graphs=all_graphs, dataset=dataset))


@pytest.mark.parametrize(
    ("text", "graphs"),
    [
        ("INSERT DATA { <x:s> <x:p> 1 }", DEFAULT),
        ("INSERT DATA { GRAPH <x:g> { <x:s> <x:p> 1 } }", _named("x:g")),
        ("PREFIX x: <x:> DELETE DATA { GRAPH x:g { <x:s> <x:p> 1 } <x:s> <x:p> 2 }", _named("x:g", default=True)),
        ("INSERT DATA { <x:s> <x:p> 'GRAPH <x:h> {' }", DEFAULT),
        ("INSERT DATA { }", GraphSet()),
        ("INSERT { ?s <x:q> ?o } WHERE { GRAPH ?g { ?s <x:p> ?o } }", DEFAULT),
        ("INSERT { GRAPH <x:g> { ?s <x:q> ?o } } WHERE { GRAPH <x:h> { ?s <x:p> ?o } }", _named("x:g")),
        ("INSERT { GRAPH ?g { ?s <x:q> ?o } } WHERE { GRAPH ?g { ?s <x:p> ?o } }", EVERY_GRAPH),
        ("DELETE { GRAPH ?g { ?s ?p ?o } } WHERE { VALUES ?g { <x:g> } GRAPH ?g { ?s ?p ?o } }", EVERY_GRAPH),
        ("WITH <x:w> DELETE { ?s <x:p> ?o } INSERT { ?s <x:q> ?o } WHERE { ?s <x:p> ?o }", _named("x:w")),
        (
            "WITH <x:w> DELETE { ?s <x:p> ?o . GRAPH <x:g> { ?s <x:p> ?o } } WHERE { ?s <x:p> ?o }",
            _named("x:w", "x:g"),
        ),
        ("WITH <x:w> DELETE { GRAPH <x:g> { ?s <x:p> ?o } } WHERE { ?s <x:p> ?o }", _named("x:g")),
        ("DELETE { ?s <x:p> ?o } USING <x:u> WHERE { ?s <x:p> ?o }", DEFAULT),
        ("DELETE WHERE { ?s <x:p> ?o . GRAPH <x:g> { ?s <x:q> ?o } }", _named("x:g", default=True)),
        ("DELETE WHERE { GRAPH ?g { ?s <x:q> ?o } }", EVERY_GRAPH),
        ("CLEAR GRAPH <x:g>", _named("x:g")),
        ("DROP SILENT GRAPH <x:g>", _named("x:g")),
        ("CREATE GRAPH <x:g>", _named("x:g")),
        ("CLEAR DEFAULT", DEFAULT),
        ("CLEAR ALL", EVERY_GRAPH),
        ("DROP NAMED", EVERY_GRAPH),
        ("COPY <x:a> TO <x:b>", _named("x:b")),
        ("ADD GRAPH <x:a> TO DEFAULT", DEFAULT),
        ("ADD DEFAULT TO GRAPH <x:b>", _named("x:b")),
        ("MOVE <x:a> TO <x:b>", _named("x:a", "x:b")),
        ("MOVE DEFAULT TO <x:b>", _named("x:b", default=True)),
        ("CLEAR GRAPH <x:g> ; INSERT DATA { <x:s> <x:p> 1 } ; DROP GRAPH <x:h>", _named("x:g", "x:h", default=True)),
        ("CLEAR GRAPH <x:g> ; DROP ALL", EVERY_GRAPH),
        ("INSERT { GRAPH <x:g> { ?s ?p <http://ex.org/a#b;c> } } WHERE { ?s ?p ?o }", _named("x:g")),
    ],
)
def test_the_graphs_of_an_update(text: str, graphs: WrittenGraphs) -> None:
    assert _written(text) == graphs


@pytest.mark.parametrize(
    ("text", "graphs"),
    [
        ("DELETE DATA { <x:s> <x:p> 1 }", EVERY_GRAPH),
        ("DELETE WHERE { <x:s> <x:p> ?o }", EVERY_GRAPH),
        ("DELETE { ?s <x:p> ?o } WHERE { ?s <x:p> ?o }", EVERY_GRAPH),
        ("INSERT { ?s <x:q> ?o } WHERE { ?s <x:p> ?o }", DEFAULT),
        ("INSERT DATA { <x:s> <x:p> 1 }", DEFAULT),
        ("WITH <x:w> DELETE { ?s <x:p> ?o } WHERE { ?s <x:p> ?o }", _named("x:w")),
    ],
)
def test_a_removal_without_a_graph_means_every_graph_as_in_rdf4j(text: str, graphs: WrittenGraphs) -> None:
    assert _written(text, all_graphs=True) == graphs


@pytest.mark.parametrize(
    ("text", "dataset", "graphs"),
    [
        ("INSERT DATA { <x:s> <x:p> 1 }", RequestDataset(insert="<x:i>"), _named("x:i")),
        ("DELETE DATA { <x:s> <x:p> 1 }", RequestDataset(remove=("<x:r>", "<x:t>")), _named("x:r", "x:t")),
        ("DELETE DATA { GRAPH <x:g> { <x:s> <x:p> 1 } }", RequestDataset(remove=("<x:r>",)), _named("x:g")),
        ("INSERT { ?s <x:q> ?o } WHERE { ?s <x:p> ?o }", RequestDataset(insert="<x:i>"), _named("x:i")),
        ("DELETE { ?s <x:p> ?o } WHERE { ?s <x:p> ?o }", RequestDataset(remove=("<x:r>",)), _named("x:r")),
        ("DELETE { ?s <x:p> ?o } WHERE { ?s <x:p> ?o }", RequestDataset(using=("<x:u>",)), EVERY_GRAPH),
        (
            "DELETE { ?s <x:p> ?o } INSERT { ?s <x:q> ?o } WHERE { ?s <x:p> ?o }",
            RequestDataset(using=("<x:u>",), named=("<x:n>",), remove=("",), insert="<x:i>"),
            _named("x:i", default=True),
        ),
        (
            "WITH <x:w> DELETE { ?s <x:p> ?o } WHERE { ?s <x:p> ?o }",
            RequestDataset(remove=("<x:r>",), insert="<x:i>"),
            _named("x:w"),
        ),
    ],
)
def test_the_graphs_of_a_request_count(text: str, dataset: RequestDataset, graphs: WrittenGraphs) -> None:
    assert _written(text, dataset=dataset) == graphs


def test_uploads_removals_and_transactions_of_several_changes() -> None:
    upload = prepare_rdf(
        b"<x:s> <x:p> 'a <x:h> .' . <x:g> { <x:s> <x:p> 1 }",
        "application/trig",
        base=None,
        contexts=[],
        draw=lambda: 1,
    )
    assert find_written_graphs(upload) == _named("x:g", default=True)
    assert find_written_graphs(drop_graphs(["<x:g>", ""])) == _named("x:g", default=True)
    assert find_written_graphs(drop_graphs(None)) == EVERY_GRAPH
    assert find_written_graphs(delete_matching("<x:s>", None, None)) == EVERY_GRAPH
    assert find_written_graphs(delete_matching("<x:s>", None, None, ["<x:g>", ""])) == _named("x:g", default=True)
    both = concatenate([upload, drop_graphs(["<x:k>"])])
    assert find_written_graphs(both) == _named("x:g", "x:k", default=True)


def test_a_loaded_document_counts_by_what_it_holds() -> None:
    documents = {
        "http://e.org/d": LoadedDocument(b"<x:s> <x:p> <x:o> <x:g> .", "application/n-quads", "http://e.org/d")
    }

    def load(text: str) -> WrittenGraphs:
        return find_written_graphs(prepare_loaded(text, documents, base=None, now=NOW, draw=lambda: 1))

    assert load("LOAD <http://e.org/d>") == _named("x:g")
    assert load("LOAD <http://e.org/d> INTO GRAPH <x:k>") == _named("x:k")


@pytest.mark.parametrize(
    ("text", "graphs"),
    [
        ("LOAD <x:d>", EVERY_GRAPH),
        ("LOAD SILENT <x:d> INTO GRAPH <x:g>", _named("x:g")),
        ("INSERT { GRAPH ex:g { ?s ?p ?o } } WHERE { ?s ?p ?o }", EVERY_GRAPH),
        ("MERGE <x:g>", EVERY_GRAPH),
        ("INSERT { <x:s> <x:p> 1", EVERY_GRAPH),
        ("COPY <x:a>", EVERY_GRAPH),
        ("INSERT", EVERY_GRAPH),
    ],
)
def test_what_no_rule_knows_counts_as_every_graph(text: str, graphs: WrittenGraphs) -> None:
    assert find_written_graphs(TransactionBody(KIND_UPDATE, text.encode(), 1)) == graphs


def test_an_update_evaluated_once_counts_by_its_effect() -> None:
    effect = build_effect(
        [b"<x:s> <x:p> <x:o> <x:g> ."],
        [b"<x:s> <x:p> <x:o> <x:h> .", b"<x:s> <x:p> <x:o> ."],
        None,
        DataFingerprint(1, 2, 3),
    )
    assert find_written_graphs(effect) == _named("x:g", "x:h", default=True)


def _execute(store: pyoxigraph.Store, body: TransactionBody) -> None:
    if body.kind != KIND_QUADS:
        store.update(body.payload.decode())
        return
    for adds, line in decode_quads(body.payload):
        quad = next(iter(pyoxigraph.parse(line, pyoxigraph.RdfFormat.N_QUADS)))
        assert isinstance(quad, pyoxigraph.Quad)
        (store.add if adds else store.remove)(quad)


def _changed_graphs(before: set[pyoxigraph.Quad], after: set[pyoxigraph.Quad]) -> GraphSet:
    graphs = {quad.graph_name for quad in before ^ after}
    named = frozenset(graph.value for graph in graphs if isinstance(graph, pyoxigraph.NamedNode))
    return GraphSet(named, any(isinstance(graph, pyoxigraph.DefaultGraph) for graph in graphs))


def _dataset_of(query: str) -> RequestDataset | None:
    given: dict[str, list[str]] = {}
    for part in query.removeprefix("?").split("&") if query else ():
        name, _, value = part.partition("=")
        given.setdefault(name, []).append("" if value == "null" else f"<{value}>")
    if not given:
        return None
    return RequestDataset(
        tuple(given.get("using-graph-uri", ())),
        tuple(given.get("using-named-graph-uri", ())),
        tuple(given.get("remove-graph-uri", ())),
        given.get("insert-graph-uri", [""])[0],
    )


def _fill(store: pyoxigraph.Store, chance: random.Random) -> None:
    """Random quads of the same small world, so that patterns match and removals remove."""
    store.clear()
    for _ in range(30):
        graph = chance.choice(("", "", "<urn:g0>", "<urn:g1>", "<urn:g2>", "<urn:g3>"))
        value = chance.choice(("<urn:n1>", "<urn:n2>", "<urn:n3>", "1", '"a"'))
        triple = f"<urn:n{chance.randrange(7)}> <urn:p{chance.randrange(4)}> {value}"
        store.update(f"INSERT DATA {{ GRAPH {graph} {{ {triple} }} }}" if graph else f"INSERT DATA {{ {triple} }}")


@pytest.mark.parametrize("all_graphs", [False, True])
def test_no_store_changes_more_than_the_written_graphs(all_graphs: bool) -> None:
    chance = random.Random(20_26)
    updates, store, seen = RandomUpdates(chance, drawn=0.0), pyoxigraph.Store(), Counter[str]()
    while seen["changing"] < CHANGES_SHOWN_MIN and seen["all"] < 20 * CHANGES_SHOWN_MIN:
        seen["all"] += 1
        text = updates.update()
        dataset = _dataset_of(updates.data_set()) if all_graphs else None
        try:
            body = _prepare(text, all_graphs=all_graphs, dataset=dataset)
        except (BadInput, Refused):
            continue
        _fill(store, chance)
        before = set(store)
        _execute(store, body)
        changed, written = _changed_graphs(before, set(store)), find_written_graphs(body)
        if changed == GraphSet():
            continue
        seen["changing"] += 1
        if isinstance(written, EveryGraph):
            continue
        seen["bounded"] += 1
        assert changed.named <= written.named, (text, dataset, body.payload)
        assert written.default or not changed.default, (text, dataset, body.payload)
    assert seen["changing"] >= CHANGES_SHOWN_MIN, seen
    assert seen["bounded"] >= CHANGES_SHOWN_MIN // 3, seen
