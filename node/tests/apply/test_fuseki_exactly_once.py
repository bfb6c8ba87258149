"""On a real Fuseki, too: whatever is lost, repeated, killed or restored, every entry is in it once; and it holds what
an Oxigraph holds after the same log."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pyoxigraph
import pytest
from fuseki_process import ADAPTER, FusekiProcess, swift_folder
from log_in_memory import COUNT, LossyTransport, MemoryLog
from oxigraph_process import ADAPTER as OXIGRAPH
from oxigraph_process import OxigraphProcess

from txlog.apply import Outcome, State, apply_up_to, digest_of_worker
from txlog.sparql import sums_query
from txlog.workers.base import MarkerPosition
from txlog.workers.transport import HttpTransport

pytestmark = pytest.mark.spark
XSD = "http://www.w3.org/2001/XMLSchema#"
LITERALS = [
    f'"{value}"^^<{XSD}{kind}>'
    for kind, values in {
        "integer": "01 1 +1 -0 123456789012345678901234 36028797018963968 9223372036854775807 abc",
        "int": "1 007",
        "unsignedByte": "3",
        "decimal": "1 1.0 1.10 .5 -0.50 12345678901234567890.123456789 0.000000000000000001",
        "double": "1 1.0E0 2.5e-3 INF NaN -0 1e300 1e-320 0.1",
        "float": "1 0.1 3.4028235E38",
        "boolean": "1 true 0",
        "dateTime": "2020-01-02T03:04:05Z 2020-01-02T03:04:05+00:00 2020-01-02T03:04:05.100Z 2020-01-02T24:00:00Z "
        "-0044-03-15T00:00:00Z 2020-01-02T03:04:05 2020-02-30T00:00:00Z",
        "dateTimeStamp": "2020-01-02T03:04:05Z",
        "date": "2020-01-02 2020-01-02+00:00",
        "time": "03:04:05.10",
        "gYear": "1999 1999+00:00",
        "duration": "PT24H P1D P1Y13M",
        "dayTimeDuration": "PT24H",
        "hexBinary": "aa AA",
    }.items()
    for value in values.split()
]
LITERALS += [
    '"x"@en',
    '"x"@EN-us',
    '"x"@en-US',
    r'"a\tb\nc\\d\"e"',
    '"\u00e9\U0001f600"',
    r'"\u0007\u007F"',
    '""',
    '"a <b> ."',
]


@pytest.fixture(scope="module")
def running() -> Iterator[FusekiProcess]:
    with swift_folder() as folder:
        process = FusekiProcess(folder / "worker")
        yield process
        process.kill()


@pytest.fixture
def worker(running: FusekiProcess) -> FusekiProcess:
    running.clear()
    return running


def counter(worker: FusekiProcess) -> list[str]:
    return worker.select("SELECT ?v { <urn:counter> <urn:value> ?v }")


def counting_log(count: int) -> MemoryLog:
    log = MemoryLog()
    log.add(f'<urn:counter> <urn:value> "0"^^<{XSD}integer> .')
    for _ in range(count):
        log.update(COUNT)
    return log


def assert_at(worker: FusekiProcess, log: MemoryLog, index: int) -> None:
    assert [(m.position.index, m.position.hash) for m in worker.system().markers] == [(index, log.hashes[index])]


def test_a_replayed_batch_and_a_wrong_position_change_nothing(worker: FusekiProcess) -> None:
    log = counting_log(20)
    old = apply_up_to(ADAPTER, worker.transport, log, 5, epoch=3).position
    assert old is not None
    assert old.position.epoch == 3
    apply_up_to(ADAPTER, worker.transport, log, 15)
    replayed = apply_up_to(ADAPTER, worker.transport, log, 15, cached=old)
    assert (replayed.state, replayed.applied) == (State.WORKING, 0)
    ahead = MarkerPosition(log.position(20), 0)
    assert apply_up_to(ADAPTER, worker.transport, log, 21, cached=ahead).applied == 6
    assert counter(worker) == ["20"]
    assert_at(worker, log, 21)


def test_two_appliers_at_once(worker: FusekiProcess) -> None:
    log = counting_log(30)
    faults: list[Outcome] = []
    start = threading.Barrier(2)

    def applier(seed: int) -> None:
        chance = random.Random(seed)
        cached: MarkerPosition | None = None
        with HttpTransport(worker.url) as transport:
            start.wait()
            while cached is None or cached.position.index < log.end:
                upto = min(log.end, (cached.position.index if cached else 0) + chance.randint(1, 9))
                outcome = apply_up_to(
                    ADAPTER, transport, log, upto, cached=cached, merge_max_transactions=chance.randint(1, 4)
                )
                cached = outcome.position
                if outcome.state is not State.WORKING:
                    faults.append(outcome)
                    return

    threads = [threading.Thread(target=applier, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert not faults
    assert counter(worker) == ["30"]
    assert_at(worker, log, log.end)


def test_a_lost_answer_and_a_request_that_comes_late(worker: FusekiProcess) -> None:
    log = counting_log(12)
    for lost in range(1, 4):
        transport = LossyTransport(worker.url, answer_lost={lost})
        outcome = apply_up_to(ADAPTER, transport, log, log.end, merge_max_transactions=5)
        while outcome.state is State.UNREACHABLE:
            outcome = apply_up_to(ADAPTER, worker.transport, log, log.end)
        assert outcome.state is State.WORKING
        assert counter(worker) == ["12"]
        assert_at(worker, log, log.end)
        worker.clear()
    transport = LossyTransport(worker.url, late={1})
    assert apply_up_to(ADAPTER, transport, log, 5).state is State.UNREACHABLE
    assert apply_up_to(ADAPTER, worker.transport, log, 8).applied == 8
    assert transport.deliver() == [500], "the guard refuses it"
    assert_at(worker, log, 8)
    assert counter(worker) == ["7"]


def test_kill_9_while_it_applies_and_a_folder_of_before(worker: FusekiProcess, tmp_path: Path) -> None:
    log = MemoryLog()
    for n in range(1500):
        log.add(f"<urn:s:{n}> <urn:p> <urn:o> <urn:g:{n % 3}> .")
    copy = tmp_path / "copy"
    for seed in (1,):
        chance = random.Random(seed)
        killer = threading.Timer(chance.uniform(0.05, 0.5), worker.process.kill)
        killer.start()
        outcome = apply_up_to(
            ADAPTER, worker.transport, log, log.end, budget_s=30, merge_max_transactions=chance.choice([1, 3, 20])
        )
        killer.join()
        worker.kill()
        if seed == 1:
            shutil.copytree(worker.folder, copy)
        worker.start()
        markers = worker.system().markers
        assert len(markers) <= 1
        index = markers[0].position.index if markers else 0
        assert len(worker.quads()) == index + len(markers), "the marker is the data, to the quad"
        assert outcome.state is State.UNREACHABLE
        assert outcome.applied <= index
    newest = apply_up_to(ADAPTER, worker.transport, log, log.end, budget_s=60)
    assert newest.state is State.WORKING
    assert len(worker.quads()) == log.end + 1
    worker.kill()
    shutil.rmtree(worker.folder)
    shutil.copytree(copy, worker.folder)
    worker.start()
    again = apply_up_to(ADAPTER, worker.transport, log, log.end, cached=newest.position, budget_s=60)
    assert (again.state, again.position) == (State.WORKING, newest.position)
    assert again.applied == log.end - index
    assert len(worker.quads()) == log.end + 1


def test_an_update_that_it_refuses_alone_blocks_it_by_name(worker: FusekiProcess) -> None:
    log = counting_log(2)
    bad = log.update("LOAD <urn:nowhere>")
    log.update(COUNT)
    outcome = apply_up_to(ADAPTER, worker.transport, log, log.end)
    assert (outcome.state, outcome.applied) == (State.BLOCKED, 3)
    assert outcome.refused is not None
    assert outcome.refused.txid == bad.txid
    assert counter(worker) == ["2"]


def test_random_data_gives_the_digest_of_an_oxigraph(worker: FusekiProcess, tmp_path: Path) -> None:
    chance = random.Random(11)
    log = MemoryLog()
    for literal in LITERALS:
        log.add(f"<urn:s> <urn:all> {literal} .")
    for _ in range(400):
        lines = [
            f"<urn:s{chance.randrange(4)}> <urn:p{chance.randrange(3)}> {chance.choice(LITERALS)} "
            f"{chance.choice(['', '<urn:g0> ', '<urn:g1> '])}."
            for _ in range(chance.randint(1, 4))
        ]
        (log.delete if chance.random() < 0.45 else log.add)(*lines)
    log.update("INSERT { GRAPH <urn:copy> { ?o ?p ?s . ?s ?p ?o } } WHERE { ?s ?p ?o }")
    log.update("DELETE { ?s ?p ?o } INSERT { GRAPH ?g { ?s <urn:p9> ?o } } WHERE { ?s ?p ?o . GRAPH ?g { ?s ?q ?o } }")
    other = OxigraphProcess(tmp_path / "oxigraph")
    try:
        for upto in (len(LITERALS), log.end // 2, log.end):
            merged = chance.choice([1, 7, 200])
            for adapter, transport in ((ADAPTER, worker.transport), (OXIGRAPH, other.transport)):
                done = apply_up_to(adapter, transport, log, upto, budget_s=60, merge_max_transactions=merged)
                assert (done.state, done.error) == (State.WORKING, None)
            ours, theirs = digest_of_worker(ADAPTER, worker.transport), digest_of_worker(OXIGRAPH, other.transport)
            assert ours.differs_from(theirs) == []
            assert ours == theirs
            assert ours.quads > 40
    finally:
        other.kill()


def test_the_condition_of_an_effect_is_the_same_to_it_as_to_an_oxigraph(worker: FusekiProcess) -> None:
    lines = "".join(f"<urn:s:{n}> <urn:p> {literal} <urn:g> .\n" for n, literal in enumerate(LITERALS)).encode()
    assert worker.send(ADAPTER.load(lines)).ok
    copy = pyoxigraph.Store()
    copy.load(lines, format=pyoxigraph.RdfFormat.N_QUADS)
    for looks_at in (None, ["<urn:p>", "<urn:q>"]):
        found = copy.query(sums_query(looks_at))
        assert isinstance(found, pyoxigraph.QuerySolutions)
        sums = [",".join(row[name].value for name in ("n", "a", "b")) for row in found]
        assert worker.select(sums_query(looks_at)) == sums
        assert sums[0].startswith(f"{len(copy)},")


def test_updates_say_to_it_what_they_say_to_an_oxigraph(worker: FusekiProcess, tmp_path: Path) -> None:
    """What Jena does with a missing source, and with decimals of several forms."""
    log = MemoryLog()
    log.add(f'<urn:a> <urn:p> "1"^^<{XSD}decimal> <urn:g> .', "<urn:a> <urn:p> <urn:b> <urn:h> .")
    log.update("COPY SILENT <urn:none> TO <urn:h>")
    tricky = '""";\nCOPY SILENT <urn:g> TO <urn:x>"""'
    log.update(f'INSERT DATA {{ <urn:a> <urn:q> "1"^^<{XSD}decimal> , 2.50 , {tricky} }}')
    log.update("INSERT { GRAPH <urn:i> { ?s ?p ?o } } WHERE { GRAPH <urn:g> { ?s ?p ?o } }")
    log.update(f'DELETE DATA {{ <urn:a> <urn:q> "2.500"^^<{XSD}decimal> }}')
    log.update("ADD SILENT DEFAULT TO GRAPH <urn:i> ;\nMOVE SILENT GRAPH <urn:g> TO <urn:j>")
    log.update("COPY SILENT <urn:j> TO <urn:j>")
    log.update("DELETE { ?s ?p ?o } WHERE { ?s ?p ?o . GRAPH <urn:i> { ?s <urn:p> ?o } }")
    other = OxigraphProcess(tmp_path / "oxigraph")
    try:
        for upto in range(1, log.end + 1):
            apply_up_to(ADAPTER, worker.transport, log, upto)
            apply_up_to(OXIGRAPH, other.transport, log, upto)
            ours, theirs = digest_of_worker(ADAPTER, worker.transport), digest_of_worker(OXIGRAPH, other.transport)
            assert ours == theirs, upto
        assert ours.quads == 5
    finally:
        other.kill()
    log.update("CLEAR SILENT ALL")
    apply_up_to(ADAPTER, worker.transport, log, log.end)
    assert len(worker.quads()) == 1, "nothing but the marker is left"
