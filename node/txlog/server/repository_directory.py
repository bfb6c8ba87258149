"""Which log a path is about: the front door of a process with several logs.

A path names its repository: ``/repositories/{id}/…`` and ``/txlog/repositories/{id}/…``. The directory looks that name
up in a dictionary, and the log's own routes do the rest. They never see the name, so no handler can mistake one log for
another. A path under ``/txlog/`` without a name is about the first log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote

from txlog.auth.authenticator import Authenticator
from txlog.http.route_table import (
    NO_PARAMETERS,
    UNKNOWN_REPOSITORY,
    Handler,
    Request,
    Response,
    Route,
    RouteTable,
    with_roles,
)
from txlog.model.errors import TxLogError
from txlog.runtime.master_context import API_PATH
from txlog.server.frontdoor.request_parameters import PATH_PREFIXES, REPOSITORY_PATH

_REPOSITORIES: Final = "/repositories/"
_API: Final = f"{API_PATH}/"
_API_REPOSITORIES: Final = f"{API_PATH}{_REPOSITORIES}"
_SERVER_PREFIX: Final = PATH_PREFIXES[1]


class _LogTables(NamedTuple):
    """The routes of one log: behind ``/repositories/{id}``, and behind ``/txlog``."""

    repository: RouteTable
    api: RouteTable


class RepositoryDirectory:
    """The routes of a process and of its logs. ``unknown`` gives what answers a route of a log where the path names no
    repository. Every handler authenticates by ``guard``.

    A process with one log has no paths under ``/txlog/repositories/``.
    """

    def __init__(
        self,
        process_routes: Iterable[Route],
        unknown: Callable[[Route], Handler],
        guard: Authenticator | None = None,
    ) -> None:
        self._process_routes = list(process_routes)
        self._unknown_handler = unknown
        self._guard = guard
        self._logs: dict[str, _LogTables] = {}
        self._refused: dict[str, _LogTables] = {}
        """Names of logs that are not open here."""
        self._first_routes: list[Route] = []
        self._without_name = RouteTable(with_roles(self._process_routes, guard))
        self._unknown = _LogTables(RouteTable([]), RouteTable([]))

    def add_log(self, name: str, routes: Iterable[Route]) -> None:
        """Serves the log of this repository from now on. The first one also gets the paths without a name."""
        assert name not in self._logs, f"two logs of one name: {name}"
        routes = list(routes)
        if not self._first_routes:
            self._first_routes = routes
            bare = [route for route in routes if not route.path.startswith(REPOSITORY_PATH)]
            of_process = with_roles(self._process_routes, self._guard)
            self._without_name = RouteTable([*of_process, *with_roles(bare, self._guard, name)])
            refusing = [route._replace(handler=self._unknown_handler(route)) for route in routes]
            self._unknown = _tables(with_roles(refusing, self._guard))
        self._refused.pop(name, None)
        self._logs[name] = _tables(with_roles(routes, self._guard, name))

    def refuse_log(self, name: str, error: Callable[[], TxLogError], removal: Handler | None = None) -> None:
        """Answers what is about this repository with the error, as far as a user may ask for it. ``removal``: answers
        its ``DELETE`` all the same."""

        async def refuse(request: Request, _: Mapping[str, str]) -> Response:
            raise error()

        def handler(route: Route) -> Handler:
            return removal if removal and (route.method, route.path) == ("DELETE", REPOSITORY_PATH) else refuse

        refusing = [route._replace(handler=handler(route)) for route in self._first_routes]
        self._logs.pop(name, None)
        self._refused[name] = _tables(with_roles(refusing, self._guard, name))

    def remove_log(self, name: str) -> None:
        """There is no such repository any more."""
        self._logs.pop(name, None)
        self._refused.pop(name, None)

    @property
    def routes(self) -> list[Route]:
        """Every route of the process and of its first log, with the whole path."""
        return [
            *self._process_routes,
            *(
                route._replace(path=prefix + route.path)
                for route in self._first_routes
                for prefix in (PATH_PREFIXES if route.path.startswith(REPOSITORY_PATH) else ("",))
            ),
        ]

    def find(self, path: str) -> tuple[RouteTable, str, Mapping[str, str]]:
        """The table for a raw path, and the rest of the path behind the repository. The names hold an unknown
        repository as :data:`UNKNOWN_REPOSITORY`."""
        if path.startswith(_API):
            if len(self._logs) + len(self._refused) > 1 and path.startswith(_API_REPOSITORIES):
                name, rest = _split(path, len(_API_REPOSITORIES))
                if rest:
                    tables, names = self._named(name)
                    return tables.api, rest, names
            return self._without_name, path, NO_PARAMETERS
        bare = path.removeprefix(_SERVER_PREFIX)
        if bare.startswith(_REPOSITORIES):
            name, rest = _split(bare, len(_REPOSITORIES))
            if name:
                tables, names = self._named(name)
                return tables.repository, rest, names
        return self._without_name, path, NO_PARAMETERS

    def _named(self, name: str) -> tuple[_LogTables, Mapping[str, str]]:
        known = self._logs.get(name) or self._refused.get(name)
        return (self._unknown, {UNKNOWN_REPOSITORY: name}) if known is None else (known, NO_PARAMETERS)


def _split(path: str, at: int) -> tuple[str, str]:
    """The segment that begins there, decoded, and the rest with its slash."""
    segment, slash, rest = path[at:].partition("/")
    return unquote(segment) if "%" in segment else segment, slash + rest


def _tables(routes: Iterable[Route]) -> _LogTables:
    """``routes`` in two tables, without what the directory has read of their paths."""
    inside: list[Route] = []
    api: list[Route] = []
    for route in routes:
        if route.path.startswith(REPOSITORY_PATH):
            inside.append(route._replace(path=route.path.removeprefix(REPOSITORY_PATH)))
        elif route.path.startswith(_API):
            api.append(route._replace(path=route.path.removeprefix(API_PATH)))
    return _LogTables(RouteTable(inside), RouteTable(api))
