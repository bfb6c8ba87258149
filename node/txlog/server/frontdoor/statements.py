"""``PUT`` and ``DELETE`` on ``/repositories/{id}/statements``, and single graphs: RDF4J's ``rdf-graphs`` and the W3C
Graph Store Protocol. Each request is one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from txlog.http.router import Request, Response, Route, own_url
from txlog.model.errors import BadInput
from txlog.model.hashes import content_hash
from txlog.protocol.events import Submission
from txlog.runtime.master_context import MasterContext
from txlog.server.frontdoor.read_handler import ReadHandler
from txlog.server.frontdoor.request_parameters import (
    context_parameters,
    parse_graph_iri,
    pattern_terms,
    read_write_options,
    repository_routes,
)
from txlog.server.frontdoor.write_handler import WriteHandler
from txlog.sparql import TransactionBody, concatenate, delete_matching, drop_graphs


class StatementHandler:
    """``writes`` submits transactions, ``reads`` queries the workers."""

    def __init__(self, site: MasterContext, writes: WriteHandler, reads: ReadHandler) -> None:
        self._site = site
        self._literals = site.literals
        self._writes = writes
        self._reads = reads

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        graph = {"GET": self.get, "PUT": self.put, "POST": self.post, "DELETE": self.delete}
        return [
            *repository_routes("/statements", PUT=self.replace, DELETE=self.remove),
            *repository_routes("/rdf-graphs/service", **graph),
            *repository_routes("/rdf-graphs/{graph}", **graph),
        ]

    async def _submit(self, request: Request, prepared: TransactionBody) -> Response:
        asked = read_write_options(self._site, request)
        content = content_hash(prepared.kind, asked.key, prepared.payload)
        return await self._writes.write(Submission(prepared.kind, asked.key, prepared.payload, content), asked)

    # Statements

    async def replace(self, request: Request, names: Mapping[str, str]) -> Response:
        """Replaces the content of the contexts (without contexts: everything) with the body."""
        graphs = context_parameters(request)
        added = await self._writes.read_upload(request, graphs or [])
        return await self._submit(request, concatenate([drop_graphs(graphs), added]))

    async def remove(self, request: Request, names: Mapping[str, str]) -> Response:
        """Deletes what matches subj, pred, obj and context; without any of them, everything."""
        subject, predicate, value = pattern_terms(request, as_written=self._literals.keeps)
        return await self._submit(request, delete_matching(subject, predicate, value, context_parameters(request)))

    # Graphs

    async def get(self, request: Request, names: Mapping[str, str]) -> Response:
        """Answers the statements of a graph."""
        return await self._reads.single_graph(request, self._graph_parameter(request, names))

    async def put(self, request: Request, names: Mapping[str, str]) -> Response:
        """Replaces the content of a graph with the body."""
        graph = self._graph_parameter(request, names)
        added = await self._writes.read_upload(request, [graph])
        return await self._submit(request, concatenate([drop_graphs([graph]), added]))

    async def post(self, request: Request, names: Mapping[str, str]) -> Response:
        """Adds the body to a graph."""
        graph = self._graph_parameter(request, names)
        return await self._submit(request, await self._writes.read_upload(request, [graph]))

    async def delete(self, request: Request, names: Mapping[str, str]) -> Response:
        """Deletes all statements of a graph."""
        return await self._submit(request, drop_graphs([self._graph_parameter(request, names)]))

    def _graph_parameter(self, request: Request, names: Mapping[str, str]) -> str:
        """The graph as ``<iri>``, "" for the default graph: the service's parameter, else the URL itself."""
        if "graph" in names:
            if request.query:
                raise BadInput("No parameters are allowed with a graph's own URL; use rdf-graphs/service?graph=")
            return f"<{parse_graph_iri(own_url(request), 'graph')}>"
        named: Sequence[str] = request.query.getall("graph", [])
        if ("default" in request.query) == bool(named) or len(named) > 1:
            raise BadInput("Missing parameter: one of ?default and ?graph=IRI says which graph")
        return f"<{parse_graph_iri(named[0], 'graph')}>" if named else ""
