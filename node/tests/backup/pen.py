"""A worker that a log has filled, and backups of it."""

from __future__ import annotations

from pathlib import Path

from log_in_memory import MemoryLog
from oxigraph_process import ADAPTER, OxigraphProcess

from txlog.apply import State, apply_up_to
from txlog.backup import Into, Manifest, OnChain, Order, Restored, Source, Target, create, open_target, restore
from txlog.backup.faults import OffTheChain
from txlog.config.process import FolderConfig, S3Config
from txlog.model.entry import Position
from txlog.workers.base import TAKEOVER_S, WorkerRequest

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
    assert outcome.state is State.WORKING, outcome
    assert outcome.error is None, outcome


def source(worker: OxigraphProcess) -> Source:
    return Source("uk-worker-1", ADAPTER, worker.transport)


def into(worker: OxigraphProcess) -> Into:
    return Into("uk-worker-2", ADAPTER, worker.transport)


def chain_of(log: MemoryLog) -> OnChain:
    def on_chain(position: Position) -> None:
        if position.index > log.end or log.hashes[position.index] != position.hash:
            raise OffTheChain(f"{position} is not on this log")

    return on_chain


def folder_target(folder: Path) -> Target:
    folder.mkdir(exist_ok=True)
    return open_target(FolderConfig(folder=folder))


def s3_target(url: str, prefix: str, credentials: Path | None) -> Target:
    config = S3Config(
        bucket="backups", prefix=prefix, endpoint=url, credentials_folder=credentials, timeout_s=10, connect_s=1
    )
    return open_target(config)


def order(part_bytes: int = 4000, **more: object) -> Order:
    return Order(CLUSTER, "uk", part_bytes=part_bytes)._replace(**more)


def back_up(worker: OxigraphProcess, target: Target, **more: object) -> Manifest:
    return create(source(worker), target, order(**more))  # type: ignore[arg-type]


def put_back(target: Target, name: str, worker: OxigraphProcess, log: MemoryLog, *, again: bool = False) -> Restored:
    return restore(target, name, into(worker), CLUSTER, chain_of(log), again=again)


def everything(worker: OxigraphProcess) -> tuple[list[str], list[str]]:
    """All that a worker holds: quads, and every graph, ours too."""
    return worker.quads(), worker.graphs()


def empty_out(worker: OxigraphProcess) -> None:
    assert worker.send(WorkerRequest("DELETE", "/store")).ok
