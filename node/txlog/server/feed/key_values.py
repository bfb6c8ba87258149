"""``POST /txlog/site/values``: the values of keys at a final position of the log, for the link of another site and for
that of this one. They come from the process that makes the change sets of this data centre."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from aiohttp import web

from txlog.http.router import API_HEADER, API_VERSION, Request, Response, Route, read_body
from txlog.model.errors import LogAhead, LogDiverged
from txlog.runtime.master_context import MasterContext
from txlog.server.feed.change_set_source import ChangeSetSource
from txlog.server.feed.entry_sources import log_state
from txlog.sites.key_values import REQUEST_BYTES_MAX, decode_values_request


class KeyValueHandler:
    """``changes``: the change sets of this data centre."""

    def __init__(self, site: MasterContext, changes: ChangeSetSource) -> None:
        self._context = site
        self._changes = changes

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [Route("POST", "/txlog/site/values", self.post)]

    async def post(self, request: Request, _: Mapping[str, str]) -> Response:
        """The body: a :class:`~txlog.sites.key_values.ValuesRequest`. Answers ``{"values"}``. Raises
        :class:`NoChangeSets`, :class:`LogAhead` for a position that is not final here, :class:`LogDiverged` for one
        of another log or cluster, and the errors of :meth:`ChangeSetSource.values`."""
        self._changes.check_enabled()
        body = await read_body(request, REQUEST_BYTES_MAX)
        wanted = decode_values_request(body)
        state = log_state(self._context)
        cluster = state.view.cluster_id.hex()
        if wanted.cluster not in ("", cluster):
            raise LogDiverged(f"this cluster has the id {cluster}, and {wanted.cluster[:64]!r} was asked for")
        if wanted.index > state.final_index:
            raise LogAhead(f"index {wanted.index} is above {state.final_index}, up to which the log is final here")
        log = state.log_index
        if log.has_hash_at(wanted.index):
            here = log.hash_at(wanted.index).hex()
            if wanted.hash not in ("", here):
                raise LogDiverged(f"at index {wanted.index} the hash of this log is {here}")
            # The process may still be on a branch that was given up.
            wanted = msgspec.structs.replace(wanted, hash=here)
        answer = await self._changes.values(msgspec.json.encode(wanted))
        return web.Response(body=answer, content_type="application/json", headers={API_HEADER: API_VERSION})
