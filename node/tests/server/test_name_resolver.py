"""A name server that does not answer holds up its own names only."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop
from aiohttp import ClientSession, TCPConnector, web

import txlog
from txlog.http.name_resolver import NameResolver, resolve_name
from txlog.server.frontdoor.worker_connections import WorkerConnections

NEAR = "worker-1.uk.example"


class NameServers:
    """``near`` answers at once; what ends with ``far.example`` waits until the test lets it go."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.let_go = threading.Event()

    def getaddrinfo(self, host: str, port: int | None, **_: object) -> list[tuple[object, ...]]:
        self.asked[host] += 1
        if host.endswith("far.example"):
            assert self.let_go.wait(60)
            raise socket.gaierror(f"no server knows {host}")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))] * 2


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServers]:
    made = NameServers()
    monkeypatch.setattr(socket, "getaddrinfo", made.getaddrinfo)
    yield made
    made.let_go.set()


@asynccontextmanager
async def hello_server() -> AsyncIterator[int]:
    """The port of a server on 127.0.0.1."""

    async def hello(_: web.Request) -> web.Response:
        return web.Response(text="hello")

    app = web.Application()
    app.router.add_get("/", hello)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def test_a_name_is_found_while_many_others_are_looked_up_in_vain(servers: NameServers) -> None:
    async def look_up() -> list[tuple[socket.AddressFamily, str]]:
        far = [asyncio.ensure_future(resolve_name(f"master-{n}.far.example")) for n in range(40)]
        await asyncio.sleep(0)  # each of them has asked now
        async with asyncio.timeout(20):
            found = await resolve_name(NEAR)
        assert not any(each.done() for each in far)
        servers.let_go.set()
        assert all(isinstance(each, OSError) for each in await asyncio.gather(*far, return_exceptions=True))
        return found

    assert asyncio.run(look_up()) == [(socket.AF_INET, "127.0.0.1")]


def test_those_who_ask_again_share_the_look_up_and_may_give_up(servers: NameServers) -> None:
    host = "master-1.far.example"

    async def ask_again() -> None:
        for _ in range(20):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.005):
                    await resolve_name(host)
        last = asyncio.ensure_future(resolve_name(host))
        await asyncio.sleep(0)
        assert servers.asked[host] == 1
        servers.let_go.set()
        with pytest.raises(OSError, match="no server knows"):
            await last
        with pytest.raises(OSError, match="no server knows"):
            await resolve_name(host)
        assert servers.asked[host] == 2

    asyncio.run(ask_again())


def test_a_look_up_may_outlive_its_loop(servers: NameServers, capfd: pytest.CaptureFixture[str]) -> None:
    async def give_up() -> threading.Thread:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await resolve_name("master-2.far.example")
        return next(each for each in threading.enumerate() if "master-2" in each.name)

    thread = asyncio.run(give_up())
    servers.let_go.set()
    thread.join(20)
    assert not thread.is_alive()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("host", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6), ("fe80::1%eth0", socket.AF_INET6)]
)
def test_an_address_needs_no_server(servers: NameServers, host: str, family: socket.AddressFamily) -> None:
    assert asyncio.run(resolve_name(host)) == [(family, host)]
    assert not servers.asked


@pytest.mark.parametrize("host", ["a" * 300, "\udcff.example", "x..example", "a\0.example"])
def test_what_is_no_name_is_an_error_of_the_network(host: str) -> None:
    with pytest.raises(OSError, match=r"\w"):
        asyncio.run(resolve_name(host))


def test_a_process_without_another_thread_looks_up_again_later(
    servers: NameServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        with pytest.raises(OSError, match="was not looked up: can't start new thread"):
            asyncio.run(resolve_name(NEAR))
    assert asyncio.run(asyncio.wait_for(resolve_name(NEAR), 10)) == [(socket.AF_INET, "127.0.0.1")]


def test_workers_are_found_by_it_on_the_loop_of_masters(servers: NameServers) -> None:
    async def connect() -> bool:
        async with hello_server() as port:
            connections = WorkerConnections(4)
            made = await connections.connect(f"http://{NEAR}:{port}/", 10)
            connections.close()
            return made.url.startswith(f"http://{NEAR}")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(connect())
    assert servers.asked[NEAR] == 1


def test_sessions_find_their_host_by_it(servers: NameServers) -> None:
    async def fetch() -> str:
        async with hello_server() as port, ClientSession(connector=TCPConnector(resolver=NameResolver())) as session:
            answer = await session.get(f"http://{NEAR}:{port}/")
            return await answer.text()

    assert asyncio.run(fetch()) == "hello"
    assert servers.asked[NEAR] == 1


ALLOWED = {
    "http/name_resolver.py",
    "http/listener.py",  # its own addresses, when it starts
    "server/frontdoor/load_fetcher.py",  # names that clients write: they must not hold up those of peers and workers
}


def test_no_other_module_of_a_master_looks_up_names() -> None:
    root = Path(txlog.__file__).parent
    files = [file for room in ("http", "server", "runtime") for file in (root / room).rglob("*.py")]
    assert {file.relative_to(root).as_posix() for file in files if "getaddrinfo" in file.read_text()} <= ALLOWED
