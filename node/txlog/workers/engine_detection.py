"""Which engine answers at a URL? Two reading requests at most, and nothing is written."""

from __future__ import annotations

from txlog.config.units import Engine
from txlog.workers.adapter import Transport, WorkerRequest

_ASK = WorkerRequest("GET", "/query?query=ASK%7B%7D", {"Accept": "application/sparql-results+json"})
_SIZE = WorkerRequest("GET", "/size", {"Accept": "text/plain"})
_FUSEKI = "fuseki-request-id"
_COUNT_DIGITS = 20


def detect(transport: Transport) -> Engine | None:
    """None for what is none of the engines that can be workers, or does not say so: behind a proxy that drops headers.
    Raises :class:`~txlog.workers.adapter.Unreachable`."""
    answer = transport.send(_ASK)
    if answer.headers.get("server", "").lower().startswith("oxigraph/"):
        return "oxigraph"
    if _FUSEKI in answer.headers:
        return "fuseki" if answer.ok else None  # else the URL of the server, not of a data set
    size = transport.send(_SIZE)
    text = size.body[: _COUNT_DIGITS + 1].strip()
    return "rdf4j" if size.status == 200 and text.isdigit() and len(text) <= _COUNT_DIGITS else None
