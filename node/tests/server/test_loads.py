"""``LOAD``: fetched once, by the master that takes it, from where it may, and from nowhere else."""

from __future__ import annotations

import asyncio
import gzip
import ipaddress
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from master_cluster import Cluster

from e2e.lib.ports import free_ports
from txlog.server.frontdoor.load_fetcher import is_address_allowed, match_allowed_source

TURTLE = "@prefix e: <urn:e:> . e:s e:p 1, _:b . <doc> e:q 'x' ."


class Source:
    """A real web server on an address of this machine; what it was asked for, in order."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.answers: dict[str, web.Response | asyncio.Event | Callable[[], web.Response]] = {}
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=1)  # one answer never comes
        await self._runner.setup()
        await web.TCPSite(self._runner, self.host, self.port).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def url(self, path: str, name: str | None = None) -> str:
        return f"http://{name or self.host}:{self.port}{path}"

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path_qs)
        self.headers.append(dict(request.headers))
        answer = self.answers.get(request.path)
        if answer is None:
            return web.Response(status=404)
        if isinstance(answer, asyncio.Event):
            await answer.wait()
            return web.Response(text="", content_type="text/turtle")
        return answer() if callable(answer) else answer


def turtle(text: str = TURTLE) -> Callable[[], web.Response]:
    return lambda: web.Response(text=text, content_type="text/turtle")


def moved(to: str, status: int = 302) -> Callable[[], web.Response]:
    return lambda: web.Response(status=status, headers={"Location": to})


@pytest.fixture
async def sources() -> AsyncIterator[list[Source]]:
    """Two at one port of two addresses of this machine: one that is allowed, and an internal one."""
    [port] = free_ports(1)
    both = [Source("127.0.0.1", port), Source("127.0.0.2", port)]
    for source in both:
        await source.start()
    yield both
    for source in both:
        await source.stop()


async def started(clusters: Callable[..., Cluster], *allowed: str, **more: Any) -> Cluster:
    cluster = clusters(1, load={"sources": list(allowed), **more})
    await cluster.start()
    return cluster


async def log_of(cluster: Cluster) -> list[str]:
    """The payloads of the log's entries."""
    page = await cluster.get(0, "/txlog/log?after=0", headers={"Accept": "application/json"})
    return [str(entry["payload"]) for entry in page["entries"]]


async def test_what_was_fetched_once_is_logged_as_quads(
    clusters: Callable[..., Cluster], sources: list[Source]
) -> None:
    source, _ = sources
    source.answers["/data/a.ttl"] = turtle()
    cluster = await started(clusters, source.url("/data/"))
    url = source.url("/data/a.ttl")
    await cluster.write(0, f"LOAD <{url}> ; LOAD <{url}> INTO GRAPH <urn:g> ; DELETE DATA {{ <urn:e:s> <urn:e:p> 1 }}")
    assert source.asked == ["/data/a.ttl"], "once, however often the update names it"
    [entry] = await log_of(cluster)
    assert "LOAD" not in entry
    assert f"<{source.url('/data/doc')}> <urn:e:q>" in entry.replace("\\", ""), "relative to where it was"
    assert "<urn:g>" in entry
    assert "urn:txlog:bnode:" in entry
    assert "_:" not in entry
    sent = source.headers[0]
    assert sent["Accept-Encoding"] == "identity"
    assert not {"Authorization", "Cookie", "Proxy-Authorization"} & set(sent)
    await cluster.write(0, f"LOAD SILENT <{source.url('/data/missing')}>")
    assert len(await log_of(cluster)) == 2, "silent: it added nothing"


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        (None, 400, "it answered 404"),
        (turtle("<urn:s> <urn:p> ."), 400, "MALFORMED DATA"),
        (turtle("<urn:s> <urn:p> <urn:txlog:system:x> ."), 400, "urn:txlog:system"),
        (lambda: web.Response(body=b"x" * 5000), 413, "above 4096 bytes"),
        (lambda: web.Response(text="<a/>", content_type="image/png"), 415, "Unsupported MIME type"),
        (lambda: web.Response(body=gzip.compress(b""), headers={"Content-Encoding": "gzip"}), 400, "it came packed"),
        (asyncio.Event(), 503, "not all of it came within 0.3 s"),
    ],
)
async def test_what_cannot_be_had_is_refused_and_changes_nothing(
    clusters: Callable[..., Cluster], sources: list[Source], answer: Any, status: int, said: str
) -> None:
    source, _ = sources
    if answer is not None:
        source.answers["/a"] = answer
    cluster = await started(clusters, source.url("/"), bytes_max=4096, timeout_ms=300 if status == 503 else 30_000)
    told = await cluster.write(0, f"LOAD <{source.url('/a')}>", status)
    assert said in told["body"]
    assert await log_of(cluster) == []


async def test_without_a_list_it_is_refused_by_name(one: Cluster) -> None:
    told = await one.write(0, "LOAD <http://127.0.0.1/a>", 400)
    assert told["body"].startswith("LOAD is not deterministic")


async def test_where_it_cannot_be_it_is_refused_by_name(
    clusters: Callable[..., Cluster], sources: list[Source]
) -> None:
    source, _ = sources
    cluster = await started(clusters, source.url("/"))
    load = f"LOAD <{source.url('/a')}>"
    told = await cluster.write(0, load, 400, Idempotency_Key="k")
    assert "a LOAD may fetch something else each time" in told["body"]
    for text in (f"{load} ; INSERT {{ <urn:s> <urn:p> ?u }} WHERE {{ ?s ?p ?o BIND(UUID() AS ?u) }}", f"{load} 7"):
        await cluster.write(0, text, 400)
    transaction = await cluster.post(0, "/txlog/transactions", f'{{"update": "{load}"}}\n', 200)
    assert "LOAD" in str(transaction)
    assert source.asked == []


async def test_no_address_but_the_allowed_ones_is_asked(
    clusters: Callable[..., Cluster], sources: list[Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, internal = sources
    for each in sources:
        each.answers["/data/a"] = each.answers["/a"] = turtle()
    cluster = await started(clusters, source.url("/data/"), source.url("/data/", "localhost"))
    port = source.port
    for url in (
        source.url("/a"),
        source.url("/data/../a"),
        source.url("/data/%2e%2e/a"),
        source.url("/data/%2e%2e%2fa"),
        source.url("/data/..%5ca"),
        source.url("/database"),
        internal.url("/data/a"),
        f"http://127.0.0.1:{port + 1}/data/a",
        f"https://127.0.0.1:{port}/data/a",
        f"http://user@127.0.0.1:{port}/data/a",
        f"http://127.0.0.1:{port}@127.0.0.2:{port}/data/a",
        f"http://2130706433:{port}/data/a",
        f"http://0x7f.1:{port}/data/a",
        f"http://[::ffff:127.0.0.1]:{port}/data/a",
        "file:///etc/passwd",
        "urn:x",
        source.url("/data/a", "localhost"),  # it is in the list, and leads to an address of this machine
    ):
        for silent in ("", "SILENT "):
            told = await cluster.write(0, f"LOAD {silent}<{url}>", 400)
            assert "not allowed" in told["body"], url
    assert source.asked == internal.asked == []
    assert await log_of(cluster) == []


async def test_redirects_lead_to_allowed_addresses_only(
    clusters: Callable[..., Cluster], sources: list[Source]
) -> None:
    source, internal = sources
    internal.answers["/data/a"] = turtle()
    source.answers["/secret"] = turtle()
    for name, to in (("i", internal.url("/data/a")), ("s", "/secret"), ("f", "file:///etc/passwd"), ("l", "/data/l")):
        source.answers[f"/data/{name}"] = moved(to)
    for status in (301, 302, 303, 307, 308):
        source.answers[f"/data/{status}"] = moved("../data/there.ttl", status)
    source.answers["/data/there.ttl"] = lambda: web.Response(text=TURTLE, content_type="application/octet-stream")
    cluster = await started(clusters, source.url("/data/"))
    for name in ("i", "s", "f"):
        told = await cluster.write(0, f"LOAD SILENT <{source.url(f'/data/{name}')}>", 400)
        assert "it leads to an address that is not allowed" in told["body"]
    assert internal.asked == []
    assert "/secret" not in source.asked
    assert "more than 5 redirects" in (await cluster.write(0, f"LOAD <{source.url('/data/l')}>", 400))["body"]
    for status in (301, 302, 303, 307, 308):
        await cluster.write(0, f"LOAD <{source.url(f'/data/{status}')}>")
    assert len(await log_of(cluster)) == 5


async def test_a_name_that_changes_its_meaning_leads_nowhere_else(
    clusters: Callable[..., Cluster], sources: list[Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding: the first answer is allowed, every later one is the internal server's address."""
    source, internal = sources
    for each in sources:
        each.answers["/a"] = turtle()
    name = "rebound.example.net"
    cluster = await started(clusters, source.url("/", name), networks=["127.0.0.1/32"])
    loop = asyncio.get_running_loop()
    looked_up = loop.getaddrinfo
    asked: list[str] = []
    answers: list[list[str]] = []

    async def getaddrinfo(host: Any, port: Any, **more: Any) -> Any:
        if host != name:
            return await looked_up(host, port, **more)
        asked.append(host)
        addresses = answers.pop(0) if answers else [internal.host]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
    answers.append([source.host])
    await cluster.write(0, f"LOAD <{source.url('/a', name)}>")
    assert (asked, source.asked, internal.asked) == ([name], ["/a"], []), "what was judged is what was asked"
    told = await cluster.write(0, f"LOAD SILENT <{source.url('/a', name)}>", 400)
    assert "this address is not allowed" in told["body"]
    answers.append([source.host, internal.host])
    await cluster.write(0, f"LOAD <{source.url('/a', name)}>", 400)
    assert (len(source.asked), internal.asked) == (1, []), "one bad address is enough"
    assert internal.host not in told["body"]


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1:248:1893:25c8:1946", True),
        *((private, False) for private in ("127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254")),
        *((other, False) for other in ("0.0.0.0", "100.64.0.1", "224.0.0.1", "255.255.255.255", "192.0.2.1")),
        *((six, False) for six in ("::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1", "::ffff:10.0.0.1")),
        *((told, False) for told in ("64:ff9b::7f00:1", "2002:7f00:1::", "2001:0:0:0:0:0:0:1", "no address")),
        ("10.1.2.3", True),
        ("fd00:1::7", True),
    ],
)
def test_a_name_may_lead_into_the_world_and_into_the_networks_that_are_named(address: str, allowed: bool) -> None:
    networks = [ipaddress.ip_network("10.1.0.0/16"), ipaddress.ip_network("fd00:1::/32")]
    assert is_address_allowed(address, networks) is allowed


def test_a_source_is_one_url_or_all_below_it() -> None:
    sources = ["https://Data.example.net/dumps/", "http://h:8080/one.ttl?v=1"]
    for url in (
        "https://data.example.net/dumps/",
        "https://data.example.net:443/dumps/a/b.nq?x=1#f",
        "HTTPS://data.EXAMPLE.net/dumps/a",
        "http://h:8080/one.ttl?v=1",
    ):
        assert match_allowed_source(url, sources) is not None, url
    for url in (
        "https://data.example.net/dumps",
        "https://data.example.net/dumpster",
        "https://data.example.net.evil.example/dumps/",
        "https://evil.example/https://data.example.net/dumps/",
        "https://data.example.net:8443/dumps/",
        "https://data.example.net:x/dumps/",
        "https://data.example.net/dumps/\\@evil.example/",
        "https://dätä.example.net/dumps/",
        "http://h:8080/one.ttl",
        "http://h:8080/one.ttl?v=2",
        "http://h/one.ttl?v=1",
        "http://[h/",
        "//h/one",
        "",
    ):
        assert match_allowed_source(url, sources) is None, url
