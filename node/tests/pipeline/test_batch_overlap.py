"""Requests of a batch that outlive it: a real store that is still executing one, and what the next batch does then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from store_process import COUNT_ONE, Store, until

from txlog.apply import WorkerState, apply_up_to
from txlog.apply.log_source import LogSource
from txlog.model.entry import KIND_UPDATE, LogEntry, Position
from txlog.model.errors import Unavailable
from txlog.pipeline.batch import load_session
from txlog.pipeline.batch.load_session import LoadSession, LoadTarget, inspect_worker
from txlog.workers import ADAPTERS
from txlog.workers.adapter import (
    EMPTY_MARKER,
    LoadMarker,
    RequestOutcome,
    StoreOperation,
    Unreachable,
    WorkerDiverged,
    WorkerRequest,
    WorkerResponse,
)
from txlog.workers.http_transport import HttpTransport
from txlog.workers.marker_names import loading_name, marker_name

ADAPTER = ADAPTERS["oxigraph"]
NUMBERS = 900
SLOW = (
    "INSERT { <urn:sum> <urn:is> ?n } WHERE { SELECT (SUM(STRLEN(CONCAT(STR(?a), STR(?b)))) AS ?n) "
    "{ ?a <urn:number> ?x . ?b <urn:number> ?y } }"
)
"""Takes about a second with :data:`NUMBERS` numbers."""
AT_1 = EMPTY_MARKER._replace(position=Position(1, 1, b"\x01" * 16))
AT_2 = EMPTY_MARKER._replace(position=Position(1, 2, b"\x02" * 16))


class NoLog(LogSource):
    def page(self, *_: object, **__: object) -> list[LogEntry]:
        raise AssertionError("nothing is to be applied")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "w1")
    yield store
    store.kill()


def start_session(store: Store, wait_s: float = 0.0) -> LoadSession:
    target = LoadTarget("w1", ADAPTER, HttpTransport(store.url, 20.0))
    session = LoadSession(target, HttpTransport(store.url, 20.0))
    session.begin(inspect_worker(target), AT_2.position, wait_s)
    return session


def test_the_lock_stays_while_a_request_of_the_batch_may_still_be_executed(store: Store) -> None:
    numbers = " ".join(f"<urn:n:{n}> <urn:number> {n} ." for n in range(NUMBERS))
    store.update(f"INSERT DATA {{ {numbers} }} ; CREATE GRAPH <{marker_name(AT_1)}>")
    session = start_session(store)
    operations = [StoreOperation(KIND_UPDATE, text) for text in (COUNT_ONE, SLOW.encode())]
    with pytest.raises(Unreachable):
        session.advance(operations, AT_2, 0.05)
    session.abandon()
    assert store.count() == 0, "it is still executed; otherwise this test shows nothing"
    with pytest.raises(Unavailable):
        start_session(store)
    until(lambda: store.count() == 1)
    assert len(store.select("SELECT ?g { GRAPH ?g {} FILTER(CONTAINS(STR(?g), 'loading')) }")) == 1


class Confused(HttpTransport):
    """The first heartbeat is lost. Asked which lock there is, the store then answers with an error."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.lost = self.errors = 1

    def send(self, request: WorkerRequest) -> WorkerResponse:
        if self.lost:
            self.lost = 0
            raise Unreachable(self.url, "no answer", RequestOutcome.UNKNOWN)
        if self.errors and request.reads:
            self.errors = 0
            return WorkerResponse(500, {}, b"no thread is free")
        return super().send(request)


def test_an_error_of_the_store_ends_no_heartbeats(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them the next batch takes this one for dead."""
    monkeypatch.setattr(load_session, "HEARTBEAT_S", 0.02)
    store.update(f"CREATE GRAPH <{marker_name(AT_1)}>")
    target, beating = LoadTarget("w1", ADAPTER, HttpTransport(store.url, 20.0)), Confused(store.url)
    session = LoadSession(target, beating)
    session.begin(inspect_worker(target), AT_2.position, 0.0)

    def claims() -> list[str]:
        return store.select("SELECT ?g { GRAPH ?g {} FILTER(CONTAINS(STR(?g), ':lock:')) }")

    until(lambda: beating.errors == 0)
    before = claims()
    until(lambda: claims() != before, 20.0, "no heartbeat any more")
    session.end(AT_2)


@pytest.mark.parametrize("other", ["marker", "load"])
def test_two_records_tell_of_an_overlap(store: Store, other: str) -> None:
    """A load that was taken for dead has ended after all, beside the one that took its place."""
    names = [loading_name(LoadMarker(AT_2.position, 5, AT_1))]
    names.append(marker_name(AT_2) if other == "marker" else loading_name(LoadMarker(AT_2.position, 6, AT_2)))
    for name in names:
        store.update(f"CREATE GRAPH <{name}>")
    with HttpTransport(store.url, 20.0) as transport:
        found = apply_up_to(ADAPTER, transport, NoLog(), 3)
        assert (found.state, found.requests) == (WorkerState.DIVERGED, 1)
        with pytest.raises(WorkerDiverged, match="two appliers have overlapped"):
            inspect_worker(LoadTarget("w1", ADAPTER, transport))
