"""``kubectl txlog console`` without Kubernetes: what the web server on this machine passes on, and what it does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest
from aiohttp import ClientSession, web

from kubectl_txlog.console_forwarder import UPLOAD_BYTES_MAX, ConsoleForwarder

OWN = {"Authorization": "Bearer of-the-kubeconfig", "TxLog-Authorization": "Bearer of-txlog"}


class StubProxy:
    """In place of the API server: keeps what it is asked, answers as a master would."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Mapping[str, str], bytes]] = []
        self.released = asyncio.Event()
        self.url = ""

    async def start(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/api/v1/namespaces/n/pods/p:7300/proxy"
        return runner

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.method, request.raw_path, request.headers.copy(), await request.read()))
        if not request.path.endswith("/txlog/live"):
            return web.Response(status=202, text="kept", headers={"TxLog-Transaction": "uk-1.0.1"})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        await self.released.wait()
        await response.write(b"data: 2\n\n")
        return response


@pytest.fixture
async def proxy() -> AsyncIterator[StubProxy]:
    stub = StubProxy()
    runner = await stub.start()
    yield stub
    stub.released.set()
    await runner.cleanup()


@pytest.fixture
async def forwarder(proxy: StubProxy) -> AsyncIterator[ConsoleForwarder]:
    made = ConsoleForwarder(proxy.url, OWN, None)
    made.start(0)
    yield made
    made.close()


@pytest.fixture
async def session() -> AsyncIterator[ClientSession]:
    async with ClientSession() as made:
        yield made


async def test_a_request_goes_to_the_pod_with_the_credentials_of_the_plugin_and_none_of_the_browser(
    proxy: StubProxy, forwarder: ConsoleForwarder, session: ClientSession
) -> None:
    root = forwarder.url.removesuffix("console/")
    sent = {"Authorization": "Basic of-the-browser", "Cookie": "a=b", "Content-Type": "text/turtle", "Connection": "x"}
    async with session.post(
        f"{root}repositories/r/statements?context=%3Curn:g%3E", data=b"<a>", headers=sent
    ) as answer:
        assert (answer.status, await answer.text()) == (202, "kept")
        assert answer.headers["TxLog-Transaction"] == "uk-1.0.1"
    ((method, path, headers, body),) = proxy.asked
    assert (method, body) == ("POST", b"<a>")
    assert path == "/api/v1/namespaces/n/pods/p:7300/proxy/repositories/r/statements?context=%3Curn:g%3E"
    assert {name: headers[name] for name in OWN} == OWN
    assert "Cookie" not in headers
    assert headers["Content-Type"] == "text/turtle"
    assert headers["Content-Length"] == "3"


async def test_a_page_of_another_site_passes_nothing_and_that_of_the_master_does(
    proxy: StubProxy, forwarder: ConsoleForwarder, session: ClientSession
) -> None:
    root = forwarder.url.removesuffix("console/")
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}):
        async with session.post(f"{root}repositories/r/statements", data=b"x", headers=headers) as answer:
            assert answer.status == 403
    assert proxy.asked == []
    own = {"Origin": "/".join(forwarder.url.split("/")[:3]), "Sec-Fetch-Site": "same-origin", "Referer": forwarder.url}
    async with session.post(f"{root}repositories/r/statements", data=b"x", headers=own) as answer:
        assert answer.status == 202
    ((_, _, headers, _),) = proxy.asked
    assert "Origin" not in headers, "it would not be the master's own name"
    assert "Referer" not in headers, "it holds the random part"


async def test_a_stream_arrives_piece_by_piece(
    proxy: StubProxy, forwarder: ConsoleForwarder, session: ClientSession
) -> None:
    async with session.get(forwarder.url.removesuffix("console/") + "txlog/live") as answer:
        assert await asyncio.wait_for(answer.content.readline(), 20) == b"data: 1\n"
        proxy.released.set()
        assert b"data: 2" in await asyncio.wait_for(answer.read(), 20)


@pytest.mark.parametrize("path", ["console/", "guessed/console/", "guessed/txlog/live", ""])
async def test_without_the_random_part_nothing_is_passed_on(
    proxy: StubProxy, forwarder: ConsoleForwarder, session: ClientSession, path: str
) -> None:
    port = forwarder.url.split("/")[2]
    async with session.get(f"http://{port}/{path}") as answer:
        assert answer.status == 404
    assert proxy.asked == []


async def test_each_start_has_another_address(proxy: StubProxy, forwarder: ConsoleForwarder) -> None:
    other = ConsoleForwarder(proxy.url, OWN, None)
    other.start(0)
    other.close()
    secrets = {one.url.split("/")[3] for one in (forwarder, other)}
    assert len(secrets) == 2
    assert all(len(secret) >= 20 for secret in secrets)


async def test_a_body_without_a_length_is_refused(
    proxy: StubProxy, forwarder: ConsoleForwarder, session: ClientSession
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"<a>"

    root = forwarder.url.removesuffix("console/")
    async with session.post(f"{root}repositories/r/statements", data=pieces()) as answer:
        assert answer.status == 411
    async with session.post(f"{root}a", headers={"Content-Length": str(UPLOAD_BYTES_MAX + 1)}) as answer:
        assert answer.status == 413
    assert proxy.asked == []


async def test_a_connection_serves_several_requests(
    proxy: StubProxy, forwarder: ConsoleForwarder, session: ClientSession
) -> None:
    root = forwarder.url.removesuffix("console/")
    for at in range(3):
        async with session.put(f"{root}a/{at}", data=b"x" * 100_000) as answer:
            assert await answer.text() == "kept"
        async with session.head(f"{root}a/{at}") as answer:
            assert (answer.status, await answer.read()) == (202, b"")
    assert [body for method, _, _, body in proxy.asked if method == "PUT"] == [b"x" * 100_000] * 3


async def test_a_master_that_is_gone_is_a_sentence(session: ClientSession) -> None:
    made = ConsoleForwarder("http://127.0.0.1:1", OWN, None)
    made.start(0)
    try:
        async with session.get(made.url) as answer:
            assert answer.status == 502
            assert "is not reached" in await answer.text()
    finally:
        made.close()
