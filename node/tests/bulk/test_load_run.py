"""From parts on targets to the entry of the log: real masters, and this test in place of the pipelines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from master_cluster import Cluster

from txlog.backup.folder_target import FolderTarget
from txlog.bulk import load_run
from txlog.bulk.bulk_errors import BulkKeyForgotten, LoadAborted, NotReady, UnknownKind
from txlog.bulk.load_files import LoadFolder
from txlog.bulk.load_run import (
    RETENTION_MIN_S,
    BulkSite,
    _join_reports,
    await_loaded,
    check_retention,
    check_sites,
    commit_load,
    give_up,
    prepare_load,
)
from txlog.client import MasterClient, MasterUnreachable, WorkerReport
from txlog.client.bulk_calls import BulkCalls, BulkLoads, BulkWorker
from txlog.client.connection import MasterConnection
from txlog.client.responses import BulkProgress, BulkRequest, JsonMarker
from txlog.model.bulk_entry import BulkReference, bulk_key, encode_bulk_load
from txlog.model.errors import BadInput, Conflict, KeyTaken, Unavailable, Unsupported
from txlog.server.admin.bulk_loads import REQUEST_S

LOAD, OTHER = "01" * 16, "02" * 16
RETENTION_S = 86400.0
REFERENCE = BulkReference(LOAD, "ab" * 32, 100)
WORKER = {"name": "w-1", "url": "http://127.0.0.1:1"}


class Pipeline:
    """Reports a worker as a pipeline does; returns what the master answers."""

    def __init__(self, url: str) -> None:
        self._url = url

    def report(self, bulk: BulkProgress | None, state: str = "Working", index: int = 0) -> BulkRequest | None:
        place = JsonMarker(1, index, "00" * 16)
        with MasterClient(self._url) as master:
            return master.report_worker("w-1", WorkerReport(place, state, bulk=bulk)).bulk


class Run:
    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.url = cluster.url(0)
        self.calls = BulkCalls(self.url, 10.0)
        self.site = BulkSite("uk", [self.calls], LoadFolder(FolderTarget(folder), "0a" * 16, LOAD))
        self.pipeline = Pipeline(self.url)

    async def fails(self, error: type[Exception], match: str, what: Callable[..., Any], *given: Any) -> None:
        with pytest.raises(error, match=match):
            await asyncio.to_thread(what, *given)


@pytest.fixture
async def run(clusters: Callable[..., Cluster], tmp_path: Path) -> Run:
    cluster = clusters(1, workers=[WORKER])
    await cluster.start()
    return Run(cluster, tmp_path)


async def test_each_pipeline_has_to_say_that_it_knows_bulk_loads(run: Run) -> None:
    await asyncio.to_thread(run.pipeline.report, None)
    await run.fails(UnknownKind, "the pipeline of w-1 .uk. says nothing", check_sites, [run.site])
    await asyncio.to_thread(run.pipeline.report, BulkProgress(error="the engine fuseki cannot hold a load back"))
    await run.fails(NotReady, "w-1 .uk.: the engine fuseki", check_sites, [run.site])
    await asyncio.to_thread(run.pipeline.report, BulkProgress("held"), "Unreachable")
    await run.fails(NotReady, "no worker of uk works", check_sites, [run.site])
    await asyncio.to_thread(run.pipeline.report, BulkProgress("held"))
    await asyncio.to_thread(check_sites, [run.site])


async def test_a_worker_without_a_report_is_waited_for(run: Run) -> None:
    """A master that was just started has none of any worker."""
    await run.fails(NotReady, "w-1 .uk.: its pipeline has not reported", check_sites, [run.site])
    given = ([run.site], REFERENCE, 0.0, lambda _: None)
    await run.fails(NotReady, "w-1 .uk.: its pipeline has not reported", prepare_load, *given)
    looks: list[int] = []
    await asyncio.to_thread(await_loaded, [run.site], REFERENCE, 3, 0.6, lambda made: looks.append(made.ready))
    assert len(looks) > 1, "the load may be in, or not"


def test_a_report_that_any_master_has_counts() -> None:
    def answer(*workers: BulkWorker) -> BulkLoads:
        return BulkLoads("uk", None, list(workers))

    new, old = BulkWorker("w-1"), BulkWorker("w-1", "oxigraph", "Working", 3)
    later, other = BulkWorker("w-1", "oxigraph", "Blocked", 4), BulkWorker("w-2")
    assert _join_reports([answer(new), answer(old, other), answer(later)]) == [old, other]


async def test_each_master_has_to_answer(run: Run) -> None:
    await asyncio.to_thread(run.pipeline.report, BulkProgress("held"))
    away = run.site._replace(masters=[run.calls, BulkCalls("http://127.0.0.1:1", 0.5)])
    await run.fails(NotReady, "http://127.0.0.1:1 does not answer", check_sites, [away])


async def test_a_load_is_prepared_for_as_long_as_it_is_asked_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    report = run.pipeline.report
    assert await asyncio.to_thread(report, BulkProgress("held")) is None
    await asyncio.to_thread(run.calls.prepare, REFERENCE)
    assert await asyncio.to_thread(report, BulkProgress("held")) == BulkRequest(*REFERENCE)
    assert await asyncio.to_thread(report, None) is None, "an earlier pipeline is asked for nothing"
    await run.fails(Conflict, LOAD, run.calls.prepare, REFERENCE._replace(id=OTHER))
    await asyncio.to_thread(run.calls.give_up, OTHER)
    assert await asyncio.to_thread(report, BulkProgress("held")) is not None, "of another load"
    await asyncio.to_thread(run.calls.give_up, LOAD)
    assert await asyncio.to_thread(report, BulkProgress("held")) is None
    monkeypatch.setattr("txlog.server.admin.bulk_loads.REQUEST_S", -1.0)
    await asyncio.to_thread(run.calls.prepare, REFERENCE)
    assert await asyncio.to_thread(report, BulkProgress("held")) is None, "it was not asked for again"


async def test_it_waits_until_each_working_worker_holds_the_load(run: Run) -> None:
    def prepare(seconds: float) -> None:
        prepare_load([run.site], REFERENCE, seconds, lambda _: None)

    report = run.pipeline.report
    await asyncio.to_thread(report, BulkProgress("held", LOAD, "Sending", 40))
    await run.fails(NotReady, "w-1 .uk.: sending, 40 quads", prepare, 0.0)
    await asyncio.to_thread(report, BulkProgress("held", OTHER, "Held", 100))
    await run.fails(NotReady, "w-1 .uk.: has not begun", prepare, 0.0)
    await asyncio.to_thread(report, BulkProgress("held", LOAD, "Failed", 7, "PartDamaged: x"))
    await run.fails(NotReady, "PartDamaged: x", prepare, 60.0)
    await asyncio.to_thread(report, BulkProgress("held"), "Unreachable")
    await run.fails(NotReady, "no worker works", prepare, 0.0)
    await asyncio.to_thread(report, BulkProgress("held", LOAD, "Held", 100))
    await asyncio.to_thread(prepare, 60.0)


async def test_what_another_command_has_decided_is_prepared_no_longer(run: Run) -> None:
    """Its workers have the load, so they do not hold it again."""
    await asyncio.to_thread(run.pipeline.report, BulkProgress("held"))
    decisions = iter([False, False, True])
    given = ([run.site], REFERENCE, 60.0, lambda _: None, lambda: next(decisions))
    await asyncio.to_thread(prepare_load, *given)
    assert list(decisions) == []


async def test_the_entry_is_written_once_however_often_it_is_asked_for(run: Run) -> None:
    first = await asyncio.to_thread(commit_load, run.site.folder, [run.site], REFERENCE, RETENTION_S)
    assert await asyncio.to_thread(commit_load, run.site.folder, [run.site], REFERENCE, RETENTION_S) == first
    with MasterClient(run.url) as master:
        page = await asyncio.to_thread(lambda: master.log_page(0, keys=True))
    assert (page.entries[0].payload, page.entries[0].key) == (encode_bulk_load(REFERENCE), bulk_key(LOAD))
    assert sum(not each.noop for each in page.entries) == 1
    await run.fails(KeyTaken, "came with another body", run.calls.append, REFERENCE._replace(quads=99))


async def test_an_aborted_load_is_not_written(run: Run) -> None:
    run.site.folder.decide("abort", 1.0)
    await run.fails(LoadAborted, LOAD, commit_load, run.site.folder, [run.site], REFERENCE, RETENTION_S)
    with MasterClient(run.url) as master:
        assert (await asyncio.to_thread(master.status)).log.index == 0


async def test_an_unknown_outcome_is_no_abort(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_run, "APPEND_S", 0.0)
    away = run.site._replace(masters=[BulkCalls("http://127.0.0.1:1", 0.5)])
    given = (run.site.folder, [away], REFERENCE, RETENTION_S)
    await run.fails(Unavailable, "the same command continues", commit_load, *given)
    decision = run.site.folder.read_decision()
    assert decision is not None
    assert decision.decision == "commit"
    assert await asyncio.to_thread(commit_load, run.site.folder, [run.site], REFERENCE, RETENTION_S)


async def test_no_entry_is_written_whose_key_may_be_forgotten(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_run, "APPEND_S", 20.0)
    away = run.site._replace(masters=[BulkCalls("http://127.0.0.1:1", 0.5)])
    began = time.monotonic()
    await run.fails(Unavailable, "the same command continues", commit_load, run.site.folder, [away], REFERENCE, 2.0)
    assert time.monotonic() - began < 10.0, "it ends with the key"
    assert BulkKeyForgotten("x").name == "KeyForgotten"
    await run.fails(BulkKeyForgotten, f"bulk.{LOAD}", commit_load, run.site.folder, [run.site], REFERENCE, 2.0)
    with MasterClient(run.url) as master:
        assert (await asyncio.to_thread(master.status)).log.index == 0


def test_a_master_that_hangs_leaves_time_to_ask_the_others_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def request(connection: MasterConnection, method: str, *_: Any, timeout_s: float | None = None, **__: Any) -> None:
        allowed[method] = timeout_s or connection._timeout_s
        raise MasterUnreachable(connection.url, "no answer in time", sent=True)

    allowed: dict[str, float] = {}
    monkeypatch.setattr(MasterConnection, "request", request)
    calls = BulkCalls("http://127.0.0.1:1")
    for ask in (calls.describe, lambda: calls.prepare(REFERENCE), lambda: calls.append(REFERENCE)):
        with pytest.raises(MasterUnreachable):
            ask()
    assert 2 * max(allowed["GET"], allowed["PUT"]) < REQUEST_S
    assert allowed["POST"] > 30.0, "spec.durability.writeTimeout of most clusters"


def test_masters_that_hang_do_not_put_the_entry_off_beyond_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class HangingMaster(BulkCalls):
        def append(self, load: BulkReference) -> str | None:
            asked.append(self.url)
            raise MasterUnreachable(self.url, "no answer in time", sent=True)

    asked: list[str] = []
    monkeypatch.setattr(load_run, "APPEND_S", 0.0)
    masters = [HangingMaster(f"http://127.0.0.1:{port}") for port in (1, 2)]
    site = BulkSite("uk", masters, LoadFolder(FolderTarget(tmp_path), "0a" * 16, LOAD))
    with pytest.raises(Unavailable, match="the same command continues"):
        commit_load(site.folder, [site, site], REFERENCE, RETENTION_S)
    assert asked == [masters[0].url]


def test_a_key_that_is_soon_forgotten_is_refused() -> None:
    check_retention(RETENTION_MIN_S)
    with pytest.raises(NotReady, match="keyRetention is 599 s"):
        check_retention(RETENTION_MIN_S - 1)


async def test_no_client_has_a_key_of_a_load(run: Run) -> None:
    with MasterClient(run.url) as master:

        def write(key: str) -> None:
            master.write("demo", b"<urn:a> <urn:b> <urn:c> .\n", "application/n-triples", key=key, wait_s=5.0)

        await run.fails(BadInput, "are of bulk loads", write, bulk_key(LOAD))
        assert (await asyncio.to_thread(master.status)).log.index == 0
        await asyncio.to_thread(write, "bulk")
    assert await asyncio.to_thread(commit_load, run.site.folder, [run.site], REFERENCE, RETENTION_S)


async def test_it_waits_for_the_workers(run: Run) -> None:
    def wait(seconds: float) -> list[int]:
        return [worker.index for _, worker in await_loaded([run.site], REFERENCE, 3, seconds, lambda _: None)]

    await asyncio.to_thread(run.pipeline.report, BulkProgress("held"), "Working", 2)
    assert await asyncio.to_thread(wait, 0.0) == [2]
    await asyncio.to_thread(run.pipeline.report, BulkProgress("held"), "Working", 3)
    assert await asyncio.to_thread(wait, 60.0) == [3]
    await asyncio.to_thread(give_up, [run.site], LOAD)
    assert (await asyncio.to_thread(run.calls.describe)).preparing is None


async def test_masters_that_are_away_leave_it_open_which_workers_have_it(run: Run) -> None:
    """It is in the log: an error that says otherwise would have it loaded twice."""
    await asyncio.to_thread(run.pipeline.report, BulkProgress("held"), "Working", 3)
    away = BulkSite("us", [BulkCalls("http://127.0.0.1:1", 0.5)], run.site.folder)
    given = ([run.site, away], REFERENCE, 3, 0.0, lambda _: None)
    await run.fails(Unavailable, "in the log, at index 3.*no master of us answers", await_loaded, *given)


async def test_a_failure_of_an_earlier_attempt_is_forgotten(run: Run) -> None:
    await asyncio.to_thread(run.calls.prepare, REFERENCE)
    failed = BulkProgress("held", LOAD, "Failed", 7, "broken off")
    await asyncio.to_thread(run.pipeline.report, failed)
    await run.fails(NotReady, "broken off", prepare_load, [run.site], REFERENCE, 60.0, lambda _: None)
    await asyncio.to_thread(give_up, [run.site], LOAD)
    await run.fails(NotReady, "has not begun", prepare_load, [run.site], REFERENCE, 0.0, lambda _: None)
    await asyncio.to_thread(run.pipeline.report, failed)
    await run.fails(NotReady, "broken off", prepare_load, [run.site], REFERENCE, 60.0, lambda _: None)


@pytest.mark.parametrize(
    ("load", "body", "named"),
    [
        ("x", {"manifest": "ab" * 32, "quads": 1}, "is no load"),
        (LOAD.upper().replace("0", "A"), {"manifest": "ab" * 32, "quads": 1}, "is no load"),
        (LOAD, {"manifest": "ab", "quads": 1}, "manifest"),
        (LOAD, {"manifest": "zz" * 32, "quads": 1}, "manifest"),
        (LOAD, {"manifest": "ab" * 32, "quads": 0}, "quads 0"),
        (LOAD, {"manifest": "ab" * 32}, "missing required field"),
        (LOAD, {"manifest": "ab" * 32, "quads": 1, "x": 1}, "unknown field"),
        (LOAD, [], "Expected `object`"),
    ],
)
async def test_bad_input(run: Run, clusters: Any, load: str, body: Any, named: str) -> None:
    def ask(method: str) -> None:
        calls: Any = run.calls
        calls._json.call(method, f"/txlog/bulk/{load}", object, body=body)

    for method in ("PUT", "POST"):
        await run.fails(BadInput, named, ask, method)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"split_recovery": "None"}, "splitRecovery None"),
        ({"graphs": [{"match": "urn:g:*", "quorum": "N/2+1"}]}, "synchronous"),
        ({"change_sets": {"url": "http://127.0.0.1:1"}}, "change sets"),
    ],
)
async def test_clusters_that_take_none(
    clusters: Callable[..., Cluster], tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    cluster = clusters(1, workers=[WORKER], **changes)
    await cluster.start()
    run = Run(cluster, tmp_path)
    await run.fails(Unsupported, named, run.calls.prepare, REFERENCE)
    await run.fails(Unsupported, named, run.calls.append, REFERENCE)
    await run.fails(Unsupported, named, check_sites, [run.site])


async def test_no_client_can_write_the_entry(run: Run) -> None:
    update = encode_bulk_load(REFERENCE).decode()
    with MasterClient(run.url) as master:

        def write() -> None:
            master.write("demo", update.encode(), "application/sparql-update", wait_s=5.0)

        with pytest.raises((BadInput, Unsupported)):
            await asyncio.to_thread(write)
        assert (await asyncio.to_thread(master.status)).log.index == 0
