"""The measuring tools measure what they say: the load generator, the reports, the conversion of real data."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pyoxigraph
import pytest
from aiohttp import web

from e2e.lib.host_metrics import MEMORY_FILE_SYSTEMS, NotOnDisk, disk_of, file_system, fsync_rate
from e2e.lib.load.closed_loop import SAMPLE_EVERY, ClosedLoad, RequestTemplate, quad_line
from e2e.lib.report import BenchReport, median, quantile
from e2e.scenarios.geonames import GeoEntity, change_writes, creation_write


class EchoFixture:
    """A server that answers as a master does; ``bad`` makes every so manieth answer an error."""

    def __init__(self, bad: int = 0) -> None:
        self.bad = bad
        self.seen = 0
        self.bodies: list[bytes] = []

    async def one(self, request: web.Request) -> web.Response:
        self.seen += 1
        self.bodies.append(await request.read())
        if self.bad and self.seen % self.bad == 0:
            return web.Response(status=503, text="later")
        return web.Response(status=204, headers={"TxLog-Transaction": f"uk-1.{1:016x}.{self.seen}"})

    async def many(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.bodies.append(body)
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for at, _ in enumerate(body.splitlines()):
            self.seen += 1
            await response.write(b'{"txid":"uk-1.%016x.%d"}\n' % (1, self.seen))
            if at == 50:
                await asyncio.sleep(0)
        await response.write_eof()
        return response


@pytest.fixture
def echo() -> Iterator[tuple[EchoFixture, str]]:
    """In a thread of its own, since the generator blocks."""
    server, ready, over = EchoFixture(), threading.Event(), threading.Event()
    address: list[str] = []

    async def serve() -> None:
        app = web.Application()
        app.router.add_post("/repositories/r/statements", server.one)
        app.router.add_post("/txlog/transactions", server.many)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        address.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
        ready.set()
        await asyncio.to_thread(over.wait)
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(10)
    yield server, address[0]
    over.set()
    thread.join(10)


@pytest.mark.parametrize(("batch", "clients"), [(1, 1), (1, 8), (100, 8)])
def test_the_generator_counts_what_was_answered(echo: tuple[EchoFixture, str], batch: int, clients: int) -> None:
    server, url = echo
    load = ClosedLoad([url], RequestTemplate("r", "synced", batch, "t"), clients)
    marks: list[str] = []
    round_ = load.run(0.05, 0.3, lambda: marks.append("begin"), lambda: marks.append("end"))
    assert marks == ["begin", "end"]
    assert not load.wrong
    assert load.acknowledged == server.seen, "an answer was lost, or a request had none"
    assert round_.per_s > 0
    assert len(round_.latencies) > 0
    assert load.acknowledged < 2 * SAMPLE_EVERY or load.samples


def test_every_quad_is_of_its_own_and_200_bytes(echo: tuple[EchoFixture, str]) -> None:
    server, url = echo
    ClosedLoad([url], RequestTemplate("r", "synced", 1, "t"), 4).run(0.0, 0.1, lambda: None, lambda: None)
    assert {len(body) for body in server.bodies} == {200}
    assert len(set(server.bodies)) == len(server.bodies)
    assert server.bodies[0] == quad_line(0, "t")
    assert len(list(pyoxigraph.parse(b"".join(server.bodies), pyoxigraph.RdfFormat.N_QUADS))) == len(server.bodies)


def test_a_line_of_a_batch_is_the_same_quad(echo: tuple[EchoFixture, str]) -> None:
    server, url = echo
    ClosedLoad([url], RequestTemplate("r", "synced", 100, "t"), 1).run(0.0, 0.1, lambda: None, lambda: None)
    lines = [json.loads(line)["quads"] for line in server.bodies[0].splitlines()]
    assert [line.encode() for line in lines] == [quad_line(number, "t") for number in range(100)]


def test_an_error_is_no_acknowledgement(echo: tuple[EchoFixture, str]) -> None:
    server, url = echo
    server.bad = 10
    load = ClosedLoad([url], RequestTemplate("r", "synced", 1, "t"), 1)
    load.run(0.0, 0.3, lambda: None, lambda: None)
    assert load.wrong
    assert "503" in load.wrong[0]
    assert load.acknowledged == server.seen - len(load.wrong)


def test_a_disk_in_memory_is_refused_by_name(tmp_path: Path) -> None:
    memory = Path("/dev/shm")
    if not memory.is_dir() or file_system(memory).split()[0] not in MEMORY_FILE_SYSTEMS:
        pytest.skip("no file system in memory here")
    with pytest.raises(NotOnDisk, match="tmpfs"):
        disk_of(memory)


def test_the_disk_syncs(tmp_path: Path) -> None:
    assert fsync_rate(tmp_path, 0.1) > 0
    assert not list(tmp_path.iterdir())


def test_a_report_ends_with_one_line_of_json_and_tells_by_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    report = BenchReport("t")
    report.at_most("fast_ms", 1.0, 2.0)
    assert report.end() == 0
    report.at_least("many_per_s", None, 10)
    assert report.end() == 1
    last = capsys.readouterr().out.rstrip("\n").splitlines()[-1]
    assert json.loads(last) == {"fast_ms": 1.0, "many_per_s": None}


def test_quantiles_and_medians() -> None:
    assert quantile([], 0.5) is None
    assert quantile([3, 1, 2], 0.5) == 2
    assert quantile(list(range(100)), 0.99) == 99
    assert median([5, 1, 9]) == 5


def test_creations_and_changes_lead_from_one_release_to_the_next() -> None:
    graph = "<urn:g>"

    def thing(name: str, **values: str) -> GeoEntity:
        return GeoEntity(
            graph, frozenset((f"<urn:{name}>", f"<urn:{key}>", f'"{value}"', graph) for key, value in values.items())
        )

    old = {"a": thing("a", n="1", m="x"), "b": thing("b", n="1"), "c": thing("c", n="1"), "d": thing("d", n="1")}
    new = {"a": thing("a", n="2", m="x"), "c": thing("c", n="1", k="2"), "d": thing("d", n="1"), "e": thing("e", n="1")}
    store = pyoxigraph.Store()
    for name, each in old.items():
        store.load((creation_write(name, each).quads or "").encode(), format=pyoxigraph.RdfFormat.N_QUADS)
    kinds = []
    for kind, write in change_writes(old, new):
        kinds.append(kind)
        if write.update:
            store.update(write.update)
        else:
            store.load((write.quads or "").encode(), format=pyoxigraph.RdfFormat.N_QUADS)
    assert sorted(kinds) == ["edited", "moved", "new", "removed"]
    wanted = {f"{s} {p} {o} {g}" for each in new.values() for s, p, o, g in each.quads}
    assert {str(q) for q in store} == wanted
