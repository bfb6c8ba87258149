"""The paths that a process has once, whatever logs it serves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from txlog.auth.authenticator import Authenticator
from txlog.auth.tls import TlsConfig
from txlog.http.router import Handler, Request, Response, Route
from txlog.runtime.master_context import MasterContext
from txlog.server.admin.health import HealthHandler
from txlog.server.admin.log_metrics import LogMetrics
from txlog.server.admin.openapi import OpenApiHandler
from txlog.server.admin.process_metrics import ProcessMetrics
from txlog.server.console.console_files import ConsoleFiles
from txlog.server.frontdoor.repository_list import RepositoryListHandler
from txlog.server.peers.peer_links import PeerLinks


class RepositoryChanges(Protocol):
    """Creates and removes repositories."""

    def routes(self) -> list[Route]:
        """TxLog's own paths."""

    async def create_by_client(self, request: Request, names: Mapping[str, str]) -> Response:
        """RDF4J's ``PUT`` of a repository that does not exist."""

    def names(self) -> list[str]:
        """Every repository, open here or not."""


class ProcessRoutes:
    """The list of repositories, the health of the process, all metrics, the console's files, and the door of the
    peers. ``sites`` and ``metrics``: those of each log by the name of its repository, in the order of the logs.
    ``requests``: creates and removes repositories; None where the cluster has its first one alone. ``dropped``: the
    messages of further logs that were not delivered. ``guard``: who may see which repository."""

    def __init__(
        self,
        sites: Callable[[], Mapping[str, MasterContext]],
        metrics: Callable[[], Mapping[str, LogMetrics]],
        links: PeerLinks,
        tls: TlsConfig,
        requests: RepositoryChanges | None = None,
        dropped: Callable[[], Mapping[tuple[int, str], int]] | None = None,
        guard: Authenticator | None = None,
    ) -> None:
        self._repositories = (
            RepositoryListHandler(lambda: list(sites()), guard=guard)
            if requests is None
            else RepositoryListHandler(requests.names, requests.create_by_client, guard)
        )
        self._handlers = (
            self._repositories,
            HealthHandler(lambda: list(sites().values())),
            ProcessMetrics(metrics, links.describe, tls, dropped),
            OpenApiHandler(),
            ConsoleFiles(),
            links,
            *(() if requests is None else (requests,)),
        )

    def routes(self) -> list[Route]:
        """Every path of the process."""
        return [route for handler in self._handlers for route in handler.routes()]

    def unknown_handler(self, route: Route) -> Handler:
        """What answers this route of a log where the path names no repository of this process."""
        return self._repositories.unknown_handler(route)
