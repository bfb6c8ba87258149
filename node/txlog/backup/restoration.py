"""Restores a backup into a worker. All checks come before the first change of the worker."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from txlog.backup.backup_errors import OtherEngine
from txlog.backup.backup_manifest import BackupManifest
from txlog.backup.chain_check import ChainCheck, check_cluster
from txlog.backup.dataset_load import (
    ExpectedContent,
    RestoreTarget,
    finish_load,
    load_batches,
    refuse_unless_empty,
    start_load,
)
from txlog.backup.pinned_snapshot import read_system_graphs
from txlog.backup.progress import ProgressCallback, no_progress
from txlog.backup.read_lease import hold_lease
from txlog.backup.store_ownership import cluster_id_bytes, refuse_other_store
from txlog.backup.target import BackupTarget
from txlog.backup.verification import check_backup, read_contents, read_manifest
from txlog.config.units import server_of_engine
from txlog.model.entry import Position
from txlog.model.hashes import content_base
from txlog.workers.adapter import MarkerPosition


class AdoptingLog(NamedTuple):
    """The log of another cluster that follows on the content of a backup: the cluster's id, and the position before its
    first entry."""

    cluster: bytes
    first: Position


class RestoreResult(NamedTuple):
    """``marker``: the worker's marker now; the pipeline continues from there. ``undecided``: synchronous transactions
    that no decision up to there names, as the backup has them."""

    marker: MarkerPosition
    quads: int
    bytes: int
    undecided: tuple[str, ...] = ()


def restore_backup(
    target: BackupTarget,
    name: str,
    into: RestoreTarget,
    cluster: str,
    on_chain: ChainCheck,
    *,
    again: bool = False,
    on_progress: ProgressCallback = no_progress,
    beginning: AbstractContextManager[None] | None = None,
    adopting: AdoptingLog | None = None,
) -> RestoreResult:
    """Restores into an empty worker. ``again``: into one with an interrupted restore, which is emptied first.
    ``beginning``: a context that lasts until the worker is marked as loading
    (:func:`txlog.backup.worker_rebuild.out_of_rotation`, for a worker that a pipeline knows). ``adopting``: the backup
    is of another cluster, and its content comes before the first entry of this log; a worker that holds nothing but
    this log is emptied first.

    Raises without a change of the worker: every fault of the backup, ``OtherCluster``, ``OtherEngine``,
    ``OffTheChain``, ``WorkerNotEmpty``, ``WorkerLoading``. Any other error leaves the worker marked as loading.
    """
    manifest = read_manifest(target, name)
    if adopting is None:
        check_restorable(manifest, into, cluster, on_chain)
    else:
        check_engine(manifest, into, adopting=True)
    emptying = adopting is not None and _holds_the_log_alone(into, cluster, on_chain)
    if not emptying:
        refuse_unless_empty(into, again=again)
    with hold_lease(target, name):
        check_backup(target, name, on_progress)
        return load_backup(
            target,
            manifest,
            into,
            emptying=emptying,
            again=again,
            fence=1,
            on_progress=on_progress,
            beginning=beginning,
            adopting=adopting,
        )


def _holds_the_log_alone(into: RestoreTarget, cluster: str, on_chain: ChainCheck) -> bool:
    """Whether all that the worker holds came from this cluster's log, which executes it again after the restore."""
    markers = read_system_graphs(into.adapter, into.transport).markers
    if not markers or any(marker.base for marker in markers):
        return False
    refuse_other_store(into, cluster, on_chain)
    return True


def check_restorable(manifest: BackupManifest, into: RestoreTarget, cluster: str, on_chain: ChainCheck) -> None:
    """Raises unless the backup is of this cluster, of the worker's engine, and on the log's chain."""
    check_cluster(manifest, cluster)
    check_engine(manifest, into)
    on_chain(manifest.position)


def check_engine(manifest: BackupManifest, into: RestoreTarget, *, adopting: bool = False) -> None:
    """:class:`~txlog.backup.backup_errors.OtherEngine` unless the backup is of the worker's engine. ``adopting``: what
    comes before the log may have its literals in either form, for no entry of the log is repeated in it."""
    made, own = manifest.engine, into.adapter.engine
    if made != own and not (adopting and server_of_engine(made) == server_of_engine(own)):
        raise OtherEngine(
            f"{manifest.name} is of the engine {manifest.engine}, {into.name} is {into.adapter.engine}; "
            "take a backup of that engine, or let the log fill the worker"
        )


def load_backup(
    target: BackupTarget,
    manifest: BackupManifest,
    into: RestoreTarget,
    *,
    emptying: bool,
    fence: int,
    on_progress: ProgressCallback,
    again: bool = False,
    beginning: AbstractContextManager[None] | None = None,
    adopting: AdoptingLog | None = None,
) -> RestoreResult:
    """The part of :func:`restore_backup` that changes the worker, for a verified backup. ``fence``: the number that
    appliers must find beside the position."""
    expected = _expected_content(manifest, adopting)
    with beginning or nullcontext():
        loading = start_load(into, expected.position, emptying=emptying, again=again)
    size = load_batches(into, loading, read_contents(target, manifest), manifest.quads, on_progress)
    marker = finish_load(into, loading, expected, fence, on_progress)
    return RestoreResult(marker, manifest.quads, size, tuple(manifest.undecided_transactions))


def adopted_base(manifest: BackupManifest) -> bytes:
    """The name of the backup's content where it comes before the first entry of another log."""
    at = manifest.position
    return content_base(cluster_id_bytes(manifest.cluster), manifest.base_content, at.index, at.hash)


def _expected_content(manifest: BackupManifest, adopting: AdoptingLog | None) -> ExpectedContent:
    if adopting is None:
        cluster, base = cluster_id_bytes(manifest.cluster), manifest.base_content
        return ExpectedContent(manifest.position, manifest.quads, manifest.digest, cluster, base)
    base = adopted_base(manifest)
    return ExpectedContent(adopting.first, manifest.quads, manifest.digest, adopting.cluster, base)
