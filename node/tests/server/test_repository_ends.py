"""A repository that is removed or created while something goes wrong: a restart, a full disk, a name used again."""

from __future__ import annotations

import asyncio
import errno
import io
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pyoxigraph as ox
import pytest
from master_cluster import Cluster, until
from test_further_log_faults import catalogue, further, opened
from test_log_links import FURTHER, write
from test_repository_config import OLD
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

from txlog.model.crosslog_entry import SYSTEM_LOG
from txlog.model.errors import Fatal, JournalBroken, JournalFull, Unavailable
from txlog.server import log_opener
from txlog.server.disk_space import is_disk_full
from txlog.server.frontdoor.result_formats import BINARY
from txlog.server.peers.envelope_router import EnvelopeLinks
from txlog.sparql.formats.rdf4j_binary import write_rdf
from txlog.system.catalogue import EndRemoval

ACCEPTED = {"TxLog-Durability": "accepted"}
FULL = OSError(errno.ENOSPC, "no space left on device")


class FullDisk:
    """Opens no journal whose folder ends so, until it has room."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, node: str, *folders: str) -> None:
        self.is_full, self.refused = True, 0
        opening = log_opener.open_journal

        def open_journal(config: Any, *given: Any) -> Any:
            if self.is_full and config.node == node and config.journal_folder.name in folders:
                self.refused += 1
                raise JournalBroken("a test") from FULL
            return opening(config, *given)

        monkeypatch.setattr(log_opener, "open_journal", open_journal)


# A full disk


async def test_a_repository_is_created_when_the_disk_has_room_again(
    clusters: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = clusters(1, **FURTHER)
    await cluster.start()
    await put(cluster, 0, "other")
    disk = FullDisk(monkeypatch, "uk-1", "3")
    await put(cluster, 0, "stock", None, 202, wait="0.5")

    async def shows_why() -> bool:
        told = (await cluster.get(0, LIST))["repositories"]
        return [(one["state"], one["failed"]) for one in told if one["name"] == "stock"] == [
            ("Created", {"uk-1": "DiskFull"})
        ]

    await until(shows_why)
    assert await write(cluster, 0, "stock", 1) == 503
    assert [await write(cluster, 0, name, 1) for name in ("demo", "other")] == [204, 204]
    before = disk.refused
    await until(lambda: disk.refused > before)
    disk.is_full = False
    await all_open(cluster, number=3)
    assert cluster_failed(cluster, 0) == {}
    assert (await cluster.get(0, f"{LIST}/stock"))["failed"] == {}
    assert await write(cluster, 0, "stock", 1) == 204
    assert cluster.ended == []


async def test_a_full_disk_of_one_master_hinders_no_founding(
    clusters: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = clusters(3, **FURTHER)
    await start_all(cluster)
    disk = FullDisk(monkeypatch, "uk-3", str(STOCK))
    await put(cluster, 0, "stock")
    await all_open(cluster, 0, 1)
    assert [one.node for one in catalogue(cluster).records[STOCK].members] == ["uk-1", "uk-2"]
    assert await write(cluster, 0, "stock", 1) == 204
    assert await write(cluster, 2, "stock", 1) == 503
    disk.is_full = False
    await all_open(cluster)
    assert await write(cluster, 2, "stock", 2) == 204
    await equal_logs(cluster, "stock", 2)


async def test_the_system_log_is_founded_when_the_disk_has_room_again(
    clusters: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = clusters(1, **FURTHER)
    await cluster.start()
    disk = FullDisk(monkeypatch, "uk-1", str(SYSTEM_LOG))
    assert (await put(cluster, 0, "stock", None, 503, wait="5"))["reason"] == "DiskFull"
    assert (await cluster.get(0, LIST))["repositories"][0]["name"] == "demo"
    assert await write(cluster, 0, "demo", 1) == 204
    disk.is_full = False
    await until(lambda: further(cluster).system is not None)
    await put(cluster, 0, "stock")
    await all_open(cluster)


async def test_a_start_with_a_full_disk_opens_the_further_logs_later(
    clusters: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = clusters(1, **FURTHER)
    await cluster.start()
    await put(cluster, 0, "stock")
    await all_open(cluster)
    await cluster.stop(0)
    disk = FullDisk(monkeypatch, "uk-1", str(SYSTEM_LOG), str(STOCK))
    await cluster.start(0)
    assert await write(cluster, 0, "demo", 1) == 204
    assert await write(cluster, 0, "stock", 1) == 503
    disk.is_full = False
    await all_open(cluster)
    assert await write(cluster, 0, "stock", 1) == 204


@pytest.mark.parametrize(
    ("error", "is_full"),
    [
        (FULL, True),
        (OSError(errno.EDQUOT, "quota"), True),
        (JournalFull("no room"), True),
        (OSError(errno.EIO, "input/output error"), False),
        (JournalBroken("of no disk"), False),
        (Fatal("OldJournal", "a test"), False),
    ],
)
def test_which_errors_mean_a_full_disk(error: Exception, is_full: bool) -> None:
    assert is_disk_full(error) is is_full
    outer = JournalBroken("opening")
    outer.__cause__ = error
    assert is_disk_full(outer) is (is_full and isinstance(error, OSError))


# A removal


async def test_what_a_removed_log_lacks_is_exported_after_a_restart(
    clusters: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A master accepts writes that reach no other one; the repository is removed; the master is killed before it has
    closed the log."""
    silent: set[tuple[str, int]] = set()
    send = EnvelopeLinks.send

    def send_unless_silent(self: EnvelopeLinks, peer: str, data: bytes) -> None:
        if not {(self._links._config.node, self._number), (peer, self._number)} & silent:
            send(self, peer, data)

    monkeypatch.setattr(EnvelopeLinks, "send", send_unless_silent)
    cluster = clusters(3, **FURTHER)
    await start_all(cluster)
    await put(cluster, 0, "stock")
    await all_open(cluster)
    assert await write(cluster, 0, "stock", 1) == 204
    silent.add(("uk-3", STOCK))
    wrote = [await write(cluster, 2, "stock", number, **ACCEPTED) for number in (2, 3)]
    assert wrote == [204, 204]

    async def not_now(*_: Any) -> None:
        raise Unavailable("Closing", "a test")

    monkeypatch.setattr(further(cluster, 2), "_discard", not_now)
    await delete(cluster, 0, f"{LIST}/stock")
    await until(lambda: not catalogue(cluster, 2).records[STOCK].is_kept)
    await cluster.crash(2)
    await cluster.start(2)
    kept = cluster.folder / "uk-3" / "logs" / "removed-2"
    await until(kept.is_dir)
    await until(lambda: "RepositoryRemoved" in cluster.logged(2))
    [file] = kept.glob("removed-*.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert ["urn:uk-3" in line["payload"] for line in lines] == [True, True], lines
    assert "2 transactions were accepted here" in cluster.logs[2].getvalue()
    assert not list((cluster.folder / "uk-1" / "logs" / "removed-2").glob("removed-*.jsonl"))


async def test_a_removal_that_a_restart_interrupts_is_ended(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1, **ANYBODY)
    await cluster.start()
    await put(cluster, 0, "stock")
    await all_open(cluster)
    system = further(cluster).system
    assert system is not None
    submit = system.submit

    async def submit_no_end(entry: Any, deadline: float) -> str:
        if isinstance(entry, EndRemoval):
            raise Unavailable("OutcomeUnknown", "a test")
        return await submit(entry, deadline)

    system.submit = submit_no_end  # type: ignore[method-assign]
    await delete(cluster, 0, f"{LIST}/stock?wait=0.2", 202)
    assert (await put(cluster, 0, "stock", None, 409))["reason"] == "Removing"
    assert (await put(cluster, 0, "STOCK", None, 409))["reason"] == "Removing"
    assert await write(cluster, 0, "stock", 1) == 409
    await cluster.crash(0)
    await cluster.start(0)
    await until(lambda: is_unknown(cluster, 0, "stock"))
    assert await names(cluster, 0) == ["demo"]
    await put(cluster, 0, "stock")
    await all_open(cluster, number=3)
    assert await write(cluster, 0, "stock", 1) == 204
    assert cluster.ended == []


async def test_a_late_fault_of_a_removed_log_does_not_close_the_one_with_its_name(
    clusters: Callable[..., Cluster],
) -> None:
    cluster = clusters(1, **FURTHER)
    await cluster.start()
    await put(cluster, 0, "stock")
    await all_open(cluster)
    ended = opened(cluster)._on_ended
    await delete(cluster, 0, f"{LIST}/stock")
    await put(cluster, 0, "stock")
    await all_open(cluster, number=3)
    ended(Fatal("TwoContents", "a test"))
    assert await write(cluster, 0, "stock", 1) == 204
    assert (await cluster.get(0, f"{LIST}/stock"))["state"] == "Joined"


async def test_writes_in_flight_are_answered_while_their_repository_is_removed_and_made_again(
    clusters: Callable[..., Cluster],
) -> None:
    """Each write is answered, by the old log or the new one, and the new log has nothing of the old one."""
    cluster = clusters(2, **FURTHER)
    await start_all(cluster)
    await put(cluster, 0, "stock")
    await all_open(cluster)
    statuses: list[int] = []
    is_over = asyncio.Event()

    async def keep_writing(at: int) -> None:
        number = 0
        while not is_over.is_set():
            statuses.append(await asyncio.wait_for(write(cluster, at, "stock", number), 30))
            number += 1

    writers = [asyncio.create_task(keep_writing(at)) for at in (0, 1, 0, 1)]
    await until(lambda: statuses.count(204) >= 20)
    for number in (3, 4):
        await delete(cluster, number % 2, f"{LIST}/stock")
        await put(cluster, 0, "stock", None, 201, wait="20")
        await all_open(cluster, number=number)
        count = statuses.count(204)
        await until(lambda count=count: statuses.count(204) >= count + 10)
    is_over.set()
    await asyncio.gather(*writers)
    assert set(statuses) <= {202, 204, 404, 409, 503}, set(statuses)
    assert [service(cluster, at, number) for at in range(2) for number in (2, 3)] == [None] * 4
    for at in range(2):
        demo = cluster.app(at).first.loop.durability.stable.value
        assert demo == 0, "nothing of it came into the first repository"
    assert cluster.ended == []


# A creation


async def test_a_repository_is_created_as_the_java_client_of_rdf4j_does_it(
    clusters: Callable[..., Cluster],
) -> None:
    """It sends binary RDF, without a length."""
    several = clusters(2, **ANYBODY)
    await start_all(several)
    out = io.BytesIO()
    write_rdf(list(ox.parse(OLD, ox.RdfFormat.TURTLE)), out)

    async def body() -> AsyncIterator[bytes]:
        yield out.getvalue()

    url = several.url(0, "/repositories/stock")
    async with several.session.put(url, data=body(), headers={"Content-Type": BINARY}) as answer:
        assert answer.status == 204, await answer.text()
    await all_open(several)
    assert await write(several, 1, "stock", 1) == 204
    await several.get(0, "/repositories/stock/config")
    await several.get(0, "/repositories/none/config", 404)
    async with several.session.post(several.url(0, "/repositories/stock/config"), data=out.getvalue()) as answer:
        assert answer.status == 405
