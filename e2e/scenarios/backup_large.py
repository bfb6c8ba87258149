"""``python -m e2e.scenarios.backup_large``: a large database backed up and restored, by the commands that people type,
and how long that takes; then the very same backup spoilt, in every way that must be refused by name, with nothing
changed.

One data centre with two workers, real Oxigraphs, filled with a million quads. The backup goes to a folder. It is
refused for an empty store (``txlog restore``) and for a worker that is at work (``txlog worker rebuild``), which goes
on as it was; what was spoilt is put back each time. At the end the backup, whole again, fills that empty store.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from e2e.lib.cluster.local import LocalCluster, cluster_up, run_txlog
from e2e.lib.cluster.stores import empty_oxigraph
from e2e.lib.cluster.supervised import supervised_up
from e2e.lib.load.store_fill import fill_stores
from e2e.lib.report import BenchReport, CannotMeasure, build_table, console, print_table
from e2e.scenarios.divergence import GRAPHS, MANIFEST
from txlog.backup.backup_manifest import MANIFEST_NAME as MANIFEST_FILE
from txlog.backup.backup_manifest import decode_manifest, encode_manifest
from txlog.backup.pinned_snapshot import read_system_graphs
from txlog.workers import ADAPTERS
from txlog.workers.adapter import SystemGraphs
from txlog.workers.digest import Digest, digest_worker
from txlog.workers.http_transport import HttpTransport

STATE: Final = Path(".txlog-backup-large")
QUADS: Final = 1_000_000
START_S: Final = 60.0
PATIENCE_S: Final = 1800.0
READ_S: Final = 300.0
SOURCE: Final = "uk-worker-1"
OTHER_WORKER: Final = "uk-worker-2"
ADAPTER: Final = ADAPTERS["oxigraph"]


class StoreContent(NamedTuple):
    """What a store holds, as of two moments: how much, and where it stands or is being loaded."""

    quads: int
    system: SystemGraphs


def read_store_content(url: str) -> StoreContent:
    with HttpTransport(url, READ_S) as transport:
        count = ADAPTER.parse_size(transport.send(ADAPTER.size()))
        return StoreContent(count, read_system_graphs(ADAPTER, transport))


def digest_store(url: str) -> Digest:
    with HttpTransport(url, READ_S) as transport:
        return digest_worker(ADAPTER, transport)


class BackupOnDisk(NamedTuple):
    """One that lies in a folder, and can be spoilt there."""

    folder: Path
    name: str

    @property
    def parts(self) -> list[Path]:
        return sorted((self.folder / self.name).glob("part-*"))

    @property
    def manifest(self) -> Path:
        return self.folder / self.name / MANIFEST_FILE

    @contextmanager
    def corrupted(self, path: Path, change: Callable[[Path], object]) -> Iterator[None]:
        """One of its files is something else, until the end of the block."""
        whole = path.read_bytes()
        try:
            change(path)
            yield
        finally:
            path.write_bytes(whole)


def flip_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate_file(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def move_to_other_branch(path: Path) -> None:
    """An intact manifest of the same index under another hash."""
    made = decode_manifest(path.parent.name, path.read_bytes())
    place = msgspec.structs.replace(made.place, hash=made.place.hash[::-1])
    path.write_bytes(encode_manifest(msgspec.structs.replace(made, place=place)))


class RefusalChecks:
    """Asks for what must be refused, and looks at both stores before and after."""

    def __init__(self, cluster: LocalCluster, backup: BackupOnDisk, empty: str) -> None:
        self.cluster = cluster
        self.backup = backup
        self.empty = empty
        self.in_rotation = next(worker.url for worker in cluster.topology.workers if worker.name == OTHER_WORKER)
        self.messages: dict[str, str] = {}
        self.wrong: list[str] = []

    def of_backup(self, what: str, name: str, *, foreign: str | None = None) -> None:
        """``foreign``: a master of another cluster is asked for the restore; its workers are not ours to rebuild."""
        before = read_store_content(self.empty), read_store_content(self.in_rotation)
        began = time.monotonic()
        where: tuple[str | Path, ...] = ("--target", self.backup.folder)
        restore = ("restore", self.backup.name, "--into", self.empty, *where)
        if foreign is not None:
            said = [self._refusal_name(*restore, "--master", foreign)]
        else:
            ours = ("--state", self.cluster.state.root)
            rebuild = ("worker", "rebuild", OTHER_WORKER, "--yes", "--from", self.backup.name, *where)
            said = [self._refusal_name(*restore, *ours), self._refusal_name(*rebuild, *ours)]
        self.messages[what] = found = " / ".join(sorted(set(said)))
        if found != name:
            self.wrong.append(f"{what}: {found or 'not refused'} instead of {name}")
        if (read_store_content(self.empty), read_store_content(self.in_rotation)) != before:
            self.wrong.append(f"{what}: a store has changed")
        console.print(f"{what}: {found}, after {time.monotonic() - began:.1f} s", highlight=False)

    def _refusal_name(self, *command: str | Path) -> str:
        """The name of the refusal; "" when it was none."""
        try:
            run_txlog(*command, timeout_s=READ_S)
        except CannotMeasure as refused:
            told = str(refused).rpartition(" ended with 1: ")[2]
            return told.partition(": ")[0].strip()
        return ""


def measure(cluster: LocalCluster, report: BenchReport, folder: Path, quads: int) -> None:
    target = folder / "backups"
    target.mkdir()
    console.print(f"filling the stores with {quads:,} quads ...", highlight=False)
    fill_stores(cluster, quads, GRAPHS)
    cluster.wait_applying(PATIENCE_S)
    cluster.wait_converged(PATIENCE_S)
    source = next(worker.url for worker in cluster.topology.workers if worker.name == SOURCE)
    state = ("--state", cluster.state.root)
    made = _json("backup", "create", "--worker", SOURCE, "--target", target, "--wait", str(READ_S), *state)
    report.equal("quads", made["quads"], quads)
    report.figure("backup_s", float(made["seconds"]))
    report.figure("bytes", made["bytes"])
    report.figure("parts", len(made["parts"]))
    backup = BackupOnDisk(target, made["name"])
    with empty_oxigraph(folder / "empty") as (empty, _):
        before = digest_store(source)
        refusals = check_refusals(cluster, backup, empty, folder)
        done = _json("restore", backup.name, "--into", empty, "--target", target, *state)
        report.figure("restore_s", float(done["seconds"]))
        found = [digest_store(empty), digest_store(source), digest_store(refusals.in_rotation)]
        report.equal("digests_equal", all(one == before for one in found), True)
        report.require(
            "it stands where it was taken", done["position"].endswith(made["position"]["hash"]), done["position"]
        )
    report.nested({"refused": refusals.messages})
    report.require("each is refused by its name, and nothing is changed", not refusals.wrong, "; ".join(refusals.wrong))
    print_table(
        build_table(
            f"{quads:,} quads", ("spoilt", "refused as"), [[what, said] for what, said in refusals.messages.items()]
        )
    )


def check_refusals(cluster: LocalCluster, backup: BackupOnDisk, empty: str, folder: Path) -> RefusalChecks:
    refusals = RefusalChecks(cluster, backup, empty)
    middle = backup.parts[len(backup.parts) // 2]
    for what, name, path, change in (
        ("a flipped byte", "PartDamaged", middle, flip_byte),
        ("a truncated part", "PartTruncated", middle, truncate_file),
        ("a missing part", "PartMissing", middle, Path.unlink),
        ("a position off the chain", "OffTheChain", backup.manifest, move_to_other_branch),
    ):
        with backup.corrupted(path, change):
            refusals.of_backup(what, name)
    with supervised_up(folder / "other") as other:
        refusals.of_backup("a wrong cluster's backup", "OtherCluster", foreign=other.masters[0])
    run_txlog(
        "backup", "verify", backup.name, "--target", backup.folder, "--state", cluster.state.root, timeout_s=READ_S
    )
    return refusals


def _json(*command: str | Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(run_txlog(*command, "--json", timeout_s=PATIENCE_S))
    return told


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make backup-large", description="a large backup: its figures and refusals")
    parser.add_argument("--quads", type=int, default=QUADS)
    parser.add_argument("--state", type=Path, default=STATE)
    options = parser.parse_args(arguments)
    report = BenchReport("a large backup")
    work = Path(tempfile.mkdtemp(prefix=".txlog-backup-large-", dir=options.state.absolute().parent))
    try:
        manifest = work / "uk.yaml"
        manifest.write_text(MANIFEST.replace("replicas: 3", "replicas: 2"))
        with report.part("the backup"), cluster_up(options.state, (manifest,), wait_s=START_S * 5) as cluster:
            measure(cluster, report, work, options.quads)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
