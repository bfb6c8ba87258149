"""The repositories of a process as a list, and the answers about names that none of them has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from txlog.auth import Role
from txlog.auth.authenticator import Authenticator, list_rights
from txlog.http.route_table import UNKNOWN_REPOSITORY, authorization_header
from txlog.http.router import Handler, Request, Response, Route, own_url, read_body, text_response
from txlog.model.errors import NotFound, OneRepository
from txlog.server.frontdoor.repositories import BODY_BYTES_MAX, refuse_deletion_with_query
from txlog.server.frontdoor.request_parameters import PATH_PREFIXES, REPOSITORY_PATH
from txlog.server.frontdoor.tabular_results import accept_header, table_response

PROTOCOL: Final = "12"
_NAME_CHARS_MAX: Final = 80
"""Characters of an unknown name that an error repeats."""


class RepositoryListHandler:
    """``/protocol`` and ``/repositories``. ``names``: those of the repositories, in the order of their logs.
    ``creation`` answers a ``PUT`` of another name; without it none is created. ``guard``: clients see what they may
    read; without it, everything."""

    def __init__(
        self, names: Callable[[], list[str]], creation: Handler | None = None, guard: Authenticator | None = None
    ) -> None:
        self._names = names
        self._guard = guard
        self._creation = creation

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [
            Route("GET", f"{prefix}{path}", handler)
            for prefix in PATH_PREFIXES
            for path, handler in (("/protocol", self.protocol), ("/repositories", self.list_all))
        ]

    async def protocol(self, request: Request, _: Mapping[str, str]) -> Response:
        """The version of RDF4J's protocol."""
        return text_response(PROTOCOL)

    async def list_all(self, request: Request, _: Mapping[str, str]) -> Response:
        """The list of the repositories that the client may read."""
        base = own_url(request).rstrip("/")
        rights = await list_rights(self._guard, authorization_header(request))
        rows = [
            [
                ("uri", f"{base}/{name}"),
                ("literal", name),
                ("literal", f"TxLog cluster {name}"),
                ("boolean", "true"),
                ("boolean", "true" if rights.allow(Role.WRITER, name) else "false"),
            ]
            for name in self._names()
            if rights.allow(Role.READER, name)
        ]
        return table_response(accept_header(request), ("uri", "id", "title", "readable", "writable"), rows)

    # Names that no repository has

    def unknown_handler(self, route: Route) -> Handler:
        """What answers this route of a repository where the path names no repository of this process."""
        special = {("PUT", REPOSITORY_PATH): self._creation or self._create, ("DELETE", REPOSITORY_PATH): self._remove}
        return special.get((route.method, route.path), self._unknown)

    async def _unknown(self, request: Request, names: Mapping[str, str]) -> Response:
        name = names[UNKNOWN_REPOSITORY][:_NAME_CHARS_MAX]
        raise NotFound(f"unknown repository {name}; this cluster's is {await self._readable_names(request)}")

    async def _remove(self, request: Request, names: Mapping[str, str]) -> Response:
        refuse_deletion_with_query(request)
        return await self._unknown(request, names)

    async def _create(self, request: Request, names: Mapping[str, str]) -> Response:
        await read_body(request, BODY_BYTES_MAX)
        known, name = await self._readable_names(request), names[UNKNOWN_REPOSITORY][:_NAME_CHARS_MAX]
        raise OneRepository(
            f"this cluster has one repository, {known}, which its manifest names: {name} "
            f"cannot be made here; use {known}, or start a cluster of its own for it",
            "",
        )

    async def _readable_names(self, request: Request) -> str:
        """The names that the client may know."""
        rights = await list_rights(self._guard, authorization_header(request))
        return ", ".join(name for name in self._names() if rights.allow(Role.READER, name)) or "another one"
