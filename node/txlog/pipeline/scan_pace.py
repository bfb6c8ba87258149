"""How much of a store's time the comparison may take: a part of it after writes, next to nothing while it rests.

What the log wrote is compared at the normal pace. Afterwards only rot can change a store, or a program that is not
TxLog. Both are found by slow passes, whose cost does not depend on the size of the store.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from txlog.client import MasterClient, WorkerStatus
from txlog.config.process_config import PipelineConfig
from txlog.model.errors import TxLogError

log = logging.getLogger(__name__)

DUTY_CYCLE_SAMPLES: Final = 5
"""Number of recent samples that count."""
REST_S: Final = 60.0
"""A store rests at the earliest this long after its last write."""
PACE_POLL_S: Final = 5.0
"""Interval in which the positions are read. A write is compared at the normal pace after this time at the latest."""
IDLE_PARTS: Final = {"counts": 0.15, "cells": 0.85, "sums": 0.85}
"""How the kinds of comparison divide the time of a store that rests. A store is read by cells, or whole (sums)."""


class WorkerState(NamedTuple):
    """What changes when a worker is written to, by the log or by a repair."""

    name: str
    position: int
    repairs: int


class DutyCycle:
    """Computes pauses between samples, so that sampling takes at most ``share`` of a store's time, with pauses of at
    least ``least`` seconds.

    Other load on the machine lengthens a sample, most of all in a store that was just filled. So the cost is the
    minimum of the last few samples. After writes, a single sample is not enough.
    """

    def __init__(self, least: float) -> None:
        self._min_pause_s = least
        self._durations: deque[float] = deque(maxlen=DUTY_CYCLE_SAMPLES)

    def record(self, busy: float) -> None:
        """A sample took ``busy`` seconds of the slowest store."""
        self._durations.append(busy)

    def pause_s(self, share: float, at_rest: bool) -> float:
        """Seconds to pause after the last sample."""
        costs = min(self._durations, default=0.0)
        if len(self._durations) < 2 and not at_rest:
            costs = 0.0
        return max(self._min_pause_s, costs / share - costs)


class ScanPace:
    """The share that a comparison may take now. Safe to use from several threads.

    The stores rest once no position has moved for :data:`REST_S`, and all that was written since was compared
    (``has_cells``: only where stores are read by cells)."""

    def __init__(self, config: PipelineConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._share, self._idle_share = config.compare_share, config.compare_idle_share
        self._clock = clock
        self._states: frozenset[WorkerState] = frozenset()
        self._moved_at = clock()
        self._waits_for_cells = False

    def now(self) -> float:
        """The time by the clock of :meth:`on_all_compared`."""
        return self._clock()

    def observe(self, states: Sequence[WorkerState], has_cells: bool) -> None:
        """The workers are in these states now."""
        now = frozenset(states)
        if now != self._states:
            self._states, self._moved_at, self._waits_for_cells = now, self._clock(), has_cells

    def on_all_compared(self, began: float) -> None:
        """All that had been written at that time was compared, and each worker was read whole once."""
        if began >= self._moved_at:
            self._waits_for_cells = False

    @property
    def at_rest(self) -> bool:
        """Whether what the log wrote was compared."""
        return not self._waits_for_cells and self._clock() >= self._moved_at + REST_S

    def share(self, kind: str) -> float:
        """The part of a store's time that this kind of comparison may take."""
        return min(self._share, self._idle_share * IDLE_PARTS[kind]) if self.at_rest else self._share


def watch_positions(config: PipelineConfig, pace: ScanPace, has_cells: Callable[[str], bool]) -> Callable[[], None]:
    """A function that reads the workers' positions from the first master that answers, for ``pace``. ``has_cells``: of
    an engine."""
    masters = [MasterClient(url, PACE_POLL_S, connect_s=PACE_POLL_S / 2) for url in config.masters]

    def read() -> None:
        for master in masters:
            try:
                workers = master.workers()
            except TxLogError as wrong:
                log.debug("%s has no positions: %s", master.url, wrong)
                continue
            cells = config.compare_s > 0 and any(has_cells(w.engine or "oxigraph") for w in workers)
            pace.observe([_state_of(worker) for worker in workers], cells)
            return

    return read


def pause(stop: threading.Event, cycle: DutyCycle, pace: ScanPace, kind: str) -> bool:
    """Wait as long as the duty cycle says, and shorter when a write ends the rest. True when ``stop`` is set."""
    began = time.monotonic()
    while (left := began + cycle.pause_s(pace.share(kind), pace.at_rest) - time.monotonic()) > 0:
        if stop.wait(min(left, PACE_POLL_S)):
            return True
    return stop.is_set()


def _state_of(worker: WorkerStatus) -> WorkerState:
    index = -1 if worker.position is None else worker.position.index
    return WorkerState(worker.name, index, 0 if worker.repair is None else worker.repair.done)
