"""``preserveNodeId=true``: a label is one node of the repository, in every request, and comes back as it was sent."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from test_blank_nodes import asked
from test_open_transactions import QUADS, RESULTS, UPDATE, act, begin
from worker_driver import Served

from txlog.server.frontdoor.result_formats import BINARY, RDF_FORMATS
from txlog.sparql.skolem_iris import encode_label

TURTLE = "text/turtle"
KEPT = "&preserveNodeId=true"


def subjects(lines: list[str], *objects: str) -> list[str]:
    """Of the lines with these objects, in their order."""
    return [line.split(" ")[0] for text in objects for line in lines if f' "{text}' in line]


async def test_one_label_in_two_bodies_of_a_transaction_is_one_node(served: Served) -> None:
    url = await begin(served.cluster)
    await act(served.cluster, url, "ADD" + KEPT, "_:b <urn:p> 1 .", Content_Type=TURTLE)
    await act(served.cluster, url, "UPDATE", "INSERT DATA { _:b <urn:p> 3 }", 204, Content_Type=UPDATE)
    await act(served.cluster, url, "ADD" + KEPT, "_:c <urn:q> 5 . _:b <urn:p> 2 .", Content_Type=TURTLE)
    await act(served.cluster, url, "ADD", "_:b <urn:p> 4 .", Content_Type=TURTLE)
    inside = (await act(served.cluster, url, "GET", Accept=QUADS)).splitlines()
    await act(served.cluster, url, "COMMIT")
    for lines in (inside, await served.quads()):
        one, two, of_the_update, new, other = subjects(lines, "1", "2", "3", "4", "5")
        assert one == two == "_:b"
        assert other == "_:c"
        # As in RDF4J: the labels of an update, and of a body without preserveNodeId, are its own.
        assert len({one, of_the_update, new}) == 3


async def test_one_label_is_one_node_in_all_requests(served: Served) -> None:
    for number in (1, 2):
        await served.send("POST", "/statements?x=y" + KEPT, f"_:b <urn:p> {number} .", Content_Type=TURTLE)
    body = "<transaction><add><bnode>b</bnode><uri>urn:p</uri><literal>3</literal></add></transaction>"
    await served.send("POST", "/statements", body, Content_Type="application/x-rdftransaction")
    await served.send("POST", "/statements", "_:b <urn:p> 4 .", Content_Type=TURTLE)
    found = subjects(await served.quads(), "1", "2", "3", "4")
    assert found[:3] == ["_:b"] * 3
    assert found[3].startswith("_:txlog-")
    assert len((await served.send("GET", "/statements?subj=_:b", status=200, Accept=QUADS)).splitlines()) == 3
    query = f"?query={quote('SELECT ?o { ?s <urn:p> ?o }')}&$s=_:b"
    rows = await served.send("GET", query, status=200, Accept=RESULTS)
    assert rows.count('"value"') == 3
    query = f"?query={quote('SELECT ?s { ?s <urn:p> 2 }')}"
    assert '"b"' in await served.send("GET", query, status=200, Accept=RESULTS)
    await served.send("DELETE", "/statements?subj=_:nobody")
    await served.send("DELETE", "/statements?subj=_:b&obj=" + quote('"3"'))
    url = await begin(served.cluster)
    await act(served.cluster, url, "DELETE", "_:b <urn:p> 2 . _:nobody <urn:p> 4 .", Content_Type=TURTLE)
    await act(served.cluster, url, "COMMIT")
    assert subjects(await served.quads(), "1", "4") == ["_:b", found[3]]
    assert len(await served.quads()) == 2


@pytest.mark.parametrize("label", ["genid-4f1e-b0", "node_1.2", "x-61", "é", "x", "8b0"])
async def test_a_label_comes_back_in_every_form(served: Served, label: str) -> None:
    body = f"_:{label} <urn:p> _:{label} _:{label} ."
    await served.send("POST", "/statements?x=y" + KEPT, body, Content_Type=QUADS)
    await served.send("POST", "/statements?context=null" + KEPT, f'_:{label} <urn:p> "only" .', Content_Type=QUADS)
    assert [line for line in await served.quads() if "only" not in line] == [body]
    query = "?query=" + quote("SELECT ?s { GRAPH ?g { ?s ?p ?o } }")
    for media, shown in (
        (RESULTS, f'"value":"{label}"'),
        ("application/sparql-results+xml", f"<bnode>{label}</bnode>"),
        ("text/tab-separated-values", f"_:{label}\n"),
    ):
        assert shown in await served.send("GET", query, status=200, Accept=media)
    assert label in await served.send("GET", "/contexts", status=200, Accept="text/csv")
    assert body in await served.send("GET", f"/statements?context=_:{quote(label)}", status=200, Accept=QUADS)
    for media in RDF_FORMATS:
        _, _, text = await asked(served, "GET", "/statements", Accept=media)
        shown = encode_label(label) if media == "application/rdf+xml" and label[0] == "8" else label
        assert shown.encode("utf-16-be" if media == BINARY else "utf-8") in text, media
        await served.send("POST", "/statements?context=null" + KEPT, text, Content_Type=media)
        [line] = subjects(await served.quads(), "only")
        assert line == f"_:{label}", "what comes back names the same node"
    await served.send("DELETE", f"/statements?context=_:{quote(label)}")
    await served.send("DELETE", f"/statements?subj=_:{quote(label)}")
    assert await served.quads() == []
