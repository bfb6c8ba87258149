"""The fast path for plain reads (:mod:`.plain_queries`, :mod:`.plain_statements`): they go to a worker without a task.

Everything else, and every refusal, is left to :mod:`.read_handler`, as long as nothing of an answer was sent. What an
answer promises is the same on both ways: positions, monotonic reads, hidden graphs, blank nodes, compression.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Final, Protocol

from aiohttp.helpers import rfc822_formatted_time

from txlog.http.body_compression import (
    COMPRESSED_BYTES_MIN,
    OFF_LOOP_BYTES,
    VARY,
    compress_unless_short,
    compress_whole,
)
from txlog.http.min_position import parse_min_position
from txlog.http.router import encode_response, error_response
from txlog.model.errors import TxLogError, Unavailable
from txlog.runtime.master_context import MasterContext
from txlog.runtime.worker_state import WorkerMarker
from txlog.server.frontdoor.answer_steps import SMALL_S, AnswerSteps, steps_for
from txlog.server.frontdoor.answer_stream import CLIENT_IDLE_S, read_pieces
from txlog.server.frontdoor.blank_nodes import may_change
from txlog.server.frontdoor.kept_answers import KeptAnswer, KeptAnswers
from txlog.server.frontdoor.plain_queries import FilledRequest, PlainRead, PlainReadHead, parse_body
from txlog.server.frontdoor.plain_statements import plain_statements
from txlog.server.frontdoor.read_router import (
    CONNECT_S,
    CONNECTIONS_MAX,
    MONOTONIC_WAIT_S,
    READ_S,
    RETRY_S,
    ReadRouter,
    WorkerQuery,
    query_request,
    request_of_pattern,
    worker_error,
)
from txlog.server.frontdoor.statement_lines import StatementPattern
from txlog.server.frontdoor.statement_reads import Headers
from txlog.server.frontdoor.stream_converter import closing_stream
from txlog.server.frontdoor.worker_choice import WorkerCandidate
from txlog.server.frontdoor.worker_connections import (
    WorkerConnection,
    WorkerConnections,
    worker_address,
)
from txlog.sparql import uses_graph_clause
from txlog.sparql.rewrite.query_template import split_template
from txlog.workers.adapter import WorkerRequest
from txlog.workers.canonical_literals import literal_form

CACHED_MAX: Final = 512
"""Requests and heads that are kept as bytes: clients ask the same again and again."""
ERROR_BYTES_MAX: Final = 8000
"""Bytes of a worker's refusal that its client gets."""
_BROKEN_OFF: Final = (502, 503, 504)
"""Answers of a worker, or of a proxy before it, that another worker may answer instead."""
_PIECE: Final = b"%x\r\n%b\r\n"


class ReadClient(Protocol):
    """The connection of a client that waits for an answer."""

    def write(self, data: bytes) -> None:
        """Sends a part of the answer."""

    def finish(self, data: bytes) -> None:
        """Sends the last part of the answer."""

    def abort(self) -> None:
        """Closes the connection: the client sees an incomplete answer."""

    def leave_to_http(self) -> None:
        """Nothing was sent: aiohttp's side answers this request."""

    async def drain(self, seconds: float) -> None:
        """Waits until the client has read most of what was sent. ``TimeoutError`` after ``seconds``."""


class FastReads:
    """The plain reads of one repository."""

    def __init__(self, site: MasterContext, router: ReadRouter) -> None:
        self.connections = WorkerConnections(CONNECTIONS_MAX)
        self.reads = site.registry.reads
        self._durability = site.durability
        self._interactive_load = site.interactive_load
        self._choice = router.choice
        self._literals = site.literals
        self._vary = f"{VARY}, Origin" if site.config.cors_origins else VARY
        self.client_idle_s = CLIENT_IDLE_S
        """How long a client may read nothing of a long answer; seconds."""
        self.kept = KeptAnswers(lambda: site.durability.persisted_end)
        self._reads: dict[tuple[PlainReadHead, bool], PlainRead | None] = {}
        self._requests: dict[tuple[str, WorkerQuery], FilledRequest] = {}
        self._heads: dict[tuple[str, str, str, bool, Headers], bytes] = {}

    # What is asked

    def start(self, head: PlainReadHead, body: bytes, address: str | None, client: ReadClient) -> FastRead | None:
        """Begins to answer a read; None if :mod:`.read_handler` has to. ``address``: of the client."""
        read = head.read or self._read_of(head, body)
        if read is None or address is None:
            return None
        try:
            least = 0 if head.min_position is None else self._reached_index(head.min_position)
        except TxLogError:
            return None
        if least is None:
            return None
        stores = [store for store in self._choice.candidates(least, address) if self._can_answer(store, read)]
        if not stores or not self.connections.has_room(stores[0].worker.url):
            return None
        self._interactive_load.note_request()
        kept = self.kept.find(head, stores[0].worker, time.monotonic()) if stores[0].is_fresh else None
        if kept is not None:
            self.record_answer(stores[0])
            started = FastRead(self, head, read, client, [], may_wait=False)
            started.answer_as(kept)
        elif stores[0].is_fresh:
            fresh = [store for store in stores if store.is_fresh]
            started = FastRead(self, head, read, client, fresh, may_wait=len(fresh) < len(stores))
            started.try_next()
        else:
            started = FastRead(self, head, read, client, stores, may_wait=True)
            started.wait_for_fresh(address, least)
        return started

    def _read_of(self, head: PlainReadHead, body: bytes) -> PlainRead | None:
        if head.statements is None:
            return parse_body(head, body)
        key = (head, self._literals.keeps)
        if key not in self._reads:
            if len(self._reads) >= CACHED_MAX:
                self._reads.clear()
            self._reads[key] = plain_statements(head.statements, as_written=self._literals.keeps)
        return self._reads[key]

    async def fresh_stores(
        self, stores: list[WorkerCandidate], read: PlainRead, address: str, least: int
    ) -> list[WorkerCandidate]:
        """Waits until one of these workers shows nothing older than what this client has seen, but no longer than
        :data:`~.read_router.MONOTONIC_WAIT_S`, as :meth:`.ReadRouter.choose` does."""
        needed = {store.worker.name: store.min_index for store in stores}
        if not await self.reads.wait_any_at(needed, MONOTONIC_WAIT_S):
            self._choice.monotonic_reads.forget(address)
        found = self._choice.candidates(least, address)
        return [store for store in found if store.is_fresh and self._can_answer(store, read)]

    def _reached_index(self, text: str) -> int | None:
        """The index that a read must have reached; None where this log has not, or has another hash there."""
        index, digest = parse_min_position(text)
        durability = self._durability
        if index > durability.stable.value:
            return None
        return None if digest and durability.position_at(index).hash.hex() != digest else index

    @staticmethod
    def _can_answer(store: WorkerCandidate, read: PlainRead) -> bool:
        """Whether one request of plain HTTP to this worker is enough."""
        query = read.build
        if isinstance(query, WorkerQuery) and store.adapter.capabilities.union_of:
            is_union = query.union and not query.default and not query.named
            if is_union and uses_graph_clause(query.text):
                return False
        return worker_address(store.worker.url) is not None

    # What is sent

    def encode_request(self, store: WorkerCandidate, read: PlainRead) -> bytes:
        """The bytes of the request to this worker."""
        url, build, iris = store.worker.url, read.build, read.iris
        if isinstance(build, StatementPattern):
            asked = request_of_pattern(store.adapter, build)
            if isinstance(asked, WorkerRequest):
                return FilledRequest(url, asked).encode(())
            template, names = split_template(asked.text)
            build, iris = asked._replace(text=template), tuple(name.encode() for name in names)
        key = (url, build)
        known = self._requests.get(key)
        if known is None:
            known = FilledRequest(url, query_request(store.adapter.engine, build))
            if len(self._requests) >= CACHED_MAX:
                self._requests.clear()
            self._requests[key] = known
        return known.encode(iris)

    def answer_head(self, store: WorkerCandidate, media: str, headers: Headers, *, cleaned: bool) -> bytes:
        """The head of a complete answer, without its length. ``media``: of the worker's answer, ``headers``: of this
        one. ``cleaned``: as in :func:`.literal_form`."""
        adapter, name = store.adapter, store.worker.name
        key = (name, media, adapter.engine, cleaned, headers)
        known = self._heads.get(key)
        if known is None:
            shown = {"Content-Type": media, "Vary": self._vary, "TxLog-Worker": name, **dict(headers)}
            shown["TxLog-Literals"] = literal_form(adapter.engine, cleaned=cleaned)
            lines = "".join(f"{title}: {value}\r\n" for title, value in shown.items())
            known = f"HTTP/1.1 200 OK\r\n{lines}".encode("latin-1")
            if len(self._heads) >= CACHED_MAX:
                self._heads.clear()
            self._heads[key] = known
        return known

    def record_answer(self, store: WorkerCandidate) -> None:
        """A worker begins an answer: its client reads nothing older later."""
        assert store.client_address is not None
        self._choice.monotonic_reads.record(
            store.client_address, store.worker.name, store.worker.index, self._durability.persisted_end
        )

    def close_idle(self, now: float) -> None:
        """Closes connections to workers that are idle."""
        self.connections.close_idle(now)

    def close(self) -> None:
        """Closes all connections to workers."""
        self.connections.close()


class FastRead:
    """One read: the workers that may answer it, the one that is asked, and what has come of its answer.

    ``is_over``: it was answered, its client has gone, or aiohttp's side answers it. ``may_wait``: besides ``stores``
    there are workers that may answer after some time.
    """

    def __init__(
        self,
        door: FastReads,
        head: PlainReadHead,
        read: PlainRead,
        client: ReadClient,
        stores: list[WorkerCandidate],
        *,
        may_wait: bool,
    ) -> None:
        self.is_over = False
        self._may_wait = may_wait
        self._door = door
        self._asked = head
        self._coding = head.coding
        self._read = read
        self._client = client
        self._stores = stores
        self._store: WorkerCandidate | None = None
        self._connection: WorkerConnection | None = None
        self._began = time.monotonic()
        self._marker: WorkerMarker | None = None
        """Of the worker when it was asked; None where its answer is not kept."""
        self._is_recorded = False
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_streaming = False
        self._steps = AnswerSteps("")
        """What the present worker's answer needs, once its head has come."""

    # The worker

    def try_next(self) -> None:
        """Sends the request to the next worker. Without one, aiohttp's side waits for a worker that is older, or the
        client gets 503."""
        self._leave_worker()
        if not self._stores and self._may_wait:
            self._leave_to_http()
            return
        if not self._stores:
            refused = Unavailable("NoWorker", "no worker of this data centre can be reached; ask again", RETRY_S)
            self._refuse(refused)
            return
        store = self._store = self._stores.pop(0)
        self._is_recorded = False
        self._door.reads.active_reads[store.worker.name] += 1
        self._began = time.monotonic()
        connection = self._door.connections.take(store.worker.url)
        if connection is None:
            self._connect()
        else:
            self._send(connection)

    def wait_for_fresh(self, address: str, least: int) -> None:
        """Sends the request once a worker may answer this client."""
        self._task = asyncio.get_running_loop().create_task(self._send_when_fresh(address, least))

    async def _send_when_fresh(self, address: str, least: int) -> None:
        stores = await self._door.fresh_stores(self._stores, self._read, address, least)
        self._task = None
        if self.is_over:
            return
        self._stores = stores
        if stores:
            self.try_next()
        else:
            self._leave_to_http()

    def _connect(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._send_on_new_connection())

    async def _send_on_new_connection(self) -> None:
        store = self._store
        assert store is not None
        try:
            connection = await self._door.connections.connect(store.worker.url, CONNECT_S)
        except (OSError, TimeoutError):
            self._task = None
            self.try_next()
            return
        self._task = None
        self._send(connection)

    def _send(self, connection: WorkerConnection) -> None:
        assert self._store is not None
        if self._asked.statements is not None:
            self._marker = self._door.kept.marker_at_end(self._store.worker)
        self._connection = connection
        connection.send(self._door.encode_request(self._store, self._read), self)

    def _leave_worker(self) -> None:
        """Nothing more is expected of the present worker."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.release()
        store, self._store = self._store, None
        if store is not None:
            self._door.reads.active_reads[store.worker.name] -= 1

    def on_lost(self) -> None:
        """The worker has broken off. A streamed answer breaks off, too: its own task sees that."""
        connection = self._connection
        if self.is_over or self._is_streaming or connection is None:
            return
        if connection.was_used and not connection.status:
            # The worker was closing an idle connection: it has not seen the request.
            self._connection = None
            self._connect()
        else:
            self.try_next()

    def on_answer(self) -> None:
        """A part of the answer has come."""
        connection, store = self._connection, self._store
        if self._is_streaming or connection is None or store is None:
            return
        if not connection.has_length:
            self._leave_to_http()
            return
        status = connection.status
        if status == 200:
            if not self._is_recorded:
                self._is_recorded = True
                media = connection.media_type or "application/octet-stream"
                self._steps = steps_for(store.adapter, self._read.build, media)._replace(convert=self._read.convert)
                self._door.record_answer(store)
            self._on_good_answer(connection, store)
        elif status in _BROKEN_OFF:
            if connection.is_complete:
                connection.take_body()
            self.try_next()
        elif connection.is_complete or connection.size > ERROR_BYTES_MAX:
            text = connection.take_body()[:ERROR_BYTES_MAX].decode("utf-8", "replace")
            self._refuse(worker_error(status, text))

    def _on_good_answer(self, connection: WorkerConnection, store: WorkerCandidate) -> None:
        small = self._steps.small_bytes
        if connection.is_complete and connection.size <= small:
            if not self._coding or connection.size < OFF_LOOP_BYTES:
                self._answer_whole(connection, store)
            else:
                self._start_stream()
        elif connection.is_complete or connection.size > small:
            self._start_stream()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SMALL_S, self._start_stream)

    # The answer

    def _answer_whole(self, connection: WorkerConnection, store: WorkerCandidate) -> None:
        try:
            body = connection.take_body()
            if self._steps.converts or may_change(body) or b"\r" in body:
                body = self._steps.apply(body)
        except TxLogError as wrong:
            self._refuse(wrong)
            return
        coding = b""
        if self._coding and len(body) >= COMPRESSED_BYTES_MIN:
            body = compress_whole(body, self._coding)
            coding = b"Content-Encoding: %s\r\n" % self._coding.encode()
        head = b"%b%bContent-Length: %d\r\n" % (self._head(connection, store), coding, len(body))
        if self._marker is not None:
            self._door.kept.keep(self._asked, store.worker.name, self._marker, head, body, time.monotonic())
        self._finish(_join(head, body))

    def answer_as(self, kept: KeptAnswer) -> None:
        """Gives an answer that was given before."""
        self._finish(_join(kept.head, kept.body))

    def _head(self, connection: WorkerConnection, store: WorkerCandidate) -> bytes:
        media = connection.media_type or "application/octet-stream"
        return self._door.answer_head(store, media, self._read.headers, cleaned=self._steps.prepare is not None)

    def _finish(self, data: bytes) -> None:
        self._door.reads.completed_reads.add(1000 * (time.monotonic() - self._began))
        self._leave_worker()
        self.is_over = True
        self._client.finish(data)

    def _refuse(self, error: TxLogError) -> None:
        self._leave_worker()
        self.is_over = True
        self._client.finish(encode_response(error_response(error, plain=True)))

    def _leave_to_http(self) -> None:
        self._leave_worker()
        self.is_over = True
        self._client.leave_to_http()

    def _start_stream(self) -> None:
        connection, store = self._connection, self._store
        if self._is_streaming or connection is None or store is None:
            return
        self._is_streaming = True
        self._task = asyncio.get_running_loop().create_task(self._stream(connection, store))

    async def _stream(self, connection: WorkerConnection, store: WorkerCandidate) -> None:
        """Sends a long or a slow answer in pieces. If the worker breaks off, so does this answer."""
        client = self._client
        head, coding = self._head(connection, store), self._coding
        pieces: AsyncIterator[bytes] = self._steps.stream(read_pieces(connection, READ_S))
        try:
            async with closing_stream(pieces):
                if coding:
                    coding, pieces = await compress_unless_short(pieces, coding)
                if coding:
                    head += b"Content-Encoding: %s\r\n" % coding.encode()
                client.write(
                    b"%bTransfer-Encoding: chunked\r\nDate: %b\r\n\r\n" % (head, rfc822_formatted_time().encode())
                )
                async with closing_stream(pieces):
                    async for piece in pieces:
                        if piece:
                            client.write(_PIECE % (len(piece), piece))
                            await client.drain(self._door.client_idle_s)
        except (TimeoutError, OSError, SyntaxError, ValueError, TxLogError):
            self._break_off()
        else:
            self._task = None
            self._finish(b"0\r\n\r\n")

    def _break_off(self) -> None:
        self._task = None
        self._leave_worker()
        self.is_over = True
        self._client.abort()

    # The end

    def check_timeout(self, now: float) -> None:
        """Gives up a worker that does not answer within :data:`~.read_router.READ_S`, or does not complete a refusal. A
        good answer that stops is given up by :meth:`_stream`. ``now``: of the monotonic clock."""
        connection = self._connection
        if connection is None or connection.status == 200 or now - self._began < READ_S:
            return
        self.try_next()

    def cancel(self) -> None:
        """The client has gone: the worker is to stop."""
        self.is_over = True
        if self._task is not None:
            self._task.cancel()
        self._leave_worker()


def _join(head: bytes, body: bytes) -> bytes:
    return b"%bDate: %b\r\n\r\n%b" % (head, rfc822_formatted_time().encode(), body)
