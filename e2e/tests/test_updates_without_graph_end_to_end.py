"""Updates that name no graph, alone and with a data set: a master means by them what a real RDF4J server means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from e2e.conformance.rdf4j.differences import ComparedServer, compared_servers
from e2e.conformance.rdf4j.request_script import N_QUADS, TRIG, UPDATE, RequestStep

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

OTHERS = {
    "a sequence": ("INSERT { ?s <urn:x> ?o } WHERE { ?s <urn:q>/<urn:p> ?o }"),
    "an inverse and an alternative": ("INSERT { ?s <urn:x> ?o } WHERE { ?s ^<urn:q>/(<urn:p>|^<urn:q>) ?o }"),
    "a negated set": ("DELETE { ?s ?p ?o } WHERE { ?s !(<urn:q>|<urn:r>) ?o . ?s ?p ?o }"),
    "unbound template": (
        "DELETE { ?s <urn:p> ?o ; <urn:q> ?x } WHERE { ?s <urn:p> ?o OPTIONAL { ?s <urn:q> ?x FILTER(?o = 1) } }"
    ),
    "another": ("DELETE { ?s <urn:p> 1 } WHERE { ?s <urn:q> ?x }"),
    "a constant": ("DELETE { <urn:a> <urn:p> 1 } WHERE { }"),
    "a constant and no solution": (
        "DELETE { <urn:a> <urn:p> 1 } INSERT { <urn:n> <urn:n> 1 } WHERE { <urn:a> <urn:p> 77 }"
    ),
    "a count": ("INSERT { <urn:n> <urn:count> ?c } WHERE { SELECT (COUNT(*) AS ?c) WHERE { ?s ?p ?o } }"),
    "a sum": ("INSERT { ?s <urn:sum> ?c } WHERE { { SELECT ?s (SUM(?o) AS ?c) WHERE { ?s <urn:p> ?o } GROUP BY ?s } }"),
    "distinct": (
        "INSERT { ?s <urn:n> ?c } WHERE { { SELECT ?s (COUNT(DISTINCT ?o) AS ?c) WHERE "
        "{ ?s <urn:p> ?o } GROUP BY ?s } }"
    ),
    "minus": ("INSERT { ?s <urn:x> ?o } WHERE { ?s <urn:p> ?o MINUS { ?s <urn:q> <urn:b> } }"),
    "union": (
        "DELETE { ?s <urn:p> ?o } WHERE { "
        "{ ?s <urn:p> ?o . ?s <urn:q> <urn:b> } UNION { ?s <urn:p> ?o FILTER(?o > 4) } }"
    ),
    "exists": ("DELETE { ?s <urn:p> ?o } WHERE { ?s <urn:p> ?o FILTER EXISTS { ?s <urn:q> ?x . ?x <urn:p> ?y } }"),
    "blank nodes in a pattern": (
        "INSERT { ?o <urn:x> 1 } WHERE { _:b <urn:q> [ <urn:p> ?o ] FILTER(?o > 0) _:b <urn:p> ?z }"
    ),
    "values": ("DELETE { ?s <urn:p> ?o } WHERE { VALUES ?o { 1 5 } ?s <urn:p> ?o }"),
    "delwhere2": ("DELETE WHERE { ?s <urn:q> ?x ; <urn:p> ?o }"),
    "del lit subj": ("DELETE { ?o a <urn:T> . ?s <urn:p> ?o } WHERE { ?s <urn:p> ?o }"),
    "using del": ("DELETE { ?s <urn:p> ?o } USING <urn:g> WHERE { ?s <urn:p> ?o }"),
    "using 2": ("DELETE { ?s <urn:p> ?o } USING <urn:g> USING <urn:h> WHERE { ?s <urn:p> ?o . ?s <urn:q> ?x }"),
    "using named": ("DELETE { ?s <urn:p> ?o } USING NAMED <urn:g> WHERE { GRAPH ?g { ?s <urn:p> ?o } }"),
    "using both": (
        "INSERT { ?s <urn:x> ?o } USING <urn:h> USING NAMED <urn:g> WHERE { GRAPH ?g { ?s <urn:p> ?o } ?s <urn:q> ?y }"
    ),
    "with using": (
        "WITH <urn:h> DELETE { ?s <urn:p> ?o } INSERT { ?s <urn:x> ?o } USING <urn:g> WHERE { ?s <urn:p> ?o }"
    ),
    "nil del": (
        "DELETE { GRAPH <http://rdf4j.org/schema/rdf4j#nil> { ?s ?p ?o } } WHERE { GRAPH <urn:g> { ?s ?p ?o } }"
    ),
    "nil with": (
        "WITH <http://rdf4j.org/schema/rdf4j#nil> DELETE { ?s ?p ?o } INSERT { ?s <urn:x> ?o } WHERE { ?s ?p ?o }"
    ),
    "nil where": ("INSERT { ?s <urn:x> ?o } WHERE { GRAPH <http://rdf4j.org/schema/rdf4j#nil> { ?s ?p ?o } }"),
    "nil using": ("INSERT { ?s <urn:x> ?o } USING <http://rdf4j.org/schema/rdf4j#nil> WHERE { ?s ?p ?o }"),
    "mixed": (
        "DELETE { ?s <urn:p> ?o . GRAPH <urn:h> { ?s ?q ?y } } "
        "INSERT { GRAPH ?g { ?s <urn:was> ?o } } WHERE { GRAPH ?g { ?s <urn:p> ?o } ?s ?q ?y }"
    ),
    "named var both": (
        "DELETE { GRAPH ?g { ?s ?p ?o } } "
        "INSERT { GRAPH <urn:k> { ?s ?p ?o } } WHERE { ?s <urn:q> ?x GRAPH ?g { ?s ?p ?o } }"
    ),
}
DATA_SETS = (
    "using-graph-uri=urn:g",
    "remove-graph-uri=urn:h",
    "insert-graph-uri=urn:i",
    "using-graph-uri=null&remove-graph-uri=null",
    "using-graph-uri=null&remove-graph-uri=null&using-named-graph-uri=urn:g&using-named-graph-uri=urn:h",
    "using-named-graph-uri=urn:g",
    "using-graph-uri=urn:g&using-graph-uri=urn:h&remove-graph-uri=urn:g&remove-graph-uri=null&insert-graph-uri=urn:g",
    "using-graph-uri=null&using-graph-uri=urn:h",
)
ONCE = ("over a path",)
"""Over several graphs it is evaluated once, and not beside a data set."""


@dataclass
class ServerPair:
    rdf4j: ComparedServer
    master: ComparedServer

    def held(self, update: str, data_set: str = "") -> tuple[set[bytes], set[bytes]]:
        """What both hold after an update of the same data."""
        dumps: list[set[bytes]] = []
        for server in (self.rdf4j, self.master):
            for step in (
                RequestStep("clear", "DELETE", "@/statements"),
                RequestStep("data", "POST", "@/statements", DATA, {"Content-Type": TRIG}),
                RequestStep("update", "POST", f"@/statements?{data_set}", update, {"Content-Type": UPDATE}),
            ):
                answer = server.send(step)
                assert answer.status == 204, (step, answer)
            told = server.send(RequestStep("dump", "GET", "@/statements", headers={"Accept": N_QUADS}))
            dumps.append({line.replace(b"> .", b">.").rstrip(b" .") for line in told.body.splitlines() if line})
        return dumps[0], dumps[1]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerPair]:
    with compared_servers(tmp_path_factory.mktemp("both")) as (rdf4j, master):
        yield ServerPair(rdf4j, master)


@pytest.mark.parametrize("data_set", DATA_SETS)
def test_a_data_set_beside_the_update_means_the_same(both: ServerPair, data_set: str) -> None:
    for name, update in {**UPDATES, **OTHERS}.items():
        if name not in ONCE:
            rdf4j, master = both.held(update, data_set)
            assert master == rdf4j, (name, update)


@pytest.mark.parametrize("name", OTHERS)
def test_other_shapes_leave_the_same(both: ServerPair, name: str) -> None:
    rdf4j, master = both.held(OTHERS[name])
    assert master == rdf4j


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


def test_a_graph_that_exists_is_not_created(both: ServerPair) -> None:
    both.held("INSERT DATA {}")
    for update, created in {
        "CREATE GRAPH <urn:g>": False,
        "CREATE SILENT GRAPH <urn:g>": True,
        "CREATE GRAPH <urn:new>": True,
        "DROP GRAPH <urn:g> ; CREATE GRAPH <urn:g>": True,
    }.items():
        step = RequestStep("create", "POST", "@/statements", update, {"Content-Type": UPDATE})
        rdf4j, master = both.rdf4j.send(step), both.master.send(step)
        assert (rdf4j.status == 204, master.status == 204) == (created, created), (update, master)
        assert created or (master.status == 409 and b"Named graph urn:g already exists" in master.body)
