"""A chain that may not grow is merged into a full backup, which the next incremental one continues."""

from __future__ import annotations

from pathlib import Path

import pytest
from increments import Followed, Killed, StepTarget
from oxigraph_process import OxigraphProcess
from pen import CLUSTER, order, put_back

from txlog.backup import ChainBounds, catalogue, check_backup, increment_writer, take_incremental_or_full
from txlog.backup.backup_manifest import FORMAT_VERSION, MANIFEST_NAME, MERGED_NAME
from txlog.backup.catalogue import COMPLETE, INCOMPLETE, MERGES_UNKNOWN, count_merges
from txlog.backup.retention import DAY_S, apply_retention, expired_backups
from txlog.backup.verification import read_chain, read_manifest


@pytest.fixture
def followed(worker: OxigraphProcess, tmp_path: Path) -> Followed:
    made = Followed(worker, tmp_path / "backups")
    made.add("<urn:s> <urn:p> <urn:o> .", "<urn:t> <urn:p> <urn:o> <urn:g> .")
    return made


def step(followed: Followed, n: int) -> None:
    followed.add(f"<urn:s:{n}> <urn:p> <urn:o> .")
    if n:
        followed.delete(f"<urn:s:{n - 1}> <urn:p> <urn:o> .")


def test_merges_bound_a_chain_until_a_worker_is_due(followed: Followed, empty: OxigraphProcess) -> None:
    numbers, merged, reasons = [], [], []
    for n in range(9):
        step(followed, n)
        made, why, name = followed.either(chain_max=2, merges_max=2, why="schedule")
        numbers.append(made.chain_number)
        merged.append(count_merges(followed.target, name) if name else 0)
        reasons.append("the 2. merge in a row" in why)
        assert followed.is_equal(made)
        if name:
            full = check_backup(followed.target, name)
            assert (full.format, full.chain_number, full.why, full.retention) == (
                FORMAT_VERSION,
                0,
                "schedule",
                "normal",
            )
            assert read_chain(followed.target, made)[0].name == name
            put_back(followed.target, name, empty, followed.log)
            assert empty.update("DROP ALL").ok
    assert numbers == [0, 1, 2, 1, 2, 1, 2, 0, 1]
    assert merged == [0, 0, 0, 1, 0, 2, 0, 0, 0]
    assert [n for n, is_due in enumerate(reasons) if is_due] == [7]


def test_a_merge_is_what_the_worker_held_at_that_position(followed: Followed) -> None:
    made = [followed.either(chain_max=1, merges_max=9).manifest for n in range(2) if step(followed, n) is None]
    held = followed.digest()
    followed.add("<urn:later> <urn:p> <urn:o> .")
    name = followed.either(chain_max=1, merges_max=9).merged
    full = check_backup(followed.target, name)
    assert (full.place, full.quads, full.digest) == (made[1].place, held.quads, f"{held.total:032x}")


def test_changes_of_half_of_the_full_backup_are_merged(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(increment_writer, "SMALL_BYTES", 0)
    followed.add(*(f"<urn:s:{n}> <urn:p> <urn:o> ." for n in range(10)))
    followed.full()
    followed.add(*(f"<urn:t:{n}> <urn:p> <urn:o> ." for n in range(3)))
    last = followed.increment()
    followed.delete(*(f"<urn:s:{n}> <urn:p> <urn:o> ." for n in range(4)))
    made, why, merged = followed.either(merges_max=1)
    assert (made.chain_number, why) == (1, "")
    assert read_manifest(followed.target, merged).place == last.place
    followed.delete(*(f"<urn:s:{n}> <urn:p> <urn:o> ." for n in range(4, 10)))
    made, why, merged = followed.either(merges_max=9)
    assert made.chain_number == 0, "the change alone is more than half, so a merge does not help"
    assert "more than half" in why
    assert followed.is_equal(made)


def test_without_leave_nothing_is_merged(followed: Followed) -> None:
    for n in range(3):
        step(followed, n)
        made, _, merged = followed.either(chain_max=1)
        assert not merged
    assert made.chain_number == 0
    assert [each.is_merged for each in catalogue(followed.target)] == [False] * 3


def test_an_unreadable_note_means_that_a_worker_is_due(followed: Followed) -> None:
    for n in range(3):
        step(followed, n)
        made, _, merged = followed.either(chain_max=1, merges_max=9)
    Path(followed.target.location, merged, MERGED_NAME).write_bytes(b"{}")
    assert count_merges(followed.target, merged) == MERGES_UNKNOWN
    step(followed, 3)
    made, why, again = followed.either(chain_max=1, merges_max=9)
    assert (made.chain_number, again) == (0, "")
    assert "in a row" in why


def test_a_chain_with_a_damaged_link_is_not_merged(followed: Followed) -> None:
    made = []
    for n in range(3):
        step(followed, n)
        made.append(followed.either(chain_max=2, merges_max=9).manifest)
    part = Path(followed.target.location, made[1].name, made[1].parts[0].name)
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    step(followed, 3)
    after, why, merged = followed.either(chain_max=2, merges_max=9)
    assert (after.chain_number, merged) == (0, "")
    assert "cannot be merged" in why
    assert followed.is_equal(after)


def test_a_merge_that_is_killed_at_any_step_breaks_nothing(followed: Followed, tmp_path: Path) -> None:
    for n in range(3):
        step(followed, n)
        followed.either(chain_max=2, merges_max=9)
    before = {each.name for each in catalogue(followed.target)}
    step(followed, 3)
    steps = 0
    while True:
        steps += 1
        assert steps < 200

        def kill(number: int, _: str, at: int = steps) -> None:
            if number == at:
                raise Killed

        inner = followed.target
        try:
            done = take_incremental_or_full(followed.source, StepTarget(inner, kill), order(), ChainBounds(2, 9))
        except Killed:
            listed = catalogue(inner)
            assert {each.state for each in listed} <= {COMPLETE, INCOMPLETE}
            assert before <= {each.name for each in listed if each.state == COMPLETE}
            for each in listed:
                if each.name not in before:
                    keys = {one.key for one in inner.list_objects(f"{each.name}/")}
                    if each.state == COMPLETE and each.manifest is not None and not each.manifest.chain_number:
                        assert f"{each.name}/{MERGED_NAME}" in keys, "a merged one says so as soon as it counts"
                    inner.delete(sorted(keys, key=lambda key: not key.endswith(MANIFEST_NAME)))
            continue
        assert (done.manifest.chain_number, bool(done.merged)) == (1, True)
        break
    assert steps > 30


def test_the_old_chain_goes_when_its_time_is_over(followed: Followed) -> None:
    for n in range(7):  # two merges: the first one goes, too
        step(followed, n)
        made = followed.either(chain_max=2, merges_max=9, why="schedule").manifest
    apply_retention(followed.target, CLUSTER, "uk", keep=1)
    left = {each.name for each in catalogue(followed.target)}
    assert left == {each.name for each in read_chain(followed.target, made)}


def test_for_the_window_the_merged_one_is_enough(followed: Followed) -> None:
    for n in range(4):
        step(followed, n)
        made, _, merged = followed.either(chain_max=2, merges_max=9, why="schedule")
    listed = catalogue(followed.target)
    assert merged
    floor = made.place.index - 1
    late = max(each.manifest.finished for each in listed if each.manifest) + 100 * DAY_S
    place = read_manifest(followed.target, merged).place.index
    gone = expired_backups(listed, CLUSTER, "uk", 1, None, late, floor=place)
    kept = {each.name for each in listed} - set(gone)
    assert kept == {made.name, merged}, "what it was merged from is needed by nothing"
    assert floor >= place
