"""What ``make determinism`` rests on: the generator's updates, and that a difference between stores is seen."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyoxigraph
import pytest

from e2e.conformance.determinism.random_updates import PROLOGUE, RandomUpdates
from e2e.conformance.determinism.run import STORES, SYNCHRONOUS_STORES, DeterminismRun
from e2e.lib.cluster.harness import MasterHarness, StoreBlocked, start_master_harness
from e2e.lib.report import CannotMeasure
from txlog.workers.adapter import WorkerRequest

pytestmark = pytest.mark.cluster
FORMS = (
    *("INSERT DATA", "DELETE DATA", "DELETE WHERE", "DELETE INSERT", "INSERT template", "DELETE WHERE template"),
    *("OPTIONAL", "UNION", "MINUS", "FILTER", "BIND", "VALUES", "GRAPH", "SELECT", "EXISTS", "paths"),
    *("GROUP BY", "HAVING", "ORDER BY", "LIMIT", "COUNT", "SUM", "MIN", "MAX", "AVG", "SAMPLE or GROUP_CONCAT"),
    *("WITH", "USING", "USING NAMED", "GRAPH in data", "GRAPH in a template", "GRAPH in DELETE WHERE"),
    *("blank nodes in data", "blank nodes in a template", "blank nodes in a pattern", "collections in data"),
    *("COPY", "MOVE", "ADD", "CLEAR", "DROP", "CREATE", "several operations"),
    *("NOW()", "RAND()", "UUID()", "STRUUID()", "BNODE()", "BNODE('b')", "STR(UUID())"),
)

OF_RDF_1_2 = (
    *("triple terms", "triple terms in a pattern", "nested triple terms in a pattern"),
    *("TRIPLE", "SUBJECT", "PREDICATE", "OBJECT", "isTRIPLE"),
)


def test_the_same_seed_gives_the_same_updates() -> None:
    first, again, other = (RandomUpdates(random.Random(seed)) for seed in (1, 1, 2))
    texts = [first.update() for _ in range(200)]
    assert texts == [again.update() for _ in range(200)]
    assert texts != [other.update() for _ in range(200)]


def test_every_form_comes_and_all_of_it_is_sparql() -> None:
    updates, met, store = RandomUpdates(random.Random(3)), Counter[str](), pyoxigraph.Store()
    for _ in range(3000):
        text = updates.update()
        met.update(updates.used)
        # The first operation fails when it is carried out, so nothing is; whether it parses is decided before.
        barrier = f"{PROLOGUE}DROP GRAPH <x:none> ;\n{text.removeprefix(PROLOGUE)}"
        with pytest.raises(RuntimeError):
            store.update(barrier)
    assert not [form for form in FORMS if met[form] < 10], met


def test_triple_terms_come_nested_and_in_functions() -> None:
    updates, met, store = RandomUpdates(random.Random(3), triple_terms=0.1), Counter[str](), pyoxigraph.Store()
    for _ in range(1500):
        text = updates.update()
        met.update(updates.used)
        with pytest.raises(RuntimeError):
            store.update(f"{PROLOGUE}DROP GRAPH <x:none> ;\n{text.removeprefix(PROLOGUE)}")
    assert not [form for form in OF_RDF_1_2 if met[form] < 5], met


@pytest.fixture
def at(tmp_path: Path) -> Iterator[MasterHarness]:
    with start_master_harness(tmp_path / "door", STORES, SYNCHRONOUS_STORES) as made:
        yield made


def test_random_updates_are_the_same_everywhere_and_a_difference_is_seen(at: MasterHarness) -> None:
    run, updates = DeterminismRun(at, random.Random(4)), RandomUpdates(random.Random(4))
    for _ in range(40):
        run.update(updates.update())
    run.merge()
    run.refill()
    run.update("INSERT DATA { <urn:a> <urn:b> 1 }")
    assert (run.unequal, run.wrong) == ([], [])
    assert run.accepted > 30

    run.update("INSERT { ?s <urn:b> 2 } WHERE { SERVICE <http://127.0.0.1:1/> { ?s ?p ?o } }")
    assert run.refused["SERVICE"] == 1
    run.update("INSERT DATA { <urn:a> <urn:b> ?o }")
    assert "variables are not allowed in DATA" in run.wrong[0]

    # Somebody else's quad in one store.
    sent = {"Content-Type": "application/n-quads"}
    at.stores["second"].send(WorkerRequest("POST", "/store", sent, b"<urn:x> <urn:y> <urn:z> .\n"))
    run.update("INSERT DATA { <urn:a> <urn:b> 3 }")
    assert len(run.unequal) == 1
    assert "second, not first: <urn:x> <urn:y> <urn:z> ." in run.unequal[0]
    run.update("INSERT DATA { <urn:a> <urn:b> 4 }")
    run.merge()
    assert len(run.unequal) == 1, "one difference counts once"
    at.stores["merged"].send(WorkerRequest("POST", "/store", sent, b"<urn:x> <urn:y> <urn:z> .\n"))
    run.update("INSERT DATA { <urn:a> <urn:b> 5 }")
    run.merge()
    assert "merged, not first: <urn:x> <urn:y> <urn:z> ." in run.unequal[1]


def test_a_store_that_refuses_and_a_master_that_is_gone_are_no_success(at: MasterHarness) -> None:
    at.update("INSERT DATA { <urn:a> <urn:b> 1 }")
    with pytest.raises(CannotMeasure, match="404"):
        at.write("POST", "/nowhere", b"", "text/turtle")
    at.stores["second"].close()
    with pytest.raises(StoreBlocked, match="second: Unreachable"):
        at.update("INSERT DATA { <urn:a> <urn:b> 2 }")
