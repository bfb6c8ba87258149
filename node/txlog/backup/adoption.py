"""Adopts a store that TxLog did not write: a backup at position 0, from which every worker is restored before the first
write.

The log does not contain this data. A worker that is added empty later starts without it, so it must be rebuilt from a
backup or from another worker.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence

from txlog.backup.backup_errors import AlreadyAWorker, LogNotEmpty
from txlog.backup.backup_manifest import BackupManifest
from txlog.backup.backup_writer import BackupRequest, write_backup
from txlog.backup.part_codec import batch_lines, coalesce
from txlog.backup.pinned_snapshot import SourceWorker, read_system_graphs
from txlog.backup.progress import BackupProgress, ProgressCallback, no_progress
from txlog.backup.target import BackupTarget
from txlog.client import MasterClient
from txlog.client.first_answer import ask_in_turn
from txlog.model.entry import Position
from txlog.sparql import check_supported_terms, skolemise_lines
from txlog.workers.digest import stream_statements


def initial_position(masters: Sequence[MasterClient]) -> Position:
    """Position 0 of the log, while it is empty; :class:`~txlog.backup.backup_errors.LogNotEmpty` afterwards."""

    def ask(master: MasterClient) -> Position:
        status = master.status()
        if status.log.index or status.queue.transactions:
            raise LogNotEmpty(
                f"{master.url} has written {status.log.index} entries already; adopt before the first one, or load "
                "the data as transactions: txlog load"
            )
        return master.log_page(0, None, 0).after

    return ask_in_turn(masters, ask)


def adopt(
    source: SourceWorker,
    target: BackupTarget,
    order: BackupRequest,
    beginning: Position,
    on_progress: ProgressCallback = no_progress,
) -> BackupManifest:
    """Backs up the whole store as of one moment, with IRIs in place of blank nodes. The store itself stays unchanged;
    later writes to it are not in the backup.

    Raises as :func:`txlog.backup.backup_writer.take_backup` does, ``AlreadyAWorker``, and
    :class:`~txlog.model.errors.BadInput` for terms that no worker may hold (a graph of TxLog's own, a triple term).
    """
    on_progress(BackupProgress("holding", 0, None, source.name))
    system = read_system_graphs(source.adapter, source.transport)
    if system.markers or system.loading:
        raise AlreadyAWorker(f"{source.transport.url} is a worker of TxLog already; back it up: txlog backup create")
    size = source.adapter.parse_size(source.transport.send(source.adapter.size()))
    with stream_statements(source.adapter, source.transport) as chunks:
        pieces = _skolemise(coalesce(chunks), secrets.token_hex(16).encode())
        order = order._replace(why="adopt")
        return write_backup(pieces, beginning, source.name, source.adapter.engine, target, order, on_progress, size)


def _skolemise(pieces: Iterator[bytes], stem: bytes) -> Iterator[bytes]:
    for lines in batch_lines(pieces, 1):
        check_supported_terms(lines)
        yield skolemise_lines(lines, stem)
