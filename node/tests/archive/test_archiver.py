"""The archiver at real masters: everything that is stable, in order, also when the target fails or a process ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from apart import go_apart, insert
from archiver_runs import Runner, cluster_id, entries_to, folder, log_of, paths_of, stable, stream_of, told
from master_cluster import Cluster, until

from e2e.lib.seaweedfs import ACCESS, SECRET, SeaweedProcess
from txlog.archive.archive_errors import NoConditionalPut, StreamTaken
from txlog.archive.stream import ROOT
from txlog.backup.backup_errors import TargetFull, TargetUnreachable
from txlog.backup.folder_target import FolderTarget
from txlog.backup.stored_object import StoredObject
from txlog.backup.target import BackupTarget, open_target
from txlog.config.process_config import S3Config


@pytest.fixture(params=["folder", "s3"])
def target(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BackupTarget:
    if request.param == "folder":
        return FolderTarget(folder(tmp_path / "target"))
    seaweed: SeaweedProcess = request.getfixturevalue("seaweed")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    return open_target(S3Config(bucket="backups", prefix=tmp_path.name, endpoint=seaweed.url))


class FaultyTarget(FolderTarget):
    """``faults``: what the next calls that create a file do."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.faults: list[str] = []
        self.created: list[str] = []

    def create(self, key: str, data: bytes) -> bool:
        fault = self.faults.pop(0) if self.faults and "/log0/" in key else ""
        if fault == "refuse":
            raise TargetFull("no room is left")
        if fault == "spoil":  # another object has that name
            super().create(key, data[: len(data) // 2] + b"?" + data[len(data) // 2 + 1 :])
        if fault == "slow":
            time.sleep(0.5)
        made = super().create(key, data)
        if fault == "lose":
            raise TargetUnreachable("the answer was lost")
        self.created.append(key)
        return made


@pytest.fixture
def faulty(tmp_path: Path) -> FaultyTarget:
    return FaultyTarget(folder(tmp_path / "target"))


@pytest.fixture
def closing() -> Iterator[list[Runner]]:
    made: list[Runner] = []
    yield made
    for each in made:
        each.close()


async def begun(closing: list[Runner], cluster: Cluster, target: BackupTarget, *which: int, **more: Any) -> Runner:
    runner = Runner(cluster, target, *which, **more)
    closing.append(runner)
    await runner.start()
    return runner


async def test_all_that_is_stable_is_archived_and_a_new_start_goes_on_there(
    clusters: Callable[..., Cluster], target: BackupTarget, closing: list[Runner]
) -> None:
    cluster = clusters(2)
    await cluster.start()
    await cluster.write(0, insert("a"))
    await cluster.write(1, "DELETE { ?s <urn:p> ?o } INSERT { ?s <urn:q> ?o } WHERE { ?s <urn:p> ?o }")
    await asyncio.gather(*(cluster.write(at, insert("k"), Idempotency_Key="once") for at in (0, 1)))
    first = await begun(closing, cluster, target)
    place = await stable(cluster, 0, 3)
    await first.reach(place)
    stream = stream_of(target, await cluster_id(cluster))
    assert told(entries_to(stream, place)) == await log_of(cluster)
    written = {each.name for each in stream.list_files()}
    second = await begun(closing, cluster, target)
    assert second.archiver.reported == place
    for what in range(5):
        await cluster.write(what % 2, insert(what))
    place = await stable(cluster, 0, place.index + 5)
    await second.reach(place)
    await second.reach(place)
    assert told(entries_to(stream, place)) == await log_of(cluster)
    assert written < {each.name for each in stream.list_files()}
    head = stream.read_file(stream.list_files()[0].name).header
    assert (head.meta.view, head.meta.data_center) == (cluster.service(0).context.status.view.number, "uk")  # type: ignore[union-attr]
    assert head.meta.history == []
    assert head.settled == head.name.last


async def test_a_key_that_two_masters_took_is_marked(
    clusters: Callable[..., Cluster], faulty: FaultyTarget, closing: list[Runner]
) -> None:
    cluster = clusters(2)
    await cluster.start()
    keys, shown = 0, []
    end_s = asyncio.get_running_loop().time() + 60
    while not any(entry["noop"] for entry in shown):
        assert asyncio.get_running_loop().time() < end_s, "one master always heard of the key before the other took it"
        await asyncio.gather(*(cluster.write(at, insert("k"), Idempotency_Key=f"k{keys}") for at in (0, 1)))
        keys += 1
        shown = (await cluster.get(0, "/txlog/log", headers={"Accept": "application/json"}))["entries"]
    runner = await begun(closing, cluster, faulty)
    place = await stable(cluster, 0, len(shown))
    await runner.reach(place)
    entries = entries_to(stream_of(faulty, await cluster_id(cluster)), place)
    assert [entry.is_noop for entry in entries] == [entry["noop"].startswith("key ") for entry in shown]
    assert any(entry.is_noop for entry in entries)


@pytest.mark.parametrize(
    "faults",
    [
        ["refuse"] * 3,
        ["slow"] * 2,
        ["lose"],
        ["lose", "refuse", "refuse"],
        ["spoil"],
        ["spoil", "spoil"],
        ["", "spoil", "lose"],
    ],
)
async def test_a_target_that_fails(
    clusters: Callable[..., Cluster], faulty: FaultyTarget, closing: list[Runner], faults: list[str]
) -> None:
    cluster = clusters(1)
    await cluster.start()
    runner = await begun(closing, cluster, faulty, file_bytes=100)
    for what in range(6):
        await cluster.write(0, insert(what))
    faulty.faults = list(faults)
    place = await stable(cluster, 0, 6)
    await runner.reach(place)
    assert not faulty.faults
    assert runner.failed == sum(fault in ("refuse", "lose") for fault in faults)
    stream = stream_of(faulty, await cluster_id(cluster))
    assert told(entries_to(stream, place)) == await log_of(cluster)
    assert runner.events("ArchiveFileDamaged") == faults.count("spoil")
    again = await begun(closing, cluster, faulty)
    await again.reach(place)
    assert again.archiver.files_written == 0


async def test_a_damaged_tail_is_archived_again(
    clusters: Callable[..., Cluster], faulty: FaultyTarget, closing: list[Runner], tmp_path: Path
) -> None:
    cluster = clusters(1)
    await cluster.start()
    runner = await begun(closing, cluster, faulty, file_bytes=1)
    for what in range(4):
        await cluster.write(0, insert(what))
    place = await stable(cluster, 0, 4)
    await runner.reach(place)
    stream = stream_of(faulty, await cluster_id(cluster))
    files = sorted((tmp_path / "target").rglob("*.txl"))
    assert len(files) == 4
    for path in files[-2:]:
        path.write_bytes(path.read_bytes()[:-1])
    again = await begun(closing, cluster, faulty)
    assert again.archiver.reported is not None
    assert again.archiver.reported.index == 2
    await again.reach(place)
    assert told(entries_to(stream, place)) == await log_of(cluster)
    assert again.events("ArchiveFileDamaged") >= 2


async def test_both_branches_of_a_split_and_the_log_after_it(
    clusters: Callable[..., Cluster], faulty: FaultyTarget, closing: list[Runner]
) -> None:
    cluster = clusters(3, round_timeout_ms=500, idle_interval_ms=100, max_peer_lag_ms=1000)
    await cluster.start()
    for what in "ab":
        await cluster.write(0, insert(what))
    runner = await begun(closing, cluster, faulty)
    await runner.reach(await stable(cluster, 0, 2))
    heal = await go_apart(cluster)
    for at in (0, 2):
        await cluster.write(at, insert(f"apart-{at}"))
    heads = [await stable(cluster, at, 3) for at in (0, 2)]
    await runner.reach(*heads)
    assert heads[0] != heads[1]
    stream = stream_of(faulty, await cluster_id(cluster))
    for at, head in zip((0, 2), heads, strict=True):
        assert told(entries_to(stream, head)) == await log_of(cluster, at)
    heal()

    async def joined() -> bool:
        found = [await cluster.get(at, "/txlog/status") for at in range(3)]
        return all(each["state"] == "Joined" and each["stable"]["index"] >= 7 for each in found)

    await until(joined)
    await cluster.write(1, insert("after"))
    place = await stable(cluster, 1, 8)
    await runner.reach(place)
    assert told(entries_to(stream, place)) == await log_of(cluster, 1)
    again = await begun(closing, cluster, faulty)
    await again.reach(place)
    assert again.archiver.files_written == 0
    assert stream.read_losses() == []
    assert paths_of(stream).unreached == []


async def test_masters_that_are_away_and_come_back(
    clusters: Callable[..., Cluster], faulty: FaultyTarget, closing: list[Runner]
) -> None:
    cluster = clusters(3)
    await cluster.start()
    await cluster.write(0, insert("a"))
    runner = await begun(closing, cluster, faulty)
    await cluster.stop(0)
    await cluster.write(1, insert("b"))
    await runner.reach(await stable(cluster, 1, 2))
    assert runner.events("MasterNotFollowed") > 0


async def test_a_stream_of_another_cluster_or_a_damaged_one_is_left_alone(
    clusters: Callable[..., Cluster], faulty: FaultyTarget, tmp_path: Path
) -> None:
    cluster = clusters(1)
    await cluster.start()
    key = f"{ROOT}/{(await cluster_id(cluster)).hex()}/uk/stream.json"
    faulty.write(key, b"{}")
    runner = Runner(cluster, faulty)
    with pytest.raises(StreamTaken, match="use another prefix"):
        await runner.start()
    runner.close()
    assert faulty.read(key, 10) == b"{}"


async def test_a_target_that_overwrites_is_refused(
    clusters: Callable[..., Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = clusters(1)
    await cluster.start()

    def overwrite(self: FolderTarget, key: str, data: bytes) -> bool:
        (tmp_path / "target" / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "target" / key).write_bytes(data)
        return True

    monkeypatch.setattr(FolderTarget, "create", overwrite)
    runner = Runner(cluster, FolderTarget(folder(tmp_path / "target")))
    with pytest.raises(NoConditionalPut, match="If-None-Match"):
        await runner.start()
    runner.close()


def test_backups_beside_an_archive_do_not_see_it(target: BackupTarget, tmp_path: Path) -> None:
    nested = f"{ROOT}/{'ab' * 16}/uk"
    assert target.create(f"{nested}/log0/b", b"1")
    assert target.create(f"{nested}/log0/a", b"2")
    assert target.create(f"{nested}/stream.json", b"3")
    assert not target.create(f"{nested}/log0/a", b"another")
    assert target.read(f"{nested}/log0/a", 10) == b"2"
    target.write("backup-1/manifest.json", b"4")

    def keys(found: Iterator[StoredObject]) -> list[str]:
        return sorted(each.key for each in found)

    assert keys(target.list_objects()) == ["backup-1/manifest.json"]
    assert keys(target.list_objects("backup-1/")) == ["backup-1/manifest.json"]
    assert keys(target.list_nested(nested)) == [f"{nested}/log0/a", f"{nested}/log0/b", f"{nested}/stream.json"]
    assert keys(target.list_nested(f"{nested}/log0", f"{nested}/log0/a")) == [f"{nested}/log0/b"]
    assert keys(target.list_nested("_nothing")) == []


def test_of_many_that_create_one_object_one_does(target: BackupTarget) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: target.create("a/b/c", bytes([n]) * 1000), range(8)))
    assert made.count(True) == 1
    assert target.read("a/b/c", 2000) == bytes([made.index(True)]) * 1000
    assert [each.key for each in target.list_nested("a")] == ["a/b/c"]


def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", refuse)
    target = FolderTarget(folder(tmp_path / "target"))
    assert target.create("a/b", b"1")
    assert not target.create("a/b", b"2")
    assert target.read("a/b", 5) == b"1"
    assert len(list(target.list_nested("a"))) == 1
