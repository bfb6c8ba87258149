"""The executor's part on real stores, without Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from feed_stub import FeedStub, StubLog
from store_process import COUNT_ONE, COUNTED, Store, until

from txlog.config.process_config import PipelineConfig, WorkerConfig
from txlog.pipeline.apply_round import WorkerCache
from txlog.pipeline.worker_applier import WorkerApplier
from txlog.pipeline.worker_lanes import ApplyRequest, LaneSet, WorkerMutex

WORKERS = ["w1", "w2"]


class Site:
    """A data centre without Spark: a feed, stores, and lanes as an executor has them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = StubLog()
        self.feeds = [FeedStub(self.log, WORKERS), FeedStub(self.log, WORKERS)]
        self.stores = {name: Store(folder / name) for name in WORKERS}
        self.lanes = self.new_process()

    def config(self, scratch: str = "scratch") -> PipelineConfig:
        return PipelineConfig.model_validate(
            {
                "data_center": "uk",
                "masters": [feed.url for feed in self.feeds],
                "workers": [{"name": name, "url": store.url} for name, store in self.stores.items()],
                "scratch_folder": self.folder / scratch,
                "budget_s": 0.5,
            }
        )

    def new_process(self, scratch: str = "scratch") -> LaneSet:
        return LaneSet(self.config(scratch), WorkerApplier)

    def count_one(self, times: int = 1) -> int:
        return self.log.append(*[COUNT_ONE] * times, kind=COUNTED)

    def ring(self, lanes: LaneSet | None = None, patience_s: float = 20.0) -> None:
        (lanes or self.lanes).apply_workers([ApplyRequest(name, self.log.stable.index) for name in WORKERS], patience_s)

    def counts(self) -> list[int]:
        return [store.count() for store in self.stores.values()]

    def close(self) -> None:
        for feed in self.feeds:
            feed.stop()
        for store in self.stores.values():
            store.kill()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


def test_a_ring_applies_and_tells_every_master(site: Site) -> None:
    site.count_one(3)
    site.ring()
    assert site.counts() == [3, 3]
    for feed in site.feeds:
        assert [feed.position(w) for w in WORKERS] == [3, 3]
        assert [feed.state(w) for w in WORKERS] == ["Working", "Working"]
        assert feed.workers["w1"]["position"]["epoch"] == 1


def test_a_replayed_batch_changes_nothing(site: Site) -> None:
    site.count_one(3)
    for _ in range(3):
        site.ring()
    assert site.counts() == [3, 3]


def test_processes_in_turn_each_with_a_memory_of_their_own(site: Site) -> None:
    other = site.new_process()
    for _ in range(5):
        site.count_one()
        site.ring(other)
        site.count_one()
        site.ring()
    assert site.counts() == [10, 10]


def test_two_applications_at_once_apply_each_transaction_once(site: Site) -> None:
    other = site.new_process("another application")
    for _ in range(20):
        site.count_one(3)
        for lanes in (site.lanes, other):
            site.ring(lanes, patience_s=0.0)

    def arrived() -> bool:
        site.ring(site.lanes)
        site.ring(other)
        return [feed.position(w) for feed in site.feeds for w in WORKERS] == [60] * 4

    until(arrived, 30)
    assert site.counts() == [60, 60]


def test_a_dead_worker_does_not_disturb_the_others_and_catches_up(site: Site) -> None:
    site.count_one()
    site.ring()
    site.stores["w2"].kill()
    site.count_one(2)
    site.ring()
    assert site.feeds[0].position("w1") == 3
    assert site.feeds[0].state("w2") == "Unreachable"
    site.stores["w2"].start()
    site.ring()
    assert site.counts() == [3, 3]
    assert site.feeds[1].state("w2") == "Working"


def test_a_worker_that_hangs_costs_the_others_only_patience(site: Site) -> None:
    site.count_one()
    site.ring()
    site.stores["w2"].freeze()
    site.count_one()
    started = time.monotonic()
    site.ring(patience_s=0.25)
    took_s = time.monotonic() - started
    until(lambda: site.feeds[0].position("w1") == 2)
    site.count_one()
    site.ring(site.new_process(), patience_s=5)  # another process meets the lane that is busy
    assert site.feeds[0].position("w1") == 3
    assert took_s < 20, "as long as the store is silent"
    site.stores["w2"].thaw()
    until(lambda: site.feeds[0].position("w2") == 3, what="a ring that came while its lane was busy was lost")
    assert site.counts() == [3, 3]


def test_a_store_put_back_to_an_older_copy_catches_up(site: Site) -> None:
    site.count_one(2)
    site.ring()
    site.stores["w2"].copy_to(site.folder / "copy")
    site.count_one(3)
    site.ring()
    site.stores["w2"].put_back(site.folder / "copy")
    assert site.counts() == [5, 2]
    site.ring()  # as the source does by itself every RECHECK_S
    assert site.counts() == [5, 5]


@pytest.mark.parametrize(("end", "said"), [(6, "Diverged"), (3, "Ahead")])
def test_a_store_of_an_abandoned_branch_goes_on_once_it_was_made_anew(site: Site, end: int, said: str) -> None:
    """Somebody else does that, and the lane does not cling to where the store stood."""
    site.count_one(2)
    site.ring()
    site.stores["w2"].copy_to(site.folder / "copy")
    site.count_one(3)
    site.ring()
    del site.log.entries[2:]
    site.log.append(*[COUNT_ONE + b" "] * (end - 2), kind=COUNTED)  # the same, and other bytes: another branch
    site.ring()
    assert [feed.state("w2") for feed in site.feeds] == [said, said]
    site.stores["w2"].put_back(site.folder / "copy")
    site.ring()
    assert site.stores["w2"].count() == end
    assert [feed.state("w2") for feed in site.feeds] == ["Working", "Working"]


def test_poison_blocks_one_worker_and_a_skip_sets_it_free(site: Site) -> None:
    site.count_one()
    site.ring()
    site.stores["w2"].update("CREATE GRAPH <urn:g>")  # w2 is not what it should be
    poison = site.log.append(b"CREATE GRAPH <urn:g>", kind=COUNTED)
    site.count_one()
    site.ring()
    assert site.counts() == [2, 1]
    worker, report = next(r for r in site.feeds[1].reports if r[1]["state"] == "Blocked")
    assert worker == "w2"
    assert report["txid"] == str(site.log.entries[poison - 1].txid)
    assert report["status"] == 500
    assert "urn:g" in report["body"]
    assert site.feeds[0].position("w2") == poison - 1
    site.log.skip(poison)
    site.ring()
    assert site.counts() == [2, 2]
    assert site.feeds[0].state("w2") == "Working"


def test_a_hold_of_any_master_is_kept_until_it_is_lifted(site: Site) -> None:
    site.feeds[1].hold("w2", 2)
    site.count_one(4)
    site.ring()
    assert site.counts() == [4, 2]
    site.ring()
    assert site.counts() == [4, 2]
    site.feeds[1].hold("w2", None)
    site.ring()
    assert site.counts() == [4, 4]


def test_a_foreign_store_is_refused(site: Site) -> None:
    site.stores["w2"].update("INSERT DATA { <urn:a> <urn:b> <urn:c> }")
    site.count_one()
    site.ring()
    assert site.feeds[0].state("w2") == "Refused"
    assert site.feeds[0].position("w1") == 1


def test_a_store_that_fails_the_probe_is_refused_and_never_applied_to(site: Site, tmp_path: Path) -> None:
    site.stores["w2"].kill()
    site.stores["w2"] = wrong = Store(tmp_path / "wrong", "--union-default-graph")
    lanes = site.new_process()
    site.count_one()
    site.ring(lanes)
    site.ring(lanes)
    assert site.feeds[0].state("w2") == "Refused"
    assert "--union-default-graph" in site.feeds[0].workers["w2"]["error"]
    assert wrong.count() == 0
    assert site.feeds[0].position("w1") == 1


def test_a_store_at_another_url_is_probed_too(site: Site, tmp_path: Path) -> None:
    """What is known of the first store is not known of the second one."""
    site.count_one()
    site.ring()
    wrong = Store(tmp_path / "wrong", "--union-default-graph")
    try:
        store = WorkerConfig(name="w2", url=wrong.url).model_dump_json()
        site.lanes.apply_workers([ApplyRequest("w2", 1, store)], 20.0)
        assert site.feeds[0].state("w2") == "Refused"
        assert wrong.count() == 0
    finally:
        wrong.kill()


@pytest.mark.parametrize("first_dead", [True, False])
def test_one_dead_master_neither_stops_nor_slows_anything(site: Site, first_dead: bool) -> None:
    dead, alive = site.feeds if first_dead else reversed(site.feeds)
    site.count_one()
    site.ring()
    dead.stop()
    site.count_one()
    site.ring()  # finds out
    started = time.monotonic()
    for _ in range(5):
        site.count_one()
        site.ring()
    assert time.monotonic() - started < 20
    assert [alive.position(w) for w in WORKERS] == [7, 7]
    dead.start()
    until(lambda: [dead.position(w) for w in WORKERS] == [7, 7], what="a master that is back learns where workers are")


def test_no_master_at_all_is_no_fault_of_the_worker(site: Site) -> None:
    for feed in site.feeds:
        feed.stop()
    site.ring(patience_s=3)
    for feed in site.feeds:
        feed.start()
    site.count_one()
    site.ring()
    assert site.counts() == [1, 1]


def test_a_turn_belongs_to_one_and_keeps_what_was_asked_and_known(tmp_path: Path) -> None:
    mine, other = WorkerMutex(tmp_path / "w1"), WorkerMutex(tmp_path / "w1")
    assert mine.try_acquire()
    assert not other.try_acquire()
    other.set_target(7)
    assert mine.read_target() == 7
    mine.write_cache(WorkerCache(True, None))
    mine.release()
    assert other.try_acquire()
    assert other.read_cache() == WorkerCache(True, None)
    assert other.read_target() == 7


def test_a_worker_that_came_later_is_applied_to_and_one_that_left_does_not_hold_up_the_others(
    site: Site, tmp_path: Path
) -> None:
    late = Store(tmp_path / "late")
    try:
        for feed in site.feeds:
            feed.workers["w3"] = {**feed.workers["w1"], "name": "w3", "url": late.url}
        site.count_one(3)
        store = WorkerConfig(name="w3", url=late.url).model_dump_json()
        site.lanes.apply_workers([ApplyRequest("w3", 3, store), ApplyRequest("w1", 3)], 20.0)
        assert (late.count(), site.stores["w1"].count()) == (3, 3)
        for feed in site.feeds:
            del feed.workers["w3"]  # a report of it is 404 now
        site.count_one(2)
        site.lanes.apply_workers([ApplyRequest("w3", 5, store)], 20.0)
        for _ in range(2):
            site.count_one()
            site.ring()
            assert all(feed.position("w1") == site.log.stable.index for feed in site.feeds)
    finally:
        late.kill()
