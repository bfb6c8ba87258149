"""A batch ends where a streamed worker stands, whatever breaks off on the way: real stores, tasks in this process."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from feed_stub import FeedStub, StubLog
from store_process import COUNT_ONE, Store

from txlog.apply import ApplyOutcome, MasterLog, WorkerState, apply_up_to
from txlog.client import MasterClient, WorkerReport
from txlog.config.process_config import PipelineConfig
from txlog.model.entry import KIND_QUADS, KIND_SKIP, KIND_UPDATE
from txlog.model.entry_effects import EntryEffect, encode_effects
from txlog.model.quads import encode_quads
from txlog.model.synchronous_entry import KIND_DECISION
from txlog.pipeline.batch.bucket_load import LOAD_BYTES, LOAD_QUADS, _join_bodies
from txlog.pipeline.batch.catch_up import CatchUp, CatchUpResult
from txlog.pipeline.batch.log_range_reader import read_ranges
from txlog.pipeline.batch.task_messages import LoadJob, LogRange, UpdateIndexes
from txlog.pipeline.batch.task_runner import InProcessRunner
from txlog.workers import ADAPTERS
from txlog.workers.adapter import (
    EMPTY_MARKER,
    LoadMarker,
    MarkerPosition,
    RequestOutcome,
    SystemGraphs,
    Transport,
    Unreachable,
    WorkerRequest,
    WorkerResponse,
)
from txlog.workers.digest import Digest, digest_worker
from txlog.workers.http_transport import HttpTransport
from txlog.workers.marker_names import marker_name

ADAPTER = ADAPTERS["oxigraph"]
TAKEOVER_S = 0.2


class Cut(Exception):
    """The process ends here, as by kill -9: nothing of it runs any more, not even what would tidy up."""


class Faults:
    """Fails one request, counted over all connections of the process: before it is sent, or after it was carried out
    (its answer is lost). ``deadly``: the process is gone with it, and sends nothing more."""

    def __init__(self, at: int, *, after: bool = False, deadly: bool = True) -> None:
        self.at, self.after, self.deadly = at, after, deadly
        self.sent = 0
        self.dead = False


class Faulty:
    def __init__(self, url: str, faults: Faults) -> None:
        self._http, self._faults = HttpTransport(url, 20.0), faults

    @property
    def url(self) -> str:
        return self._http.url

    def settled(self) -> bool:
        return True

    def send(self, request: WorkerRequest) -> WorkerResponse:
        faults = self._faults
        if faults.dead:
            raise Cut
        faults.sent += 1
        hit = faults.sent == faults.at
        answer = None if hit and not faults.after else self._http.send(request)
        if hit and faults.deadly:
            faults.dead = True
            raise Cut
        if hit or answer is None:
            raise Unreachable(self.url, "the answer is lost", RequestOutcome.CLOSED)
        return answer


class Site:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = StubLog()
        self.feed = FeedStub(self.log, ["w1"])
        self.worker = Store(folder / "w1")
        self.streamed = Store(folder / "streamed")
        self.told: list[WorkerReport] = []

    def batch(
        self,
        faults: Faults | None = None,
        in_order_max: int = 3,
        upto: int | None = None,
        make: Callable[[str], Transport] | None = None,
    ) -> CatchUpResult:
        config = PipelineConfig.model_validate(
            {
                "data_center": "uk",
                "masters": [self.feed.url],
                "workers": [{"name": "w1", "url": self.worker.url}],
                "scratch_folder": self.folder / "scratch",
            }
        )

        def transport(url: str) -> Transport:
            if make is not None:
                return make(url)
            return Faulty(url, faults) if faults else HttpTransport(url, 20.0)

        batch = CatchUp(
            config,
            "w1",
            InProcessRunner(transport(self.worker.url)),
            self.told.append,
            transport=transport,
            takeover_s=TAKEOVER_S,
            wait_s=5.0,
            in_order_max=in_order_max,
        )
        return batch.run(upto)

    def stream(self, store: Store, upto: int | None = None) -> ApplyOutcome:
        """The stream's part; it waits for a lock that somebody left behind no longer than the batch does."""
        with MasterClient(self.feed.url) as master, HttpTransport(store.url, 20.0) as transport:
            end = len(self.log.entries) if upto is None else upto
            return apply_up_to(ADAPTER, transport, MasterLog(master), end, epoch=1, budget_s=60)

    def system(self, store: Store) -> SystemGraphs:
        with HttpTransport(store.url, 20.0) as transport:
            return ADAPTER.parse_system_graphs(transport.send(ADAPTER.read_system()))

    def holds(self, store: Store) -> tuple[Digest, list[str], int]:
        """Statements, all graphs of users (the empty ones, too), and how often the counting update was carried out."""
        with HttpTransport(store.url, 20.0) as transport:
            found = digest_worker(ADAPTER, transport)
        graphs = [g for g in store.select("SELECT ?g { GRAPH ?g {} }") if not g.startswith("urn:txlog:system")]
        return found, graphs, store.count()

    def assert_equal(self) -> None:
        """After what is left was streamed to both, the worker is what a worker is that was only ever streamed to."""
        self.stream(self.worker)
        self.stream(self.streamed)
        here, there = self.system(self.worker), self.system(self.streamed)
        assert here.markers[0].position == there.markers[0].position
        assert len(here.markers) == 1
        assert not here.loading
        assert not here.claims
        assert self.holds(self.worker) == self.holds(self.streamed)

    def close(self) -> None:
        self.feed.stop()
        self.worker.kill()
        self.streamed.kill()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


def quad(number: int, graph: int = 0) -> bytes:
    return b"<urn:s%d> <urn:p> <urn:o> <urn:g%d> ." % (number, graph)


def quad_payload(number: int) -> bytes:
    return encode_quads([], [quad(number)])


def mixed_log(log: StubLog, transactions: int, seed: int, updates: int = 0) -> None:
    """Quads that come, go and come again, graphs that come and go, and updates that tell when they see less or more."""
    chance = random.Random(seed)
    places = set(chance.sample(range(1, transactions), updates))
    for number in range(transactions):
        if number in places:
            log.append(COUNT_ONE, kind=KIND_UPDATE)
            log.append(
                b"INSERT { <urn:sum> <urn:at%d> ?n } WHERE { SELECT (COUNT(*) AS ?n) { GRAPH ?g { ?s ?p ?o } } }"
                % number,
                b"DELETE WHERE { GRAPH <urn:g1> { ?s ?p ?o } }",
                kind=KIND_UPDATE,
            )
        touched = chance.sample(range(25), 3)
        gone = [quad(n, n % 4) for n in touched if chance.random() < 0.4]
        log.append(encode_quads(gone, [quad(n, n % 4) for n in touched if quad(n, n % 4) not in gone]))
    log.append(encode_quads([], [quad(99, 9)]), encode_quads([quad(99, 9)], []))


def test_quads_into_an_empty_worker(site: Site) -> None:
    mixed_log(site.log, 60, seed=1)
    ended = site.batch()
    assert (ended.state, ended.error, ended.entries) == (WorkerState.WORKING, None, 62)
    site.assert_equal()
    *before, last = [report.state for report in site.told]
    assert set(before) == {"Loading"}
    assert last == "Working"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_segments_cut_by_updates_into_a_worker_that_is_behind(site: Site, seed: int) -> None:
    mixed_log(site.log, 20, seed, updates=1)
    site.stream(site.worker)
    mixed_log(site.log, 60, seed, updates=4)
    ended = site.batch()
    while ended.marker is not None and ended.marker.position.index < len(site.log.entries):
        assert (ended.state, ended.error) == (WorkerState.WORKING, None)
        assert not site.system(site.worker).loading  # it ended early, as a worker, where streaming is better
        site.stream(site.worker, ended.marker.position.index + 1)
        ended = site.batch()
    site.assert_equal()


def decided(log: StubLog, *texts: bytes, skipped: bool = False) -> int:
    """Append a COMMIT at which these take effect, as a page has it. ``skipped``: one more is skipped."""
    effects = [
        EntryEffect("us-1", 9, seq, KIND_QUADS if text[1:2] == b" " else KIND_UPDATE, text)
        for seq, text in enumerate(texts, 1)
    ]
    effects += [EntryEffect("us-1", 9, 99, KIND_SKIP, b"")] * skipped
    return log.append(encode_effects(effects), kind=KIND_DECISION)


def test_transactions_of_one_commit(site: Site) -> None:
    mixed_log(site.log, 30, seed=4)
    decided(site.log, encode_quads([], [quad(1, 7), quad(2, 7)]), encode_quads([quad(1, 7)], [quad(99, 9)]))
    mixed_log(site.log, 10, seed=5)
    updated = decided(site.log, encode_quads([], [quad(50)]), COUNT_ONE, encode_quads([quad(50)], []), COUNT_ONE)
    mixed_log(site.log, 30, seed=6)
    ended = site.batch()
    assert (ended.state, ended.error) == (WorkerState.WORKING, None)
    assert ended.marker is not None
    assert ended.marker.position.index >= updated - 1
    site.assert_equal()


def test_one_bucket_alone_hears_of_all_updates(site: Site) -> None:
    """A log may have millions of them, and there are hundreds of buckets."""
    mixed_log(site.log, 20, seed=1)
    first = site.log.append(COUNT_ONE, kind=KIND_UPDATE)
    last = site.log.append(*[COUNT_ONE] * 500, kind=KIND_UPDATE)
    loading = LoadMarker(site.log.stable, 1, EMPTY_MARKER)
    job = LoadJob((site.feed.url,), "w1", site.worker.url, "oxigraph", loading, 4, worker_was_empty=True)
    cuts = [
        (bucket, told)
        for bucket, told in read_ranges(job, [LogRange(site.log.start, site.log.stable)])
        if isinstance(told, UpdateIndexes)
    ]
    assert cuts == [
        (0, UpdateIndexes(tuple(range(first, last + 1)), site.log.at(first - 1))),
        *((bucket, UpdateIndexes((first,), site.log.at(first - 1))) for bucket in (1, 2, 3)),
    ]


@pytest.mark.parametrize(("quads", "size"), [(250_001, 20), (300, 400_000)])
def test_requests_of_a_load_are_bounded_by_bytes_and_by_quads(quads: int, size: int) -> None:
    line = b"x" * (size - 1) + b"\n"
    bodies = list(_join_bodies([line * 100] * (quads // 100) + [line] * (quads % 100)))
    assert len(bodies) > 1
    assert b"".join(bodies) == line * quads
    assert all(len(body) <= LOAD_BYTES and body.count(b"\n") <= LOAD_QUADS for body in bodies)


def test_a_long_stretch_of_updates_is_left_to_the_stream(site: Site) -> None:
    mixed_log(site.log, 20, seed=1)
    site.log.append(*[COUNT_ONE] * 30, kind=KIND_UPDATE)
    mixed_log(site.log, 20, seed=2)
    ended = site.batch(in_order_max=10)
    assert ended.marker is not None
    assert ended.marker.position.index == 22
    assert (ended.state, ended.error) == (WorkerState.WORKING, None)
    site.assert_equal()


def test_an_update_that_the_worker_refuses_is_left_to_who_finds_out_which(site: Site) -> None:
    mixed_log(site.log, 20, seed=1)
    poison = site.log.append(b"CREATE GRAPH <urn:g1>", kind=KIND_UPDATE)
    site.log.append(COUNT_ONE, kind=KIND_UPDATE)
    ended = site.batch(in_order_max=5)
    assert ended.marker is not None
    assert ended.marker.position.index == poison - 1
    assert site.stream(site.worker).state is WorkerState.BLOCKED
    site.log.skip(poison)
    site.assert_equal()


def test_the_marker_behind_updates_has_the_epoch_in_which_they_were_read(site: Site) -> None:
    """With an earlier one, a master that is not there yet would take the worker for one of an abandoned branch."""
    site.log.append(COUNT_ONE, kind=KIND_UPDATE)
    last = site.log.append(quad_payload(1), quad_payload(2))
    ended = site.batch()
    assert ended.marker is not None
    assert (ended.marker.position.epoch, ended.marker.position.index) == (site.log.stable.epoch, last)
    assert site.system(site.worker).markers == (ended.marker,)


class Ending(Faulty):
    """The store closes the connection at each request with this text in it."""

    def __init__(self, url: str, text: bytes) -> None:
        super().__init__(url, Faults(0))
        self._text = text

    def send(self, request: WorkerRequest) -> WorkerResponse:
        if self._text in request.body:
            raise Unreachable(self.url, "closed", RequestOutcome.CLOSED)
        return super().send(request)


def test_an_update_at_which_the_worker_ends_is_left_to_who_judges_it(site: Site) -> None:
    mixed_log(site.log, 20, seed=1)
    harmful = site.log.append(COUNT_ONE, kind=KIND_UPDATE)
    mixed_log(site.log, 5, seed=2)
    ended = [site.batch(in_order_max=5, make=lambda url: Ending(url, COUNT_ONE)) for _ in range(2)]
    assert [(each.state, each.left_updates) for each in ended] == [
        (WorkerState.UNREACHABLE, False),
        (WorkerState.WORKING, True),
    ]
    assert ended[1].marker is not None
    assert ended[1].marker.position.index == harmful - 1
    site.assert_equal()


def test_killed_at_any_request_it_is_repeated_and_ends_the_same(site: Site) -> None:
    """Of the whole way: begin, a segment with deletes, an update with its move, a segment, the end. A request that was
    carried out, and its answer not heard, is the same as the next one not sent."""
    seen: set[str] = set()
    at, requests = 0, 99
    while at <= requests:
        at += 1
        mixed_log(site.log, 6, seed=at, updates=1)
        site.stream(site.worker)
        mixed_log(site.log, 10, seed=at + 1000, updates=1)
        end = len(site.log.entries)
        faults = Faults(at, after=True)
        with suppress(Cut):
            site.batch(faults)
        requests = faults.sent
        system = site.system(site.worker)
        seen.add("loading" if system.loading else "claimed" if system.claims else "worker")
        assert len(system.loading) + len(system.markers) == 1
        if system.loading:
            # the stream leaves it alone, and says so
            outcome = site.stream(site.worker)
            assert (outcome.state, outcome.requests) == (WorkerState.LOADING, 1)
            assert "batch" in (outcome.error or "")
        mixed_log(site.log, 1, seed=at)  # the log goes on meanwhile; what broke off is repeated to its own end
        ended = site.batch()
        assert (ended.state, ended.error) == (WorkerState.WORKING, None), ended
        assert ended.marker is not None
        assert ended.marker.position.index <= (end if system.loading else len(site.log.entries))
        site.assert_equal()
    assert seen == {"loading", "claimed", "worker"}
    assert requests > 15


def test_lost_answers_cost_a_repetition_and_nothing_else(site: Site) -> None:
    mixed_log(site.log, 12, seed=8, updates=1)
    for at in (3, 6, 7, 9, 11):
        ended = site.batch(Faults(at, after=True, deadly=False))
        while ended.marker is None or ended.marker.position.index < len(site.log.entries):
            ended = site.batch()
            assert ended.state in (WorkerState.WORKING, WorkerState.LOADING), ended
        site.assert_equal()
        site.worker.update("DROP ALL")


def test_who_is_taken_for_dead_notices_and_ends(site: Site) -> None:
    mixed_log(site.log, 30, seed=1)

    class Slow(InProcessRunner):
        """Is overtaken between reading and loading."""

        def run(self, job, ranges):  # type: ignore[no-untyped-def]
            with HttpTransport(site.worker.url) as transport:
                token = next(iter(site.system(site.worker).claims))
                assert token
                assert transport.send(ADAPTER.take_over(None, 77)).ok
                stolen = LoadMarker(job.loading.position, 1, job.loading.since)
                assert transport.send(ADAPTER.apply([], job.loading, stolen)).ok
            return super().run(job, ranges)

    config = PipelineConfig.model_validate(
        {
            "data_center": "uk",
            "masters": [site.feed.url],
            "workers": [{"name": "w1", "url": site.worker.url}],
            "scratch_folder": site.folder / "scratch",
        }
    )
    ended = CatchUp(config, "w1", Slow(), site.told.append, takeover_s=TAKEOVER_S).run()
    assert ended.state is WorkerState.LOADING
    assert ended.marker is None
    (loading,) = site.system(site.worker).loading
    assert loading.token == 1
    assert site.holds(site.worker)[0].quads == 0
    assert site.batch().state is WorkerState.WORKING
    site.assert_equal()


def test_another_applier_has_it(site: Site) -> None:
    mixed_log(site.log, 10, seed=1)
    site.stream(site.worker, 3)
    with HttpTransport(site.worker.url) as transport:
        assert transport.send(ADAPTER.claim(5)).ok
    before = site.system(site.worker)
    config = PipelineConfig.model_validate(
        {
            "data_center": "uk",
            "masters": [site.feed.url],
            "workers": [{"name": "w1", "url": site.worker.url}],
            "scratch_folder": site.folder / "scratch",
        }
    )
    ended = CatchUp(config, "w1", InProcessRunner(), site.told.append, wait_s=0.3).run()
    assert ended.marker is None
    assert "another applier" in (ended.error or "")
    assert site.system(site.worker) == before
    # its owner is gone: the fence is raised, so that nothing of it can land any more
    fence = before.markers[0].fence
    ended = site.batch()
    assert ended.marker is not None
    assert ended.marker.fence > fence + 1
    site.assert_equal()


def test_what_stands_against_it(site: Site) -> None:
    mixed_log(site.log, 5, seed=1)
    site.worker.update("INSERT DATA { <urn:a> <urn:b> <urn:c> }")
    ended = site.batch()
    assert ended.state is WorkerState.REFUSED
    assert "ForeignStore" in (ended.error or "")
    other = StubLog(b"\x0b" * 16)
    mixed_log(other, 3, seed=2)
    site.worker.update("DROP ALL")
    mine, site.feed.log = site.feed.log, other
    site.log = other
    site.stream(site.worker)
    site.feed.log = site.log = mine
    assert site.batch().state is WorkerState.DIVERGED
    assert len(site.system(site.worker).markers) == 1


def test_a_skip_behind_a_load_that_broke_off(site: Site) -> None:
    mixed_log(site.log, 10, seed=1)
    faults = Faults(12)
    with pytest.raises(Cut):
        site.batch(faults)
    assert site.system(site.worker).loading
    site.log.skip(4)
    ended = site.batch()
    assert ended.state is WorkerState.DIVERGED
    assert "rebuild" in (ended.error or "")


def test_a_skip_of_one_in_a_commit_behind_a_load_that_broke_off(site: Site) -> None:
    mixed_log(site.log, 10, seed=1)
    decided(site.log, encode_quads([], [quad(1)]), skipped=True)
    with pytest.raises(Cut):
        site.batch(Faults(12))
    ended = site.batch()
    assert ended.state is WorkerState.DIVERGED
    assert "rebuild" in (ended.error or "")


def test_the_marker_behind_a_batch_carries_the_cluster(site: Site) -> None:
    mixed_log(site.log, 8, seed=1)
    ended = site.batch()
    assert ended.marker is not None
    assert ended.marker.cluster == site.log.cluster
    assert site.system(site.worker).markers == (ended.marker,)


def test_what_another_cluster_adopted_gets_no_batch(site: Site) -> None:
    """Its position is 0, which every log has, but with another hash."""
    other = StubLog(b"\x0b" * 16)
    mixed_log(site.log, 8, seed=1)
    site.worker.update("INSERT DATA { <urn:a> <urn:b> <urn:c> }")
    adopted = MarkerPosition(other.start, 3, (), other.cluster, b"\x0c" * 16)
    site.worker.update(f"CREATE GRAPH <{marker_name(adopted)}>")
    assert site.batch().state is WorkerState.DIVERGED
    assert site.system(site.worker).markers == (adopted,)
    assert len(site.worker.select("SELECT ?s { ?s ?p ?o }")) == 1
