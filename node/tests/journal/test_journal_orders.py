"""The operator's orders that nothing has come of yet: read back, dropped where something has, not damaged away."""

from __future__ import annotations

import msgspec
import pytest
from journal_life import twin
from journal_pen import SEGMENT_BYTES, Pen, founding, open_journal, view
from test_journal_index import indexes, segments, survey_all

from txlog.journal import MemoryVfs, dump_journal
from txlog.journal import format as fmt
from txlog.journal.state_header import StateHeader
from txlog.model.ids import Origin
from txlog.model.records import NO_OVERRIDES, CounterCeiling, OperatorOverrides, Record, ViewAccepted

BEGIN = OperatorOverrides(["a", "b"], [])
WITHOUT = OperatorOverrides([], [("b", 0xB, 3), ("c", 0xC, 1)])
ELSEWHERE = OperatorOverrides([], [("b", 0xBB, 3), ("c", 0xC, 1)])
"""The one of another birth is in no view of these."""


def read_back(*records: Record) -> OperatorOverrides:
    files = MemoryVfs()
    journal, _ = open_journal(files)
    journal.append(list(records))
    journal.sync()
    journal.close()
    _, found = open_journal(files)
    assert found.overrides == twin(list(records)).overrides
    return found.overrides


def later(pen: Pen) -> ViewAccepted:
    record = pen.accepted(0)
    return ViewAccepted(msgspec.structs.replace(record.view, ancestors=[(1, 1, "a")]))


def test_what_was_ordered_last_is_read_back() -> None:
    assert read_back() == NO_OVERRIDES
    assert read_back(BEGIN) == BEGIN
    assert read_back(BEGIN, CounterCeiling(7), WITHOUT) == WITHOUT
    assert read_back(WITHOUT, NO_OVERRIDES) == NO_OVERRIDES


def test_what_something_has_come_of_is_dropped_with_the_record_that_says_so() -> None:
    pen = Pen()
    assert read_back(BEGIN, pen.accepted(0)) == BEGIN, "nobody has begun with it yet"
    pen = Pen()
    assert read_back(BEGIN, pen.accepted(0), pen.installed()) == NO_OVERRIDES
    assert read_back(BEGIN, later(Pen())) == NO_OVERRIDES, "it was let into a cluster that others began"
    pen = Pen()
    assert read_back(ELSEWHERE, pen.accepted(0), pen.installed()) == OperatorOverrides([], [("c", 0xC, 1)])
    pen = Pen()
    assert read_back(pen.accepted(0), pen.installed(), WITHOUT) == WITHOUT


def test_vitals_without_orders_are_what_they_were_before_there_were_any() -> None:
    vitals = StateHeader(Origin("a", 1))
    before = vitals.encoded
    vitals.set_overrides(OperatorOverrides(["a", "bb", "ccc"], [("d", (1 << 64) - 1, 5)]))
    again = StateHeader.parse(vitals.encoded)
    assert (again.overrides, again.encoded) == (vitals.overrides, vitals.encoded)
    vitals.set_overrides(NO_OVERRIDES)
    assert vitals.encoded == before
    vitals.set_overrides(OperatorOverrides([], [("d", 4, 5)]))
    vitals.set_accepted(view(2))
    assert vitals.overrides == StateHeader.parse(vitals.encoded).overrides == NO_OVERRIDES


def test_what_is_behind_it_tells_an_order_whose_record_is_damaged() -> None:
    files, pen = MemoryVfs(), Pen()
    journal, _ = open_journal(files)
    journal.append([*founding(), pen.held("a", 2)])
    journal.sync()
    journal.append(WITHOUT)
    journal.sync()
    journal.append(pen.held("a", 1))
    journal.sync()
    journal.seal()
    journal.close()
    name, data = next((n, bytearray(d)) for n, d in files.dump().items() if n.startswith("segment"))
    seed, at = fmt.segment_seed(0xA, 1), 0
    while (record := fmt.read_record(bytes(data), at, seed)) is None or record.kind != fmt.ORDERS:
        at = data.find(fmt.RECORD_MARK, at + 1)
        assert at > 0
    data[at + fmt.HEAD_BYTES] ^= 4
    journal, found = open_journal(MemoryVfs.load({**files.dump(), name: bytes(data)}))
    assert found.overrides == WITHOUT
    (damage,) = found.damage
    assert damage.spans == []
    journal.repair(damage, [], [], None)
    journal.sync()


@pytest.mark.parametrize("by_index", [False, True])
def test_orders_survive_the_segment_they_stand_in(by_index: bool) -> None:
    files, pen = MemoryVfs(), Pen()
    journal, _ = open_journal(files)
    journal.append([*founding(), WITHOUT])
    for _ in range(3 * SEGMENT_BYTES // 400):
        journal.append(pen.held("a", 10))
        journal.sync()
    journal.seal()
    if by_index:
        survey_all(journal)
    journal.close()
    assert len(segments(files)) > 3
    assert bool(indexes(files)) == by_index
    _, found = open_journal(files)
    assert (found.overrides, found.damage) == (WITHOUT, [])
    name = segments(files)[-1]
    header = fmt.read_segment_header(files.dump()[name], len(segments(files)))
    assert header is not None
    assert header.state_header.overrides == WITHOUT, "what a trim leaves tells it"


def test_show_says_what_was_ordered() -> None:
    files = MemoryVfs()
    journal, _ = open_journal(files)
    journal.append([BEGIN, WITHOUT])
    journal.sync()
    lines = [line.split(None, 2)[2] for line in dump_journal(files) if " Orders " in line]
    assert lines == [
        "Orders begin with: a, b; go on without: no order",
        "Orders begin with: no order; go on without: b.000000000000000b start 3, c.000000000000000c start 1",
    ]
