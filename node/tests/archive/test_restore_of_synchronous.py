"""A restore folds COMMITs and ROLLBACKs: a real store holds at each moment what took effect up to there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from archived_history import UK, Step, chain
from log_pieces import META, START
from oxigraph_process import OxigraphProcess
from restored_store import restore
from restored_store import store as store
from synchronous_history import SynchronousHistory, decision_key, random_log, synchronous_key

from txlog.archive.archive_errors import ArchiveGap, BeyondArchive, EntryRefused, FileDamaged
from txlog.archive.block_codec import ArchivedEntry
from txlog.archive.compaction_plan import CompactionLimits
from txlog.archive.compactor import Compactor
from txlog.archive.executed_entries import find_undecided
from txlog.archive.format import decode_file, encode_file
from txlog.archive.moment import parse_moment
from txlog.archive.moment_restore import MomentRequest, plan_restore, to_base
from txlog.archive.stream_check import check_stream
from txlog.archive.stream_reader import StreamReader
from txlog.archive.window_plan import WindowBase, plan_window
from txlog.model.entry import KIND_QUADS
from txlog.model.errors import BadInput
from txlog.model.ids import Txid
from txlog.model.synchronous_entry import KIND_DECISION, KIND_SYNCHRONOUS_QUADS, DecisionKind
from txlog.telemetry.event_log import EventLog

COMMIT, ROLLBACK = DecisionKind.COMMIT, DecisionKind.ROLLBACK
Row = tuple[int, bytes, str]
"""Kind, payload, key; the seq is the index."""


def line(name: str) -> bytes:
    return f"A <urn:{name}> <urn:p> <urn:o> .\n".encode()


def sync(name: str, client_key: str = "") -> Row:
    return KIND_SYNCHRONOUS_QUADS, line(name), synchronous_key(client_key)


def decision(verdict: DecisionKind, *seqs: int) -> Row:
    return KIND_DECISION, b"", decision_key(verdict, [Txid(UK, seq) for seq in seqs])


def plain(name: str) -> Row:
    return KIND_QUADS, line(name), ""


def entries_of(rows: Sequence[Row]) -> list[ArchivedEntry]:
    steps = [Step(Txid(UK, at), 1_700_000_000_000 + at, *row) for at, row in enumerate(rows, 1)]
    return chain(steps, START)


def quads(*names: str) -> list[str]:
    return sorted(f"<urn:{name}> <urn:p> <urn:o> ." for name in names)


def history_of(path: Path, *rows: Row, start: int = 0) -> SynchronousHistory:
    return SynchronousHistory(path, entries_of(rows), start)


@pytest.mark.parametrize("seed", range(10))
def test_random_moments_are_a_plain_replay(store: OxigraphProcess, tmp_path: Path, seed: int) -> None:
    """Also of a stream that begins at the log start of a master, and of compacted files."""
    entries = random_log(seed, skips=not seed % 2)
    whole = SynchronousHistory(tmp_path / "whole", entries, seed=seed)
    base = whole.random.randrange(3, 20)
    open_there = [whole.fold.places[txid].index for txid in whole.fold.undecided_at(base)]
    start = min([base, *(index - 1 for index in open_there)]) if seed % 2 else 0
    history = SynchronousHistory(tmp_path / "target", entries, start, seed)
    history.back_up(base)
    if seed % 3 == 0:
        limits = CompactionLimits(entries_max=8, grace_s=0)
        assert Compactor(history.stream, EventLog("test", None, 0), limits).run().merged
    lowest = base if start else 1
    for _ in range(4):
        index = history.random.randrange(lowest, len(entries) + 1)
        done = restore(history, store, history.position(index), "empty" if index < base else None)
        assert store.quads() == sorted(history.replay(index)), (index, done.plan.base)
        # Of a log that begins later, what was decided before is not undecided.
        assert list(done.undecided) == history.undecided(index)


def test_between_its_place_and_its_commit_it_is_left_out_and_named(store: OxigraphProcess, tmp_path: Path) -> None:
    history = history_of(tmp_path, plain("a"), sync("b"), plain("c"), decision(COMMIT, 2), plain("d"))
    done = restore(history, store, history.position(3), "empty")
    assert (store.quads(), done.undecided) == (quads("a", "c"), (Txid(UK, 2),))
    done = restore(history, store, history.position(4), "empty")
    assert (store.quads(), done.undecided) == (quads("a", "b", "c"), ())


def test_what_is_open_at_the_base_takes_effect_after_it(store: OxigraphProcess, tmp_path: Path) -> None:
    """Its payload is in a file that the base replaces otherwise."""
    history = history_of(tmp_path, sync("a"), plain("b"), plain("c"), plain("d"), plain("e"), decision(COMMIT, 1))
    base = history.back_up(4)
    done = restore(history, store, "latest")
    assert (done.plan.base.name, done.plan.after.index) == (base.name, 4)  # type: ignore[union-attr]
    assert store.quads() == quads("a", "b", "c", "d", "e")


def test_a_rollback_and_a_second_decision_have_no_effect(store: OxigraphProcess, tmp_path: Path) -> None:
    rows = [sync("a"), sync("b"), decision(ROLLBACK, 1), decision(COMMIT, 2), decision(COMMIT, 1, 2)]
    history = history_of(tmp_path, *rows)
    for index, expected in ((2, ()), (3, ()), (4, ("b",)), (5, ("b",))):
        done = restore(history, store, history.position(index), "empty")
        assert store.quads() == quads(*expected)
        assert list(done.undecided) == [Txid(UK, seq) for seq in (1, 2) if index < seq + 2]


def test_a_repeated_key_takes_no_effect_at_a_commit(store: OxigraphProcess, tmp_path: Path) -> None:
    history = history_of(tmp_path, sync("a", "once"), sync("b", "once"), sync("c"), decision(COMMIT, 1, 2, 3))
    restore(history, store, "latest", "empty")
    assert store.quads() == quads("a", "c")


def test_a_moment_of_a_transaction_is_that_of_its_effect(store: OxigraphProcess, tmp_path: Path) -> None:
    rows = [sync("a"), sync("b"), sync("c"), plain("d"), decision(COMMIT, 1), decision(ROLLBACK, 2)]
    history = history_of(tmp_path, *rows)
    done = restore(history, store, str(Txid(UK, 1)), "empty")
    assert (done.plan.place.index, store.quads()) == (5, quads("a", "d"))
    done = restore(history, store, f"before:{Txid(UK, 1)}", "empty")
    assert (done.plan.place.index, store.quads()) == (4, quads("d"))
    with pytest.raises(BadInput, match="is rolled back at index 6"):
        restore(history, store, str(Txid(UK, 2)), "empty")
    with pytest.raises(BeyondArchive, match="is undecided at 6"):
        restore(history, store, f"before:{Txid(UK, 3)}", "empty")


def test_a_base_from_before_what_the_files_have_is_refused_by_name(store: OxigraphProcess, tmp_path: Path) -> None:
    """The log was trimmed so far that no position before the COMMIT could be served any more."""
    history = history_of(tmp_path, sync("a"), plain("b"), plain("c"), decision(COMMIT, 1), plain("d"), start=2)
    history.back_up(3)
    with pytest.raises(ArchiveGap, match=rf"{Txid(UK, 1)} takes effect at index 4, and its payload is before"):
        restore(history, store, "latest")
    assert store.quads() == []
    base = history.back_up(4)
    done = restore(history, store, "latest")
    assert (done.plan.base.name, store.quads()) == (base.name, quads("a", "b", "c", "d"))  # type: ignore[union-attr]


def test_a_decision_before_the_stream_counts(store: OxigraphProcess, tmp_path: Path) -> None:
    """The first decision about 4 and 5 is not in the files; the later ones have no effect."""
    rows = [plain("a"), decision(COMMIT, 4), decision(ROLLBACK, 5), sync("b"), sync("c"), decision(COMMIT, 4, 5)]
    history = history_of(tmp_path, *rows, start=3)
    history.back_up(3)
    for index in (4, 5, 6):
        done = restore(history, store, history.position(index))
        assert (store.quads(), done.undecided) == (quads("a", "b"), ())


def test_a_key_that_no_master_makes_is_refused_before_the_store_is_touched(
    store: OxigraphProcess, tmp_path: Path
) -> None:
    forged = entries_of([plain("a"), (KIND_SYNCHRONOUS_QUADS, line("b"), "everybody"), plain("c")])
    other = history_of(tmp_path, plain("x"))
    other.entries = forged
    other.stream.delete_files([each.name for each in other.stream.list_files()])
    other.ship(0, 3)
    with pytest.raises(EntryRefused, match="not the key of a synchronous transaction"):
        restore(other, store, "latest", "empty")
    assert store.quads() == []
    checked = check_stream(other.stream)
    assert [fault.error for fault in checked.faults] == ["EntryRefused"]
    assert not checked.is_sound


def test_a_check_names_what_is_undecided_at_the_end(tmp_path: Path) -> None:
    history = history_of(tmp_path, sync("a"), sync("b"), sync("c"), decision(COMMIT, 1), decision(ROLLBACK, 3))
    checked = check_stream(history.stream)
    assert (checked.is_sound, checked.undecided) == (True, [Txid(UK, 2)])


def test_a_dry_run_names_what_is_left_out(tmp_path: Path) -> None:
    history = history_of(tmp_path, sync("a"), sync("b"), decision(COMMIT, 1))
    reader = StreamReader(history.stream)
    plan = plan_restore(reader, MomentRequest(parse_moment("latest"), history.target, "empty"))
    assert find_undecided(plan, reader.read) == [Txid(UK, 2)]


def test_the_window_keeps_the_payloads_of_what_is_open_at_its_base(tmp_path: Path) -> None:
    rows = [plain("a"), plain("b"), sync("c"), *(plain(f"d{n}") for n in range(9)), decision(COMMIT, 3), plain("e")]
    history = history_of(tmp_path, *rows)
    base = WindowBase(to_base(history.back_up(9)), 0)
    reader = StreamReader(history.stream)
    plan = plan_window(
        list(reader.sizes), reader.starts, reader.find_timelines(), [base], 1_700_000_000_020, reader.read
    )
    assert plan.floor == 2
    assert all(name.last <= 2 for name in plan.files)
    decided = WindowBase(to_base(history.back_up(13)), 0)
    plan = plan_window(
        list(reader.sizes), reader.starts, reader.find_timelines(), [decided], 1_700_000_000_020, reader.read
    )
    assert plan.floor == 13


def test_facts_about_another_kind_of_entry_are_damage(tmp_path: Path) -> None:
    entries = entries_of([plain("a"), sync("b")])
    changes: list[dict[str, Any]] = [{"passed_over": (Txid(UK, 2),)}, {"verdict": "commit"}]
    for change in changes:
        wrong = [msgspec.structs.replace(entries[0], **change), entries[1]]
        made = encode_file(wrong, START.hash, META, settled=2, writer=1)
        with pytest.raises(FileDamaged, match="at index 1, which has none"):
            decode_file(made.name, made.data)
