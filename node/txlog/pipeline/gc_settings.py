"""Excludes loaded modules from garbage collection, once. Spark's Python processes run a full collection after every
task. It takes 20 ms and more over all that pyspark and pyarrow have loaded, five times in each micro-batch. Loaded
modules never become garbage."""

from __future__ import annotations

import gc
import os

_frozen_pid = 0


def freeze_gc() -> None:
    """Call it once in each process (a forked one has loaded more since), after everything that it needs is loaded."""
    global _frozen_pid
    if _frozen_pid != os.getpid():
        _frozen_pid = os.getpid()
        gc.collect()
        gc.freeze()
