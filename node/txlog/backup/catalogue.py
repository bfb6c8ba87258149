"""Lists the backups on a target, and deletes them."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

import msgspec

from txlog.backup.backup_errors import BackupFault, BackupInUse, HeldBackup, NoSuchBackup, ObjectMissing
from txlog.backup.backup_manifest import MANIFEST_NAME, NAME_PATTERN, RELEASED_NAME, BackupManifest
from txlog.backup.read_lease import LEASE_PREFIX, LEASE_TTL_S
from txlog.backup.target import BackupTarget
from txlog.backup.verification import read_manifest

COMPLETE: Final = "complete"
INCOMPLETE: Final = "incomplete"
INCOMPLETE_AGE_S: Final = 24 * 3600.0
"""A backup that has not grown for so many seconds is no longer in progress."""


class CatalogueEntry(NamedTuple):
    """``state``: complete, incomplete, or the name of the manifest's fault (``error`` gives details). ``bytes``: on the
    target. ``touched``: when the newest object was written, in seconds since 1970. ``leased``: when the latest
    unfinished restore began to read it, 0 without one."""

    name: str
    state: str
    manifest: BackupManifest | None
    bytes: int
    touched: float
    held: bool
    error: str = ""
    leased: float = 0.0


def catalogue(target: BackupTarget) -> list[CatalogueEntry]:
    """Every backup of every cluster on this target, by position; it does not read the parts. It detects a missing part
    and a wrong length, but not a wrong checksum (:func:`txlog.backup.verification.check_backup`)."""
    sizes: dict[str, dict[str, int]] = {}
    touched: dict[str, float] = {}
    leased: dict[str, float] = {}
    for each in target.list_objects():
        name, _, rest = each.key.partition("/")
        if rest.startswith(LEASE_PREFIX):
            leased[name] = max(each.modified, leased.get(name, 0.0))
        elif rest and NAME_PATTERN.match(name):
            sizes.setdefault(name, {})[rest] = each.bytes
            touched[name] = max(each.modified, touched.get(name, 0.0))
    found = [
        _read_entry(target, name, objects, touched[name])._replace(leased=leased.get(name, 0.0))
        for name, objects in sizes.items()
    ]
    return sorted(found, key=lambda each: (each.manifest.place.index if each.manifest else -1, each.touched))


def _read_entry(target: BackupTarget, name: str, objects: dict[str, int], touched: float) -> CatalogueEntry:
    size = sum(objects.values())
    if MANIFEST_NAME not in objects:
        return CatalogueEntry(name, INCOMPLETE, None, size, touched, False)
    try:
        manifest = read_manifest(target, name)
    except BackupFault as fault:
        return CatalogueEntry(name, fault.name, None, size, touched, False, str(fault))
    held = manifest.retention == "held" and RELEASED_NAME not in objects
    for part in manifest.parts:
        if objects.get(part.name) != part.bytes:
            problem = "is missing" if part.name not in objects else f"has {objects[part.name]} of {part.bytes} bytes"
            state = "PartMissing" if part.name not in objects else "PartTruncated"
            return CatalogueEntry(name, state, manifest, size, touched, held, f"{part.name} {problem}")
    return CatalogueEntry(name, COMPLETE, manifest, size, touched, held)


def newest_backups(target: BackupTarget, cluster: str) -> list[CatalogueEntry]:
    """Complete backups of a cluster, the highest position first."""
    fit = [x for x in catalogue(target) if x.state == COMPLETE and x.manifest and x.manifest.cluster == cluster]
    return fit[::-1]


def release_backup(target: BackupTarget, name: str) -> None:
    """Releases a pinned backup, so that the retention applies to it. Idempotent."""
    read_manifest(target, name)
    if not any(each.key == f"{name}/{RELEASED_NAME}" for each in target.list_objects(f"{name}/")):
        target.write(f"{name}/{RELEASED_NAME}", msgspec.json.encode({"at": time.time()}) + b"\n")


def delete_backup(target: BackupTarget, name: str) -> None:
    """Deletes the manifest first, so that a crash leaves an incomplete backup. :class:`HeldBackup` for a pinned one,
    :class:`BackupInUse` for one that a restore reads."""
    if not NAME_PATTERN.match(name):
        raise NoSuchBackup(f"{name[:80]!r} is no name of a backup; see txlog backup list")
    found = list(target.list_objects(f"{name}/"))
    keys = [each.key for each in found]
    if any(
        each.key.startswith(f"{name}/{LEASE_PREFIX}") and time.time() - each.modified < LEASE_TTL_S for each in found
    ):
        raise BackupInUse(f"{name} is being restored from; try again when that is done")
    if not keys:
        raise NoSuchBackup(f"{name} is not on {target.location}; see txlog backup list")
    if f"{name}/{MANIFEST_NAME}" in keys:
        try:
            held = read_manifest(target, name).retention == "held" and f"{name}/{RELEASED_NAME}" not in keys
        except BackupFault:
            held = False
        if held:
            raise HeldBackup(
                f"{name} is held, as backups of splits are; release it first: txlog backup delete --release"
            )
        target.delete([f"{name}/{MANIFEST_NAME}"])
    target.delete([key for key in keys if key != f"{name}/{MANIFEST_NAME}"])


def delete_incomplete_backups(
    target: BackupTarget, older_s: float = INCOMPLETE_AGE_S, now: float | None = None
) -> list[str]:
    """Deletes incomplete backups that have not grown for ``older_s`` seconds by the target's clock. Returns their
    names."""
    now = time.time() if now is None else now
    old = [x.name for x in catalogue(target) if x.state == INCOMPLETE and now - x.touched >= older_s]
    gone = [name for name in old if not _has_manifest(target, name)]
    for name in gone:
        delete_backup(target, name)
    return gone


def _has_manifest(target: BackupTarget, name: str) -> bool:
    """By reading it: a listing that lacks an object must not delete a backup."""
    try:
        target.read(f"{name}/{MANIFEST_NAME}", 1)
    except ObjectMissing:
        return False
    return True
