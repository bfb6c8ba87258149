"""Spark's Python processes run a full garbage collection after every task: 20 ms and more over all that pyspark and
pyarrow have loaded, five times in each micro-batch. What is loaded never becomes garbage, so it is set aside once.
"""

from __future__ import annotations

import gc
import os

_frozen_pid = 0


def freeze_gc() -> None:
    """Once in each process (a forked one has loaded more since), when everything that it needs is there."""
    global _frozen_pid
    if _frozen_pid != os.getpid():
        _frozen_pid = os.getpid()
        gc.collect()
        gc.freeze()
