"""``/repositories/{id}/namespaces``: prefixes that clients share. They are stored in the log, so that all masters
agree.

A change is an entry of kind SKIP whose name is no transaction's. Workers skip it. Masters keep all such names for ever,
in the order of the log, through restarts, splits and trims. A name contains the whole change. It begins with a random
value (or the client's idempotency key), so that a repeated change takes effect once.
"""

from __future__ import annotations

from collections.abc import Mapping

from txlog.http.router import Request, Response, Route, read_body, text_response
from txlog.model.errors import BadInput, Conflict, NotFound
from txlog.model.namespaces import KEY_PREFIX, NamespaceChange, apply_namespace_changes, encode_namespace_change
from txlog.protocol.log.log_state import LogState
from txlog.runtime.master_context import MasterContext
from txlog.server.frontdoor.namespace_changes import PREFIX_MAX, build_entry, check_namespace, check_prefix
from txlog.server.frontdoor.read_router import await_stable
from txlog.server.frontdoor.request_parameters import read_write_options, repository_routes
from txlog.server.frontdoor.tabular_results import accept_header, table_response
from txlog.server.frontdoor.write_handler import WriteHandler

BODY_BYTES_MAX = 8 << 10


class NamespaceHandler:
    """``writes`` submits transactions."""

    def __init__(self, site: MasterContext, writes: WriteHandler) -> None:
        self._site = site
        self._durability = site.durability
        self._status = site.status
        self._writes = writes
        self._cache: tuple[tuple[int, int], dict[str, str]] | None = None

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        one = {"GET": self.get, "PUT": self.put, "DELETE": self.delete}
        return [
            *repository_routes("/namespaces", GET=self.list_all, DELETE=self.clear),
            *repository_routes("/namespaces/{prefix}", **one),
            *repository_routes("/namespaces/", **one),  # the empty prefix
        ]

    def _current(self) -> dict[str, str]:
        """The namespaces at the stable index, by prefix. Computed again only when an entry of this kind has come, or
        when some have left the log."""
        agreement = self._status.log_state
        if agreement is None:
            return {}
        about = (self._durability.truncation_count, len(agreement.skips))
        if self._cache is not None and self._cache[0] == about:
            return self._cache[1]
        stable = self._durability.stable.value
        placed = _logged_changes(agreement)
        table = apply_namespace_changes(key for index, key in placed if index <= stable)
        if not placed or placed[-1][0] <= stable:
            self._cache = (about, table)
        return table

    async def list_all(self, request: Request, names: Mapping[str, str]) -> Response:
        """The table of all prefixes and namespaces."""
        await await_stable(self._site, request)
        rows = [(("literal", prefix), ("literal", name)) for prefix, name in self._current().items()]
        return table_response(accept_header(request), ("prefix", "namespace"), rows)

    async def get(self, request: Request, names: Mapping[str, str]) -> Response:
        """The namespace of a prefix."""
        await await_stable(self._site, request)
        prefix = names.get("prefix", "")
        name = self._current().get(prefix)
        if name is None:
            raise NotFound(f"Undefined prefix: {prefix[:PREFIX_MAX]}")
        return text_response(name)

    async def put(self, request: Request, names: Mapping[str, str]) -> Response:
        """Sets the namespace of a prefix."""
        body = await read_body(request, BODY_BYTES_MAX)
        try:
            name = body.decode("utf-8-sig").strip()
        except UnicodeDecodeError as wrong:
            raise BadInput(f"the namespace is not UTF-8 at byte {wrong.start}") from None
        return await self._submit_change(request, NamespaceChange(_prefix_parameter(names), _parse_namespace(name)))

    async def delete(self, request: Request, names: Mapping[str, str]) -> Response:
        """Deletes a prefix."""
        return await self._submit_change(request, NamespaceChange(_prefix_parameter(names), None))

    async def clear(self, request: Request, names: Mapping[str, str]) -> Response:
        """Deletes all prefixes."""
        return await self._submit_change(request, NamespaceChange(None, None))

    async def _submit_change(self, request: Request, change: NamespaceChange) -> Response:
        asked = read_write_options(self._site, request)
        if asked.key:
            self._refuse_key_reuse(asked.key, change)
        return await self._writes.write(build_entry(change, asked.key), asked)

    def _refuse_key_reuse(self, key: str, change: NamespaceChange) -> None:
        agreement = self._status.log_state
        mine, begins = encode_namespace_change(change, f"key:{key}"), f"{KEY_PREFIX}key:{key} "
        for name in () if agreement is None else (*agreement.skips, *agreement.keys.waiting):
            if name.startswith(begins) and name != mine:
                raise Conflict(f"Idempotency-Key {key[:80]!r} came with another change of namespaces before")


def _logged_changes(agreement: LogState) -> list[tuple[int, str]]:
    return sorted((index, key) for key, index in agreement.skips.items() if key.startswith(KEY_PREFIX))


def _prefix_parameter(names: Mapping[str, str]) -> str:
    return check_prefix(names.get("prefix", ""))


def _parse_namespace(text: str) -> str:
    if not text:
        raise BadInput("No namespace name found in request body")
    return check_namespace(text)
