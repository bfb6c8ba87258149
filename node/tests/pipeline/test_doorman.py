"""The source's part: when it rings, and for whom."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from feed_stub import FeedStub, StubLog, place

from txlog.client import FailoverClient
from txlog.config.process_config import WorkerConfig
from txlog.pipeline import doorbell_source
from txlog.pipeline.doorbell_source import RECHECK_S, WakeupPoller, WorkerRange


class Door:
    """Two masters over one log, and a doorman whose clock the test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log = StubLog()
        self.near, self.far = FeedStub(self.log, ["w1", "w2"]), FeedStub(self.log, ["w1", "w2"])
        self.doorman = WakeupPoller(
            FailoverClient([self.near.url, self.far.url], 30.0), ["w1", "w2"], poll_s=0.1, clock=lambda: self.now
        )

    def everyone_at_the_end(self) -> None:
        for feed in (self.near, self.far):
            for worker in feed.workers.values():
                worker["position"] = place(self.log.stable)


@pytest.fixture
def door() -> Iterator[Door]:
    door = Door()
    yield door
    door.near.stop()
    door.far.stop()


def test_it_rings_at_once_when_the_application_starts_even_for_an_empty_log(door: Door) -> None:
    assert door.doorman.wait(0, 0) == (0, 1)


def test_it_is_silent_while_nothing_happens_and_rings_for_an_entry(door: Door) -> None:
    door.doorman.wait(0, 0)
    assert door.doorman.wait(0, 1) == (0, 1)
    threading.Timer(0.02, door.log.append, (b"",)).start()
    while (rung := door.doorman.wait(0, 1)) == (0, 1):
        """The timer is late on a busy machine."""
    assert rung == (1, 2)


def test_it_rings_without_an_entry_while_a_worker_is_behind(door: Door) -> None:
    door.log.append(b"")
    pos, tick = door.doorman.wait(0, 0)
    for _ in range(20):
        pos, tick = door.doorman.wait(pos, tick)
    assert (pos, tick > 2) == (1, True)


def test_it_rings_for_a_recheck_after_a_while(door: Door) -> None:
    door.log.append(b"")
    door.everyone_at_the_end()
    pos, tick = door.doorman.wait(0, 0)
    assert door.doorman.wait(pos, tick) == (1, 1)
    door.now = RECHECK_S
    assert door.doorman.wait(pos, tick) == (1, 2)
    assert door.doorman.wait(pos, 2) == (1, 2)


def test_a_tick_that_starts_anew_with_its_master_is_heard(door: Door) -> None:
    door.log.append(b"")
    door.everyone_at_the_end()
    door.near.tick = 50
    pos, tick = door.doorman.wait(0, 0)
    assert door.doorman.wait(pos, tick) == (1, 1)
    door.near.tick = 0
    assert door.doorman.wait(pos, 1) == (1, 2)
    door.near.tick = 1
    assert door.doorman.wait(pos, 2) == (1, 3)


def test_when_the_nearest_dies_the_next_rings(door: Door) -> None:
    door.doorman.wait(0, 0)
    door.near.stop()
    door.log.append(b"")
    assert door.doorman.wait(0, 1) == (1, 2)


def test_when_nobody_answers_it_waits_without_an_error(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorbell_source, "NO_MASTER_RETRY_S", 0.01)
    door.near.stop()
    door.far.stop()
    assert door.doorman.wait(3, 4) == (3, 4)
    door.far.start()
    door.log.append(b"", b"", b"", b"")
    door.now = 60.0
    assert door.doorman.wait(3, 4) == (4, 5)


def test_every_worker_gets_a_row_bounded_by_its_hold(door: Door) -> None:
    door.near.hold("w2", 1)
    door.log.append(b"", b"", b"")
    door.doorman.wait(0, 0)
    assert door.doorman.ranges(3) == [WorkerRange("w1", 3), WorkerRange("w2", 1)]


def test_a_worker_that_the_master_lists_gets_a_row_and_one_that_it_does_not_gets_none(door: Door) -> None:
    door.log.append(b"")
    door.everyone_at_the_end()
    pos, tick = door.doorman.wait(0, 0)
    assert door.doorman.wait(pos, tick) == (1, 1)
    new = {**door.near.workers["w1"], "name": "w3", "url": "http://127.0.0.1:9"}
    door.near.workers["w3"] = new
    del door.near.workers["w1"]
    assert door.doorman.wait(pos, tick) == (1, 2)
    w2, w3 = door.doorman.ranges(1)
    assert w2 == WorkerRange("w2", 1)
    assert (w3.worker, WorkerConfig.model_validate_json(w3.store).url) == ("w3", "http://127.0.0.1:9")
    assert door.doorman.wait(pos, 2) == (1, 2)
