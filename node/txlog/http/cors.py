"""Cross-origin requests (CORS): which web pages of other origins may use the repository from a browser.

Only origins that the configuration names, and only RDF4J's and SPARQL's paths: administration is not for pages of other
sites. Answers never permit credentials of the browser itself. A page sends its own ``Authorization``, so that a
page cannot use what the browser remembers. Source: WHATWG Fetch, section 3.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from aiohttp import web

_PATHS: Final = ("/repositories", "/protocol", "/rdf4j-server/")
_EXPOSED: Final = (
    "Content-Disposition, Location, Retry-After, TxLog-Durability, TxLog-Error, TxLog-Literals, TxLog-Position, "
    "TxLog-Synchronous, TxLog-Transaction, TxLog-Worker"
)
"""Headers of an answer that a page may read, besides those that every page may."""
_METHODS: Final = "GET, HEAD, POST, PUT, DELETE"
_REQUEST_HEADERS: Final = (
    "accept, authorization, content-encoding, content-type, idempotency-key, prefer, txlog-authorization, "
    "txlog-durability, txlog-min-position, txlog-synchronous, txlog-updates-without-graph, x-requested-with"
)
PREFLIGHT_AGE_S: Final = 600
"""Seconds for which a browser may remember the answer to a preflight request."""
_KEY: Final = web.RequestKey("cors", dict[str, str])


class CorsPolicy:
    """``origins``: as ``scheme://host`` or ``scheme://host:port``. Without any, no page of another origin may do
    anything."""

    def __init__(self, origins: Iterable[str]) -> None:
        self._origins = frozenset(origin.lower() for origin in origins)

    def admit(self, request: web.BaseRequest, path: str) -> bool:
        """Whether the request comes from a page of an allowed origin. From then on :func:`cors_headers` of the request
        has the headers of its answer."""
        if not self._origins or not path.startswith(_PATHS):
            return False
        origin = request.headers.get("Origin", "")
        admitted = origin.lower() in self._origins
        headers = {"Vary": "Origin"}
        if admitted:
            headers |= {"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": _EXPOSED}
        request[_KEY] = headers
        return admitted


def cors_headers(request: web.BaseRequest) -> Mapping[str, str]:
    """The headers that the answer to this request needs for browsers; none for most requests."""
    found: Mapping[str, str] = request.get(_KEY, {})
    return found


def is_admitted_origin(request: web.BaseRequest) -> bool:
    """Whether :meth:`CorsPolicy.admit` has admitted the request."""
    return "Access-Control-Allow-Origin" in cors_headers(request)


def add_cors_headers(request: web.BaseRequest, headers: Mapping[str, str]) -> dict[str, str]:
    """These headers and those for browsers."""
    merged = dict(headers)
    for name, value in cors_headers(request).items():
        merged[name] = f"{merged[name]}, {value}" if name in merged else value
    return merged


def is_preflight(request: web.BaseRequest) -> bool:
    """Whether a browser asks whether it may send a request."""
    return request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers


def preflight_response(request: web.BaseRequest) -> web.Response:
    """The answer to an admitted preflight request. It needs no credentials, because a browser sends none."""
    headers = {
        "Access-Control-Allow-Methods": _METHODS,
        "Access-Control-Allow-Headers": _REQUEST_HEADERS,
        "Access-Control-Max-Age": str(PREFLIGHT_AGE_S),
    }
    return web.Response(status=204, headers=add_cors_headers(request, headers))
