"""Plain reads of statements on the fast path get the answer of the ordinary path; everything else is left to that
one."""

from __future__ import annotations

import asyncio
import time
from urllib.parse import quote

import msgspec
import pytest
from plain_requests import PATH, ask_both_paths, assert_left, connection, reads_of
from worker_driver import Served

from txlog.runtime.worker_state import RegisteredWorker, WorkerMarker
from txlog.server.frontdoor import kept_answers
from txlog.server.frontdoor.answer_steps import CONVERTED_BYTES_MAX
from txlog.server.frontdoor.kept_answers import ANSWERS_MAX, KeptAnswers
from txlog.server.frontdoor.plain_heads import parse_request_head
from txlog.server.frontdoor.plain_queries import PlainReadHead
from txlog.server.frontdoor.plain_statements import recognise_statements

DATA = (
    'INSERT DATA { <urn:s> <urn:p> 01, "x"@en-US, "a\\rb" . _:b <urn:q> "y,\\"z" . <urn:s> <urn:r> _:b '
    "GRAPH <urn:g> { <urn:s> <urn:p> <urn:in-g> } GRAPH <urn:h> { <urn:s> <urn:p> <urn:in-g> } }"
)
LONG = "INSERT { GRAPH <urn:long> { ?s <urn:p> ?o } } WHERE { VALUES ?a { 1 2 3 4 5 6 7 8 9 } " + (
    'VALUES ?b { 1 2 3 4 5 6 7 8 9 } BIND(IRI(CONCAT("urn:", STR(?a), STR(?b))) AS ?s) '
    'BIND(CONCAT("%s", STR(?a)) AS ?o) }' % ("long" * 60)
)
RDF4J = (
    "Accept: application/n-triples;q=0.2, text/turtle;q=0.3, application/trig;q=0.8, application/x-binary-rdf, "
    "application/ld+json;q=0.8"
)
"""What RDF4J's own client accepts."""


def statements(*headers: str, **parameters: str | list[str]) -> bytes:
    given = [
        f"{name}={quote(value)}"
        for name, values in parameters.items()
        for value in ([values] if isinstance(values, str) else values)
    ]
    target = f"{PATH}/statements" + ("?" + "&".join(given) if given else "")
    return "\r\n".join([f"GET {target} HTTP/1.1", "Host: x", *(headers or (RDF4J,))]).encode() + b"\r\n\r\n"


@pytest.fixture
async def filled(served: Served) -> Served:
    for text in (DATA, LONG):
        await served.cluster.write(0, text, TxLog_Durability="applied")
    return served


SAME = {
    "everything": statements(),
    "everything in RDF4J's form": statements(infer="true"),
    "a subject": statements(subj="<urn:s>", infer="false"),
    "a predicate": statements("Accept: application/n-quads", pred="<urn:q>"),
    "a number": statements("Accept: text/turtle", obj='"1"^^<http://www.w3.org/2001/XMLSchema#integer>'),
    "a label": statements("Accept: application/trig", obj='"x"@en-us'),
    "a word with a mark in it": statements("Accept: application/trig", obj='"<urn:s> {} # \\\\"'),
    "all terms": statements("Accept: application/n-triples", subj="<urn:s>", pred="<urn:p>", obj="<urn:in-g>"),
    "one graph": statements(context="<urn:g>"),
    "one graph without graphs": statements("Accept: application/rdf+xml", context="<urn:g>"),
    "the default graph": statements("Accept: application/n-quads", context="null"),
    "two graphs": statements("Accept: application/n-quads", context=["<urn:g>", "null"], subj="<urn:s>"),
    "a graph that is not there": statements(context="<urn:none>"),
    "nothing matches": statements(subj="<urn:none>"),
    "JSON-LD": statements("Accept: application/ld+json", context="<urn:g>"),
    "accept as parameter": statements("User-Agent: x", Accept="text/turtle"),
    "no accept": statements("User-Agent: x"),
    "long": statements("Accept: application/n-quads", context=["<urn:long>", "<urn:g>"]),
    "long and converted": statements("Accept: application/trig", context=["<urn:long>", "<urn:g>"]),
    "long and of one graph": statements("Accept: text/turtle", context="<urn:long>"),
    "compressed": statements(RDF4J, "Accept-Encoding: gzip,deflate", context=["<urn:long>", "<urn:g>"]),
}
LEFT = {
    "a format that is not there": statements("Accept: image/png"),
    "no term": statements(subj="urn:s"),
    "a triple term": statements(obj="<<( <urn:s> <urn:p> <urn:o> )>>"),
    "a system graph": statements(context="<urn:txlog:system:marker>"),
    "a system subject": statements(subj="<urn:txlog:system:marker>"),
    "no graph": statements(context="urn:g"),
    "a subject twice": statements(subj=["<urn:s>", "<urn:t>"]),
    "preferences": statements(RDF4J, "Prefer: wait=5"),
    "a body": statements(RDF4J, "Content-Length: 1") + b"x",
    "a page": statements(RDF4J, "Origin: http://elsewhere.example"),
    "another repository": statements().replace(b"/demo/", b"/other/"),
}


@pytest.mark.parametrize("request_", SAME.values(), ids=list(SAME))
async def test_both_paths_give_one_answer(filled: Served, request_: bytes) -> None:
    quick, ordinary = await ask_both_paths(filled.cluster, request_)
    assert quick.status == 200
    assert quick.is_whole
    assert sorted_lines(quick.compared) == sorted_lines(ordinary.compared)


async def test_a_long_answer_is_converted_piece_by_piece(filled: Served) -> None:
    async with connection(filled.cluster) as client:
        answer = await client.ask(SAME["long and converted"])
        assert len(answer.body) > CONVERTED_BYTES_MAX
        assert "content-length" not in answer.headers
        assert answer.body.count(b"long" * 60) == 81


@pytest.mark.parametrize("request_", LEFT.values(), ids=list(LEFT))
async def test_what_is_not_plain_is_left_to_the_ordinary_path(filled: Served, request_: bytes) -> None:
    await assert_left(filled.cluster, request_)


def put(served: Served, number: int) -> None:
    """Changes the store without TxLog."""
    assert served.store.update(f"INSERT DATA {{ <urn:s> <urn:put> {number} }}").ok


async def test_a_read_that_is_sent_again_is_answered_from_memory_until_an_entry_comes(filled: Served) -> None:
    request = statements("Accept: application/n-triples", pred="<urn:put>")
    kept = reads_of(filled.cluster).kept
    async with connection(filled.cluster) as client:
        put(filled, 1)
        first = await client.ask(request)
        assert first.body.count(b"\n") == 1
        put(filled, 2)
        again = await client.ask(request)
        assert again.compared == first.compared
        assert "date" in again.headers
        assert (await client.ask(statements("Accept: text/turtle", pred="<urn:put>"))).body != first.body
        await asyncio.to_thread(filled.driver.pause)
        await filled.cluster.write(0, "INSERT DATA { <urn:s> <urn:put> 3 }", TxLog_Durability="synced")
        assert (await client.ask(request)).body.count(b"\n") == 2, "the worker is not at the end"
        put(filled, 4)
        assert (await client.ask(request)).body.count(b"\n") == 3, "nothing is kept meanwhile"
        filled.driver.resume()
        await filled.cluster.write(0, "INSERT DATA { <urn:s> <urn:put> 5 }", TxLog_Durability="applied")
        assert (await client.ask(request)).body.count(b"\n") == 5
        assert len(kept._answers) == 2


async def test_a_store_that_was_changed_without_txlog_shows_it_after_a_second(
    filled: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = statements("Accept: application/n-triples", pred="<urn:put>")
    async with connection(filled.cluster) as client:
        assert (await client.ask(request)).body == b""
        put(filled, 1)
        assert (await client.ask(request)).body == b""
        monkeypatch.setattr(kept_answers, "KEPT_S", 0.0)
        until = time.monotonic() + 30
        while not (await client.ask(request)).body:
            assert time.monotonic() < until
            await asyncio.sleep(0.05)


async def test_an_answer_does_not_count_for_another_marker_of_its_worker(filled: Served) -> None:
    """A repair changes a store at one index, and its fence."""
    worker = filled.cluster.service(0).context.registry.workers["w-1"]
    kept = KeptAnswers(lambda: filled.cluster.service(0).context.durability.persisted_end)
    request = recognised(statements())
    marker = kept.marker_at_end(worker)
    assert marker is not None
    kept.keep(request, "w-1", marker, b"head", b"body", 10.0)
    assert kept.find(recognised(statements()), worker, 10.0) is None, "another head"
    found = kept.find(request, worker, 10.5)
    assert found is not None
    assert (found.head, found.body) == (b"head", b"body")
    assert kept.find(request, worker, 11.5) is None
    repaired = msgspec.structs.replace(marker, fence=marker.fence + 1)
    worker.position = marker  # not the driver's next report
    kept.keep(request, "w-1", repaired, b"head", b"body", 10.0)
    assert kept.find(request, worker, 10.0) is None, "it has moved while it answered"
    kept.keep(request, "w-1", marker, b"head", b"b" * (kept_answers.BYTES_MAX + 1), 10.0)
    assert kept.find(request, worker, 10.0) is None, "too long"
    kept.keep(request, "w-1", marker, b"head", b"body", 10.0)
    worker.position = repaired
    assert kept.find(request, worker, 10.0) is None


def test_the_number_of_kept_answers_is_bounded() -> None:
    worker = RegisteredWorker("w-1")
    worker.position = marker = WorkerMarker(1, 0, "00" * 16)
    kept = KeptAnswers(lambda: 0)
    for _ in range(2 * ANSWERS_MAX):
        request = recognised(statements())
        kept.keep(request, "w-1", marker, b"", b"", 1.0)
        assert kept.find(request, worker, 1.0) is not None
    assert len(kept._answers) <= ANSWERS_MAX


def recognised(request: bytes) -> PlainReadHead:
    head = parse_request_head(request.removesuffix(b"\r\n\r\n"))
    assert head is not None
    found = recognise_statements(head)
    assert found is not None
    return found


def sorted_lines(compared: tuple[int, dict[str, str], bytes]) -> tuple[int, dict[str, str], list[bytes]]:
    """A store gives statements in an order of its own, and in another one for the next request."""
    status, headers, body = compared
    return status, headers, sorted(body.split(b"\n"))
