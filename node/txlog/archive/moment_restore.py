"""Restores an empty store to a moment of the log: a base backup, then the archived entries up to there.

Everything is read and proved, and written to temporary files, before the store is touched. The set of quads up to the
first update is computed here and loaded; from there on the store executes the entries in order. The digest is compared
before the store receives its marker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from txlog.archive.archive_errors import EntryRefused
from txlog.archive.block_codec import ArchivedEntry
from txlog.archive.executed_entries import ExecutedEntries
from txlog.archive.file_name import Node
from txlog.archive.moment import Moment
from txlog.archive.ordered_execution import OrderedExecution
from txlog.archive.restore_plan import BaseBackup, BaseChoice, RestorePlan, make_plan
from txlog.archive.spooled_entries import SpooledEntries, SpooledEntry
from txlog.archive.spooled_quads import SpooledQuads
from txlog.archive.stream_reader import StreamReader
from txlog.archive.timeline import Timelines
from txlog.backup.backup_errors import RestoredDiffers
from txlog.backup.backup_manifest import BackupManifest
from txlog.backup.catalogue import newest_backups
from txlog.backup.dataset_load import (
    ExpectedContent,
    RestoreTarget,
    finish_load,
    load_batches,
    read_digest,
    refuse_unless_empty,
    start_load,
)
from txlog.backup.part_codec import batch_lines, tee
from txlog.backup.pinned_snapshot import read_system_graphs
from txlog.backup.progress import BackupProgress, ProgressCallback, no_progress, report_progress
from txlog.backup.read_lease import hold_lease
from txlog.backup.target import BackupTarget
from txlog.backup.verification import compare_digest, read_contents, read_manifest
from txlog.config.units import AS_WRITTEN, server_of_engine
from txlog.model.bulk_entry import decode_bulk_load
from txlog.model.entry import KIND_UPDATE, Position
from txlog.model.errors import BadInput
from txlog.model.ids import Txid
from txlog.sparql.logged_payload import check_logged_payload
from txlog.workers.adapter import LoadMarker, MarkerPosition
from txlog.workers.canonical_literals import canonical_lines, lines_with_lower_tags
from txlog.workers.digest import Digest, Digester

_PIECE_BYTES = 1 << 20
_COMPRESSION = 10
"""How many bytes of entries a byte of a file holds, about."""


class MomentRequest(NamedTuple):
    """``backups``: where the base is. ``base``: its name, or :data:`~txlog.archive.restore_plan.EMPTY_BASE`; None for
    the newest one that fits. ``timeline``: by view or head; None for the only one."""

    moment: Moment
    backups: BackupTarget
    base: str | None = None
    timeline: str | None = None


class MomentRestored(NamedTuple):
    """``marker``: of the store now. ``digest``: of its content, in hexadecimal digits. ``executed``: entries that the
    store executed in order; 0: the digest was computed here as well, and was equal. ``undecided``: synchronous
    transactions that were neither committed nor rolled back at the place, so the store does not have them."""

    plan: RestorePlan
    marker: MarkerPosition
    quads: int
    digest: str
    executed: int
    undecided: tuple[Txid, ...] = ()


def plan_restore(reader: StreamReader, request: MomentRequest, engine: str | None = None) -> RestorePlan:
    """``engine``: of the store; None when it is not known yet. Raises what
    :func:`~txlog.archive.restore_plan.make_plan` and the targets raise."""
    cluster = reader.stream.id.cluster
    found = [x.manifest for x in newest_backups(request.backups, cluster.hex()) if x.manifest is not None]
    choice = BaseChoice([to_base(manifest) for manifest in found], engine, request.base)

    def make() -> RestorePlan:
        timelines = read_timelines(reader, request)
        return make_plan(timelines, cluster, request.moment, choice, reader.read, request.timeline)

    return reader.with_sound_files(make)


def engine_with_form(reader: StreamReader, backups: BackupTarget, engine: str) -> str:
    """The engine of a store that takes over what stores of this archive's cluster held, where ``engine`` does not say
    in which form it holds literals: that of the highest backup. Without one the log decides, which has them as they
    were sent."""
    if server_of_engine(engine) != server_of_engine(AS_WRITTEN):
        return engine
    found = [x.manifest.engine for x in newest_backups(backups, reader.stream.id.cluster.hex()) if x.manifest]
    return next((one for one in found if server_of_engine(one) == server_of_engine(AS_WRITTEN)), AS_WRITTEN)


def read_timelines(reader: StreamReader, request: MomentRequest) -> Timelines:
    """The timelines that the request may mean. One that is named by its place needs nothing else of the stream."""
    return reader.find_timelines(_parse_place(request.timeline))


def restore_to_moment(
    reader: StreamReader,
    request: MomentRequest,
    into: RestoreTarget,
    *,
    again: bool = False,
    on_progress: ProgressCallback = no_progress,
    cluster: bytes | None = None,
) -> MomentRestored:
    """Restores into an empty store that belongs to no cluster. ``again``: into one with an interrupted restore, which
    is emptied first. ``cluster``: the id in the marker; by default that of the stream.

    Raises without a change of the store: what :func:`plan_restore` raises, every fault of the base and the files,
    :class:`~txlog.archive.archive_errors.EntryRefused`, ``WorkerNotEmpty``, ``WorkerLoading``. Any other error leaves
    the store marked as loading."""
    refuse_unless_empty(into, again=again)
    with ExitStack() as closing:
        prepared = reader.with_sound_files(lambda: _prepare(reader, request, into, closing, on_progress))
        return _carry_out(prepared, cluster or reader.stream.id.cluster, into, again, on_progress)


class _Prepared(NamedTuple):
    """``quads``: the state before the first update. ``entries``: from the first update on. ``undecided``: as in
    :class:`MomentRestored`."""

    plan: RestorePlan
    quads: SpooledQuads
    entries: SpooledEntries
    undecided: tuple[Txid, ...]


def _prepare(
    reader: StreamReader, request: MomentRequest, into: RestoreTarget, closing: ExitStack, on_progress: ProgressCallback
) -> _Prepared:
    engine = into.adapter.engine
    plan = plan_restore(reader, request, engine)
    log_bytes = _COMPRESSION * sum(reader.sizes[file.name] for file in plan.files)
    form = lines_with_lower_tags if engine == AS_WRITTEN else canonical_lines
    quads = closing.enter_context(SpooledQuads(form, log_bytes + (plan.base.plain_bytes if plan.base else 0)))
    entries = closing.enter_context(SpooledEntries())
    if plan.base is not None:
        with hold_lease(request.backups, plan.base.name):
            _spool_base(request.backups, plan.base.name, quads, on_progress)
    executed = ExecutedEntries(plan, reader.read)
    for done, file in enumerate(plan.files, 1):
        for entry in executed.of_file(file):
            _refuse_foreign(entry)
            if entries.entries or entry.kind == KIND_UPDATE:
                entries.add(entry)
            else:
                quads.change(entry.payload)
        on_progress(BackupProgress("proving files", done, len(plan.files)))
    return _Prepared(plan, quads, entries, tuple(executed.undecided))


def _spool_base(target: BackupTarget, name: str, quads: SpooledQuads, on_progress: ProgressCallback) -> None:
    manifest = read_manifest(target, name)
    digester = Digester()
    pieces = report_progress("reading the base", manifest.quads, on_progress, read_contents(target, manifest))
    for lines in batch_lines(pieces, _PIECE_BYTES):
        digester.feed(lines)
        quads.add_quads(lines)
    compare_digest(manifest, digester.digest())


def _carry_out(
    prepared: _Prepared, cluster: bytes, into: RestoreTarget, again: bool, on_progress: ProgressCallback
) -> MomentRestored:
    plan, quads, entries, undecided = prepared
    position = Position(plan.epoch, plan.place.index, plan.place.hash)
    loading = start_load(into, position, emptying=False, again=again)
    digester = Digester()
    load_batches(into, loading, tee(quads.merge(), digester.feed), None, on_progress)
    computed = digester.digest()
    execution = OrderedExecution(into, loading)
    execution.keep_graphs(sorted(quads.kept_graphs))
    if entries.entries:
        _refuse_different(into, computed, read_digest(into, computed.quads, on_progress))
        execution.run(_report(entries, on_progress))
        loading = execution.loading
        computed = read_digest(into, None, on_progress)
    _refuse_system_graphs(into, loading)
    content = plan.base.content if plan.base is not None else b""
    expected = ExpectedContent(position, computed.quads, f"{computed.total:032x}", cluster, content)
    marker = finish_load(into, loading, expected, 1, on_progress)
    return MomentRestored(plan, marker, computed.quads, expected.digest, entries.entries, undecided)


def _report(entries: SpooledEntries, on_progress: ProgressCallback) -> Iterator[Sequence[SpooledEntry]]:
    done = 0
    for batch in entries.batches():
        yield batch
        done += len(batch)
        on_progress(BackupProgress("executing transactions", done, entries.entries))


def _refuse_different(into: RestoreTarget, computed: Digest, found: Digest) -> None:
    if (computed.quads, computed.total) != (found.quads, found.total):
        raise RestoredDiffers(
            f"{into.name} gives out {found.quads:,} quads with digest {found.total:032x}, loaded were "
            f"{computed.quads:,} with {computed.total:032x}; it stays marked as loading: empty it, or restore again"
        )


def _refuse_system_graphs(into: RestoreTarget, loading: LoadMarker) -> None:
    """An update can compute the name of a graph, which no reader of its text sees."""
    found = read_system_graphs(into.adapter, into.transport)
    if found.markers or found.claims or found.loading != (loading,):
        raise RestoredDiffers(
            f"{into.name} holds system graphs that this restore did not write; empty it, and find out who wrote the "
            "archive or to this store"
        )


def to_base(manifest: BackupManifest) -> BaseBackup:
    at = manifest.position
    node = Node(at.index, at.hash)
    return BaseBackup(manifest.name, node, manifest.engine, manifest.base_content, manifest.quads, manifest.plain_bytes)


def _parse_place(text: str | None) -> Node | None:
    """The place that a timeline is named by; None for a view, and for a place whose hash is not given in full."""
    index, colon, digits = (text or "").partition(":")
    try:
        return Node(int(index), bytes.fromhex(digits)) if colon and len(digits) == 32 else None
    except ValueError:
        return None


def _refuse_foreign(entry: ArchivedEntry) -> None:
    """What a front door refuses is refused again: the chain of an archive is no signature, so a forger could write one.
    :class:`EntryRefused` for an entry that no master has accepted: an update that reads other addresses, names of
    TxLog's own, payloads that are none. Also for a bulk load, whose data no archive has."""
    load = decode_bulk_load(entry.payload) if entry.kind == KIND_UPDATE else None
    if load is not None:
        raise EntryRefused(
            f"the entry {entry.index} ({entry.txid}) is the bulk load {load.id} of {load.quads:,} quads, which are in "
            "no archive; restore from a backup that was taken behind it, or to a moment before it"
        )
    try:
        check_logged_payload(entry.kind, entry.payload)
    except BadInput as wrong:
        raise EntryRefused(
            f"the entry {entry.index} ({entry.txid}) holds what no master accepts: {wrong}; compare the archive with "
            "another copy, and find out who wrote it"
        ) from None
