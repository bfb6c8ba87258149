"""Statements replaced and removed, single graphs (RDF4J and W3C Graph Store Protocol), every form of RDF and back."""

from __future__ import annotations

import asyncio
import io
import json
from urllib.parse import quote

import pyoxigraph as ox
import pytest
from rdflib import Dataset
from worker_driver import Served

from txlog.server.frontdoor.stream_converter import THREADS
from txlog.sparql.formats.rdf4j_binary import read_rdf
from txlog.sparql.formats.rdf_json import read_rdf_json
from txlog.sparql.formats.trix import read_trix

QUADS = "application/n-quads"
TURTLE = "text/turtle"
SERVICE = "/rdf-graphs/service"
G, H = "%3Curn:g%3E", "%3Curn:h%3E"

DATA = """<urn:s> <urn:p> "d" .
<urn:s> <urn:p> "g" <urn:g> .
<urn:s> <urn:q> "g" <urn:g> .
<urn:t> <urn:p> "h"@en <urn:h> .
"""


async def filled(served: Served) -> None:
    await served.send("PUT", "/statements", DATA, Content_Type=QUADS)
    assert await served.quads() == sorted(DATA.splitlines())


async def test_put_replaces_what_stands_in_its_contexts_and_nothing_else(served: Served) -> None:
    await filled(served)
    await served.send("PUT", f"/statements?context={G}", "<urn:new> <urn:p> 1 .", Content_Type=TURTLE)
    one = '"1"^^<http://www.w3.org/2001/XMLSchema#integer>'
    rest = ['<urn:s> <urn:p> "d" .', '<urn:t> <urn:p> "h"@en <urn:h> .']
    assert await served.quads() == sorted([*rest, f"<urn:new> <urn:p> {one} <urn:g> ."])
    await served.send("PUT", f"/statements?context=null&context={H}", "<urn:a> <urn:p> <urn:b> .", Content_Type=TURTLE)
    both = ["<urn:a> <urn:p> <urn:b> .", "<urn:a> <urn:p> <urn:b> <urn:h> ."]
    assert await served.quads() == sorted([*both, f"<urn:new> <urn:p> {one} <urn:g> ."])
    await served.send("PUT", "/statements", "", Content_Type=QUADS)
    assert await served.quads() == []
    assert await served.send("GET", "/size", status=200) == "0"


@pytest.mark.parametrize(
    ("query", "gone"),
    [
        ("", [0, 1, 2, 3]),
        ("subj=%3Curn:s%3E", [0, 1, 2]),
        ("pred=%3Curn:p%3E&obj=%22g%22", [1]),
        ("obj=%22h%22@en", [3]),
        ("obj=%22h%22", []),
        ("context=null", [0]),
        (f"context={G}&context={H}", [1, 2, 3]),
        (f"context={G},{H}", [1, 2, 3]),
        (f"subj=%3Curn:s%3E&pred=%3Curn:p%3E&obj=%22g%22&context={G}&context=null", [1]),
        (f"pred=%3Curn:p%3E&context=null&context={H}", [0, 3]),
    ],
)
async def test_delete_takes_what_matches(served: Served, query: str, gone: list[int]) -> None:
    await filled(served)
    await served.send("DELETE", f"/statements?{query}")
    lines = DATA.splitlines()
    assert await served.quads() == sorted(line for at, line in enumerate(lines) if at not in gone)


async def test_one_graph_by_the_graph_store_protocol(served: Served) -> None:
    await filled(served)
    for where, mine in ((f"{SERVICE}?graph=urn:g", "urn:g"), (f"{SERVICE}?default", "")):
        kept = [line for line in await served.quads() if not line.endswith(f"<{mine}> ." if mine else '"d" .')]
        await served.send("PUT", where, "<urn:n> <urn:p> <urn:o> .", Content_Type=TURTLE)
        assert await served.send("GET", where, status=200, Accept="application/n-triples") == (
            "<urn:n> <urn:p> <urn:o> .\n"
        )
        await served.send("POST", where, "<urn:n> <urn:p> <urn:o>, <urn:m> .", Content_Type=TURTLE)
        text = await served.send("GET", where, status=200, Accept=QUADS)
        end = f" <{mine}> ." if mine else " ."
        assert sorted(text.splitlines()) == [f"<urn:n> <urn:p> <urn:m>{end}", f"<urn:n> <urn:p> <urn:o>{end}"]
        await served.send("HEAD", where, status=200)
        await served.send("DELETE", where)
        assert await served.send("GET", where, status=200, Accept="application/n-triples") == ""
        assert await served.quads() == kept


async def test_a_graph_may_be_named_by_its_own_url(served: Served) -> None:
    path = "/rdf-graphs/mine"
    iri = served.cluster.url(0, f"/repositories/demo{path}")
    await served.send("PUT", path, "<urn:n> <urn:p> <urn:o> .", Content_Type=TURTLE)
    assert await served.quads() == [f"<urn:n> <urn:p> <urn:o> <{iri}> ."]
    assert "urn:n" in await served.send("GET", path, status=200)
    assert "urn:n" in await served.send("GET", f"{SERVICE}?graph={iri}", status=200)
    await served.send("DELETE", path)
    assert await served.quads() == []


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "status", "says"),
    [
        ("GET", SERVICE, {}, "", 400, "Missing parameter"),
        ("GET", f"{SERVICE}?default&graph=urn:g", {}, "", 400, "Missing parameter"),
        ("GET", f"{SERVICE}?graph=urn:g&graph=urn:h", {}, "", 400, "Missing parameter"),
        ("PUT", f"{SERVICE}?graph=rel", {"Content_Type": TURTLE}, "", 400, "absolute IRI"),
        ("PUT", f"{SERVICE}?graph=urn:txlog:system:1", {"Content_Type": TURTLE}, "", 400, "belong to TxLog"),
        ("GET", "/rdf-graphs/mine?graph=urn:g", {}, "", 400, "No parameters"),
        ("PUT", f"{SERVICE}?default", {"Content_Type": TURTLE}, "<urn:a> <urn:b>", 400, "MALFORMED DATA"),
        ("PUT", f"{SERVICE}?default", {"Content_Type": "image/png"}, "x", 415, "Unsupported MIME type"),
        ("GET", f"{SERVICE}?default", {"Accept": "image/png"}, "", 406, "there are"),
        ("PUT", "/statements", {"Content_Type": "application/trix"}, "<TriX", 400, "MALFORMED DATA: line 1"),
        ("PUT", "/statements", {"Content_Type": "application/rdf+json"}, "[]", 400, "MALFORMED DATA"),
        ("PUT", "/statements", {"Content_Type": "application/x-binary-rdf"}, "BRDF", 400, "MALFORMED DATA"),
        ("PUT", "/statements", {"Content_Type": "application/rdf+xml"}, "<x", 400, "MALFORMED DATA"),
        ("PUT", "/statements", {"Content_Type": "application/ld+json"}, "{", 400, "MALFORMED DATA"),
        ("DELETE", "/statements?subj=urn:a", {}, "", 400, "a term in N-Triples"),
        ("DELETE", "/statements?subj=_:", {}, "", 400, "a term in N-Triples"),
        ("DELETE", "/statements?context=_:a%20b", {}, "", 400, "no label"),
        ("DELETE", "/statements?context=urn:g", {}, "", 400, "an IRI in <>, a blank node"),
        ("DELETE", "/statements?context=%3Curn:txlog:system%3E", {}, "", 400, "belong to TxLog"),
        ("DELETE", "/statements?subj=%3Curn:txlog:system%3E", {}, "", 400, "belong to TxLog"),
    ],
)
async def test_what_is_wrong_is_said(
    served: Served, method: str, path: str, headers: dict[str, str], body: str, status: int, says: str
) -> None:
    text = await served.send(method, path, body, status=status, **headers)
    assert says in text
    assert "Traceback" not in text
    assert await served.quads() == []


def by_rdflib(form: str, text: bytes) -> int:
    found = Dataset()
    found.parse(io.BytesIO(text), format=form)
    return sum(1 for _ in found.quads())


async def test_every_form_goes_out_and_comes_in_again(served: Served) -> None:
    awkward = 'a\\"\\n\\t< & ü 𝄞 ]]>'
    lines = [
        *DATA.splitlines(),
        f'<http://e.org/ü> <urn:p> "{awkward}" <urn:g> .',
        '<urn:s> <urn:p> "x"^^<urn:type> <urn:g> .',
    ]
    await served.send("PUT", "/statements", "\n".join(lines), Content_Type=QUADS)
    lines = await served.quads()
    assert len(lines) == 6
    for media, quads, other in (
        (QUADS, True, "nquads"),
        ("application/trig", True, "trig"),
        ("application/ld+json", True, "json-ld"),
        ("application/trix", True, "trix"),
        ("application/rdf+json", True, ""),
        ("application/x-binary-rdf", True, ""),
        (TURTLE, False, "turtle"),
        ("application/n-triples", False, "nt"),
        ("application/rdf+xml", False, "xml"),
        ("text/n3", False, "n3"),
    ):
        where = "/statements" if quads else f"{SERVICE}?graph=urn:g"
        async with served.cluster.session.get(
            served.cluster.url(0, f"/repositories/demo{where}"), headers={"Accept": media}
        ) as answer:
            body = await answer.read()
            assert answer.status == 200, (media, body)
            assert answer.content_type == media
        if other:
            assert by_rdflib(other, body) == (6 if quads else 4), (media, body)
        await served.send("PUT", where, body, Content_Type=media)
        assert await served.quads() == lines, media


async def test_a_construct_and_a_select_in_forms_that_no_worker_has(served: Served) -> None:
    await filled(served)
    for media, read in (("application/x-binary-rdf", read_rdf), ("application/trix", read_trix)):
        async with served.cluster.session.get(
            served.cluster.url(0, "/repositories/demo"),
            params={"query": "CONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o }"},
            headers={"Accept": f"{media}, text/turtle;q=0.5"},
        ) as answer:
            assert answer.content_type == media
            assert len(list(read(await answer.read()))) == 4
    async with served.cluster.session.get(
        served.cluster.url(0, "/repositories/demo"),
        params={"query": "SELECT ?o ?x { <urn:t> ?p ?o OPTIONAL { ?o <urn:no> ?x } }"},
        headers={"Accept": "application/x-binary-rdf-results-table, application/sparql-results+json;q=0.8"},
    ) as answer:
        assert answer.content_type == "application/x-binary-rdf-results-table"
        body = await answer.read()
    head = b"BRTR\0\0\0\x04\0\0\0\x02\0\0\0\x01o\0\0\0\x01x"
    assert body == head + b"\x07\0\0\0\x01h\0\0\0\x02en" + b"\0" + b"\x7f"
    for accept in ("text/boolean", "text/boolean, application/json;q=0.5"):
        assert await served.send("GET", "?query=ASK%7B%7D", status=200, Accept=accept) == "true"
    assert json.loads(
        await served.send("GET", "?query=ASK%7B%7D", status=200, Accept="application/sparql-results+json")
    )
    await served.send("GET", "?query=SELECT%20*%7B%7D", status=406, Accept="text/boolean")


def test_rdf_json_as_the_note_has_it() -> None:
    text = b'{"_:a":{"urn:p":[{"value":"v","type":"literal","lang":"en"},{"value":"_:a","type":"bnode"}]}}'
    first, second = read_rdf_json(text)
    assert first.object == ox.Literal("v", language="en")
    assert second.object == second.subject


async def test_a_client_that_goes_away_lets_the_converter_go(served: Served) -> None:
    lines = "".join(f'<urn:s:{at}> <urn:p> "{"x" * 200}" .\n' for at in range(20_000))
    await served.send("POST", "/statements", lines, Content_Type=QUADS)
    where, headers = served.cluster.url(0, "/repositories/demo/statements"), {"Accept": "application/trix"}
    for _ in range(2 * THREADS):
        answer = await served.cluster.session.get(where, headers=headers)
        assert len(await answer.content.readexactly(1000)) == 1000
        answer.close()
    text = await asyncio.wait_for(served.send("GET", "/statements", status=200, Accept="application/trix"), 60)
    assert text.count("<triple>") == 20_000


async def test_an_older_client_s_transaction_is_one_entry(served: Served) -> None:
    await filled(served)
    index = served.cluster.service(0).loop.durability.stable.value
    body = (
        "<transaction><add><uri>urn:x</uri><uri>urn:p</uri><literal>new</literal>"
        "<contexts><uri>urn:h</uri></contexts></add><remove><uri>urn:s</uri><null/><null/></remove></transaction>"
    )
    await served.send("POST", "/statements", body, Content_Type="application/x-rdftransaction")
    assert await served.quads() == ['<urn:t> <urn:p> "h"@en <urn:h> .', '<urn:x> <urn:p> "new" <urn:h> .']
    assert served.cluster.service(0).loop.durability.stable.value == index + 1
    text = await served.send("POST", "/statements", "<x/>", status=400, Content_Type="application/x-rdftransaction")
    assert text.startswith("MALFORMED DATA: <x>")


@pytest.mark.parametrize(
    "literal",
    [
        *(f'"42"^^xsd:{kind}' for kind in ("int", "long", "short", "byte", "nonNegativeInteger")),
        *('"042"^^xsd:integer', '"1.10"^^xsd:decimal', '"1.0"^^xsd:double', '"1.0E20"^^xsd:double', '"1"^^xsd:boolean'),
        *('"1970-01-01T00:00:00.000Z"^^xsd:dateTime', '"text"@EN-us', '"abc"^^xsd:integer', '"a\\tb"'),
    ],
)
async def test_a_literal_is_found_by_the_form_in_which_it_was_written(served: Served, literal: str) -> None:
    kind, name, end = literal.partition("xsd:")
    term = f"{kind}<http://www.w3.org/2001/XMLSchema#{end}>" if name else literal
    await served.send("PUT", "/statements", f"<urn:s> <urn:p> {term} .", Content_Type=QUADS)
    asked = f"?obj={quote(term)}"
    for accept in (QUADS, "application/n-triples", "application/x-binary-rdf"):
        assert await served.send("GET", f"/statements{asked}", status=200, Accept=accept) not in ("", "BRDF"), accept
    assert await served.send("GET", f"/statements{asked}&context=null", status=200, Accept=QUADS) != ""
    [line] = (await served.send("GET", "/statements", status=200, Accept=QUADS)).splitlines()
    async with served.cluster.session.post(served.cluster.url(0, "/repositories/demo/transactions")) as answer:
        at = "/transactions/" + answer.headers["Location"].rpartition("/")[2] + "?action="
    written = f"<urn:t> <urn:p> {term} ."
    await served.send("PUT", f"{at}ADD", written, status=200, Content_Type=QUADS)
    found = await served.send("PUT", f"{at}GET&obj={quote(term)}", status=200, Accept=QUADS)
    assert len(found.splitlines()) == 2
    await served.send("PUT", f"{at}ROLLBACK")
    await served.send("DELETE", f"/statements{asked}")
    assert await served.quads() == [], line
