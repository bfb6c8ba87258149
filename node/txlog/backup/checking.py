"""Is a backup what was written? All of it is read and compared; nothing is restored."""

from __future__ import annotations

from collections.abc import Iterator

from txlog.backup.faults import ContentDiffers, Incomplete, NoSuchBackup, ObjectMissing
from txlog.backup.manifest import MANIFEST, MANIFEST_BYTES_MAX, NAME, Manifest, decode_manifest
from txlog.backup.parts import read_part
from txlog.backup.progress import Told, counted, nobody
from txlog.backup.target import Target
from txlog.workers.digest import Digest, digest


def manifest_of(target: Target, name: str) -> Manifest:
    """:class:`~txlog.backup.faults.NoSuchBackup`, ``Incomplete``, ``ManifestDamaged`` or ``UnknownFormat``."""
    if not NAME.match(name):
        raise NoSuchBackup(f"{name[:80]!r} is no name of a backup; see txlog backup list")
    try:
        raw = target.read(f"{name}/{MANIFEST}", MANIFEST_BYTES_MAX)
    except ObjectMissing:
        if any(True for _ in target.objects(f"{name}/")):
            raise Incomplete(
                f"{name} on {target.where} has no manifest: it was not finished; see txlog backup list"
            ) from None
        raise NoSuchBackup(f"{name} is not on {target.where}; see txlog backup list") from None
    return decode_manifest(name, raw)


def contents(target: Target, manifest: Manifest) -> Iterator[bytes]:
    """The N-Quads, in pieces, each part checked before its first piece. The faults of :mod:`txlog.backup.parts`."""
    for part in manifest.parts:
        yield from read_part(target, manifest.name, part)


def check(target: Target, name: str, told: Told = nobody) -> Manifest:
    """Returns when every byte is as it was written; else the fault says which part is not."""
    manifest = manifest_of(target, name)
    compare(manifest, digest(counted("checking", manifest.quads, told, contents(target, manifest))))
    return manifest


def compare(manifest: Manifest, found: Digest) -> None:
    """:class:`~txlog.backup.faults.ContentDiffers` unless this is what the manifest says."""
    told = f"{found.quads:,} quads with digest {found.total:032x}"
    if (found.quads, f"{found.total:032x}") != (manifest.quads, manifest.digest):
        raise ContentDiffers(
            f"{manifest.name} holds {told}, its manifest says {manifest.quads:,} with {manifest.digest}; "
            "take another backup"
        )
