"""Answers to reads: a small one goes out as a whole, a pattern is the worker's to match, and no request costs twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import IO, Any
from unittest.mock import Mock
from urllib.parse import quote

import aiohttp
import pytest
from master_cluster import Cluster
from worker_driver import Driver, OxigraphProcess

from txlog.model.errors import BadInput, WorkerFault
from txlog.server.frontdoor.answer_steps import AnswerSteps, clean_lines, lines_of_rows, read_beginning, resume
from txlog.server.frontdoor.query_request import parse_query_request
from txlog.server.frontdoor.result_formats import BINARY, N_QUADS, RDF_FORMATS, converter
from txlog.server.frontdoor.statement_lines import StatementPattern
from txlog.server.frontdoor.stream_converter import THREADS, Stage, convert_stream
from txlog.workers import ADAPTERS

ROWS = b"""{"head":{"vars":["s","p","o","g"]},"results":{"bindings":[
{"s":{"type":"uri","value":"urn:s"},"p":{"type":"uri","value":"urn:p"},"o":{"type":"literal","value":"01",
"datatype":"http://www.w3.org/2001/XMLSchema#integer"},"g":{"type":"uri","value":"urn:g"}},
{"s":{"type":"uri","value":"urn:s"},"p":{"type":"uri","value":"urn:p"},"o":{"type":"literal","value":"x"}}]}}"""
INTEGER = b"^^<http://www.w3.org/2001/XMLSchema#integer>"
MARKER = b"<urn:txlog:system> <urn:txlog:system> <urn:txlog:system> <urn:txlog:system:7:00:0:1> .\n"


def copy(source: IO[bytes], sink: IO[bytes]) -> None:
    while piece := source.read(1 << 10):
        sink.write(piece)


async def pieces_of(text: bytes, size: int = 7) -> AsyncIterator[bytes]:
    for at in range(0, len(text), size):
        yield text[at : at + size]


async def collect(pieces: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in pieces])


@pytest.mark.parametrize(
    ("engine", "number"), [("rdf4j-as-written", b'"01"' + INTEGER), ("rdf4j", b'"1"' + INTEGER), ("oxigraph", b'"01"')]
)
async def test_rows_become_lines_as_a_whole_and_in_pieces(engine: str, number: bytes) -> None:
    steps = AnswerSteps(N_QUADS, lines_of_rows(ADAPTERS[engine]))
    whole = steps.apply(ROWS)
    assert b"<urn:s> <urn:p> " + number in whole
    assert whole.splitlines()[1] == b'<urn:s> <urn:p> "x" .'
    assert await collect(steps.stream(pieces_of(ROWS))) == whole


async def test_each_step_is_the_same_as_a_whole_and_in_pieces() -> None:
    lines = b'<urn:s> <urn:p> "1" <urn:g> .\n' + MARKER + b'<urn:s> <urn:p> "2" .\n'
    more = b'<urn:s> <urn:p> "3" .'
    for convert in (None, converter(RDF_FORMATS["text/turtle"]), converter(RDF_FORMATS[BINARY])):
        prepare = clean_lines(ADAPTERS["rdf4j"])
        steps = AnswerSteps(N_QUADS, prepare, lambda line: b'"1"' not in line, [more], convert)
        whole = steps.apply(lines)
        assert await collect(steps.stream(pieces_of(lines))) == whole
        assert b"txlog" not in whole
    assert AnswerSteps(N_QUADS, prepare, lambda line: b'"1"' not in line, [more]).apply(lines) == (
        b'<urn:s> <urn:p> "2" .\n<urn:s> <urn:p> "3" .\n'
    )


def test_an_answer_that_cannot_be_read_is_the_workers_fault() -> None:
    for broken in (ROWS[:-9], b'{"head":{},"boolean":true}', b"no JSON"):
        with pytest.raises(WorkerFault):
            AnswerSteps(N_QUADS, lines_of_rows(ADAPTERS["oxigraph"])).apply(broken)


async def test_more_answers_than_threads_with_two_conversions_each_come_to_an_end() -> None:
    """The last conversion of an answer has a thread while it waits for the first one."""
    texts = [f"{number};".encode() * 1000 for number in range(3 * THREADS)]
    both = (convert_stream(convert_stream(pieces_of(text, 99), copy, Stage.PREPARE), copy) for text in texts)
    assert await asyncio.wait_for(asyncio.gather(*map(collect, both)), 60) == texts


@pytest.mark.parametrize("arrives", ["at once", "later", "too much", "never"])
async def test_the_beginning_of_a_body(arrives: str) -> None:
    content = aiohttp.StreamReader(Mock(connected=True), 1 << 16, loop=asyncio.get_running_loop())
    content.feed_data(b"a" * (200 if arrives == "too much" else 10))
    if arrives in ("at once", "too much"):
        content.feed_eof()
    elif arrives == "later":
        asyncio.get_running_loop().call_soon(content.feed_eof)
    beginning, is_whole = await read_beginning(content, 100)
    assert is_whole is (arrives in ("at once", "later"))
    if not is_whole and arrives == "never":
        content.feed_data(b"b")
        content.feed_eof()
    rest = await collect(resume(beginning, content))
    assert rest == b"a" * (200 if arrives == "too much" else 10) + (b"b" if arrives == "never" else b"")


def test_a_query_that_is_kept_depends_on_all_that_the_request_says() -> None:
    def parse(*parameters: tuple[str, str], accept: str = "*/*", star: bool = False) -> Any:
        return parse_query_request(tuple(parameters), "SELECT ?x { ?x ?y <<( ?a ?b ?c )>> }", accept, star=star)

    first = parse()
    assert parse() is first
    assert first.union
    assert parse(("default-graph-uri", "urn:g")).default == ("urn:g",)
    assert parse(("timeout", "3")).seconds == 3
    assert "LIMIT 4" in parse(("limit", "4")).text
    assert parse(accept="text/csv").accept == "text/csv"
    for _ in range(2):
        with pytest.raises(BadInput, match="timeout"):
            parse(("timeout", "x"))


@pytest.mark.parametrize("graphs", [None, ["<urn:g>"], ["", "<urn:g>"], ["<urn:g>", "<urn:g>"]])
async def test_a_pattern_asks_for_no_more_than_its_statements(
    tmp_path: Path, clusters: Callable[..., Cluster], graphs: list[str] | None
) -> None:
    store = OxigraphProcess(tmp_path / "store")
    cluster = clusters(1, workers=[{"name": "w-1", "url": store.url}], durability="applied")
    await cluster.start()
    driver = Driver(cluster.url(0), "w-1", store)
    try:
        await cluster.write(
            0,
            'INSERT DATA { <urn:s> <urn:p> 01, "x"@en-US, "y" . <urn:s> <urn:q> <urn:o> '
            'GRAPH <urn:g> { <urn:s> <urn:p> "y" . [] <urn:p> "z" } GRAPH <urn:h> { <urn:s> <urn:p> "y" } }',
            TxLog_Durability="applied",
        )
        contexts = "".join(f"&context={quote(graph or 'null')}" for graph in graphs or ())
        url = f"{cluster.url(0)}/repositories/demo/statements"
        headers = {"Accept": "application/n-quads"}
        async with aiohttp.ClientSession(headers=headers) as session:
            async with session.get(f"{url}?pred={quote('<urn:p>')}{contexts}") as answer:
                assert answer.status == 200
                assert "Content-Length" in answer.headers
                found = sorted(await answer.text() and (await answer.text()).splitlines())
            async with session.get(url) as answer:
                everything = (await answer.text()).splitlines()
        wanted = [line for line in everything if " <urn:p> " in line and _is_in(line, graphs)]
        assert found == sorted(wanted)
        assert found
    finally:
        await asyncio.to_thread(driver.close)
        store.kill()


def _is_in(line: str, graphs: list[str] | None) -> bool:
    graph = next((name for name in ("<urn:g>", "<urn:h>") if line.endswith(f" {name} .")), "")
    return graphs is None or graph in graphs


def test_the_pattern_has_its_constants_in_place() -> None:
    text = StatementPattern("<urn:s>", None, '"o"', ("", "<urn:g>")).query()
    assert '{ <urn:s> ?p "o" BIND(<urn:s> AS ?s) BIND("o" AS ?o) }' in text
    assert "GRAPH <urn:g>" in text
    assert text.count("UNION") == 1


@pytest.mark.parametrize(
    ("engine", "names", "literals"),
    [
        ("oxigraph", True, True),
        ("rdf4j", True, True),
        ("rdf4j-as-written", True, True),
        ("fuseki", True, False),
        ("virtuoso", False, False),
    ],
)
def test_an_engine_that_finds_literals_by_their_value_is_not_asked_for_one(
    engine: str, names: bool, literals: bool
) -> None:
    able = ADAPTERS[engine].capabilities
    assert StatementPattern(None, None, '"1"' + INTEGER.decode(), None).is_query_for(able) is literals
    assert StatementPattern(None, "<urn:p>", "<urn:o>", None).is_query_for(able) is names
    assert not StatementPattern(None, None, None, None).is_query_for(able)


def test_an_engine_with_its_own_search_is_asked_for_a_pattern_by_it() -> None:
    for engine, adapter in ADAPTERS.items():
        able = adapter.capabilities
        has = engine in ("rdf4j", "rdf4j-as-written")
        assert StatementPattern(None, "<urn:p>", '"x"', ("", "<urn:g>")).is_match_for(able) is has
        assert not StatementPattern(None, None, None, None).is_match_for(able)
        assert not StatementPattern(None, "<urn:p>", None, ()).is_match_for(able)
        assert not StatementPattern(None, None, "<<( <urn:a> <urn:b> <urn:c> )>>", None).is_match_for(able)
        if not has:
            with pytest.raises(NotImplementedError, match=engine):
                adapter.match((None, "<urn:p>", None), None)
    request = ADAPTERS["rdf4j"].match((None, "<urn:p>", '"x"@en'), ("", "<urn:g>", ""))
    assert request.path == "/statements?pred=%3Curn%3Ap%3E&obj=%22x%22%40en&context=null&context=%3Curn%3Ag%3E"
    assert request.headers == {"Accept": "application/n-quads"}
