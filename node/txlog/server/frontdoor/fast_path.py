"""The fast path for plain writes and reads: most requests are answered without a task, a stream or a request object.

Every connection begins here. The fast path recognises a whole, ordinary ``POST`` to a repository's statements by its
bytes, prepares it and submits it to the loop of that repository's log. The loop notifies it through the watermark, and
it answers in the same turn of the loop. It sends a plain read to a worker (:mod:`.fast_reads`). A request of any other
kind hands the connection over to aiohttp, with every byte received; a later plain one brings it back
(:mod:`.http_connection`). Such a request has another path, a chunked or large body, ``Expect`` or an unusual header. It
may also need a refusal before it is accepted. Only aiohttp interprets HTTP in general; this module knows a few exact
forms (:mod:`.plain_heads`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, cast

from txlog.auth.authenticator import Authenticator
from txlog.http.aiohttp_server import RequestServer
from txlog.http.router import encode_response, error_response
from txlog.http.write_options import WriteOptions
from txlog.model.durability import Durability
from txlog.model.entry import KIND_QUADS
from txlog.model.errors import TxLogError
from txlog.model.hashes import content_hash
from txlog.model.synchronous import NO_REQUEST
from txlog.protocol.events import Submission
from txlog.runtime.master_loop import MasterLoop, PendingWrite
from txlog.runtime.transaction_traces import TransactionTraces, WriteTrace
from txlog.server.frontdoor.fast_reads import FastRead, FastReads
from txlog.server.frontdoor.head_templates import HeadKey, split_head
from txlog.server.frontdoor.http_connection import HttpConnection
from txlog.server.frontdoor.plain_heads import PlainWriteHead, parse_request_head, recognise_write
from txlog.server.frontdoor.plain_queries import PlainReadHead, recognise_read
from txlog.server.frontdoor.plain_statements import recognise_statements
from txlog.server.frontdoor.request_parameters import PATH_PREFIXES
from txlog.server.frontdoor.synchronous_door import OFF_LOOP_BYTES, is_synchronous, level_of
from txlog.server.frontdoor.write_handler import WriteHandler
from txlog.server.frontdoor.write_responses import accepted_txid
from txlog.sparql import parse_plain_quad

HEAD_BYTES_MAX: Final = 4096
BODY_BYTES_MAX: Final = 64 << 10
PIPELINED_BYTES_MAX: Final = 256 << 10
"""Bytes of pipelined requests that a client sends before it has its answer; above it, the connection stops reading."""
TICK_S: Final = 0.5
CACHED_HEADS_MAX: Final = 512
"""Number of recognised heads in the cache: a client sends the same head again and again."""


class FastPathLog:
    """One log that takes plain writes and answers plain queries (``reads``). ``level`` and ``timeout_s``: defaults of a
    write that does not set them. ``traces``: records writes; None records none."""

    def __init__(
        self,
        name: str,
        writes: WriteHandler,
        reads: FastReads,
        loop: MasterLoop,
        level: Durability,
        timeout_s: float,
        traces: TransactionTraces | None,
    ) -> None:
        self.name = name
        self.reads = reads
        self.traces = traces
        self.writes = writes
        self.loop = loop
        self.response_formatter = writes.response_formatter
        self.level = level
        self.timeout_s = timeout_s
        self.bytes_max = min(BODY_BYTES_MAX, writes.bytes_max)
        self.read_paths = frozenset(f"{prefix}/repositories/{name}".encode() for prefix in PATH_PREFIXES)
        self.paths = frozenset(path + b"/statements" for path in self.read_paths)


class FastPath:
    """All connections that have sent only plain requests so far.

    ``idle_s``: how long a connection may be silent. ``make_server``: makes aiohttp's side of one. ``guard``: admits
    only clients that it knows; None admits every client.
    """

    def __init__(
        self, idle_s: float, make_server: Callable[[], RequestServer], guard: Authenticator | None = None
    ) -> None:
        self.make_server = make_server
        self.guard = guard
        self.connections: set[FastPathConnection] = set()
        self.closing = False
        self._logs: dict[bytes, FastPathLog] = {}
        self._read_logs: dict[bytes, FastPathLog] = {}
        self._head_cache: dict[bytes, tuple[PlainWriteHead | PlainReadHead, FastPathLog]] = {}
        self._templates: dict[HeadKey, tuple[PlainReadHead, FastPathLog]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._idle_s = idle_s

    def add_log(self, log: FastPathLog) -> None:
        """From now on, plain writes and queries to this log's paths are recognised."""
        self._logs.update(dict.fromkeys(log.paths, log))
        self._read_logs.update(dict.fromkeys(log.read_paths, log))
        self._head_cache.clear()
        self._templates.clear()

    def remove_log(self, name: str) -> None:
        """From now on the ordinary path answers what is about this repository."""
        for read_log in {log for log in self._read_logs.values() if log.name == name}:
            read_log.reads.close()
        for logs in (self._logs, self._read_logs):
            for path in [path for path, log in logs.items() if log.name == name]:
                del logs[path]
        self._head_cache.clear()
        self._templates.clear()

    def new_connection(self) -> FastPathConnection:
        """The protocol of a new connection."""
        return FastPathConnection(self)

    def take_back(self, transport: asyncio.Transport, data: bytes, leave: Callable[[], None]) -> bool:
        """Takes a connection back from aiohttp if its next request is plain. ``leave``: ends aiohttp's side."""
        end = data.find(b"\r\n\r\n")
        if end < 0 or self.closing or self.parse_head(data[:end]) is None:
            return False
        leave()
        connection = FastPathConnection(self, was_with_http=True)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        connection.data_received(data)
        return True

    def parse_head(self, data: bytes) -> tuple[PlainWriteHead | PlainReadHead, FastPathLog] | None:
        """The parsed head and its log, or None if it has neither of the exact forms."""
        known = self._head_cache.get(data)
        if known is not None:
            return known
        key, iris = split_head(data)
        template = self._templates.get(key) if iris else None
        if template is not None:
            return template[0].with_iris(iris), template[1]
        request = parse_request_head(data)
        if request is None:
            return None
        head: PlainWriteHead | PlainReadHead | None
        path = request.target.partition(b"?")[0]
        log = self._logs.get(path)
        if log is not None and request.method == b"GET":
            head = recognise_statements(request)
        elif log is not None:
            head = recognise_write(request, log.paths, log.level, log.timeout_s, log.bytes_max)
        else:
            log = self._read_logs.get(path)
            if log is None:
                return None
            head = recognise_read(request)
        if head is None:
            return None
        found = (head, log)
        if is_kept(head):
            if len(self._head_cache) >= CACHED_HEADS_MAX:
                self._head_cache.clear()
            self._head_cache[data] = found
        elif isinstance(head, PlainReadHead) and head.is_template_of(request.target, iris):
            if len(self._templates) >= CACHED_HEADS_MAX:
                self._templates.clear()
            self._templates[key] = (head, log)
        return found

    # Time-outs

    def add_connection(self, connection: FastPathConnection) -> None:
        """Watches the time-outs of a connection until it ends or is handed over."""
        self.connections.add(connection)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._check_timeouts)

    def _check_timeouts(self) -> None:
        """Answers 202 to a request whose time is over; closes a connection that has been idle for too long."""
        loop = asyncio.get_running_loop()
        now = time.monotonic()
        for connection in list(self.connections):
            connection.check_timeout(now, self._idle_s)
        for log in self._read_logs.values():
            log.reads.close_idle(now)
        self._timer = loop.call_later(TICK_S, self._check_timeouts) if self.connections else None

    async def close(self, timeout_s: float) -> None:
        """Accepts no more requests; answers in progress get ``timeout_s``."""
        self.closing = True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        # Polled: it happens once, and an answer has no event for it.
        while any(c.is_busy for c in self.connections) and loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.close()
        for log in self._read_logs.values():
            log.reads.close()
        if self._timer is not None:
            self._timer.cancel()


def is_kept(head: PlainWriteHead | PlainReadHead) -> bool:
    """Whether a client may send this head again. The next one has another traceparent, or asks about another IRI."""
    if isinstance(head, PlainReadHead):
        return head.read is None or not head.read.iris
    return not head.options.traceparent


class FastPathWaiter:
    """The waiter of one write. When a level is reached that was waited for in vain, its connection may have a later
    write: that one is not answered."""

    __slots__ = ("_connection",)

    def __init__(self, connection: FastPathConnection) -> None:
        self._connection: FastPathConnection | None = connection

    def done(self) -> bool:
        """Whether the write was answered, so that the watermark drops this waiter."""
        return self._connection is None

    def set_result(self, reached: bool, /) -> None:
        """Answers the write. ``reached``: it has reached its level; False at the time-out."""
        if self._connection is not None:
            self._connection.on_result(reached)

    def end(self) -> None:
        """The write was answered, or its client has disconnected."""
        self._connection = None


class FastPathConnection(asyncio.Protocol):
    """The connection of one client. There is one request at a time, the next ones wait as bytes."""

    def __init__(self, all_: FastPath, *, was_with_http: bool = False) -> None:
        self._fast_path = all_
        self._was_with_http = was_with_http
        self._transport: asyncio.Transport | None = None
        self._data = b""
        self._options: WriteOptions | None = None
        self._log: FastPathLog | None = None
        self._write: PendingWrite | None = None
        self._waiter: FastPathWaiter | None = None
        self._read: FastRead | None = None
        self._request = b""
        """The query that is in progress, as sent: aiohttp's side may have to answer it."""
        self._address: str | None = None
        self._trace: WriteTrace | None = None
        self._last_activity = time.monotonic()
        self._paused = False
        self._writable: asyncio.Event | None = None
        """Set while the client reads what is sent; None before it was ever too slow."""

    @property
    def is_busy(self) -> bool:
        """Whether a request waits for its answer."""
        return self._write is not None or self._read is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes over the transport."""
        self._transport = cast(asyncio.Transport, transport)
        remote = transport.get_extra_info("peername")
        self._address = str(remote[0]) if isinstance(remote, tuple) else None
        self._fast_path.add_connection(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has disconnected: its write goes on, and is not answered. Its read ends."""
        self._transport = None
        self._fast_path.connections.discard(self)
        self._finish_request()
        read, self._read = self._read, None
        if read is not None:
            read.cancel()
        if self._writable is not None:
            self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Parses the next request, or keeps the bytes while one is in progress."""
        self._data = self._data + data if self._data else data
        if self._write is None and self._read is None:
            self._parse_next()
        elif len(self._data) > PIPELINED_BYTES_MAX and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def _parse_next(self) -> None:
        """Parses the next request once it has arrived completely."""
        data = self._data
        split = data.find(b"\r\n\r\n")
        if split < 0:
            if not data.startswith((b"POST "[: len(data)], b"GET "[: len(data)])) or len(data) > HEAD_BYTES_MAX:
                self._switch_to_http()
            return
        found = None if self._fast_path.closing else self._fast_path.parse_head(data[:split])
        if found is None:
            self._switch_to_http()
            return
        head, log = found
        end = split + 4 + head.content_length
        if len(data) < end:
            return
        guard = self._fast_path.guard
        if isinstance(head, PlainReadHead):
            if guard is not None and not guard.may_read(head.authorization, log.name):
                self._leave_plain_to_http()
                return
            self._data, self._request = data[end:], data[:end]
            self._start_read(head, log, data[split + 4 : end])
            return
        if guard is not None and not guard.may_write(head.authorization, log.name):
            self._leave_plain_to_http()  # aiohttp's side authenticates, and refuses by name
            return
        if self._submit(head, log, data[split + 4 : end]):
            self._data = data[end:]
        else:
            self._leave_plain_to_http()

    def _start_read(self, head: PlainReadHead, log: FastPathLog, body: bytes) -> None:
        read = log.reads.start(head, body, self._address, self)
        if read is None:
            self.leave_to_http()
        elif not read.is_over:
            self._read = read

    def _submit(self, head: PlainWriteHead, log: FastPathLog, body: bytes) -> bool:
        """False when the request must be refused: aiohttp's side finds the same error and reports it."""
        key, loop, writes = head.key, log.loop, log.writes
        if loop.end_reason is not None or loop.durability.is_aborted:
            return False
        options = head.options
        try:
            kind, payload = KIND_QUADS, parse_plain_quad(body) if head.media_type == "application/n-quads" else None
            if payload is None:
                prepared = writes.prepare_plain(body, head.media_type)
                kind, payload = prepared.kind, prepared.payload
            else:
                writes.check_plain_quad(payload)
            submission = Submission(kind, key, payload, content_hash(kind, key, payload))
            if writes.synchronous_door.rules:
                if len(payload) >= OFF_LOOP_BYTES:
                    return False  # aiohttp's side reads it in a thread
                submission = writes.synchronous_door.convert(submission, NO_REQUEST)
                if is_synchronous(submission):
                    options = options._replace(level=level_of(options))
            waiter = FastPathWaiter(self)
            write = PendingWrite([submission], options.level, waiter)
            loop.enqueue(write)
        except TxLogError:
            return False
        loop.in_flight += 1
        self._log, self._write, self._options, self._waiter = log, write, options, waiter
        if log.traces is not None:
            self._trace = log.traces.begin(write, options.traceparent)
        self._last_activity = time.monotonic()
        return True

    def leave_to_http(self) -> None:
        """Nothing of an answer was sent: aiohttp's side answers this request."""
        self._read = None
        self._data, self._request = self._request + self._data, b""
        if self._transport is not None:
            self._leave_plain_to_http()

    def _leave_plain_to_http(self) -> None:
        """Leaves a request to aiohttp that looked plain. The second one of a connection stays there with it, so that
        a connection does not change sides for each request."""
        self._switch_to_http(stays=self._was_with_http)

    def _switch_to_http(self, *, stays: bool = False) -> None:
        transport, data = self._transport, self._data
        assert transport is not None
        self._fast_path.connections.discard(self)
        self._transport, self._data = None, b""
        server = self._fast_path.make_server()
        protocol = server if stays else HttpConnection(server, self._fast_path.take_back)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if self._paused:
            transport.resume_reading()
        protocol.data_received(data)

    def on_result(self, reached: bool) -> None:
        """Answers the waiting write. ``reached``: it has reached its level; False at the time-out."""
        log, write, asked = self._log, self._write, self._options
        if log is None or write is None or asked is None:
            return
        txid = accepted_txid(write, reached)
        committed = is_synchronous(write.batch[-1])
        if txid is not None and not (committed and write.level is Durability.ACCEPTED):
            self._send(log.response_formatter.format_success(txid, write.level, committed=committed))
        else:
            self._options = None  # so that it is answered only once
            asyncio.get_running_loop().create_task(self._respond(log.writes, write, asked, reached))

    async def _respond(self, writes: WriteHandler, write: PendingWrite, asked: WriteOptions, reached: bool) -> None:
        try:
            if is_synchronous(write.batch[-1]):
                answer = await writes.synchronous_response(write, asked)
            else:
                answer = await writes.final_response(write, asked, reached)
        except TxLogError as refused:
            answer = error_response(refused, plain=True)
        if self._write is write:
            self._send(encode_response(answer))

    def _send(self, answer: bytes) -> None:
        self._finish_request()
        self.finish(answer)

    # A read's answer

    def write(self, data: bytes) -> None:
        """Sends a part of an answer."""
        if self._transport is not None:
            self._transport.write(data)

    def finish(self, answer: bytes) -> None:
        """Sends the last part of an answer, and goes on with the next request."""
        self._read = None
        self._last_activity = time.monotonic()
        if self._transport is None:
            return
        self._transport.write(answer)
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        if self._data:
            asyncio.get_running_loop().call_soon(self._resume)

    def _resume(self) -> None:
        if self._transport is not None and not self.is_busy and self._data:
            self._parse_next()

    def abort(self) -> None:
        """Closes the connection at once: the client sees an incomplete answer."""
        self._read = None
        if self._transport is not None:
            self._transport.abort()

    def pause_writing(self) -> None:
        """The client reads more slowly than it is sent to."""
        if self._writable is None:
            self._writable = asyncio.Event()
        self._writable.clear()

    def resume_writing(self) -> None:
        """The client has read most of what was sent."""
        if self._writable is not None:
            self._writable.set()

    async def drain(self, seconds: float) -> None:
        """Waits until the client has read most of what was sent. ``TimeoutError`` after ``seconds``."""
        if self._writable is not None and not self._writable.is_set():
            async with asyncio.timeout(seconds):
                await self._writable.wait()

    def _finish_request(self) -> None:
        if self._waiter is not None and self._log is not None:
            self._waiter.end()
            self._log.loop.in_flight -= 1
            self._log, self._write, self._options, self._waiter = None, None, None, None
            if self._trace is not None:
                self._trace.end()
                self._trace = None

    def check_timeout(self, now: float, idle_s: float) -> None:
        """Answers a write whose time is over, or closes an idle connection. ``now`` and ``idle_s`` are seconds of the
        monotonic clock."""
        asked = self._options
        if asked is not None and now - self._last_activity >= asked.timeout_s:
            self.on_result(False)
        elif self._read is not None:
            self._read.check_timeout(now)
        elif self._write is None and now - self._last_activity > idle_s:
            self.close()

    def close(self) -> None:
        """Closes the connection, if it still has one."""
        if self._transport is not None:
            self._transport.close()
