"""Verifies that a backup is what was written. It reads and compares everything, and restores nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from txlog.backup.backup_chain import check_link
from txlog.backup.backup_errors import (
    BackupFault,
    ContentDiffers,
    Incomplete,
    LinkDamaged,
    LinkMissing,
    NoSuchBackup,
    ObjectMissing,
)
from txlog.backup.backup_manifest import (
    MANIFEST_BYTES_MAX,
    MANIFEST_NAME,
    NAME_PATTERN,
    BackupManifest,
    BackupPart,
    decode_manifest,
)
from txlog.backup.part_codec import batch_lines, read_part
from txlog.backup.progress import ProgressCallback, no_progress, report_progress
from txlog.backup.quad_changes import PIECE_BYTES, QuadChanges
from txlog.backup.target import BackupTarget
from txlog.workers.digest import Digest, digest


def read_manifest(target: BackupTarget, name: str) -> BackupManifest:
    """:class:`~txlog.backup.backup_errors.NoSuchBackup`, ``Incomplete``, ``ManifestDamaged`` or ``UnknownFormat``."""
    if not NAME_PATTERN.match(name):
        raise NoSuchBackup(f"{name[:80]!r} is no name of a backup; see txlog backup list")
    try:
        raw = target.read(f"{name}/{MANIFEST_NAME}", MANIFEST_BYTES_MAX)
    except ObjectMissing:
        if any(True for _ in target.list_objects(f"{name}/")):
            raise Incomplete(
                f"{name} on {target.location} has no manifest: it was not finished; see txlog backup list"
            ) from None
        raise NoSuchBackup(f"{name} is not on {target.location}; see txlog backup list") from None
    return decode_manifest(name, raw)


def read_chain(target: BackupTarget, manifest: BackupManifest) -> list[BackupManifest]:
    """The full backup, and the incremental ones from there to this one; a full backup alone.
    :class:`~txlog.backup.backup_errors.LinkMissing` and ``LinkDamaged`` name the link."""
    chain = [manifest]
    while (increment := chain[-1].continues) is not None:
        try:
            link = read_manifest(target, increment.of)
        except (NoSuchBackup, Incomplete) as fault:
            raise LinkMissing(f"{manifest.name} needs a backup that is not there: {fault}") from None
        except BackupFault as fault:
            raise LinkDamaged(f"{manifest.name} needs a damaged backup: {fault.name}: {fault}") from None
        check_link(chain[-1], link)
        chain.append(link)
    return chain[::-1]


def read_contents(target: BackupTarget, manifest: BackupManifest) -> Iterator[bytes]:
    """The N-Quads of the whole state in pieces; each part is verified before its first piece. Raises the errors of
    :mod:`txlog.backup.part_codec` and of :func:`read_chain`."""
    yield from read_state(target, read_chain(target, manifest))


def read_state(target: BackupTarget, chain: Sequence[BackupManifest]) -> Iterator[bytes]:
    """:func:`read_contents` of the last one of a chain. The changes of its incremental backups are in memory."""
    full, *increments = chain
    if not increments:
        yield from _read_parts(target, full, full.parts)
        return
    changes = QuadChanges()
    for each in increments:
        assert each.continues is not None, "only the first one of a chain is full"
        for lines in batch_lines(_read_parts(target, each, each.continues.deleted_parts), PIECE_BYTES):
            changes.set_quads(lines, is_there=False)
        for lines in batch_lines(_read_parts(target, each, each.parts), PIECE_BYTES):
            changes.set_quads(lines, is_there=True)
    yield from changes.apply_to(batch_lines(_read_parts(target, full, full.parts), PIECE_BYTES))


def _read_parts(target: BackupTarget, manifest: BackupManifest, parts: Sequence[BackupPart]) -> Iterator[bytes]:
    for part in parts:
        yield from read_part(target, manifest.name, part)


def check_backup(target: BackupTarget, name: str, on_progress: ProgressCallback = no_progress) -> BackupManifest:
    """Returns when every byte is as written; otherwise the error names the part."""
    manifest = read_manifest(target, name)
    compare_digest(
        manifest, digest(report_progress("checking", manifest.quads, on_progress, read_contents(target, manifest)))
    )
    return manifest


def compare_digest(manifest: BackupManifest, found: Digest) -> None:
    """:class:`~txlog.backup.backup_errors.ContentDiffers` unless this is the digest in the manifest."""
    content = f"{found.quads:,} quads with digest {found.total:032x}"
    if (found.quads, f"{found.total:032x}") != (manifest.quads, manifest.digest):
        raise ContentDiffers(
            f"{manifest.name} holds {content}, its manifest says {manifest.quads:,} with {manifest.digest}; "
            "take another backup"
        )
