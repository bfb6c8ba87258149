"""Routes reads to workers: chooses a worker that may answer, and sends the request to it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Final, NamedTuple

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

from txlog.http.min_position import await_min_position, read_min_position
from txlog.http.name_resolver import NameResolver
from txlog.http.router import Request
from txlog.model.errors import BadInput, NotAcceptable, TooLarge, Unavailable, WorkerFault
from txlog.runtime.master_context import MasterContext
from txlog.server.frontdoor.off_loop import run_sparql_off_loop
from txlog.server.frontdoor.result_formats import N_QUADS, RESULTS_JSON
from txlog.server.frontdoor.statement_lines import StatementPattern
from txlog.server.frontdoor.worker_choice import WorkerCandidate, WorkerChoice
from txlog.sparql import hide_marker, uses_graph_clause, with_dataset
from txlog.workers import ADAPTERS, Adapter
from txlog.workers.adapter import RequestOutcome, Unreachable, WorkerRequest, WorkerResponse

CONNECT_S = 2.0
READ_S = 60.0
"""Time-out between two pieces of an answer, in seconds; a query may compute this long before the first piece."""
CONNECTIONS_MAX = 256
MONOTONIC_WAIT_S = 2.0
"""How long a read waits for a worker that is older than what its client has seen, if no other worker can answer."""
RETRY_S = 1
CACHED_QUERIES_MAX: Final = 512
"""How many queries are kept as workers get them: a client sends the same one again and again."""
CACHED_CHARS_MAX: Final = 8192
"""A longer query is rewritten each time: it costs its worker more than this master."""


class WorkerQuery(NamedTuple):
    """A query that hides system graphs; the fields are those of :meth:`txlog.workers.Adapter.query`."""

    text: str
    accept: str
    union: bool
    default: tuple[str, ...] = ()
    named: tuple[str, ...] = ()


ALL_STATEMENTS: Final = "everything"
"""All statements as N-Quads. They must be filtered if an engine exposes TxLog's marker
(:attr:`txlog.workers.adapter.Capabilities.hidden_marker`)."""

WorkerRequestSpec = Callable[[Adapter], WorkerRequest] | WorkerQuery | StatementPattern | str
"""The request to send: equal for every engine, or built by the adapter of each engine."""


class ReadRouter:
    """One HTTP session for all workers. If a worker cannot be reached, the router tries the next one."""

    def __init__(self, site: MasterContext) -> None:
        self._site = site
        self._durability = site.durability
        self._reads = site.registry.reads
        self._session: ClientSession | None = None
        self.choice = WorkerChoice(site)
        self.monotonic_reads = self.choice.monotonic_reads

    async def choose(
        self, request: Request, seconds: float | None = None, *, shown: bool = True
    ) -> list[WorkerCandidate]:
        """The workers that may answer this read, best first; waits until one has reached the needed index. ``seconds``:
        the time limit of the whole read; ``shown``: the client sees the answer.

        Raises :class:`Unavailable` if no worker is in time.
        """
        await await_min_position(self._site, request, self._durability.applied)
        least = read_min_position(request)[0]
        if not shown or request.remote is None:
            return self.readable_workers(least)
        found = self.readable_workers(least, request.remote)
        if not found[0].is_fresh:
            needed = {store.worker.name: store.min_index for store in found}
            if not await self._reads.wait_any_at(needed, min(MONOTONIC_WAIT_S, seconds or MONOTONIC_WAIT_S)):
                self.monotonic_reads.forget(request.remote)
            found = self.readable_workers(least, request.remote)
        return found

    def readable_workers(self, least: int = 0, client: str | None = None) -> list[WorkerCandidate]:
        """The workers at or above this index that may answer now, best first. :class:`Unavailable` if there is none."""
        candidates = self.choice.candidates(least, client)
        if not candidates:
            raise Unavailable("NoWorker", "no worker of this data centre is up to date; ask again", RETRY_S)
        return candidates

    @asynccontextmanager
    async def open_response(
        self, store: WorkerCandidate, asked: WorkerRequest, seconds: float | None = None, *, counted: bool = True
    ) -> AsyncIterator[ClientResponse]:
        """The answer, with its body unread. :class:`Unreachable` if there is none. ``counted``: count it as a client
        read. A worker may be tried because others failed, and be older than what its client has seen; then the read
        waits for it for at most :data:`MONOTONIC_WAIT_S`."""
        if self._session is None:
            self._session = ClientSession(
                connector=TCPConnector(limit=CONNECTIONS_MAX, resolver=NameResolver()),
                auto_decompress=False,
                trust_env=False,
                cookie_jar=DummyCookieJar(),
                skip_auto_headers=("Accept", "User-Agent"),
                # RDF4J's server compresses by default, and this master does not decompress.
                headers={"Accept-Encoding": "identity"},
            )
        timeout = ClientTimeout(total=seconds, sock_connect=CONNECT_S, sock_read=READ_S)
        url = store.worker.url.rstrip("/") + asked.path
        reading = self._reads.active_reads
        reading[store.worker.name] += 1
        began = time.monotonic()
        try:
            if not store.is_fresh:
                await self._reads.wait_any_at({store.worker.name: store.min_index}, MONOTONIC_WAIT_S)
            async with self._send_request(url, asked, timeout, store) as response:
                if store.client_address is not None and response.status == 200:
                    self.monotonic_reads.record(
                        store.client_address, store.worker.name, store.worker.index, self._durability.persisted_end
                    )
                yield response
            if counted:
                self._reads.completed_reads.add(1000 * (time.monotonic() - began))
        finally:
            reading[store.worker.name] -= 1

    @asynccontextmanager
    async def _send_request(
        self, url: str, asked: WorkerRequest, timeout: ClientTimeout, store: WorkerCandidate
    ) -> AsyncIterator[ClientResponse]:
        assert self._session is not None
        try:
            response = await self._session.request(
                asked.method, url, data=asked.body or None, headers=asked.headers, timeout=timeout
            )
        except (TimeoutError, ClientError, OSError) as lost:
            raise Unreachable(store.worker.url, f"{type(lost).__name__}: {lost}", RequestOutcome.UNKNOWN) from lost
        try:
            yield response
        finally:
            response.release()

    async def build_request(self, store: WorkerCandidate, build: WorkerRequestSpec) -> WorkerRequest:
        """The request to this worker. :class:`Unreachable` if the router must first query its graphs and cannot reach
        it."""
        adapter = store.adapter
        able = adapter.capabilities
        if isinstance(build, StatementPattern):
            pattern_request = request_of_pattern(adapter, build)
            if isinstance(pattern_request, WorkerRequest):
                return pattern_request
            build = pattern_request
        if isinstance(build, str):
            return adapter.snapshot(N_QUADS)
        if not isinstance(build, WorkerQuery):
            return build(adapter)
        text, size = build.text, len(build.text)
        is_union = able.union_of and build.union and not build.default and not build.named
        if is_union and await run_sparql_off_loop(size, lambda: uses_graph_clause(text), is_query=True):
            async with self.open_response(store, adapter.contexts()) as answer:
                contexts = WorkerResponse(answer.status, lowercase_headers(answer.headers), await answer.read())

            def with_contexts() -> WorkerRequest:
                named = with_dataset(_without_marker(adapter, text), able.union_of, adapter.parse_contexts(contexts))
                return adapter.query(named, build.accept, union=False)

            return await run_sparql_off_loop(size, with_contexts, is_query=True)
        if size <= CACHED_CHARS_MAX:
            return query_request(adapter.engine, build)
        return await run_sparql_off_loop(size, lambda: _query_request(adapter.engine, build), is_query=True)

    async def fetch(self, request: Request, build: WorkerRequestSpec) -> WorkerResponse:
        """A whole, small answer from the first worker that gives one."""
        return await self.fetch_from(await self.choose(request), build)

    async def fetch_from(
        self,
        stores: Sequence[WorkerCandidate],
        build: WorkerRequestSpec,
        seconds: float | None = None,
        *,
        counted: bool = True,
        bytes_max: int | None = None,
    ) -> WorkerResponse:
        """A whole, small answer from the first of these workers that gives one in ``seconds``. :class:`TooLarge` for
        one of more than ``bytes_max`` bytes."""
        for store in stores:
            try:
                request = await self.build_request(store, build)
                async with self.open_response(store, request, seconds, counted=counted) as response:
                    body = await (response.read() if bytes_max is None else _read_bounded(response, bytes_max))
                    return WorkerResponse(response.status, lowercase_headers(response.headers), body)
            except (TimeoutError, Unreachable, ClientError, OSError):
                continue
        raise Unavailable("NoWorker", "no worker of this data centre can be reached; ask again", RETRY_S)

    async def stream_rows(
        self, store: WorkerCandidate, predicates: Sequence[str] | None, bytes_max: int
    ) -> AsyncIterator[bytes]:
        """The rows that the worker answers to :meth:`txlog.workers.adapter.Adapter.dump`. :class:`TooLarge` after
        ``bytes_max`` bytes; :class:`WorkerFault` and the network's errors."""
        size = 0
        async with self.open_response(store, store.adapter.dump(predicates)) as answer:
            if answer.status != 200:
                raise WorkerFault(f"it answered {answer.status}")
            async for piece in answer.content.iter_any():
                size += len(piece)
                if size > bytes_max:
                    raise TooLarge(f"it is more than {bytes_max >> 20} MiB")
                yield piece

    async def close(self) -> None:
        """Closes the HTTP session."""
        if self._session is not None:
            await self._session.close()


def _without_marker(adapter: Adapter, text: str) -> str:
    return text if adapter.capabilities.hidden_marker else hide_marker(text)


def _query_request(engine: str, build: WorkerQuery) -> WorkerRequest:
    adapter = ADAPTERS[engine]
    return adapter.query(
        _without_marker(adapter, build.text),
        build.accept,
        union=build.union,
        default_graphs=build.default,
        named_graphs=build.named,
    )


_query_request_cached = lru_cache(CACHED_QUERIES_MAX)(_query_request)


def query_request(engine: str, build: WorkerQuery) -> WorkerRequest:
    """The request for a query of at most :data:`CACHED_CHARS_MAX` characters to a worker of this engine."""
    return _query_request_cached(engine, build)


def request_of_pattern(adapter: Adapter, pattern: StatementPattern) -> WorkerRequest | WorkerQuery:
    """What a worker is asked for a pattern: its own search, or a query. A worker without either gives all statements,
    and the master selects."""
    able = adapter.capabilities
    if pattern.is_match_for(able):
        return adapter.match(pattern[:3], pattern.graphs)
    if pattern.is_query_for(able):
        return WorkerQuery(pattern.query(), RESULTS_JSON, union=False)
    return adapter.snapshot(N_QUADS)


async def await_stable(site: MasterContext, request: Request) -> None:
    """For a read that this master answers itself: waits until its own log has reached ``TxLog-Min-Position``."""
    await await_min_position(site, request, site.durability.stable)


async def _read_bounded(response: ClientResponse, bytes_max: int) -> bytes:
    pieces, size = list[bytes](), 0
    async for piece in response.content.iter_any():
        size += len(piece)
        if size > bytes_max:
            raise TooLarge(f"the worker's answer is more than {bytes_max >> 20} MiB; ask for less")
        pieces.append(piece)
    return b"".join(pieces)


def worker_error(status: int, text: str) -> BadInput | NotAcceptable | WorkerFault:
    """The error of a client's query that a worker has refused in these words."""
    text = text.strip()[:2000]
    if status == 400:
        return BadInput(f"MALFORMED QUERY: {text}")
    if status == 406:
        return NotAcceptable(text or "the worker has no such form")
    return WorkerFault(f"the worker answered {status}: {text}")


def lowercase_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers with lower-case names."""
    return {name.lower(): value for name, value in headers.items()}
