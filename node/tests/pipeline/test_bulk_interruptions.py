"""A bulk load that is interrupted while it comes in: by slow stores, full disks, processes and logs. Real stores."""

from __future__ import annotations

import errno
import http.client
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bulk_store_site import OXIGRAPH, BulkStoreSite, drive, lanes, lines
from store_process import until

from txlog.apply import ApplyOutcome, MasterLog, WorkerState
from txlog.bulk import held_body
from txlog.bulk.held_body import BodyPhase, HeldBody, StoreWitness, count_filler, shortest_line
from txlog.client import FailoverClient, WorkerReport
from txlog.client.responses import BulkRequest
from txlog.pipeline import bulk_lane, bulk_rounds, progress_reporter, worker_lanes
from txlog.pipeline.batch.catch_up import CatchUp
from txlog.pipeline.batch.task_runner import InProcessRunner
from txlog.pipeline.bulk_rounds import BulkRounds
from txlog.pipeline.progress_reporter import ProgressReporter
from txlog.pipeline.worker_lanes import ApplyRequest
from txlog.workers.adapter import WorkerRequest, WorkerResponse
from txlog.workers.http_transport import HttpTransport

NO_ROOM = WorkerResponse(500, {}, b"No space left on device")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BulkStoreSite]:
    monkeypatch.setattr(bulk_lane, "RETRY_S", 0.2)
    made = BulkStoreSite(tmp_path)
    yield made
    made.close()


def look_until(site: BulkStoreSite, upto: int, state: str, part: str, seconds: float = 30.0) -> None:
    """Until a report of this state has this in its error."""
    running = lanes(site)

    def is_seen() -> bool:
        running.apply_workers([ApplyRequest("w1", upto)], 0.1)
        return site.feed.state("w1") == state and part in site.error()

    until(is_seen, seconds, f"{state} {part}: {site.feed.reports[-1:]}")


# -- stores that are slow, and stores that have ended


def test_a_slow_store_has_not_ended(site: BulkStoreSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_body, "CONNECT_TIMEOUT_S", 0.5)
    witness = StoreWitness(site.store.url)
    request = OXIGRAPH.read_system()
    assert not witness.has_ended(request)
    site.store.freeze()
    assert [witness.has_ended(request) for _ in range(4)] == [False] * 4
    site.store.thaw()
    until(lambda: not witness.has_ended(request) and witness._connection is not None)
    site.store.kill()
    assert witness.has_ended(request), "its connection has ended"
    assert witness.has_ended(request), "none is there"
    site.store.start()
    assert not witness.has_ended(request), "a new process"


def test_a_worker_of_a_slow_store_is_not_taken_over(site: BulkStoreSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_body, "CONNECT_TIMEOUT_S", 0.5)
    drive(site, lanes(site), site.insert(1))
    last = site.append_load()
    mark = site.put_in_flight_mark()
    running = lanes(site)
    running.apply_workers([ApplyRequest("w1", last)], 0.1)
    until(site.asks_for_a_restart, 20)
    site.store.freeze()
    frozen = len(site.feed.reports)
    until(lambda: len(site.feed.reports) > frozen + 3, 60)
    site.store.thaw()
    thawed = len(site.feed.reports)
    until(lambda: len(site.feed.reports) > thawed + 2, 60)
    assert site.system().loading == (mark,)
    drive(site, running, last)
    assert site.loaded() == 2000


def hold(site: BulkStoreSite) -> HeldBody:
    body = site.new_body()
    until(lambda: body.phase is BodyPhase.HELD, 30)
    return body


def test_a_body_without_an_answer_may_still_land(site: BulkStoreSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_body, "LAND_TIMEOUT_S", 0.5)
    body = hold(site)
    site.store.freeze()
    assert body.end()
    until(lambda: body.phase is not BodyPhase.LANDING, 20)
    assert body.phase is BodyPhase.UNKNOWN
    site.store.thaw()
    until(lambda: site.loaded() == 2000, 20)


@pytest.mark.parametrize(
    ("error", "phase"),
    [
        (OSError(errno.EHOSTUNREACH, "no route"), BodyPhase.UNKNOWN),
        (http.client.BadStatusLine("x"), BodyPhase.UNKNOWN),
        (ValueError("x"), BodyPhase.UNKNOWN),
        (ConnectionResetError(), BodyPhase.CLOSED),
        (http.client.RemoteDisconnected("closed"), BodyPhase.CLOSED),
        (http.client.IncompleteRead(b""), BodyPhase.CLOSED),
    ],
)
def test_only_a_connection_that_ends_shows_the_end_of_a_store(
    site: BulkStoreSite, monkeypatch: pytest.MonkeyPatch, error: Exception, phase: BodyPhase
) -> None:
    body = hold(site)

    def begin(_: http.client.HTTPResponse) -> None:
        raise error

    monkeypatch.setattr(http.client.HTTPResponse, "begin", begin)
    assert body.end()
    until(lambda: body.phase is not BodyPhase.LANDING, 20)
    monkeypatch.undo()
    assert body.phase is phase


# -- a load that may be in


def test_a_load_that_may_be_in_is_repeated_without_a_restart(site: BulkStoreSite) -> None:
    drive(site, lanes(site), site.insert(1))
    site.append_load()
    mark = site.put_landed_mark()
    with HttpTransport(site.store.url) as transport:
        assert transport.send(OXIGRAPH.load(lines(1000))).ok, "an interrupted load"
    done = CatchUp(site.config, "w1", InProcessRunner(), lambda _: None).run()
    assert "may be in" in str(done.error)
    assert site.system().loading == (mark,), "no batch gives it the marker before the load"
    last = site.delete_first()
    drive(site, lanes(site), last)
    assert (site.loaded(), site.system().loading) == (1999, ())
    assert not site.has_asked_for_a_restart()


def test_a_repeated_load_heeds_pauses_and_skips(site: BulkStoreSite) -> None:
    drive(site, lanes(site), site.insert(1))
    index = site.append_load()
    mark = site.put_landed_mark()
    site.feed.hold("w1", 1)
    running = lanes(site)
    running.apply_workers([ApplyRequest("w1", index)], 0.1)
    until(lambda: site.phase() == "Held", 30)
    held = len(site.feed.reports)
    until(lambda: len(site.feed.reports) > held + 2, 30)
    assert (site.phase(), site.loaded(), site.system().loading) == ("Held", 0, (mark,)), "it is paused"
    site.log.skip(index)
    until(lambda: site.feed.state("w1") == "Loading", 30)
    done = CatchUp(site.config, "w1", InProcessRunner(), lambda _: None).run()
    assert (done.state, "rebuild it" in str(done.error)) == (WorkerState.DIVERGED, True)
    assert site.system().loading == (mark,)


def test_a_repeated_load_that_is_refused_may_still_be_in(site: BulkStoreSite, monkeypatch: pytest.MonkeyPatch) -> None:
    drive(site, lanes(site), site.insert(1))
    last = site.append_load()
    site.put_landed_mark()
    with monkeypatch.context() as refusing:
        refusing.setattr(HeldBody, "_land", refuse_body)
        look_until(site, last, "Blocked", "No space left")
        assert (site.system().markers, len(site.system().loading)) == ((), 1)
        assert site.feed.position("w1") is None, "it is at neither of the two markers"
    drive(site, lanes(site), last)
    assert site.loaded() == 2000
    assert not site.has_asked_for_a_restart()


def test_a_first_load_that_is_refused_is_repeated_without_a_restart(
    site: BulkStoreSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = site.append_load()
    with monkeypatch.context() as refusing:
        refusing.setattr(HeldBody, "_land", refuse_body)
        look_until(site, last, "Blocked", "No space left")
    drive(site, lanes(site), last)
    assert site.loaded() == 2000
    assert not site.has_asked_for_a_restart()


def test_a_store_that_answers_nothing_while_a_load_lands_is_not_read(
    site: BulkStoreSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    def freeze_and_land(body: HeldBody, sock: Any) -> None:
        site.store.freeze()
        land(body, sock)

    land = HeldBody._land
    drive(site, lanes(site), site.insert(1))
    last = site.append_load()
    monkeypatch.setattr(bulk_rounds, "REQUEST_TIMEOUT_S", 0.5)
    monkeypatch.setattr(HeldBody, "_land", freeze_and_land)
    look_until(site, last, "Unreachable", "")
    site.store.thaw()
    drive(site, lanes(site), last)
    assert site.loaded() == 2000
    assert not site.has_asked_for_a_restart(), "its answer is waited for"


def refuse_body(body: HeldBody, _: Any) -> None:
    body._finish(BodyPhase.REFUSED, "answered 500: No space left on device")


# -- the mark


@pytest.mark.parametrize("repeats", [False, True])
def test_a_mark_that_the_store_refuses_is_named(
    site: BulkStoreSite, monkeypatch: pytest.MonkeyPatch, repeats: bool
) -> None:
    drive(site, lanes(site), site.insert(1))
    last = site.append_load()
    before = (site.put_landed_mark(),) if repeats else ()
    send = HttpTransport.send

    def refuse(transport: HttpTransport, request: WorkerRequest) -> WorkerResponse:
        return NO_ROOM if b"CREATE GRAPH <urn:txlog:system:loading" in request.body else send(transport, request)

    with monkeypatch.context() as refusing:
        refusing.setattr(HttpTransport, "send", refuse)
        look_until(site, last, "Blocked", "No space left")
        assert site.feed.position("w1") == (None if repeats else 1)
        assert site.system().loading == before
    drive(site, lanes(site), last)
    assert site.loaded() == 2000
    assert not site.has_asked_for_a_restart()


def test_the_lock_of_a_dead_applier_is_taken_over(site: BulkStoreSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_lane, "LOCK_WAIT_S", 0.5)
    monkeypatch.setattr("txlog.backup.worker_lock.TAKEOVER_S", 1.5)
    drive(site, lanes(site), site.insert(1))
    last = site.append_load()
    site.put_landed_mark()
    with HttpTransport(site.store.url) as transport:
        assert transport.send(OXIGRAPH.claim(7)).ok
    drive(site, lanes(site), last)
    assert site.loaded() == 2000


def test_an_unknown_position_is_not_an_empty_worker(site: BulkStoreSite) -> None:
    site.insert(1)
    index = site.append_load()
    log = MasterLog(FailoverClient([site.feed.url]))
    rounds = BulkRounds(site.config.workers[0], site.config.bulk_target, log)
    entry = site.log.entries[index - 1]
    done = rounds.begin(ApplyOutcome(None, WorkerState.WORKING, bulk=entry))
    assert done is not None
    assert "position is not known" in str(done.report.error)
    assert rounds.progress().phase == "", "nothing was sent"


# -- what is asked for, and what is sent


def test_a_master_that_does_not_answer_asks_for_nothing_after_a_while(
    site: BulkStoreSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.ask()
    reports = ProgressReporter([site.feed.url])
    reports.send("w1", WorkerReport(None, "Working"))
    wanted = BulkRequest(*site.load)
    until(lambda: reports.bulk_load("w1") == wanted, 20)
    site.feed.stop()
    reports.send("w1", WorkerReport(None, "Working"))
    assert reports.bulk_load("w1") == wanted, "one report without an answer ends nothing"
    monkeypatch.setattr(progress_reporter, "BULK_ASK_S", 0.0)
    assert reports.bulk_load("w1") is None


def test_a_held_load_delays_no_transaction(site: BulkStoreSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """However high the log is: a lane waits for batches of other machines only where its worker lags."""
    monkeypatch.setattr(worker_lanes, "BATCH_BACKLOG", 1)
    monkeypatch.setattr(worker_lanes, "YIELD_S", 60.0)
    site.ask()
    running = lanes(site)
    running.apply_workers([ApplyRequest("w1", site.insert(1))], 0.0)
    until(lambda: site.phase() == "Held", 30)
    for number in (2, 3):
        drive(site, running, site.insert(number), 20.0)


def test_a_last_batch_is_filled_up_by_its_shortest_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_body, "STORE_BATCH", 100)
    monkeypatch.setattr(held_body, "FILL_FROM", 50)
    monkeypatch.setattr(held_body, "FILL_BYTES_MAX", 90)
    assert shortest_line(b"", b"") == b""
    assert shortest_line(b"aaa\naa\naaaa\n", b"") == b"aa\n"
    assert shortest_line(b"aaa\n", b"aa\n") == b"aa\n"
    assert [count_filler(quads, b"aa\n") for quads in (0, 50, 70, 100, 151, 170, 199)] == [0, 0, 30, 0, 0, 30, 1]
    assert count_filler(69, b"aa\n") == 0, "31 lines have more bytes than are sent for nothing"
    assert count_filler(70, b"") == 0


def test_whatever_ends_the_thread_of_a_body_fails_it(site: BulkStoreSite) -> None:
    def read() -> Iterator[bytes]:
        yield b"<urn:a> <urn:p> <urn:b> .\n"
        raise RuntimeError("a bug")

    body = HeldBody(site.store.url, OXIGRAPH.load(b""), read)
    until(lambda: body.phase is BodyPhase.FAILED, 20)
    assert body.error == "RuntimeError: a bug"
    assert not body.end(), "nothing of it lands"


def test_a_body_that_is_dropped_ends_its_thread(site: BulkStoreSite) -> None:
    site.store.freeze()
    body = HeldBody(site.store.url, OXIGRAPH.load(b""), lambda: iter([lines(20_000)] * 50))
    name = f"txlog-bulk {site.store.url}"
    seen = [(-1, time.monotonic())]

    def waits() -> bool:
        if body.quads != seen[-1][0]:
            seen.append((body.quads, time.monotonic()))
        return time.monotonic() - seen[-1][1] > 1.0

    until(waits, 30, "the store reads nothing")
    assert body.phase is BodyPhase.SENDING
    body.drop()
    until(lambda: all(thread.name != name for thread in threading.enumerate()), 20)
