"""A store that TxLog did not write becomes what the log begins with: a backup at position 0, from which every worker
of the cluster is restored before the first write.

The log does not know of it: a worker that is added empty later begins with nothing, so it must be rebuilt from a backup
or from another worker.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence

from txlog.backup.creating import Order, write
from txlog.backup.faults import AlreadyAWorker, LogNotEmpty
from txlog.backup.manifest import Manifest
from txlog.backup.parts import gathered, whole_lines
from txlog.backup.progress import Progress, Told, nobody
from txlog.backup.standing import Source, system_of
from txlog.backup.target import Target
from txlog.client import MasterClient
from txlog.model.entry import Position
from txlog.model.errors import Unavailable
from txlog.sparql import check_supported_terms, skolemise_lines
from txlog.workers.digest import statements


def beginning_of(masters: Sequence[MasterClient]) -> Position:
    """Position 0 of the log, while it is empty; :class:`~txlog.backup.faults.LogNotEmpty` afterwards."""
    last: Unavailable | None = None
    for master in masters:
        try:
            status = master.status()
            if status.log.index or status.queue.transactions:
                raise LogNotEmpty(
                    f"{master.url} has written {status.log.index} entries already; adopt before the first one, or load "
                    "the data as transactions: txlog load"
                )
            return master.log_page(0, None, 0).after
        except Unavailable as error:
            last = error
    raise last or Unavailable("NoMaster", "no master was named")


def adopt(source: Source, target: Target, order: Order, beginning: Position, told: Told = nobody) -> Manifest:
    """The whole store as of one moment, with names in the place of blank nodes. It stays as it is; what is written to
    it afterwards is not in the backup.

    Raises as :func:`txlog.backup.creating.create` does, ``AlreadyAWorker``, and
    :class:`~txlog.model.errors.BadInput` for terms that no worker may hold (a graph of ours, a triple term)."""
    told(Progress("holding", 0, None, source.name))
    system = system_of(source.adapter, source.transport)
    if system.markers or system.loading:
        raise AlreadyAWorker(f"{source.transport.url} is a worker of TxLog already; back it up: txlog backup create")
    size = source.adapter.size_in(source.transport.send(source.adapter.size()))
    with statements(source.adapter, source.transport) as chunks:
        pieces = _named(gathered(chunks), secrets.token_hex(16).encode())
        order = order._replace(why="adopt")
        return write(pieces, beginning, source.name, source.adapter.engine, target, order, told, size)


def _named(pieces: Iterator[bytes], stem: bytes) -> Iterator[bytes]:
    for lines in whole_lines(pieces, 1):
        check_supported_terms(lines)
        yield skolemise_lines(lines, stem)
