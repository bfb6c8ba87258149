"""What entries of the log deleted and added, for feeds: read from the process of this data centre that makes change
sets. This master compares each entry with its own log before it passes it on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

from txlog.http.name_resolver import NameResolver
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.entry import Position
from txlog.model.errors import (
    BadInput,
    LogAhead,
    LogDiverged,
    LogGone,
    NoChangeSets,
    PeerFault,
    TooLarge,
    TxLogError,
    Unavailable,
)
from txlog.runtime.master_context import MasterContext
from txlog.runtime.watermark import Watermark
from txlog.sites.key_values import VALUES_PATH
from txlog.sites.state_lines import STATE_PATH
from txlog.wire.change_feed import FeedEvent
from txlog.wire.change_page import PAGES_PATH, ChangePage, change_event, change_set_token, decode_change_page

PAGE_BYTES: Final = 256 << 10
LARGE_BYTES: Final = 1 << 20
"""A larger page is decoded in a thread."""
CONNECT_S: Final = 2.0
READ_S: Final = 30.0
_ERRORS: Final[dict[str, type[TxLogError]]] = {
    "ChangesGone": LogGone,
    "NeedsState": LogGone,
    **{each.__name__: each for each in (BadInput, LogAhead, LogDiverged, TooLarge)},
}


class ChangeSetSource:
    """The change sets of this data centre. ``captured``: the last entry of this log that has one. ``peer_token``: the
    token of the cluster."""

    def __init__(self, site: MasterContext, captured: Watermark, peer_token: bytes) -> None:
        self._context = site
        self.captured = captured
        self._authorization = f"Bearer {change_set_token(peer_token)}"
        self._session: ClientSession | None = None

    def check_enabled(self) -> None:
        """Raises :class:`NoChangeSets` where this data centre has none."""
        if self._context.config.change_sets is None:
            raise NoChangeSets(
                f"{self._context.config.data_center} makes no change sets; set spec.changeSets.enabled, or ask a "
                "master of a data centre that has them"
            )

    async def position(self, index: int, at_hash: bytes | None) -> bytes:
        """The hash at an index. Raises :class:`LogGone` where change sets are not kept from there on,
        :class:`LogAhead`, :class:`LogDiverged` and :class:`Unavailable`."""
        return (await self._page(index, at_hash, index, 1)).hash

    async def read(self, at: Position, upto: int) -> list[FeedEvent]:
        """The events of the next entries, as far as they are on this log; none while the store is elsewhere. Errors as
        of :meth:`position`."""
        page = await self._page(at.index, at.hash, upto, PAGE_BYTES)
        agreement = self._context.status.log_state
        if agreement is None:
            return []
        log, settled = agreement.log_index, agreement.final_index
        events: list[FeedEvent] = []
        previous = at.hash
        for change in page.changes:
            if log.has_hash_at(change.index) and log.hash_at(change.index) != change.hash:
                break  # of a branch that was given up: the store has not gone back yet
            events.append(change_event(change, previous, settled=change.index <= settled))
            previous = change.hash
        return events

    async def values(self, body: bytes) -> bytes:
        """The values of keys: what the process answers to this body (:mod:`txlog.sites.key_values`). Errors as of
        :meth:`position`; :class:`LogGone` also after a change that was not kept."""
        config = self._context.config.change_sets
        assert config is not None, "checked before"
        return await self._ask(self._open_session().post(f"{config.url.rstrip('/')}{VALUES_PATH}", **self._with(body)))

    @asynccontextmanager
    async def state(self, after: int) -> AsyncIterator[ClientResponse]:
        """All quads at a position not before the entry ``after``: what the process answers, to be read
        (:mod:`txlog.sites.state_lines`). Errors as of :meth:`position`."""
        config = self._context.config.change_sets
        assert config is not None, "checked before"
        url = f"{config.url.rstrip('/')}{STATE_PATH}?{urlencode({'after': after})}"
        try:
            answer = await self._open_session().get(url, **self._with())
        except (TimeoutError, ClientError, OSError) as lost:
            raise _unreachable(lost) from lost
        async with answer:
            if answer.status != 200:
                raise _error_of(answer.status, await answer.read())
            yield answer

    def _with(self, body: bytes | None = None) -> dict[str, Any]:
        return {"headers": {"Authorization": self._authorization}} | ({} if body is None else {"data": body})

    @staticmethod
    async def _ask(request: AbstractAsyncContextManager[ClientResponse]) -> bytes:
        try:
            async with request as answer:
                body = await answer.read()
        except (TimeoutError, ClientError, OSError) as lost:
            raise _unreachable(lost) from lost
        if answer.status != 200:
            raise _error_of(answer.status, body)
        return body

    async def _page(self, after: int, at_hash: bytes | None, upto: int, bytes_max: int) -> ChangePage:
        config = self._context.config.change_sets
        assert config is not None, "checked before"
        query: dict[str, Any] = {"after": after, "upto": upto, "maxBytes": bytes_max}
        if at_hash is not None:
            query["hash"] = at_hash.hex()
        url = f"{config.url.rstrip('/')}{PAGES_PATH}?{urlencode(query)}"
        body = await self._ask(self._open_session().get(url, **self._with()))
        try:
            if len(body) > LARGE_BYTES:
                return await asyncio.to_thread(decode_change_page, config.url, body)
            return decode_change_page(config.url, body)
        except PeerFault as wrong:
            self._context.log.warning_rate_limited("ChangeSetsNotRead", wrong.reason, error=str(wrong))
            raise Unavailable("ChangeSetsUnreachable", "what the change sets answer cannot be read") from None

    def _open_session(self) -> ClientSession:
        if self._session is None:
            timeout = ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=READ_S)
            self._session = ClientSession(
                connector=TCPConnector(resolver=NameResolver()),
                timeout=timeout,
                trust_env=False,
                cookie_jar=DummyCookieJar(),
            )
        return self._session

    async def close(self) -> None:
        """Closes the connections."""
        if self._session is not None:
            await self._session.close()


def _unreachable(lost: Exception) -> Unavailable:
    return Unavailable(
        "ChangeSetsUnreachable", f"the change sets of this data centre do not answer ({type(lost).__name__})"
    )


class _Refusal(msgspec.Struct):
    error: str = ""
    message: str = ""


def _error_of(status: int, body: bytes) -> TxLogError:
    try:
        refusal = msgspec.json.decode(body[:4096], type=_Refusal)
    except DECODE_ERRORS:
        refusal = _Refusal()
    kind = _ERRORS.get(refusal.error)
    if kind is not None:
        return kind(refusal.message)
    return Unavailable(
        refusal.error or "ChangeSetsUnreachable", f"the change sets answer {status}: {refusal.message[:200]}"
    )
