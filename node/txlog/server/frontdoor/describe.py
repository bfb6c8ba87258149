"""Answers DESCRIBE: finds the blank nodes behind the resources in a worker, then names the queries for the statements.

What is described is decided in ``sparql/rewrite/describe_query.py``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from aiohttp import ClientPayloadError

from txlog.http.router import Request
from txlog.model.errors import Unavailable, WorkerFault
from txlog.server.frontdoor.read_router import ReadRouter, WorkerQuery
from txlog.server.frontdoor.result_formats import RESULTS_JSON
from txlog.server.frontdoor.stream_converter import closing_stream
from txlog.server.frontdoor.worker_choice import WorkerCandidate
from txlog.sparql.rewrite.describe_query import (
    ROWS_BYTES_MAX,
    Row,
    describe_steps,
    parse_describe,
    read_rows,
    statement_queries,
)
from txlog.workers.adapter import Unreachable, WorkerResponse

_SMALL_BYTES = 256 << 10
"""A larger answer is parsed in a thread."""


async def find_statement_queries(
    router: ReadRouter, request: Request, query: WorkerQuery, seconds: float | None
) -> list[str]:
    """The queries (at least one) that give the statements of a DESCRIBE together. The query itself, if a worker does
    not take what was made of it: it then says what is wrong in its client's words. :class:`TooLarge` for too many
    nodes, :class:`Unavailable` where they are not found in time."""
    described = parse_describe(query.text)
    if described is None:
        return [query.text]
    until = None if seconds is None else time.monotonic() + seconds
    stores = await router.choose(request, seconds)
    steps = describe_steps(described)
    try:
        text = next(steps)
        while True:
            answer = await _fetch(router, stores, query._replace(text=text, accept=RESULTS_JSON), until)
            if answer.status in (400, 422):
                return [query.text]
            text = steps.send(await _rows_of(answer))
    except StopIteration as done:
        return statement_queries(described, done.value)


async def _fetch(
    router: ReadRouter, stores: Sequence[WorkerCandidate], query: WorkerQuery, until: float | None
) -> WorkerResponse:
    left = None if until is None else until - time.monotonic()
    try:
        if left is None or left > 0:
            return await router.fetch_from(stores, query, left, counted=False, bytes_max=ROWS_BYTES_MAX)
    except Unavailable:
        if until is None or time.monotonic() < until:
            raise
    raise Unavailable("QueryTimeout", "Query evaluation took longer than its time-out")


async def _rows_of(answer: WorkerResponse) -> list[Row]:
    if answer.status != 200:
        raise WorkerFault(f"the worker answered {answer.status}: {answer.text}")
    try:
        if len(answer.body) <= _SMALL_BYTES:
            return read_rows(answer.body)
        return await asyncio.to_thread(read_rows, answer.body)
    except (ValueError, KeyError, TypeError) as wrong:
        raise WorkerFault(f"the worker answered no rows in JSON: {wrong}") from wrong


async def append_answers(
    router: ReadRouter,
    store: WorkerCandidate,
    pieces: AsyncIterator[bytes],
    following: Sequence[WorkerQuery],
    seconds: float | None,
) -> AsyncGenerator[bytes, None]:
    """``pieces``, and after them the answers of this worker to the other queries."""
    async with closing_stream(pieces):
        async for piece in pieces:
            yield piece
    for query in following:
        try:
            async with router.open_response(store, await router.build_request(store, query), seconds) as answer:
                if answer.status != 200:
                    raise ClientPayloadError(f"it answered {answer.status}")
                async for piece in answer.content.iter_any():
                    yield piece
        except Unreachable as lost:
            raise ClientPayloadError(str(lost)) from lost
