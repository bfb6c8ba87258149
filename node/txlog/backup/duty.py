"""Performs one duty of a data centre, as a process of its own: ``python -m txlog.backup.duty --config FILE.json``
with ``--backup DUTY``, ``--restore WORKER``, ``--unorder WORKER``, ``--adopt WORKER``, ``--discard WORKER``,
``--repair WORKER`` or ``--release``.

The last line on standard output is JSON: the result, or ``{"error", "message"}`` with exit code 1. Duties are
idempotent: a repetition finds and reports the earlier result. That is a split backup that helps, a worker that is on
the log, or one without differences.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from txlog.backup.backup_errors import BackupFault, NoSuchBackup
from txlog.backup.backup_job import list_duties, run_reported
from txlog.backup.catalogue import COMPLETE, catalogue, release_backup
from txlog.backup.chain_check import ChainCheck, make_chain_check, read_cluster_id
from txlog.backup.dataset_load import RestoreTarget
from txlog.backup.graph_repair import RepairPatch, known_cells, known_graphs, repair_graphs, save_patch
from txlog.backup.marker_change import adopt_store, mark_unordered
from txlog.backup.pinned_snapshot import SourceWorker, choose_most_advanced, read_system_graphs, resume_worker
from txlog.backup.rejoin_diff import RejoinDiff
from txlog.backup.split_backup import back_up_for_duty
from txlog.backup.store_ownership import cluster_id_bytes, first_position, refuse_other_store
from txlog.backup.target import open_target
from txlog.backup.worker_lookup import list_workers, open_restore_target, open_source_worker
from txlog.backup.worker_rebuild import rebuild_empty, rebuild_from_backup, rebuild_from_worker
from txlog.client import JsonMarker, MasterClient, WorkerStatus
from txlog.client.first_answer import ask_in_turn
from txlog.config.process_config import DutyJobConfig
from txlog.model.entry import Position
from txlog.model.errors import NotFound, TxLogError, Unavailable
from txlog.supervision.duties import DutyKind
from txlog.telemetry.json_log import install_json_log
from txlog.wire.divergence_report import DivergenceFinding
from txlog.workers.adapter import MarkerPosition

JOB: Final = "duty"
"""Its name in the log."""
GRAPHS_REPORTED_MAX: Final = 20
"""Graphs in a report to the masters, which show no more."""


def restore_worker(config: DutyJobConfig, name: str, *, discard: bool = False) -> dict[str, Any]:
    """Rebuilds the worker on the log's chain from the first source that works. The order is: the newest intact backup
    of this data centre, backups of others, a copy of a live worker, the whole log. :class:`StoreRefused` for a store of
    another cluster, unless a person decided to ``discard`` it."""
    with ExitStack() as closing:
        masters = _open_clients(config.masters, closing)
        found = next((w for w in list_workers(masters) if w.name == name), None)
        if found is None:
            raise NotFound(f"no worker is called {name} in {config.data_center}")
        chain, cluster = make_chain_check(masters), read_cluster_id(masters)
        into = open_restore_target(found, closing)
        shown = (
            RejoinDiff(config.shown, open_source_worker(found, masters, closing)) if config.shown is not None else None
        )
        if is_on_chain(into, chain):
            if shown is not None:
                shown.abandon()
            return {"worker": name, "from": "nothing: it is on the log already", "already": True}
        if not discard:
            refuse_other_store(into, cluster, chain)
        elif not any(d["kind"] == DutyKind.DISCARD and d["worker"] == name for _, d in list_duties(masters)):
            return {"worker": name, "already": True}
        if shown is not None:
            shown.record_before_restore()
        try:
            gone = _restore_from_best_source(
                config, into, masters, cluster, chain, shown.resume_limit if shown else None, closing
            )
        except BaseException:
            resume_worker(masters, name)
            raise
        return {**gone, "shown": shown.compare(gone["index"])} if shown is not None else gone


def _restore_from_best_source(
    config: DutyJobConfig,
    into: RestoreTarget,
    masters: Sequence[MasterClient],
    cluster: str,
    chain: ChainCheck,
    onward: int | None,
    closing: ExitStack,
) -> dict[str, Any]:
    against: list[str] = []
    for target in [config.target, *config.others]:
        try:
            made, done = rebuild_from_backup(open_target(target), into, masters, cluster, chain, onward=onward)
            return _restore_summary(into.name, made.name, "backup", done.marker.position.index, done.quads)
        except (NoSuchBackup, BackupFault, OSError) as fault:
            against.append(str(fault))
    for group in [config.masters, *config.elsewhere]:
        other = _find_live_worker(group, into.name, closing)
        if other is None:
            continue
        try:
            done = rebuild_from_worker(other, into, masters, chain, onward=onward)
            return _restore_summary(into.name, other.name, "worker", done.marker.position.index, done.quads)
        except TxLogError as fault:
            against.append(f"{other.name}: {fault}")
    rebuild_empty(into, masters, cluster, list_workers(masters), onward=onward)
    return {**_restore_summary(into.name, "nothing", "log", 0, 0), "against": against}


def skip_ahead(config: DutyJobConfig, name: str) -> dict[str, Any]:
    """Moves the worker to the log's chain without a change of its data. Its marker names the position that it leaves,
    from which the masters know what it has executed (``splitRecovery: None``)."""
    with ExitStack() as closing:
        masters = _open_clients(config.masters, closing)
        duty, found = _find_duty(masters, "unorder", name)
        if duty is None or found is None:
            return {"worker": name, "already": True}
        to = Position(duty["to"]["epoch"], duty["to"]["index"], bytes.fromhex(duty["to"]["hash"]))
        source = open_source_worker(found, (), closing)
        was = _marker_of(found.position) if found.position is not None else None
        new = mark_unordered(source, was, to)
        return {"worker": name, "way": "unordered", "index": to.index, "paths": len(new.unordered)}


def adopt_worker(config: DutyJobConfig, name: str) -> dict[str, Any]:
    """Makes the store's content the base of this cluster's log, as a person decided. Its data stays unchanged."""
    with ExitStack() as closing:
        masters = _open_clients(config.masters, closing)
        duty, found = _find_duty(masters, DutyKind.ADOPT, name)
        if duty is None or found is None or found.position is None:
            return {"worker": name, "already": True}
        source = open_source_worker(found, masters, closing)
        cluster, first = cluster_id_bytes(read_cluster_id(masters)), first_position(masters)
        new = adopt_store(source, _marker_of(found.position), cluster, first)
        return {"worker": name, "way": "adopt", "index": new.position.index, "base": new.base.hex()}


def _marker_of(known: JsonMarker) -> MarkerPosition:
    return MarkerPosition(
        known.position,
        known.fence,
        known.unordered_positions,
        cluster_id_bytes(known.cluster),
        bytes.fromhex(known.base),
    )


def repair_worker(config: DutyJobConfig, name: str) -> dict[str, Any]:
    """Copies the graphs in which a worker differs from a correct worker, preferably one of this data centre, while the
    masters list that duty. The removed and added quads are saved in a file if a folder is configured."""
    with ExitStack() as closing:
        masters = _open_clients(config.masters, closing)
        duty, found = _find_duty(masters, "repair", name)
        known = found.divergence if found is not None else None
        if duty is None or found is None or known is None:
            return {"worker": name, "already": True}
        chain = make_chain_check(masters)
        center, source = _find_correct_worker(config, known, masters, closing)
        into = open_source_worker(found, masters, closing)
        kept: list[Path] = []

        def keep(taken: RepairPatch) -> None:
            if config.repaired is not None:
                kept.append(save_patch(config.repaired, taken))

        done = repair_graphs(source, into, chain, graphs=known_graphs(known), cells=known_cells(known), before=keep)
        at = done.marker.position
        result = {
            "source": f"{center}/{source.name}",
            "graphs": done.graphs[:GRAPHS_REPORTED_MAX],
            "graphCount": len(done.graphs),
            "added": done.added,
            "removed": done.removed,
            "index": at.index,
            "fence": done.marker.fence,
        }
        for master in masters:
            with suppress(TxLogError):  # a master that misses this report sees the raised fence
                master.report_repair(duty["id"], {**result, "hash": at.hash.hex(), "epoch": at.epoch})
        return {"worker": name, "way": "repair", **result, "kept": str(kept[-1]) if kept else None}


def _find_correct_worker(
    config: DutyJobConfig, known: DivergenceFinding, masters: Sequence[MasterClient], closing: ExitStack
) -> tuple[str, SourceWorker]:
    """A live worker that the judgement calls correct, and its data centre."""
    groups = [masters, *(_open_clients(urls, closing) for urls in config.elsewhere)]
    for group in groups:
        try:
            workers, center = list_workers(group), ask_in_turn(group, MasterClient.status).data_center
        except TxLogError:
            continue
        found = choose_most_advanced([worker for worker in workers if f"{center}/{worker.name}" in known.right])
        if found is not None:
            return center, open_source_worker(found, group, closing)
    raise Unavailable("NoWorker", f"none of {', '.join(known.right) or 'no worker'} can be copied now")


def release_split_backups(config: DutyJobConfig) -> dict[str, Any]:
    """Releases the split backups of this data centre after the rejoin: the retention applies to them again."""
    with ExitStack() as closing:
        cluster = read_cluster_id(_open_clients(config.masters, closing))
        target = open_target(config.target)
        held = [each for each in catalogue(target) if each.state == COMPLETE and each.held and each.manifest]
        names = [
            made.name
            for each in held
            if (made := each.manifest) is not None
            and (made.cluster, made.data_center, made.why) == (cluster, config.data_center, "split")
        ]
        for name in names:
            release_backup(target, name)
        return {"released": names}


def _restore_summary(worker: str, whence: str, way: str, index: int, quads: int) -> dict[str, Any]:
    return {"worker": worker, "from": whence, "way": way, "index": index, "quads": quads}


def _open_clients(urls: Sequence[str], closing: ExitStack) -> list[MasterClient]:
    return [closing.enter_context(MasterClient(url)) for url in urls]


def _find_duty(
    masters: Sequence[MasterClient], kind: str, name: str
) -> tuple[dict[str, Any] | None, WorkerStatus | None]:
    """The open duty of this kind for a worker, and the worker."""
    duty = next((d for _, d in list_duties(masters) if d["kind"] == kind and d["worker"] == name), None)
    return duty, next((w for w in list_workers(masters) if w.name == name), None)


def is_on_chain(into: RestoreTarget, chain: ChainCheck) -> bool:
    """Whether the worker is whole, on the log's chain, and has executed nothing out of order. A worker that executed
    out of order (``splitRecovery: None``) is rebuilt on request."""
    system = read_system_graphs(into.adapter, into.transport)
    if system.loading or len(system.markers) != 1 or system.markers[0].unordered:
        return False
    try:
        chain(system.markers[0].position)
    except BackupFault:
        return False
    return True


def _find_live_worker(urls: Sequence[str], but: str, closing: ExitStack) -> SourceWorker | None:
    """A worker of these masters' data centre that can be copied."""
    masters = _open_clients(urls, closing)
    try:
        found = choose_most_advanced([w for w in list_workers(masters) if w.name != but])
    except TxLogError:
        return None
    return open_source_worker(found, masters, closing) if found is not None else None


_WAYS: Final[Mapping[str, Callable[[DutyJobConfig, str], dict[str, Any]]]] = {
    "backup": back_up_for_duty,
    "restore": restore_worker,
    "unorder": skip_ahead,
    "adopt": adopt_worker,
    "discard": partial(restore_worker, discard=True),
    "repair": repair_worker,
}
"""By the option that names the duty or the worker."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the arguments and performs the duty. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="txlog.backup.duty", description="a duty of a data centre")
    parser.add_argument("--config", type=Path, required=True, help="a DutyJobConfig as JSON")
    ways = parser.add_mutually_exclusive_group(required=True)
    for way in _WAYS:
        ways.add_argument(f"--{way}", metavar="DUTY" if way == "backup" else "WORKER")
    ways.add_argument("--release", action="store_true")
    parser.add_argument("--answer", type=Path, help="the result goes into this file, and not to standard output")
    options = parser.parse_args(arguments)

    def run() -> dict[str, Any]:
        config = DutyJobConfig.model_validate_json(options.config.read_bytes())
        for way, perform in _WAYS.items():
            if subject := getattr(options, way):
                return perform(config, subject)
        return release_split_backups(config)

    return run_reported(run, options.answer, job=JOB, interrupted="ended from outside; it is begun again")


if __name__ == "__main__":
    install_json_log(JOB, logging.WARNING)
    raise SystemExit(main())
