"""``CREATE`` of a graph that exists is an error, as in RDF4J: a store is asked before the update is logged.

In the log a ``CREATE`` is silent, so no worker can stop at it. A graph exists while it holds a quad.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from txlog.http.router import Request
from txlog.model.errors import WorkerFault
from txlog.server.frontdoor.read_router import ReadRouter, WorkerQuery
from txlog.sparql import existing_graph

_RESULTS_JSON = "application/sparql-results+json"


async def refuse_existing_graphs(router: ReadRouter, request: Request, graphs: Sequence[str]) -> None:
    """Raise ``Conflict`` where one of these graphs (``<iri>``) holds a quad in the store that answers.
    :class:`WorkerFault`: the store gives no answer to that."""
    for graph in graphs:
        query = WorkerQuery(f"ASK {{ GRAPH {graph} {{ ?s ?p ?o }} }}", _RESULTS_JSON, union=False)
        answer = await router.fetch(request, query)
        found = re.search(rb'"boolean"\s*:\s*(true|false)', answer.body)
        if answer.status != 200 or found is None:
            raise WorkerFault(f"the store answered {answer.status} to a look at {graph}: {answer.text[:200]}")
        if found[1] == b"true":
            raise existing_graph(graph)
