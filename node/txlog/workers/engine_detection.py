"""Detects the engine at a URL with at most two read requests; it writes nothing."""

from __future__ import annotations

from txlog.config.units import Engine
from txlog.workers.adapter import Transport, WorkerRequest

_ASK = WorkerRequest("GET", "/query?query=ASK%7B%7D", {"Accept": "application/sparql-results+json"})
_SIZE = WorkerRequest("GET", "/size", {"Accept": "text/plain"})
_FUSEKI = "fuseki-request-id"
_COUNT_DIGITS = 20


def detect(transport: Transport) -> Engine | None:
    """The engine. None when it is none of the engines that can be workers, or cannot be identified: for example when a
    proxy drops headers. Raises :class:`~txlog.workers.adapter.Unreachable`."""
    answer = transport.send(_ASK)
    if answer.headers.get("server", "").lower().startswith("oxigraph/"):
        return "oxigraph"
    if _FUSEKI in answer.headers:
        return "fuseki" if answer.ok else None  # else the URL of the server, not of a data set
    size = transport.send(_SIZE)
    text = size.body[: _COUNT_DIGITS + 1].strip()
    return "rdf4j" if size.status == 200 and text.isdigit() and len(text) <= _COUNT_DIGITS else None
