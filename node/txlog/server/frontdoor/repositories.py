"""Repositories as objects: a cluster has the one that its manifest names, so the HTTP API neither creates nor deletes
any. Their health is reported as GraphDB's clients and load balancers expect it.

A client that creates its repository if it is missing gets the answer that it exists, as from RDF4J, and continues.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Final, NoReturn

import pyoxigraph as ox

from txlog.http.router import Request, Response, Route, bytes_response, json_response, own_url, read_body
from txlog.model.errors import BadInput, Conflict, OneRepository, Unavailable
from txlog.runtime.master_context import MasterContext
from txlog.server.frontdoor.read_router import ReadRouter
from txlog.server.frontdoor.request_parameters import repository_routes
from txlog.server.frontdoor.result_formats import PREFERRED_FORMATS, negotiate_format

BODY_BYTES_MAX: Final = 1 << 20
_REPOSITORY: Final = "http://www.openrdf.org/config/repository#"
_URL: Final = "http://www.openrdf.org/config/repository/http#repositoryURL"
_TYPE: Final = ox.NamedNode("http://www.w3.org/1999/02/22-rdf-syntax-ns#type")
_LABEL: Final = ox.NamedNode("http://www.w3.org/2000/01/rdf-schema#label")


class RepositoryHandler:
    """``PUT``, ``DELETE``, ``/config`` and ``/health`` of ``/repositories/{id}``. ``reads`` knows the workers that can
    answer."""

    def __init__(self, site: MasterContext, reads: ReadRouter) -> None:
        self._site = site
        self._reads = reads
        self._repository = site.repository

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [
            *repository_routes("", PUT=self.create, DELETE=self.remove),
            *repository_routes("/config", GET=self.config, POST=self.change),
            *repository_routes("/health", GET=self.health),
        ]

    async def health(self, request: Request, names: Mapping[str, str]) -> Response:
        """``green`` if this master answers reads and takes writes, ``yellow`` if only one of both, else ``red``."""
        components = {"read-availability": self._can_read(), "write-availability": self._site.is_ready}
        good = sum(components.values())
        status, code = (("red", 503), ("yellow", 206), ("green", 200))[good]
        found = {
            "name": self._repository,
            "status": status,
            "components": [{"name": name, "status": "green" if works else "red"} for name, works in components.items()],
        }
        return json_response(found, code, {"Retry-After": "1"} if code == 503 else {})

    def _can_read(self) -> bool:
        """A worker that gave its pipeline no answer is asked all the same, and promises none."""
        try:
            return any(one.worker.state != "Unreachable" for one in self._reads.readable_workers())
        except Unavailable:
            return False

    async def create(self, request: Request, names: Mapping[str, str]) -> Response:
        """:class:`Conflict`, in the protocol's wording; the body is not examined."""
        await read_body(request, BODY_BYTES_MAX)
        raise Conflict(f"REPOSITORY EXISTS: repository already exists: {self._repository}")

    async def remove(self, request: Request, names: Mapping[str, str]) -> Response:
        """Refuses to delete the repository."""
        refuse_deletion_with_query(request)
        self._refuse("it cannot be removed; DELETE its /statements to empty it", "GET, HEAD, POST")

    async def change(self, request: Request, names: Mapping[str, str]) -> Response:
        """Refuses to change its configuration."""
        await read_body(request, BODY_BYTES_MAX)
        self._refuse("its configuration is the cluster's, at /txlog/configuration", "GET, HEAD")

    def _refuse(self, why: str, allow: str) -> NoReturn:
        message = f"this cluster has one repository, {self._repository}, which its manifest names: {why}"
        raise OneRepository(message, allow)

    async def config(self, request: Request, names: Mapping[str, str]) -> Response:
        """The configuration with which an RDF4J server or manager reaches the repository: as an HTTP repository."""
        form = negotiate_format(request, PREFERRED_FORMATS)
        here = own_url(request)
        one, way = ox.NamedNode(f"{here}#{self._repository}"), ox.BlankNode()
        out = io.BytesIO()
        form.write(
            [
                ox.Quad(one, _TYPE, ox.NamedNode(f"{_REPOSITORY}Repository")),
                ox.Quad(one, ox.NamedNode(f"{_REPOSITORY}repositoryID"), ox.Literal(self._repository)),
                ox.Quad(one, _LABEL, ox.Literal(f"TxLog cluster {self._repository}")),
                ox.Quad(one, ox.NamedNode(f"{_REPOSITORY}repositoryImpl"), way),
                ox.Quad(way, ox.NamedNode(f"{_REPOSITORY}repositoryType"), ox.Literal("openrdf:HTTPRepository")),
                ox.Quad(way, ox.NamedNode(_URL), ox.NamedNode(here.removesuffix("/config"))),
            ],
            out,
        )
        return bytes_response(out.getvalue(), form.media_type)


def refuse_deletion_with_query(request: Request) -> None:
    """:class:`BadInput`, in the protocol's wording, for a deletion that has a query."""
    if "query" in request.query:
        raise BadInput("Repository delete error: query supplied with request")
