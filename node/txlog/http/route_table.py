"""Routes, and the tables in which a router finds the handler of a request: an exact path first, then one expression per
pattern."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol
from urllib.parse import unquote

from aiohttp import web

from txlog.auth import required_role, route_scope
from txlog.auth.authenticator import Authenticator

Request = web.BaseRequest
Response = web.StreamResponse
Handler = Callable[[Request, Mapping[str, str]], Awaitable[Response]]

NO_PARAMETERS: Final[Mapping[str, str]] = {}
UNKNOWN_REPOSITORY: Final = "repository"
"""The name of a path's repository that no log of this process has."""


class Route(NamedTuple):
    """``path`` may contain names in braces, each for one segment; ``{name*}`` at its end matches all the rest."""

    method: str
    path: str
    handler: Handler


class RouteLookup(Protocol):
    """Where a router finds the routes of a path."""

    @property
    def routes(self) -> list[Route]:
        """Every route, with the whole path."""

    def find(self, path: str) -> tuple[RouteTable, str, Mapping[str, str]]:
        """The table for a raw path, the path as this table has it, and the names that the path had before."""


class RouteTable:
    """Handlers by method and path. It finds them itself for every path, so it is a :class:`RouteLookup`, too."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = list(routes)
        self.exact: dict[tuple[str, str], Handler] = {}
        """By method and path, for paths without names."""
        self._patterns: list[tuple[re.Pattern[str], dict[str, Handler]]] = []
        by_path: dict[str, dict[str, Handler]] = {}
        for route in self.routes:
            by_path.setdefault(route.path, {})[route.method] = route.handler
        for path, handlers in by_path.items():
            if "{" not in path:
                for method, handler in handlers.items():
                    self.exact[method, path] = handler
            named = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(path))
            pattern = re.compile(re.sub(r"\\\{(\w+)\\\*\\\}$", r"(?P<\1>.+)", named) + "$")
            self._patterns.append((pattern, handlers))

    def find(self, path: str) -> tuple[RouteTable, str, Mapping[str, str]]:
        """This table."""
        return self, path, NO_PARAMETERS

    def match(self, method: str, path: str) -> tuple[Handler | None, dict[str, str], set[str]]:
        """The handler and the names in the path. Without a handler: the methods that this path has. ``HEAD`` finds the
        handler of ``GET``."""
        allowed: set[str] = set()
        for pattern, handlers in self._patterns:
            found = pattern.match(path)
            if found is None:
                continue
            handler = handlers.get(method)
            if handler is None and method == "HEAD":
                handler = handlers.get("GET")
            if handler is not None:
                return handler, {name: unquote(text) for name, text in found.groupdict().items()}, allowed
            allowed |= handlers.keys()
        return None, {}, allowed


def with_roles(routes: Iterable[Route], guard: Authenticator | None, repository: str | None = None) -> list[Route]:
    """The same routes with handlers that authenticate, each for the role of its whole path. ``repository``: whose
    routes they are; None for those of the whole process, and for a repository that only the path names
    (:data:`UNKNOWN_REPOSITORY`). Without ``guard`` every client may do everything."""
    return [route._replace(handler=_require_role(guard, route, repository)) for route in routes]


def authorization_header(request: Request) -> str | None:
    """The header ``Authorization``. A proxy may keep that header for itself (Kubernetes' API server); then the same
    value is in a header of TxLog."""
    shown = request.headers.get("Authorization")
    return shown if shown is not None else request.headers.get("TxLog-Authorization")


def _require_role(guard: Authenticator | None, route: Route, repository: str | None) -> Handler:
    """The route's handler, with authentication if the route needs it."""
    role, handler = required_role(route.method, route.path), route.handler
    if guard is None or role is None:
        return handler

    async def admitted(request: Request, names: Mapping[str, str]) -> Response:
        named = names.get(UNKNOWN_REPOSITORY) if repository is None else repository
        await guard.authorize(authorization_header(request), role, route_scope(route.method, route.path, named))
        return await handler(request, names)

    return admitted
