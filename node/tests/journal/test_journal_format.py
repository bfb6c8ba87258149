"""The bytes on disks: golden files of every released format version, and round trips of every kind."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from journal_pen import Pen, check_content, founding, held_of, open_journal, stamped, view

from txlog.journal import MemoryVfs, check_journal, dump_journal
from txlog.journal import format as fmt
from txlog.journal.format import load_segment_header
from txlog.journal.state_header import StateHeader
from txlog.model.entry import KIND_UPDATE, RunItem, TransactionRun
from txlog.model.errors import JournalDamaged
from txlog.model.hashes import content_hash
from txlog.model.ids import Origin
from txlog.model.records import (
    CounterCeiling,
    StableAdvanced,
    TransactionsPersisted,
    ViewAccepted,
    ViewInstalled,
    ViewLeft,
    ViewPromised,
)
from txlog.model.view import LISTED_ANCESTORS_MAX, View

GOLDEN = Path(__file__).parent / "golden"


def golden_journal() -> dict[str, bytes]:
    files, pen = MemoryVfs(), Pen()
    journal, _ = open_journal(files)
    journal.append([*founding(), CounterCeiling(5000), pen.held("a", 14), pen.held("b", 2)])
    journal.sync()
    journal.append([pen.added(("a", 13), ("b", 1), stable=3), StableAdvanced(14), pen.held("a", 20)])
    journal.sync()
    pen.number = 1
    journal.append(ViewPromised(2, 5, "b"))
    change = pen.accepted(12, ("b", 2), ("a", 1), stamped=[stamped("a", 13, [1 << 63, 7]), stamped("b", 2, [900])])
    journal.append([change, pen.installed(), ViewLeft(2, 1, "a")])
    journal.sync()
    journal.seal()
    return {name: data for name, data in files.dump().items() if name.startswith("segment")}


def to_text(files: dict[str, bytes]) -> str:
    """32 bytes a line; zeros at the end of a file are left out."""
    lines = []
    for name, data in files.items():
        lines.append(f"{name} {len(data)}")
        used = data.rstrip(b"\0")
        lines += [used[at : at + 32].hex() for at in range(0, len(used), 32)]
    return "\n".join(lines) + "\n"


def from_text(text: str) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for block in text.split("segment-")[1:]:
        head, *lines = block.splitlines()
        number, size = head.split()
        files[f"segment-{number}"] = bytes.fromhex("".join(lines)).ljust(int(size), b"\0")
    return files


def test_version_1_is_written_as_ever() -> None:
    path = GOLDEN / "version-1.hex"
    if os.environ.get("TXLOG_REWRITE"):
        path.write_text(to_text(golden_journal()))
    assert to_text(golden_journal()) == path.read_text()


@pytest.mark.parametrize("name", ["version-1", "version-1-all-ancestors", "version-1-without-anchors"])
def test_version_1_is_read_back(name: str) -> None:
    """Also those that were written before views could have forgotten ancestors, and before they had anchors."""
    files = MemoryVfs.load(from_text((GOLDEN / f"{name}.hex").read_text()))
    journal, found = open_journal(files)
    assert (found.start, found.ceiling, found.stable, found.damage) == (2, 5000, 15, [])
    assert found.accepted == found.installed
    assert found.accepted is not None
    assert (found.accepted.number, found.accepted.base_index) == ((2, 1, "a"), 15)
    assert (found.promised, found.left) == ((2, 5, "b"), (2, 1, "a"))
    assert held_of(found) == {"a": 34, "b": 2}
    assert [(seen.index, seen.key) for seen in found.keys] == [(7, "k7"), (15, "a.000000000000000a.1")]
    assert [seen.stamp for seen in found.keys] == [7010, 1 << 63]
    assert found.log_stamp == 1 << 63
    assert [(span.node, span.first_seq, span.count) for span in found.log_spans] == [
        ("a", 1, 12),
        ("b", 1, 2),
        ("a", 13, 1),
    ]
    assert found.queued[0].stamps[:2].tolist() == [7, 15010]
    pen = Pen()
    pen.stamps = {("a", 13): 1 << 63, ("a", 14): 7, ("b", 2): 900}
    check_content(journal, "a", 1, 34, pen=pen)
    check_content(journal, "b", 1, 2, pen=pen)


def test_an_unknown_version_is_refused_by_name() -> None:
    files = golden_journal()
    name, data = next(iter(files.items()))
    newer = bytearray(data)
    for at in (12, 12 + int.from_bytes(data[16:20], "little")):
        newer[at] = 3
    unknown = r"segment-0000000001 has UnknownFormat: format version 3; .* versions 1 and 2"
    with pytest.raises(JournalDamaged, match=unknown):
        open_journal(MemoryVfs.load({**files, name: bytes(newer)}))
    assert next(dump_journal(MemoryVfs.load({**files, name: bytes(newer)}))).startswith(f"{name}: format version 3;")


def with_ancestors(count: int, coordinator: str = "txlog-uk-0") -> View:
    """A view that lists so many ancestors."""
    ancestors = [(number, 1, coordinator) for number in range(1, count)]
    return msgspec.structs.replace(view(count + 1), ancestors=ancestors, strategies=["Smart"] * (count - 1))


@pytest.mark.parametrize(("count", "version"), [(1400, 1), (1600, 2), (LISTED_ANCESTORS_MAX, 2), (30_000, 2)])
@pytest.mark.parametrize("damaged", [False, True])
def test_a_header_has_room_for_views_of_any_length(count: int, version: int, damaged: bool) -> None:
    """Sixteen bits are enough for some 1,500 ancestors; a longer header says so by its version, and both copies of it
    are found, whatever their length."""
    files, pen = MemoryVfs(), Pen()
    journal, _ = open_journal(files, segment_bytes=1 << 15)
    long = with_ancestors(count)
    journal.append([*founding(), pen.held("a", 3)])
    journal.append([ViewAccepted(long), ViewInstalled(*long.number)])
    journal.sync()
    for _ in range(60):
        journal.append(pen.held("a", 10))
        journal.sync()
    journal.close()
    name = max(name for name in files.list() if name.startswith("segment"))
    data = files.dump()[name]
    assert data[12] == version
    if damaged:
        files = MemoryVfs.load({**files.dump(), name: data[:700] + bytes([data[700] ^ 1]) + data[701:]})
    header = load_segment_header(lambda length: files.dump()[name][:length], int(name[-10:]))
    assert header is not None
    assert (header.copies, header.accepted) == (1 if damaged else 2, long)
    again, found = open_journal(files, segment_bytes=1 << 15)
    assert (found.accepted, found.installed, held_of(found)["a"]) == (long, long, 603)
    again.close()


def test_vitals_are_right_in_place_and_anew() -> None:
    vitals = StateHeader(Origin("a", 1))
    empty = vitals.encoded
    vitals.set_held(Origin("b", 2), 7)
    vitals.set_held(Origin("a", 1), 9)
    vitals.set_log(3, b"h" * 16, 2)
    vitals.set_accepted(msgspec.structs.replace(view(2), coordinator="bb"))
    vitals.set_installed((1, 5, "ccc"), 2)
    vitals.set_promised((2, 7, "dddd"))
    vitals.set_promised((2, 6, "d"))
    vitals.set_left((2, 1, "bb"))
    vitals.set_ceiling(1 << 63)
    vitals.set_start(4)
    vitals.set_held(Origin("b", 2), 8)
    again = StateHeader.parse(vitals.encoded)
    assert again.encoded == vitals.encoded != empty
    assert again.held == {Origin("a", 1): 9, Origin("b", 2): 8}
    assert (again.log_end, again.log_hash, again.stable, again.ceiling, again.start) == (3, b"h" * 16, 2, 1 << 63, 4)
    assert (again.accepted, again.installed) == ((2, 1, "bb"), (1, 5, "ccc"))
    assert (again.promised, again.left, again.changes) == ((2, 7, "dddd"), (2, 1, "bb"), 0)
    vitals.set_change(view(2), 1, b"")
    again = StateHeader.parse(vitals.encoded)
    assert (again.log_end, again.log_hash, again.stable, again.changes) == (1, view(2).base_hash, 1, 1)
    assert len(vitals.encoded) % 8 == 0


def test_a_record_of_another_place_never_fits() -> None:
    body = fmt.RecordBody(5, 0, 77, 0, b"", b"")
    length = fmt.record_length(body, 8)
    data = b"".join(fmt.encode_record(body, length, 1, 0, bytes(16), bytes(8), fmt.segment_seed(1, 1)))
    assert len(data) == length
    assert fmt.read_record(data, 0, fmt.segment_seed(1, 1)) is not None
    for birth, number in ((1, 2), (2, 1)):
        assert fmt.read_record(data, 0, fmt.segment_seed(birth, number)) is None


def test_texts_of_any_kind_come_back() -> None:
    files = MemoryVfs()
    journal, _ = open_journal(files)
    payloads = [b"", b"x", bytes(300), fmt.RECORD_MARK * 50]
    keys = ["", "ключ", "k" * 500, ""]
    items = [
        RunItem(i + 1, KIND_UPDATE, key, payload) for i, (key, payload) in enumerate(zip(keys, payloads, strict=True))
    ]
    run = TransactionRun("b", 9, 1, items)
    journal.append(TransactionsPersisted(run, b"".join(content_hash(i.kind, i.key, i.payload) for i in items)))
    journal.sync()
    journal.close()
    journal, found = open_journal(files)
    assert journal.read("b", 9, 1, 10, 1 << 20) == run
    assert found.queued[0].keys == keys
    assert found.queued[0].kinds.tolist() == [KIND_UPDATE | len(payload) << 8 for payload in payloads]


def test_a_look_from_outside_changes_nothing(tmp_path: Path) -> None:
    for name, data in golden_journal().items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "notes.txt").write_text("of the operator")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    report = check_journal(tmp_path)
    assert report.ok
    assert (report.start, report.log_end, report.stable) == (1, 15, 15)
    assert report.accepted == report.installed == report.left == "(2, 1, 'a')"
    assert report.promised == "(2, 5, 'b')"
    assert report.held == {"a.000000000000000a": 34, "b.000000000000000b": 2}
    lines = list(dump_journal(tmp_path))
    assert lines[0] == "notes.txt: not a file of the journal"
    assert len([line for line in lines if "Held" in line]) == 3
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert check_journal(tmp_path / "notes").notes == ["no journal: the folder is missing"]


def test_check_says_what_it_finds() -> None:
    assert check_journal(MemoryVfs()).notes == ["no journal: the folder holds no segment"]
    files = MemoryVfs.load(golden_journal())
    files.flip_bit("segment-0000000001", 2300, 1)
    report = check_journal(files)
    assert not report.ok
    assert [damage.first for damage in report.damage] == [6]
    for name in files.list():
        files.flip_bit(name, 20, 1)
        files.flip_bit(name, 20 + fmt.SECTOR, 1)
    assert "this master cannot be identified" in check_journal(files).refused
    assert any("its header cannot be read" in line for line in dump_journal(files))
