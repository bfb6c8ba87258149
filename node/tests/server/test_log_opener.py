"""The journal of a further log: founded once, never older than it was, of its own cluster, and closed when it fails."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from master_cluster import Cluster

from txlog.config.process_config import NodeConfig
from txlog.model.configuration import Master
from txlog.model.errors import Fatal
from txlog.server.log_folders import LogFolders
from txlog.server.log_opener import LogOpener, close_storage
from txlog.server.log_service import LogStorage, open_journal
from txlog.system.catalogue import FoundingMember, RepositoryRecord, RepositorySettings, RepositoryState
from txlog.system.first_view import JournalBirth, found_entry

MASTERS = [Master("uk-1", "uk", 1), Master("uk-2", "uk", 1)]
NEW = RepositoryRecord(2, "stock", RepositorySettings("Smart", "Continue", 86_400_000))


def founded(**births: int) -> RepositoryRecord:
    """Log 2, founded by masters with these journals."""
    named = {f"uk-{name[1:]}": JournalBirth(birth, False, 1) for name, birth in births.items()}
    entry = found_entry(2, named, list(named), MASTERS)
    assert entry is not None
    return NEW._replace(state=RepositoryState.FOUNDED, cluster_id=entry.cluster_id, members=entry.members, level=1)


class Opened:
    """An opener in a folder of its own, as a process has it after each start."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.config = NodeConfig.model_validate({**cluster.configs[0], "journal_folder": str(folder)})
        self.folder = folder / "logs" / "2"
        self.folders = LogFolders(folder, "uk-1", 7)
        self.opener = LogOpener(self.config, self.folders, cluster.service(0).loop.status)

    def found(self, record: RepositoryRecord | None = None) -> tuple[RepositoryRecord, NodeConfig, Any]:
        """Founds the log, or opens this one; closes it. The record, the configuration and what was read."""
        empty = self.opener.open_empty(NEW) if record is None else None
        known = founded(m1=empty.recovered.birth) if empty is not None else record
        assert known is not None
        storage, config = self.opener.open_founded(known, MASTERS, empty)
        close_storage(storage)
        return known, config, storage.recovered

    def is_unlocked(self) -> bool:
        close_storage(LogStorage(*open_journal(self.opener.log_config(2, "stock", NEW.settings))))
        return True


@pytest.fixture
async def opened(clusters: Callable[..., Cluster], tmp_path: Path) -> Callable[[], Opened]:
    cluster = clusters(1)
    await cluster.start()
    (tmp_path / "apart").mkdir()
    return lambda: Opened(cluster, tmp_path / "apart")


async def test_view_1_is_written_once(opened: Callable[[], Opened], tmp_path: Path) -> None:
    first = opened()
    close_storage(first.opener.open_empty(NEW))
    shutil.copytree(first.folder, tmp_path / "copy")
    record, config, recovered = first.found()
    assert config.last_seen is None
    assert (recovered.installed.cluster_id, recovered.start) == (record.cluster_id, 3)
    shutil.rmtree(first.folder)
    shutil.copytree(tmp_path / "copy", first.folder)
    for _ in range(6):  # until its start is higher than the one that was listed
        with pytest.raises(Fatal, match="was founded before") as refused:
            opened().found(record)
        assert refused.value.reason == "OldJournal"
    assert first.is_unlocked()


async def test_an_older_journal_stays_refused_and_the_listed_one_opens(
    opened: Callable[[], Opened], tmp_path: Path
) -> None:
    record = opened().found()[0]
    folder = opened().folder
    shutil.copytree(folder, tmp_path / "copy")
    for _ in range(2):
        opened().found(record)
    folder.rename(tmp_path / "right")
    shutil.copytree(tmp_path / "copy", folder)
    listed = opened().folders.logs[2].start
    with pytest.raises(Fatal, match="OldJournal"):
        opened().found(record)
    shutil.rmtree(folder)
    (tmp_path / "right").rename(folder)
    assert opened().found(record)[2].start == listed + 1, "the right one opens"
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "copy", folder)
    for _ in range(6):
        with pytest.raises(Fatal, match="was listed") as refused:
            opened().found(record)
        assert refused.value.reason == "OldJournal"


async def test_a_lost_journal_stays_known_until_the_log_is_learnt(opened: Callable[[], Opened]) -> None:
    record, _, before = opened().found()
    shutil.rmtree(opened().folder)
    for _ in range(3):
        _, config, recovered = opened().found(record)
        assert config.last_seen is not None
        assert (recovered.accepted, config.last_seen.birth) == (None, before.birth)
        assert recovered.birth != before.birth
        assert opened().folders.logs[2].birth == before.birth


async def test_a_master_that_the_founding_does_not_name_founds_nothing(opened: Callable[[], Opened]) -> None:
    record = founded(m2=9)
    for _ in range(3):
        _, config, recovered = opened().found(record)
        assert config.last_seen is not None
        assert (recovered.accepted, config.last_seen.birth) == (None, 9)


async def test_a_member_whose_empty_journal_was_lost_founds_nothing(opened: Callable[[], Opened]) -> None:
    record = founded(m1=8, m2=9)
    for _ in range(3):
        _, config, recovered = opened().found(record)
        assert config.last_seen is not None
        assert (recovered.accepted, config.last_seen.birth) == (None, 8)


async def test_a_journal_of_another_cluster_is_refused(opened: Callable[[], Opened]) -> None:
    record, _, recovered = opened().found()
    other = founded(m1=recovered.birth, m2=9)
    assert other.members[0] == FoundingMember("uk-1", recovered.birth)
    with pytest.raises(Fatal, match=record.cluster_id.hex()) as refused:
        opened().found(other)
    assert refused.value.reason == "OtherCluster"
    assert opened().is_unlocked()


async def test_a_new_log_takes_no_journal_that_has_a_log(opened: Callable[[], Opened]) -> None:
    opened().found()
    for _ in range(2):
        with pytest.raises(Fatal, match="move it away") as refused:
            opened().opener.open_empty(NEW)
        assert refused.value.reason == "JournalNotEmpty"


@pytest.mark.parametrize("is_new", [True, False])
async def test_a_journal_that_cannot_be_listed_is_closed(
    opened: Callable[[], Opened], monkeypatch: pytest.MonkeyPatch, *, is_new: bool
) -> None:
    record = None if is_new else opened().found()[0]
    one = opened()
    empty = one.opener.open_empty(NEW) if is_new else None
    named = founded(m1=empty.recovered.birth) if empty is not None else record
    assert named is not None

    def keep(log: Any) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(one.folders, "keep", keep)
    with pytest.raises(OSError, match="no space"):
        one.opener.open_founded(named, MASTERS, empty)
    assert one.is_unlocked()


async def test_a_journal_that_takes_no_view_is_closed(
    opened: Callable[[], Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = opened()
    empty = one.opener.open_empty(NEW)

    def append(record: Any) -> None:
        raise OSError(5, "input/output error")

    monkeypatch.setattr(empty.journal, "append", append)
    with pytest.raises(OSError, match="input/output"):
        one.opener.open_founded(founded(m1=empty.recovered.birth), MASTERS, empty)
    assert one.is_unlocked()
