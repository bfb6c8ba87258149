"""What goes wrong with one log of a process stays with that log: at its start, while it runs, and at its end."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from master_cluster import Cluster, until
from test_log_links import FURTHER, NOTICE, write
from test_several_repositories import (
    ANYBODY,
    LIST,
    STOCK,
    all_open,
    cluster_failed,
    delete,
    equal_logs,
    is_unknown,
    names,
    put,
    service,
    start_all,
)

from txlog.config.live_settings import BadSettings
from txlog.model.crosslog_entry import SYSTEM_LOG
from txlog.model.errors import Fatal, JournalFault, Unavailable
from txlog.server import further_logs
from txlog.server.further_logs import FurtherLogs
from txlog.server.log_service import LogService, open_journal
from txlog.server.removed_master_export import UnloggedExport
from txlog.server.system_log import SystemLog
from txlog.system.catalogue import RepositoryCatalogue, WantRepository
from txlog.wire.envelope import wrap


@pytest.fixture
async def single(clusters: Callable[..., Cluster]) -> AsyncIterator[Cluster]:
    """One master with two repositories."""
    cluster = clusters(1, **ANYBODY)
    await cluster.start()
    await put(cluster, 0, "stock")
    yield cluster
    assert cluster.ended == []


def further(cluster: Cluster, at: int = 0) -> FurtherLogs:
    found = cluster.app(at).further
    assert found is not None
    return found


def system(cluster: Cluster, at: int = 0) -> SystemLog:
    found = further(cluster, at).system
    assert found is not None
    return found


def catalogue(cluster: Cluster, at: int = 0) -> RepositoryCatalogue:
    found = system(cluster, at).catalogue
    assert found is not None
    return found


def opened(cluster: Cluster, at: int = 0, number: int = STOCK) -> LogService:
    found = service(cluster, at, number)
    assert found is not None
    return found


def is_locked(log: LogService) -> bool:
    try:
        journal, _ = open_journal(log.config)
    except JournalFault:
        return True
    journal.close()
    return False


# At the start


@pytest.mark.parametrize("number", [SYSTEM_LOG, STOCK])
async def test_a_lost_folder_is_noticed_at_each_start(single: Cluster, number: int) -> None:
    assert await write(single, 0, "stock", 1) == 204
    await single.stop(0)
    shutil.rmtree(single.folder / "uk-1" / "logs" / str(number))
    for _ in range(3):
        await single.start(0)
        await until(lambda: service(single, 0, number))
        lost = opened(single, 0, number)
        await until(lambda lost=lost: lost.loop.counts.turns > 1)
        assert (lost.context.is_ready, lost.loop.status.view) == (False, None)
        assert lost.loop.status.lost_journal
        assert await write(single, 0, "demo", 1) == 204
        if number == SYSTEM_LOG:
            assert (await put(single, 0, "other", None, 503, wait="0.3"))["reason"] == "NoMajority"
        else:
            await put(single, 0, "other")
            await delete(single, 0, f"{LIST}/other")
        await single.stop(0)


async def test_an_older_folder_is_refused_at_each_start(single: Cluster) -> None:
    folder = single.folder / "uk-1" / "logs" / "2"
    await single.stop(0)
    shutil.copytree(folder, single.folder / "copy")
    await single.start(0)
    await all_open(single)
    assert await write(single, 0, "stock", 1) == 204
    await single.stop(0)
    shutil.rmtree(folder)
    shutil.copytree(single.folder / "copy", folder)
    for _ in range(3):
        await single.start(0)
        await until(lambda: cluster_failed(single, 0) == {STOCK: "OldJournal"})
        assert await write(single, 0, "stock", 2) == 503
        assert await write(single, 0, "demo", 2) == 204
        await single.stop(0)


async def test_a_list_with_the_name_of_the_first_repository_refuses_it_not(single: Cluster) -> None:
    await single.stop(0)
    path = single.folder / "uk-1" / "logs.json"
    path.write_text(path.read_text().replace('"stock"', '"demo"'))
    await single.start(0)
    assert await write(single, 0, "demo", 1) == 204
    await all_open(single)
    assert await write(single, 0, "stock", 1) == 204


async def test_a_first_repository_named_system_stays_alone(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1, **FURTHER, repository="system")
    await cluster.start()
    assert (await put(cluster, 0, "stock", None, 409))["reason"] == "ReservedName"
    further(cluster).want_system()
    await until(lambda: cluster_failed(cluster, 0) == {SYSTEM_LOG: "ReservedName"})
    assert await write(cluster, 0, "system", 1) == 204
    assert await names(cluster, 0) == ["system"]
    assert cluster.ended == []


async def test_the_system_log_begins_with_a_founded_cluster(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(2, **FURTHER)
    await cluster.start(0, ready=False)
    with pytest.raises(Unavailable) as refused:
        further(cluster)._rules.first_entry()
    assert refused.value.reason == "NotFounded"
    await cluster.start(1)
    await until(lambda: further(cluster)._rules.first_entry().cluster_id)


async def test_a_bad_folder_of_one_master_hinders_no_founding(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(3, **FURTHER)
    await start_all(cluster)
    bad = cluster.folder / "uk-3" / "logs" / "2"
    bad.parent.mkdir()
    bad.write_text("no folder")
    await put(cluster, 0, "stock")
    await all_open(cluster, 0, 1)
    assert list(cluster_failed(cluster, 2)) == [STOCK]
    assert [one.node for one in catalogue(cluster).records[STOCK].members] == ["uk-1", "uk-2"]
    assert await write(cluster, 0, "stock", 1) == 204
    await cluster.stop(2)
    bad.unlink()
    await cluster.start(2)
    await all_open(cluster)
    assert await write(cluster, 2, "stock", 2) == 204
    await equal_logs(cluster, "stock", 2)
    assert cluster.ended == []


async def test_a_log_that_cannot_be_made_leaves_its_journal_unlocked(
    single: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = single.folder / "uk-1" / "logs" / "3"

    def add_log(*given: Any) -> LogService:
        raise BadSettings("the settings of a test")

    monkeypatch.setattr(single.app(0), "add_log", add_log)
    told = await put(single, 0, "other", None, 202)
    assert (told["state"], told["failed"]) == ("Failed", {"uk-1": "BadSettings"})
    log = opened(single)
    journal, _ = open_journal(log.config.model_copy(update={"journal_folder": folder}))
    journal.close()


# While it runs


async def test_an_open_log_of_another_cluster_is_closed(single: Cluster) -> None:
    records = catalogue(single).records
    records[STOCK] = records[STOCK]._replace(cluster_id=b"\1" * 16)
    system(single).wake()
    await until(lambda: cluster_failed(single, 0) == {STOCK: "OtherCluster"})
    await until(lambda: service(single, 0) is None)
    assert await write(single, 0, "stock", 1) == 503
    assert await write(single, 0, "demo", 1) == 204


async def test_a_log_that_the_system_log_does_not_name_is_closed(single: Cluster) -> None:
    record = catalogue(single).records.pop(STOCK)
    system(single).wake()
    await until(lambda: service(single, 0) is None)
    await until(lambda: is_unknown(single, 0, "stock"))
    assert "LogNotListed" in single.logged(0)
    catalogue(single).records[STOCK] = record
    system(single).wake()
    await all_open(single)
    assert await write(single, 0, "stock", 1) == 204


async def test_a_record_that_cannot_be_followed_stops_no_other(single: Cluster) -> None:
    records = catalogue(single).records
    records[STOCK] = records[STOCK]._replace(cluster_id=None)  # type: ignore[arg-type]
    await put(single, 0, "other")
    await all_open(single, number=3)
    assert cluster_failed(single, 0) == {STOCK: "AttributeError"}
    await until(lambda: service(single, 0) is None)
    assert await write(single, 0, "other", 1) == 204
    assert (await single.get(0, f"{LIST}/stock"))["state"] == "Failed"


async def test_a_wait_ends_with_the_system_log(single: Cluster) -> None:
    requests = single.app(0)._requests
    assert requests is not None
    record = catalogue(single).records[STOCK]._replace(number=9)
    followed, began_s = system(single), time.monotonic()
    for _ in range(3):
        assert not await followed.wait_until(lambda: False, time.monotonic() + 0.01)
    assert followed._waiters == [], "of waits that timed out"
    waits = asyncio.ensure_future(requests._wait_until_open(record, time.monotonic() + 20))
    await until(lambda: followed._waiters)
    opened(single, 0, SYSTEM_LOG).loop.end(Fatal("TwoContents", "a test"))
    assert not await waits
    assert time.monotonic() < began_s + 10
    assert cluster_failed(single, 0) == {SYSTEM_LOG: "TwoContents"}
    assert await write(single, 0, "demo", 1) == 204


async def test_a_log_that_failed_at_every_master_is_removed(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(2, **FURTHER)
    await start_all(cluster)
    await put(cluster, 0, "stock")
    await all_open(cluster)
    for at in range(2):
        opened(cluster, at).loop.end(Fatal("TwoContents", "a test"))
    await delete(cluster, 1, f"{LIST}/stock")
    for at in range(2):
        await until(lambda at=at: (cluster.folder / cluster.nodes[at] / "logs" / "removed-2").is_dir())
        await until(lambda at=at: is_unknown(cluster, at, "stock"))
        await until(lambda at=at: cluster_failed(cluster, at) == {})
    await put(cluster, 0, "stock")
    await all_open(cluster, number=3)


async def test_a_failed_log_is_listed_and_removed_by_the_ways_of_rdf4j(single: Cluster) -> None:
    router = single.app(0).envelopes
    assert router is not None
    opened(single).loop.end(Fatal("TwoContents", "a test"))
    router.receive_envelope("uk-2", wrap(STOCK, NOTICE))
    metrics = await single.get(0, "/metrics")
    assert 'txlog_log_messages_dropped_total{log="2",reason="ClosedLog"} 1.0' in metrics
    found = await single.get(0, "/repositories", headers={"Accept": "application/sparql-results+json"})
    assert [row["id"]["value"] for row in found["results"]["bindings"]] == ["demo", "stock"]
    await single.get(0, "/repositories/stock/size", 503)
    await delete(single, 0, "/repositories/stock")
    assert await names(single, 0) == ["demo"]


async def test_repositories_are_listed_before_the_system_log_is_read(single: Cluster) -> None:
    await single.stop(0)
    shutil.rmtree(single.folder / "uk-1" / "logs" / "1")
    await single.start(0)
    found = await single.get(0, "/repositories", headers={"Accept": "application/sparql-results+json"})
    assert [row["id"]["value"] for row in found["results"]["bindings"]] == ["demo", "stock"]


async def test_a_repository_that_was_created_is_answered_as_such(
    single: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = system(single).submit

    async def submit_all_but_wants(entry: Any, deadline: float) -> str:
        if isinstance(entry, WantRepository):
            raise Unavailable("OutcomeUnknown", "a test")
        return await submit(entry, deadline)

    monkeypatch.setattr(system(single), "submit", submit_all_but_wants)
    told = await put(single, 0, "other", None, 202, wait="1")
    assert (told["name"], told["wantedBy"]) == ("other", [])


async def test_a_proof_that_is_stale_for_the_first_log_counts_for_the_others(
    single: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    proofs: list[tuple[str, int, int]] = []
    first = single.service(0)
    monkeypatch.setattr(first.context, "proved_down", lambda *proof: proofs.append(proof))
    cluster_of_two = [*first.context.masters, ("uk-2", "uk")]
    monkeypatch.setattr(type(first.context), "masters", property(lambda _: cluster_of_two))
    view = first.loop.status.view
    assert view is not None
    monkeypatch.setattr(type(view), "member", lambda _, node: view.members[0])
    body = json.dumps({"birth": "00000000000000ff", "start": 3})
    await single.post(0, "/txlog/members/uk-2/down", body, 409)
    assert proofs == [("uk-2", 255, 3)]


# At the end


class SlowSync:
    """A sync that the disk does not end."""

    def __init__(self) -> None:
        self.began, self.may_end = threading.Event(), threading.Event()

    def run(self) -> None:
        self.began.set()
        assert self.may_end.wait(60)


async def test_a_journal_that_is_written_stays_open(single: Cluster) -> None:
    log, slow = opened(single), SlowSync()
    assert log._sync_thread is not None
    log._sync_thread.run(slow)  # type: ignore[arg-type]
    await until(slow.began.is_set)
    await log.close(0.05)
    assert "JournalLeftOpen" in single.logged(0)
    assert is_locked(log)
    closing = asyncio.ensure_future(single.app(0).close_log(STOCK))
    await asyncio.wait([closing], timeout=2.5)
    assert not closing.done(), "it waits as long as the disk needs"
    assert is_locked(log)
    slow.may_end.set()
    await closing
    assert not is_locked(log)


async def test_what_a_removed_log_lacks_is_exported_at_rest(single: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    log, seen = opened(single), []

    def export(folder: Path, *given: Any) -> UnloggedExport:
        ended = log.loop.end_reason is not None and log.context.is_closing
        seen.append((folder.is_dir(), threading.current_thread() is threading.main_thread(), ended, is_locked(log)))
        return UnloggedExport(3, "removed-1.jsonl", "")

    monkeypatch.setattr(further_logs, "write_unlogged", export)
    await delete(single, 0, f"{LIST}/stock")
    await until(lambda: "RepositoryRemoved" in single.logged(0))
    assert seen == [(True, False, True, True)]
    assert str(single.folder / "uk-1" / "logs" / "removed-2" / "removed-1.jsonl") in single.logs[0].getvalue()


async def test_a_log_that_fails_during_the_stop_is_closed_once(
    single: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, app, closed = opened(single), single.app(0), []
    close = log.close

    async def count(*given: Any) -> None:
        closed.append(given)
        await close(*given)

    monkeypatch.setattr(log, "close", count)
    await further(single).stop()
    log.loop.end(Fatal("TwoContents", "a test"))
    assert (further(single)._closing, STOCK in app.logs) == ({}, True)
    await single.stop(0)
    assert len(closed) == 1
    assert not is_locked(log)


async def test_a_close_that_fails_skips_no_other(single: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    log, first = opened(single), single.service(0)
    close = first.close

    async def fail(*given: Any) -> None:
        await close(*given)
        raise OSError(5, "input/output error")

    monkeypatch.setattr(first, "close", fail)
    await single.stop(0)
    assert [one in single.logged(0) for one in ("LogNotClosed", "Stopped")] == [True, True]
    assert not is_locked(log)


async def test_a_stop_begins_nothing_more(single: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    followed: list[int] = []

    async def follow(_: SystemLog, record: Any) -> bool:
        followed.append(record.number)
        further(single)._is_stopping = True
        return True

    monkeypatch.setattr(further(single), "_follow", follow)
    system(single).wake()
    await until(lambda: followed)
    await further(single).stop()
    assert followed == [0]


async def test_a_name_has_one_log_at_a_time(single: Cluster) -> None:
    directory = single.app(0)._directory
    with pytest.raises(AssertionError, match="two logs of one name"):
        directory.add_log("stock", [])
    directory.refuse_log("stock", lambda: Unavailable("Starting", "a test"))
    directory.add_log("stock", opened(single).routes.routes())
    assert await write(single, 0, "stock", 1) == 204


async def test_the_fast_path_forgets_the_heads_of_a_log_that_is_replaced(single: Cluster) -> None:
    fast = single.app(0)._fast_path
    lines = ("Host: h", "Content-Type: application/n-quads", "Content-Length: 9", "TxLog-Durability: synced")
    post = "\r\n".join(["POST /repositories/stock/statements HTTP/1.1", *lines]).encode()
    query = quote("SELECT * { <urn:1> <urn:2> ?o }", safe="/:")
    ask = f"GET /repositories/stock?query={query} HTTP/1.1\r\nHost: h".encode()
    for data in (post, ask):
        known = fast.parse_head(data)
        assert known is not None
        assert known[1] is not opened(single).fast_path
    newer = opened(single).fast_path
    fast.add_log(newer)
    for data in (post, ask, ask.replace(b"urn:1", b"urn:3")):
        found = fast.parse_head(data)
        assert found is not None
        assert found[1] is newer
