"""Incremental backups: a base and its chain are the state at their last position, digest for digest (B14)."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from increments import Followed, MasterOfLog
from log_in_memory import MemoryLog
from oxigraph_process import OxigraphProcess
from pen import apply, empty_out, filled_log, order, put_back, source

from txlog.backup import BackupRequest, adopt, catalogue, increment_writer, merge_chain, quad_changes
from txlog.backup.backup_errors import NoIncrement
from txlog.model.errors import BadInput

QUADS = [
    f"<urn:s:{n}> <urn:p> {value}{graph} ."
    for n, (value, graph) in enumerate(
        [
            ('"a"', ""),
            ('"01"^^<http://www.w3.org/2001/XMLSchema#integer>', " <urn:g:1>"),
            ('"b  <urn:g:1> ."@en-GB', " <urn:g:1>"),
            ("<urn:g:2>", ""),
            ("<urn:g:2>", " <urn:g:2>"),
            ('"\\u00fc \\"q\\""', " <urn:g:3>"),
        ]
    )
]
OPERATIONS = st.lists(st.tuples(st.sampled_from("AD"), st.sampled_from(QUADS)), min_size=1, max_size=6)
STRETCHES = st.lists(st.lists(OPERATIONS, max_size=4), min_size=2, max_size=5)


@pytest.fixture
def followed(worker: OxigraphProcess, tmp_path: Path) -> Followed:
    return Followed(worker, tmp_path / "backups")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stretches=STRETCHES)
def test_a_chain_is_the_state_digest_for_digest(
    worker: OxigraphProcess, stretches: list[list[list[tuple[str, str]]]]
) -> None:
    empty_out(worker)
    with TemporaryDirectory() as folder:
        followed = Followed(worker, Path(folder))
        followed.masters = [MasterOfLog(followed.log, page_bytes=100)]
        followed.add(*QUADS[:3])
        before = followed.full()
        for number, transactions in enumerate(stretches, 1):
            for operations in transactions:
                followed.log.append(2, "".join(f"{way} {quad}\n" for way, quad in operations).encode())
            apply(worker, followed.log)
            made = followed.increment(part_bytes=100)
            assert made.continues is not None
            assert (made.continues.of, made.chain_number) == (before.name, number)
            assert followed.is_equal(made)
            before = made
        merged = merge_chain(followed.target, before.name, BackupRequest("", ""))
        assert merged.continues is None
        assert followed.is_equal(merged)
        assert merged.plain_bytes == before.plain_bytes


def test_a_chain_is_restored_as_a_full_backup_is(followed: Followed, empty: OxigraphProcess) -> None:
    followed.add(*(f"<urn:s:{n}> <urn:p> <urn:o> <urn:g> ." for n in range(300)))
    followed.full()
    followed.add("<urn:came> <urn:p> <urn:o> <urn:h> .")
    followed.delete("<urn:s:1> <urn:p> <urn:o> <urn:g> .", "<urn:never> <urn:p> <urn:o> .")
    first = followed.increment()
    followed.delete("<urn:came> <urn:p> <urn:o> <urn:h> .")
    followed.add("<urn:s:1> <urn:p> <urn:o> <urn:g> .", "<urn:s:2> <urn:p> <urn:o> <urn:g> .")
    second = followed.increment()
    assert first.continues is not None
    assert second.continues is not None
    assert (first.continues.added, first.continues.deleted) == (1, 1)
    assert (second.continues.added, second.continues.deleted) == (1, 1), "what was there already is not added"
    assert [each.state for each in catalogue(followed.target)] == ["complete"] * 3
    for made, quads in ((first, 300), (second, 300)):
        done = put_back(followed.target, made.name, empty, followed.log)
        assert (done.marker.position, done.quads) == (made.position, quads)
        apply(empty, followed.log)
        assert empty.quads() == followed.worker.quads(), "the pipeline goes on from there"
        empty_out(empty)
    assert {each.key.split("/")[1].split("-")[0] for each in followed.target.list_objects()} == {
        "part",
        "deleted",
        "manifest.json",
    }, "no lease is left"


def test_an_idle_log_makes_an_increment_without_changes(followed: Followed) -> None:
    followed.add("<urn:s> <urn:p> <urn:o> .")
    full = followed.full()
    made = followed.increment()
    assert (made.place, made.parts, made.all_parts) == (full.place, [], [])
    assert followed.is_equal(made)


def test_an_update_makes_the_next_backup_a_full_one(followed: Followed) -> None:
    followed.add("<urn:s> <urn:p> <urn:o> .")
    followed.full()
    followed.log.update("INSERT { ?s <urn:q> ?o } WHERE { ?s <urn:p> ?o }")
    apply(followed.worker, followed.log)
    made, why, _ = followed.either()
    assert made.continues is None
    assert "at index 2 is an update" in why
    assert followed.is_equal(made)
    followed.add("<urn:t> <urn:p> <urn:o> .")
    made, why, _ = followed.either()
    assert (made.chain_number, why) == (1, ""), "the next one continues it"
    assert followed.is_equal(made)


def test_what_no_worker_executes_is_in_no_increment(followed: Followed) -> None:
    followed.add("<urn:s> <urn:p> <urn:o> .")
    followed.full()
    followed.log.append(2, b"A <urn:skipped> <urn:p> <urn:o> .\n", "skip")
    followed.log.update("INSERT DATA { <urn:skipped> <urn:p> <urn:u> }", "skip")
    apply(followed.worker, followed.log)
    made = followed.increment()
    assert (made.quads, made.place.index) == (1, 3)
    assert followed.is_equal(made)


def test_a_chain_is_bounded(followed: Followed) -> None:
    followed.add("<urn:s> <urn:p> <urn:o> .")
    numbers = []
    for n in range(7):
        followed.add(f"<urn:s:{n}> <urn:p> <urn:o> .")
        made, why, _ = followed.either(chain_max=2)
        numbers.append(made.chain_number)
        assert followed.is_equal(made)
        if n and not made.chain_number:
            assert "2 incremental backups follow" in why
    assert numbers == [0, 1, 2, 0, 1, 2, 0]
    with pytest.raises(NoIncrement, match="and 0 may"):
        followed.increment(chain_max=0)


def test_changes_of_half_of_the_full_backup_make_a_full_one(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(increment_writer, "SMALL_BYTES", 0)
    followed.add(*(f"<urn:s:{n}> <urn:p> <urn:o> ." for n in range(10)))
    full = followed.full()
    followed.add(*(f"<urn:t:{n}> <urn:p> <urn:o> ." for n in range(3)))
    assert followed.increment().continues is not None
    followed.delete(*(f"<urn:s:{n}> <urn:p> <urn:o> ." for n in range(3)))
    with pytest.raises(NoIncrement, match=f"since {full.name} come to more than half"):
        followed.increment()
    assert followed.is_equal(followed.either().manifest)


def test_changes_beyond_memory_make_a_full_one(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    followed.add("<urn:s> <urn:p> <urn:o> .")
    followed.full()
    monkeypatch.setattr(increment_writer, "CHANGES_BYTES_MAX", 100)
    followed.add("<urn:t> <urn:p> <urn:o> .")
    followed.increment()
    followed.add("<urn:u> <urn:p> <urn:o> .", "<urn:v> <urn:p> <urn:o> .", "<urn:w> <urn:p> <urn:o> .")
    with pytest.raises(NoIncrement, match="exceed the 64 MiB"):
        followed.increment()
    assert quad_changes.CHANGES_BYTES_MAX == 64 << 20


def test_a_log_that_was_trimmed_makes_a_full_one(followed: Followed) -> None:
    followed.add("<urn:s> <urn:p> <urn:o> .")
    followed.full()
    followed.add("<urn:t> <urn:p> <urn:o> .")
    followed.log.kept_from = 2
    with pytest.raises(NoIncrement, match="was trimmed"):
        followed.increment()


def test_a_backup_of_another_branch_is_not_continued(followed: Followed) -> None:
    """After a rejoin the newest backup may be of the side whose order is over."""
    followed.add("<urn:s> <urn:p> <urn:o> .")
    both = followed.full()
    entries, hashes = list(followed.log.entries), list(followed.log.hashes)
    followed.add("<urn:lost:1> <urn:p> <urn:o> .")
    followed.add("<urn:lost:2> <urn:p> <urn:o> .")
    lost = followed.full()
    followed.log.entries, followed.log.hashes = entries, hashes
    for n in range(3):
        followed.log.add(f"<urn:won:{n}> <urn:p> <urn:o> .")
    put_back_to(followed, both.name)
    made = followed.increment()
    assert made.continues is not None
    assert (lost.place.index, made.place.index, made.continues.of) == (3, 4, both.name)
    assert followed.is_equal(made)


def put_back_to(followed: Followed, name: str) -> None:
    empty_out(followed.worker)
    put_back(followed.target, name, followed.worker, followed.log)
    apply(followed.worker, followed.log)


def test_without_a_backup_to_continue_a_full_one_is_taken(followed: Followed) -> None:
    followed.add("<urn:s> <urn:p> <urn:o> .")
    made, why, _ = followed.either()
    assert made.continues is None
    assert why == "no backup of uk can be continued: there is none that the log leads on from"
    followed.full(name="of-us", data_center="us")
    assert followed.increment().continues is not None
    with pytest.raises(NoIncrement, match="at the position of a worker"):
        followed.increment(at=1)


def test_only_an_incremental_backup_is_merged(followed: Followed) -> None:
    followed.add("<urn:s> <urn:p> <urn:o> .")
    full = followed.full()
    with pytest.raises(BadInput, match="is a full backup"):
        merge_chain(followed.target, full.name, BackupRequest("", ""))


def test_pages_of_another_log_make_no_increment(followed: Followed) -> None:
    """A master that has entries after the backup, but not those that the worker executed."""
    followed.add("<urn:s> <urn:p> <urn:o> .")
    followed.full()
    forked = MemoryLog()
    forked.entries, forked.hashes = list(followed.log.entries), list(followed.log.hashes)
    followed.add("<urn:t> <urn:p> <urn:o> .")
    forked.add("<urn:other> <urn:p> <urn:o> .")
    followed.masters = [MasterOfLog(forked)]
    with pytest.raises(NoIncrement, match="the log has another hash there"):
        followed.increment()


def test_content_from_before_the_log_goes_with_the_chain(followed: Followed, empty: OxigraphProcess) -> None:
    """An adopted store is in no entry of the log; its name is in each marker."""
    assert empty.update("INSERT DATA { <urn:old> <urn:p> <urn:o> . <urn:old> <urn:q> <urn:o> }").ok
    adopted = adopt(source(empty), followed.target, order(), followed.log.position(0))
    put_back(followed.target, adopted.name, followed.worker, followed.log)
    followed.add("<urn:s> <urn:p> <urn:o> .")
    followed.delete("<urn:old> <urn:q> <urn:o> .")
    made = followed.increment()
    assert made.continues is not None
    assert (made.continues.of, made.continues.deleted, made.quads) == (adopted.name, 1, 2)
    assert made.base_content == adopted.base_content != b""
    assert followed.is_equal(made)
    empty_out(empty)
    assert put_back(followed.target, made.name, empty, followed.log).marker.base == adopted.base_content
    merged = merge_chain(followed.target, made.name, BackupRequest("", ""))
    assert (merged.base_content, merged.format) == (adopted.base_content, 2)

    empty_out(followed.worker)
    apply(followed.worker, followed.log)
    with pytest.raises(NoIncrement, match="can be continued"):
        followed.increment()  # a store without that content


def test_a_backup_of_another_branch_at_the_same_index_is_not_continued(followed: Followed) -> None:
    followed.add("<urn:s> <urn:p> <urn:o> .")
    both = followed.full()
    entries, hashes = list(followed.log.entries), list(followed.log.hashes)
    followed.add("<urn:lost> <urn:p> <urn:o> .")
    followed.full()
    followed.log.entries, followed.log.hashes = entries, hashes
    followed.log.add("<urn:won> <urn:p> <urn:o> .")
    put_back_to(followed, both.name)
    made = followed.increment()
    assert made.continues is not None
    assert (made.place.index, made.continues.of) == (2, both.name)
    assert followed.is_equal(made)


def test_filled_logs_of_many_pages(followed: Followed) -> None:
    followed.log = filled_log(40)
    followed.masters = [MasterOfLog(followed.log, page_bytes=2000)]
    apply(followed.worker, followed.log, 10)
    followed.full()
    apply(followed.worker, followed.log)
    made = followed.increment(part_bytes=3000)
    assert len(made.parts) > 3
    assert followed.is_equal(made)
