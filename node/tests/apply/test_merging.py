"""Merged or one by one: the same store, to the last empty graph."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from log_in_memory import MemoryLog
from oxigraph_process import ADAPTER, OxigraphProcess

from txlog.apply import WorkerState, apply_up_to
from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.model.quads import encode_quads

TERMS = st.sampled_from(["<urn:a>", "<urn:b>"])  # few, so that later transactions meet earlier ones
OBJECTS = st.sampled_from(
    ["<urn:a>", '"x"', '"a \\"<urn:q> .\\n\\u0001"@en', '"1"^^<http://www.w3.org/2001/XMLSchema#integer>']
)
GRAPHS = st.sampled_from(["", " <urn:g>", " <urn:h>"])
QUADS = st.builds(lambda s, p, o, g: f"{s} {p} {o}{g} .".encode(), TERMS, TERMS, OBJECTS, GRAPHS)
FEW = st.sampled_from([b"<urn:a> <urn:a> <urn:a> <urn:g> .", b"<urn:a> <urn:a> <urn:a> <urn:h> ."])
CHANGES = st.builds(
    lambda deletes, adds: (KIND_QUADS, encode_quads(sorted(deletes - adds), sorted(adds))),
    st.sets(QUADS | FEW, max_size=3),
    st.sets(QUADS | FEW, max_size=3),
)
UPDATES = st.sampled_from(
    [
        "DELETE { ?s ?p ?o } INSERT { GRAPH <urn:g> { ?o ?p ?s } } WHERE { ?s ?p ?o FILTER(isIRI(?o)) }",
        "WITH <urn:g> DELETE { <urn:a> ?p ?o } WHERE { <urn:a> ?p ?o }",
        "INSERT { <urn:seen> <urn:graph> ?g } WHERE { GRAPH ?g { } }",
        "DELETE WHERE { GRAPH ?g { <urn:a> ?p ?o } }",
        "COPY <urn:g> TO <urn:h>",
        "MOVE <urn:h> TO DEFAULT",
        "CREATE SILENT GRAPH <urn:g>",
        "CREATE GRAPH <urn:h>",
        "DROP GRAPH <urn:g>",
        "DROP SILENT GRAPH <urn:h>",
        "CLEAR ALL",
        "DROP NAMED",
        "",
    ]
).map(lambda text: (KIND_UPDATE, text.encode()))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OxigraphProcess, OxigraphProcess]]:
    folder: Path = tmp_path_factory.mktemp("pair")
    one, two = OxigraphProcess(folder / "one"), OxigraphProcess(folder / "two")
    yield one, two
    one.kill()
    two.kill()


CAME = (KIND_QUADS, b"A <urn:a> <urn:a> <urn:a> <urn:g> .\n")
WENT = (KIND_QUADS, b"D <urn:a> <urn:a> <urn:a> <urn:g> .\n")


@example([CAME, WENT], 2)
@example([CAME, WENT, (KIND_UPDATE, b"CREATE GRAPH <urn:g>")], 3)
@example([CAME, WENT, (KIND_UPDATE, b"DROP GRAPH <urn:g>"), CAME], 4)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(CHANGES, CHANGES, UPDATES), min_size=1, max_size=14), st.integers(2, 14))
def test_merged_or_one_by_one(
    pair: tuple[OxigraphProcess, OxigraphProcess], transactions: list[tuple[int, bytes]], merged: int
) -> None:
    log = MemoryLog()
    for kind, payload in transactions:
        log.append(kind, payload)
    outcomes = []
    for worker, merge in zip(pair, (1, merged), strict=True):
        assert worker.update("DROP ALL").ok
        outcomes.append(apply_up_to(ADAPTER, worker.transport, log, log.end, merge_max_transactions=merge))
    single, many = outcomes
    assert single.state in (WorkerState.WORKING, WorkerState.BLOCKED)
    assert (many.state, many.position, many.refused, many.applied) == (
        single.state,
        single.position,
        single.refused,
        single.applied,
    )
    assert pair[0].quads() == pair[1].quads()
    assert pair[0].graphs() == pair[1].graphs()
