"""Plain reads of statements on the fast path get the answer of the ordinary path; everything else is left to that
one."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from plain_requests import PATH, ask_both_paths, assert_left, connection
from worker_driver import Served

from txlog.server.frontdoor.answer_steps import CONVERTED_BYTES_MAX

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


def sorted_lines(compared: tuple[int, dict[str, str], bytes]) -> tuple[int, dict[str, str], list[bytes]]:
    """A store gives statements in an order of its own, and in another one for the next request."""
    status, headers, body = compared
    return status, headers, sorted(body.split(b"\n"))
