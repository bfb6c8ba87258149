"""Takes an incremental backup: what the log changed since another backup, compared with that one's content.

No worker is read, except for its position: the log says what it has executed. The state of the other backup is read
once. So the changes are exact, and the digest of the new state is known.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from txlog.backup.backup_errors import BackupFault, ContentDiffers, ManyChanges, NoIncrement
from txlog.backup.backup_manifest import BackupManifest, BackupPart, ManifestIncrement
from txlog.backup.backup_writer import (
    BackupContent,
    BackupRequest,
    build_manifest,
    claim_name,
    own_objects,
    write_manifest,
)
from txlog.backup.catalogue import CatalogueEntry, newest_backups
from txlog.backup.chain_check import read_undecided
from txlog.backup.log_changes import read_changes
from txlog.backup.part_codec import PartWriter, batch_lines, read_part, tee
from txlog.backup.pinned_snapshot import SourceWorker, read_marker
from txlog.backup.progress import ProgressCallback, no_progress, report_progress
from txlog.backup.quad_changes import (
    CHANGES_BYTES_MAX,
    PIECE_BYTES,
    ExactChanges,
    add_digests,
    count_bytes,
    join_lines,
)
from txlog.backup.read_lease import hold_base
from txlog.backup.target import BackupTarget
from txlog.backup.verification import compare_digest, read_chain, read_state
from txlog.config.units import AS_WRITTEN
from txlog.model.errors import LogDiverged, LogNeedsRestore
from txlog.workers.adapter import MarkerPosition
from txlog.workers.canonical_literals import canonical_lines, lines_with_lower_tags
from txlog.workers.digest import Digest, Digester, digest

SMALL_BYTES: Final = 1 << 20
"""Changes up to here are never too many for their full backup."""
_PIECE_QUADS: Final = 4096


def take_incremental_backup(
    source: SourceWorker,
    target: BackupTarget,
    order: BackupRequest,
    chain_max: int,
    on_progress: ProgressCallback = no_progress,
    before: BackupManifest | None = None,
) -> BackupManifest:
    """A backup at the worker's position that continues ``before``, by default the newest one of its data centre and
    engine on the log. ``chain_max``: how many may follow a full one.
    :class:`~txlog.backup.backup_errors.NoIncrement` says why that is not possible, and whether a merge would help.
    Also raises the errors of the worker, of the masters and of the target."""
    if order.at is not None:
        raise NoIncrement(f"index {order.at} was requested, and an incremental backup is at the position of a worker")
    marker = read_marker(source)
    off_log: list[str] = []
    engine, listed = source.adapter.engine, newest_backups(target, order.cluster)
    for each in [before] if before is not None else find_continued(listed, order.data_center, engine, marker):
        with hold_base(target, each.name):
            try:
                return _continue_backup(source, target, order, marker, each, chain_max, on_progress)
            except LogDiverged:
                off_log.append(each.name)
    found = f"{', '.join(off_log)}: not on this log" if off_log else "there is none that the log leads on from"
    raise NoIncrement(f"no backup of {order.data_center} can be continued: {found}")


def find_continued(
    listed: Iterable[CatalogueEntry], data_center: str, engine: str, marker: MarkerPosition
) -> list[BackupManifest]:
    """Which backups one at this marker may continue, the newest first. Pure. ``listed``: complete ones of the cluster,
    the newest first."""
    return [
        each.manifest
        for each in listed
        if each.manifest is not None
        and (each.manifest.data_center, each.manifest.engine) == (data_center, engine)
        and each.manifest.base_content == marker.base
        and (each.manifest.place.index < marker.position.index or each.manifest.position.hash == marker.position.hash)
    ]


def refuse_long_chain(chain: Sequence[BackupManifest], chain_max: int) -> None:
    """:class:`~txlog.backup.backup_errors.NoIncrement` when no further one may follow. Pure."""
    if len(chain) > chain_max:
        raise NoIncrement(
            f"{len(chain) - 1} incremental backups follow {chain[0].name}, and {chain_max} may", chain[-1].name
        )


def refuse_much_change(chain: Sequence[BackupManifest], changed: int) -> None:
    """:class:`~txlog.backup.backup_errors.ManyChanges` when the changes since the full backup come to half of it. Pure.
    ``changed``: bytes of N-Quads of the new ones."""
    changed += sum(each.part_bytes for each in chain[1:])
    if changed > max(SMALL_BYTES, chain[0].plain_bytes // 2):
        raise ManyChanges(f"the changes since {chain[0].name} come to more than half of it")


class _Step(NamedTuple):
    """What an incremental backup adds to ``before``. ``was``: the digest of that one's content."""

    before: BackupManifest
    marker: MarkerPosition
    exact: ExactChanges
    was: Digest
    undecided: Sequence[str]
    started: float


def _continue_backup(
    source: SourceWorker,
    target: BackupTarget,
    order: BackupRequest,
    marker: MarkerPosition,
    before: BackupManifest,
    chain_max: int,
    on_progress: ProgressCallback,
) -> BackupManifest:
    started = time.time()
    form = lines_with_lower_tags if before.engine == AS_WRITTEN else canonical_lines
    held = Digester()
    chain = [before]
    try:
        chain = read_chain(target, before)
        refuse_long_chain(chain, chain_max)
        room = CHANGES_BYTES_MAX - sum(each.part_bytes for each in chain[1:])
        changes = read_changes(source.masters, before.position, marker.position, form, room, on_progress)
        passing = report_progress("reading the backup", before.quads, on_progress, read_state(target, chain))
        exact = changes.compare_with(tee(batch_lines(passing, PIECE_BYTES), held.feed))
        was = held.digest()
        compare_digest(before, was)
        refuse_much_change(chain, exact.plain_bytes)
    except ManyChanges as many:
        # A full backup alone would be merged into itself.
        raise NoIncrement(str(many), before.name if len(chain) > 1 else "") from many
    except BackupFault as fault:
        raise NoIncrement(f"{before.name} cannot be continued: {fault.name}: {fault}") from fault
    except LogNeedsRestore as trimmed:
        raise NoIncrement(f"the log after {before.name} was trimmed: {trimmed}") from trimmed
    undecided = read_undecided(source.masters, marker.position)
    return _write(source, target, order, _Step(before, marker, exact, was, undecided, started), on_progress)


def _write(
    source: SourceWorker, target: BackupTarget, order: BackupRequest, step: _Step, on_progress: ProgressCallback
) -> BackupManifest:
    before, exact, position = step.before, step.exact, step.marker.position
    name = claim_name(target, order, position, step.started)
    added, deleted = digest(_lines(exact.added)), digest(_lines(exact.deleted))
    state = add_digests(step.was, added, deleted)
    with own_objects(target, name) as write:
        parts = _write_parts(PartWriter(write, order.part_bytes), exact.added, on_progress)
        deleted_parts = _write_parts(PartWriter(write, order.part_bytes, "deleted"), exact.deleted, on_progress)
        increment = ManifestIncrement(
            of=before.name,
            place=before.place,
            digest=before.digest,
            number=before.chain_number + 1,
            added=added.quads,
            deleted=deleted.quads,
            state_bytes=before.plain_bytes + count_bytes(exact.added) - count_bytes(exact.deleted),
            deleted_parts=deleted_parts,
        )
        content = BackupContent(position, state, parts, before.base_content, step.undecided, increment)
        manifest = build_manifest(name, order, source.name, source.adapter.engine, content, step.started)
        _read_back(target, name, parts, added, on_progress)
        _read_back(target, name, deleted_parts, deleted, on_progress)
        write_manifest(target, manifest, write)
        read_chain(target, manifest)  # its lease may have run out: what it continues must still be there
    return manifest


def _write_parts(writer: PartWriter, quads: Sequence[bytes], on_progress: ProgressCallback) -> list[BackupPart]:
    for lines in report_progress("copying", len(quads), on_progress, _lines(quads)):
        writer.feed(lines)
    return writer.finish()


def _read_back(
    target: BackupTarget, name: str, parts: Sequence[BackupPart], written: Digest, on_progress: ProgressCallback
) -> None:
    pieces = (piece for part in parts for piece in read_part(target, name, part))
    found = digest(report_progress("reading back", written.quads, on_progress, pieces))
    if found != written:
        raise ContentDiffers(
            f"{target.location} gives back {found.quads:,} quads of {name} with digest {found.total:032x}, written "
            f"were {written.quads:,} with {written.total:032x}; try again"
        )


def _lines(quads: Sequence[bytes]) -> Iterator[bytes]:
    """The quads in pieces of whole lines."""
    for at in range(0, len(quads), _PIECE_QUADS):
        yield join_lines(quads[at : at + _PIECE_QUADS])
