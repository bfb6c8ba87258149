"""What is damaged is fetched from others, checked, written anew, and stays mended (rule 28)."""

from __future__ import annotations

from itertools import combinations

import msgspec
import pytest
from journal_pen import BIRTHS, CLUSTER, Pen, check_content, founding, held, held_of, open_journal

from txlog.journal import Journal, MemoryVfs, check_journal
from txlog.journal import format as fmt
from txlog.model.entry import Span, TransactionRun
from txlog.model.errors import JournalDamaged
from txlog.model.hashes import chain_start
from txlog.model.records import (
    CounterCeiling,
    Damage,
    LogAppended,
    Record,
    RecoveredState,
    TransactionsPersisted,
    ViewLeft,
    ViewPromised,
)

SEGMENT_BYTES = 4096
STOPPED = (1, 2, "")
"""The least number above the view of these journals."""


def write(pen: Pen | None = None) -> MemoryVfs:
    """A sealed journal of three segments."""
    files, pen = MemoryVfs(), pen or Pen()
    journal, _ = open_journal(files, segment_bytes=SEGMENT_BYTES)
    journal.append([*founding(), CounterCeiling(500)])
    for node in ("a", "b", "a", "c", "b"):
        journal.append([pen.held(node, 4), pen.held("a", 8)])
        journal.sync()
        journal.append(pen.added((node, 3), ("a", 2)))
        journal.sync()
    assert journal.seal()
    journal.close()
    return files


def places(files: MemoryVfs) -> list[tuple[str, int, int]]:
    """Name, offset and number of every record but the first start and the seals."""
    found = []
    for name, data in files.dump().items():
        kind, number = fmt.parse_name(name) or ("", 0)
        if kind == "segment":
            header = fmt.read_segment_header(data, number)
            assert header is not None
            seed, offset = fmt.segment_seed(header.birth, number), header.records_from
            while (record := fmt.read_record(data, offset, seed)) is not None:
                if record.kind not in (fmt.STARTED, fmt.SEAL):
                    found.append((name, offset, record.number))
                offset += record.length
    return found


class Other:
    """Another master: it holds everything, and knows the whole order."""

    def __init__(self, recovered: RecoveredState) -> None:
        self.log = [
            Span(span.node, span.birth, seq, 1)
            for span in recovered.log_spans
            for seq in range(span.first_seq, span.first_seq + span.count)
        ]
        self.hashes = bytes(recovered.log_hashes)

    def answer(self, damage: Damage) -> tuple[list[TransactionsPersisted], LogAppended | None]:
        runs = [held(span.node, span.first_seq, span.count) for span in damage.spans]
        a, b = damage.log_from, damage.log_to
        order = LogAppended(a, self.log[a - 1 : b], self.hashes[16 * (a - 1) : 16 * b], 0) if a <= b else None
        return runs, order

    def mend(self, journal: Journal) -> None:
        for damage in list(journal.damage):
            runs, order = self.answer(damage)
            journal.repair(damage, [one.run for one in runs], [one.contents for one in runs], order)
        journal.sync()
        assert journal.damage == []
        journal.close()


def same(found: RecoveredState, right: RecoveredState) -> None:
    """But for the view that may have been stopped."""
    for name in right.__struct_fields__:
        if name not in ("start", "promised"):
            assert getattr(found, name) == getattr(right, name), name


def reopened(files: MemoryVfs) -> RecoveredState:
    journal, found = open_journal(files, segment_bytes=SEGMENT_BYTES)
    for node, last in held_of(found).items():
        if not found.damage:
            check_content(journal, node, 1, last)
    journal.close()
    return found


def waited(found: RecoveredState, right: RecoveredState) -> bool:
    """Whether something that was damaged was held and not in the log."""
    logged = {span.node: span.first_seq + span.count - 1 for span in right.log_spans}
    return any(s.first_seq + s.count - 1 > logged.get(s.node, 0) for damage in found.damage for s in damage.spans)


@pytest.fixture(scope="module")
def right() -> RecoveredState:
    return reopened(write())


def test_every_record_and_every_pair_of_records(right: RecoveredState) -> None:
    all_places = places(write())
    assert len(all_places) > 15
    for broken in [(place,) for place in all_places] + list(combinations(all_places, 2)):
        files = write()
        for name, offset, _ in broken:
            files.flip_bit(name, offset + 30, 3)
        journal, found = open_journal(files, segment_bytes=SEGMENT_BYTES)
        assert {n for damage in found.damage for n in range(damage.first, damage.last + 1)} == {n for *_, n in broken}
        Other(right).mend(journal)
        again = reopened(files)
        if len(broken) == 1:  # of two, one may hide what would prove a stamp of the other
            assert again.promised == (STOPPED if waited(found, right) else right.promised)
        if again.accepted is not None and again.installed is not None:
            same(again, right)
        else:
            assert again.accepted_number == right.accepted_number, "both copies of the view are lost, its number is not"


def test_a_repair_that_is_damaged_itself_is_named_again(right: RecoveredState) -> None:
    for name, offset, _ in places(write()):
        files = write()
        files.flip_bit(name, offset + 30, 3)
        before = {number for *_, number in places(write())}
        Other(right).mend(open_journal(files, segment_bytes=SEGMENT_BYTES)[0])
        for new_name, new_offset, number in places(files):
            if number in before or (new_name, new_offset) == (name, offset):
                continue
            flipped = MemoryVfs.load(files.dump())
            flipped.flip_bit(new_name, new_offset + 30, 3)
            journal, found = open_journal(flipped, segment_bytes=SEGMENT_BYTES)
            if not found.damage:
                assert number == max(n for *_, n in places(files)), "not promised yet: it may be a torn tail"
                continue
            Other(right).mend(journal)
            assert reopened(flipped).damage == []


def test_what_does_not_fit_is_refused_and_nothing_is_written(right: RecoveredState) -> None:
    files = write()
    for name, offset, number in places(files):
        if number in (13, 14):
            files.flip_bit(name, offset + 30, 3)
    journal, _ = open_journal(files, segment_bytes=SEGMENT_BYTES)
    (damage,) = journal.damage
    runs, order = Other(right).answer(damage)
    assert runs
    assert order is not None
    one = runs[0]
    forged = msgspec.structs.replace(
        one.run, items=[*one.run.items[:-1], msgspec.structs.replace(one.run.items[-1], payload=b"x")]
    )
    cases = [
        ([one.run], [one.contents], None, "the order of entries .* is still missing"),
        ([], [], order, "is still missing"),
        ([forged], [one.contents], order, "has another content hash"),
        ([one.run], [one.contents[:-16]], order, "transactions and"),
        ([one.run, held("c", 90, 1).run], [one.contents, held("c", 90, 1).contents], order, "was not missing"),
        ([one.run], [one.contents], msgspec.structs.replace(order, first_index=1), "are not what is missing"),
        (
            [one.run],
            [one.contents],
            msgspec.structs.replace(order, hashes=bytes(len(order.hashes))),
            "another chain hash",
        ),
        ([one.run], [one.contents], msgspec.structs.replace(order, spans=order.spans[::-1]), "another chain hash"),
    ]
    for sent, contents, added, why in cases:
        with pytest.raises(JournalDamaged, match=why):
            journal.repair(damage, sent, contents, added)
        assert not journal.dirty
        assert journal.damage == [damage]
    journal.repair(damage, [one.run], [one.contents], order)
    journal.sync()
    journal.close()
    assert reopened(files).damage == []


def test_a_damage_stays_until_its_repair_is_synced(right: RecoveredState) -> None:
    files = write()
    name, offset, number = places(files)[8]
    files.flip_bit(name, offset + 30, 3)
    journal, found = open_journal(files, segment_bytes=SEGMENT_BYTES)
    runs, order = Other(right).answer(found.damage[0])
    journal.repair(found.damage[0], [one.run for one in runs], [one.contents for one in runs], order)
    files.kill()
    assert [damage.first for damage in check_journal(files).damage] == [number]


def test_the_chain_of_the_first_entries_begins_with_the_cluster(right: RecoveredState) -> None:
    """Damage at index 1 is checked against the cluster's id, which the view tells."""
    files = write()
    name, offset, _ = next(place for place in places(files) if place[2] == 8)
    files.flip_bit(name, offset + 30, 3)
    journal, found = open_journal(files, segment_bytes=SEGMENT_BYTES)
    assert found.damage[0].log_from == 1
    assert found.accepted is not None
    assert chain_start(found.accepted.cluster_id) == chain_start(CLUSTER)
    Other(right).mend(journal)


def test_work_goes_on_beside_a_damage() -> None:
    """The master may hold and promise while it does not vote."""
    pen = Pen()
    files = write(pen)
    name, offset, _ = next(place for place in places(files) if place[2] == 7)
    files.flip_bit(name, offset + 30, 3)
    journal, found = open_journal(files, segment_bytes=SEGMENT_BYTES)
    first = found.damage[0]
    journal.append([pen.held("b", 5), pen.added(("b", 2)), CounterCeiling(900)])
    journal.sync()
    journal.close()
    journal, found = open_journal(files, segment_bytes=SEGMENT_BYTES)
    assert found.damage == [first]
    assert journal.read("b", BIRTHS["b"], pen.seqs["b"], 1, 1).items


def test_flips_one_after_the_other_never_cost_the_view() -> None:
    """In the first segment, where only records carry it. Each repair leaves two copies of what nobody could send."""
    files, size = MemoryVfs(), 1 << 16
    journal, _ = open_journal(files, segment_bytes=size)
    journal.append(founding())
    journal.sync()
    assert journal.seal()
    journal.close()
    copies = [place for place in places(files) if place[2] in (2, 3)]
    assert len(copies) == 2
    for name, offset, _ in copies:
        files.flip_bit(name, offset + 30, 3)
        journal, found = open_journal(files, segment_bytes=size)
        assert found.damage
        assert found.accepted is not None
        for damage in list(journal.damage):
            journal.repair(damage, [], [], None)
        journal.sync()
        journal.close()
    journal, found = open_journal(files, segment_bytes=size)
    assert found.damage == []
    assert found.accepted is not None
    journal.close()


def test_damage_right_in_front_of_what_was_mended_before(right: RecoveredState) -> None:
    """The entry behind the rest of a hole proves its end, so it is fetched once more."""
    all_places = places(write())
    for at in range(2, len(all_places)):
        files = write()
        for count in (1, 4, 1):
            for name, offset, _ in all_places[max(0, at - count) : at]:
                files.flip_bit(name, offset + 30 + 2 * count, 3)
            Other(right).mend(open_journal(files, segment_bytes=SEGMENT_BYTES)[0])
        again = reopened(files)
        assert again.damage == []
        assert (again.log_spans, again.log_hashes) == (right.log_spans, right.log_hashes)


def later(run: TransactionRun) -> TransactionRun:
    """As one sends it to whom a later view gave it other stamps."""
    return msgspec.structs.replace(run, items=[msgspec.structs.replace(i, stamp=i.stamp + 5000) for i in run.items])


def small(*behind: Record, logged: int) -> MemoryVfs:
    """A sealed journal of five transactions of b, so many of them in the log."""
    files, pen = MemoryVfs(), Pen()
    journal, _ = open_journal(files, segment_bytes=1 << 16)
    journal.append([*founding(), CounterCeiling(500), pen.held("b", 5), pen.added(("b", logged)), *behind])
    journal.sync()
    assert journal.seal()
    journal.close()
    name, offset, _ = next(place for place in places(files) if place[2] == 6)
    files.flip_bit(name, offset + 30, 3)
    return files


def mended(files: MemoryVfs, run: TransactionRun) -> RecoveredState:
    journal, found = open_journal(files, segment_bytes=1 << 16)
    (damage,) = found.damage
    assert damage.spans == [Span("b", BIRTHS["b"], 1, 5)]
    journal.repair(damage, [run], [held("b", 1, 5).contents], None)
    journal.sync()
    journal.close()
    journal, found = open_journal(files, segment_bytes=1 << 16)
    assert found.damage == []
    journal.close()
    return found


def test_what_is_in_the_log_is_mended_with_the_stamp_of_its_hash_only() -> None:
    files, run = small(logged=5), held("b", 1, 5).run
    journal, found = open_journal(files, segment_bytes=1 << 16)
    assert journal.provable_prefix(run) == 5
    for at in range(5):
        wrong = msgspec.structs.replace(run, items=[*run.items[:at], *later(run).items[at:]])
        assert journal.provable_prefix(wrong) == at
        with pytest.raises(JournalDamaged, match=rf"b\.000000000000000b\.{at + 1} is in the log with another stamp"):
            journal.repair(found.damage[0], [wrong], [held("b", 1, 5).contents], None)
        assert not journal.dirty
    journal.close()
    assert mended(files, run).promised == (1, 1, "a"), "what is proved stops nothing"


def test_a_view_in_which_something_waited_with_a_stamp_that_nothing_proves_is_stopped() -> None:
    """Rule 34: durable before the stamps are used, and once."""
    files, run = small(logged=3), held("b", 1, 5).run
    sent = msgspec.structs.replace(run, items=[*run.items[:3], *later(run).items[3:]])
    found = mended(files, sent)
    assert (found.promised, found.accepted_number) == (STOPPED, (1, 1, "a"))
    assert list(found.queued[0].stamps) == [item.stamp for item in sent.items[3:]]
    kinds = [record.kind for record in records_of(files)]
    assert kinds.index(fmt.PROMISED) < len(kinds) - 1 - kinds[::-1].index(fmt.HELD)


@pytest.mark.parametrize("stop", [ViewPromised(1, 2, "c"), ViewLeft(1, 1, "a")])
def test_a_view_that_is_stopped_already_stays_as_it_is(stop: Record) -> None:
    files = small(stop, logged=3)
    run = held("b", 1, 5).run
    found = mended(files, msgspec.structs.replace(run, items=[*run.items[:3], *later(run).items[3:]]))
    assert found.promised == ((1, 2, "c") if isinstance(stop, ViewPromised) else (1, 1, "a"))


def records_of(files: MemoryVfs) -> list[fmt.FramedRecord]:
    """Every good record of a journal of one segment."""
    (name,) = [name for name in files.list() if name.startswith("segment")]
    data, found, offset = files.dump()[name], [], 0
    while (offset := data.find(fmt.RECORD_MARK, offset)) >= 0:
        record = fmt.read_record(data, offset, fmt.segment_seed(0xA, 1))
        found += [record] if record is not None else []
        offset += record.length if record is not None else 1
    return found
