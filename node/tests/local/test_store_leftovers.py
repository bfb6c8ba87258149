"""What a killed store leaves behind is removed before it starts again, and nothing else."""

from __future__ import annotations

from pathlib import Path

from txlog.local.config_files import remove_leftovers


def test_files_of_a_load_that_broke_off(tmp_path: Path) -> None:
    names = ["bulk-1.sst", "bulk-2f.sst", "000012.sst", "CURRENT", "bulk-notes.txt"]
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "bulk-folder.sst").mkdir()
    assert remove_leftovers(tmp_path) == 2
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([*names[2:], "bulk-folder.sst"])
    assert remove_leftovers(tmp_path / "none") == 0
