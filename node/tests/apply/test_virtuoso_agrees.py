"""A real Virtuoso holds what an Oxigraph holds after the same log, but for literals of one value; two Virtuosos hold
the same after any."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from engines import VIRTUOSO, stores_of
from log_in_memory import MemoryLog
from oxigraph_process import ADAPTER as OXIGRAPH
from oxigraph_process import OxigraphProcess
from server_process import swift_folder
from test_engines_agree import LITERALS
from virtuoso_process import ADAPTER, VirtuosoProcess

from txlog.apply import WorkerState, apply_up_to
from txlog.workers.digest import stream_statements

XSD = "http://www.w3.org/2001/XMLSchema#"
SHAPE = '"POINT(1 2)"^^<http://www.opengis.net/ont/geosparql#wktLiteral>'
MORE = [
    *(f'"{value}"^^<{XSD}integer>' for value in ("2147483648", "-12345678901", "999999999999999999")),
    f'"3.14159265358979"^^<{XSD}double>',
    f'"2020-01-02T03:04:05+02:00"^^<{XSD}dateTime>',
    f'"2020-01-02T03:04:05.1234567Z"^^<{XSD}dateTime>',
    f'"2020-02"^^<{XSD}gYearMonth>',
    f'"x"^^<{XSD}boolean>',
    '"<a>x</a>"^^<http://www.w3.org/1999/02/22-rdf-syntax-ns#XMLLiteral>',
    '"x"^^<urn:type>',
    SHAPE,
    f'"{"é" * 5000}"',
    f'"{"y" * 5000}"@en',
]

running, worker = stores_of(VIRTUOSO)


@pytest.fixture
def oxigraph(tmp_path: Path) -> Iterator[OxigraphProcess]:
    process = OxigraphProcess(tmp_path / "oxigraph")
    yield process
    process.kill()


def test_random_data_gives_the_digest_of_an_oxigraph(worker: VirtuosoProcess, oxigraph: OxigraphProcess) -> None:
    chance = random.Random(12)
    log = MemoryLog()
    every = [*LITERALS, *MORE]
    for at, literal in enumerate(every):
        log.add(f"<urn:s> <urn:all{at}> {literal} .")
    for _ in range(300):
        # Each literal under a predicate of its own: Virtuoso holds those of one value once.
        lines = [
            f"<urn:s{chance.randrange(4)}> <urn:p{at}> {every[at]} {chance.choice(['', '<urn:g0> ', '<urn:g1> '])}."
            for at in chance.choices(range(len(every)), k=chance.randint(1, 4))
        ]
        (log.delete if chance.random() < 0.4 else log.add)(*lines)
    for text in (
        "INSERT { GRAPH <urn:copy> { ?p ?s ?s . ?s ?p ?o } } WHERE { ?s ?p ?o }",
        "DELETE { ?s ?p ?o } INSERT { GRAPH ?g { ?s ?p ?o } } WHERE { ?s ?p ?o . GRAPH ?g { ?s ?q ?x } }",
        "WITH <urn:g0> DELETE { ?s ?p ?o } INSERT { ?s <urn:moved> <urn:x> } WHERE { ?s ?p ?o }",
        "COPY <urn:g1> TO <urn:h> ; MOVE <urn:copy> TO <urn:i> ; ADD DEFAULT TO <urn:h> ; DROP GRAPH <urn:g1>",
        "DELETE WHERE { GRAPH ?g { ?s <urn:moved> ?o } } ; INSERT DATA { <urn:a> <urn:b> 01 , 'x'@EN }",
        "INSERT { GRAPH <urn:seen> { ?g <urn:is> <urn:seen> } } WHERE { GRAPH ?g { ?s ?p ?o } }",
        "DELETE DATA { <urn:a> <urn:b> 1 } ; CLEAR SILENT GRAPH <urn:none> ; CREATE SILENT GRAPH <urn:new>",
        "INSERT { ?s <urn:twice> ?o } USING <urn:h> WHERE { ?s ?p ?o FILTER(isIRI(?o)) }",
    ):
        log.update(text)
    for upto in (len(every), log.end - 8, log.end):
        merged = chance.choice([1, 7, 200])
        for adapter, transport in ((ADAPTER, worker.transport), (OXIGRAPH, oxigraph.transport)):
            done = apply_up_to(adapter, transport, log, upto, budget_s=60, merge_max_transactions=merged)
            assert done.state is WorkerState.WORKING, done.error
        ours, theirs = worker.digest(), oxigraph.digest()
        assert ours.differs_from(theirs) == []
        assert ours == theirs
        assert ours.quads > 40
    # And what was settled is there after a kill, too.
    worker.settle()
    worker.kill()
    worker.start()
    assert worker.digest() == ours


def test_what_is_copied_from_one_to_another_is_the_same(worker: VirtuosoProcess) -> None:
    log = MemoryLog()
    for at, literal in enumerate([*LITERALS, *MORE]):
        log.add(f"<urn:s> <urn:p{at}> {literal} .", f"<urn:s> <urn:p{at}> {literal} <urn:g{at % 3}> .")
    done = apply_up_to(ADAPTER, worker.transport, log, log.end, budget_s=60)
    assert done.state is WorkerState.WORKING, done.error
    with stream_statements(ADAPTER, worker.transport) as chunks:
        quads = b"".join(chunks)
    assert SHAPE.encode() in quads
    before = worker.digest()
    worker.clear()
    assert worker.send(ADAPTER.load(quads)).ok
    assert worker.digest() == before
    assert worker.send(ADAPTER.delete_quads(quads.splitlines(), [])).ok
    assert worker.quads() == []


def test_of_literals_of_one_value_two_virtuosos_keep_the_same(worker: VirtuosoProcess) -> None:
    same = [f'"1"^^<{XSD}{kind}>' for kind in ("integer", "decimal", "double", "float", "boolean")]
    chance = random.Random(3)
    log = MemoryLog()
    for _ in range(60):
        lines = [f"<urn:s{chance.randrange(3)}> <urn:p> {literal} ." for literal in chance.sample(same, 3)]
        (log.delete if chance.random() < 0.3 else log.add)(*lines)
    with swift_folder() as folder:
        other = VirtuosoProcess(folder / "other")
        try:
            for store, merged in ((worker, 1), (other, 7)):
                done = apply_up_to(ADAPTER, store.transport, log, log.end, budget_s=60, merge_max_transactions=merged)
                assert done.state is WorkerState.WORKING, done.error
            assert worker.data()
            assert worker.digest() == other.digest()
        finally:
            other.kill()
