"""Payloads that are on the disk before their records: used or not, nothing that is told of a journal differs."""

from __future__ import annotations

import errno
import random
from pathlib import Path
from typing import NamedTuple

import pytest
from journal_life import told, twin
from journal_pen import BIRTHS, Pen, check_content, content, founding, open_journal
from test_journal_crashes import Follower, choosers, crash_after
from test_journal_trim import segments, trim

from txlog.journal import Journal, MemoryVfs, OsVfs, SimulatedCrash, check_journal, dump_journal
from txlog.journal.payload_stage import STAGED_MAX
from txlog.journal.staged_payload import StagedPayload
from txlog.model.entry import RunItem, TransactionRun
from txlog.model.errors import JournalBroken, JournalFull
from txlog.model.hashes import content_hash
from txlog.model.records import CounterCeiling, Record, TransactionsPersisted

SIZE = 3000
PIECE = 700


def put(laid: StagedPayload, payload: bytes) -> None:
    """All of it, in pieces."""
    for offset in range(0, len(payload), PIECE):
        laid.write(payload[offset : offset + PIECE])
    laid.finish()


def begin(journal: Journal, payload: bytes, key: str = "", kind: int = 1) -> StagedPayload:
    laid = journal.stage_payload(content_hash(kind, key, payload), len(payload), key)
    assert laid is not None
    return laid


def lay(journal: Journal, record: TransactionsPersisted) -> None:
    """Each payload of a record that is about to be appended."""
    for item in record.run.items:
        laid = begin(journal, item.payload, item.key, item.kind)
        put(laid, item.payload)
        journal.finish_staging(laid)


def remove_unwanted(journal: Journal) -> None:
    for laid in journal.pop_removable_staged():
        laid.remove()


def begun(files: MemoryVfs, size: int = SIZE) -> tuple[Journal, Pen]:
    journal, _ = open_journal(files)
    journal.append(founding())
    journal.sync()
    return journal, Pen(size)


def test_what_is_written_with_the_record_is_what_stands_in_front_of_the_payload() -> None:
    files = MemoryVfs(trace=True)
    journal, pen = begun(files)
    record = pen.held("b", 1)
    lay(journal, record)
    files.operations.clear()
    journal.append([record, pen.held("a", 1)])
    journal.sync()
    assert journal.staged_used == 1
    making, name = "making-0000000003", "segment-0000000002"
    of_it = [line.split() for line in files.operations if making in line or name in line]
    named = of_it.index(["rename", making, name])
    assert of_it[named - 1][0] == "fdatasync", "it is durable when recovery reads it"
    assert [line[0] for line in of_it].count("fdatasync") == 1, "header and records together"
    behind = 4096 + 2 * 1024
    front = [int(line[3]) for line in of_it if line[0] == "pwrite" and int(line[2]) < behind]
    assert 0 < sum(front) < 2 * 1024 + 1500, "two headers, a Seal and a head"
    journal.append(pen.added(("b", 1)))
    journal.sync()
    check_content(journal, "b", 1, 1, pen=pen)
    journal.close()
    journal, recovered = open_journal(files, cache_bytes=0)
    assert not recovered.damage
    for node in "ab":
        check_content(journal, node, 1, 1, pen=pen)
    assert check_journal(files).ok
    lines = list(dump_journal(files))
    assert any("Seal" in line for line in lines)
    assert not any("no record" in line for line in lines)


def test_in_a_run_with_others_it_is_a_record_of_its_own() -> None:
    files = MemoryVfs()
    journal, pen = begun(files)
    record = pen.held("a", 9)
    for at in (2, 3, 6, 8):
        item = record.run.items[at]
        laid = begin(journal, item.payload, item.key, item.kind)
        put(laid, item.payload)
        journal.finish_staging(laid)
    assert record.run.items[6].key, "one of them has a key"
    journal.append(record)
    journal.append(pen.held("a", 3))
    journal.sync()
    assert journal.staged_used == 4
    journal.close()
    journal, recovered = open_journal(files, cache_bytes=0)
    check_content(journal, "a", 1, 12, pen=pen)
    assert [key for meta in recovered.queued for key in meta.keys if key] == ["k7"]


@pytest.mark.parametrize(
    "what", ["another payload", "another key", "not finished", "dropped", "full when it was written"]
)
def test_where_it_cannot_be_used_the_payload_is_written_with_its_record(what: str) -> None:
    files = MemoryVfs()
    journal, pen = begun(files)
    record = pen.held("a", 1)
    payload = record.run.items[0].payload
    if what == "another payload":
        laid = begin(journal, payload[:-1] + b"?")
        put(laid, payload[:-1] + b"?")
    elif what == "another key":
        laid = begin(journal, payload, "key")
        put(laid, payload)
    elif what == "not finished":
        laid = begin(journal, payload)
        laid.write(payload[:PIECE])
    elif what == "dropped":
        laid = begin(journal, payload)
        put(laid, payload)
        journal.discard_staged(laid)
    else:
        laid = begin(journal, payload)
        files.capacity = sum(len(data) for data in files.dump().values())
        put(laid, payload)
        files.capacity = 1 << 40
        assert laid.discarded
        assert not laid.is_durable
    if what not in ("not finished", "dropped"):
        journal.finish_staging(laid)
    remove_unwanted(journal)
    journal.append(record)
    journal.sync()
    assert journal.staged_used == 0
    files.kill()
    journal, recovered = open_journal(files, cache_bytes=0)
    check_content(journal, "a", 1, 1, pen=pen)
    assert not recovered.damage
    assert not [name for name in files.list() if name.startswith("making")], "what nobody used is gone"


def test_only_the_latest_are_kept_and_the_others_removed() -> None:
    files = MemoryVfs()
    journal, _ = begun(files)
    before = files.list()
    for number in range(STAGED_MAX + 3):
        payload = b"%d" % number * SIZE
        put(laid := begin(journal, payload), payload)
        journal.finish_staging(laid)
    assert journal.stage_payload(laid.content, laid.size, "") is None, "it is there already"
    assert len(files.list()) == len(before) + STAGED_MAX + 3
    remove_unwanted(journal)
    assert len(files.list()) == len(before) + STAGED_MAX
    files.kill()
    open_journal(files)
    assert [name for name in files.list() if name.startswith("making")] == []


def append_until_full(journal: Journal, pen: Pen, record: TransactionsPersisted) -> None:
    """It is on the disk, but what follows would have no segment."""
    for _ in range(8):
        journal.append(record)
        record = pen.held("a", 1)


def test_a_disk_without_room_for_it_is_not_asked() -> None:
    files = MemoryVfs()
    journal, pen = begun(files)
    free = journal.bytes_free
    files.capacity = sum(len(data) for data in files.dump().values()) + SIZE
    assert journal.stage_payload(bytes(16), SIZE, "") is None
    files.capacity = 1 << 40
    assert journal.bytes_free > free - (1 << 39)
    record = pen.held("a", 1)
    lay(journal, record)
    files.capacity = sum(len(data) for data in files.dump().values())
    with pytest.raises(JournalFull):
        append_until_full(journal, pen, record)
    journal.append(CounterCeiling(1 << 20))
    journal.sync()


def put_and_remove(laid: StagedPayload, payload: bytes) -> None:
    put(laid, payload)
    laid.remove()


@pytest.mark.parametrize("operation", ["reserve", "pwrite", "fdatasync", "remove"])
def test_a_disk_that_fails_breaks_the_journal(operation: str) -> None:
    files = MemoryVfs()
    journal, pen = begun(files)
    payload = pen.held("a", 1).run.items[0].payload
    laid = begin(journal, payload)

    def fail(what: str, name: str) -> None:
        if what == operation:
            raise OSError(errno.EIO, "the disk failed", name)

    files.hook = fail
    with pytest.raises(JournalBroken, match=laid.name):
        put_and_remove(laid, payload)
    with pytest.raises(JournalBroken):
        journal.append(CounterCeiling(1))


def test_room_that_was_claimed_is_given_back() -> None:
    files = MemoryVfs(1 << 20)
    journal, pen = begun(files)
    free = journal.bytes_free
    laid = begin(journal, b"x" * SIZE)
    assert journal.bytes_free == free - laid.file_bytes
    journal.append(CounterCeiling(7))
    journal.sync()
    journal.discard_staged(laid)
    laid.remove()
    assert journal.bytes_free in range(free - 1000, free)
    record = pen.held("a", 1)
    lay(journal, record)
    journal.append(record)
    journal.sync()
    assert journal._space.claimed_bytes == 0


# Crashes


LIFE_SIZE = 600


class Batch(NamedTuple):
    """What is appended at once, and what is synced at once; whose payloads are laid before, or begun and no more."""

    appends: list[list[Record]]
    laid: list[TransactionsPersisted]
    unfinished: list[TransactionsPersisted]


def life(pen: Pen) -> list[Batch]:
    made = [Batch([founding()], [], [])]
    for node in "ab":
        one, two, three = pen.held(node, 1), pen.held(node, 1), pen.held("a", 1)
        made.append(Batch([[CounterCeiling(7)], [one], [CounterCeiling(9)]], [one], []))
        made.append(Batch([[two, three, CounterCeiling(8)]], [], [two]))
        made.append(Batch([[pen.added((node, 1))]], [], []))
        four, five = pen.held("a", 1), pen.held(node, 1)
        made.append(Batch([[four, five]], [four, five], []))
        made.append(Batch([[pen.added(("a", 1)), pen.held("a", 1)]], [], []))
    return made


def live(files: MemoryVfs, follower: Follower) -> int:
    """How many were used."""
    journal, _ = open_journal(files)
    for batch in life(Pen(LIFE_SIZE)):
        for record in batch.laid:
            lay(journal, record)
        for record in batch.unfinished:
            item = record.run.items[0]
            begin(journal, item.payload, item.key, item.kind).write(item.payload[:PIECE])
        for records in batch.appends:
            journal.append(records if len(records) > 1 else records[0])
            follower.appended += len(records)
        journal.sync()
        follower.acknowledged = follower.appended
        journal.seal()
    return journal.staged_used


@pytest.mark.parametrize("rest", choosers())
def test_crash_at_every_operation(rest: str) -> None:
    traced = MemoryVfs(trace=True)
    assert live(traced, Follower()) == 6
    records = [one for batch in life(Pen(LIFE_SIZE)) for records in batch.appends for one in records]
    states = [twin(records[:count]) for count in range(len(records) + 1)]
    for point in range(len(traced.operations)):
        files, follower = MemoryVfs(hook=crash_after(point)), Follower()
        with pytest.raises(SimulatedCrash):
            live(files, follower)
        files.crash(choosers()[rest])
        files.hook = None
        journal, found = open_journal(files, cache_bytes=0)
        assert found.damage == []
        possible = range(follower.acknowledged, follower.appended + 1)
        count = next((n for n in possible if states[n] == told(found)), None)
        assert count is not None, "durable records are lost, or others were invented"
        pen = Pen(LIFE_SIZE)
        pen.follow(records[:count])
        for node, last in pen.seqs.items():
            check_content(journal, node, 1, last, pen=pen)
        assert not [name for name in files.list() if name.startswith("making")]


# Harm


def laid_journal() -> tuple[MemoryVfs, Pen]:
    files = MemoryVfs()
    journal, pen = begun(files, 400)
    journal.append([pen.held("a", 2), pen.held("b", 1)])
    journal.sync()
    record = pen.held("a", 1)
    lay(journal, record)
    journal.append([record, pen.held("a", 1)])
    journal.sync()
    journal.append([pen.added(("a", 3), ("b", 1))])
    journal.sync()
    journal.append(pen.held("b", 1))
    journal.sync()
    journal.seal()
    journal.close()
    return files, pen


def test_every_byte_flipped_is_seen_and_mended() -> None:
    whole, pen = laid_journal()
    images = whole.dump()
    name = "segment-0000000002"
    used = len(images[name].rstrip(b"\0"))
    flips = random.Random(5)
    damaged = 0
    for at in range(used):
        files = MemoryVfs.load(images)
        files.flip_bit(name, at, flips.randrange(8))
        journal, recovered = open_journal(files, cache_bytes=0)
        for damage in recovered.damage:
            runs = [
                TransactionRun(
                    s.node, BIRTHS[s.node], s.first_seq, [pen.item(s.node, s.first_seq + i) for i in range(s.count)]
                )
                for s in damage.spans
            ]
            hashes = [b"".join(content(r.node, r.first_seq + i, 400) for i in range(len(r.items))) for r in runs]
            added = None
            if damage.log_from <= damage.log_to:
                again = Pen(400)
                again.seqs = dict(pen.seqs)
                added = again.added(("a", 3), ("b", 1))
            journal.repair(damage, runs, hashes, added)
            damaged += 1
        journal.sync()
        journal.close()
        journal, recovered = open_journal(files, cache_bytes=0)
        assert not recovered.damage
        for node, last in pen.seqs.items():
            check_content(journal, node, 1, last, pen=pen)
        assert recovered.log_end == 4
        journal.close()
    assert damaged > 400, "all of the payload"


def test_trimming_removes_it_as_any_segment() -> None:
    files = MemoryVfs()
    journal, pen = begun(files, 100)
    for _ in range(20):
        one, two = pen.held("a", 1), pen.held("b", 1)
        lay(journal, one)
        journal.append(one)
        journal.append([two, pen.added(("a", 1), ("b", 1))])
        journal.sync()
    assert journal.staged_used == 20
    assert trim(journal, pen, 30) >= 13
    assert segments(files)[0] > 13
    journal.close()
    journal, recovered = open_journal(files, cache_bytes=0)
    assert recovered.log_start.index == 30
    assert not recovered.damage
    check_content(journal, "a", 16, 20, pen=pen)
    check_content(journal, "b", 16, 20, pen=pen)


# A real disk


def test_on_a_real_disk_past_the_page_cache(tmp_path: Path) -> None:
    def opened() -> Journal:
        return Journal.open(OsVfs(tmp_path), node="a", draw_birth=lambda: 0xA, segment_bytes=1 << 20)[0]

    payloads = [b"%07d\n" % number * 400_000 for number in range(3)]
    journal = opened()
    for seq, payload in enumerate(payloads, 1):
        digest = content_hash(1, "", payload)
        laid = journal.stage_payload(digest, len(payload), "")
        assert laid is not None
        for offset in range(0, len(payload), 65_536):
            laid.write(payload[offset : offset + 65_536])
        laid.finish()
        journal.finish_staging(laid)
        small = b"small %d" % seq
        run = TransactionRun("b", 7, 2 * seq - 1, [RunItem(seq, 1, "", payload), RunItem(seq, 1, "", small)])
        journal.append(TransactionsPersisted(run, digest + content_hash(1, "", small)))
        journal.sync()
    assert journal.staged_used == 3
    unused = journal.stage_payload(bytes(16), 1 << 20, "")
    assert unused is not None
    unused.write(bytes(1 << 20))
    journal.close()
    journal = opened()
    for seq, payload in enumerate(payloads, 1):
        items = journal.read("b", 7, 2 * seq - 1, 2, 1 << 30).items
        assert [item.payload for item in items] == [payload, b"small %d" % seq]
    assert check_journal(tmp_path).ok
    assert not list(tmp_path.glob("making-*"))
    assert sum(path.stat().st_size for path in tmp_path.glob("segment-*")) < 20 << 20
    journal.close()
