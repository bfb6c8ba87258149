"""Chains of incremental backups on a target: a damaged link is named, and no link that is needed is deleted (B15)."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from increments import CHAIN, CLUSTER, Followed, Killed, StepTarget
from oxigraph_process import OxigraphProcess
from pen import folder_target, put_back, s3_target

from e2e.lib.seaweedfs import ACCESS, SECRET, SeaweedProcess
from txlog.backup import (
    BackupManifest,
    BackupRequest,
    BackupTarget,
    apply_retention,
    catalogue,
    check_backup,
    delete_backup,
    merge_chain,
)
from txlog.backup.backup_errors import (
    BackupFault,
    BackupInUse,
    ContentDiffers,
    LinkDamaged,
    LinkMissing,
    ManifestDamaged,
    NeededByIncrement,
    NoIncrement,
    PartDamaged,
    PartMissing,
)
from txlog.backup.backup_manifest import MANIFEST_NAME, ManifestIncrement, ManifestPosition, encode_manifest
from txlog.backup.catalogue import COMPLETE, INCOMPLETE, CatalogueEntry, delete_incomplete_backups
from txlog.backup.read_lease import DELETING_PREFIX, DELETING_TTL_S, is_leased
from txlog.backup.retention import DAY_S, expired_backups
from txlog.backup.verification import read_manifest

NOW = 100 * DAY_S


@pytest.fixture
def followed(worker: OxigraphProcess, tmp_path: Path) -> Followed:
    made = Followed(worker, tmp_path / "backups")
    made.add("<urn:s> <urn:p> <urn:o> .", "<urn:t> <urn:p> <urn:o> <urn:g> .")
    return made


@pytest.fixture
def chain(followed: Followed) -> list[BackupManifest]:
    """A full backup and three that continue it, each with quads that came and quads that went."""
    made = [followed.full(why="schedule")]
    for n in range(3):
        followed.add(f"<urn:s:{n}> <urn:p> <urn:o> .", f"<urn:t:{n}> <urn:p> <urn:o> .")
        followed.delete("<urn:s> <urn:p> <urn:o> ." if n == 0 else f"<urn:s:{n - 1}> <urn:p> <urn:o> .")
        made.append(followed.increment(why="schedule"))
    return made


def states(target: BackupTarget) -> list[str]:
    return [each.state for each in catalogue(target)]


def refuse_broken_chains(target: BackupTarget) -> list[str]:
    """The names of what counts, each of which reads back; nothing on the target lacks a link."""
    listed = catalogue(target)
    assert {each.state for each in listed} <= {COMPLETE, INCOMPLETE}, listed
    whole = [each.name for each in listed if each.state == COMPLETE]
    for name in whole:
        check_backup(target, name)
    return whole


@pytest.mark.parametrize("link", range(3))
@pytest.mark.parametrize("spoil", ["no manifest", "flipped manifest", "no part", "flipped part", "another backup"])
def test_a_damaged_link_is_named(
    followed: Followed, empty: OxigraphProcess, chain: list[BackupManifest], link: int, spoil: str
) -> None:
    made = chain[link]
    folder = Path(followed.target.location, made.name)
    part = folder / made.all_parts[-1].name
    expected: type[BackupFault]
    if spoil == "no manifest":
        (folder / MANIFEST_NAME).unlink()
        expected = LinkMissing
    elif spoil == "flipped manifest":
        flip(folder / MANIFEST_NAME)
        expected = LinkDamaged
    elif spoil == "no part":
        part.unlink()
        expected = PartMissing
    elif spoil == "flipped part":
        flip(part)
        expected = PartDamaged
    else:
        forged = msgspec.structs.replace(made, digest="0" * 32)
        (folder / MANIFEST_NAME).write_bytes(encode_manifest(forged))
        expected = LinkMissing
    for later in chain[link + 1 :]:
        with pytest.raises(expected) as fault:
            check_backup(followed.target, later.name)
        assert made.name in str(fault.value)
        with pytest.raises(expected):
            put_back(followed.target, later.name, empty, followed.log)
        assert empty.quads() == []
    for earlier in chain[:link]:
        assert check_backup(followed.target, earlier.name) == earlier
    by_name = {each.name: each for each in catalogue(followed.target)}
    if spoil != "flipped part":  # the catalogue reads no parts
        for later in chain[link + 1 :]:
            found = by_name[later.name]
            assert found.state in ("LinkMissing", "LinkDamaged"), found
            assert made.name in found.error
    after = followed.either().manifest
    assert after.continues is None or after.continues.of not in [each.name for each in chain[link:]]
    assert followed.is_equal(after), "the next backup continues nothing that is damaged"


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_link_of_a_link_is_named(followed: Followed, chain: list[BackupManifest]) -> None:
    Path(followed.target.location, chain[0].name, MANIFEST_NAME).unlink()
    by_name = {each.name: each for each in catalogue(followed.target)}
    for later in chain[1:]:
        assert by_name[later.name].state == "LinkMissing"
        assert chain[0].name in by_name[later.name].error


# -- deletion


def test_what_is_continued_is_not_deleted(followed: Followed, chain: list[BackupManifest]) -> None:
    for made, later in pairwise(chain):
        with pytest.raises(NeededByIncrement, match=f"is needed by {later.name}"):
            delete_backup(followed.target, made.name)
    assert states(followed.target) == [COMPLETE] * 4
    assert not any(DELETING_PREFIX in each.key for each in followed.target.list_objects())
    for made in chain[::-1]:
        delete_backup(followed.target, made.name)
    assert list(followed.target.list_objects()) == []


def entry(name: str, days_ago: float, of: BackupManifest | None, template: BackupManifest) -> CatalogueEntry:
    made = msgspec.structs.replace(template, name=name, finished=NOW - days_ago * DAY_S)
    if of is not None:
        assert template.continues is not None
        increment = msgspec.structs.replace(template.continues, of=of.name, number=of.chain_number + 1)
        made = msgspec.structs.replace(made, increment=increment)
    return CatalogueEntry(name, COMPLETE, made, 1, 0.0, False)


def test_retention_keeps_what_a_kept_backup_needs(chain: list[BackupManifest]) -> None:
    old = entry("old", 9, None, chain[0])
    full = entry("full", 8, None, chain[0])
    first = entry("first", 7, full.manifest, chain[1])
    second = entry("second", 6, first.manifest, chain[1])
    aside = entry("aside", 5, full.manifest, chain[1])
    newest = entry("newest", 1, None, chain[0])
    listed = [old, full, first, second, aside, newest]

    def expired(*of: CatalogueEntry, keep: int = 1) -> list[str]:
        return expired_backups(of, CLUSTER, "uk", keep, None, NOW)

    assert expired(*listed, keep=3) == ["old"], "second needs first and full"
    assert expired(*listed, keep=2) == ["second", "first", "old"], "aside needs full"
    assert expired(*listed) == ["second", "aside", "first", "full", "old"], "who needs others goes first"
    manual = second._replace(manifest=msgspec.structs.replace(second.manifest, why="manual"))
    assert expired(old, full, first, manual, aside, newest) == ["aside", "old"]
    damaged = second._replace(state="PartMissing")
    assert expired(old, full, first, damaged, aside, newest) == ["aside", "old"], "a listing may lack a part"
    leased = second._replace(leased=NOW - 1)
    assert expired(old, full, first, leased, aside, newest) == ["aside", "old"]


def test_a_retention_that_is_killed_at_any_step_breaks_no_chain(
    followed: Followed, chain: list[BackupManifest], tmp_path: Path
) -> None:
    newest = followed.full(why="schedule")
    steps = 0
    while True:
        steps += 1
        place = copy_of(followed.target, tmp_path / f"killed-{steps}")
        target = StepTarget(place, lambda number, _, at=steps: kill_at(number, at))
        try:
            gone = apply_retention(target, CLUSTER, "uk", 1)
        except Killed:
            whole = refuse_broken_chains(place)
            assert newest.name in whole
            assert [each.name for each in chain if each.name in whole] == [each.name for each in chain][
                : len(whole) - 1
            ]
            apply_retention(place, CLUSTER, "uk", 1)
            delete_incomplete_backups(place, 0, now=time.time() + DAY_S)
            assert [each.name for each in catalogue(place)] == [newest.name]
            continue
        assert gone == [each.name for each in chain[::-1]]
        break
    assert steps > 30, "it was killed at each of them"


KINDS = st.tuples(
    st.integers(-1, 7),  # which earlier one it continues; -1, or a wrong number: it is a full one
    st.sampled_from(["schedule", "schedule", "manual", "split"]),
    st.sampled_from([COMPLETE, COMPLETE, COMPLETE, "PartMissing"]),
    st.booleans(),  # pinned
    st.booleans(),  # being read
)


@settings(deadline=None)
@given(kinds=st.lists(KINDS, max_size=8), keep=st.integers(1, 4), floor=st.none() | st.integers(0, 8))
def test_no_part_of_a_retention_takes_away_a_link(
    kinds: list[tuple[int, str, str, bool, bool]], keep: int, floor: int | None
) -> None:
    listed: list[CatalogueEntry] = []
    for number, (of, why, state, held, leased) in enumerate(kinds):
        before = listed[of].manifest if 0 <= of < number else None
        made = forged_manifest(number, before, why)
        listed.append(CatalogueEntry(made.name, state, made, 1, 0.0, held, leased=NOW if leased else 0.0))
    gone = expired_backups(listed, CLUSTER, "uk", keep, None, NOW, floor)
    left = {each.name: each.manifest for each in listed}
    for name in gone:
        del left[name]
        missing = {each.continues.of for each in left.values() if each is not None and each.continues is not None}
        assert missing <= left.keys(), f"after the deletion of {name}"
    newest = [each.name for each in listed[::-1] if each.state == COMPLETE and not each.held]
    assert not set(gone) & set(newest[:1])


def forged_manifest(number: int, before: BackupManifest | None, why: str) -> BackupManifest:
    increment: ManifestIncrement | msgspec.UnsetType = msgspec.UNSET
    if before is not None:
        increment = ManifestIncrement(
            of=before.name,
            place=before.place,
            digest=before.digest,
            number=before.chain_number + 1,
            added=0,
            deleted=0,
            state_bytes=0,
            deleted_parts=[],
        )
    return BackupManifest(
        format=4 if before is not None else 1,
        name=f"b-{number}",
        cluster=CLUSTER,
        data_center="uk",
        worker="w",
        engine="oxigraph",
        place=ManifestPosition(1, number, "00" * 16),
        quads=0,
        graphs=0,
        digest="00" * 16,
        parts=[],
        started=float(number),
        finished=float(number),
        why=why,  # type: ignore[arg-type]
        retention="normal",
        version="0",
        increment=increment,
    )


def kill_at(number: int, at: int) -> None:
    if number == at:
        raise Killed


def copy_of(target: BackupTarget, folder: Path) -> BackupTarget:
    made = folder_target(folder)
    for each in target.list_objects():
        made.write(each.key, target.read(each.key, 1 << 30))
    return made


def test_an_increment_that_is_killed_at_any_step_breaks_no_chain(
    followed: Followed, chain: list[BackupManifest], tmp_path: Path
) -> None:
    followed.add("<urn:new> <urn:p> <urn:o> .")
    before = {each.name for each in chain}
    steps = 0
    whole: list[bool] = []
    while True:
        steps += 1
        place = copy_of(followed.target, tmp_path / f"killed-{steps}")
        try:
            made = followed.increment(StepTarget(place, lambda number, _, at=steps: kill_at(number, at)))
        except Killed:
            found = refuse_broken_chains(place)
            assert before <= set(found)
            whole.append(len(found) > len(before))
            with pytest.raises((BackupInUse, NeededByIncrement)) if steps > 8 else pytest.raises(NeededByIncrement):
                delete_backup(place, chain[0].name)
            continue
        assert check_backup(place, made.name) == made
        break
    assert whole == sorted(whole), "once its manifest is there, it counts"
    assert len(whole) > 15


# -- two at once


def test_a_deletion_at_any_step_of_an_increment(
    followed: Followed, chain: list[BackupManifest], tmp_path: Path
) -> None:
    """Either the deletion sees the lease or the new backup, or the new backup is not made."""
    followed.add("<urn:new> <urn:p> <urn:o> .")
    steps, outcomes = 0, set[str]()
    while True:
        steps += 1
        place = copy_of(followed.target, tmp_path / f"at-{steps}")
        happened: list[str] = []

        def delete_now(
            number: int, _: str, at: int = steps, on: BackupTarget = place, seen: list[str] = happened
        ) -> None:
            if number == at:
                try:
                    delete_backup(on, chain[-1].name)
                except (BackupInUse, NeededByIncrement) as refused:
                    seen.append(refused.name)
                else:
                    seen.append("deleted")

        target = StepTarget(place, delete_now)
        try:
            made = followed.increment(target)
        except (NoIncrement, BackupFault) as given_up:
            happened.append(given_up.name)
            made = None
        whole = refuse_broken_chains(place)
        assert (made is not None) == (len(whole) > len(chain) - ("deleted" in happened))
        outcomes |= set(happened)
        if len(target.steps) < steps:
            break
    assert outcomes == {"deleted", "BackupInUse", "NoIncrement"}


def test_an_increment_at_any_step_of_a_deletion(
    followed: Followed, chain: list[BackupManifest], tmp_path: Path
) -> None:
    followed.add("<urn:new> <urn:p> <urn:o> .")
    steps, outcomes = 0, set[str]()
    while True:
        steps += 1
        place = copy_of(followed.target, tmp_path / f"at-{steps}")

        def continue_now(number: int, _: str, at: int = steps, on: BackupTarget = place) -> None:
            if number == at:
                try:
                    made = followed.increment(on)
                except NoIncrement as reason:
                    outcomes.add("being deleted" if "is being deleted" in str(reason) else str(reason))
                else:
                    assert made.continues is not None
                    outcomes.add("continues" if made.continues.of == chain[-1].name else "continues an earlier one")

        target = StepTarget(place, continue_now)
        try:
            delete_backup(target, chain[-1].name)
        except NeededByIncrement as refused:
            outcomes.add(refused.name)
        refuse_broken_chains(place)
        if len(target.steps) < steps:
            break
    assert outcomes == {"being deleted", "continues", "continues an earlier one", "NeededByIncrement"}


class Paused:
    """An increment in a thread, which stops before a step of its target until it is let go. It is killed once its
    manifest is written."""

    def __init__(self, followed: Followed, place: BackupTarget, at: int) -> None:
        self._stopped, self._released = Event(), Event()
        self._at = at
        self._target = StepTarget(place, self._stop)
        self._thread = Thread(target=self._run, args=(followed,))

    def start(self) -> None:
        """Returns when it has stopped, or ended before."""
        self._thread.start()
        assert self._stopped.wait(30)

    def end(self) -> None:
        self._released.set()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def _stop(self, number: int, _: str) -> None:
        if any(key.endswith(MANIFEST_NAME) for key in self._target.written):
            raise Killed
        if number == self._at:
            self._stopped.set()
            assert self._released.wait(30)

    def _run(self, followed: Followed) -> None:
        try:
            with suppress(NoIncrement, BackupFault, Killed):
                followed.increment(self._target)
        finally:
            self._stopped.set()


def test_an_increment_that_is_in_the_middle_at_any_step_of_a_deletion(
    followed: Followed, chain: list[BackupManifest], tmp_path: Path
) -> None:
    """Both write first and look then, so that one of them sees the other."""
    followed.add("<urn:new> <urn:p> <urn:o> .")
    outcomes: set[str] = set()
    counted = StepTarget(copy_of(followed.target, tmp_path / "counted"), lambda number, _: None)
    delete_backup(counted, chain[-1].name)
    for step in range(1, len(counted.steps) + 1):
        for middle in (6, 7, 8, 12, 20, 24, 28):
            place = copy_of(followed.target, tmp_path / f"{step}-{middle}")
            other = Paused(followed, place, middle)

            def begin(number: int, _: str, at: int = step, paused: Paused = other) -> None:
                if number == at:
                    paused.start()

            try:
                delete_backup(StepTarget(place, begin), chain[-1].name)
                outcomes.add("deleted")
            except (BackupInUse, NeededByIncrement) as refused:
                outcomes.add(refused.name)
            finally:
                other.end()
            refuse_broken_chains(place)
    assert outcomes >= {"deleted", "BackupInUse"}


def test_what_a_killed_deletion_announced_counts_for_an_hour(
    followed: Followed, chain: list[BackupManifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    followed.target.write(f"{chain[-1].name}/{DELETING_PREFIX}dead.json", b"{}\n")
    with pytest.raises(NoIncrement, match=f"{chain[-1].name} is being deleted"):
        followed.increment()
    later = time.time() + DELETING_TTL_S + 1
    monkeypatch.setattr("txlog.backup.read_lease.time.time", lambda: later)
    assert not is_leased(followed.target, chain[-1].name, DELETING_PREFIX, DELETING_TTL_S)
    assert followed.increment(chain_max=CHAIN).chain_number == 4


def test_an_increment_whose_lease_ran_out_is_none_without_its_link(
    followed: Followed, chain: list[BackupManifest]
) -> None:
    followed.add("<urn:new> <urn:p> <urn:o> .")
    last = Path(followed.target.location, chain[-1].name)

    def delete_at_the_end(_: int, name: str) -> None:
        if name == "write" and sum(step == "write" for step in target.steps) == 3:  # a lease, a part, the manifest
            shutil.rmtree(last)

    target = StepTarget(followed.target, delete_at_the_end)
    with pytest.raises(LinkMissing, match=chain[-1].name):
        followed.increment(target)
    assert refuse_broken_chains(followed.target) == [each.name for each in chain[:-1]]
    assert len(catalogue(followed.target)) == len(chain) - 1, "nothing of it is left"


def test_chains_in_an_object_store(
    followed: Followed, empty: OxigraphProcess, seaweed: SeaweedProcess, tmp_path: Path
) -> None:
    (tmp_path / "AWS_ACCESS_KEY_ID").write_text(ACCESS)
    (tmp_path / "AWS_SECRET_ACCESS_KEY").write_text(SECRET)
    followed.target = s3_target(seaweed.url, tmp_path.name, tmp_path)
    made = [followed.full(why="schedule")]
    for n in range(2):
        followed.add(f"<urn:s:{n}> <urn:p> <urn:o> .")
        made.append(followed.increment(why="schedule"))
    assert followed.is_equal(made[-1])
    assert put_back(followed.target, made[-1].name, empty, followed.log).quads == 4
    with pytest.raises(NeededByIncrement):
        delete_backup(followed.target, made[0].name)
    assert apply_retention(followed.target, CLUSTER, "uk", 1) == [], "the newest needs the others"
    newest = followed.full(why="schedule")
    assert apply_retention(followed.target, CLUSTER, "uk", 1) == [each.name for each in made[::-1]]
    assert {each.key.partition("/")[0] for each in followed.target.list_objects()} == {newest.name}


def test_a_merge_that_differs_is_none(followed: Followed, chain: list[BackupManifest]) -> None:
    last = chain[-1]
    forged = msgspec.structs.replace(last, digest="0" * 32)
    Path(followed.target.location, last.name, MANIFEST_NAME).write_bytes(encode_manifest(forged))
    with pytest.raises(ContentDiffers, match=last.name):
        merge_chain(followed.target, last.name, BackupRequest("", "", name="merged"))
    assert not any("merged" in each.key for each in followed.target.list_objects())
    assert merge_chain(followed.target, chain[-2].name, BackupRequest("", "", name="merged")).digest == chain[-2].digest


def test_a_manifest_of_a_link_is_read_by_its_name(followed: Followed, chain: list[BackupManifest]) -> None:
    copied = Path(followed.target.location, "copied")
    copied.mkdir()
    (copied / MANIFEST_NAME).write_bytes(encode_manifest(chain[1]))
    with pytest.raises(ManifestDamaged):
        read_manifest(followed.target, "copied")
