"""Spark's Python daemon, which loads what every task needs before it forks: ``spark.python.daemon.module``.

Each of its children would otherwise load this room and all that it imports again (half a second of CPU and 30 MB,
and there are as many as tasks at once). Not pyarrow: it starts a thread, and a thread does not survive a fork. What is
loaded is also set aside from garbage collection (:mod:`txlog.pipeline.gc_tuning`), and a child that Spark lets go ends
without a word.
"""

from __future__ import annotations

import importlib
import socket
import sys
from collections.abc import Callable, Sequence

from pyspark import daemon

from txlog.pipeline.gc_tuning import freeze_gc

WORKER_MODULE = "pyspark.worker"
"""The kind of daemon that forks many; Spark starts the others for one child each."""

EXIT_RELEASED = 1
"""Any code but 0: this child takes no more tasks."""

BATCH_MODULE = "txlog.pipeline.batch.task_runner"
PRELOADED_MODULES = ("txlog.pipeline.worker_sink", "txlog.pipeline.doorbell_source", BATCH_MODULE)


def exit_on_closed_connection(work: Callable[[socket.socket, bool], int]) -> Callable[[socket.socket, bool], int]:
    """``work`` of pyspark's daemon, but not for a connection that was closed while it was idle, as Spark does after a
    minute: pyspark would take that for a broken task and print how its answer to it broke, too."""

    def next_work(connection: socket.socket, authenticated: bool) -> int:
        try:
            told = connection.recv(1, socket.MSG_PEEK)
        except ConnectionError:
            told = b""
        return work(connection, authenticated) if told else EXIT_RELEASED

    return next_work


def main(loaded: Sequence[str] = PRELOADED_MODULES) -> None:
    """Never returns: ends with the JVM that started it. ``loaded``: modules that its tasks need."""
    if sys.argv[1:] == [WORKER_MODULE]:
        for module in (WORKER_MODULE, *loaded):
            importlib.import_module(module)
    freeze_gc()
    daemon.worker = exit_on_closed_connection(daemon.worker)
    daemon.manager()


if __name__ == "__main__":
    main()
