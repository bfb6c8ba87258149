"""``PUT`` and ``DELETE`` on ``/repositories/{id}/statements``, and single graphs: RDF4J's ``rdf-graphs`` and the W3C
Graph Store Protocol. Each request is one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from txlog.model.errors import BadInput
from txlog.model.hashes import content_hash
from txlog.protocol.events import Submission
from txlog.runtime.asked import asked_of
from txlog.runtime.site import Site
from txlog.runtime.web import Request, Response, Route
from txlog.server.frontdoor.reads import Reads
from txlog.server.frontdoor.repository import check_repository, contexts_of, graph_iri, term_of, under
from txlog.server.frontdoor.writes import Writes
from txlog.sparql import Prepared, drop, join, remove


class Statements:
    """``writes`` hands transactions over, ``reads`` asks the workers."""

    def __init__(self, site: Site, writes: Writes, reads: Reads) -> None:
        self._repository = site.config.repository
        self._level = site.config.durability
        self._seconds = site.config.write_timeout_s
        self._writes = writes
        self._reads = reads

    def routes(self) -> list[Route]:
        graph = {"GET": self.get, "PUT": self.put, "POST": self.post, "DELETE": self.delete}
        return [
            *under("/statements", PUT=self.replace, DELETE=self.remove),
            *under("/rdf-graphs/service", **graph),
            *under("/rdf-graphs/{graph}", **graph),
        ]

    async def _write(self, request: Request, prepared: Prepared) -> Response:
        asked = asked_of(request, self._level, self._seconds)
        content = content_hash(prepared.kind, asked.key, prepared.payload)
        return await self._writes.write(Submission(prepared.kind, asked.key, prepared.payload, content), asked)

    # Statements

    async def replace(self, request: Request, names: Mapping[str, str]) -> Response:
        """What stands in the contexts (without any: everything) goes, the body comes."""
        check_repository(names, self._repository)
        graphs = contexts_of(request)
        added = await self._writes.rdf(request, graphs or [])
        return await self._write(request, join([drop(graphs), added]))

    async def remove(self, request: Request, names: Mapping[str, str]) -> Response:
        """What matches subj, pred, obj and context goes; without any of them, everything."""
        check_repository(names, self._repository)
        subject, predicate, value = (term_of(request, name) for name in ("subj", "pred", "obj"))
        return await self._write(request, remove(subject, predicate, value, contexts_of(request)))

    # Graphs

    async def get(self, request: Request, names: Mapping[str, str]) -> Response:
        return await self._reads.graph(request, self._graph(request, names))

    async def put(self, request: Request, names: Mapping[str, str]) -> Response:
        graph = self._graph(request, names)
        added = await self._writes.rdf(request, [graph])
        return await self._write(request, join([drop([graph]), added]))

    async def post(self, request: Request, names: Mapping[str, str]) -> Response:
        graph = self._graph(request, names)
        return await self._write(request, await self._writes.rdf(request, [graph]))

    async def delete(self, request: Request, names: Mapping[str, str]) -> Response:
        return await self._write(request, drop([self._graph(request, names)]))

    def _graph(self, request: Request, names: Mapping[str, str]) -> str:
        """``<iri>``, "" for the default graph: the parameter of the service, else the URL itself."""
        check_repository(names, self._repository)
        if "graph" in names:
            if request.query:
                raise BadInput("No parameters are allowed with a graph's own URL; use rdf-graphs/service?graph=")
            return f"<{graph_iri(str(request.url.with_query(None)), 'graph')}>"
        named: Sequence[str] = request.query.getall("graph", [])
        if ("default" in request.query) == bool(named) or len(named) > 1:
            raise BadInput("Missing parameter: one of ?default and ?graph=IRI says which graph")
        return f"<{graph_iri(named[0], 'graph')}>" if named else ""
