"""Idle workers that are no longer where they were: who is rung for, and how often; and who is called unreachable."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest
from feed_stub import FeedStub, StubLog, place
from store_process import Store, until

from txlog.apply import WorkerState
from txlog.client import FailoverClient, JsonMarker, WorkerReport, WorkerStatus
from txlog.config.process_config import WorkerConfig
from txlog.model.entry import Position
from txlog.pipeline import doorbell_source, worker_applier
from txlog.pipeline import worker_liveness as watching
from txlog.pipeline.doorbell_source import WakeupPoller
from txlog.pipeline.progress_reporter import report_once
from txlog.pipeline.worker_liveness import LivenessMonitor
from txlog.workers import ADAPTERS
from txlog.workers.adapter import MarkerPosition, RequestOutcome, Unreachable, WorkerRequest, WorkerResponse
from txlog.workers.http_transport import HttpTransport

SILENCE = b"silence"
LOST = b"lost"
GATEWAY = b"gateway"


class Pen:
    """A store that is there, is another one, stands still (:data:`SILENCE`), ends its connections (:data:`LOST`), has
    a proxy before it that does not reach it (:data:`GATEWAY`), or is gone (None)."""

    url = "http://w1"

    def __init__(self) -> None:
        self.answer: bytes | None = b"true"
        self.asked: list[str] = []
        self.given_up = 0

    def send(self, request: WorkerRequest) -> WorkerResponse:
        self.asked.append(request.body.decode())
        if self.answer is None:
            raise Unreachable(self.url, "nobody", RequestOutcome.NOT_SENT)
        if self.answer is SILENCE:
            raise Unreachable(self.url, "no answer", RequestOutcome.UNKNOWN) from TimeoutError()
        if self.answer is LOST:
            raise Unreachable(self.url, "the connection ended", RequestOutcome.UNKNOWN) from ConnectionResetError()
        if self.answer is GATEWAY:
            raise Unreachable(self.url, "answered 502", RequestOutcome.UNKNOWN)
        return WorkerResponse(200, {}, self.answer)

    def settled(self) -> bool:
        return True

    def close(self) -> None:
        self.given_up += 1


class Told:
    """What the masters hear of workers."""

    def __init__(self) -> None:
        self.states: list[tuple[str, str]] = []

    def __call__(self, name: str, report: WorkerReport) -> None:
        assert report.position is None, "where it is nobody knows"
        assert report.error
        self.states.append((name, report.state))


@pytest.fixture
def pen() -> Pen:
    return Pen()


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def watch(pen: Pen, told: Told) -> LivenessMonitor:
    return LivenessMonitor([WorkerConfig(name="w1", url=pen.url)], told, lambda _: pen)


def worker(index: int, state: str = "Working", hold: int | None = None) -> WorkerStatus:
    return WorkerStatus("w1", position=JsonMarker(1, index, "ab" * 32, 2), state=state, hold=hold)


def rings(watch: LivenessMonitor, pen: Pen, answer: bytes | None) -> bool:
    pen.answer = answer
    watch.check("w1")
    return watch.take_alarm()


def test_a_worker_that_stays_is_asked_for_its_very_marker_and_rings_never(watch: LivenessMonitor, pen: Pen) -> None:
    watch.set_expected(5, [worker(5)])
    assert not any(rings(watch, pen, b"true") for _ in range(3))
    assert all(":5:" + "ab" * 32 + ":2:1" in text for text in pen.asked)
    assert len(pen.asked) == 3


def test_one_that_was_put_back_rings_once_and_is_watched_again_afterwards(watch: LivenessMonitor, pen: Pen) -> None:
    watch.set_expected(5, [worker(5)])
    assert [rings(watch, pen, b"false") for _ in range(3)] == [True, False, False]
    assert not rings(watch, pen, b"true")
    assert rings(watch, pen, b"false")


@pytest.mark.parametrize("gone", [None, SILENCE, LOST, GATEWAY])
def test_one_that_goes_and_comes_back_rings_both_times(watch: LivenessMonitor, pen: Pen, gone: bytes | None) -> None:
    watch.set_expected(5, [worker(5)])
    assert rings(watch, pen, gone)
    watch.set_expected(5, [worker(5, "Unreachable")])
    assert not rings(watch, pen, gone)
    assert [rings(watch, pen, b"true") for _ in range(2)] == [True, False]
    assert rings(watch, pen, gone)
    assert [rings(watch, pen, b"false") for _ in range(2)] == [True, False]


def test_the_masters_are_told_once_of_one_that_is_silent_and_its_lane_looks_at_one_that_refuses(
    watch: LivenessMonitor, pen: Pen, told: Told
) -> None:
    watch.set_expected(5, [worker(5)])
    assert rings(watch, pen, None)
    assert told.states == [], "most that refuse connections are started again already"
    assert rings(watch, pen, SILENCE)
    watch.set_expected(5, [worker(5, "Unreachable")])
    assert not any(rings(watch, pen, SILENCE) for _ in range(2))
    assert told.states == [("w1", WorkerState.UNREACHABLE)]
    assert pen.given_up == 4, "no connection is kept to one that does not answer"
    assert rings(watch, pen, b"true")
    assert rings(watch, pen, SILENCE)
    assert len(told.states) == 2


@pytest.mark.parametrize("answer", [LOST, GATEWAY])
def test_what_came_at_once_is_no_silence(watch: LivenessMonitor, pen: Pen, told: Told, answer: bytes) -> None:
    """Its lane looks at it, with its own patience."""
    watch.set_expected(5, [worker(5)])
    assert rings(watch, pen, answer)
    assert told.states == []


def test_a_fault_of_ours_does_not_end_the_watching(pen: Pen, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(name: str, report: WorkerReport) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(watching, "CHECK_INTERVAL_S", 0.01)
    watch = LivenessMonitor([WorkerConfig(name="w1", url=pen.url)], failing, lambda _: pen)
    pen.answer = SILENCE
    watch.set_expected(5, [worker(5)])
    watch.start()
    try:
        until(lambda: len(pen.asked) > 3, 10, "it is not asked any more")
    finally:
        watch.stop()


def test_the_masters_are_told_again_of_one_that_only_its_lane_has_met_in_between(
    watch: LivenessMonitor, pen: Pen, told: Told
) -> None:
    """It went on for less than a second, in which nobody looked but its lane."""
    watch.set_expected(5, [worker(5)])
    assert rings(watch, pen, SILENCE)
    watch.set_expected(5, [worker(5, "Unreachable")])
    assert not rings(watch, pen, SILENCE)
    watch.set_expected(5, [worker(5)])
    assert rings(watch, pen, SILENCE)
    assert len(told.states) == 2


@pytest.mark.parametrize(
    ("shown", "on_its_way"),
    [
        (worker(4), True),
        (worker(0), True),
        (worker(4, "Unreachable"), False),
        (worker(5, "Blocked"), False),
        (worker(5, "Diverged"), False),
        (WorkerStatus("w1"), False),
        (worker(5, hold=4), False),
        (worker(3, hold=4), True),
    ],
)
def test_who_is_on_its_way_or_stopped_is_not_asked(
    watch: LivenessMonitor, pen: Pen, shown: WorkerStatus, on_its_way: bool
) -> None:
    assert watch.set_expected(5, [shown]) == on_its_way
    assert not rings(watch, pen, b"false")
    assert not pen.asked


def test_one_that_is_held_is_watched_where_it_is_held(watch: LivenessMonitor, pen: Pen) -> None:
    watch.set_expected(5, [worker(3, hold=3)])
    assert rings(watch, pen, b"false")


@pytest.mark.parametrize("answer", [b"false", SILENCE])
def test_one_that_got_something_to_do_while_it_was_asked_is_not_met(pen: Pen, told: Told, answer: bytes) -> None:
    """An update of minutes is for its lane to wait for."""

    class Late(Pen):
        def send(self, request: WorkerRequest) -> WorkerResponse:
            watch.set_expected(6, [worker(5)])
            return super().send(request)

    late = Late()
    watch = LivenessMonitor([WorkerConfig(name="w1", url=pen.url)], told, lambda _: late)
    watch.set_expected(5, [worker(5)])
    assert not rings(watch, late, answer)
    assert late.asked
    assert told.states == []


def test_one_that_came_back_at_another_place_is_asked_there(told: Told) -> None:
    pens = {"http://old": Pen(), "http://new": Pen()}
    pens["http://old"].answer = SILENCE
    watch = LivenessMonitor([], told, lambda url: pens[url])
    for url in pens:
        watch.set_expected(5, [msgspec.structs.replace(worker(5), url=url)])
    watch.check("w1")
    assert [len(pen.asked) for pen in pens.values()] == [0, 1]
    watch.set_expected(5, [])
    watch.check("w1")
    assert len(pens["http://new"].asked) == 1, "nobody asks one that was taken out"
    assert told.states == []


@pytest.fixture
def near() -> Iterator[FeedStub]:
    log = StubLog()
    log.append(b"")
    near = FeedStub(log, ["w1"])
    near.workers["w1"].update(position={**place(log.stable), "fence": 0}, state="Working")
    yield near
    near.stop()


def test_the_doorman_rings_for_it_between_two_polls(
    near: FeedStub, watch: LivenessMonitor, pen: Pen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "CHECK_INTERVAL_S", 0.05)
    monkeypatch.setattr(doorbell_source, "DOORBELL_WAIT_S", 0.2)
    doorman = WakeupPoller(FailoverClient([near.url], 2.0), ["w1"], 30.0, watch)
    pos, tick = doorman.wait(0, 0)
    pen.answer = b"false"
    watch.start()
    assert doorman.wait(pos, tick) == (1, 2)
    watch.stop()
    (text,) = set(pen.asked)
    assert f":1:{near.log.stable.hash.hex()}:0:" in text


def test_one_that_has_just_executed_something_is_watched_soon(
    near: FeedStub, watch: LivenessMonitor, pen: Pen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doorbell_source, "DOORBELL_WAIT_S", 0.2)
    monkeypatch.setattr(doorbell_source, "PROGRESS_POLL_S", 0.02)
    doorman = WakeupPoller(FailoverClient([near.url], 2.0), ["w1"], 2 * doorbell_source.DOORBELL_WAIT_S, watch)
    pos, tick = doorman.wait(0, 0)
    near.log.append(b"")
    pos, tick = doorman.wait(pos, tick)
    watch.check("w1")
    assert (pos, pen.asked) == (2, [])
    near.workers["w1"].update(position={**place(near.log.stable), "fence": 0})
    before = len(near.bells)
    doorman.wait(pos, tick)
    assert [bell <= doorbell_source.PROGRESS_POLL_S for bell in near.bells[before:]] == [True, False]
    watch.check("w1")
    assert len(pen.asked) == 1


# Real ones, and how long it takes. Everything is five times as quick as it is.

QUICK = {"CHECK_INTERVAL_S": 0.2, "ANSWER_TIMEOUT_S": 0.9, "CONNECT_TIMEOUT_S": 0.45}
MUTE = 12
"""Stores that accept and say nothing; asked one after the other they would take as often ``ANSWER_TIMEOUT_S``."""
BOUND_S = 8.0
"""Far above the bound of 1.2 s, so that a busy machine keeps it, and below that."""
MARKER = MarkerPosition(Position(1, 1, bytes.fromhex("ab" * 32)), 2)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in QUICK.items():
        assert getattr(watching, name) >= seconds * 2, "slower than what is tested"
        monkeypatch.setattr(watching, name, seconds)


def test_the_bound_is_six_seconds_and_who_is_silent_for_four_is_called_nothing() -> None:
    assert watching.CHECK_INTERVAL_S + watching.ANSWER_TIMEOUT_S + doorbell_source.PROGRESS_POLL_S <= 5.75
    assert min(watching.ANSWER_TIMEOUT_S, worker_applier.IDLE_CHECK_TIMEOUT_S) >= 4.5


class Line(HttpTransport):
    """The connection of the watch, and how often it was answered on it."""

    def __init__(self, url: str) -> None:
        super().__init__(url, watching.ANSWER_TIMEOUT_S, connect_s=watching.CONNECT_TIMEOUT_S)
        self.answered = 0

    def send(self, request: WorkerRequest) -> WorkerResponse:
        answer = super().send(request)
        self.answered += 1
        return answer


class Lines:
    def __init__(self) -> None:
        self.of: dict[str, Line] = {}

    def __call__(self, url: str) -> Line:
        return self.of.setdefault(url, Line(url))

    def await_answers(self, url: str, many: int) -> None:
        upto = self.of[url].answered + many
        until(lambda: self.of[url].answered >= upto, 60, f"{url} was not asked so often")


@pytest.fixture
def lines() -> Lines:
    return Lines()


def at_one(name: str, url: str) -> WorkerStatus:
    return WorkerStatus(name, url=url, position=JsonMarker(1, 1, "ab" * 32, 2), state="Working")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An Oxigraph that stands at index 1."""
    store = Store(tmp_path / "store")
    with HttpTransport(store.url) as transport:
        assert transport.send(ADAPTERS["oxigraph"].apply([], None, MARKER)).ok
    yield store
    store.kill()


@pytest.mark.usefixtures("quick")
def test_stores_that_stand_still_are_called_unreachable_within_the_bound_however_many(
    near: FeedStub, store: Store, lines: Lines
) -> None:
    """One is a stopped process that was asked before; the others accept connections and say nothing."""
    with ExitStack() as stack:
        mute = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(MUTE)]
        urls = {"w1": store.url}
        urls |= {f"w{at}": f"http://127.0.0.1:{each.getsockname()[1]}" for at, each in enumerate(mute, 2)}
        for name in urls:
            near.workers[name] = {**near.workers["w1"], "name": name}
        watch = LivenessMonitor([], partial(report_once, [near.url]), lines)
        watch.start()
        try:
            watch.set_expected(1, [at_one("w1", store.url)])
            lines.await_answers(store.url, 2)
            store.freeze()
            began = time.monotonic()
            there = [at_one(name, url) for name, url in urls.items()]
            watch.set_expected(1, there)
            until(lambda: all(near.state(name) == "Unreachable" for name in urls), 30, "one is not found")
            took = time.monotonic() - began
            assert took < BOUND_S < MUTE * QUICK["ANSWER_TIMEOUT_S"], f"{took:.2f} s"
            until(watch.take_alarm, 60, "their lanes are to look as well")
            watch.set_expected(1, [msgspec.structs.replace(one, state="Unreachable") for one in there])
            told = len(near.reports)
            store.thaw()
            lines.await_answers(store.url, 1)
            until(watch.take_alarm, 60, "one that goes on again is to be looked after")
            assert {name for name, _ in near.reports} == set(urls)
            assert len(near.reports) == told, "once the masters show it nobody is told again"
        finally:
            watch.stop()


class _Slow(BaseHTTPRequestHandler):
    """Half a second for each answer."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        threading.Event().wait(0.5)
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"true")

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.usefixtures("quick")
def test_one_that_takes_its_time_for_each_answer_is_not_called_so(
    told: Told, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In sum they are longer than one answer may take."""
    monkeypatch.setattr(watching, "ANSWER_TIMEOUT_S", 4.0)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Slow) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        server.daemon_threads = True
        url = f"http://127.0.0.1:{server.server_address[1]}"
        watch = LivenessMonitor([], told, lines)
        watch.start()
        try:
            watch.set_expected(1, [at_one("w1", url)])
            lines.await_answers(url, 9)
            assert told.states == []
            assert not watch.take_alarm()
        finally:
            watch.stop()
            server.shutdown()
            lines.of[url].close()


def test_a_store_at_a_long_query_and_a_large_update_is_not_called_so(
    store: Store, told: Told, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the real patience, and asked more often."""
    monkeypatch.setattr(watching, "CHECK_INTERVAL_S", 0.02)
    store.update("INSERT DATA { " + " ".join(f"<urn:s{n}> <urn:p> {n % 7} ." for n in range(600)) + " }")
    every = "{ ?a <urn:p> ?b . ?c <urn:p> ?d . ?e <urn:p> ?f FILTER (?b + ?d + ?f < 0) }"

    def at_work(path: str, kind: str, text: str) -> threading.Thread:
        def work() -> None:
            with HttpTransport(store.url, 60.0) as transport, suppress(Unreachable):  # its end is the store's
                transport.send(WorkerRequest("POST", path, {"Content-Type": kind}, text.encode()))

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        return thread

    busy = [
        at_work("/query", "application/sparql-query", f"ASK {every}"),
        at_work("/update", "application/sparql-update", f"INSERT {{ ?a <urn:q> ?c }} WHERE {every}"),
    ]
    watch = LivenessMonitor([], told, lines)
    watch.start()
    try:
        watch.set_expected(1, [at_one("w1", store.url)])
        lines.await_answers(store.url, 20)
        assert all(thread.is_alive() for thread in busy), "the store is at both all the time"
        assert told.states == []
        assert not watch.take_alarm()
    finally:
        watch.stop()
        store.kill()
