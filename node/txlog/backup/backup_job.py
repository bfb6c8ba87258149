"""Takes one backup and applies the retention, as a process of its own: ``python -m txlog.backup --config FILE.json``.

The supervisor starts it for schedules and duties. The last line on standard output is JSON: ``{"name", "position",
"quads", "bytes", "seconds", "retired", "leftovers"}``, also ``"of"`` with the name of the backup that an incremental
one continues, or ``"whyFull"`` where a full one was taken in its place, and ``"merged"`` with the
name of the full one into which its chain was merged; or ``{"error", "message"}`` with exit code 1.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

from txlog.backup.backup_errors import Incomplete, NoSuchBackup
from txlog.backup.backup_manifest import BackupManifest, Retention
from txlog.backup.backup_registration import register_backups
from txlog.backup.backup_writer import BackupRequest, take_backup
from txlog.backup.bounded_chain import BackupTaken, ChainBounds, take_incremental_or_full
from txlog.backup.catalogue import delete_backup, delete_incomplete_backups
from txlog.backup.chain_check import check_cluster, read_cluster_id
from txlog.backup.pinned_snapshot import SourceWorker
from txlog.backup.progress import ProgressCallback, no_progress
from txlog.backup.retention import apply_retention
from txlog.backup.target import BackupTarget, open_target
from txlog.backup.verification import check_backup
from txlog.backup.worker_lookup import find_worker, open_source_worker
from txlog.client import MasterClient
from txlog.config.process_config import BackupJobConfig
from txlog.model.errors import TxLogError
from txlog.telemetry.event_log import EventLog

JOB: Final = "backup"
"""Its name in the log."""
TERMINATION_MESSAGE_MAX = 4000
"""Kubernetes truncates a termination message to so many bytes."""


def list_duties(masters: Sequence[MasterClient]) -> list[tuple[MasterClient, dict[str, Any]]]:
    """The open duties of each master that answers; the error of the last master when none does."""
    found: list[tuple[MasterClient, dict[str, Any]]] = []
    silent: list[TxLogError] = []
    for master in masters:
        try:
            found += [(master, duty) for duty in master.duties()]
        except TxLogError as fault:
            silent.append(fault)
    if silent and len(silent) == len(masters):
        raise silent[-1]
    return found


class JobResult(NamedTuple):
    """``retired``: the names of backups that the retention deleted; ``leftovers``: those of deleted leftovers.
    ``why_full``, ``merged``: as in :class:`~txlog.backup.bounded_chain.BackupTaken`."""

    made: BackupManifest
    retired: Sequence[str] = ()
    leftovers: Sequence[str] = ()
    why_full: str = ""
    merged: str = ""


def run_job(config: BackupJobConfig, on_progress: ProgressCallback = no_progress) -> JobResult:
    """Takes the backup and applies the retention."""
    target = open_target(config.target)
    made = _find_completed(config, target, on_progress)
    with ExitStack() as closing:
        masters = [closing.enter_context(MasterClient(url)) for url in config.masters]
        cluster = read_cluster_id(masters)
        if made is not None:
            check_cluster(made, cluster)
            return JobResult(made)
        source = open_source_worker(find_worker(masters, None), masters, closing)
        retention: Retention = "held" if config.why == "split" else "normal"
        order = BackupRequest(
            cluster, config.data_center, config.why, retention, config.name, at=config.at, deadline_s=config.wait_s
        )
        made, why_full, merged = _take(source, target, order, config, on_progress)
        # Only after the new backup was verified.
        has_window = config.window_s is not None
        retired = apply_retention(
            target, cluster, config.data_center, config.keep, config.keep_days, has_window=has_window
        )
        register_backups(target, masters, cluster, config.data_center)
    return JobResult(made, retired, delete_incomplete_backups(target), why_full, merged)


def _take(
    source: SourceWorker,
    target: BackupTarget,
    order: BackupRequest,
    config: BackupJobConfig,
    on_progress: ProgressCallback,
) -> BackupTaken:
    """A split backup is always a full one: it must be usable whatever happens to others."""
    if config.incremental and config.why != "split":
        return take_incremental_or_full(source, target, order, ChainBounds(config.chain, config.merges), on_progress)
    return BackupTaken(take_backup(source, target, order, on_progress))


def _find_completed(
    config: BackupJobConfig, target: BackupTarget, on_progress: ProgressCallback
) -> BackupManifest | None:
    """A supervisor may repeat a duty after a crash. A finished backup is verified again; an unfinished one is
    deleted."""
    if config.name is None:
        return None
    try:
        return check_backup(target, config.name, on_progress)
    except NoSuchBackup:
        return None
    except Incomplete:
        delete_backup(target, config.name)
        return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the arguments and runs the job. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="txlog.backup", description="one backup of a data centre, and its retention")
    parser.add_argument("--config", type=Path, required=True, help="a BackupJobConfig as JSON")
    parser.add_argument("--name", help="done once under that name, however often it is asked for")
    parser.add_argument("--why", choices=["manual", "schedule"], help="replaces the reason in the configuration")
    parser.add_argument("--kind", choices=["full", "incremental"], help="replaces that of the configuration")
    parser.add_argument("--answer", type=Path, help="the result goes into this file, and not to standard output")
    options = parser.parse_args(arguments)

    def run() -> dict[str, Any]:
        config = BackupJobConfig.model_validate_json(options.config.read_bytes())
        is_incremental = options.kind == "incremental" if options.kind is not None else None
        changes = {"name": options.name, "why": options.why, "incremental": is_incremental}
        config = config.model_copy(update={key: value for key, value in changes.items() if value is not None})
        done = run_job(config)
        made = done.made
        return {
            "name": made.name,
            "position": str(made.position),
            "quads": made.quads,
            "bytes": made.stored_bytes,
            **({"of": made.continues.of} if made.continues is not None else {}),
            **({"whyFull": done.why_full} if done.why_full else {}),
            **({"merged": done.merged} if done.merged else {}),
            "retired": done.retired,
            "leftovers": done.leftovers,
        }

    return run_reported(run, options.answer, job=JOB, interrupted="ended from outside; nothing of it counts")


def run_reported(run: Callable[[], dict[str, Any]], answer: Path | None, *, job: str, interrupted: str) -> int:
    """Runs a job and prints its result, with the seconds that it took, or its error. Returns the exit code.
    ``interrupted``: the message after SIGINT. ``answer``, ``job``: as in :func:`print_result`."""
    began = time.monotonic()
    try:
        result = run()
    except (TxLogError, OSError) as error:
        name = error.name if isinstance(error, TxLogError) else type(error).__name__
        print_result({"error": name, "message": str(error)}, answer, job=job)
        return 1
    except KeyboardInterrupt:
        print_result({"error": "Interrupted", "message": interrupted}, answer, job=job)
        return 130
    print_result({**result, "seconds": round(time.monotonic() - began, 3)}, answer, job=job)
    return 0


def print_result(result: dict[str, Any], answer: Path | None = None, *, job: str) -> None:
    """Writes the result as the last line on standard output. ``answer``: it goes into this file instead, the
    termination message of a container, which Kubernetes keeps; the log of the ``job`` then has it as an event."""
    result = {"at": round(time.time(), 3), **result}
    line = json.dumps(result)
    if answer is None:
        print(line, flush=True)
        return
    answer.write_text(line[:TERMINATION_MESSAGE_MAX] + "\n")
    log = EventLog(job)
    write = log.error if "error" in result else log.info
    write("JobEnded", result=result)
