"""What lies on a target, and what may go from it."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

import msgspec

from txlog.backup.checking import manifest_of
from txlog.backup.faults import BackupFault, BackupInUse, HeldBackup, NoSuchBackup
from txlog.backup.lease import LEASE, LEASE_S
from txlog.backup.manifest import MANIFEST, NAME, RELEASED, Manifest
from txlog.backup.target import Target

COMPLETE: Final = "complete"
INCOMPLETE: Final = "incomplete"
LEFTOVER_S: Final = 24 * 3600.0
"""A backup to which nothing was added for so long is not under way any more."""


class Listed(NamedTuple):
    """``state``: complete, incomplete, or the name of what is wrong with the manifest (``error`` says more).
    ``bytes`` on the target; ``touched``: when the newest object was written, in seconds since 1970; ``leased``: when
    somebody last began to read it for a restore that has not ended, 0 when nobody did."""

    name: str
    state: str
    manifest: Manifest | None
    bytes: int
    touched: float
    held: bool
    error: str = ""
    leased: float = 0.0


def catalogue(target: Target) -> list[Listed]:
    """Every backup of every cluster on this target, by position; without reading the parts. A part that is missing or
    of another length shows (its checksum: :func:`txlog.backup.checking.check`)."""
    sizes: dict[str, dict[str, int]] = {}
    touched: dict[str, float] = {}
    leased: dict[str, float] = {}
    for each in target.objects():
        name, _, rest = each.key.partition("/")
        if rest.startswith(LEASE):
            leased[name] = max(each.modified, leased.get(name, 0.0))
        elif rest and NAME.match(name):
            sizes.setdefault(name, {})[rest] = each.bytes
            touched[name] = max(each.modified, touched.get(name, 0.0))
    found = [
        _listed(target, name, objects, touched[name])._replace(leased=leased.get(name, 0.0))
        for name, objects in sizes.items()
    ]
    return sorted(found, key=lambda each: (each.manifest.place.index if each.manifest else -1, each.touched))


def _listed(target: Target, name: str, objects: dict[str, int], touched: float) -> Listed:
    size = sum(objects.values())
    if MANIFEST not in objects:
        return Listed(name, INCOMPLETE, None, size, touched, False)
    try:
        manifest = manifest_of(target, name)
    except BackupFault as fault:
        return Listed(name, fault.name, None, size, touched, False, str(fault))
    held = manifest.retention == "held" and RELEASED not in objects
    for part in manifest.parts:
        if objects.get(part.name) != part.bytes:
            said = "is missing" if part.name not in objects else f"has {objects[part.name]} of {part.bytes} bytes"
            state = "PartMissing" if part.name not in objects else "PartTruncated"
            return Listed(name, state, manifest, size, touched, held, f"{part.name} {said}")
    return Listed(name, COMPLETE, manifest, size, touched, held)


def newest(target: Target, cluster: str) -> list[Listed]:
    """Complete backups of a cluster, the highest position first."""
    fit = [x for x in catalogue(target) if x.state == COMPLETE and x.manifest and x.manifest.cluster == cluster]
    return fit[::-1]


def release(target: Target, name: str) -> None:
    """Let a held backup be like any other. Doing it twice is no error."""
    manifest_of(target, name)
    if not any(each.key == f"{name}/{RELEASED}" for each in target.objects(f"{name}/")):
        target.write(f"{name}/{RELEASED}", msgspec.json.encode({"at": time.time()}) + b"\n")


def delete(target: Target, name: str) -> None:
    """The manifest goes first, so that what a crash leaves is named incomplete. :class:`HeldBackup` for a held one,
    :class:`BackupInUse` for one that is being restored from."""
    if not NAME.match(name):
        raise NoSuchBackup(f"{name[:80]!r} is no name of a backup; see txlog backup list")
    found = list(target.objects(f"{name}/"))
    keys = [each.key for each in found]
    if any(each.key.startswith(f"{name}/{LEASE}") and time.time() - each.modified < LEASE_S for each in found):
        raise BackupInUse(f"{name} is being restored from; try again when that is done")
    if not keys:
        raise NoSuchBackup(f"{name} is not on {target.where}; see txlog backup list")
    if f"{name}/{MANIFEST}" in keys:
        try:
            held = manifest_of(target, name).retention == "held" and f"{name}/{RELEASED}" not in keys
        except BackupFault:
            held = False
        if held:
            raise HeldBackup(
                f"{name} is held, as backups of splits are; release it first: txlog backup delete --release"
            )
        target.delete([f"{name}/{MANIFEST}"])
    target.delete([key for key in keys if key != f"{name}/{MANIFEST}"])


def leftovers(target: Target, older_s: float = LEFTOVER_S, now: float | None = None) -> list[str]:
    """Delete what backups left that never came to their end, when nothing was added for ``older_s`` seconds by the
    target's clock. Returns their names."""
    now = time.time() if now is None else now
    gone = [x.name for x in catalogue(target) if x.state == INCOMPLETE and now - x.touched >= older_s]
    for name in gone:
        delete(target, name)
    return gone
