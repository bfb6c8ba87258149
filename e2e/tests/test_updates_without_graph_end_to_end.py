"""Updates that name no graph: what they mean at a real RDF4J server they mean at a master, where it is told so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest

from e2e.conformance.rdf4j.differences import ComparedServer
from e2e.conformance.rdf4j.rdf4j_process import rdf4j_server
from e2e.conformance.rdf4j.request_script import N_QUADS, TRIG, UPDATE, RequestStep
from e2e.lib.cluster.harness import MasterHarness, StoreKind, start_master_harness

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

DATA = """
<urn:a> <urn:p> 1 , 2 ; <urn:q> <urn:b> . <urn:b> <urn:p> 3 .
<urn:g> { <urn:a> <urn:p> 1 , 4 . <urn:b> <urn:q> <urn:c> . <urn:c> <urn:p> 5 }
<urn:h> { <urn:a> <urn:p> 1 , 5 . <urn:c> <urn:q> <urn:d> . <urn:d> <urn:r> "x"@en }
"""
UPDATES = {
    "data": "DELETE DATA { <urn:a> <urn:p> 1 . <urn:c> <urn:p> 5 }",
    "data of a graph": "DELETE DATA { GRAPH <urn:g> { <urn:a> <urn:p> 1 } }",
    "data of both kinds": "DELETE DATA { <urn:a> <urn:p> 1 . GRAPH <urn:g> { <urn:c> <urn:p> 5 } }",
    "data with a language": 'DELETE DATA { <urn:d> <urn:r> "x"@en }',
    "one after the other": "DELETE DATA { <urn:a> <urn:p> 1 } ; INSERT DATA { <urn:a> <urn:p> 1 }",
    "one pattern": "DELETE WHERE { <urn:a> <urn:p> ?o }",
    "one pattern of a graph": "DELETE WHERE { GRAPH <urn:h> { <urn:a> <urn:p> ?o } }",
    "everything": "DELETE WHERE { ?s ?p ?o }",
    "two patterns over graphs": "DELETE WHERE { ?s <urn:q> ?x . ?x <urn:p> ?o }",
    "a pattern and a graph": "DELETE WHERE { ?s <urn:q> ?x . GRAPH <urn:g> { ?x <urn:p> ?o } }",
    "a template": "DELETE { ?s <urn:p> ?o } WHERE { ?s <urn:p> ?o FILTER(?o < 4) }",
    "a template of a graph": "DELETE { GRAPH <urn:g> { ?s <urn:p> ?o } } WHERE { ?s <urn:p> ?o FILTER(?o > 3) }",
    "inserted from all": "INSERT { ?o <urn:inverse> ?s } WHERE { ?s <urn:q> ?o }",
    "inserted as it is there": "INSERT { ?s <urn:p> ?o } WHERE { GRAPH <urn:g> { ?s <urn:p> ?o } }",
    "inserted into a graph": "INSERT { GRAPH <urn:n> { ?s <urn:p> ?o } } WHERE { ?s <urn:p> ?o }",
    "moved into a graph": (
        "DELETE { ?s <urn:p> ?o } INSERT { GRAPH <urn:g> { ?s <urn:p> ?o } } WHERE { ?s <urn:p> ?o FILTER(?o != 2) }"
    ),
    "renamed": "DELETE { ?s <urn:p> ?o } INSERT { ?s <urn:new> ?o } WHERE { ?s <urn:p> ?o }",
    "over a path": "INSERT { <urn:a> <urn:reaches> ?x } WHERE { <urn:a> <urn:q>+ ?x }",
    "graphs by variable": "DELETE { GRAPH ?g { ?s ?p ?o } } WHERE { ?s <urn:q> <urn:d> . GRAPH ?g { ?s ?p ?o } }",
    "optional and none": (
        "INSERT { ?s <urn:leaf> ?n } WHERE { ?s <urn:p> ?o OPTIONAL { ?s <urn:q> ?n } "
        "FILTER NOT EXISTS { ?n <urn:q> ?m } }"
    ),
    "several": (
        "DELETE { ?s <urn:p> 1 } WHERE { ?s <urn:q> <urn:b> } ; INSERT { <urn:n> <urn:left> ?o } WHERE "
        "{ <urn:a> <urn:p> ?o } ; DELETE WHERE { <urn:b> ?p ?o }"
    ),
    "with": "WITH <urn:g> DELETE { ?s <urn:p> ?o } WHERE { ?s <urn:p> ?o }",
    "using": "INSERT { <urn:n> <urn:p> ?o } USING <urn:h> WHERE { <urn:a> <urn:p> ?o }",
}


@dataclass
class ServerPair:
    rdf4j: ComparedServer
    master: ComparedServer
    at: MasterHarness

    def held(self, update: str) -> tuple[set[bytes], set[bytes]]:
        """What both hold after an update of the same data."""
        dumps: list[set[bytes]] = []
        for server in (self.rdf4j, self.master):
            for step in (
                RequestStep("clear", "DELETE", "@/statements"),
                RequestStep("data", "POST", "@/statements", DATA, {"Content-Type": TRIG}),
                RequestStep("update", "POST", "@/statements", update, {"Content-Type": UPDATE}),
            ):
                answer = server.send(step)
                assert answer.status == 204, (step, answer)
            told = server.send(RequestStep("dump", "GET", "@/statements", headers={"Accept": N_QUADS}))
            dumps.append({line.replace(b"> .", b">.").rstrip(b" .") for line in told.body.splitlines() if line})
        return dumps[0], dumps[1]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerPair]:
    folder = tmp_path_factory.mktemp("both")
    with (
        rdf4j_server(folder / "rdf4j") as where,
        start_master_harness(
            folder / "door",
            {"worker": StoreKind.DISK},
            ("worker",),
            durability="synced",
            updates_without_graph="all",
        ) as at,
        closing(ComparedServer(where)) as rdf4j,
        closing(ComparedServer(urlsplit(at.url).netloc, at)) as master,
    ):
        at.update("DROP ALL")
        yield ServerPair(rdf4j, master, at)


@pytest.mark.parametrize("name", UPDATES)
def test_both_hold_the_same_afterwards(both: ServerPair, name: str) -> None:
    rdf4j, master = both.held(UPDATES[name])
    assert bool(rdf4j) is (name != "everything")
    assert master == rdf4j


def test_a_request_may_ask_for_the_other_meaning(both: ServerPair) -> None:
    """As W3C's tests do; and RDF4J differs then."""
    header = {"Content-Type": UPDATE, "TxLog-Updates-Without-Graph": "default"}
    both.held("INSERT DATA {}")
    update = RequestStep("update", "POST", "@/statements", UPDATES["one pattern"], header)
    assert both.master.send(update).status == 204
    left = both.master.send(
        RequestStep("dump", "GET", "@/statements?context=%3Curn%3Ag%3E", headers={"Accept": N_QUADS})
    )
    assert left.body.count(b"<urn:a> <urn:p>") == 2
    whole = both.master.send(RequestStep("dump", "GET", "@/statements?context=null", headers={"Accept": N_QUADS}))
    assert b"<urn:a> <urn:p>" not in whole.body
    wrong = update._replace(headers={**header, "TxLog-Updates-Without-Graph": "some"})
    answer = both.master.send(wrong)
    assert (answer.status, b"neither all nor default" in answer.body) == (400, True)
