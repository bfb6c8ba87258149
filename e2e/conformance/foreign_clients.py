"""Clients that know nothing of TxLog, unchanged, against a running cluster: ``make test-clients``. Each is run against
a master of each data centre.

The last line of stdout is JSON: ``{"clients": {NAME: "passed" | "failed: why" | "skipped: why"}, "passed", "failed",
"skipped"}``; a name ends with its data centre. A client that is skipped is one that was not tested: the exit code is 1
then, as for one that failed, unless ``--allow-skipped`` is given. Each works in graphs of its own and leaves nothing
behind.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote


class ClientUnavailable(Exception):
    """This client is not on this machine; the text says which."""


def expect(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise AssertionError(f"{what}: {found!r} instead of {wanted!r}")


def rdflib_update_store(url: str, repository: str) -> None:
    """rdflib's SPARQLUpdateStore: queries and updates by the SPARQL protocol, prefixes repeated between operations."""
    from rdflib import Dataset, Graph, Literal, URIRef
    from rdflib.plugins.stores.sparqlstore import SPARQLUpdateStore

    base = f"{url}/repositories/{repository}"
    store = SPARQLUpdateStore(base, f"{base}/statements", autocommit=False)
    name = URIRef("urn:rdflib:update-store")
    graph: Graph = Dataset(store, default_union=True).graph(name)
    graph.bind("ex", "http://example.org/")
    subject, predicate = URIRef("http://example.org/s"), URIRef("http://example.org/p")
    for number in range(3):
        graph.add((subject, predicate, Literal(number)))
    graph.update("INSERT DATA { ex:s ex:q 'zwölf'@de }")
    store.commit()
    expect("triples", len(list(graph.triples((subject, None, None)))), 4)
    expect("the value", str(graph.value(subject, URIRef("http://example.org/q"))), "zwölf")
    found = graph.query("SELECT (SUM(?o) AS ?n) { ?s ex:p ?o }")
    expect("the sum", [int(row[0]) for row in found], [3])  # type: ignore[index, arg-type]
    graph.remove((subject, predicate, Literal(1)))
    store.commit()
    expect("after a removal", len(list(graph.triples((None, predicate, None)))), 2)
    store.remove_graph(graph)
    store.commit()
    expect("after the graph is gone", len(list(graph.triples((None, None, None)))), 0)


def rdflib_rdf4j_client(url: str, repository: str) -> None:
    """rdflib's RDF4JClient: every method that it has but making and removing repositories."""
    from rdflib import Literal, URIRef
    from rdflib.contrib.rdf4j import RDF4JClient

    name, other = URIRef("urn:rdflib:rdf4j-client"), URIRef("urn:rdflib:rdf4j-client:other")
    subject, predicate = URIRef("urn:rdflib:s"), URIRef("urn:rdflib:p")
    with RDF4JClient(f"{url}/rdf4j-server") as client:
        expect("protocol", client.protocol >= 12, True)
        expect("repositories", [one.identifier for one in client.repositories.list()], [repository])
        repo = client.repositories.get(repository)
        repo.upload('<urn:rdflib:s> <urn:rdflib:p> "1", "2" .', content_type="text/turtle", base_uri="urn:x:")
        expect("statements", len(repo.get(subject, predicate)), 2)
        repo.delete(subject, predicate)
        expect("after a removal", len(repo.get(subject, predicate)), 0)
        repo.graphs.add(name, "<urn:rdflib:s> <urn:rdflib:p> <urn:rdflib:o> .")
        two = "<urn:rdflib:s> <urn:rdflib:p> <urn:rdflib:x> .\n<urn:rdflib:s> <urn:rdflib:p> <urn:rdflib:y> .\n"
        repo.graphs.overwrite(other, two)
        expect("a graph", len(repo.graphs.get(other)), 2)
        expect("sizes", (repo.size(name), repo.size([name, other])), (1, 3))
        expect("graph names", {name, other} <= set(repo.graph_names()), True)
        rows = repo.query("SELECT ?o { GRAPH <urn:rdflib:rdf4j-client> { ?s ?p ?o } }")
        expect("a query", [str(row[0]) for row in rows], ["urn:rdflib:o"])
        rows = repo.query("SELECT ?o { ?s <urn:rdflib:p> ?o } ORDER BY ?o", limit=1, offset=1)
        expect("limit and offset", [str(row[0]) for row in rows], ["urn:rdflib:x"])
        repo.update('INSERT DATA { GRAPH <urn:rdflib:rdf4j-client> { <urn:rdflib:s> <urn:rdflib:q> "u" } }')
        expect("after an update", repo.size(name), 2)
        repo.namespaces.set("rdflib", "urn:rdflib:")
        expect("a namespace", repo.namespaces.get("rdflib"), "urn:rdflib:")
        expect("all of them", "rdflib" in {one.prefix for one in repo.namespaces.list()}, True)
        repo.namespaces.remove("rdflib")
        expect("a namespace that is gone", repo.namespaces.get("rdflib"), None)
        with repo.transaction() as transaction:
            transaction.ping()
            before = transaction.size()
            transaction.upload('<urn:rdflib:t> <urn:rdflib:p> "in" .')
            expect("inside", transaction.size(), before + 1)
            transaction.update('INSERT DATA { <urn:rdflib:t> <urn:rdflib:p> "too" }')
            rows = transaction.query("SELECT ?o { <urn:rdflib:t> ?p ?o }")
            expect("what it wrote", sorted(str(row[0]) for row in rows), ["in", "too"])
            expect("outside", len(repo.get(URIRef("urn:rdflib:t"))), 0)
            transaction.delete('<urn:rdflib:t> <urn:rdflib:p> "too" .')
        expect("after the commit", len(repo.get(URIRef("urn:rdflib:t"))), 1)
        with repo.transaction() as undone:
            undone.upload('<urn:rdflib:t> <urn:rdflib:p> "gone" .')
            undone.rollback()
        expect("after a rollback", len(repo.get(URIRef("urn:rdflib:t"), predicate, Literal("gone"))), 0)
        repo.overwrite("", graph_name=name)
        repo.graphs.clear(other)
        repo.delete(URIRef("urn:rdflib:t"))
        expect("at the end", repo.size([name, other]), 0)


def rdflib_rdf4j_store(url: str, repository: str) -> None:
    """rdflib's store over RDF4J, below a Dataset; it sends its namespaces first."""
    from rdflib import Dataset, Literal, URIRef
    from rdflib.plugins.stores.rdf4j import RDF4JStore

    store = RDF4JStore(f"{url}/rdf4j-server", repository)
    dataset = Dataset(store)
    graph = dataset.graph(URIRef("urn:rdflib:store"))
    graph.bind("store", "urn:rdflib:store:")
    subject, predicate = URIRef("urn:rdflib:store:s"), URIRef("urn:rdflib:store:p")
    graph.add((subject, predicate, Literal("a")))
    graph.add((subject, predicate, Literal("b", lang="en")))
    expect("triples", len(list(graph.triples((subject, None, None)))), 2)
    expect("their number", len(graph), 2)
    expect("a namespace", str(dict(graph.namespaces())["store"]), "urn:rdflib:store:")
    graph.remove((subject, predicate, Literal("a")))
    expect("after a removal", [str(o) for o in graph.objects(subject, predicate)], ["b"])
    dataset.remove_graph(graph)
    expect("after the graph is gone", len(list(graph)), 0)
    store.close()


def sparql_wrapper(url: str, repository: str) -> None:
    """SPARQLWrapper: every form of answer, GET and POST, updates as a form and as a body."""
    from SPARQLWrapper import CSV, GET, JSON, N3, POST, POSTDIRECTLY, RDFXML, TSV, TURTLE, XML, SPARQLWrapper

    base = f"{url}/repositories/{repository}"
    for method in (None, POSTDIRECTLY):
        update = SPARQLWrapper(f"{base}/statements?" if method else f"{base}/statements")
        update.setMethod(POST)
        if method:
            update.setRequestMethod(method)
        update.setQuery(f'INSERT DATA {{ GRAPH <urn:wrapper> {{ <urn:w:s> <urn:w:p> "{method}" }} }}')
        update.query()
    for method in (GET, POST):
        for form in (JSON, XML, CSV, TSV):
            ask = SPARQLWrapper(base)
            ask.setMethod(method)
            ask.setReturnFormat(form)
            ask.setQuery("SELECT ?o { GRAPH <urn:wrapper> { ?s ?p ?o } }")
            found: Any = ask.query().convert()
            if form == JSON:
                expect("rows", len(found["results"]["bindings"]), 2)
            else:
                text = found if isinstance(found, bytes) else found.toxml().encode()
                expect(f"the answer in {form}", text.count(b"postdirectly"), 1)
    for form in (RDFXML, TURTLE, N3):
        ask = SPARQLWrapper(base)
        ask.setReturnFormat(form)
        ask.setQuery("CONSTRUCT { ?s ?p ?o } WHERE { GRAPH <urn:wrapper> { ?s ?p ?o } }")
        made: Any = ask.query().convert()
        expect(f"a graph in {form}", made.count(b"urn:w:s") > 0 if isinstance(made, bytes) else len(made) == 2, True)
    drop = SPARQLWrapper(f"{base}/statements")
    drop.setMethod(POST)
    drop.setQuery("DROP GRAPH <urn:wrapper>")
    drop.query()


def rdf4j_python(url: str, repository: str) -> None:
    """rdf4j-python: asynchronous, over httpx and pyoxigraph."""
    if importlib.util.find_spec("rdf4j_python") is None:
        raise ClientUnavailable("rdf4j-python is not installed")
    asyncio.run(_rdf4j_python(url, repository))


async def _rdf4j_python(url: str, repository: str) -> None:
    from rdf4j_python import IRI, AsyncRdf4j, Literal, Quad

    s, p, graph = IRI("urn:rdf4j:s"), IRI("urn:rdf4j:p"), IRI("urn:rdf4j:graph")
    async with AsyncRdf4j(f"{url}/rdf4j-server") as server:
        expect("protocol", await server.get_protocol_version(), "12")
        expect("repositories", [one.id for one in await server.list_repositories()], [repository])
        repo = await server.get_repository(repository)
        await repo.add_statement(s, p, Literal("1"), graph)
        await repo.add_statements([Quad(s, p, Literal("2"), graph), Quad(s, p, Literal("3"), graph)])
        expect("statements", len(list(await repo.get_statements(subject=s, contexts=[graph]))), 3)
        await repo.delete_statements(subject=s, object_=Literal("3"))
        rows: Any = await repo.query("SELECT ?o { GRAPH <urn:rdf4j:graph> { ?s ?p ?o } }")
        expect("a query", sorted(str(row["o"].value) for row in rows), ["1", "2"])
        inserted = 'INSERT DATA { GRAPH <urn:rdf4j:graph> { <urn:rdf4j:s> <urn:rdf4j:q> "u" } }'
        await repo.update(inserted, "application/sparql-update")
        named = await repo.get_named_graph("mine")
        await named.add([Quad(s, p, Literal("n"))])
        expect("a named graph", len(list(await named.get())), 1)
        await named.clear()
        await repo.set_namespace("rdf4jpy", IRI("urn:rdf4j:"))
        expect("a namespace", str((await repo.get_namespace("rdf4jpy")).namespace.value), "urn:rdf4j:")
        await repo.delete_namespace("rdf4jpy")
        async with repo.transaction() as transaction:
            await transaction.add_statements([Quad(s, p, Literal("t"), graph)])
            await transaction.delete_statements([Quad(s, p, Literal("1"), graph)])
            await transaction.update('INSERT DATA { GRAPH <urn:rdf4j:graph> { <urn:rdf4j:s> <urn:rdf4j:p> "v" } }')
        found = await repo.get_statements(subject=s, predicate=p, contexts=[graph])
        expect("after the commit", sorted(quad.object.value for quad in found), ["2", "t", "v"])
        await repo.delete_statements(contexts=[graph])
        expect("at the end", len(list(await repo.get_statements(contexts=[graph]))), 0)


CURL_UPDATES = (("INSERT", 4), ("DELETE", 1))


def curl(url: str, repository: str) -> None:
    """curl, as the documentation writes it."""
    if shutil.which("curl") is None:
        raise ClientUnavailable("curl is not installed")
    base = f"{url}/repositories/{repository}"

    def run(*words: str, body: str = "") -> str:
        command = ["curl", "-sS", "--fail-with-body", "--max-time", "60", *words]
        done = subprocess.run(command, input=body, capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(f"{' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    where = f"{base}/rdf-graphs/service?graph={quote('urn:curl', safe='')}"
    run("-X", "PUT", "-H", "Content-Type: text/turtle", "--data-binary", "@-", where, body="<urn:c:s> <urn:c:p> 1, 2 .")
    run("-T", "-", "-X", "POST", "-H", "Content-Type: text/turtle", where, body="<urn:c:s> <urn:c:p> 3 .")
    expect("the graph", run("-H", "Accept: application/n-triples", where).count("\n"), 3)
    insert, delete = (f"{verb} DATA {{ GRAPH <urn:curl> {{ <urn:c:s> <urn:c:p> {n} }} }}" for verb, n in CURL_UPDATES)
    run("-H", "Content-Type: application/sparql-update", "-d", insert, f"{base}/statements")
    run("--data-urlencode", f"update={delete}", f"{base}/statements")
    select = "query=SELECT ?o FROM <urn:curl> { ?s ?p ?o } ORDER BY ?o"
    rows = run("-G", "-H", "Accept: text/csv", "--data-urlencode", select, base).split()
    expect("a query", rows, ["o", "2", "3", "4"])
    expect("the size", run(f"{base}/size?context=%3Curn:curl%3E"), "3")
    run("-X", "DELETE", where)
    expect("at the end", run(f"{base}/size?context=%3Curn:curl%3E"), "0")


ClientCheck = Callable[[str, str], None]
"""Takes a master's URL and the repository's id, and raises what went wrong, or :class:`ClientUnavailable`."""

CLIENTS: dict[str, ClientCheck] = {
    "rdflib SPARQLUpdateStore": rdflib_update_store,
    "rdflib RDF4JClient": rdflib_rdf4j_client,
    "rdflib RDF4JStore": rdflib_rdf4j_store,
    "SPARQLWrapper": sparql_wrapper,
    "rdf4j-python": rdf4j_python,
    "curl": curl,
}


def rdf4j_java(url: str, repository: str, *, newer: bool = False) -> None:
    """RDF4J's own HTTPRepository: binary and text forms, and a transaction at each isolation level that it knows; and
    its manager of repositories. ``newer``: RDF4J 5.2 instead of 4.1."""
    from e2e.conformance.rdf4j.java_client import run_java_client
    from txlog.local.local_errors import CannotRun

    try:
        expect("checks", run_java_client(f"{url}/rdf4j-server", repository, newer=newer) > 100, True)
    except CannotRun as why:
        raise ClientUnavailable(str(why)) from None


def graphdb_js(url: str, repository: str) -> None:
    """GraphDB's JavaScript client: statements, uploads, queries, namespaces, a transaction at each isolation level."""
    from e2e.conformance.graphdb_js.js_client import run_js_client
    from txlog.local.local_errors import CannotRun

    try:
        expect("checks", run_js_client(url, repository) > 40, True)
    except CannotRun as why:
        raise ClientUnavailable(str(why)) from None


ALL_CLIENTS: dict[str, ClientCheck] = {
    **CLIENTS,
    "RDF4J 4.1 HTTPRepository (Java)": rdf4j_java,
    "RDF4J 5.2 HTTPRepository (Java)": partial(rdf4j_java, newer=True),
    "graphdb.js": graphdb_js,
}
"""``make test-clients`` has those, too, that are fetched and take long."""


def run_all(url: str, repository: str, clients: Mapping[str, ClientCheck], where: str = "") -> dict[str, str]:
    """The verdict on every client, one after the other, by its name and ``where``; what went wrong is on stderr in
    full."""
    told: dict[str, str] = {}
    for name, client in clients.items():
        shown = f"{name} at {where}" if where else name
        try:
            client(url, repository)
            told[shown] = "passed"
        except ClientUnavailable as why:
            told[shown] = f"skipped: {why}"
        except Exception as wrong:  # noqa: BLE001 - whatever a client raises is its verdict
            traceback.print_exc(file=sys.stderr)
            told[shown] = f"failed: {type(wrong).__name__}: {str(wrong)[:300]}"
        print(f"{shown}: {told[shown]}", flush=True)
    return told


def summary(told: Mapping[str, str]) -> dict[str, Any]:
    """What the last line says."""
    counts = {word: sum(one.startswith(word) for one in told.values()) for word in ("passed", "failed", "skipped")}
    return {"clients": dict(told), **counts}


def exit_code(counts: Mapping[str, Any], *, skips_are_fine: bool) -> int:
    """0 when every client was run and passed."""
    return 1 if counts["failed"] or (counts["skipped"] and not skips_are_fine) or not counts["passed"] else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="a running master; without it a cluster is started and removed again")
    parser.add_argument("--repository", default="catalogue")
    parser.add_argument("--state", type=Path, default=Path(".txlog-clients"))
    parser.add_argument("--allow-skipped", action="store_true", help="exit with 0 although clients are not here")
    given = parser.parse_args()
    if given.url:
        told = run_all(given.url, given.repository, ALL_CLIENTS)
    else:
        from e2e.lib.cluster.local import READY_S, cluster_up

        told = {}
        with cluster_up(given.state) as cluster:
            cluster.wait_applying(READY_S)
            for data_center in cluster.topology.data_centers:
                told |= run_all(cluster.master_of(data_center), cluster.repository, ALL_CLIENTS, data_center)
    counts = summary(told)
    print(json.dumps(counts))
    return exit_code(counts, skips_are_fine=given.allow_skipped)


if __name__ == "__main__":
    sys.exit(main())
