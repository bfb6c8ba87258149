"""Spark's Python processes run a full garbage collection after every task: 20 ms and more over all that pyspark and
pyarrow have loaded, five times in each micro-batch. What is loaded never becomes garbage, so it is set aside once.
"""

from __future__ import annotations

import gc

_frozen = False


def set_aside() -> None:
    """Once in each process, when everything that it needs is loaded; costs one collection."""
    global _frozen
    if not _frozen:
        _frozen = True
        gc.collect()
        gc.freeze()
