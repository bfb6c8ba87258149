"""Lists the backups on a target, and deletes them."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from txlog.backup.backup_chain import check_link, find_dependents
from txlog.backup.backup_errors import (
    BackupFault,
    BackupInUse,
    HeldBackup,
    Incomplete,
    LinkMissing,
    NeededByIncrement,
    NoSuchBackup,
    ObjectMissing,
)
from txlog.backup.backup_manifest import MANIFEST_NAME, MERGED_NAME, NAME_PATTERN, RELEASED_NAME, BackupManifest
from txlog.backup.checked_json import decode_checked
from txlog.backup.read_lease import LEASE_PREFIX, announce_deletion, is_leased
from txlog.backup.target import BackupTarget
from txlog.backup.verification import read_manifest

COMPLETE: Final = "complete"
INCOMPLETE: Final = "incomplete"
MERGES_UNKNOWN: Final = 1 << 30
"""Of a backup whose note about it cannot be read: more than any chain may have."""
_NOTE_BYTES_MAX: Final = 1 << 12
INCOMPLETE_AGE_S: Final = 24 * 3600.0
"""A backup that has not grown for so many seconds is no longer in progress."""


class CatalogueEntry(NamedTuple):
    """``state``: complete, incomplete, or the name of the fault of its manifest, of a part or of a backup that it
    needs (``error`` gives details). ``bytes``: on the
    target. ``touched``: when the newest object was written, in seconds since 1970. ``leased``: when the latest
    unfinished restore began to read it, 0 without one. ``is_merged``: made from a chain, without a worker."""

    name: str
    state: str
    manifest: BackupManifest | None
    bytes: int
    touched: float
    held: bool
    error: str = ""
    leased: float = 0.0
    is_merged: bool = False


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
    read = [_read_entry(target, name, objects, touched[name]) for name, objects in sizes.items()]
    found = _mark_broken_chains([each._replace(leased=leased.get(each.name, 0.0)) for each in read if each is not None])
    return sorted(found, key=lambda each: (each.manifest.place.index if each.manifest else -1, each.touched))


def _read_entry(target: BackupTarget, name: str, objects: dict[str, int], touched: float) -> CatalogueEntry | None:
    """None for a backup that was deleted after it was listed."""
    size = sum(objects.values())
    if MANIFEST_NAME not in objects:
        return CatalogueEntry(name, INCOMPLETE, None, size, touched, False)
    try:
        manifest = read_manifest(target, name)
    except NoSuchBackup:
        return None
    except Incomplete:
        return CatalogueEntry(name, INCOMPLETE, None, size, touched, False)
    except BackupFault as fault:
        return CatalogueEntry(name, fault.name, None, size, touched, False, str(fault))
    held = manifest.retention == "held" and RELEASED_NAME not in objects
    for part in manifest.all_parts:
        if objects.get(part.name) != part.bytes:
            problem = "is missing" if part.name not in objects else f"has {objects[part.name]} of {part.bytes} bytes"
            state = "PartMissing" if part.name not in objects else "PartTruncated"
            return CatalogueEntry(name, state, manifest, size, touched, held, f"{part.name} {problem}")
    return CatalogueEntry(name, COMPLETE, manifest, size, touched, held, is_merged=MERGED_NAME in objects)


def _mark_broken_chains(found: list[CatalogueEntry]) -> list[CatalogueEntry]:
    """An incremental backup is complete only when all before it are."""
    checked: dict[str, CatalogueEntry] = {}
    for each in sorted(found, key=lambda each: each.manifest.chain_number if each.manifest else 0):
        checked[each.name] = _check_chain(each, checked)
    return list(checked.values())


def _check_chain(each: CatalogueEntry, checked: dict[str, CatalogueEntry]) -> CatalogueEntry:
    """``checked``: all of a lower number in their chains."""
    if each.state != COMPLETE or each.manifest is None or (increment := each.manifest.continues) is None:
        return each
    link = checked.get(increment.of)
    if link is None or link.state == INCOMPLETE:
        return each._replace(state="LinkMissing", error=f"it needs {increment.of}, which is not there")
    if link.manifest is None or link.state != COMPLETE:
        why = link.error if link.state in ("LinkMissing", "LinkDamaged") else f"{link.state}: {link.error}"
        state = "LinkMissing" if link.state == "LinkMissing" else "LinkDamaged"
        return each._replace(state=state, error=f"it needs {increment.of}: {why}")
    try:
        check_link(each.manifest, link.manifest)
    except LinkMissing as fault:
        return each._replace(state=fault.name, error=str(fault))
    return each


def newest_backups(target: BackupTarget, cluster: str) -> list[CatalogueEntry]:
    """Complete backups of a cluster, the highest position first."""
    fit = [x for x in catalogue(target) if x.state == COMPLETE and x.manifest and x.manifest.cluster == cluster]
    return fit[::-1]


def count_merges(target: BackupTarget, name: str) -> int:
    """How many times in a row this full backup was merged since a worker was read: 0 for a worker's own."""
    try:
        fields = decode_checked(target.read(f"{name}/{MERGED_NAME}", _NOTE_BYTES_MAX))
    except ObjectMissing:
        return 0
    found = fields.get("merges") if fields is not None else None
    return found if isinstance(found, int) and found > 0 else MERGES_UNKNOWN


def release_backup(target: BackupTarget, name: str) -> None:
    """Releases a pinned backup, so that the retention applies to it. Idempotent."""
    read_manifest(target, name)
    if not any(each.key == f"{name}/{RELEASED_NAME}" for each in target.list_objects(f"{name}/")):
        target.write(f"{name}/{RELEASED_NAME}", msgspec.json.encode({"at": time.time()}) + b"\n")


def delete_backup(target: BackupTarget, name: str) -> None:
    """Deletes the manifest first, so that a crash leaves an incomplete backup. :class:`HeldBackup` for a pinned one,
    :class:`BackupInUse` for one that a restore or a backup reads, :class:`NeededByIncrement` for one that an
    incremental backup continues."""
    if not NAME_PATTERN.match(name):
        raise NoSuchBackup(f"{name[:80]!r} is no name of a backup; see txlog backup list")
    keys = [each.key for each in target.list_objects(f"{name}/")]
    if not keys:
        raise NoSuchBackup(f"{name} is not on {target.location}; see txlog backup list")
    _refuse_leased(target, name)
    manifest = f"{name}/{MANIFEST_NAME}"
    if manifest in keys:
        _refuse_held(target, name, keys)
        with announce_deletion(target, name):
            _refuse_leased(target, name)
            _refuse_needed(target, name)
            target.delete([manifest])
    target.delete([key for key in keys if key != manifest])


def _refuse_leased(target: BackupTarget, name: str) -> None:
    if is_leased(target, name):
        raise BackupInUse(f"{name} is being restored from, or continued; try again when that is done")


def _refuse_held(target: BackupTarget, name: str, keys: list[str]) -> None:
    try:
        held = read_manifest(target, name).retention == "held" and f"{name}/{RELEASED_NAME}" not in keys
    except BackupFault:
        held = False
    if held:
        raise HeldBackup(f"{name} is held, as backups of splits are; release it first: txlog backup delete --release")


def _refuse_needed(target: BackupTarget, name: str) -> None:
    needing = find_dependents([each.manifest for each in catalogue(target) if each.manifest is not None], name)
    if needing:
        raise NeededByIncrement(
            f"{name} is needed by {', '.join(needing)}; delete what continues it first, or in the same command"
        )


def delete_incomplete_backups(
    target: BackupTarget, older_s: float = INCOMPLETE_AGE_S, now: float | None = None
) -> list[str]:
    """Deletes incomplete backups that have not grown for ``older_s`` seconds by the target's clock. Returns their
    names."""
    now = time.time() if now is None else now
    old = [x.name for x in catalogue(target) if x.state == INCOMPLETE and now - x.touched >= older_s]
    gone = [name for name in old if not _has_manifest(target, name)]
    for name in gone:
        with suppress(NoSuchBackup):  # its own deletion went on meanwhile
            delete_backup(target, name)
    return gone


def _has_manifest(target: BackupTarget, name: str) -> bool:
    """By reading it: a listing that lacks an object must not delete a backup."""
    try:
        target.read(f"{name}/{MANIFEST_NAME}", 1)
    except ObjectMissing:
        return False
    return True
