"""The version table: what was saved is there again, whole, whenever the process or the file ends."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from table_steps import COUNT, IDENTITY, state, step

from txlog.sites.keys import KeyKind
from txlog.sites.link_errors import OtherLink
from txlog.sites.site_book import SiteBook
from txlog.sites.version_table import UnknownVersionTable, VersionTable

PROGRAM = Path(__file__).parent / "killed_table.py"
FILE = "versions.sqlite"


def reference() -> list[tuple[dict[str, object], dict[str, object]]]:
    """Both books after each entry."""
    found = []
    table = type("Books", (), {})()
    table.mine = SiteBook("lon", "nyc", KeyKind.PROPERTY, IDENTITY.other_cluster)
    table.theirs = SiteBook("nyc", "lon", KeyKind.PROPERTY, IDENTITY.cluster)
    for _ in range(COUNT):
        found.append((_copied(table.mine), _copied(table.theirs)))
        step(table)
    return [*found, (_copied(table.mine), _copied(table.theirs))]


def _copied(book: SiteBook) -> dict[str, object]:
    return dict(msgspec.to_builtins(state(book), builtin_types=(bytes,), str_keys=False))


def both(table: VersionTable) -> tuple[dict[str, object], dict[str, object]]:
    return _copied(table.mine), _copied(table.theirs)


def test_books_are_as_they_were_saved(tmp_path: Path) -> None:
    expected = reference()
    assert any(books[0]["needs"] for books in expected)
    for at in range(COUNT):
        table = VersionTable(tmp_path / FILE, IDENTITY)
        assert table.is_new == (at == 0)
        assert both(table) == expected[at]
        step(table)
        table.save()
        step(table)  # not saved: read again
        table.close()


@pytest.mark.timeout(120)
def test_a_kill_at_each_statement_leaves_a_whole_table(tmp_path: Path) -> None:
    expected = reference()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(PROGRAM), str(tmp_path), "13"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    folders = sorted(tmp_path.iterdir(), key=lambda folder: int(folder.name))
    for folder in folders:
        table = VersionTable(folder / FILE, IDENTITY)
        assert both(table) == expected[table.mine.index]
        assert (table.mine.index == COUNT) == (folder == folders[-1]), folder.name
        table.close()
    assert len(folders) > 11


@pytest.mark.parametrize("damage", ["cut", "noise", "removed", "empty"])
def test_a_damaged_table_is_begun_again(tmp_path: Path, damage: str) -> None:
    path = tmp_path / FILE
    table = VersionTable(path, IDENTITY)
    for _ in range(COUNT):
        step(table)
    table.save()
    table.close()
    data = path.read_bytes()
    if damage == "removed":
        path.unlink()
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        path.write_bytes(data[:5000] if damage == "cut" else data[:4096] + os.urandom(len(data) - 4096))
    again = VersionTable(path, IDENTITY)
    assert again.is_new
    assert both(again) == reference()[0]
    again.close()
    assert path.with_name(f"{FILE}.damaged").exists() == (damage in ("cut", "noise"))


@pytest.mark.parametrize(
    "statement", ["UPDATE book SET head = x'ff'", "DELETE FROM book", "UPDATE link SET identity = x'7b'"]
)
def test_a_table_with_other_contents_is_begun_again_and_kept_beside(tmp_path: Path, statement: str) -> None:
    path = tmp_path / FILE
    table = VersionTable(path, IDENTITY)
    step(table)
    table.save()
    table.close()
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()
    again = VersionTable(path, IDENTITY)
    assert again.is_new
    assert both(again) == reference()[0]
    again.close()
    assert path.with_name(f"{FILE}.damaged").stat().st_size > 0


def test_an_error_that_passes_leaves_the_table_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / FILE
    table = VersionTable(path, IDENTITY)
    step(table)
    table.save()
    table.close()

    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA locking_mode=EXCLUSIVE")
    connection.execute("BEGIN EXCLUSIVE")
    connection.execute("UPDATE book SET head = head")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        VersionTable(path, IDENTITY)
    connection.execute("ROLLBACK")
    connection.close()
    again = VersionTable(path, IDENTITY)
    assert not again.is_new
    assert both(again) == reference()[1]
    again.close()
    assert not list(tmp_path.glob("*.damaged*"))


def test_a_folder_in_place_of_the_table_is_an_error_of_the_disk(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        VersionTable(tmp_path / FILE, IDENTITY)
    assert (tmp_path / FILE).is_dir()


def test_a_table_of_another_link_or_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / FILE
    VersionTable(path, IDENTITY).close()
    for change in ({"other_cluster": "c3"}, {"key": "quad"}, {"other": "par"}):
        with pytest.raises(OtherLink, match="lon and nyc"):
            VersionTable(path, msgspec.structs.replace(IDENTITY, **change))
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=3")
    connection.close()
    with pytest.raises(UnknownVersionTable, match="version 3"):
        VersionTable(path, IDENTITY)


def test_a_table_of_the_version_before_transfers_is_read_and_becomes_one_of_today(tmp_path: Path) -> None:
    path = tmp_path / FILE
    table = VersionTable(path, IDENTITY)
    for _ in range(COUNT):
        step(table)
    table.save()
    table.close()
    connection = sqlite3.connect(path, isolation_level=None)
    for site, head in connection.execute("SELECT site, head FROM book").fetchall():
        older = msgspec.msgpack.encode(msgspec.msgpack.decode(head)[:-4])
        connection.execute("UPDATE book SET head = ? WHERE site = ?", (older, site))
    connection.execute("PRAGMA user_version=1")
    connection.close()
    again = VersionTable(path, IDENTITY)
    assert (state(again.mine), state(again.theirs)) == (state(table.mine), state(table.theirs))
    again.close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (2,)
    connection.close()
