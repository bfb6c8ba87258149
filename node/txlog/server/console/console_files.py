"""``/console/``: the page that shows the cluster, as ``make console`` bundles it.

The files contain no data, so they need no credentials. What the page asks for needs the roles as everywhere.
"""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

from aiohttp import web

from txlog.http.router import Request, Response, Route
from txlog.model.errors import NotFound

FOLDER: Final = Path(__file__).parent / "static"
PAGE: Final = "index.html"
CONTENT_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""A file with another suffix is not served."""
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Nothing inline, and no address but this master's."""
_SECURITY_HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_REVALIDATE: Final = "no-cache"
_FOREVER: Final = "public, max-age=31536000, immutable"
_HASHED_NAME: Final = re.compile(r"-[A-Z0-9]{8}\.\w+$")
"""Names that change with their content, as the bundler gives them."""


class ConsoleFile(NamedTuple):
    """One file of the page, ready to be sent."""

    body: bytes
    compressed: bytes
    content_type: str
    etag: str


class ConsoleFiles:
    """Serves the files of ``folder``, which are read with the page and kept in memory."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._files: dict[str, ConsoleFile] = {}
        self._read_at = 0

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [
            Route("GET", "/console", self.redirect),
            Route("GET", "/console/", self.get),
            Route("GET", "/console/{file}", self.get),
        ]

    async def redirect(self, request: Request, _: Mapping[str, str]) -> Response:
        """Sends a browser to the folder. The target is relative, so a proxy may serve it under another path."""
        return web.Response(status=308, headers={"Location": "console/"})

    async def get(self, request: Request, names: Mapping[str, str]) -> Response:
        """One file; the page itself without a name. 304 if the client has it. :class:`NotFound` without a bundle."""
        name = names.get("file", PAGE)
        if name == PAGE or not self._files:
            await asyncio.to_thread(self._read_if_changed)  # compressing takes some 20 ms
        if PAGE not in self._files:
            raise NotFound("this installation has no console: `make console` bundles it (it needs Node.js and npm)")
        found = self._files.get(name)
        if found is None:
            raise NotFound(f"the console has no file {name[:80]!r}")
        headers = {
            **_SECURITY_HEADERS,
            "Cache-Control": _FOREVER if _HASHED_NAME.search(name) else _REVALIDATE,
            "ETag": found.etag,
            "Vary": "Accept-Encoding",
        }
        if request.headers.get("If-None-Match") == found.etag:
            return web.Response(status=304, headers=headers)
        headers["Content-Type"] = found.content_type
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            return web.Response(body=found.compressed, headers={**headers, "Content-Encoding": "gzip"})
        return web.Response(body=found.body, headers=headers)

    def _read_if_changed(self) -> None:
        """Reads a bundle that is new since the last page: the page names its other files by their content."""
        try:
            changed = (self._folder / PAGE).stat().st_mtime_ns
        except OSError:
            return
        if changed != self._read_at:
            self._files, self._read_at = read_files(self._folder), changed


def read_files(folder: Path) -> dict[str, ConsoleFile]:
    """The files of the bundle by name; empty without one."""
    found: dict[str, ConsoleFile] = {}
    for path in sorted(folder.glob("*")):
        if path.suffix in CONTENT_TYPES:
            body = path.read_bytes()
            etag = f'"{blake2b(body, digest_size=12).hexdigest()}"'
            found[path.name] = ConsoleFile(body, gzip.compress(body, 6, mtime=0), CONTENT_TYPES[path.suffix], etag)
    return found
