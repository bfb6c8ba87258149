"""The console of a master in a browser on this machine, through Kubernetes' API server.

A small web server on loopback passes each request to the proxy of the master's pod, with the credentials of the
kubeconfig and of TxLog. Who reaches this server has those rights. So its address holds a random part, which other
users of the machine and other web sites do not know. The page asks by relative addresses only, so it works below it.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import ssl
from collections.abc import Callable, Mapping
from typing import Final

import aiohttp
from aiohttp import web
from yarl import URL

from txlog.auth.csrf import is_cross_site

LOOPBACK: Final = "127.0.0.1"
SECRET_BYTES: Final = 16
CONNECT_TIMEOUT_S: Final = 10.0
SILENCE_MAX_S: Final = 60.0
"""Between two pieces of an answer. The live view writes every 15 s."""
UPLOAD_BYTES_MAX: Final = 1 << 30
HOP_HEADERS: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Those of one connection (RFC 9110, 7.6.1)."""
OWN_HEADERS: Final = HOP_HEADERS | {"host", "authorization", "cookie", "content-length", "origin", "referer"}
"""Not passed on with a request: the credentials are the plugin's. A master compares a page's origin with its own name,
which is another one here; this server has compared it with its own."""


class ConsoleForwarder:
    """Passes requests below its random path to ``target``, the URL of a master, with ``headers`` added. ``tls``: for an
    https target. :attr:`url` is the address of the page once :meth:`start` has returned."""

    def __init__(self, target: str, headers: Mapping[str, str], tls: ssl.SSLContext | None) -> None:
        self._target = target.rstrip("/")
        self._headers = dict(headers)
        self._tls: ssl.SSLContext | bool = tls if tls is not None else True
        self._secret = secrets.token_urlsafe(SECRET_BYTES)
        self._session: aiohttp.ClientSession | None = None
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self, port: int) -> None:
        """Listen on loopback; 0 chooses a free port. Raises ``OSError`` for a port in use."""
        app = web.Application(client_max_size=UPLOAD_BYTES_MAX)
        app.router.add_route("*", "/{secret}/{path:.*}", self._forward)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=SILENCE_MAX_S)
        self._session = aiohttp.ClientSession(timeout=timeout, auto_decompress=False)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, LOOPBACK, port)
        await site.start()
        bound = self._runner.addresses[0][1]
        self.url = f"http://{LOOPBACK}:{bound}/{self._secret}/console/"

    async def close(self) -> None:
        """Stop listening and end what is still being passed."""
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        if not hmac.compare_digest(request.match_info["secret"].encode(), self._secret.encode()):
            return web.Response(status=404, text="see the address that kubectl txlog console has printed\n")
        sent = request.headers
        if is_cross_site(request.method, sent.get("Host"), sent.get("Origin"), sent.get("Sec-Fetch-Site")):
            return web.Response(status=403, text="a page of another site asks\n")
        assert self._session is not None
        path = request.raw_path.partition(f"/{self._secret}/")[2]
        try:
            async with self._session.request(
                request.method,
                URL(f"{self._target}/{path}", encoded=True),
                headers=self._outgoing(request),
                data=request.content if request.body_exists else None,
                ssl=self._tls,
                allow_redirects=False,
                skip_auto_headers=("Accept-Encoding", "User-Agent"),  # an answer as the browser wants it
            ) as answer:
                return await _pass_on(request, answer)
        except (aiohttp.ClientError, TimeoutError) as failed:
            return web.Response(status=502, text=f"the master is not reached through the API server: {failed!r}\n")

    def _outgoing(self, request: web.Request) -> dict[str, str]:
        kept = {name: value for name, value in request.headers.items() if name.lower() not in OWN_HEADERS}
        length = {"Content-Length": str(request.content_length)} if request.content_length is not None else {}
        return kept | length | self._headers


async def _pass_on(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    """The answer, piece by piece as it arrives: the live view has no end."""
    headers = [(name, value) for name, value in answer.headers.items() if name.lower() not in HOP_HEADERS]
    response = web.StreamResponse(status=answer.status, reason=answer.reason)
    response.headers.extend(headers)
    await response.prepare(request)
    async for piece in answer.content.iter_any():
        await response.write(piece)
    await response.write_eof()
    return response


async def serve_console(forwarder: ConsoleForwarder, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve until the task is cancelled. ``on_ready`` receives the address of the page."""
    try:
        await forwarder.start(port)
        on_ready(forwarder.url)
        await asyncio.Event().wait()
    finally:
        await forwarder.close()
