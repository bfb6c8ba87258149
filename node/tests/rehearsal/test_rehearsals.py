"""A recovery is rehearsed against a real master and a real worker; nothing of it touches them."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest
from archiver_runs import stable
from rehearsed_cluster import Rehearsed, insert

from txlog.archive.stream import Stream, find_streams
from txlog.backup.folder_target import FolderTarget
from txlog.client import MasterClient
from txlog.model.bulk_entry import bulk_key
from txlog.model.records import Record
from txlog.rehearsal import rehearsal, scratch_cluster
from txlog.rehearsal.live_state import LiveState, measure_rpo, read_live_state
from txlog.rehearsal.planted_faults import FAULTS
from txlog.rehearsal.planted_run import rehearse_planted
from txlog.rehearsal.scratch_cluster import refuse_forgotten
from txlog.rehearsal.verdict import RehearsalBounds
from txlog.successor import succession
from txlog.successor.first_records import FirstMaster, first_records
from txlog.successor.inheritance import Inheritance
from txlog.successor.succession import Succession, SuccessionRequest, found_successor

RENAME = "INSERT { GRAPH <urn:g:0> { ?s <urn:q> ?o } } WHERE { GRAPH <urn:g:1> { ?s <urn:p> ?o } }"


async def test_a_good_rehearsal(rehearsed: Rehearsed) -> None:
    await rehearsed.archive(insert("a"), insert("bb"))
    backup = await rehearsed.back_up()
    place = await rehearsed.archive(insert("ccc"), RENAME, insert("dddd"))
    before = await rehearsed.content()
    found = await rehearsed.rehearse(bounds=RehearsalBounds(60.0, 600.0))
    assert (found.ok, found.error, found.message) == (True, "", "")
    assert (found.index, found.hash, found.base, found.worker) == (place.index, place.hash.hex(), backup.name, "w-1")
    assert (found.graphs, found.differing, found.entries, found.engine) == (2, 0, 3, "oxigraph")
    assert found.quads == before[1].quads
    assert list(found.phases) == ["live", "find", "claim", "found", "prepare", "base", "files", "load", "compare"]
    assert found.rpo_seconds == 0.0
    assert found.rto_writes_seconds is not None
    assert found.rto_reads_seconds is not None
    assert found.rto_reads_seconds >= found.rto_writes_seconds > 0
    # The cluster is as before: no claim, no pause, no other marker.
    assert await rehearsed.content() == before
    (stream,) = find_streams(rehearsed.target)
    assert list(rehearsed.target.list_nested(f"{stream.id.folder}/recovery")) == []
    assert [each.hold for each in await asyncio.to_thread(rehearsed.master.workers)] == [None]


async def test_twelve_planted_faults_are_named(rehearsed: Rehearsed) -> None:
    await rehearsed.archive(insert("a"), insert("bb"))
    await rehearsed.back_up()
    await rehearsed.archive(insert("ccc"), RENAME, insert("dddd"))
    objects = sorted(each.key for each in rehearsed.target.list_nested(""))
    run = await asyncio.to_thread(rehearse_planted, rehearsed.request())
    assert run.sound.ok, run.sound
    found = {each.name: (each.error, each.message) for each in run.faults if not each.named}
    assert found == {}
    assert (run.ok, len(run.faults), len({each.name for each in FAULTS})) == (True, 12, 12)
    assert sorted(each.key for each in rehearsed.target.list_nested("")) == objects


async def test_no_fault_is_planted_behind_a_failed_rehearsal(rehearsed: Rehearsed) -> None:
    await rehearsed.archive(insert("a"))
    run = await asyncio.to_thread(rehearse_planted, rehearsed.request())
    assert (run.ok, run.sound.error, run.faults) == (False, "NoBase", [])
    assert run.to_dict()["named"] == 0


async def test_faults_without_a_place_are_not_named(rehearsed: Rehearsed) -> None:
    """The backup is at the worker's place, so no file of the archive is read."""
    await rehearsed.archive(insert("a"))
    await rehearsed.back_up()
    run = await asyncio.to_thread(rehearse_planted, rehearsed.request())
    assert run.sound.ok
    assert {each.name for each in run.faults if not each.planted} >= {"bit-in-file", "file-missing", "end-missing"}
    assert not run.ok
    assert all(each.named for each in run.faults if each.planted)


async def test_more_would_be_lost_than_allowed(rehearsed: Rehearsed) -> None:
    """The archiver is behind when the rehearsal begins, and comes to the worker's place a moment later."""
    await rehearsed.archive(insert("a"))
    await rehearsed.back_up()
    await rehearsed.write(insert("late"))
    loop = asyncio.get_running_loop()

    def read_then_archive(masters: Sequence[MasterClient], stream: Stream) -> LiveState:
        live = read_live_state(masters, stream)
        asyncio.run_coroutine_threadsafe(rehearsed.runner.reach(live.held.place), loop).result(60)
        return live

    found = await rehearsed.rehearse(bounds=RehearsalBounds(rpo_s=0.0), read_live=read_then_archive)
    assert (found.ok, found.error, found.phase) == (False, "RpoExceeded", "compare")
    assert (found.graphs, found.differing) == (2, 0)
    assert found.rpo_seconds is not None
    assert found.rpo_seconds > 0


async def test_a_recovery_that_takes_too_long(rehearsed: Rehearsed) -> None:
    await rehearsed.archive(insert("a"))
    await rehearsed.back_up()
    found = await rehearsed.rehearse(bounds=RehearsalBounds(rto_s=0.0))
    assert (found.ok, found.error, found.phase) == (False, "RtoExceeded", "compare")


async def test_an_archive_that_ends_too_early(rehearsed: Rehearsed) -> None:
    await rehearsed.archive(insert("a"))
    await rehearsed.back_up()
    await rehearsed.write(insert("late"))
    found = await rehearsed.rehearse(archived_s=0.2)
    assert (found.ok, found.error, found.phase) == (False, "NotArchivedInTime", "live")
    assert found.rpo_seconds is not None
    assert found.rpo_seconds > 0


async def test_no_room_for_what_is_thrown_away(rehearsed: Rehearsed) -> None:
    await rehearsed.archive(insert("a"))
    await rehearsed.back_up()
    gone = rehearsed.request().folder / "gone" / "deeper"
    found = await rehearsed.rehearse(folder=gone, open_store=refuse_store)
    assert (found.ok, found.error, found.phase) == (False, "NoScratchStore", "prepare")
    assert "--scratch" in found.message


def refuse_store(_: str, folder: Path) -> NoReturn:
    raise OSError(28, "No space left on device", str(folder))


async def test_without_an_archive(rehearsed: Rehearsed) -> None:
    await rehearsed.write(insert("a"))
    empty = rehearsed.request().folder
    found = await rehearsed.rehearse(archive=FolderTarget(empty))
    assert (found.ok, found.error, found.phase) == (False, "NoArchive", "live")


async def test_the_loss_is_measured_at_the_target(rehearsed: Rehearsed) -> None:
    place = await rehearsed.archive(insert("a"))
    (stream,) = find_streams(rehearsed.target)
    assert await asyncio.to_thread(measure_rpo, [rehearsed.master], stream) == 0.0
    await rehearsed.write(insert("b"), insert("c"))

    def ask() -> tuple[float, int]:
        entry = rehearsed.master.log_page(place.index, upto=place.index + 1).entries[0]
        now_s = (entry.stamp >> 16) / 1000 + 7.5
        return measure_rpo([rehearsed.master], stream, lambda: now_s), entry.index

    assert await asyncio.to_thread(ask) == (7.5, place.index + 1)


async def test_a_master_of_the_new_cluster_takes_writes_and_knows_the_keys(rehearsed: Rehearsed) -> None:
    await rehearsed.archive(insert("a"))
    await rehearsed.back_up()
    await rehearsed.cluster.write(0, insert("bb"), TxLog_Durability="applied", Idempotency_Key="once")
    await rehearsed.archive(insert("ccc"))
    found = await rehearsed.rehearse(level="cluster")
    assert (found.ok, found.error, found.message) == (True, "", "")
    assert list(found.phases)[2:7] == ["claim", "found", "start", "repeat", "prepare"]
    assert found.rto_writes_seconds is not None
    assert found.rto_writes_seconds >= found.phases["start"]
    # The rehearsed cluster has got nothing of it.
    assert len((await rehearsed.cluster.get(0, "/txlog/status"))["members"]) == 1
    assert (await stable(rehearsed.cluster)).index == 3


async def test_a_rehearsal_without_an_archived_key_shows_nothing_of_keys(rehearsed: Rehearsed) -> None:
    await rehearsed.archive(insert("a"))
    await rehearsed.back_up()
    await rehearsed.archive(insert("ccc"))
    found = await rehearsed.rehearse(level="cluster")
    assert (found.ok, found.message) == (True, "")
    assert "start" in found.phases
    assert "repeat" not in found.phases


async def test_the_key_of_a_bulk_load_is_not_repeated(rehearsed: Rehearsed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A master refuses such a key to every client, so it would show nothing of what the new cluster knows."""
    await rehearsed.cluster.write(0, insert("bb"), TxLog_Durability="applied", Idempotency_Key="once")
    await rehearsed.archive(insert("ccc"))
    await rehearsed.back_up()
    asked: list[str] = []

    def found(request: SuccessionRequest) -> Succession:
        made = found_successor(request)
        assert made.inherited is not None
        keys = [*made.inherited.keys, (bulk_key("0" * 32), made.inherited.keys[-1][1])]
        return made._replace(inherited=dataclasses.replace(made.inherited, keys=keys))

    def refuse(client: MasterClient, repository: str, key: str) -> None:
        asked.append(key)
        refuse_forgotten(client, repository, key)

    monkeypatch.setattr(rehearsal, "found_successor", found)
    monkeypatch.setattr(rehearsal, "refuse_forgotten", refuse)
    report = await rehearsed.rehearse(level="cluster")
    assert (report.ok, report.error, report.message) == (True, "", "")
    assert asked == ["once"]


async def test_a_forgotten_key_is_named(rehearsed: Rehearsed, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if founding had not taken over the keys of the archive."""
    await rehearsed.archive(insert("a"))
    await rehearsed.back_up()
    await rehearsed.cluster.write(0, insert("bb"), TxLog_Durability="applied", Idempotency_Key="once")
    await rehearsed.archive(insert("ccc"))

    def without_keys(inherited: Inheritance, first: FirstMaster) -> list[Record]:
        return first_records(dataclasses.replace(inherited, keys=[]), first)

    monkeypatch.setattr(succession, "first_records", without_keys)
    found = await rehearsed.rehearse(level="cluster")
    assert (found.ok, found.error, found.phase) == (False, "KeyForgotten", "repeat")
    assert "'once'" in found.message


async def test_a_master_that_does_not_start_is_named(rehearsed: Rehearsed, monkeypatch: pytest.MonkeyPatch) -> None:
    await rehearsed.archive(insert("a"))
    await rehearsed.back_up()
    monkeypatch.setattr(scratch_cluster, "secrets", NoToken)
    found = await rehearsed.rehearse(level="cluster")
    assert (found.ok, found.error, found.phase) == (False, "NoScratchMaster", "start")


class NoToken:
    @staticmethod
    def token_hex(_: int) -> str:
        return ""
