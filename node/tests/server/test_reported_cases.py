"""Symptoms that users of other stores reported, at a master with a real store."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pyoxigraph as ox
import pytest
from worker_driver import Served

QUADS = "application/n-quads"
RESULTS_XML = "application/sparql-results+xml"
SELECT = "/?query=SELECT%20%3Fo%20%7B%3Fs%20%3Fp%20%3Fo%7D".replace("/?", "?")
NIL = "<http://rdf4j.org/schema/rdf4j#nil>"
WILDCARD = "<http://www.openrdf.org/schema/sesame#wildcard>"
DATA = '<urn:a> <urn:p> "d" .\n<urn:a> <urn:p> "d" <urn:g> .\n'
RETURNS = 'INSERT DATA { <urn:a> <urn:b> "cr\\r\\nlf", "<literal>\\r</literal>", "" }'
EXPECTED = sorted(["cr\r\nlf", "<literal>\r</literal>", ""])


async def begin(served: Served) -> str:
    url = served.cluster.url(0, "/repositories/demo/transactions")
    async with served.cluster.session.post(url) as answer:
        assert answer.status == 201
        return urlsplit(answer.headers["Location"]).path.removeprefix("/repositories/demo")


@pytest.mark.parametrize(
    "removed",
    [
        f"{WILDCARD} {WILDCARD} {WILDCARD} {NIL} .",
        f"<urn:a> {WILDCARD} {WILDCARD} {NIL} .",
        f'<urn:a> <urn:p> "d" {NIL} .',
    ],
)
async def test_a_removal_from_the_null_context_is_one_from_the_default_graph(served: Served, removed: str) -> None:
    await served.send("PUT", "/statements", DATA, Content_Type=QUADS)
    transaction = await begin(served)
    await served.send("PUT", f"{transaction}?action=DELETE", removed, Content_Type=QUADS, status=200)
    await served.send("PUT", f"{transaction}?action=COMMIT", status=200)
    assert await served.quads() == ['<urn:a> <urn:p> "d" <urn:g> .']


async def test_an_addition_takes_the_null_context_as_a_name_as_rdf4j_does(served: Served) -> None:
    line = f'<urn:a> <urn:p> "d" {NIL} .'
    transaction = await begin(served)
    await served.send("PUT", f"{transaction}?action=ADD", line, Content_Type=QUADS, status=200)
    await served.send("PUT", f"{transaction}?action=COMMIT", status=200)
    assert await served.quads() == [line]


def literals_of(text: str) -> list[str]:
    found = ElementTree.fromstring(text.encode()).iter("{http://www.w3.org/2005/sparql-results#}literal")
    return sorted(one.text or "" for one in found)


async def test_a_carriage_return_comes_back_from_xml(served: Served) -> None:
    await served.send("POST", "/statements", RETURNS, Content_Type="application/sparql-update")
    assert literals_of(await served.send("GET", SELECT, status=200, Accept=RESULTS_XML)) == EXPECTED
    for path in ("/statements", "/rdf-graphs/service?default"):
        text = await served.send("GET", path, status=200, Accept="application/rdf+xml")
        values = (one.object.value for one in ox.parse(text, ox.RdfFormat.RDF_XML))
        assert sorted(values) == EXPECTED
        assert "\r" not in text


async def test_a_carriage_return_comes_back_from_a_transactions_xml(served: Served) -> None:
    transaction = await begin(served)
    await served.send(
        "PUT", f"{transaction}?action=UPDATE", RETURNS, Content_Type="application/sparql-update", status=204
    )
    asked = f"{transaction}?action=QUERY&{SELECT[1:]}"
    assert literals_of(await served.send("PUT", asked, status=200, Accept=RESULTS_XML)) == EXPECTED


async def test_a_target_in_absolute_form_is_that_of_its_path(served: Served) -> None:
    await served.send("PUT", "/statements", DATA, Content_Type=QUADS)
    url = urlsplit(served.cluster.url(0))
    for target, status in (
        ("/repositories/demo/size", 200),
        ("/repositories/demo?query=ASK%7B%7D", 200),
        ("/repositories/other/size", 404),
        ("", 404),
    ):
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        head = f"GET http://{url.netloc}{target} HTTP/1.1\r\nHost: {url.netloc}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode())
        text = (await reader.read()).decode()
        writer.close()
        assert text.startswith(f"HTTP/1.1 {status} "), (target, text)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    body = '<urn:c> <urn:p> "d" .'
    writer.write(
        f"POST http://{url.netloc}/repositories/demo/statements HTTP/1.1\r\nHost: {url.netloc}\r\nConnection: close\r\n"
        f"Content-Type: text/turtle\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    assert (await reader.read()).startswith(b"HTTP/1.1 204 ")
    writer.close()
    assert body in await served.quads()
