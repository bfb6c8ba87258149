"""A bulk load in a worker's lane: held back, and then in as a whole, at its place in the log. Real stores."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from bulk_store_site import LOAD, OXIGRAPH, BulkStoreSite, drive, lanes
from store_process import until

from txlog.backup.backup_errors import WorkerLoading
from txlog.backup.dataset_load import RestoreTarget, start_load
from txlog.bulk.held_body import BodyPhase
from txlog.model.bulk_entry import BulkReference
from txlog.pipeline.batch.catch_up import CatchUp
from txlog.pipeline.batch.task_runner import InProcessRunner
from txlog.pipeline.bulk_lane import BulkLane, BulkStep
from txlog.pipeline.worker_lanes import ApplyRequest
from txlog.workers.adapter import LoadMarker, MarkerPosition
from txlog.workers.http_transport import HttpTransport


@pytest.fixture
def site(tmp_path: Path) -> Iterator[BulkStoreSite]:
    made = BulkStoreSite(tmp_path)
    yield made
    made.close()


def test_a_load_that_nobody_prepared_is_in_at_its_place(site: BulkStoreSite) -> None:
    site.insert(1)
    site.append_load()
    last = site.delete_first()
    drive(site, lanes(site), last)
    assert site.loaded() == 1999
    assert len(site.store.select("SELECT ?s { ?s <urn:p> 1 }")) == 1
    assert site.system().markers[0].position == site.log.at(last)
    assert {report["state"] for _, report in site.feed.reports} == {"Working"}, "no store was sent the entry itself"


def test_a_load_may_be_the_first_entry(site: BulkStoreSite) -> None:
    last = site.append_load()
    drive(site, lanes(site), last)
    assert site.loaded() == 2000


def test_a_held_load_is_not_seen_while_others_are_executed(site: BulkStoreSite) -> None:
    site.ask()
    running = lanes(site)
    running.apply_workers([ApplyRequest("w1", site.insert(1))], 0.0)
    until(lambda: site.phase() == "Held", 30)
    for number in range(2, 6):
        drive(site, running, site.insert(number))
        assert site.loaded() == 0
    before = len(site.feed.reports)
    drive(site, running, site.append_load())
    assert site.loaded() == 2000
    phases = {report["bulk"]["phase"] for _, report in site.feed.reports[before:]}
    assert "Sending" not in phases, "what was held is what came in"
    assert {report["state"] for _, report in site.feed.reports} == {"Working"}, "it is read all the while"


def test_the_mark_is_in_the_worker_before_the_body_is_ended(
    site: BulkStoreSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    phases: list[BodyPhase] = []
    replace = BulkLane._replace

    def watched(lane: BulkLane, expected: MarkerPosition | LoadMarker | None, new: LoadMarker) -> BulkStep | None:
        assert lane._body is not None
        phases.append(lane._body.phase)
        return replace(lane, expected, new)

    monkeypatch.setattr(BulkLane, "_replace", watched)
    drive(site, lanes(site), site.append_load())
    assert phases == [BodyPhase.HELD]


def test_what_nobody_asks_for_any_more_is_given_up(site: BulkStoreSite) -> None:
    site.ask()
    running = lanes(site)
    running.apply_workers([ApplyRequest("w1", site.insert(1))], 0.0)
    until(lambda: site.phase() == "Held", 30)
    site.feed.bulk.clear()
    until(lambda: site.phase() == "", 20)
    drive(site, running, site.insert(2))
    assert (site.loaded(), site.system().loading) == (0, ())


def test_a_load_that_the_log_skips_is_passed_over(site: BulkStoreSite) -> None:
    last = site.log.skip(site.append_load())
    drive(site, lanes(site), last)
    assert site.loaded() == 0


def test_a_damaged_part_blocks_and_is_named(site: BulkStoreSite) -> None:
    (part,) = site.parts.rglob("*.nq.zst")
    whole = part.read_bytes()
    part.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    site.insert(1)
    last = site.append_load()
    running = lanes(site)
    running.apply_workers([ApplyRequest("w1", last)], 0.0)

    def is_blocked() -> bool:
        running.apply_workers([ApplyRequest("w1", last)], 0.1)
        return site.feed.state("w1") == "Blocked"

    until(is_blocked, 30)
    assert "PartDamaged" in site.error()
    assert part.name in site.error()
    assert (site.loaded(), site.system().loading, site.feed.position("w1")) == (0, (), 1)
    part.write_bytes(whole)
    drive(site, running, last)
    assert site.loaded() == 2000


def test_another_manifest_is_not_taken(site: BulkStoreSite) -> None:
    site.load = BulkReference(LOAD, "0" * 64, 2000)
    last = site.append_load()
    running = lanes(site)

    def is_blocked() -> bool:
        running.apply_workers([ApplyRequest("w1", last)], 0.1)
        return site.feed.state("w1") == "Blocked"

    until(is_blocked, 30)
    assert "manifest.json" in site.error()
    assert site.loaded() == 0


def test_a_pipeline_without_a_target_says_so(tmp_path: Path) -> None:
    site = BulkStoreSite(tmp_path)
    try:
        site.config = site.config.model_copy(update={"bulk_target": None})
        last = site.append_load()
        lanes(site).apply_workers([ApplyRequest("w1", last)], 0.0)
        until(lambda: site.feed.state("w1") == "Blocked")
        assert "has no target for parts" in site.error()
        assert site.feed.reports[-1][1]["bulk"]["mode"] == ""
    finally:
        site.close()


def test_a_store_that_ends_while_it_holds_a_load_gets_it_again(site: BulkStoreSite) -> None:
    site.ask()
    running = lanes(site)
    running.apply_workers([ApplyRequest("w1", site.insert(1))], 0.0)
    until(lambda: site.phase() == "Held", 30)
    site.store.kill()
    site.store.start()
    assert site.loaded() == 0
    last = site.append_load()
    drive(site, running, last)
    assert site.loaded() == 2000


def test_a_store_that_ends_while_a_load_lands_gets_it_again(tmp_path: Path) -> None:
    site = BulkStoreSite(tmp_path, 45_000)
    try:
        site.ask()
        running = lanes(site)
        running.apply_workers([ApplyRequest("w1", site.insert(1))], 0.0)
        until(lambda: site.phase() == "Held", 30)
        running.apply_workers([ApplyRequest("w1", site.append_load())], 0.0)
        until(lambda: bool(site.system().loading))
        site.store.kill()
        site.store.start()
        assert site.loaded() in (0, 45_000)
        last = site.delete_first()
        drive(site, running, last)
        assert site.loaded() == 44_999
        assert site.system().loading == ()
    finally:
        site.close()


def test_nothing_of_a_load_lands_behind_its_marker(site: BulkStoreSite) -> None:
    """A lane stopped right before it ended its body. Another one takes the worker over, and only after a restart."""
    drive(site, lanes(site), site.insert(1))
    old = site.new_body()
    until(lambda: old.phase is BodyPhase.HELD)
    site.append_load()
    last = site.delete_first()
    site.put_in_flight_mark()
    running = lanes(site)
    running.apply_workers([ApplyRequest("w1", last)], 0.5)
    until(site.asks_for_a_restart, 20)
    assert site.feed.state("w1") == "Unreachable"
    running.apply_workers([ApplyRequest("w1", last)], 1.0)
    assert site.feed.position("w1") == 1, "it waits for the restart"
    drive(site, running, last)
    assert site.loaded() == 1999
    old.end()
    until(lambda: old.phase not in (BodyPhase.HELD, BodyPhase.LANDING))
    assert old.phase is not BodyPhase.LANDED
    assert site.loaded() == 1999, "what was deleted behind the load stays away"


def test_restores_and_batches_leave_a_worker_alone_whose_load_may_land(site: BulkStoreSite) -> None:
    drive(site, lanes(site), site.insert(1))
    site.append_load()
    mark = site.put_in_flight_mark()
    with HttpTransport(site.store.url) as transport, pytest.raises(WorkerLoading, match="may still come"):
        start_load(RestoreTarget("w1", OXIGRAPH, transport), site.log.at(1), emptying=True, again=True)
    done = CatchUp(site.config, "w1", InProcessRunner(), lambda _: None).run()
    assert "may still come" in str(done.error)
    assert site.system().loading == (mark,)


@pytest.mark.parametrize("step", ["held", "marked", "ended"])
def test_a_lane_that_is_killed_leaves_all_or_nothing(site: BulkStoreSite, step: str) -> None:
    site.ask()
    site.insert(1)
    last = site.append_load()
    code = f"""
import json, os, signal, sys
from txlog.bulk import held_body
from txlog.config.process_config import PipelineConfig
from txlog.pipeline import bulk_lane
from txlog.pipeline.worker_applier import WorkerApplier
from txlog.pipeline.worker_lanes import ApplyRequest, LaneSet

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

step = {step!r}
if step == "held":
    bulk_lane.BulkLane._begin_landing = die
elif step == "marked":
    held_body.HeldBody.end = die
else:
    end = held_body.HeldBody.end
    def end_and_die(self):
        end(self)
        self._finish = lambda *_: die()
    held_body.HeldBody.end = end_and_die
config = PipelineConfig.model_validate_json(sys.stdin.read())
LaneSet(config, WorkerApplier).apply_workers([ApplyRequest("w1", {last})], 60.0)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    text = site.config.model_dump_json(exclude_defaults=True)
    ended = subprocess.run([sys.executable, "-c", code], input=text, text=True, env=environment, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert site.loaded() in ((0,) if step != "ended" else (0, 2000))
    assert bool(site.system().loading) == (step != "held")
    last = site.delete_first()
    drive(site, lanes(site), last)
    assert (site.loaded(), site.system().loading) == (1999, ())


def test_readers_see_none_or_all(tmp_path: Path) -> None:
    site = BulkStoreSite(tmp_path, 20_000)
    seen: set[int] = set()
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            seen.add(site.loaded())

    reader = threading.Thread(target=read)
    try:
        reader.start()
        drive(site, lanes(site), site.append_load())
        assert site.loaded() == 20_000
    finally:
        over.set()
        reader.join()
        site.close()
    assert seen <= {0, 20_000}
