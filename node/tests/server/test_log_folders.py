"""The list of further logs beside the first journal: durable, and refused by name when it cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from txlog.server.log_folders import LOGS_FILE, LOGS_FOLDER, BadLogsFile, KnownLog, LogFolders

STOCK = KnownLog(number=2, name="stock", cluster_id="01" * 16, birth=(1 << 64) - 1, start=3)


def opened(folder: Path, node: str = "uk-1", birth: int = 7) -> LogFolders:
    return LogFolders(folder, node, birth)


def test_a_master_with_one_log_has_no_file(tmp_path: Path) -> None:
    folders = opened(tmp_path)
    assert folders.logs == {}
    assert folders.last_seen(2) is None
    assert list(tmp_path.iterdir()) == []


def test_what_was_kept_is_read_again(tmp_path: Path) -> None:
    folders = opened(tmp_path)
    folders.keep(KnownLog(number=1, name="system"))
    folders.keep(KnownLog(number=2, name="stock"))
    assert opened(tmp_path).last_seen(2) is None, "its journal was not opened yet"
    folders.keep(STOCK)
    again = opened(tmp_path)
    assert list(again.logs) == [1, 2]
    assert again.logs[2] == STOCK
    seen = again.last_seen(2)
    assert seen is not None
    assert (seen.birth, seen.start) == ((1 << 64) - 1, 3)
    assert again.folder(2) == tmp_path / LOGS_FOLDER / "2"


def test_a_removed_log_keeps_its_journal_under_another_name(tmp_path: Path) -> None:
    folders = opened(tmp_path)
    folders.keep(STOCK)
    folders.folder(2).mkdir(parents=True)
    (folders.folder(2) / "file").write_text("x")
    assert folders.discard(2) == tmp_path / LOGS_FOLDER / "removed-2"
    assert (tmp_path / LOGS_FOLDER / "removed-2" / "file").read_text() == "x"
    again = opened(tmp_path)
    assert again.logs == {}
    assert again.unknown_folders() == [], "that one is known to be removed"
    assert again.discard(2) is None


def test_a_removed_log_takes_a_name_that_is_free(tmp_path: Path) -> None:
    folders = opened(tmp_path)
    for name in ("removed-2", "removed-2-2", "removed-2-3"):
        folders.keep(STOCK)
        folders.folder(2).mkdir(parents=True)
        (folders.folder(2) / name).write_text("x")
        assert folders.discard(2) == tmp_path / LOGS_FOLDER / name
        assert (tmp_path / LOGS_FOLDER / name / name).is_file()


@pytest.mark.parametrize(
    ("refused", "birth", "start", "is_older"),
    [
        (0, 7, 4, True),
        (0, 7, 5, True),
        (0, 7, 6, False),
        (0, 8, 1, False),
        (4, 7, 6, False),
        (5, 7, 6, True),
        (6, 7, 7, True),
        (6, 7, 8, False),
        (6, 8, 7, False),
    ],
)
def test_an_older_journal_is_told_from_the_listed_one(
    tmp_path: Path, refused: int, birth: int, start: int, *, is_older: bool
) -> None:
    opened(tmp_path).keep(KnownLog(number=2, name="stock", birth=7, start=5, refused=refused))
    assert opened(tmp_path).logs[2].is_older(birth, start) is is_older


def test_a_folder_that_no_log_has_is_named_and_left(tmp_path: Path) -> None:
    folders = opened(tmp_path)
    folders.keep(STOCK)
    for name in ("2", "7", "notes"):
        (tmp_path / LOGS_FOLDER / name).mkdir(parents=True)
    assert opened(tmp_path).unknown_folders() == ["7"]
    assert (tmp_path / LOGS_FOLDER / "7").is_dir()


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b'{"version":2,"node":"uk-1","birth":7,"logs":[]}', b"\xff" * 2_000_000]
)
def test_a_torn_file_is_refused_by_name(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / LOGS_FILE).write_bytes(raw)
    with pytest.raises(BadLogsFile, match=r"move .* away") as refused:
        opened(tmp_path)
    assert refused.value.reason == "LogsFileDamaged"


def test_a_missing_file_beside_folders_is_refused_by_name(tmp_path: Path) -> None:
    folders = opened(tmp_path)
    folders.keep(STOCK)
    folders.folder(2).mkdir(parents=True)
    (tmp_path / LOGS_FILE).unlink()
    with pytest.raises(BadLogsFile, match="missing beside the logs 2") as refused:
        opened(tmp_path)
    assert refused.value.reason == "LogsFileMissing"


@pytest.mark.parametrize(("node", "birth"), [("uk-2", 7), ("uk-1", 8)])
def test_a_file_of_another_master_is_refused_by_name(tmp_path: Path, node: str, birth: int) -> None:
    opened(tmp_path).keep(STOCK)
    with pytest.raises(BadLogsFile, match="is of uk-1 with the journal 0000000000000007") as refused:
        opened(tmp_path, node, birth)
    assert refused.value.reason == "LogsFileOfAnother"
