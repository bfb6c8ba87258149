"""A worker that a log has filled, and backups of it."""

from __future__ import annotations

from pathlib import Path

from log_in_memory import MemoryLog
from oxigraph_process import ADAPTER, OxigraphProcess

from txlog.apply import WorkerState, apply_up_to
from txlog.backup import (
    BackupManifest,
    BackupRequest,
    BackupTarget,
    ChainCheck,
    RestoreResult,
    RestoreTarget,
    SourceWorker,
    open_target,
    restore_backup,
    take_backup,
)
from txlog.backup.backup_errors import OffTheChain
from txlog.config.process_config import FolderConfig, S3Config
from txlog.model.entry import Position
from txlog.workers.adapter import TAKEOVER_S, WorkerRequest

CLUSTER = "ab" * 16
LITERALS = ["plain", 'with \\"quotes\\" and <brackets> .', "two words  _:x y", "ünï", ""]


def filled_log(transactions: int, quads: int = 10) -> MemoryLog:
    """Each transaction adds quads to the default and to named graphs."""
    log = MemoryLog()
    for n in range(transactions):
        lines = [
            f'<urn:s:{n}:{k}> <urn:p> "{LITERALS[k % len(LITERALS)]}"{f" <urn:g:{k % 3}>" if k % 4 else ""} .'
            for k in range(quads)
        ]
        log.add(*lines)
    return log


def apply(worker: OxigraphProcess, log: MemoryLog, upto: int | None = None, takeover_s: float = TAKEOVER_S) -> None:
    upto = log.end if upto is None else upto
    outcome = apply_up_to(ADAPTER, worker.transport, log, upto, epoch=1, budget_s=60, takeover_s=takeover_s)
    assert outcome.state is WorkerState.WORKING, outcome
    assert outcome.error is None, outcome


def source(worker: OxigraphProcess) -> SourceWorker:
    return SourceWorker("uk-worker-1", ADAPTER, worker.transport)


def into(worker: OxigraphProcess) -> RestoreTarget:
    return RestoreTarget("uk-worker-2", ADAPTER, worker.transport)


def chain_of(log: MemoryLog) -> ChainCheck:
    def on_chain(position: Position) -> None:
        if position.index > log.end or log.hashes[position.index] != position.hash:
            raise OffTheChain(f"{position} is not on this log")

    return on_chain


def folder_target(folder: Path) -> BackupTarget:
    folder.mkdir(exist_ok=True)
    return open_target(FolderConfig(folder=folder))


def s3_target(url: str, prefix: str, credentials: Path | None) -> BackupTarget:
    config = S3Config(
        bucket="backups", prefix=prefix, endpoint=url, credentials_folder=credentials, timeout_s=10, connect_s=1
    )
    return open_target(config)


def order(part_bytes: int = 4000, **more: object) -> BackupRequest:
    return BackupRequest(CLUSTER, "uk", part_bytes=part_bytes)._replace(**more)


def back_up(worker: OxigraphProcess, target: BackupTarget, **more: object) -> BackupManifest:
    return take_backup(source(worker), target, order(**more))  # type: ignore[arg-type]


def put_back(
    target: BackupTarget, name: str, worker: OxigraphProcess, log: MemoryLog, *, again: bool = False
) -> RestoreResult:
    return restore_backup(target, name, into(worker), CLUSTER, chain_of(log), again=again)


def everything(worker: OxigraphProcess) -> tuple[list[str], list[str]]:
    """All that a worker holds: quads, and every graph, ours too."""
    return worker.quads(), worker.graphs()


def empty_out(worker: OxigraphProcess) -> None:
    assert worker.send(WorkerRequest("DELETE", "/store")).ok
