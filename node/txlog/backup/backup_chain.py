"""Which backups others need: an incremental backup and those before it, down to a full one, are a chain. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from txlog.backup.backup_errors import LinkMissing
from txlog.backup.backup_manifest import BackupManifest


def check_link(manifest: BackupManifest, link: BackupManifest) -> None:
    """:class:`~txlog.backup.backup_errors.LinkMissing` unless ``manifest`` continues exactly this backup."""
    increment = manifest.continues
    assert increment is not None, "a full backup continues nothing"
    same = (link.place, link.digest) == (increment.place, increment.digest) and link.cluster == manifest.cluster
    if not same or link.engine != manifest.engine or link.chain_number != increment.number - 1:
        raise LinkMissing(
            f"{manifest.name} continues {increment.of} at index {increment.place.index}, and another backup has that "
            "name now; take a full backup"
        )


def find_needed(manifests: Mapping[str, BackupManifest], names: Iterable[str]) -> set[str]:
    """The names of all backups that these need, over any number of links."""
    found: set[str] = set()
    for name in names:
        manifest = manifests.get(name)
        while manifest is not None and manifest.continues is not None and manifest.continues.of not in found:
            found.add(manifest.continues.of)
            manifest = manifests.get(manifest.continues.of)
    return found


def find_dependents(manifests: Iterable[BackupManifest], name: str) -> list[str]:
    """The incremental backups that continue this one directly."""
    return [each.name for each in manifests if each.continues is not None and each.continues.of == name]


def order_deletions(manifests: Mapping[str, BackupManifest], names: Iterable[str]) -> list[str]:
    """The same names; each incremental backup comes before the one that it continues."""
    return sorted(names, key=lambda name: -manifests[name].chain_number if name in manifests else 0)
