"""A load generator that costs less than what it measures: keep-alive HTTP/1.1 by hand on epoll.

Each client is one connection in a closed loop: a request, its answer, the next request. Requests are bytes made
of a head and a body that only differs in its numbers; of an answer the status, the end, and now and then the
transaction's name are read. No more HTTP than a master speaks: Content-Length, or chunks that end a line of JSON.
No event loop of asyncio: what stays is a receive, a send, and a few lines between them. Sockets block, but are
read only when epoll reports data, and a master always reads; so neither waits, and no socket has a timer to look after.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import urlsplit

QUAD_BYTES: Final = 200
SAMPLE_EVERY: Final = 1000
"""Of how many acknowledged transactions one is remembered, to be read back afterwards."""

_SUCCESS_STATUSES: Final = (b"204", b"200")
_HEAD_END: Final = b"\r\n\r\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"
RESPONSE_TIMEOUT_S: Final = 30.0
"""No master answers for so long: they are stuck, and the round is over."""
WRONG_ANSWERS_MAX: Final = 10
"""After so many wrong answers the load ends."""


def quad_line(number: int, run: str = "bench") -> bytes:
    """An N-Quads line of 200 bytes, newline included, that no other number has."""
    start = b"<http://example.org/%b/%012d> <http://example.org/says> " % (run.encode(), number)
    graph = b" <http://example.org/graph> .\n"
    return start + b'"' + b"x" * (QUAD_BYTES - len(start) - len(graph) - 2) + b'"' + graph


class AcknowledgedSample(NamedTuple):
    """An acknowledged transaction: which master answered, its name, and the number in its quad."""

    master: str
    txid: str
    number: int


class RequestTemplate:
    """Makes the bytes of requests. ``batch`` 1: N-Quads to the repository's statements, as any RDF4J client does;
    more: that many lines to ``/txlog/transactions``."""

    def __init__(self, repository: str, durability: str, batch: int, run: str, first: int = 0) -> None:
        self.batch = batch
        self.next = first
        path = f"/repositories/{repository}/statements" if batch == 1 else "/txlog/transactions"
        kind = "application/n-quads" if batch == 1 else "application/x-ndjson"
        marked = quad_line(0, run)
        hole = b"%012d" % 0
        assert marked.count(hole) == 1
        line = marked.replace(b"%", b"%%").replace(hole, b"%012d")
        if batch > 1:
            line = b'{"quads":"' + line.rstrip(b"\n").replace(b'"', b'\\"') + b'\\n"}\n'
        self.template = line * batch
        length = len(self.template % tuple(range(batch)))
        self.head = (
            f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: {kind}\r\n"
            f"TxLog-Durability: {durability}\r\nPrefer: wait=30\r\nContent-Length: {length}\r\n\r\n"
        ).encode()

    def next_request(self) -> bytes:
        first = self.next
        self.next = first + self.batch
        return self.head + (self.template % tuple(range(first, first + self.batch)))


class LoadConnection:
    """One connection in a closed loop."""

    __slots__ = ("buffer", "master", "number", "receive", "send", "sent", "socket")

    def __init__(self, master: str) -> None:
        parts = urlsplit(master)
        self.master = master
        self.socket = socket.create_connection((parts.hostname, parts.port), timeout=5)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self.socket.settimeout(None)
        self.receive = self.socket.recv
        self.send = self.socket.sendall
        self.buffer = b""
        self.number = 0
        self.sent = 0.0


class LoadRound(NamedTuple):
    """Transactions acknowledged per second, seconds from request to answer, and what the generator itself used:
    microseconds of processor for each request, percent of a core."""

    per_s: float
    latencies: list[float]
    generator_us: float
    generator_pct: float


class ClosedLoad:
    """``clients`` connections spread over ``masters``, for one round."""

    def __init__(self, masters: list[str], requests: RequestTemplate, clients: int) -> None:
        self.masters = masters
        self.requests = requests
        self.clients = clients
        self.samples: list[AcknowledgedSample] = []
        self.acknowledged = 0
        self.wrong: list[str] = []
        self.latencies: list[float] = []

    def run(self, warm_s: float, seconds: float, begin: Callable[[], None], end: Callable[[], None]) -> LoadRound:
        """Connect, warm up, measure for ``seconds`` (``begin`` and ``end`` are called around it), let what is
        under way end. ``wrong`` is what was not as it should be."""
        epoll = select.epoll()
        clients: dict[int, LoadConnection] = {}
        for at in range(self.clients):
            client = LoadConnection(self.masters[at % len(self.masters)])
            clients[client.socket.fileno()] = client
            epoll.register(client.socket.fileno(), select.EPOLLIN)
        for client in clients.values():
            self._send_next(client)
        try:
            self._poll_until(epoll, clients, time.perf_counter() + warm_s)
            begin()
            self.latencies = []
            before, cpu, began = self.acknowledged, time.process_time(), time.perf_counter()
            self._poll_until(epoll, clients, began + seconds)
            took, cpu = time.perf_counter() - began, time.process_time() - cpu
            latencies, count = self.latencies, self.acknowledged - before
            end()
            self._poll_until(epoll, clients, None)
        finally:
            for client in clients.values():
                client.socket.close()
            epoll.close()
        return LoadRound(count / took, latencies, 1e6 * cpu / max(1, count // self.requests.batch), 100 * cpu / took)

    def _send_next(self, client: LoadConnection) -> None:
        requests = self.requests
        client.number = requests.next
        request = requests.next_request()
        client.sent = time.perf_counter()
        client.send(request)

    def _poll_until(self, epoll: select.epoll, clients: dict[int, LoadConnection], until: float | None) -> None:
        """Answer after answer, each followed by its client's next request; without ``until`` by none, until every
        client has its last answer."""
        clock, batch, waiting = time.perf_counter, self.requests.batch, len(clients)
        ask = self._send_next if until is not None else None
        since_sample = 0
        while waiting and len(self.wrong) < WRONG_ANSWERS_MAX:
            ready = epoll.poll(RESPONSE_TIMEOUT_S)
            if not ready:
                self.wrong.append(f"no answer for {RESPONSE_TIMEOUT_S:g} s")
                return
            for file, _ in ready:
                client = clients[file]
                try:
                    data = client.receive(1 << 18)
                except OSError:
                    data = b""
                if not data:
                    self.wrong.append(f"{client.master} closed a connection")
                    epoll.unregister(file)
                    waiting -= 1
                    continue
                if client.buffer:
                    data = client.buffer + data
                split = data.find(_HEAD_END)
                if split < 0 or not is_complete(data, split):
                    client.buffer = data
                    continue
                client.buffer = b""
                self.latencies.append(clock() - client.sent)
                if is_success(data) and (batch == 1 or data.count(b'"txid"', split) == batch):
                    self.acknowledged += batch
                    since_sample += batch
                    if since_sample >= SAMPLE_EVERY:
                        since_sample -= SAMPLE_EVERY
                        self.samples.append(_parse_sample(client, data, batch))
                else:
                    self.wrong.append(data[:400].decode(errors="replace"))
                if ask is not None and len(self.wrong) < WRONG_ANSWERS_MAX:
                    ask(client)
                else:
                    waiting -= 1
            if until is not None and clock() >= until:
                return


def is_success(data: bytes) -> bool:
    """Whether an answer's status is one of those that are wanted."""
    return data[9:12] in _SUCCESS_STATUSES


def is_complete(data: bytes, split: int) -> bool:
    """Whether the answer whose head ends at ``split`` is there to its last byte."""
    if data[9:12] == b"204":
        return True
    head = data[:split].lower()
    at = head.find(b"content-length:")
    if at < 0:
        return data.endswith(_LAST_CHUNK)
    end = head.find(b"\r\n", at)
    return len(data) >= split + 4 + int(head[at + 15 : end if end >= 0 else split])


def _parse_sample(client: LoadConnection, data: bytes, batch: int) -> AcknowledgedSample:
    if batch == 1:
        at = data.lower().find(b"txlog-transaction:")
        name = data[at + 18 : data.find(b"\r\n", at)].strip() if at >= 0 else b""
    else:
        at = data.find(b'"txid":"')
        name = data[at + 8 : data.find(b'"', at + 8)] if at >= 0 else b""
    return AcknowledgedSample(client.master, name.decode(), client.number)
