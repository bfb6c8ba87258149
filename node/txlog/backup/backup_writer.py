"""Takes a backup: snapshot → parts → read back → manifest, last."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

import msgspec

from txlog.backup.backup_errors import ManifestDamaged, NameTaken, PartMissing
from txlog.backup.backup_manifest import (
    MANIFEST_BYTES_MAX,
    MANIFEST_NAME,
    MERGED_NAME,
    NAME_PATTERN,
    BackupManifest,
    BackupPart,
    BackupReason,
    ManifestIncrement,
    Retention,
    encode_manifest,
    find_format,
    to_manifest_position,
)
from txlog.backup.chain_check import read_undecided
from txlog.backup.checked_json import encode_checked
from txlog.backup.part_codec import PART_BYTES, PartWriter, coalesce, refuse_blank_nodes, tee
from txlog.backup.pinned_snapshot import PAUSE_TIMEOUT_S, SourceWorker, open_snapshot
from txlog.backup.progress import BackupProgress, ProgressCallback, no_progress, report_progress
from txlog.backup.target import BackupTarget
from txlog.backup.verification import compare_digest, read_contents
from txlog.model.entry import Position
from txlog.model.errors import BadInput, TxLogError
from txlog.workers.digest import Digest, digest

VERSION: Final = "0.1.0"


class BackupRequest(NamedTuple):
    """A requested backup. ``name``: by default built from position, reason and time. ``at``: exactly this index.
    ``merges``: how many times in a row it was merged since a worker was read; 0 for a worker's own."""

    cluster: str
    data_center: str
    why: BackupReason = "manual"
    retention: Retention = "normal"
    name: str | None = None
    at: int | None = None
    deadline_s: float = PAUSE_TIMEOUT_S
    part_bytes: int = PART_BYTES
    merges: int = 0


def take_backup(
    source: SourceWorker, target: BackupTarget, order: BackupRequest, on_progress: ProgressCallback = no_progress
) -> BackupManifest:
    """Takes a backup; it is complete and verified on return. A failure leaves at most parts without a manifest, which
    it deletes as far as the target allows.

    Raises the errors of the worker, of the masters, of the target (:mod:`txlog.backup.backup_errors`),
    :class:`~txlog.backup.backup_errors.NotCanonical`, :class:`~txlog.backup.backup_errors.NameTaken`.
    """
    on_progress(BackupProgress("holding", 0, None, source.name))
    size = source.adapter.parse_size(source.transport.send(source.adapter.size()))
    on_wait: Callable[[str], None] = lambda text: on_progress(BackupProgress("holding", 0, None, text))  # noqa: E731
    with open_snapshot(source, order.at, order.deadline_s, on_wait) as (marker, chunks):
        pieces = refuse_blank_nodes(coalesce(chunks), source.name)
        return write_backup(
            pieces,
            marker.position,
            source.name,
            source.adapter.engine,
            target,
            order,
            on_progress,
            size,
            marker.base,
            read_undecided(source.masters, marker.position),
        )


def write_backup(
    pieces: Iterator[bytes],
    position: Position,
    worker: str,
    engine: str,
    target: BackupTarget,
    order: BackupRequest,
    on_progress: ProgressCallback = no_progress,
    quads_about: int | None = None,
    base: bytes = b"",
    undecided: Sequence[str] = (),
    expected: BackupManifest | None = None,
) -> BackupManifest:
    """Writes the canonical N-Quads in ``pieces`` as the backup at ``position``. ``base``: of the worker's marker.
    ``undecided``: the synchronous transactions that are open there. ``expected``: the manifest of a backup of the same
    content (:class:`~txlog.backup.backup_errors.ContentDiffers`)."""
    started = time.time()
    name = claim_name(target, order, position, started)
    with own_objects(target, name) as write:
        writer = PartWriter(write, order.part_bytes)
        found = digest(tee(report_progress("copying", quads_about, on_progress, pieces), writer.feed))
        content = BackupContent(position, found, writer.finish(), base, undecided)
        manifest = build_manifest(name, order, worker, engine, content, started)
        if expected is not None:
            compare_digest(expected, found)
        compare_digest(
            manifest, digest(report_progress("reading back", found.quads, on_progress, read_contents(target, manifest)))
        )
        if order.merges:  # before the manifest: a complete one says what it is
            write(MERGED_NAME, encode_checked({"merges": order.merges}))
        write_manifest(target, manifest, write)
    return manifest


class BackupContent(NamedTuple):
    """``state``: of all that the backup restores. ``base``, ``undecided``: as of :func:`write_backup`. ``increment``:
    what makes it an incremental one."""

    position: Position
    state: Digest
    parts: list[BackupPart]
    base: bytes
    undecided: Sequence[str]
    increment: ManifestIncrement | msgspec.UnsetType = msgspec.UNSET


def build_manifest(
    name: str, order: BackupRequest, worker: str, engine: str, content: BackupContent, started: float
) -> BackupManifest:
    """The manifest of a backup that ends now."""
    base, undecided, increment = content.base, content.undecided, content.increment
    return BackupManifest(
        format=find_format(
            has_base=bool(base), has_undecided=bool(undecided), is_increment=increment is not msgspec.UNSET
        ),
        base=base.hex() if base else msgspec.UNSET,
        undecided=list(undecided) or msgspec.UNSET,
        increment=increment,
        name=name,
        cluster=order.cluster,
        data_center=order.data_center,
        worker=worker,
        engine=engine,
        place=to_manifest_position(content.position),
        quads=content.state.quads,
        graphs=sum(1 for graph in content.state.graphs if graph),
        digest=f"{content.state.total:032x}",
        parts=content.parts,
        started=started,
        finished=time.time(),
        why=order.why,
        retention=order.retention,
        version=VERSION,
    )


def claim_name(target: BackupTarget, order: BackupRequest, position: Position, started: float) -> str:
    """The name of a requested backup. :class:`~txlog.model.errors.BadInput` for one that is none,
    :class:`~txlog.backup.backup_errors.NameTaken` for one that is on the target."""
    name = order.name or generate_name(position, order.why, started)
    if not NAME_PATTERN.match(name):
        raise BadInput(f"the name {name[:80]!r}: expected lower-case letters, digits, - and ., at most 120")
    if any(True for _ in target.list_objects(f"{name}/")):
        raise NameTaken(f"{name} is on {target.location} already; choose another name")
    return name


@contextmanager
def own_objects(target: BackupTarget, name: str) -> Iterator[Callable[[str, bytes], None]]:
    """Writes objects of this backup by their names within it. They are deleted again when the context fails."""
    written: list[str] = []

    def write(object_name: str, data: bytes) -> None:
        written.append(f"{name}/{object_name}")  # also when the answer is lost
        target.write(written[-1], data)

    try:
        yield write
    except (NameTaken, PartMissing):
        raise  # another process writes this backup: what is there is its own
    except BaseException:
        with suppress(TxLogError):
            _delete_own(target, name, written)
        raise


def write_manifest(target: BackupTarget, manifest: BackupManifest, write: Callable[[str, bytes], None]) -> None:
    """Writes the manifest, last of all, and reads it back."""
    raw = encode_manifest(manifest)
    write(MANIFEST_NAME, raw)
    if target.read(f"{manifest.name}/{MANIFEST_NAME}", MANIFEST_BYTES_MAX) != raw:
        raise ManifestDamaged(
            f"{target.location} gives back another manifest of {manifest.name} than was written; try again"
        )


def _delete_own(target: BackupTarget, name: str, written: Sequence[str]) -> None:
    """Deletes what this process wrote, unless another one has finished the backup of this name meanwhile."""
    manifest = f"{name}/{MANIFEST_NAME}"
    if manifest in written or all(each.key != manifest for each in target.list_objects(f"{name}/")):
        target.delete([manifest] * (manifest in written) + [key for key in written if key != manifest])


def generate_name(position: Position, why: BackupReason, at: float) -> str:
    """A unique name that sorts by index."""
    when = time.strftime("%Y%m%dt%H%M%Sz", time.gmtime(at))
    return f"{position.index:012}-{position.hash.hex()[:8]}-{why}-{when}-{secrets.token_hex(3)}"
