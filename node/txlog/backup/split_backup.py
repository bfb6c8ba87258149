"""The backup that a side of a split needs before it continues (rule 23): an existing one, or a new one.

Each requesting master is served separately: the masters of one data centre may be on different sides, while its stores
follow one side. Only that master decides whether a position helps it, before a store is read and again after.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

from txlog.backup.backup_job import list_duties
from txlog.backup.backup_manifest import BackupManifest, ManifestPosition, to_manifest_position
from txlog.backup.backup_registration import register_backups
from txlog.backup.backup_writer import BackupRequest, take_backup
from txlog.backup.catalogue import newest_backups
from txlog.backup.chain_check import read_cluster_id
from txlog.backup.pinned_snapshot import SourceWorker, read_marker
from txlog.backup.target import open_target
from txlog.backup.worker_lookup import list_workers, open_source_worker
from txlog.client import MasterClient, WorkerStatus
from txlog.config.process_config import DutyJobConfig, TargetConfig
from txlog.model.errors import NotFound, OffTheLog, TxLogError, Unavailable
from txlog.workers import ADAPTERS
from txlog.workers.http_transport import HttpTransport

ANSWER_TIMEOUT_S: Final = 5.0
"""Time-out of a store for its position."""


class StorePosition(NamedTuple):
    """A store of the data centre and its position."""

    worker: WorkerStatus
    position: ManifestPosition


def back_up_for_duty(config: DutyJobConfig, duty: str) -> dict[str, Any]:
    """Continues until every master that lists this duty has a verified, pinned backup that helps it. Returns the backup
    that was taken or found.

    Skips masters that do not answer; raises the error of the last one when none does. Raises
    :class:`~txlog.model.errors.OffTheLog` when every store of the data centre follows another order than a master's,
    and no earlier backup helps it. Raises ``Unavailable`` when no store reports its position.
    """
    with ExitStack() as closing:
        masters = [closing.enter_context(MasterClient(url)) for url in config.masters]
        fresh: list[BackupManifest] = []
        served: list[dict[str, Any]] = []
        failed: list[TxLogError] = []
        asking = list(dict.fromkeys(master for master, each in list_duties(masters) if each["id"] == duty))
        for master in asking:
            try:
                served.append(_back_up_for(master, config, duty, masters, fresh, closing))
            except NotFound:
                continue  # the master no longer lists the duty
            except TxLogError as fault:
                failed.append(fault)
        if failed:
            raise failed[0]
        return next(
            (result for result in served if not result.get("already")), served[0] if served else {"already": True}
        )


def _back_up_for(
    master: MasterClient,
    config: DutyJobConfig,
    duty: str,
    masters: Sequence[MasterClient],
    fresh: list[BackupManifest],
    closing: ExitStack,
) -> dict[str, Any]:
    """Serves one requesting master. It asks the stores directly, because a dead pipeline reports nothing. ``fresh``:
    the backups taken for other masters."""
    stable = master.status().stable
    if stable.index == 0:  # no entry was executed: an empty worker is the backup
        master.complete_duty(duty, 0, stable.hash)
        return {"name": "", "index": 0, "hash": stable.hash}
    cluster = read_cluster_id([master])
    stores, silent = store_positions(masters)
    found = next((store for store in stores if _is_usable_by(master, duty, store.position)), None)
    # Stores of another data centre may be on this master's side when its own are not.
    targets = [config.target] if found is not None else [config.target, *config.others]
    for made in (*fresh, *_split_backups(targets, cluster)):
        near = found is None or made in fresh or made.place.index >= found.position.index
        if near and _is_usable_by(master, duty, made.place, done=True):
            return {"name": made.name, **_position_fields(made.place), "already": True}
    if found is None and not stores:
        raise Unavailable("NoWorker", f"no store of {config.data_center} reports its position: {'; '.join(silent)}")
    if found is None:
        where = ", ".join(f"{store.worker.name} at {store.position.index}" for store in stores)
        raise OffTheLog(
            f"the stores of {config.data_center} follow another order than {master.url} ({where}), and no backup of "
            "before is on its log; restore the connection, or remove the silent members (txlog force-view)"
        )
    target = open_target(config.target)
    source = open_source_worker(found.worker, masters, closing)
    made = take_backup(source, target, BackupRequest(cluster, config.data_center, "split", "held"))
    register_backups(target, masters, cluster, config.data_center)
    fresh.append(made)
    master.complete_duty(duty, made.place.index, made.place.hash, made.place.epoch)
    return {"name": made.name, **_position_fields(made.place), "quads": made.quads, "bytes": made.stored_bytes}


def store_positions(masters: Sequence[MasterClient]) -> tuple[list[StorePosition], list[str]]:
    """The positions of the data centre's stores, the most advanced first, and the errors of the other stores."""
    found: list[StorePosition] = []
    silent: list[str] = []
    for worker in list_workers(masters):
        with HttpTransport(worker.url, ANSWER_TIMEOUT_S) as transport:
            try:
                marker = read_marker(SourceWorker(worker.name, ADAPTERS[worker.engine or "oxigraph"], transport))
            except TxLogError as fault:
                silent.append(str(fault))
            else:
                found.append(StorePosition(worker, to_manifest_position(marker.position)))
    return sorted(found, key=lambda store: -store.position.index), silent


def _is_usable_by(master: MasterClient, duty: str, place: ManifestPosition, *, done: bool = False) -> bool:
    """Whether this master can return to that position; ``done``: a verified backup exists there."""
    if not done:
        return master.can_use_backup(duty, place.index, place.hash, place.epoch)
    try:
        master.complete_duty(duty, place.index, place.hash, place.epoch)
    except OffTheLog:
        return False
    return True


def _split_backups(targets: Sequence[TargetConfig], cluster: str) -> Iterator[BackupManifest]:
    """The pinned split backups, the most advanced of each target first. Only the first target must be reachable."""
    for at, target in enumerate(targets):
        try:
            listed = newest_backups(open_target(target), cluster)
        except TxLogError:
            if at == 0:
                raise
            continue
        for each in listed:
            if each.manifest and each.held and each.manifest.why == "split":
                yield each.manifest


def _position_fields(place: ManifestPosition) -> dict[str, Any]:
    return {"index": place.index, "hash": place.hash}
