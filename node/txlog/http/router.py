"""The HTTP parts that all listeners share: routes, bodies within their limit, errors as answers.

There is no ``web.Application``. A :class:`RouteLookup` finds the table of a path (:mod:`.route_table`). Between the
parser and a handler there is only :meth:`Router.handle`, which turns errors into answers. An answer never has a stack
trace.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from io import BytesIO
from typing import Any, TypeVar

import msgspec
from aiohttp import ClientConnectionError, StreamReader, web
from aiohttp.helpers import rfc822_formatted_time
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_exceptions import HTTPException

from txlog.auth import Role, Scope, is_cross_site
from txlog.auth.authenticator import Authenticator
from txlog.http.body_compression import DecodedBody, compress_answer, request_coding
from txlog.http.cors import CorsPolicy, add_cors_headers, cors_headers, is_preflight, preflight_response
from txlog.http.route_table import (
    NO_PARAMETERS,
    Handler,
    Request,
    Response,
    Route,
    RouteLookup,
    RouteTable,
    authorization_header,
    with_roles,
)
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.errors import (
    BadInput,
    BodyStalled,
    Forbidden,
    NotFound,
    OneRepository,
    PeerFault,
    TooLarge,
    TxLogError,
    Unauthorized,
    Unavailable,
    UnsupportedCoding,
)
from txlog.model.ids import Txid, parse_txid
from txlog.runtime.interactive_load import InteractiveLoad
from txlog.telemetry.event_log import EventLog

__all__ = ["Handler", "Request", "Response", "Route", "RouteLookup", "RouteTable", "Router", "with_roles"]
encode_json = msgspec.json.Encoder().encode
T = TypeVar("T")

API_VERSION = "1.4"
"""Version of the API below ``/txlog``, as in ``/txlog/openapi.json``. The first number changes when something that
clients rely on goes away."""
API_HEADER = "TxLog-API-Version"
LONG_BODY_BYTES = 1 << 20
"""Minimum size of a long body, in bytes. It is read with pauses while there is interactive load."""
LONG_BODIES_BYTES_MAX = 256 << 20
"""Bytes of all long bodies that are read at a time. Their clients decide how long they stay in the memory."""
BODY_YIELD_S = 0.002
"""Seconds for which other requests get the loop and the processors after each piece of a long body."""
BODY_IDLE_S = 60.0
"""Seconds for which nothing of a body may come. Its reader may hold what others wait for, such as a transaction."""
_ALL_METHODS = frozenset(("GET", "POST", "PUT", "PATCH", "DELETE"))
_REPOSITORY_PATHS = ("/repositories", "/rdf4j-server/repositories")
"""Only answers below these may be compressed (:mod:`.body_compression`)."""
_ABSOLUTE_FORM = re.compile(r"https?://[^/?#]+", re.IGNORECASE)
_HOST = re.compile(r"(?:[A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?")
PORT_MAX = 65535
_TXID_LINE = re.compile(rb"^TxLog-Transaction: (\S+)\r$", re.MULTILINE)
_REASONS = {200: "OK", 202: "Accepted", 204: "No Content", 409: "Conflict", 504: "Gateway Timeout"}


class RawResponse(web.StreamResponse):
    """An answer whose bytes are ready: one write, no header map. For frequent paths."""

    def __init__(self, status: int, headers: bytes, body: bytes = b"") -> None:
        # The parent's fields are unused; the members that aiohttp uses of an answer are below.
        self._status_line = b"HTTP/1.1 %d %s\r\n" % (status, _REASONS[status].encode())
        self._headers_bytes = headers
        self._body_bytes = body
        self._kept = False
        self._code = status

    @property
    def keep_alive(self) -> bool:
        """Whether the connection stays open after this answer; set by :meth:`prepare`."""
        return self._kept

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self._code

    @property
    def txid(self) -> Txid | None:
        """The transaction that the answer is about; None for another answer."""
        found = _TXID_LINE.search(self._headers_bytes)
        return None if found is None else parse_txid(found[1].decode())

    def as_status(self, status: int) -> RawResponse:
        """The same answer with another status."""
        return RawResponse(status, self._headers_bytes, self._body_bytes)

    def add_headers(self, headers: Mapping[str, str]) -> None:
        """Adds headers to an answer that is not sent yet."""
        self._headers_bytes += b"".join(b"%s: %s\r\n" % (n.encode(), text.encode()) for n, text in headers.items())

    async def prepare(self, request: Request) -> Any:
        """Writes the whole answer. ``ConnectionResetError`` if the client has disconnected."""
        transport = request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client is gone")
        self._kept = request.keep_alive
        transport.write(self.encode(self._kept))

    def encode(self, keep_alive: bool) -> bytes:
        """The whole answer, as sent over the wire."""
        length = b"" if self._code == 204 else b"Content-Length: %d\r\n" % len(self._body_bytes)
        return b"".join(
            (
                self._status_line,
                self._headers_bytes,
                length,
                b"Date: %s\r\n" % rfc822_formatted_time().encode(),
                b"\r\n" if keep_alive else b"Connection: close\r\n\r\n",
                self._body_bytes,
            )
        )

    async def write_eof(self, data: bytes = b"") -> None:
        """Does nothing: :meth:`prepare` has written everything."""
        return

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__


class ConnectionUpgraded(RawResponse):
    """The answer of a handler whose connection now uses another protocol: nothing is left to write."""

    def __init__(self) -> None:
        super().__init__(204, b"")

    async def prepare(self, request: Request) -> Any:
        """Raises :class:`ConnectionResetError`, since the connection no longer carries HTTP answers."""
        raise ConnectionResetError("the connection was taken over")


def encode_response(answer: Response) -> bytes:
    """The bytes of a complete answer, for a connection that stays open and has no aiohttp request."""
    if isinstance(answer, RawResponse):
        return answer.encode(True)
    assert isinstance(answer, web.Response)
    body = answer.body if isinstance(answer.body, bytes) else b""
    headers = b"".join(b"%s: %s\r\n" % (name.encode(), text.encode()) for name, text in answer.headers.items())
    status = b"HTTP/1.1 %d %s\r\n" % (answer.status, answer.reason.encode())
    return b"%s%sContent-Length: %d\r\nDate: %s\r\n\r\n%s" % (
        *(status, headers, len(body), rfc822_formatted_time().encode(), body),
    )


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] = NO_PARAMETERS) -> Response:
    """An answer with this value as JSON."""
    return web.Response(
        status=status, body=encode_json(value) + b"\n", content_type="application/json", headers=dict(headers)
    )


def bytes_response(body: bytes, content_type: str) -> Response:
    """An answer with these bytes."""
    return web.Response(body=body, content_type=content_type)


def text_response(text: str, status: int = 200, headers: Mapping[str, str] = NO_PARAMETERS) -> Response:
    """An answer with this text. What a client has sent outside UTF-8 is shown as question marks."""
    return web.Response(
        status=status,
        body=text.encode("utf-8", "replace"),
        content_type="text/plain",
        charset="utf-8",
        headers=dict(headers),
    )


def error_response(error: TxLogError, *, plain: bool) -> Response:
    """The answer for an error. ``plain``: RDF4J's way, a line of text; otherwise JSON
    ``{"error","reason","message"}``."""
    headers: dict[str, str] = {}
    reason = str(getattr(error, "reason", ""))
    if isinstance(error, Unavailable):
        headers["Retry-After"] = str(error.retry_after_s)
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = 'Basic realm="TxLog", charset="UTF-8"'
    if isinstance(error, UnsupportedCoding):
        headers["Accept-Encoding"] = error.supported
    if isinstance(error, OneRepository):
        headers["Allow"] = error.allow
    if reason:
        headers["TxLog-Error"] = reason
    if isinstance(error, BodyStalled):
        headers["Connection"] = "close"
    if plain:
        return text_response(f"{error}\n", error.status, headers)
    name = "Refused" if type(error).__name__.startswith("Log") else error.name
    message = str(error).encode("utf-8", "replace").decode()
    return json_response({"error": name, "reason": reason, "message": message}, error.status, headers)


class Router:
    """All routes, and the code between the parser and their handlers. ``tables`` finds the routes of a path. ``guard``
    authenticates who asks for a path that does not exist; handlers authenticate by :func:`with_roles`. ``closed``: why
    only these routes exist now, so that a client retries or goes to another master; without it an unknown path is 404.
    ``company`` counts each client request except long ones as interactive load. ``cors_origins``: pages of these
    origins may use the repository."""

    def __init__(
        self,
        tables: RouteLookup,
        log: EventLog,
        guard: Authenticator | None = None,
        closed: Callable[[], Unavailable] | None = None,
        company: InteractiveLoad | None = None,
        cors_origins: Iterable[str] = (),
    ) -> None:
        self._cors = CorsPolicy(cors_origins)
        self._tables = tables
        self._log = log
        self._authenticator = guard
        self._unavailable = closed
        self._interactive_load = company

    @property
    def routes(self) -> list[Route]:
        """Every route, with the whole path."""
        return self._tables.routes

    async def handle(self, request: Request) -> Response:
        """Dispatches a request to its handler; an error becomes an answer."""
        path = target_path(request)
        if self._interactive_load is not None and not _is_admin_path(path) and not _has_long_body(request):
            self._interactive_load.note_request()
        admitted = self._cors.admit(request, path)
        if admitted and is_preflight(request):
            return preflight_response(request)
        answer = await self._respond(request, path, is_trusted=admitted)
        if path.startswith(_REPOSITORY_PATHS):
            await compress_answer(request, answer)
        if cors_headers(request):
            _add_cors_headers(request, answer)
        # A streamed answer has sent the header itself; an answer with ready bytes has no map of headers.
        if _is_admin_path(path) and not answer.prepared and not isinstance(answer, RawResponse):
            answer.headers[API_HEADER] = API_VERSION
        return answer

    async def _respond(self, request: Request, path: str, *, is_trusted: bool) -> Response:
        try:
            if not is_trusted:
                _reject_cross_site(request)
            table, rest, names = self._tables.find(path)
            handler = table.exact.get((request.method, rest))
            if handler is not None:
                return await handler(request, names)
            return await self._dispatch_by_pattern(request, table, rest, names, path)
        except TxLogError as error:
            return error_response(error, plain=not _is_admin_path(path))
        except (web.RequestPayloadError, HttpProcessingError) as broken:
            return error_response(
                BadInput(f"the request's body cannot be read: {broken}"), plain=not _is_admin_path(path)
            )
        except (ConnectionError, ClientConnectionError) as gone:
            raise ConnectionResetError("the client is gone") from gone
        except HTTPException:
            raise
        except Exception as wrong:  # noqa: BLE001 - a bug in the handling of one request ends that request only
            self._log.error("InternalError", method=request.method, path=path[:200], error=repr(wrong)[:1000])
            mistake = TxLogError("this master made a mistake with this request; its log says which")
            return error_response(mistake, plain=not _is_admin_path(path))

    async def _dispatch_by_pattern(
        self, request: Request, table: RouteTable, rest: str, names: Mapping[str, str], path: str
    ) -> Response:
        handler, found, allowed = table.match(request.method, rest)
        if handler is not None:
            return await handler(request, {**names, **found})
        if self._authenticator is not None:  # an unknown client must not learn which paths exist
            await self._authenticator.authorize(authorization_header(request), Role.READER, Scope.ANY_REPOSITORY)
        if allowed or path == "*":
            return _methods_response(request.method, allowed or _ALL_METHODS)
        if self._unavailable is not None:
            raise self._unavailable()
        raise NotFound(f"there is nothing at {path[:200]}")


def _methods_response(method: str, allowed: AbstractSet[str]) -> Response:
    """The answer to OPTIONS, and to a method that there is not: which methods there are."""
    heads = {"HEAD"} if "GET" in allowed else set()
    methods = ", ".join(sorted(allowed | heads | {"OPTIONS"}))
    if method == "OPTIONS":
        return web.Response(headers={"Allow": methods})
    return text_response(f"{method} is not possible here; use {methods}\n", 405, {"Allow": methods})


def _add_cors_headers(request: Request, answer: Response) -> None:
    if isinstance(answer, RawResponse):
        answer.add_headers(cors_headers(request))
    elif not answer.prepared:
        answer.headers.update(add_cors_headers(request, answer.headers))


def target_path(request: Request) -> str:
    """The raw path of the request's target. A client that thinks of a proxy sends the target in absolute form, which a
    server must accept, too (RFC 9112, section 3.2.2)."""
    path = request.raw_path.partition("?")[0]
    if not path.startswith("/") and (absolute := _ABSOLUTE_FORM.match(path)):
        return path[absolute.end() :] or "/"
    return path


def own_url(request: Request) -> str:
    """The URL of the request without its query, with the host as its client names it. :class:`BadInput` without one,
    which only HTTP/1.0 permits, and for what is no host."""
    host = request.headers.get("Host", "")
    found = _HOST.fullmatch(host)
    if found is None or int(found[1] or 0) > PORT_MAX:
        raise BadInput(f"Host: {host[:80]!r}: expected a name or an address, and perhaps a port")
    return str(request.url.with_query(None))


def _reject_cross_site(request: Request) -> None:
    headers = request.headers
    site = headers.get("Sec-Fetch-Site")
    if is_cross_site(request.method, headers.get("Host"), headers.get("Origin"), site):
        raise Forbidden("a page of another web site made a browser send this; nothing of it was carried out")


def _has_long_body(request: Request) -> bool:
    length = request.content_length
    return "Transfer-Encoding" in request.headers if length is None else length >= LONG_BODY_BYTES


def _is_admin_path(path: str) -> bool:
    return path.startswith("/txlog/")


async def send_continue(request: Request) -> None:
    """Asks for the body of a client that waits for that (``Expect: 100-continue``)."""
    if "Expect" in request.headers and request.headers["Expect"].lower() == "100-continue":
        transport = request.transport
        if transport is not None and not request.content.is_eof():
            transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")


async def read_json(request: Request, kind: type[T], expected: str, bytes_max: int) -> T:
    """The body as this type. :class:`BadInput` for another one: ``expected`` says what it should be. Else as
    :func:`read_body`."""
    body = await read_body(request, bytes_max)
    try:
        return msgspec.json.decode(body, type=kind)
    except DECODE_ERRORS as wrong:
        raise BadInput(f"{expected}: {wrong}") from None


async def read_body(request: Request, bytes_max: int, company: InteractiveLoad | None = None) -> bytes:
    """The whole body, decompressed. :class:`TooLarge` as soon as it is known to exceed ``bytes_max``, compressed or
    decompressed. A long body yields to ``company``."""
    coding = request_coding(request) if "Content-Encoding" in request.headers else ""
    length = request.content_length
    if length is not None and length > bytes_max:
        raise _too_large(bytes_max)
    await send_continue(request)
    content = request.content if not coding else DecodedBody(request, coding)
    body = await _read_piece(request, content)
    if len(body) > bytes_max:
        raise _too_large(bytes_max)
    if content.at_eof():
        return body
    whole = BytesIO()  # grows without copies: a join of megabytes would delay every other request
    size, counted = whole.write(body), 0
    try:
        while piece := await _read_piece(request, content):
            size += whole.write(piece)
            if size > bytes_max:
                raise _too_large(bytes_max)
            if size >= LONG_BODY_BYTES:
                long_bodies.add(size - counted)
                counted = size
                if company is not None:
                    await company.throttle(BODY_YIELD_S)
        return whole.getvalue()
    finally:
        long_bodies.size -= counted


async def _read_piece(request: Request, content: StreamReader | DecodedBody) -> bytes:
    if request.content.is_eof():
        return await content.readany()
    try:
        async with asyncio.timeout(BODY_IDLE_S):
            return await content.readany()
    except TimeoutError:
        raise BodyStalled(f"nothing of the rest of the body has come for {BODY_IDLE_S:g} s; send it again") from None


class LongBodies:
    """``size``: bytes of long bodies that are being read now."""

    def __init__(self) -> None:
        self.size = 0

    def add(self, count: int) -> None:
        """Counts more bytes. :class:`Unavailable` if they are too many."""
        if self.size + count > LONG_BODIES_BYTES_MAX:
            raise Unavailable(
                "BodiesFull", f"{self.size >> 20} MiB of long bodies are being read already; send it again"
            )
        self.size += count


long_bodies = LongBodies()
"""Those of this process."""


def _too_large(bytes_max: int) -> TooLarge:
    return TooLarge(f"a request body may have {bytes_max} bytes; send it in pieces, each is one transaction")


def int_parameter(query: Mapping[str, str], name: str, default: int, least: int = 0, most: int = 1 << 62) -> int:
    """An integer parameter; :class:`BadInput` names it."""
    text = query.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdecimal() or len(text) > 19 or not least <= int(text) <= most:
        raise BadInput(f"{name}={text[:40]}: a whole number from {least} to {most}")
    return int(text)


def seconds_parameter(text: str | None, name: str, default: float, most: float) -> float:
    """A duration in seconds; a value above ``most`` counts as ``most``."""
    if text is None:
        return default
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text):
        raise BadInput(f"{name}={text[:40]}: seconds, such as 5 or 0.5")
    return min(float(text), most)


def peer_fault_status(fault: PeerFault) -> int:
    """The HTTP status for a refused peer."""
    return 401 if fault.reason == "WrongToken" else fault.status
