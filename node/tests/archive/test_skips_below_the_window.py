"""What deleted files skipped, and the namespaces that they set, a new cluster still takes over."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_pieces import CLUSTER, META, START, UK, US, chained

from txlog.archive.archive_errors import FileDamaged
from txlog.archive.block_codec import ArchivedEntry
from txlog.archive.file_name import Node
from txlog.archive.format import encode_file
from txlog.archive.restore_plan import BaseBackup
from txlog.archive.stream import Stream, StreamId
from txlog.archive.stream_reader import StreamReader
from txlog.archive.window_plan import WindowBase, plan_window, skips_in_effect
from txlog.archive.window_retention import carry_out
from txlog.backup.folder_target import FolderTarget
from txlog.model.entry import KIND_QUADS, KIND_SKIP
from txlog.model.namespaces import apply_namespace_changes

KEYS = [
    "namespace 1 set a urn:a:",
    "namespace 2 clear  ",
    "namespace 3 set b urn:b:",
    f"{US}.7",
    "namespace 4 set c urn:c:",
    "point 5 early",
    "namespace 6 remove c ",
    "namespace 7 set b urn:other:",
    "namespace 8 set d urn:d:",
    "",
    "namespace 9 set e urn:e:",
    "point 10 late",
    "",
]
ENTRIES = chained([(UK, 3 << 16, 0, KIND_SKIP if key else KIND_QUADS, False, key, b"") for key in KEYS])


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    made = Stream(FolderTarget(tmp_path), StreamId(CLUSTER, "uk"))
    made.create(START)
    before = START.hash
    for entry in ENTRIES:
        file = encode_file([entry], before, META, settled=len(ENTRIES), writer=1)
        made.create_file(file.name, file.data)
        before = entry.hash
    return made


def place(entry: ArchivedEntry) -> Node:
    return Node(entry.index, entry.hash)


def skips(stream: Stream) -> dict[str, int]:
    (found,) = StreamReader(stream).find_timelines().current
    return found.skips()


def retire(stream: Stream, index: int) -> None:
    reader = StreamReader(stream)
    base = WindowBase(BaseBackup("b", place(ENTRIES[index - 1]), "oxigraph", b"", 1, 1), 0)
    plan = plan_window(list(reader.sizes), reader.starts, reader.find_timelines(), [base], 1, reader.read)
    assert (plan.reason, plan.floor) == ("", index)
    carry_out(stream, plan)


@pytest.mark.parametrize("floors", [(5,), (9,), (4, 8, 10), (13,)])
def test_they_stay_what_they_were(stream: Stream, floors: tuple[int, ...]) -> None:
    table = apply_namespace_changes(key for key in KEYS if key.startswith("namespace"))
    assert table == {"b": "urn:other:", "d": "urn:d:", "e": "urn:e:"}
    before = skips(stream)
    for floor in floors:
        retire(stream, floor)
        after = skips(stream)
        assert len(stream.list_files()) == len(KEYS) - floor
        assert apply_namespace_changes(sorted(after, key=after.__getitem__)) == table
        assert after.items() <= before.items()
        assert f"{US}.7" in after
        assert ("point 5 early" in after) == (floor < 6), "no file leads to that point any more"


def test_what_is_damaged_refuses_a_recovery_and_no_restore(stream: Stream, tmp_path: Path) -> None:
    retire(stream, 9)
    (record,) = tmp_path.rglob("skips/*.json")
    record.write_bytes(record.read_bytes().replace(b"urn:d:", b"urn:x:"))
    reader = StreamReader(stream)
    assert reader.find_timelines().current[0].head == place(ENTRIES[-1])
    assert isinstance(reader.skips_fault, FileDamaged)
    record.unlink()
    assert StreamReader(stream).skips_fault is None, "files that an earlier version deleted have none"


def test_a_key_that_no_master_makes_ends_nothing() -> None:
    assert skips_in_effect([(1, "namespace ")]) == ((1, "namespace "),)
