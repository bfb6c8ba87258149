"""Rebuilds a worker of the cluster, whatever it holds: from a backup, or from another worker, which keeps serving.

All checks of the source come first. Then the pipeline of the worker is paused, and the masters stop routing reads to
it. One request empties the worker and marks it as loading.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress

from txlog.backup.backup_errors import BackupFault, NoSuchBackup, OtherEngine
from txlog.backup.backup_manifest import BackupManifest
from txlog.backup.catalogue import newest_backups
from txlog.backup.chain_check import ChainCheck
from txlog.backup.dataset_load import ExpectedContent, RestoreTarget, finish_load, load_batches, start_load
from txlog.backup.part_codec import coalesce, refuse_blank_nodes, tee
from txlog.backup.pinned_snapshot import SourceWorker, open_snapshot, pause_worker, read_system_graphs, resume_worker
from txlog.backup.progress import BackupProgress, ProgressCallback, no_progress
from txlog.backup.read_lease import hold_lease
from txlog.backup.restoration import RestoreResult, check_restorable, load_backup
from txlog.backup.store_ownership import cluster_id_bytes, refuse_incomplete_log
from txlog.backup.target import BackupTarget
from txlog.backup.verification import check_backup, read_manifest
from txlog.client import MasterClient, WorkerReport, WorkerStatus
from txlog.model.errors import TxLogError
from txlog.workers.digest import Digester


def rebuild_from_backup(
    target: BackupTarget,
    into: RestoreTarget,
    masters: Sequence[MasterClient],
    cluster: str,
    on_chain: ChainCheck,
    *,
    name: str | None = None,
    on_progress: ProgressCallback = no_progress,
    onward: int | None = None,
) -> tuple[BackupManifest, RestoreResult]:
    """Restores this backup, or the newest that is intact and on the chain (:class:`NoSuchBackup` gives the fault of
    each). ``masters``: of the worker's data centre; none for a store that no pipeline knows. ``onward``: the pipeline
    resumes to this index only; the caller lifts that pause."""
    fence = _next_fence(into)
    against = []
    for each in [name] if name is not None else [listed.name for listed in newest_backups(target, cluster)]:
        try:
            manifest = read_manifest(target, each)
            check_restorable(manifest, into, cluster, on_chain)
            with ExitStack() as lease:
                lease.enter_context(hold_lease(target, each))
                check_backup(target, each, on_progress)
                kept = lease.pop_all()
        except (BackupFault, NoSuchBackup) as fault:
            if name is not None:
                raise
            against.append(f"{fault.name}: {fault}")
            continue
        with kept:
            out = out_of_rotation(into, masters, on_progress, onward) if masters else None
            return manifest, load_backup(
                target, manifest, into, emptying=True, fence=fence, on_progress=on_progress, beginning=out
            )
    reasons = "; ".join(against) or "there is none of this cluster"
    raise NoSuchBackup(f"no backup on {target.location} can be restored ({reasons}); copy a live worker")


def rebuild_from_worker(
    source: SourceWorker,
    into: RestoreTarget,
    masters: Sequence[MasterClient],
    on_chain: ChainCheck,
    *,
    on_progress: ProgressCallback = no_progress,
    onward: int | None = None,
) -> RestoreResult:
    """Copies another worker at one position. The source serves and applies during the copy. ``onward``: as for
    :func:`rebuild_from_backup`."""
    if source.adapter.engine != into.adapter.engine:
        raise OtherEngine(f"{source.name} is {source.adapter.engine}, {into.name} is {into.adapter.engine}")
    fence = _next_fence(into)
    total = source.adapter.parse_size(source.transport.send(source.adapter.size()))

    def report_wait(text: str) -> None:
        on_progress(BackupProgress("holding", 0, None, text))

    with open_snapshot(source, on_wait=report_wait) as (marker, chunks):
        on_chain(marker.position)
        with out_of_rotation(into, masters, on_progress, onward) if masters else nullcontext():
            loading = start_load(into, marker.position, emptying=True)
        made = Digester()
        pieces = refuse_blank_nodes(coalesce(chunks), source.name)
        size = load_batches(into, loading, tee(pieces, made.feed), total, on_progress)
        found = made.digest()
        total_text = f"{found.total:032x}"
        expected = ExpectedContent(marker.position, found.quads, total_text, marker.cluster, marker.base)
        return RestoreResult(finish_load(into, loading, expected, fence, on_progress), found.quads, size)


def _next_fence(into: RestoreTarget) -> int:
    """Above any fence that an applier of the old content may still expect."""
    return 1 + max((marker.fence for marker in read_system_graphs(into.adapter, into.transport).markers), default=0)


@contextmanager
def out_of_rotation(
    into: RestoreTarget, masters: Sequence[MasterClient], on_progress: ProgressCallback, onward: int | None = None
) -> Iterator[None]:
    """Pauses the pipeline and stops reads, until the worker itself reports that it is loading. ``onward``: then pauses
    it at this index instead."""
    on_progress(BackupProgress("emptying", 0, None, into.name))
    pause_worker(masters, into.name, 0)
    try:
        for master in masters:
            with suppress(TxLogError):
                master.report_worker(into.name, WorkerReport(None, "Refused", "Loading: it is being rebuilt"))
        yield
        if onward is not None:
            pause_worker(masters, into.name, onward)
    except BaseException:
        resume_worker(masters, into.name)
        raise
    if onward is None:
        resume_worker(masters, into.name)


def rebuild_empty(
    into: RestoreTarget,
    masters: Sequence[MasterClient],
    cluster: str,
    workers: Sequence[WorkerStatus] = (),
    *,
    onward: int | None = None,
) -> RestoreResult:
    """Empties the worker and sets it to the start of the log: its pipeline executes the whole log again. ``workers``:
    all of the data centre. :class:`~txlog.backup.backup_errors.LogIncomplete`, before any change, where the log is not
    all that the workers hold. ``onward``: as for :func:`rebuild_from_backup`."""
    fence = _next_fence(into)
    start = refuse_incomplete_log(into, workers, masters)
    with out_of_rotation(into, masters, no_progress, onward):
        loading = start_load(into, start, emptying=True)
    expected = ExpectedContent(start, 0, f"{0:032x}", cluster_id_bytes(cluster))
    return RestoreResult(finish_load(into, loading, expected, fence, no_progress), 0, 0)
