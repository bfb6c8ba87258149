"""A request without an answer may still be executed: who sends nothing beside it, and for how long. Real stores."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from feed_stub import StubLog
from one_store_site import OneStoreSite
from store_process import COUNT_ONE, COUNTED, until

from txlog.model.entry import KIND_QUADS
from txlog.pipeline import worker_applier
from txlog.pipeline.apply_round import EMPTY_CACHE, ApplyRound, WorkerCache
from txlog.pipeline.worker_applier import WorkerApplier
from txlog.pipeline.worker_lanes import ApplyRequest, LaneSet, WorkerMutex
from txlog.workers import ADAPTERS
from txlog.workers.adapter import (
    MarkerPosition,
    RequestOutcome,
    Transport,
    Unreachable,
    WorkerRequest,
    WorkerResponse,
)
from txlog.workers.http_transport import HttpTransport

NUMBERS = 1200
SLOW = COUNT_ONE + (
    b" ; INSERT { <urn:sum> <urn:is> ?n } WHERE { SELECT (SUM(STRLEN(CONCAT(STR(?a), STR(?b)))) AS ?n) "
    b"{ ?a <urn:number> ?x . ?b <urn:number> ?y } }"
)
"""Takes a second or more with :data:`NUMBERS` numbers, and counts itself."""


class Site(OneStoreSite):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, execution_s=0.1)

    def add_numbers(self) -> int:
        lines = "".join(f'A <urn:n:{n}> <urn:number> "{n}" .\n' for n in range(NUMBERS))
        return self.log.append(lines.encode(), kind=KIND_QUADS)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


def test_another_process_sends_nothing_while_the_request_of_one_runs(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it runs: the other one believes at once that it is over, where it gets the worker."""
    monkeypatch.setattr(worker_applier, "ABANDONED_S", -1.0)
    calls: dict[str, int] = {"first": 0, "second": 0}

    def process(name: str) -> LaneSet:
        class Counting(WorkerApplier):
            def __call__(self, upto: int, budget_s: float, known: WorkerCache) -> ApplyRound:
                calls[name] += 1
                return super().__call__(upto, budget_s, known)

        return LaneSet(site.config, Counting)

    first, second = process("first"), process("second")
    first.apply_workers([ApplyRequest("w1", site.add_numbers())], 60.0)
    last = site.log.append(SLOW, kind=COUNTED)
    first.apply_workers([ApplyRequest("w1", last)], 0.0)
    until(lambda: any(report.get("running") for _, report in site.feed.reports))
    second.apply_workers([ApplyRequest("w1", last)], 0.2)
    assert site.store.count() == 0, "it is still executed; otherwise this test shows nothing"
    assert calls["second"] == 0
    until(lambda: site.feed.position("w1") == last)
    assert site.store.count() == 1
    until(lambda: site.feed.state("w1") == "Working")


class _TimesOut(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(504)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class ImpatientProxy:
    """Stops waiting for an update with this text in it; everything else passes."""

    def __init__(self, url: str, gateway: str, text: bytes) -> None:
        self._store, self._gateway, self._text = HttpTransport(url), HttpTransport(gateway), text
        self.url, self.given_up = url, 0

    def send(self, request: WorkerRequest) -> WorkerResponse:
        if self._text not in request.body:
            return self._store.send(request)
        self.given_up += 1
        return self._gateway.send(request)

    def settled(self) -> bool:
        return self._store.settled() and self._gateway.settled()


def test_a_request_that_a_proxy_gave_up_counts_as_running(site: Site) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _TimesOut)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        proxies: list[ImpatientProxy] = []

        def transport(url: str) -> Transport:
            proxies.append(ImpatientProxy(url, f"http://127.0.0.1:{server.server_port}", b"urn:slow"))
            return proxies[-1]

        applier = WorkerApplier(site.config, "w1", transport)
        last = site.log.append(b"INSERT DATA { <urn:slow> <urn:p> <urn:o> }", kind=COUNTED)
        known = EMPTY_CACHE
        for _ in range(4):
            done = applier(last, 0.1, known)
            known = done.cache
            assert (done.report.fault, done.report.running, done.awaits) == ("stalled", True, False)
            assert known.suspect is not None
            assert known.suspect.verdict is None
        assert proxies[0].given_up == 1, "what may be running is not sent a second time"
    finally:
        server.shutdown()


class RestartedProxy:
    """Ends while an update with this text runs, once: its client gets 502, and the store goes on."""

    def __init__(self, url: str, text: bytes) -> None:
        self._store, self._behind, self._text = HttpTransport(url), HttpTransport(url), text
        self.url = url
        self.running: threading.Thread | None = None

    def send(self, request: WorkerRequest) -> WorkerResponse:
        if self._text not in request.body or self.running is not None:
            return self._store.send(request)
        patient = replace(request, timeout_s=60.0)
        self.running = threading.Thread(target=self._behind.send, args=(patient,), daemon=True)
        self.running.start()
        raise Unreachable(self.url, "answered 502", RequestOutcome.UNKNOWN)

    def settled(self) -> bool:
        return True


def test_nothing_is_sent_beside_a_request_that_a_proxy_lost(site: Site) -> None:
    proxies: list[RestartedProxy] = []

    def transport(url: str) -> Transport:
        proxies.append(RestartedProxy(url, b"urn:sum"))
        return proxies[-1]

    applier = WorkerApplier(site.config, "w1", transport)
    known = applier(site.add_numbers(), 60.0, EMPTY_CACHE).cache
    last = site.log.append(SLOW, kind=COUNTED)
    known = applier(last, 60.0, known).cache
    assert site.store.count() == 0, "it is still executed; otherwise this test shows nothing"
    reports = []

    def is_there() -> bool:
        nonlocal known
        done = applier(last, 0.1, known)
        known = done.cache
        reports.append(done.report)
        return done.report.position is not None and done.report.position.index == last

    until(is_there)
    assert {report.state for report in reports} == {"Working"}, reports
    assert site.store.count() == 1
    with HttpTransport(site.store.url) as direct:
        adapter = ADAPTERS["oxigraph"]
        assert len(adapter.parse_system_graphs(direct.send(adapter.read_system())).markers) == 1


@pytest.mark.parametrize("left", [b"[true,null,null]l,null]", b"[true,nul", b'{"an": "older form"}', b"\xff"])
def test_what_a_killed_process_left_of_its_cache_is_forgotten(tmp_path: Path, left: bytes) -> None:
    mutex = WorkerMutex(tmp_path / "w1")
    mutex.set_target(7)
    with open(tmp_path / "w1", "ab") as file:
        file.write(left)
    assert mutex.try_acquire()
    assert mutex.read_cache() == EMPTY_CACHE
    assert mutex.read_target() == 7
    mutex.write_cache(WorkerCache(True))
    assert mutex.read_cache() == WorkerCache(True)


def test_a_cache_may_be_long(tmp_path: Path) -> None:
    """Each split without a restore adds a position to the marker."""
    marker = MarkerPosition(StubLog().start, 0, tuple((n, n.to_bytes(16, "big")) for n in range(200)), b"c" * 16)
    mutex = WorkerMutex(tmp_path / "w1")
    mutex.set_target(7)
    mutex.write_cache(WorkerCache(True, marker))
    assert mutex.read_cache() == WorkerCache(True, marker)
