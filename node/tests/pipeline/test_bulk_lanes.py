"""A bulk load in a worker's lane: held back, and then in as a whole, at its place in the log. Real stores."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from one_store_site import OneStoreSite
from store_process import until

from txlog.backup.backup_errors import WorkerLoading
from txlog.backup.dataset_load import RestoreTarget, start_load
from txlog.backup.folder_target import FolderTarget
from txlog.bulk.held_body import BodyPhase, HeldBody, in_flight_mark
from txlog.bulk.load_files import LoadFolder, LoadIntent
from txlog.bulk.load_writer import build_manifest, read_quads, write_parts
from txlog.model.bulk_entry import BulkReference, encode_bulk_load
from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.pipeline.batch.catch_up import CatchUp
from txlog.pipeline.batch.task_runner import InProcessRunner
from txlog.pipeline.bulk_lane import BulkLane
from txlog.pipeline.worker_applier import WorkerApplier
from txlog.pipeline.worker_lanes import ApplyRequest, LaneSet
from txlog.workers import ADAPTERS
from txlog.workers.adapter import LoadMarker, MarkerPosition, SystemGraphs
from txlog.workers.http_transport import HttpTransport

LOAD = "0123456789abcdef" * 2
OXIGRAPH = ADAPTERS["oxigraph"]


def lines(count: int) -> bytes:
    return b"".join(b"<urn:s:%d> <urn:p> <urn:o:%d> <urn:g> .\n" % (n, n) for n in range(count))


class BulkStoreSite(OneStoreSite):
    """One store, and a target with a load of ``quads`` quads."""

    def __init__(self, folder: Path, quads: int = 2000) -> None:
        self.parts = folder / "parts"
        self.parts.mkdir()
        super().__init__(folder, bulk_target={"folder": str(self.parts)})
        self.folder = LoadFolder(FolderTarget(self.parts), self.log.cluster.hex(), LOAD)
        request = LoadIntent(LOAD, self.log.cluster.hex(), [])
        self.folder.create_request(request)
        parts = write_parts(self.folder, iter([lines(quads)]), lambda _: None)
        self.load = self.folder.write_manifest(build_manifest(request, parts))

    def append_load(self) -> int:
        return self.log.append(encode_bulk_load(self.load), kind=KIND_UPDATE)

    def insert(self, number: int) -> int:
        return self.log.append(b"INSERT DATA { <urn:tx:%d> <urn:p> 1 }" % number, kind=KIND_UPDATE)

    def delete_first(self) -> int:
        return self.log.append(b"D <urn:s:0> <urn:p> <urn:o:0> <urn:g> .\n", kind=KIND_QUADS)

    def ask(self) -> None:
        self.feed.bulk["w1"] = self.load._asdict()

    def loaded(self) -> int:
        return int(self.store.select("SELECT (COUNT(*) AS ?n) { GRAPH <urn:g> { ?s ?p ?o } }")[0])

    def system(self) -> SystemGraphs:
        with HttpTransport(self.store.url) as transport:
            return OXIGRAPH.parse_system_graphs(transport.send(OXIGRAPH.read_system()))

    def phase(self) -> str:
        return str(self.feed.reports[-1][1]["bulk"]["phase"]) if self.feed.reports else ""

    def error(self) -> str:
        return str(self.feed.reports[-1][1]["error"]) if self.feed.reports else ""

    def asks_for_a_restart(self) -> bool:
        return bool(self.feed.reports) and bool(self.feed.reports[-1][1]["running"])

    def new_body(self) -> HeldBody:
        return HeldBody(self.store.url, OXIGRAPH.load(b""), lambda: read_quads(self.folder, self.load))

    def put_in_flight_mark(self) -> LoadMarker:
        """As a lane does that is about to end its body."""
        (before,) = self.system().markers
        mark = in_flight_mark(self.log.at(before.position.index + 1), before)
        with HttpTransport(self.store.url) as transport:
            assert transport.send(OXIGRAPH.apply([], before, mark)).ok
        return mark


@pytest.fixture
def site(tmp_path: Path) -> Iterator[BulkStoreSite]:
    made = BulkStoreSite(tmp_path)
    yield made
    made.close()


def lanes(site: OneStoreSite) -> LaneSet:
    return LaneSet(site.config, WorkerApplier)


def drive(site: BulkStoreSite, running: LaneSet, upto: int, seconds: float = 30.0) -> None:
    """As a pipeline does, with a supervisor that restarts a store where a report asks for it."""
    deadline = time.monotonic() + seconds
    restarted = 0
    while site.feed.position("w1") != upto:
        assert time.monotonic() < deadline, (site.feed.reports[-1], site.system())
        running.apply_workers([ApplyRequest("w1", upto)], 0.2)
        if site.asks_for_a_restart() and len(site.feed.reports) > restarted:
            site.store.kill()
            site.store.start()
            restarted = len(site.feed.reports) + 1


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

    def watched(lane: BulkLane, expected: MarkerPosition | LoadMarker | None, new: LoadMarker) -> bool:
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
