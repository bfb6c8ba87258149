"""Spark's Python daemon, which loads what every task needs before it forks: ``spark.python.daemon.module``.

Each of its children would otherwise load this room and all that it imports again (half a second of CPU and 30 MB,
and there are as many as tasks at once). Not pyarrow: it starts a thread, and a thread does not survive a fork. What is
loaded is also set aside from garbage collection (:mod:`txlog.pipeline.garbage`), and a child that Spark lets go ends
without a word.
"""

from __future__ import annotations

import importlib
import socket
import sys
from collections.abc import Callable, Sequence

from pyspark import daemon

from txlog.pipeline.garbage import set_aside

FOR_TASKS = "pyspark.worker"
"""The kind of daemon that forks many; Spark starts the others for one child each."""

LET_GO = 1
"""Any code but 0: this child takes no more tasks."""

BATCH = "txlog.pipeline.batch.engine"
LOADED = ("txlog.pipeline.sink", "txlog.pipeline.source", BATCH)


def until_let_go(work: Callable[[socket.socket, bool], int]) -> Callable[[socket.socket, bool], int]:
    """``work`` of pyspark's daemon, but not for a connection that was closed while it was idle, as Spark does after a
    minute: pyspark would take that for a broken task and print how its answer to it broke, too."""

    def next_work(connection: socket.socket, authenticated: bool) -> int:
        try:
            told = connection.recv(1, socket.MSG_PEEK)
        except ConnectionError:
            told = b""
        return work(connection, authenticated) if told else LET_GO

    return next_work


def main(loaded: Sequence[str] = LOADED) -> None:
    """Never returns: ends with the JVM that started it. ``loaded``: modules that its tasks need."""
    if sys.argv[1:] == [FOR_TASKS]:
        for module in (FOR_TASKS, *loaded):
            importlib.import_module(module)
    set_aside()
    daemon.worker = until_let_go(daemon.worker)
    daemon.manager()


if __name__ == "__main__":
    main()
