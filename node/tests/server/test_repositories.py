"""A cluster has one repository: who makes it is told that it is there, and nobody makes or removes one."""

from __future__ import annotations

import asyncio

import pyoxigraph as ox
import pytest
from rdflib.contrib.rdf4j import RDF4JClient
from rdflib.contrib.rdf4j.exceptions import RepositoryAlreadyExistsError
from test_blank_nodes import asked
from worker_driver import Served

REP = "http://www.openrdf.org/config/repository#"
TURTLE = "text/turtle"
CONFIG = f'@prefix rep: <{REP}> . [] a rep:Repository ; rep:repositoryID "demo" .'


@pytest.mark.parametrize("prefix", ["", "/rdf4j-server"])
@pytest.mark.parametrize(
    ("method", "path", "body", "status", "reason", "says"),
    [
        ("PUT", "/demo", CONFIG, 409, None, "REPOSITORY EXISTS: "),
        ("PUT", "/demo", "nonsense", 409, None, "REPOSITORY EXISTS: "),
        ("PUT", "/other", CONFIG, 405, "OneRepository", "one repository, demo, which its manifest names: other"),
        ("DELETE", "/demo", "", 405, "OneRepository", "cannot be removed"),
        ("DELETE", "/demo?query=ASK%7B%7D", "", 400, None, "query supplied"),
        ("DELETE", "/other", "", 404, None, "unknown repository other"),
        ("POST", "/demo/config", CONFIG, 405, "OneRepository", "/txlog/configuration"),
        ("POST", "/other/config", CONFIG, 404, None, "unknown repository other"),
        ("GET", "/other/config", "", 404, None, "unknown repository other"),
        ("PUT", "/demo", "x" * ((1 << 20) + 1), 413, None, "1048576"),
    ],
)
async def test_none_is_made_removed_or_configured(
    served: Served, prefix: str, method: str, path: str, body: str, status: int, reason: str | None, says: str
) -> None:
    await served.send("POST", "/statements", '<urn:s> <urn:p> "1" .', Content_Type=TURTLE)
    url = served.cluster.url(0, f"{prefix}/repositories{path}")
    headers = {"Content-Type": TURTLE}
    async with served.cluster.session.request(method, url, data=body.encode(), headers=headers) as answer:
        text = await answer.text()
        assert (answer.status, answer.headers.get("TxLog-Error")) == (status, reason), text
        assert says in text
        assert ("Allow" in answer.headers) == (status == 405)
    assert await served.send("GET", "/size", status=200) == "1"


async def test_its_configuration_leads_to_it(served: Served) -> None:
    forms = {"": ox.RdfFormat.TURTLE, TURTLE: ox.RdfFormat.TURTLE, "application/rdf+xml": ox.RdfFormat.RDF_XML}
    here = served.cluster.url(0, "/repositories/demo")
    for media, form in forms.items():
        status, headers, body = await asked(served, "GET", "/config", **({"Accept": media} if media else {}))
        assert (status, headers["Content-Type"].partition(";")[0]) == (200, media or TURTLE)
        found = {(quad.predicate.value.rpartition("#")[2], quad.object.value) for quad in ox.parse(body, form)
                 if not isinstance(quad.object, ox.BlankNode | ox.Triple)}  # fmt: skip
        assert found == {
            ("type", f"{REP}Repository"),
            ("repositoryID", "demo"),
            ("label", "TxLog cluster demo"),
            ("repositoryType", "openrdf:HTTPRepository"),
            ("repositoryURL", here),
        }
    status, _, _ = await asked(served, "GET", "/config", Accept="image/png")
    assert status == 406
    status, _, body = await asked(served, "HEAD", "/config")
    assert (status, body) == (200, b"")


async def test_a_client_that_makes_what_is_missing_goes_on(served: Served) -> None:
    def make() -> None:
        with RDF4JClient(served.cluster.url(0, "/rdf4j-server")) as client:
            with pytest.raises(RepositoryAlreadyExistsError):
                client.repositories.create("demo", CONFIG)
            assert client.repositories.get("demo").size() == 0

    await asyncio.to_thread(make)
