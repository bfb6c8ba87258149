"""Spark's Python daemon, which loads what every task needs before it forks: ``spark.python.daemon.module``.

Otherwise each of its children would load this package and its imports again. That costs half a second of CPU and 30 MB
for each concurrent task. pyarrow is not loaded: it starts a thread, and a thread does not survive a fork. Loaded
modules are also excluded from garbage collection (:mod:`txlog.pipeline.gc_settings`), and a child that Spark releases
exits silently.
"""

from __future__ import annotations

import importlib
import socket
import sys
from collections.abc import Callable, Sequence

from pyspark import daemon

from txlog.pipeline.gc_settings import freeze_gc
from txlog.telemetry.json_log import install_json_log

WORKER_MODULE = "pyspark.worker"
"""The kind of daemon that forks many children; Spark starts the other kinds for one child each."""

TASKS_NODE = "pipeline-tasks"
"""The name of its children in the log, until they know their data centre."""

EXIT_RELEASED = 1
"""Any code but 0: this child takes no more tasks."""

BATCH_MODULE = "txlog.pipeline.batch.task_runner"
PRELOADED_MODULES = ("txlog.pipeline.worker_sink", "txlog.pipeline.doorbell_source", BATCH_MODULE)


def exit_on_closed_connection(work: Callable[[socket.socket, bool], int]) -> Callable[[socket.socket, bool], int]:
    """Wraps ``work`` of pyspark's daemon, so that it exits on a connection that was closed while idle, as Spark does
    after a minute. pyspark would treat that as a failed task, and print that its answer failed, too."""

    def next_work(connection: socket.socket, authenticated: bool) -> int:
        try:
            received = connection.recv(1, socket.MSG_PEEK)
        except ConnectionError:
            received = b""
        return work(connection, authenticated) if received else EXIT_RELEASED

    return next_work


def main(loaded: Sequence[str] = PRELOADED_MODULES) -> None:
    """Never returns: exits with the JVM that started it. ``loaded``: modules that its tasks need."""
    if sys.argv[1:] == [WORKER_MODULE]:
        for module in (WORKER_MODULE, *loaded):
            importlib.import_module(module)
    install_json_log(TASKS_NODE)
    freeze_gc()
    daemon.worker = exit_on_closed_connection(daemon.worker)
    daemon.manager()


if __name__ == "__main__":
    main()
