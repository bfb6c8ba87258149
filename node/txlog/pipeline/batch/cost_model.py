"""Decides between stream and batch, by the number of missing operations, which is estimated from samples of the log."""

from __future__ import annotations

from typing import NamedTuple

from txlog.client import FailoverClient
from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.model.entry_effects import find_effects

SAMPLES = 8
SAMPLE_BYTES = 64 << 10
OPERATIONS_BETWEEN_UPDATES_MIN = 50_000
"""Average between two updates below which a job costs more than it saves (docs/decisions/0010)."""


class LogEstimate(NamedTuple):
    """Averages over a run of the log. ``operations``: quads added or deleted for each entry. ``updates``: the share of
    entries that are SPARQL updates. ``size``: bytes of quads in each entry."""

    entries: int
    operations: float
    updates: float
    size: float = 0.0

    def operations_in(self, entries: int) -> float:
        """Estimated operations in so many entries."""
        return entries * self.operations

    @property
    def total(self) -> int:
        """Estimated operations in the whole run."""
        return round(self.operations_in(self.entries))


class BatchDecision(NamedTuple):
    """``reason`` is for people."""

    batch: bool
    reason: str


def decide_batch(guessed: LogEstimate, batch_from: int) -> BatchDecision:
    """Pure. A batch takes the worker from its readers until it has finished, and starting tasks has a cost. So it must
    be much faster: it needs ``batch_from`` operations, and runs between updates that are long enough to be jobs."""
    estimate = f"about {guessed.total:,} operations"
    if guessed.total < batch_from:
        return BatchDecision(False, f"{estimate}, a batch is for {batch_from:,} and more")
    if guessed.updates * guessed.entries > 1 and guessed.operations / guessed.updates < OPERATIONS_BETWEEN_UPDATES_MIN:
        return BatchDecision(
            False, f"{estimate}, an update after each {1 / guessed.updates:,.0f} transactions cuts them short"
        )
    return BatchDecision(True, f"{estimate}: a batch")


def estimate_log(masters: FailoverClient, after: int, end: int) -> LogEstimate:
    """Samples at even distances; costs some milliseconds of a master."""
    entries = operations = updates = size = 0
    samples = min(SAMPLES, end - after)
    for number in range(samples):
        at = after + (end - after) * number // samples
        for entry in masters.log_page(at, None, end, SAMPLE_BYTES).entries:
            entries += 1
            for effect in find_effects(entry.entry):
                if effect.kind == KIND_QUADS:
                    operations += effect.payload.count(b"\n")
                    size += len(effect.payload)
                elif effect.kind == KIND_UPDATE:
                    updates += 1
    seen = max(1, entries)
    return LogEstimate(end - after, operations / seen, updates / seen, size / seen)
