"""A client that sends blank nodes gets blank nodes back, in every form, and can name each by the label it was given."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from xml.etree import ElementTree

import pyoxigraph as ox
import pytest
from rdflib import Dataset, Graph
from rdflib.compare import isomorphic
from worker_driver import Served

from txlog.server.frontdoor.blank_nodes import restore_blank_nodes, restore_blank_nodes_in_stream
from txlog.server.frontdoor.result_formats import RDF_FORMATS
from txlog.sparql.formats.rdf4j_binary import read_rdf
from txlog.sparql.formats.rdf_json import read_rdf_json
from txlog.sparql.formats.trix import read_trix

TURTLE, QUADS = "text/turtle", "application/n-quads"
OWN = {"application/x-binary-rdf": read_rdf, "application/rdf+json": read_rdf_json, "application/trix": read_trix}
WITHOUT_STAR = {"text/x-turtlestar": TURTLE, "application/x-trigstar": "application/trig"}
"""Without a triple term, RDF-star's formats are these."""
DATA = """<urn:s> <urn:p> [ <urn:q> ( 1 "two" ) ; <urn:r> <urn:s> ] .
<urn:s> <urn:says> "<urn:txlog:bnode:0123456789abcdef0123456789abcdef:1> { \\"type\\":\\"uri\\"\\n" ."""
HEX = "0123456789abcdef" * 2
IRI, LABEL = f"urn:txlog:bnode:{HEX}:7", f"txlog-{HEX}-7"


async def asked(
    served: Served, method: str, path: str, body: str = "", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    url = served.cluster.url(0, f"/repositories/demo{path}")
    async with served.cluster.session.request(method, url, data=body.encode(), headers=sent) as answer:
        return answer.status, dict(answer.headers), await answer.read()


TABLES = (
    "application/sparql-results+json",
    "application/sparql-results+xml",
    "text/tab-separated-values",
    "application/x-binary-rdf-results-table",
)


async def test_every_form_gives_them_back(served: Served) -> None:
    await served.send("PUT", "/statements", DATA, Content_Type=TURTLE)
    wanted = Graph().parse(data=DATA, format="turtle")
    forms = {f.media_type: f for f in vars(ox.RdfFormat).values() if isinstance(f, ox.RdfFormat)}
    for media in RDF_FORMATS:
        for path in ("/statements", "?query=CONSTRUCT%20WHERE%7B%3Fs%20%3Fp%20%3Fo%7D", "/rdf-graphs/service?default"):
            status, headers, body = await asked(served, "GET", path, Accept=media)
            assert (status, headers["Content-Type"].partition(";")[0]) == (200, media), body[:300]
            lines = OWN[media](body) if media in OWN else ox.parse(body, forms[WITHOUT_STAR.get(media, media)])
            found = "".join(f"{quad.triple} .\n" for quad in lines)
            assert isomorphic(Graph().parse(data=found, format="nt"), wanted), (media, path, found)
    query = "?query=SELECT%20%3Fo%20%7B%3Curn:s%3E%20%3Curn:p%3E%7C%3Curn:says%3E%20%3Fo%7D"
    for media in TABLES:
        status, _, body = await asked(served, "GET", query, Accept=media)
        assert status == 200, body
        assert len(re.findall(rb"txlog-[0-9a-f]{32}-[0-9]+", body)) == 1, media
        assert len(re.findall(rb"urn:txlog:bnode:", body)) == 1, "in the string"


async def test_a_label_names_the_node(served: Served) -> None:
    await served.send("PUT", "/statements", "<urn:s> <urn:p> [ <urn:q> 1 ] .", Content_Type=TURTLE)
    label = re.findall(r"_:txlog-[0-9a-f]{32}-0", await served.send("GET", "/statements", status=200))[0]
    assert "1" in await served.send("GET", f"/statements?subj={label}", status=200)
    query = "?query=SELECT%20%3Fo%20%7B%3Fs%20%3Curn:q%3E%20%3Fo%7D&$s=" + label
    assert '"1"' in await served.send("GET", query, status=200, Accept="application/sparql-results+json")
    await served.send("POST", "/statements?preserveNodeId=true", f"{label} <urn:q> 2 .", Content_Type=TURTLE)
    await served.send("POST", "/statements", f"{label} <urn:q> 3 .", Content_Type=TURTLE)
    rows = [line for line in await served.quads() if "<urn:q>" in line]
    assert sorted(line.count(label) for line in rows) == [0, 1, 1]
    await served.send("DELETE", f"/statements?subj={label}")
    rows = [line for line in await served.quads() if "<urn:q>" in line]
    assert len(rows) == 1
    assert "3" in rows[0]
    status, _, body = await asked(served, "GET", "/statements?subj=_:b%201")
    assert (status, b"a term in N-Triples" in body) == (400, True)


async def test_graphs_may_be_blank_nodes(served: Served) -> None:
    await served.send("PUT", "/statements", "_:g { <urn:s> <urn:p> _:g }", Content_Type="application/trig")
    [line] = await served.quads()
    label = line.split(" ")[3]
    assert label == line.split(" ")[2]
    assert label.startswith("_:txlog-")
    for media, expected in (("application/sparql-results+json", f'"bnode", "value": "{label[2:]}"'),
                            ("application/sparql-results+xml", f"<bnode>{label[2:]}</bnode>"),
                            ("text/csv", label), ("text/tab-separated-values", label)):  # fmt: skip
        assert expected in await served.send("GET", "/contexts", status=200, Accept=media)
    assert "urn:s" in await served.send("GET", f"/statements?context={label}", status=200)
    await served.send("DELETE", f"/statements?context={label}")
    assert await served.quads() == []


async def test_a_transaction_reads_and_removes_them(served: Served) -> None:
    _, headers, _ = await asked(served, "POST", "/transactions")
    at = "/transactions/" + headers["Location"].rpartition("/")[2]
    await served.send("PUT", f"{at}?action=ADD", "<urn:s> <urn:p> [] , [] .", status=200, Content_Type=TURTLE)
    lines = (await served.send("PUT", f"{at}?action=GET", status=200, Accept=QUADS)).splitlines()
    assert [line.split(" ")[2].startswith("_:txlog-") for line in lines] == [True, True]
    query = "SELECT ?o { ?s ?p ?o }"
    for media in ("application/sparql-results+json", "application/x-binary-rdf-results-table"):
        _, _, body = await asked(
            served, "PUT", f"{at}?action=QUERY", query, Content_Type="application/sparql-query", Accept=media
        )
        assert len(re.findall(rb"txlog-[0-9a-f]{32}-", body)) == 2, body
    await served.send("PUT", f"{at}?action=DELETE", lines[0], status=200, Content_Type=QUADS)
    await served.send("PUT", f"{at}?action=COMMIT", status=200)
    assert await served.quads() == [lines[1]]


async def test_the_functions_of_a_query_and_of_an_update_know_them(served: Served) -> None:
    data = "<urn:a> <urn:p> _:node . <urn:b> <urn:p> <http://example.org/> . <urn:c> <urn:p> 'text' ."
    await served.send("PUT", "/statements", data, Content_Type=TURTLE)
    text = (
        "SELECT (isBlank(?o) AS ?b) (isIRI(?o) AS ?i) (COALESCE(STR(?o), 'none') AS ?t) (BOUND(?o) AS ?x) "
        "{ ?s <urn:p> ?o } ORDER BY ?o"
    )
    csv, kind = "text/csv", "application/sparql-query"
    expected = ["true,false,none,true", "false,true,http://example.org/,true", "false,false,text,true"]
    assert (await served.send("POST", "", text, status=200, Content_Type=kind, Accept=csv)).splitlines()[1:] == expected
    found = await served.send("POST", "", "SELECT ?o { <urn:a> ?p ?o }", status=200, Content_Type=kind, Accept=csv)
    assert re.fullmatch(r"o\r\n_:txlog-[0-9a-f]{32}-0\r\n", found)
    begun = (await asked(served, "POST", "/transactions"))[1]["Location"].rpartition("/")[2]
    at = f"/transactions/{begun}?action="
    await served.send("PUT", f"{at}ADD", "<urn:d> <urn:p> [] .", status=200, Content_Type=TURTLE)
    rows = await served.send("PUT", f"{at}QUERY", text, status=200, Content_Type=kind, Accept=csv)
    assert rows.splitlines()[1:] == [expected[0], *expected]
    await served.send("PUT", f"{at}ROLLBACK")
    update = "DELETE { ?s ?p ?o } WHERE { ?s ?p ?o FILTER(!isBlank(?o)) }"
    await served.send("POST", "/statements", update, Content_Type="application/sparql-update")
    assert [line.partition(" ")[0] for line in await served.quads()] == ["<urn:a>"]


@pytest.mark.parametrize("length", [1, 2, 3, 7, 64, 10_000])
def test_it_does_not_matter_where_an_answer_is_cut(length: int) -> None:
    term = {"type": "uri", "value": IRI}
    told = {"type": "literal", "value": f'{{ "type":"uri","value":"{IRI}" <binding'}
    rows = [{"x": term, "y": told}, {"y": told}, {"x": {"type": "uri", "value": "urn:a"}}, {"x": term}]
    answers = {
        "application/sparql-results+json": json.dumps({"head": {"vars": ["x", "y"]}, "results": {"bindings": rows}}),
        "application/sparql-results+xml": f'<?xml?><binding name="x"><uri>{IRI}</uri></binding><binding name="y">'
        f'<literal>&lt;uri>{IRI}&lt;/uri></literal></binding><binding name="x"><uri>{IRI}</uri></binding></x>',
        QUADS: f'<{IRI}> <urn:p> <{IRI}> <{IRI}> .\n<urn:s> <urn:p> "<{IRI}>" .\n<{IRI}> <urn:p> "" .',
        "text/tab-separated-values": f'?x\t?y\n<{IRI}>\t"<{IRI}>"\n<{IRI}>\t1',
        "text/csv": f'x,y\r\n{IRI},"a\r\n{IRI}\r\n,""{IRI}"\r\n"""",{IRI}-\r\nx{IRI},{IRI}',
    }
    for media, text in answers.items():
        whole = restore_blank_nodes(media, text.encode())
        assert whole.count(LABEL.encode()) == {QUADS: 4, "text/csv": 3}.get(media, 2), (media, whole)

        async def pieces(body: bytes = text.encode()) -> AsyncIterator[bytes]:
            for at in range(0, len(body), length):
                yield body[at : at + length]

        async def together(media: str = media) -> bytes:
            return b"".join([piece async for piece in restore_blank_nodes_in_stream(media, pieces())])

        assert asyncio.run(together()) == whole, media


async def test_a_carriage_return_comes_back_in_xml(served: Served) -> None:
    await served.send("PUT", "/statements", '<urn:s> <urn:p> "cr\\r\\nlf" .', Content_Type=TURTLE)
    table = await served.send(
        "GET", "?query=SELECT%20%3Fo%20%7B%3Fs%20%3Fp%20%3Fo%7D", status=200, Accept="application/sparql-results+xml"
    )
    [literal] = ElementTree.fromstring(table).iter("{http://www.w3.org/2005/sparql-results#}literal")
    assert literal.text == "cr\r\nlf"
    graph = Graph().parse(
        data=await served.send("GET", "/statements", status=200, Accept="application/rdf+xml"), format="xml"
    )
    assert [str(value) for value in graph.objects()] == ["cr\r\nlf"]


async def test_a_language_tag_that_is_none_comes_back_as_in_rdf4j(served: Served) -> None:
    body = json.dumps({"urn:s": {"urn:p": [{"type": "literal", "value": "four", "lang": "en_us"}]}})
    await served.send("PUT", "/statements", body, Content_Type="application/rdf+json")
    query = "?query=SELECT%20%3Fo%20%7B%3Fs%20%3Fp%20%3Fo%7D"
    for path, media in (("/statements", "application/rdf+json"), *((query, table) for table in TABLES[:2])):
        assert '"en_us"' in await served.send("GET", path, status=200, Accept=media), media
    assert b"e\0n\0_\0u\0s" in (await asked(served, "GET", "/statements", Accept="application/x-binary-rdf"))[2]
    assert b"en_us" in (await asked(served, "GET", query, Accept=TABLES[3]))[2]


def test_rdflib_reads_what_comes_back() -> None:
    body = restore_blank_nodes(QUADS, f"<{IRI}> <urn:p> <{IRI}> .\n".encode())
    assert len(Dataset().parse(data=body, format="nquads")) == 1
