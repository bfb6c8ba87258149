"""Idle workers that are no longer where they were: who is rung for, and how often."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from feed_stub import FeedStub, StubLog, place

from txlog.client import Masters, Worker, WorkerPlace
from txlog.config.process import WorkerConfig
from txlog.pipeline import watch as watching
from txlog.pipeline.source import Doorman
from txlog.pipeline.watch import WATCH_S, Watch
from txlog.workers.base import Fate, Unreachable, WorkerRequest, WorkerResponse


class Pen:
    """A store that is there, is another one, or is gone."""

    url = "http://w1"

    def __init__(self) -> None:
        self.answer: bytes | None = b"true"
        self.asked: list[str] = []

    def send(self, request: WorkerRequest) -> WorkerResponse:
        self.asked.append(request.body.decode())
        if self.answer is None:
            raise Unreachable(self.url, "nobody", Fate.NOT_SENT)
        return WorkerResponse(200, {}, self.answer)

    def settled(self) -> bool:
        return True


@pytest.fixture
def pen() -> Pen:
    return Pen()


@pytest.fixture
def watch(pen: Pen) -> Watch:
    return Watch([WorkerConfig(name="w1", url=pen.url)], lambda _: pen)


def worker(index: int, state: str = "Working", hold: int | None = None) -> Worker:
    return Worker("w1", position=WorkerPlace(1, index, "ab" * 32, 2), state=state, hold=hold)


def rings(watch: Watch, pen: Pen, answer: bytes | None) -> bool:
    pen.answer = answer
    watch.look()
    return watch.rang()


def test_a_worker_that_stays_is_asked_for_its_very_marker_and_rings_never(watch: Watch, pen: Pen) -> None:
    watch.expect(5, [worker(5)])
    assert not any(rings(watch, pen, b"true") for _ in range(3))
    assert all(":5:" + "ab" * 32 + ":2:1" in text for text in pen.asked)
    assert len(pen.asked) == 3


def test_one_that_was_put_back_rings_once_and_is_watched_again_afterwards(watch: Watch, pen: Pen) -> None:
    watch.expect(5, [worker(5)])
    assert [rings(watch, pen, b"false") for _ in range(3)] == [True, False, False]
    assert not rings(watch, pen, b"true")
    assert rings(watch, pen, b"false")


def test_one_that_goes_and_comes_back_rings_both_times(watch: Watch, pen: Pen) -> None:
    watch.expect(5, [worker(5)])
    assert [rings(watch, pen, None) for _ in range(2)] == [True, False]
    watch.expect(5, [worker(5, "Unreachable")])
    assert [rings(watch, pen, b"true") for _ in range(2)] == [True, False]
    assert rings(watch, pen, None)
    assert [rings(watch, pen, b"false") for _ in range(2)] == [True, False]


@pytest.mark.parametrize(
    "told", [worker(4), worker(0), worker(5, "Blocked"), worker(5, "Diverged"), Worker("w1"), worker(5, hold=4)]
)
def test_who_is_on_its_way_or_stopped_is_not_asked(watch: Watch, pen: Pen, told: Worker) -> None:
    watch.expect(5, [told])
    assert not rings(watch, pen, b"false")
    assert not pen.asked


def test_one_that_is_held_is_watched_where_it_is_held(watch: Watch, pen: Pen) -> None:
    watch.expect(5, [worker(3, hold=3)])
    assert rings(watch, pen, b"false")


def test_one_that_got_something_to_do_while_it_was_asked_is_not_met(watch: Watch, pen: Pen) -> None:
    class Late(Pen):
        def send(self, request: WorkerRequest) -> WorkerResponse:
            watch.expect(6, [worker(5)])
            return super().send(request)

    watch = Watch([WorkerConfig(name="w1", url=pen.url)], lambda _: Late())
    watch.expect(5, [worker(5)])
    assert not rings(watch, pen, b"false")


@pytest.fixture
def near() -> Iterator[FeedStub]:
    log = StubLog()
    log.append(b"")
    near = FeedStub(log, ["w1"])
    near.workers["w1"].update(position={**place(log.stable), "fence": 0}, state="Working")
    yield near
    near.stop()


def test_the_doorman_rings_for_it_between_two_polls(
    near: FeedStub, watch: Watch, pen: Pen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "WATCH_S", 0.05)
    doorman = Doorman(Masters([near.url], 2.0), ["w1"], 2 * WATCH_S, watch)
    pos, tick = doorman.wait(0, 0)
    pen.answer = b"false"
    watch.start()
    assert doorman.wait(pos, tick) == (1, 2)
    watch.stop()
    (text,) = set(pen.asked)
    assert f":1:{near.log.stable.hash.hex()}:0:" in text
