"""The link proxies as they run: their own process, real sockets."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.lib.ports import free_port

DEADLINE = 60.0


class Far:
    """The master b: takes connections, hands out their sockets."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(DEADLINE)
        self.port = self.listener.getsockname()[1]

    def accept(self) -> socket.socket:
        sock, _ = self.listener.accept()
        sock.settimeout(DEADLINE)
        return sock


class Proxy:
    """A proxy process with the links a→b and b→a."""

    def __init__(self, folder: Path, far: Far) -> None:
        self.ports = {"a": free_port(), "b": free_port()}
        config = folder / "links.json"
        config.write_text(
            json.dumps(
                [
                    {"source": "a", "target": "b", "listen_port": self.ports["a"], "target_port": far.port},
                    {"source": "b", "target": "a", "listen_port": self.ports["b"], "target_port": far.port},
                ]
            )
        )
        mine, theirs = socket.socketpair()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "txlog.local.link_proxy", "--config", config, "--control-fd", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        mine.settimeout(DEADLINE)
        self.control = mine
        self.lines = mine.makefile("r")
        self.set()

    def set(self, *rows: dict[str, Any]) -> list[dict[str, Any]]:
        self.control.sendall(json.dumps({"id": 1, "table": rows}).encode() + b"\n")
        links: list[dict[str, Any]] = json.loads(self.lines.readline())["links"]
        return links

    def connect(self, source: str = "a") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.ports[source]), DEADLINE)


def cut(source: str, target: str) -> dict[str, Any]:
    return {"from": source, "to": target, "cut": True}


def slow(milliseconds: float) -> tuple[dict[str, Any], dict[str, Any]]:
    return (
        {"from": "a", "to": "b", "delayMs": milliseconds},
        {"from": "b", "to": "a", "delayMs": milliseconds},
    )


@pytest.fixture
def far() -> Iterator[Far]:
    far = Far()
    yield far
    far.listener.close()


@pytest.fixture
def proxy(tmp_path: Path, far: Far) -> Iterator[Proxy]:
    proxy = Proxy(tmp_path, far)
    yield proxy
    proxy.control.close()
    proxy.lines.close()
    assert proxy.process.wait(DEADLINE) == 0


def read(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(1 << 20)
        if not more:
            break
        data += more
    return data


def silent(sock: socket.socket, seconds: float = 0.15) -> bool:
    """Nothing is heard for a while: no byte, no end, no reset."""
    sock.settimeout(seconds)
    try:
        sock.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return True
    finally:
        sock.settimeout(DEADLINE)
    return False


def eventually(true: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not true():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.01)


def test_bytes_go_both_ways_and_ends_are_passed_on(proxy: Proxy, far: Far) -> None:
    near = proxy.connect()
    other = far.accept()
    near.sendall(b"question")
    assert read(other, 8) == b"question"
    near.shutdown(socket.SHUT_WR)
    assert other.recv(1) == b""
    other.sendall(b"answer")  # a half-closed connection still answers
    assert read(near, 6) == b"answer"
    other.close()
    assert near.recv(1) == b""
    near.close()
    eventually(lambda: all(link["connections"] == 0 for link in proxy.set()))


def test_a_reset_is_a_reset_on_the_other_side(proxy: Proxy, far: Far) -> None:
    near = proxy.connect()
    other = far.accept()
    near.sendall(b"x")
    read(other, 1)
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    near.close()
    with pytest.raises(ConnectionResetError):
        other.recv(1)
    eventually(lambda: all(link["connections"] == 0 for link in proxy.set()))


def test_a_master_that_does_not_listen_is_not_reached(proxy: Proxy, far: Far) -> None:
    far.listener.close()
    with pytest.raises(ConnectionError):  # the reset may be there before connect() returns
        read(proxy.connect(), 1)


def pump(sock: socket.socket, data: bytes) -> threading.Thread:
    thread = threading.Thread(target=sock.sendall, args=(data,), daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("milliseconds", [0, 30])
def test_much_data_arrives_whole_in_order_and_without_collapse(proxy: Proxy, far: Far, milliseconds: int) -> None:
    proxy.set(*slow(milliseconds))
    near = proxy.connect()
    other = far.accept()
    data = os.urandom(1 << 20) * 48
    began = time.monotonic()
    sender = pump(near, data)
    assert read(other, len(data)) == data
    assert time.monotonic() - began < 30  # one window of 64 KiB in each 60 ms would take 46 s
    sender.join(DEADLINE)


def test_a_slow_link_delays_each_way_and_can_change(proxy: Proxy, far: Far) -> None:
    proxy.set(*slow(60))
    began = time.monotonic()
    near = proxy.connect()
    other = far.accept()
    assert time.monotonic() - began >= 0.119  # the handshake takes a round trip
    began = time.monotonic()
    near.sendall(b"question")
    assert read(other, 8) == b"question"
    assert time.monotonic() - began >= 0.059
    other.sendall(b"answer")
    assert read(near, 6) == b"answer"
    assert time.monotonic() - began >= 0.118
    proxy.set(*slow(60_000))
    near.sendall(b"on its way")
    assert silent(other)
    proxy.set()
    assert read(other, 10) == b"on its way"


def test_a_cut_link_is_silent_and_goes_on_where_it_was(proxy: Proxy, far: Far) -> None:
    near = proxy.connect()
    other = far.accept()
    near.sendall(b"1")
    assert read(other, 1) == b"1"
    proxy.set(cut("a", "b"), cut("b", "a"))
    near.sendall(b"234")
    other.sendall(b"abc")
    assert silent(other)
    assert silent(near)
    proxy.set()
    near.sendall(b"5")
    assert read(other, 4) == b"2345"
    assert read(near, 3) == b"abc"


def test_a_cut_link_holds_back_a_bounded_number_of_bytes(proxy: Proxy, far: Far) -> None:
    near = proxy.connect()
    other = far.accept()
    proxy.set(cut("a", "b"))
    near.setblocking(False)
    data = bytes(1 << 20)
    sent = 0
    with contextlib.suppress(BlockingIOError):
        while sent < 256 << 20:
            sent += near.send(data)
    assert sent < 64 << 20
    near.settimeout(DEADLINE)
    proxy.set()
    assert len(read(other, sent)) == sent


def test_the_end_of_a_connection_does_not_cross_a_cut(proxy: Proxy, far: Far) -> None:
    near = proxy.connect()
    other = far.accept()
    near.sendall(b"1")
    assert read(other, 1) == b"1"
    proxy.set(cut("a", "b"))
    near.sendall(b"2")
    near.close()
    assert silent(other)
    proxy.set()
    assert read(other, 10) == b"2"


def test_one_direction_can_be_cut_alone_whoever_opened(proxy: Proxy, far: Far) -> None:
    opened_by_a, at_b = proxy.connect("a"), far.accept()
    opened_by_b, at_a = proxy.connect("b"), far.accept()
    proxy.set(cut("a", "b"))
    for a_end, b_end in ((opened_by_a, at_b), (at_a, opened_by_b)):
        b_end.sendall(b"from b")
        assert read(a_end, 6) == b"from b"
        a_end.sendall(b"from a")
        assert silent(b_end)
    proxy.set()
    for b_end in (at_b, opened_by_b):
        assert read(b_end, 6) == b"from a"


@pytest.mark.parametrize("directions", [[("a", "b")], [("b", "a")], [("a", "b"), ("b", "a")]])
def test_new_connections_over_a_cut_hang_and_never_arrive(
    proxy: Proxy, far: Far, directions: list[tuple[str, str]]
) -> None:
    proxy.set(*(cut(*each) for each in directions))
    near = proxy.connect()
    near.sendall(b"too early")
    assert silent(near)
    proxy.set()
    with pytest.raises(ConnectionError):
        assert near.recv(1) != b""
    fresh = proxy.connect()
    fresh.sendall(b"now")
    assert read(far.accept(), 3) == b"now"


def test_a_cut_during_a_slow_handshake_holds_the_connection(proxy: Proxy, far: Far) -> None:
    proxy.set(*slow(100))
    near = proxy.connect()
    proxy.set(cut("a", "b"))
    near.sendall(b"x")
    assert silent(near, 0.4)
    proxy.set()
    with pytest.raises(ConnectionError):
        assert near.recv(1) != b""


def test_the_proxy_ends_with_its_supervisor(tmp_path: Path, far: Far) -> None:
    proxy = Proxy(tmp_path, far)
    proxy.control.shutdown(socket.SHUT_RDWR)
    assert proxy.process.wait(DEADLINE) == 0
