"""What is known of a request that got no answer decides what may be done next."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from oxigraph_process import ADAPTER, OxigraphProcess

from txlog.workers.adapter import EMPTY_MARKER, RequestOutcome, Unreachable, WorkerRequest
from txlog.workers.http_transport import HttpTransport

ASK = WorkerRequest("POST", "/query", {"Content-Type": "application/sparql-query"}, b"ASK {}")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Name: Value\r\n\r\nok"

Reply = Callable[[socket.socket], None]


class Scripted:
    """Answers one connection after the other as told, whatever is asked."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/base"
        self.heard: list[bytes] = []
        self.threads: list[threading.Thread] = []
        self.open: list[socket.socket] = []
        self.accepted: list[threading.Event] = []

    def replies(self, *replies: bytes | None, close: bool = True) -> None:
        """On one connection: one reply for each request; None says nothing. In the order of the calls."""
        before = self.accepted[-1] if self.accepted else None
        accepted = threading.Event()
        self.accepted.append(accepted)

        def serve() -> None:
            if before is not None:
                before.wait(10)
            connection, _ = self.listener.accept()
            accepted.set()
            self.open.append(connection)
            for reply in replies:
                self.heard.append(connection.recv(65536))
                if reply is not None:
                    connection.sendall(reply)
            if close:
                connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        self.threads.append(thread)

    def done(self) -> None:
        for thread in self.threads:
            thread.join(10)


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    server = Scripted()
    yield server
    server.listener.close()
    for connection in server.open:
        connection.close()


def fate_of(transport: HttpTransport, request: WorkerRequest = ASK) -> RequestOutcome:
    with pytest.raises(Unreachable) as caught:
        transport.send(request)
    assert transport.url in str(caught.value)
    return caught.value.fate


def test_an_answer_is_an_answer_whatever_its_status(scripted: Scripted) -> None:
    scripted.replies(OK, OK.replace(b"200 OK", b"500 Oh"))
    with HttpTransport(scripted.url) as transport:
        answer = transport.send(ASK)
        assert (answer.status, answer.headers["x-name"], answer.body, answer.ok) == (200, "Value", b"ok", True)
        assert transport.send(ASK).status == 500
    assert scripted.heard[0].startswith(b"POST /base/query HTTP/1.1\r\n")
    assert b"Content-Length: 6\r\n" in scripted.heard[0]


def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    assert fate_of(HttpTransport(url)) is RequestOutcome.NOT_SENT


def test_no_answer_in_time(scripted: Scripted) -> None:
    scripted.replies(None, close=False)
    assert fate_of(HttpTransport(scripted.url, 0.1)) is RequestOutcome.UNKNOWN


def test_a_request_that_was_given_up_is_watched_until_it_is_over(scripted: Scripted) -> None:
    scripted.replies(None, close=False)
    scripted.replies(OK, OK, close=False)
    with HttpTransport(scripted.url, 0.1) as transport:
        assert fate_of(transport) is RequestOutcome.UNKNOWN
        assert not transport.settled()
        assert transport.send(ASK).ok  # over another connection
        assert not transport.settled()
        scripted.open[0].sendall(OK)
        deadline = time.monotonic() + 10
        while not transport.settled():
            assert time.monotonic() < deadline
        assert transport.send(ASK).ok


def test_a_store_that_hangs_does_not_collect_the_connections_of_checks(scripted: Scripted) -> None:
    """It would cost all workers of the process their connections, some hours later."""
    checks = [
        ADAPTER.read_system(),
        ADAPTER.is_empty(),
        ADAPTER.is_at(EMPTY_MARKER),
        ADAPTER.counts(),
        ADAPTER.snapshot(),
    ]
    for _ in checks:
        scripted.replies(None, close=False)
    with HttpTransport(scripted.url, 0.05) as transport:
        before = len(os.listdir("/proc/self/fd"))
        for check in checks:
            assert fate_of(transport, check) is RequestOutcome.UNKNOWN
        assert transport.settled()
        assert len(os.listdir("/proc/self/fd")) - before <= len(checks), "the ends of the script alone"


def test_a_request_that_was_given_up_is_over_when_the_worker_dies(scripted: Scripted) -> None:
    scripted.replies(None, close=False)
    with HttpTransport(scripted.url, 0.1) as transport:
        assert fate_of(transport) is RequestOutcome.UNKNOWN
        assert not transport.settled()
        scripted.open[0].close()
        deadline = time.monotonic() + 10
        while not transport.settled():
            assert time.monotonic() < deadline


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this"])
def test_the_worker_dies_before_or_within_its_answer(scripted: Scripted, said: bytes) -> None:
    scripted.replies(said)
    assert fate_of(HttpTransport(scripted.url)) is RequestOutcome.CLOSED


@pytest.mark.parametrize(
    ("status", "fate"), [(503, RequestOutcome.NOT_SENT), (502, RequestOutcome.UNKNOWN), (504, RequestOutcome.UNKNOWN)]
)
def test_transient_statuses(scripted: Scripted, status: int, fate: RequestOutcome) -> None:
    scripted.replies(OK.replace(b"200", b"%d" % status))
    assert fate_of(HttpTransport(scripted.url)) is fate


@pytest.mark.parametrize(("status", "timed_out"), [(502, False), (503, False), (504, True)])
def test_a_proxy_that_stopped_waiting_is_a_time_out(scripted: Scripted, status: int, timed_out: bool) -> None:
    scripted.replies(OK.replace(b"200", b"%d" % status))
    with pytest.raises(Unreachable) as caught:
        HttpTransport(scripted.url).send(ASK)
    assert isinstance(caught.value.__cause__, TimeoutError) is timed_out


@pytest.mark.parametrize("status", [413, 500])
def test_a_refusal_before_the_whole_body_was_sent_is_an_answer(scripted: Scripted, status: int) -> None:
    """A proxy, or a server with a bound, answers and closes. It has not ended, and it will not execute anything."""
    scripted.replies(OK.replace(b"200 OK", b"%d No" % status))
    answer = HttpTransport(scripted.url, 20.0).send(WorkerRequest("POST", "/update", body=b"x" * (16 << 20)))
    assert (answer.status, answer.body) == (status, b"ok")


@pytest.mark.parametrize("said", [b"", b"no HTTP", OK])
def test_a_connection_that_ends_while_the_body_is_sent_is_no_answer(scripted: Scripted, said: bytes) -> None:
    """Nor is a 2xx one: what was not sent was not executed."""
    scripted.replies(said)
    with pytest.raises(Unreachable) as caught:
        HttpTransport(scripted.url, 20.0).send(WorkerRequest("POST", "/update", body=b"x" * (16 << 20)))
    assert caught.value.fate is RequestOutcome.CLOSED


def test_a_connection_that_was_closed_while_idle_is_replaced_before_sending(scripted: Scripted) -> None:
    scripted.replies(OK)
    scripted.replies(OK)
    with HttpTransport(scripted.url) as transport:
        assert transport.send(ASK).ok
        scripted.threads[0].join(10)
        scripted.open[0].close()
        assert transport.send(ASK).ok
    scripted.done()
    assert len(scripted.heard) == 2


def test_it_works_again_after_a_failure(scripted: Scripted) -> None:
    scripted.replies(b"")
    scripted.replies(OK)
    transport = HttpTransport(scripted.url)
    assert fate_of(transport) is RequestOutcome.CLOSED
    assert transport.send(ASK).ok


@pytest.mark.parametrize("url", ["ftp://host", "http://", "host:80", ""])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(ValueError, match="looks like http://"):
        HttpTransport(url)


def test_streaming_in_pieces_beside_other_requests(worker: OxigraphProcess) -> None:
    body = b"".join(b"<urn:s:%d> <urn:p> <urn:o> .\n" % n for n in range(50_000))
    assert worker.send(ADAPTER.load(body)).ok
    with worker.transport.stream(ADAPTER.snapshot()) as answer:
        assert answer.status == 200
        first = next(answer.chunks)
        assert worker.send(ASK).ok
        assert sorted((first + b"".join(answer.chunks)).splitlines()) == sorted(body.splitlines())


@pytest.mark.parametrize(
    "cut",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nonly\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\nonly",
    ],
)
def test_a_stream_that_is_cut_is_no_end(scripted: Scripted, cut: bytes) -> None:
    scripted.replies(cut)
    with pytest.raises(Unreachable), HttpTransport(scripted.url).stream(ASK) as answer:
        b"".join(answer.chunks)
