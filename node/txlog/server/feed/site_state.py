"""``GET /txlog/site/state``: all data at one final position of the log, for another site that takes the state of this
one. It comes from the process that makes the change sets of this data centre, and writes go on meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Final

from aiohttp import ClientError, web

from txlog.http.router import API_HEADER, API_VERSION, Request, Response, Route
from txlog.model.errors import BadInput, LogAhead, LogDiverged, PeerFault, Unavailable
from txlog.runtime.master_context import MasterContext
from txlog.server.feed.change_set_source import ChangeSetSource
from txlog.server.feed.entry_sources import log_state
from txlog.sites.state_lines import STATE_MEDIA_TYPE, StateHead, decode_head

PATH: Final = "/txlog/site/state"
FINAL_WAIT_S: Final = 10.0
"""For the position of the copy to become final; a split keeps it from that."""
POLL_S: Final = 0.05
INDEX_DIGITS_MAX: Final = 18


class SiteStateHandler:
    """``changes``: the change sets of this data centre."""

    def __init__(self, site: MasterContext, changes: ChangeSetSource) -> None:
        self._context = site
        self._changes = changes

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [Route("GET", PATH, self.get)]

    async def get(self, request: Request, _: Mapping[str, str]) -> Response:
        """``after``: an entry of the log that the state must contain; ``cluster``: the id of this cluster, compared.
        Answers as :mod:`txlog.sites.state_lines`. Raises :class:`NoChangeSets`, :class:`BadInput`, :class:`LogAhead`,
        :class:`LogDiverged` for another cluster, and :class:`Unavailable` where the position does not become final."""
        self._changes.check_enabled()
        after, cluster = request.query.get("after", "0"), request.query.get("cluster", "")
        if not (after.isascii() and after.isdecimal() and len(after) <= INDEX_DIGITS_MAX):
            raise BadInput(f"after={after[:40]}: an index of the log")
        here = log_state(self._context).view.cluster_id.hex()
        if cluster not in ("", here):
            raise LogDiverged(f"this cluster has the id {here}, and {cluster[:64]!r} was asked for")
        async with self._changes.state(int(after)) as answer:
            line = await answer.content.readline()
            try:
                head = decode_head("the change sets", line)
            except PeerFault:
                raise Unavailable("ChangeSetsUnreachable", "what the change sets answer cannot be read") from None
            await self._await_final(head)
            response = web.StreamResponse(headers={"Content-Type": STATE_MEDIA_TYPE, API_HEADER: API_VERSION})
            await response.prepare(request)
            try:
                await response.write(line)
                async for piece in answer.content.iter_any():
                    await response.write(piece)
            except (TimeoutError, ClientError):
                # The reader must not take what was sent for the whole: the answer breaks off.
                if request.transport is not None:
                    request.transport.abort()
                return response
        await response.write_eof()
        return response

    async def _await_final(self, head: StateHead) -> None:
        deadline = time.monotonic() + FINAL_WAIT_S
        while log_state(self._context).final_index < head.index:
            if time.monotonic() > deadline:
                raise LogAhead(f"the copy is at index {head.index}, and the log is final up to a lower one; ask again")
            await asyncio.sleep(POLL_S)
        log = log_state(self._context).log_index
        if log.has_hash_at(head.index) and log.hash_at(head.index).hex() != head.hash:
            raise Unavailable("ChangeSetsLoading", "the change sets go back after a rejoin; ask again")
