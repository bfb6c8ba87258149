"""Targets that are full, deny, do not answer; credentials; what is kept and what goes."""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import obstore
import pytest
from log_in_memory import MemoryLog
from oxigraph_process import OxigraphProcess
from pen import (
    CLUSTER,
    apply,
    back_up,
    chain_of,
    everything,
    filled_log,
    folder_target,
    into,
    order,
    put_back,
    s3_target,
    source,
)
from typer.testing import CliRunner

from e2e.lib.ports import free_ports
from e2e.lib.seaweedfs import ACCESS, SECRET, SeaweedProcess
from txlog.backup import (
    BackupProgress,
    BackupTarget,
    catalogue,
    check_backup,
    delete_backup,
    delete_incomplete_backups,
    newest_backups,
    open_target,
    release_backup,
    restore_backup,
    take_backup,
)
from txlog.backup.backup_errors import (
    BackupFault,
    BackupInUse,
    ContentDiffers,
    HeldBackup,
    NoSuchBackup,
    OffTheChain,
    OtherCluster,
    PartDamaged,
    PartMissing,
    PartTruncated,
    TargetDenied,
    TargetFull,
    TargetUnreachable,
)
from txlog.backup.part_codec import PartWriter
from txlog.backup.read_lease import LEASE_PREFIX, LEASE_TTL_S
from txlog.backup.retention import DAY_S, apply_retention
from txlog.cli.main import app
from txlog.config.process_config import S3Config
from txlog.model.errors import BadInput


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """As on a disk that is full behind so many bytes: a longer write fails with EFBIG, in the middle of a part."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def filled(worker: OxigraphProcess) -> MemoryLog:
    log = filled_log(30)
    apply(worker, log, 20)
    return log


@pytest.mark.usefixtures("filled")
def test_a_full_disk_leaves_nothing_and_the_next_one_counts(worker: OxigraphProcess, tmp_path: Path) -> None:
    target = folder_target(tmp_path / "backups")
    with files_of_at_most(200), pytest.raises(TargetFull, match="make room"):
        back_up(worker, target)
    assert list(target.list_objects()) == []
    with files_of_at_most(700), pytest.raises(TargetFull):  # the parts fit, the manifest does not
        back_up(worker, target)
    assert list(target.list_objects()) == []
    assert check_backup(target, back_up(worker, target).name).quads == 200


@pytest.mark.usefixtures("filled")
def test_what_the_target_does_not_give_back_never_counts(worker: OxigraphProcess, tmp_path: Path) -> None:
    target = folder_target(tmp_path / "backups")

    def spoil(progress: BackupProgress) -> None:
        if progress.phase == "reading back":  # the first part was read, the last one was not
            path = max((tmp_path / "backups" / "mine").iterdir())
            path.write_bytes(path.read_bytes()[:-1] + b"?")

    with pytest.raises(PartDamaged):
        take_backup(source(worker), target, order(name="mine"), spoil)
    assert list(target.list_objects()) == []


@pytest.mark.usefixtures("filled")
def test_a_fault_of_the_writer_itself_is_found_when_it_is_read_back(
    worker: OxigraphProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = folder_target(tmp_path / "backups")
    right = PartWriter._add
    monkeypatch.setattr(PartWriter, "_add", lambda self, data: right(self, data.replace(b"urn:s:7:0", b"urn:s:7:X")))
    with pytest.raises(ContentDiffers):
        back_up(worker, target)
    assert list(target.list_objects()) == []


@pytest.mark.usefixtures("filled")
def test_a_folder_that_is_not_there_is_not_made(worker: OxigraphProcess, tmp_path: Path) -> None:
    target = folder_target(tmp_path / "backups")
    (tmp_path / "backups").rmdir()  # a volume that is not mounted
    for ask in (lambda: back_up(worker, target), lambda: catalogue(target), lambda: check_backup(target, "x")):
        with pytest.raises(TargetUnreachable, match="no folder; make it, or mount it"):
            ask()
    assert not (tmp_path / "backups").exists()


@pytest.fixture
def s3(seaweed: SeaweedProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BackupTarget:
    """With credentials from the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    return s3_target(seaweed.url, tmp_path.name, None)


def test_a_spoilt_backup_on_s3(
    worker: OxigraphProcess,
    empty: OxigraphProcess,
    filled: MemoryLog,
    s3: BackupTarget,
    seaweed: SeaweedProcess,
    tmp_path: Path,
) -> None:
    made = back_up(worker, s3)
    store = seaweed.store(tmp_path.name)
    key = f"{made.name}/{made.parts[1].name}"
    whole = bytes(obstore.get(store, key).bytes())
    spoilt: list[tuple[bytes | None, type[BackupFault]]] = [
        (bytes([whole[0] ^ 1]) + whole[1:], PartDamaged),
        (whole[:-1], PartTruncated),
        (whole + b"\0", PartDamaged),
        (None, PartMissing),
    ]
    for data, fault in spoilt:
        if data is None:
            obstore.delete(store, key)
        else:
            obstore.put(store, key, data)
        with pytest.raises(fault):
            put_back(s3, made.name, empty, filled)
        assert everything(empty) == ([], [])
    obstore.put(store, key, whole)
    foreign = "cd" * 16
    with pytest.raises(OtherCluster, match=foreign):
        restore_backup(s3, made.name, into(empty), foreign, chain_of(filled))
    for other in (filled_log(30, 2), filled_log(3)):  # another branch; one that ends before it
        with pytest.raises(OffTheChain):
            put_back(s3, made.name, empty, other)
    assert everything(empty) == ([], [])
    put_back(s3, made.name, empty, filled)
    assert empty.quads() == worker.quads()


@pytest.mark.usefixtures("filled")
def test_the_commands_know_s3_by_its_address(
    worker: OxigraphProcess, s3: BackupTarget, seaweed: SeaweedProcess, tmp_path: Path
) -> None:
    made = back_up(worker, s3)
    where = ["--target", f"s3://backups/{tmp_path.name}", "--endpoint", seaweed.url, "--json"]

    def run(*arguments: str) -> Any:
        found = CliRunner().invoke(app, ["backup", *arguments, *where])
        assert found.exit_code == 0, found.output
        return json.loads(found.stdout)

    assert [(each["name"], each["state"]) for each in run("list")] == [(made.name, "complete")]
    assert [(each["name"], each["sound"]) for each in run("verify")] == [(made.name, True)]
    assert run("delete", made.name) == {"deleted": [made.name]}
    assert run("list") == []


def test_credentials_that_are_not_known(seaweed: SeaweedProcess, tmp_path: Path) -> None:
    folder = tmp_path / "credentials"
    folder.mkdir()
    with pytest.raises(BadInput, match="lacks the files AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
        s3_target(seaweed.url, "x", folder)
    (folder / "AWS_ACCESS_KEY_ID").write_text(ACCESS)
    (folder / "AWS_SECRET_ACCESS_KEY").write_text("another")
    target = s3_target(seaweed.url, "x", folder)
    for ask in (lambda: target.write("a/b", b"c"), lambda: target.read("a/b", 9), lambda: list(target.list_objects())):
        with pytest.raises(TargetDenied, match="credentials"):
            ask()


def test_a_server_that_is_not_there(worker: OxigraphProcess, filled: MemoryLog, s3: BackupTarget) -> None:
    (port,) = free_ports(1)
    gone = s3_target(f"http://127.0.0.1:{port}", "x", None)
    for ask in (lambda: back_up(worker, gone), lambda: catalogue(gone), lambda: check_backup(gone, "x")):
        with pytest.raises(TargetUnreachable):
            ask()
    assert worker.system().claims == frozenset()
    apply(worker, filled)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_server_that_ends_or_hangs_in_the_middle(
    worker: OxigraphProcess,
    filled: MemoryLog,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    server = SeaweedProcess(tmp_path_factory.mktemp("seaweed"))
    try:
        config = S3Config(bucket="backups", prefix="x", endpoint=server.url, timeout_s=1, connect_s=1)
        target = open_target(config)

        def end(progress: BackupProgress) -> None:
            if progress.phase == "reading back":
                server.process.send_signal(number)

        with pytest.raises(TargetUnreachable):
            # Of several parts, so that some are still to be read back, and no manifest is on its way.
            take_backup(source(worker), target, order(part_bytes=400), end)
        if number is signal.SIGSTOP:
            server.process.send_signal(signal.SIGCONT)
            (left,) = catalogue(open_target(config.model_copy(update={"timeout_s": 30.0})))
            assert left.state == "incomplete"
    finally:
        server.kill()
    apply(worker, filled)


# -- what is kept


def test_retention_keeps_the_newest_and_what_is_held(worker: OxigraphProcess, tmp_path: Path) -> None:
    target = folder_target(tmp_path / "backups")
    log = filled_log(7, 1)
    made = []
    for index, (why, kept, dc) in enumerate(
        [
            ("manual", "normal", "uk"),
            ("split", "held", "uk"),
            ("schedule", "normal", "uk"),
            ("schedule", "normal", "us"),
            ("schedule", "normal", "uk"),
            ("schedule", "normal", "uk"),
        ],
        1,
    ):
        apply(worker, log, index)
        made.append(back_up(worker, target, why=why, retention=kept, data_center=dc).name)
    one, split, three, elsewhere, five, six = made
    target.write("leftover/part-00001.nq.zst", b"x")

    assert apply_retention(target, "another cluster", "uk", 1) == []
    assert set(apply_retention(target, CLUSTER, "uk", 1, keep_days=1)) == set()
    tomorrow = newest_backups(target, CLUSTER)[0].touched + DAY_S + 60
    assert set(apply_retention(target, CLUSTER, "uk", 2, keep_days=1, now=tomorrow)) == {three}
    assert {each.name for each in newest_backups(target, CLUSTER)} == {one, split, elsewhere, five, six}
    assert apply_retention(target, CLUSTER, "uk", 1) == [five]
    assert apply_retention(target, CLUSTER, "uk", 1) == []

    with pytest.raises(HeldBackup, match="is held"):
        delete_backup(target, split)
    assert check_backup(target, split).why == "split"
    release_backup(target, split)
    release_backup(target, split)
    assert [each.held for each in catalogue(target) if each.name == split] == [False]
    assert apply_retention(target, CLUSTER, "uk", 1) == [split]
    assert {each.name for each in newest_backups(target, CLUSTER)} == {one, elsewhere, six}
    assert catalogue(target)[0].name == "leftover"


def test_what_is_being_restored_from_is_not_deleted(
    worker: OxigraphProcess, empty: OxigraphProcess, filled: MemoryLog, tmp_path: Path
) -> None:
    target = folder_target(tmp_path / "backups")
    old, new = (back_up(worker, target, why="schedule").name for _ in range(2))
    seen: list[str] = []

    def told(progress: BackupProgress) -> None:
        if progress.phase == "loading" and not seen:
            seen.append(progress.phase)
            assert apply_retention(target, CLUSTER, "uk", 1) == []
            with pytest.raises(BackupInUse):
                delete_backup(target, old)

    restore_backup(target, old, into(empty), CLUSTER, chain_of(filled), on_progress=told)
    assert seen == ["loading"]
    assert empty.quads() == worker.quads()
    assert apply_retention(target, CLUSTER, "uk", 1) == [old]
    assert [each.name for each in catalogue(target)] == [new]


def test_who_was_killed_while_restoring_keeps_a_backup_for_a_day(worker: OxigraphProcess, tmp_path: Path) -> None:
    target = folder_target(tmp_path / "backups")
    apply(worker, filled_log(1))
    old, _ = (back_up(worker, target, why="schedule").name for _ in range(2))
    target.write(f"{old}/{LEASE_PREFIX}0123.json", b"{}")
    leased = next(each.leased for each in catalogue(target) if each.name == old)
    assert apply_retention(target, CLUSTER, "uk", 1, now=leased + LEASE_TTL_S - 1) == []
    lease = tmp_path / "backups" / old / f"{LEASE_PREFIX}0123.json"
    os.utime(lease, (leased - LEASE_TTL_S - 1, leased - LEASE_TTL_S - 1))
    assert apply_retention(target, CLUSTER, "uk", 1) == [old]
    assert not lease.parent.exists()


def test_a_damaged_backup_is_not_counted_among_those_kept(worker: OxigraphProcess, tmp_path: Path) -> None:
    target = folder_target(tmp_path / "backups")
    apply(worker, filled_log(1))
    good, bad = (back_up(worker, target, why="schedule").name for _ in range(2))
    (tmp_path / "backups" / bad / "part-00001.nq.zst").write_bytes(b"")
    assert apply_retention(target, CLUSTER, "uk", 1) == []
    assert check_backup(target, good).name == good
    delete_backup(target, bad)
    assert [each.name for each in catalogue(target)] == [good]


def test_deleting_what_is_not_there_and_what_is_of_others(tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    target = folder_target(folder)
    for name in ("none", "", "..", "a/b"):
        with pytest.raises(NoSuchBackup):
            delete_backup(target, name)
    (folder / "README").write_text("of others")
    (folder / "Photos").mkdir()
    (folder / "Photos" / "a.jpg").write_text("of others")
    assert catalogue(target) == []
    assert delete_incomplete_backups(target, 0.0) == []
    assert (folder / "Photos" / "a.jpg").exists()


@pytest.mark.usefixtures("filled")
def test_a_backup_under_way_is_no_leftover(worker: OxigraphProcess, tmp_path: Path) -> None:
    target = folder_target(tmp_path / "backups")
    seen: list[str] = []

    def told(progress: BackupProgress) -> None:
        if progress.phase == "reading back" and not seen:
            seen.extend(each.state for each in catalogue(target))
            assert delete_incomplete_backups(target) == []

    made = take_backup(source(worker), target, order(), told)
    assert seen == ["incomplete"]
    assert check_backup(target, made.name) == made
