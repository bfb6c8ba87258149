"""What is refused, by name, and that nothing was changed by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from log_in_memory import MemoryLog
from oxigraph_process import OxigraphProcess
from pen import CLUSTER, apply, back_up, chain_of, everything, filled_log, folder_target, into, put_back

from txlog.backup import (
    BackupManifest,
    BackupTarget,
    RestoreTarget,
    catalogue,
    check_backup,
    read_manifest,
    restore_backup,
)
from txlog.backup.backup_errors import (
    BackupFault,
    ContentDiffers,
    Incomplete,
    ManifestDamaged,
    NoSuchBackup,
    OffTheChain,
    OtherCluster,
    OtherEngine,
    PartDamaged,
    PartMissing,
    PartTruncated,
    UnknownFormat,
    WorkerLoading,
    WorkerNotEmpty,
)
from txlog.backup.backup_manifest import MANIFEST_NAME, encode_manifest
from txlog.backup.dataset_load import start_load
from txlog.model.errors import TxLogError
from txlog.workers.oxigraph import OxigraphAdapter


@dataclass
class Case:
    """A backup in a folder that a test spoils."""

    folder: Path
    target: BackupTarget
    log: MemoryLog
    made: BackupManifest

    @property
    def parts(self) -> list[Path]:
        return [self.folder / self.made.name / part.name for part in self.made.parts]

    @property
    def manifest(self) -> Path:
        return self.folder / self.made.name / MANIFEST_NAME

    def forge(self, **fields: object) -> None:
        """An intact manifest that says something else."""
        self.manifest.write_bytes(encode_manifest(msgspec.structs.replace(self.made, **fields)))


@pytest.fixture
def case(worker: OxigraphProcess, tmp_path: Path) -> Case:
    log = filled_log(30)
    apply(worker, log, 20)
    target = folder_target(tmp_path / "backups")
    return Case(tmp_path / "backups", target, log, back_up(worker, target))


def flip(path: Path, at: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def refused(case: Case, worker: OxigraphProcess, fault: type[TxLogError], match: str | None = None) -> None:
    before = everything(worker)
    with pytest.raises(fault, match=match):
        put_back(case.target, case.made.name, worker, case.log)
    assert everything(worker) == before


SPOILS: list[tuple[str, type[BackupFault], Callable[[Case], object]]] = [
    ("a flipped bit in the first part", PartDamaged, lambda c: flip(c.parts[0], 100)),
    ("a flipped bit in the last part", PartDamaged, lambda c: flip(c.parts[-1], -1, 7)),
    ("a flipped bit in the manifest", ManifestDamaged, lambda c: flip(c.manifest, 100)),
    ("a part that is cut", PartTruncated, lambda c: c.parts[1].write_bytes(c.parts[1].read_bytes()[:-1])),
    ("an empty part", PartTruncated, lambda c: c.parts[1].write_bytes(b"")),
    ("a part with more behind it", PartDamaged, lambda c: c.parts[1].write_bytes(c.parts[1].read_bytes() + b"\0")),
    ("a missing part", PartMissing, lambda c: c.parts[1].unlink()),
    ("two parts exchanged", BackupFault, lambda c: c.parts[0].rename(c.parts[1])),
    ("no manifest", Incomplete, lambda c: c.manifest.unlink()),
    ("an empty manifest", ManifestDamaged, lambda c: c.manifest.write_bytes(b"")),
    ("half a manifest", ManifestDamaged, lambda c: c.manifest.write_bytes(c.manifest.read_bytes()[:300])),
    ("another format", UnknownFormat, lambda c: c.forge(format=5)),
    ("an incremental backup of nothing", ManifestDamaged, lambda c: c.forge(format=4)),
    ("no transactions", ManifestDamaged, lambda c: c.forge(format=3, undecided=["uk-1"])),
    ("a manifest of another backup", ManifestDamaged, lambda c: c.forge(name="other")),
    ("another cluster", OtherCluster, lambda c: c.forge(cluster="cd" * 16)),
    ("fewer parts than there were", ContentDiffers, lambda c: c.forge(parts=c.made.parts[:-1])),
    ("a part twice", ContentDiffers, lambda c: c.forge(parts=[*c.made.parts, c.made.parts[0]])),
    ("another digest", ContentDiffers, lambda c: c.forge(digest="0" * 32)),
    ("another count", ContentDiffers, lambda c: c.forge(quads=c.made.quads + 1)),
    ("another engine", OtherEngine, lambda c: c.forge(engine="other")),
]


@pytest.mark.parametrize(("fault", "spoil"), [s[1:] for s in SPOILS], ids=[s[0] for s in SPOILS])
def test_a_spoilt_backup(
    case: Case, empty: OxigraphProcess, fault: type[BackupFault], spoil: Callable[[Case], object]
) -> None:
    spoil(case)
    refused(case, empty, fault)
    assert everything(empty) == ([], [])


def test_every_byte_of_a_backup_counts(case: Case) -> None:
    seen = set()
    for path, faults in [(case.manifest, {"ManifestDamaged"}), *((p, {"PartDamaged"}) for p in case.parts)]:
        whole = path.read_bytes()
        for at in range(len(whole)):
            flip(path, at, at % 8)
            with pytest.raises(BackupFault) as found:
                check_backup(case.target, case.made.name)
            assert found.value.name in faults, (path.name, at, str(found.value))
            seen.add(found.value.name)
            path.write_bytes(whole)
    assert seen == {"ManifestDamaged", "PartDamaged"}
    assert check_backup(case.target, case.made.name) == case.made


def test_every_length_of_a_part_but_its_own_is_refused(case: Case) -> None:
    path = case.parts[-1]
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(PartTruncated):
            check_backup(case.target, case.made.name)
        assert catalogue(case.target)[0].state == "PartTruncated"
    path.write_bytes(whole)
    assert catalogue(case.target)[0].state == "complete"


def test_positions_that_are_not_on_the_log(case: Case, empty: OxigraphProcess) -> None:
    other = filled_log(30, 2)
    for case.log in (other, filled_log(3)):  # another branch; one that ends before it
        refused(case, empty, OffTheChain)


def test_a_worker_that_is_not_empty(case: Case, empty: OxigraphProcess) -> None:
    apply(empty, case.log, 3)
    refused(case, empty, WorkerNotEmpty, "is at index 3")


@pytest.mark.parametrize(
    "text", ["INSERT DATA { <urn:s> <urn:p> 1 }", "INSERT DATA { GRAPH <urn:g> { <urn:s> <urn:p> 1 } }"]
)
def test_a_worker_with_data_of_others(case: Case, empty: OxigraphProcess, text: str) -> None:
    empty.update(text)
    refused(case, empty, WorkerNotEmpty, "without a position")
    empty.update("DROP ALL")
    empty.update("CREATE GRAPH <urn:mine>")
    refused(case, empty, WorkerNotEmpty, "without a position")


def test_data_that_comes_at_the_last_moment_is_not_written_to(case: Case, empty: OxigraphProcess) -> None:
    """The check and the beginning are two requests: the beginning itself must look again."""

    class Late(OxigraphAdapter):
        def begin_loading(self, *arguments: object, **named: object) -> object:  # type: ignore[override]
            empty.update("INSERT DATA { <urn:s> <urn:p> 1 }")
            return super().begin_loading(*arguments, **named)  # type: ignore[arg-type]

    late = RestoreTarget("uk-worker-2", Late(), empty.transport)
    with pytest.raises(WorkerNotEmpty):
        restore_backup(case.target, case.made.name, late, CLUSTER, chain_of(case.log))
    assert len(empty.quads()) == 1
    assert empty.graphs() == []


def test_a_worker_that_is_being_restored(case: Case, empty: OxigraphProcess) -> None:
    start_load(into(empty), case.made.position, emptying=False)
    refused(case, empty, WorkerLoading, "begin again: txlog restore --again")
    assert put_back(case.target, case.made.name, empty, case.log, again=True).quads == 200


def test_again_is_no_way_around_the_emptiness(case: Case, empty: OxigraphProcess) -> None:
    apply(empty, case.log, 3)
    before = everything(empty)
    with pytest.raises(WorkerNotEmpty):
        put_back(case.target, case.made.name, empty, case.log, again=True)
    assert everything(empty) == before


@pytest.mark.parametrize("name", ["none", "", "..", "a/b", "../backups"])
def test_names_that_are_none(case: Case, name: str) -> None:
    with pytest.raises(NoSuchBackup):
        read_manifest(case.target, name)
