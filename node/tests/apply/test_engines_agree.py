"""A real store of any engine holds what an Oxigraph holds after the same log."""

from __future__ import annotations

import random
from pathlib import Path

import pyoxigraph
from engines import MARKED, stores_of
from log_in_memory import MemoryLog
from oxigraph_process import ADAPTER as OXIGRAPH
from oxigraph_process import OxigraphProcess
from server_process import StoreProcess

from txlog.apply import WorkerState, apply_up_to
from txlog.sparql import fingerprint_query

XSD = "http://www.w3.org/2001/XMLSchema#"
LITERALS = [
    f'"{value}"^^<{XSD}{kind}>'
    for kind, values in {
        "integer": "01 1 +1 -0 123456789012345678901234 36028797018963968 9223372036854775807 abc",
        "int": "1 007",
        "unsignedByte": "3",
        "decimal": "1 1.0 1.10 .5 -0.50 12345678901234567890.123456789 0.000000000000000001",
        "double": "1 1.0E0 2.5e-3 INF NaN -0 1e300 1e-320 0.1 0.3 -0.7 2.5 1234567.25",
        "float": "1 0.1 0.3 3.4028235E38",
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


running, worker = stores_of(MARKED)


def test_random_data_gives_the_digest_of_an_oxigraph(worker: StoreProcess, tmp_path: Path) -> None:
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
            for adapter, transport in ((worker.adapter, worker.transport), (OXIGRAPH, other.transport)):
                done = apply_up_to(adapter, transport, log, upto, budget_s=60, merge_max_transactions=merged)
                assert (done.state, done.error) == (WorkerState.WORKING, None)
            ours, theirs = worker.digest(), other.digest()
            assert ours.differs_from(theirs) == []
            assert ours == theirs
            assert ours.quads > 40
    finally:
        other.kill()


def test_the_condition_of_an_effect_is_the_same_to_it_as_to_an_oxigraph(worker: StoreProcess) -> None:
    lines = "".join(f"<urn:s:{n}> <urn:p> {literal} <urn:g> .\n" for n, literal in enumerate(LITERALS)).encode()
    assert worker.send(worker.adapter.load(lines)).ok
    copy = pyoxigraph.Store()
    copy.load(lines, format=pyoxigraph.RdfFormat.N_QUADS)
    for looks_at in (None, ["<urn:p>", "<urn:q>"]):
        found = copy.query(fingerprint_query(looks_at))
        assert isinstance(found, pyoxigraph.QuerySolutions)
        sums = [",".join(row[name].value for name in ("n", "a", "b")) for row in found]
        told = worker.send(worker.adapter.query(fingerprint_query(looks_at), "text/csv", union=False))
        assert told.body.decode().split()[1:] == sums
        assert sums[0].startswith(f"{len(copy)},")


def test_updates_say_to_it_what_they_say_to_an_oxigraph(worker: StoreProcess, tmp_path: Path) -> None:
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
            apply_up_to(worker.adapter, worker.transport, log, upto)
            apply_up_to(OXIGRAPH, other.transport, log, upto)
            ours, theirs = worker.digest(), other.digest()
            assert ours == theirs, upto
        assert ours.quads == 5
    finally:
        other.kill()
    log.update("CLEAR SILENT ALL")
    apply_up_to(worker.adapter, worker.transport, log, log.end)
    assert len(worker.quads()) == 1, "nothing but the marker is left"


def test_a_condition_that_is_an_error_is_one_in_each_function(worker: StoreProcess, tmp_path: Path) -> None:
    """RDF4J's own IF gives no value there, and most functions and operators of that end the whole update."""
    log = MemoryLog()
    log.add("<urn:s> <urn:p> <urn:o> .")
    wrong = "IF(?o, 'a', IF('2020-01-02T03:04:05Z'^^<http://www.w3.org/2001/XMLSchema#dateTime>, 'b', 'c'))"
    for number, text in enumerate(
        (
            f"BIND(({wrong} != 1e0) AS ?x)",
            f"BIND(REGEX({wrong}, 'a') AS ?x)",
            f"BIND(({wrong} + 1) AS ?x)",
            f"BIND(STRLEN({wrong}) AS ?x)",
            f"BIND((! {wrong}) AS ?x)",
            f"BIND(({wrong} IN ('a', 'b')) AS ?x)",
            f"BIND({wrong} AS ?x)",
            "BIND((1 IN (IF(<urn:n1>, ?o, ?s))) AS ?x)",
            "BIND((IF('P1D'^^<http://www.w3.org/2001/XMLSchema#duration>, ?o, ?s) IN (1, ?s)) AS ?x)",
            "BIND(IF(IF(true, <urn:a>, 1), ?o, ?s) AS ?x)",
            "BIND(IF(<urn:n1>, ?o, ?s) AS ?x)",
            "BIND((IF('', 1, ?none) IN (IF(0, ?o, ?s), IF('a', 2, 1/0))) AS ?x)",
            f"BIND(COALESCE({wrong}, 'd') AS ?x)",
            f"BIND('e' AS ?x) FILTER({wrong} = 'a' || true)",
            f"BIND('e' AS ?x) FILTER({wrong})",
        )
    ):
        log.update(f"INSERT {{ ?s <urn:{number}> ?x }} WHERE {{ ?s <urn:p> ?o {text} }}")
    other = OxigraphProcess(tmp_path / "oxigraph")
    try:
        for adapter, transport in ((worker.adapter, worker.transport), (OXIGRAPH, other.transport)):
            done = apply_up_to(adapter, transport, log, log.end, budget_s=60, merge_max_transactions=1)
            assert (done.state, done.error) == (WorkerState.WORKING, None)
        assert worker.digest() == other.digest()
    finally:
        other.kill()
