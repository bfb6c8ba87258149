"""An idempotency key takes effect once (rule 16), however late a copy of it comes back, and in bounded memory."""

from __future__ import annotations

from array import array

import msgspec
import pytest
from changing_views import back_up, run_until_in_view
from core_cluster import WALL_MS, Cluster, update
from hypothesis import given
from hypothesis import strategies as st
from test_trimming import DiskJournal, length, place, start_of

from txlog.journal import MemoryVfs, dump_journal
from txlog.model.configuration import Configuration
from txlog.model.errors import JournalDamaged, Unavailable
from txlog.model.ids import Origin, Txid
from txlog.model.records import EMPTY_LOG_START, IdempotencyKeyRecord, KeyTablePart, KeyTableWritten
from txlog.model.stamp import LOGICAL_BITS
from txlog.protocol.events import ClockReading
from txlog.protocol.log.idempotency_keys import IdempotencyKeys
from txlog.protocol.log.key_table import ROW_BYTES, FirstUse, KeyTable, key_name, part_error
from txlog.protocol.log.keyed_effects import KeyedEffects
from txlog.protocol.log.log_trim import BACKUP, WORKER
from txlog.wire.messages import FetchSnapshot, LogTruncatedBelow, SnapshotChunk

RETENTION_MS = 30_000
A, B = Origin("a", 1), Origin("b", 1)


class RealTime(Cluster):
    """A wall clock that goes as fast as time does."""

    def now(self, node: str) -> ClockReading:
        return ClockReading((WALL_MS + self.now_ms + self.wall_ms[node]) * 1000, 1000 + self.now_ms)


def real_time(nodes: str = "abc", without_level: str = "", **settings: object) -> RealTime:
    cluster = RealTime(
        nodes,
        **{"key_retention_ms": RETENTION_MS, "idle_interval_ms": 200, "max_peer_lag_ms": 2000, **settings},  # type: ignore[arg-type]
    )
    cluster.without_level = without_level
    return cluster.founded()  # type: ignore[return-value]


def keys_of(cluster: Cluster, node: str) -> IdempotencyKeys:
    log = cluster.core(node).log_state
    assert log is not None
    return log.keys


def assert_effects(cluster: Cluster, count: int) -> None:
    """All masters have one log, in which this many transactions take effect, and agree on which."""
    logs = {node: cluster.core(node).log_state for node in cluster.executors}
    assert len({tuple(cluster.log(node)) for node in cluster.executors}) == 1, {n: cluster.log(n) for n in logs}
    assert len({tuple(sorted(log.noops.items())) for log in logs.values() if log is not None}) == 1
    log = logs["a"]
    assert log is not None
    assert log.log_index.length - len(log.noops) == count, (cluster.log("a"), log.noops)


def dies_with_a_transaction(cluster: Cluster, key: str) -> Txid:
    """c makes a transaction durable and dies before anybody hears of it; the others go on without it."""
    cluster.cut |= {("c", "a"), ("c", "b")}
    (first,) = cluster.submit("c", "INSERT X", key=key)
    assert cluster.marks["c"].accepted >= first.txid.seq
    cluster.crash("c")
    cluster.run(50)
    cluster.cut.clear()
    cluster.executors["a"].prove_down("c", 3, cluster.journals["c"].start)
    run_until_in_view(cluster, "a", "b")
    cluster.run(1000)
    return first.txid


@pytest.mark.parametrize("majority", [False, True])
@pytest.mark.parametrize("away_ms", [5000, 2 * RETENTION_MS])
def test_a_copy_that_comes_back_repeats_what_it_repeated_when_it_was_taken(majority: bool, away_ms: int) -> None:
    cluster = real_time(majority=majority)
    dies_with_a_transaction(cluster, "K")
    (again,) = cluster.submit("a", "INSERT X", key="K")
    assert not again.is_repeat, "no master can know the first use"
    cluster.run(away_ms)
    cluster.submit("b", "something else", key="other")
    cluster.run(2000)
    cluster.start("c")
    run_until_in_view(cluster, "a", "b", "c", within_ms=30_000)
    cluster.run(3000)
    assert_effects(cluster, 2)
    assert cluster.submit("b", "INSERT X", key="new")[0].is_repeat is False


def test_a_key_that_is_used_anew_counts_although_an_older_one_comes_back() -> None:
    cluster = real_time()
    dies_with_a_transaction(cluster, "K")
    cluster.run(2 * RETENTION_MS)
    (anew,) = cluster.submit("a", "INSERT Y", key="K")
    assert not anew.is_repeat
    cluster.start("c")
    run_until_in_view(cluster, "a", "b", "c", within_ms=30_000)
    cluster.run(3000)
    assert_effects(cluster, 2)
    again = cluster.submit("c", "INSERT Y", key="K")[0]
    assert (again.is_repeat, again.txid) == (True, anew.txid)


@pytest.mark.parametrize("strategy", ["None", "Simple", "Smart"])
def test_both_sides_of_a_split_that_lasts_longer_than_the_retention(strategy: str) -> None:
    cluster = real_time(strategy=strategy, none_split_delay_ms=500)
    cluster.cut = {(x, y) for x, y in [("a", "c"), ("b", "c"), ("c", "a"), ("c", "b")]}
    cluster.run(500)
    back_up(cluster, "a", "b", "c")
    cluster.submit("a", "INSERT X", key="K")
    cluster.run(1000)
    cluster.submit("c", "INSERT X", key="K")
    for _ in range(20):
        cluster.run(RETENTION_MS // 10)
        back_up(cluster, "a", "b", "c")
    assert length(cluster, "c") == 1, "it went on alone"
    assert keys_of(cluster, "a").horizon <= min(keys_of(cluster, "a").oldest_tentative(), 1 << 62)
    cluster.cut.clear()
    run_until_in_view(cluster, "a", "b", "c", within_ms=30_000)
    cluster.run(3000)
    assert_effects(cluster, 1)


def test_nothing_is_forgotten_while_a_master_is_away() -> None:
    cluster = real_time()
    cluster.submit("a", "x", key="K")
    cluster.run(1000)
    horizon = keys_of(cluster, "a").horizon
    assert horizon > WALL_MS << LOGICAL_BITS
    dies_with_a_transaction(cluster, "other")
    before = keys_of(cluster, "a").horizon
    cluster.run(3 * RETENTION_MS)
    assert keys_of(cluster, "a").horizon == before
    assert keys_of(cluster, "a").final.find(key_name("K"))
    cluster.start("c")
    run_until_in_view(cluster, "a", "b", "c", within_ms=30_000)
    cluster.run(3000)
    for node in "abc":
        cluster.submit(node, "y")
        cluster.run(500)
    assert keys_of(cluster, "a").horizon > before + (2 * RETENTION_MS << LOGICAL_BITS)
    assert not keys_of(cluster, "a").final.find(key_name("K"))


def test_masters_of_an_older_version_are_given_no_first_stamps() -> None:
    cluster = real_time()
    for node in "abc":
        cluster.core(node).local.peer_levels.on_level("c", 0)
    cluster.submit("a", "x", key="K")
    cluster.run(500)
    assert not keys_of(cluster, "b").has_first_stamps
    cluster.core("a").local.peer_levels.on_level("c", 1)
    cluster.submit("a", "y", key="L")
    cluster.run(500)
    assert keys_of(cluster, "b").has_first_stamps
    cluster.core("b").local.peer_levels.on_level("c", 0)
    cluster.submit("b", "z", key="M")
    run = cluster.journals["b"].read("b", cluster.journals["b"].birth, 1, 1, 1000)
    assert run.items[0].first_stamp == 0, "the log says that all knew it, and one says now that it does not"


def test_without_a_view_no_key_is_taken_before_it_is_known_that_all_keep_first_stamps() -> None:
    cluster = real_time(without_level="abc")
    cluster.without_level = ""
    cluster.crash("c")
    for node in "ab":
        cluster.executors[node].prove_down("c", cluster.journals["c"].birth, cluster.journals["c"].start)
    run_until_in_view(cluster, "a", "b")
    cluster.cut |= {("a", "c")}  # what a sends to c
    cluster.start("c")
    core = cluster.core("c")
    while not core.views.is_stopped or core.membership.admission.error() is not None:
        assert cluster.now_ms < 60_000
        cluster.run(1)
    cluster.submit("c", "without a key")

    (refused,) = cluster.executors["c"].submit([update("x", "K")], cluster.now("c"))
    assert isinstance(refused, Unavailable)
    assert (refused.reason, refused.status) == ("Starting", 503)
    assert "a sent no hello" in str(refused)

    levels = core.local.peer_levels
    levels.on_level("b", 0)  # an older version: a key waits for no other master
    cluster.submit("c", "y", key="L")
    levels.on_level("b", 1)
    levels.on_level("a", 1)
    (taken,) = cluster.submit("c", "x", key="K")
    run = cluster.journals["c"].read("c", cluster.journals["c"].birth, taken.txid.seq, 1, 1000)
    assert run.items[0].stamp == 0
    assert run.items[0].first_stamp > 0


def test_the_first_stamp_outlives_views_and_starts() -> None:
    cluster = RealTime(journal=DiskJournal, idle_interval_ms=200, key_retention_ms=RETENTION_MS).founded()
    first = dies_with_a_transaction(cluster, "K")
    cluster.submit("a", "INSERT X", key="K")
    cluster.run(2 * RETENTION_MS)
    cluster.start("c")
    run_until_in_view(cluster, "a", "b", "c", within_ms=30_000)
    cluster.run(3000)
    assert_effects(cluster, 1)
    items = {}
    for node in "abc":
        for again in range(2):
            items[node, again] = cluster.journals[node].read(*first.origin, first.seq, 1, 1000).items[0]
            assert_effects(cluster, 1)
            cluster.crash(node)
            cluster.start(node)
            cluster.run(1000)
            run_until_in_view(cluster, "a", "b", "c", within_ms=30_000)
    assert len(set(items.values())) == 1, items
    item = items["a", 1]
    assert item.stamp - item.first_stamp > RETENTION_MS << LOGICAL_BITS


def horizon_with(cluster: Cluster, node: str = "a") -> int:
    """The horizon, once every key that may come is in the log."""
    core = cluster.core(node)
    replication = core.lifecycle.replication
    assert replication is not None
    replication.key_horizon.advance(core.views.configured_members)
    return keys_of(cluster, node).horizon


def test_what_waits_holds_the_horizon() -> None:
    cluster = real_time()
    old = WALL_MS - 1000 << LOGICAL_BITS
    log = cluster.core("a").log_state
    assert log is not None
    parked = log.add_origin(Origin("c", 99))
    parked.extend([old], bytes(16), ["K"], [1])
    log.keys.horizon = 0
    cluster.run(1000)
    assert horizon_with(cluster) == old, "it was taken then, and may still enter the log"


def test_what_may_leave_the_log_holds_the_horizon() -> None:
    cluster = real_time("ab")
    old = WALL_MS - 1000 << LOGICAL_BITS
    log = cluster.core("a").log_state
    assert log is not None
    log.keys.record_use(99, "K", FirstUse(Txid(Origin("c", 99), 1), old, b""))
    log.keys.horizon = 0
    cluster.run(1000)
    assert horizon_with(cluster) == old


def test_a_cut_keeps_the_repeats_that_the_log_start_has_decided() -> None:
    effects = KeyedEffects(Configuration([], False, 100))
    start = msgspec.structs.replace(EMPTY_LOG_START, index=5, keys_index=9, noops=[(8, "a", 1, 3)])
    effects.restore(start)
    effects.truncate(7)
    assert effects.noops == {8: Txid(A, 3)}
    effects.noops[12] = Txid(A, 4)
    effects.truncate(10)
    assert effects.noops == {8: Txid(A, 3)}


def test_a_transaction_that_waits_for_ever_swallows_no_new_one() -> None:
    keys = IdempotencyKeys(retention_ms=100)
    keys.wait("k", FirstUse(Txid(A, 1), 0, b""))
    assert keys.find_first_use("k", 100 << LOGICAL_BITS) is not None
    assert keys.find_first_use("k", 101 << LOGICAL_BITS) is None
    keys.wait("k", FirstUse(Txid(B, 1), 101 << LOGICAL_BITS, b""))
    assert keys.find_first_use("k", 150 << LOGICAL_BITS) == FirstUse(Txid(B, 1), 101 << LOGICAL_BITS, b"")


def test_what_a_snapshot_has_passed_does_not_wait() -> None:
    keys = IdempotencyKeys(retention_ms=100)
    keys.wait("k", FirstUse(Txid(A, 5), 0, b""))
    keys.wait("l", FirstUse(Txid(A, 6), 0, b""))
    keys.restore(msgspec.structs.replace(EMPTY_LOG_START, index=9, seqs=[("a", 1, 5)], retention=100 << LOGICAL_BITS))
    assert set(keys.waiting) == {"l"}


def test_above_the_bound_a_new_key_is_refused_by_name_and_nothing_is_forgotten() -> None:
    cluster = real_time(keys_max=3)
    for at in range(3):
        cluster.submit("a", f"x{at}", key=f"k{at}")
    cluster.run(500)
    refused = cluster.ask("b", update("y", key="another"))
    assert isinstance(refused, Unavailable)
    assert (refused.reason, refused.status, refused.retry_after_s) == ("KeysFull", 503, 60)
    assert "3 idempotency keys" in str(refused)
    assert cluster.submit("b", "x0", key="k0")[0].is_repeat
    assert not cluster.submit("b", "without a key")[0].is_repeat
    dies_with_a_transaction(cluster, "")
    assert "while c may bring back" in str(cluster.ask("a", update("z", key="another")))


# The table


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(1, 1 << 47), st.integers(0, 1 << 61)), max_size=400))
def test_the_table_against_a_dict_of_lists(rows: list[tuple[int, int, int]]) -> None:
    table, twin = KeyTable(), {}
    for key, seq, stamp in rows:
        use = FirstUse(Txid(A if key % 2 else B, seq), stamp, b"cc")
        table.add(key_name(f"k{key}"), use)
        twin.setdefault(f"k{key}", []).append(use)
    assert table.count == len(rows)
    assert all(table.find(key_name(key)) == uses for key, uses in twin.items())
    assert table.find(key_name("nobody")) == []
    parts, snapshot = [], table.snapshot()
    for key, uses in list(twin.items())[::2]:
        table.remove(key_name(key), uses[0].txid)
    while not snapshot.is_complete:
        parts.append(snapshot.next_part(1000))
    assert not any(part_error(part) for part in parts)
    loaded = KeyTable()
    loaded.load(parts)
    assert loaded.count == len(rows)
    assert all(loaded.find(key_name(key)) == uses for key, uses in twin.items()), "as it was then"
    middle = 1 << 60
    while not loaded.drop_older(middle, 2):
        pass
    assert all(loaded.find(key_name(key)) == [one for one in uses if one.stamp >= middle] for key, uses in twin.items())


def test_a_key_takes_32_bytes() -> None:
    table = KeyTable()
    for at in range(50_000):
        table.add(key_name(f"{at:032x}"), FirstUse(Txid(A, at + 1), at, b"cc"))
    taken = sum(bucket.__sizeof__() + 8 for bucket in table._buckets)
    assert taken / 50_000 <= 32
    assert max(len(bucket) for bucket in table._buckets) < 300 * ROW_BYTES


def test_a_part_that_cannot_be_one_is_refused() -> None:
    row = key_name("k") + b"\1" + bytes(ROW_BYTES - 15)
    sound = KeyTablePart([("a", 1), ("b", 1)], array("I", [ROW_BYTES]).tobytes(), row)
    assert part_error(sound) == ""
    assert "not listed" in part_error(KeyTablePart([("a", 1)], sound.lengths, row))
    assert "match" in part_error(KeyTablePart(sound.origins, sound.lengths, row + row))
    assert "match" in part_error(KeyTablePart(sound.origins, array("I", [7]).tobytes(), row[:7]))
    assert "lengths" in part_error(KeyTablePart(sound.origins, b"123", row))


def test_the_keys_of_an_older_log_start_count() -> None:
    keys = IdempotencyKeys(retention_ms=100)
    old = IdempotencyKeyRecord("k", "a", 1, 5, 7 << LOGICAL_BITS, b"c" * 16)
    start = msgspec.structs.replace(EMPTY_LOG_START, index=9, keys=[old], retention=100 << LOGICAL_BITS)
    keys.restore(start)
    assert keys.record_use(10, "k", FirstUse(Txid(B, 1), 8 << LOGICAL_BITS, b"")) == Txid(A, 5)


# Trims


KEYS = 1500


def text_of(at: int) -> str:
    return f"{at} " + "x" * 100


class LargeSegments(DiskJournal):
    """A segment has room for many parts, and for more records behind them."""

    segment_bytes = 1 << 16


def trimmed_in_parts(journal: type[DiskJournal] = DiskJournal) -> Cluster:
    """Masters with many keys, of which a trim writes a few at each turn."""
    cluster = RealTime(journal=journal, idle_interval_ms=100, key_retention_ms=600_000).founded()
    for first in range(0, KEYS, 50):
        batch = [update(text_of(at), key=f"key-{at}") for at in range(first, first + 50)]
        cluster.executors["abc"[first % 3]].submit(batch, cluster.now("abc"[first % 3]))
        cluster.run(20)
    cluster.run(500)
    for executor in cluster.executors.values():
        executor.key_part_bytes = 200
    return cluster


def trim_one(cluster: Cluster, node: str, index: int) -> None:
    cluster.executors[node].trim([place(cluster, kind, index) for kind in (WORKER, BACKUP)], 1 << 60)


def is_repeat(cluster: Cluster, node: str, at: int) -> bool:
    return cluster.submit(node, text_of(at), key=f"key-{at}")[0].is_repeat


def restart(cluster: Cluster, node: str) -> None:
    cluster.crash(node)
    cluster.start(node)
    cluster.run(1000)
    run_until_in_view(cluster, "a", "b", "c")


def test_a_trim_writes_the_keys_in_parts_while_others_write() -> None:
    cluster = trimmed_in_parts()
    inner, turns = cluster.journals["a"].inner, []
    append = inner.append

    def noted(record: object) -> None:
        if isinstance(record, KeyTableWritten):
            turns.append(cluster.now_ms)
        append(record)

    cluster.journals["a"].append = noted
    end = length(cluster) - 20
    trim_one(cluster, "a", end)
    assert start_of(cluster, "a") == 0, "one part alone is written"
    end_ms = cluster.now_ms + 10_000
    while start_of(cluster, "a") == 0:
        assert cluster.now_ms < end_ms
        cluster.submit("b", "between", key=f"between-{cluster.now_ms}")
        cluster.run(1)
    assert start_of(cluster, "a") == end
    assert len(turns) > 8
    assert len(set(turns)) == len(turns), "one at each turn"
    cluster.run(500)
    assert all(is_repeat(cluster, node, 3) for node in "abc")


def test_a_start_behind_a_trim_knows_the_keys_and_the_repeats() -> None:
    cluster = trimmed_in_parts()
    end = length(cluster)
    cluster.cut |= {("a", "b"), ("b", "a")}
    for node in "ab":
        cluster.submit(node, "twice", key="twice")
    cluster.cut.clear()
    cluster.run(1000)
    before = cluster.core("c").log_state
    assert before is not None
    noops = dict(before.noops)
    assert len(noops) == 1
    for node in "abc":
        trim_one(cluster, node, end - 5)
    cluster.run(2000)
    assert {start_of(cluster, node) for node in "abc"} == {end - 5}
    restart(cluster, "c")
    after = cluster.core("c").log_state
    assert after is not None
    assert after.noops == noops
    assert all(is_repeat(cluster, "c", at) for at in (0, 50, KEYS // 2, KEYS - 1))
    assert cluster.submit("c", "twice", key="twice")[0].is_repeat
    assert len(after.keys.final) == KEYS + 1


def test_a_trim_that_a_crash_interrupts_changes_nothing() -> None:
    cluster = trimmed_in_parts()
    end = length(cluster) - 20
    for _ in range(2):
        trim_one(cluster, "a", end)
        cluster.run(4)
        assert start_of(cluster, "a") == 0
        restart(cluster, "a")
        assert start_of(cluster, "a") == 0
        cluster.executors["a"].key_part_bytes = 200
    trim_one(cluster, "a", end)
    cluster.run(2000)
    assert start_of(cluster, "a") == end
    restart(cluster, "a")
    assert is_repeat(cluster, "a", 3)


def test_a_trim_ends_without_effect_when_a_worker_goes_back_meanwhile() -> None:
    cluster = trimmed_in_parts()
    end = length(cluster) - 20
    trim_one(cluster, "a", end)
    cluster.run(2)
    assert start_of(cluster, "a") == 0
    trim_one(cluster, "a", 7)
    cluster.run(1000)
    assert start_of(cluster, "a") in (0, 7)
    trim_one(cluster, "a", end)
    cluster.run(1000)
    assert start_of(cluster, "a") == end


def test_the_segments_that_have_the_keys_stay() -> None:
    cluster = trimmed_in_parts()
    for again in range(2):
        end = length(cluster)
        for _ in range(3):
            trim_one(cluster, "a", end)
            cluster.run(1000)
            while (removal := cluster.journals["a"].begin_removal()) is not None:
                removal.run()
                cluster.journals["a"].end_removal(removal)
        assert start_of(cluster, "a") == end
        restart(cluster, "a")
        assert is_repeat(cluster, "a", 3)
        for at in range(60):
            cluster.submit("b", "more " + "y" * 3000, key=f"more-{again}-{at}")
            cluster.run(20)
        cluster.run(500)


def test_a_trim_after_a_trim_needs_no_part_of_the_first_one() -> None:
    """Its parts may be gone while its own record is in a segment that stays."""
    cluster = trimmed_in_parts(LargeSegments)
    cluster.journals["a"].segments_freed_by = lambda *_: 1
    for again in range(2):
        end = length(cluster)
        trim_one(cluster, "a", end)
        cluster.run(500)
        while (removal := cluster.journals["a"].begin_removal()) is not None:
            removal.run()
            cluster.journals["a"].end_removal(removal)
        assert start_of(cluster, "a") == end
        cluster.submit("b", "more", key=f"more-{again}")
        cluster.run(300)
    trims = [line for line in dump_journal(cluster.journals["a"].files) if "Trimmed" in line]
    assert len(trims) == 4, "both copies of both: the first one's parts are gone"
    restart(cluster, "a")
    assert is_repeat(cluster, "a", 3)


def test_a_part_of_which_one_copy_is_damaged_is_read_from_the_other() -> None:
    cluster = trimmed_in_parts()
    trim_one(cluster, "a", length(cluster) - 20)
    cluster.run(2000)
    assert start_of(cluster, "a")
    files = cluster.journals["a"].files
    row = key_name("key-7")
    places = [(name, at) for name in files.list() for at in found_in(files, name, row) if name.startswith("segment")]
    assert len(places) == 2
    cluster.crash("a")
    flip(files, *places[0])
    cluster.start("a")
    cluster.run(2000)
    assert is_repeat(cluster, "a", 7)
    cluster.crash("a")
    flip(files, *places[1])
    with pytest.raises(JournalDamaged, match="table of keys"):
        cluster.start("a")


def with_a_learner_below_the_log_start() -> Cluster:
    """c has lost its disk, and joined again by a snapshot."""
    cluster = trimmed_in_parts()
    end = length(cluster)
    for node in "abc":
        trim_one(cluster, node, end - 5)
    cluster.run(2000)
    cluster.crash("c")
    cluster.journals["c"] = DiskJournal("c", 77)
    cluster.start("c")
    run_until_in_view(cluster, "a", "b", "c", within_ms=60_000)
    cluster.run(2000)
    assert start_of(cluster, "c") == end - 5
    return cluster


def test_a_learner_below_the_log_start_gets_the_keys() -> None:
    cluster = with_a_learner_below_the_log_start()
    learnt = cluster.core("c").log_state
    assert learnt is not None
    assert learnt.noops == {}
    assert is_repeat(cluster, "c", 3)
    restart(cluster, "c")
    assert is_repeat(cluster, "c", KEYS - 1)
    log = cluster.core("c").log_state
    assert log is not None
    assert len(log.keys.final) == KEYS


def test_an_older_learner_gets_no_snapshot_whose_keys_it_cannot_read() -> None:
    cluster = trimmed_in_parts()
    trim_one(cluster, "a", length(cluster) - 5)
    cluster.run(2000)
    core = cluster.core("a")
    for level, kind in ((0, LogTruncatedBelow), (1, SnapshotChunk)):
        core.receive("c", FetchSnapshot(0, 0, level), cluster.now("a"), True)
        answers = [one.message for one in core.drain().sends]
        assert [type(one) for one in answers if isinstance(one, (LogTruncatedBelow, SnapshotChunk))] == [kind]


def found_in(files: MemoryVfs, name: str, row: bytes) -> list[int]:
    file = files.open(name)
    data = file.pread(0, files.size(name))
    file.close()
    return [at for at in range(len(data)) if data.startswith(row, at)]


def flip(files: MemoryVfs, name: str, at: int) -> None:
    file = files.open(name)
    (byte,) = file.pread(at, 1)
    file.pwrite(at, bytes((byte ^ 1,)))
    file.fdatasync()
    file.close()
