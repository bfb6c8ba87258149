"""Spark's Python daemon, which loads what every task needs before it forks: ``spark.python.daemon.module``.

Each of its children would otherwise load this room and all that it imports again (half a second of CPU and 30 MB,
and there are as many as tasks at once). Not pyarrow: it starts a thread, and a thread does not survive a fork. What is
loaded is also set aside from garbage collection (:mod:`txlog.pipeline.garbage`).
"""

from __future__ import annotations

import importlib
import sys

from pyspark import daemon

from txlog.pipeline.garbage import set_aside

FOR_TASKS = "pyspark.worker"
"""The kind of daemon that forks many; Spark starts the others for one child each."""

LOADED = (FOR_TASKS, "txlog.pipeline.sink", "txlog.pipeline.source")


def main() -> None:
    """Never returns: ends with the JVM that started it."""
    if sys.argv[1:] == [FOR_TASKS]:
        for module in LOADED:
            importlib.import_module(module)
    set_aside()
    daemon.manager()


if __name__ == "__main__":
    main()
