"""Verifies that a backup is what was written. It reads and compares everything, and restores nothing."""

from __future__ import annotations

from collections.abc import Iterator

from txlog.backup.backup_errors import ContentDiffers, Incomplete, NoSuchBackup, ObjectMissing
from txlog.backup.backup_manifest import (
    MANIFEST_BYTES_MAX,
    MANIFEST_NAME,
    NAME_PATTERN,
    BackupManifest,
    decode_manifest,
)
from txlog.backup.part_codec import read_part
from txlog.backup.progress import ProgressCallback, no_progress, report_progress
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


def read_contents(target: BackupTarget, manifest: BackupManifest) -> Iterator[bytes]:
    """The N-Quads in pieces; each part is verified before its first piece. Raises the errors of
    :mod:`txlog.backup.part_codec`."""
    for part in manifest.parts:
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
