"""The open load: what a stall costs is told of everybody who would have waited, and nothing is lost in silence."""

import socket
import threading
import time

import pytest

from e2e.lib.load.closed_loop import RequestTemplate
from e2e.lib.load.open_loop import OpenLoad

GOOD = b"HTTP/1.1 204 No Content\r\n\r\n"
BAD = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno"


class Server:
    """Answers each request with ``answer``; from ``stall_at`` on nobody is answered until ``stall_until``, seconds
    since the first request; with ``closes``, connections end at their first request."""

    def __init__(self, answer: bytes = GOOD, stall: tuple[float, float] = (0, 0), closes: bool = False) -> None:
        self.answer, self.stall, self.closes = answer, stall, closes
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.began = 0.0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        data = b""
        with sock:
            while chunk := sock.recv(1 << 16):
                data += chunk
                head, found, rest = data.partition(b"\r\n\r\n")
                if not found:
                    continue
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                if len(rest) < length:
                    continue
                data = rest[length:]
                if self.closes:
                    return
                self.began = self.began or time.perf_counter()
                now = time.perf_counter() - self.began
                if self.stall[0] <= now < self.stall[1]:
                    threading.Event().wait(self.stall[1] - now)
                sock.sendall(self.answer)


def load(*urls: str, rate: float = 200) -> OpenLoad:
    return OpenLoad(list(urls), RequestTemplate("r", "synced", 1, "paced"), rate)


def test_every_request_that_falls_into_a_stall_has_waited_for_its_end() -> None:
    server = Server(stall=(0.3, 2.8))
    found = load(server.url)
    found.run(6.0)
    assert len(found.answers) == 1200
    assert not found.wrong
    assert not found.lost
    inside = [answer for answer in found.answers if 1.3 <= answer.due_s < 2.7]  # a second for the first one
    assert len(inside) == 280, "the load went on while no server answered"
    assert all(answer.due_s + answer.took_s > 2.79 for answer in inside)
    p99, p50 = found.quantile_ms(0.99), found.quantile_ms(0.5)
    assert p99 is not None
    assert p50 is not None
    assert p99 > 2000
    assert p50 < p99, "what came before the stall was answered at once"


def test_masters_are_asked_in_turn_and_rates_are_of_answers_that_came() -> None:
    servers = [Server(), Server()]
    found = load(*[server.url for server in servers])
    found.run(0.5)
    counts = [sum(answer.master == server.url for answer in found.answers) for server in servers]
    assert counts == [50, 50]
    assert found.per_s(0.0, 10.0) == pytest.approx(10.0)


def test_what_happens_in_between_happens_at_its_time() -> None:
    server = Server()
    found = load(server.url)
    seen: list[int] = []
    at: list[float] = []
    began = time.perf_counter()

    def act() -> None:
        at.append(time.perf_counter() - began)
        seen.append(len(found.answers))

    found.run(3.0, {0.3: act})
    assert len(at) == 1
    assert at[0] >= 0.3
    assert seen[0] < len(found.answers) == 600, "the load went on after it"


def test_a_bad_answer_is_told_and_ends_the_load() -> None:
    found = load(Server(BAD).url)
    found.run(30.0)
    assert len(found.wrong) == 10
    assert "503" in found.wrong[0]
    assert not found.answers


def test_connections_that_end_and_servers_that_are_gone_are_counted() -> None:
    closing = Server(closes=True)
    found = load(closing.url, rate=50)
    found.run(0.4)
    assert (found.lost, found.answers) == (20, [])
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
    found = load(url, rate=50)
    found.run(0.4)
    assert (found.lost, found.answers) == (20, [])


def test_answers_that_never_come_are_waited_for_no_longer_than_was_said() -> None:
    server = Server(stall=(0.0, 60.0))
    found = load(server.url, rate=50)
    began = time.perf_counter()
    found.run(0.2, patience_s=0.3)
    assert time.perf_counter() - began < 30
    assert found.lost == 10


def test_requests_are_due_at_the_arrivals_that_were_given() -> None:
    found = load(Server().url)
    found.run(0.3, arrivals=[0.0, 0.05, 0.3])
    assert [answer.due_s for answer in found.answers] == [0.0, 0.05, 0.3]
