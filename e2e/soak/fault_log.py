"""What was done to the cluster and when, so that whatever is found later can name the faults before it."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Generic, TypeVar

FAULTS_SHOWN: Final = 5
"""Faults that a finding names."""
STALL_S: Final = 1.0
TOUCHING_S: Final = 0.2
"""Between two faults, too short for anybody to be heard in it for certain."""


@dataclass
class InjectedFault:
    """``started_at`` and ``ended_at`` are seconds since 1970; ``ended_at`` is 0 while it lasts."""

    kind: str
    target: str
    started_at: float
    ended_at: float = 0.0

    def __str__(self) -> str:
        lasted = f"{self.ended_at - self.started_at:.1f} s" if self.ended_at else "not over"
        return f"{format_clock(self.started_at)} {self.kind} {self.target} ({lasted})"


def silence_before(faults: Sequence[InjectedFault], at: float, within: float) -> tuple[float, float]:
    """Of these faults, each of which makes somebody silent, in the time of this length before ``at``: how long the
    longest lasted, those together that touch each other, and how long all of them did."""
    spans = sorted((max(f.started_at, at - within), min(f.ended_at or at, at)) for f in faults)
    longest = total = 0.0
    since = until = at - within
    for began, ended in spans:
        if ended <= began or ended <= until:
            continue
        if began > until + TOUCHING_S:
            since, until = began, began
        total += ended - max(began, until)
        until = ended
        longest = max(longest, until - since)
    return longest, total


T = TypeVar("T")


class ShuffledDeck(Generic[T]):
    """Draws as often as told, and each before any comes a second time too often: cards, shuffled anew when they are
    used up. So a run that is long enough has met every fault."""

    def __init__(self, cards: Sequence[tuple[int, T]], draw: random.Random) -> None:
        self._cards = cards
        self._random = draw
        self._left: list[T] = []

    def draw(self) -> T:
        if not self._left:
            self._left = [card for often, card in self._cards for _ in range(often)]
            self._random.shuffle(self._left)
        return self._left.pop()


def active_ticks(seconds: float, step_s: float = 0.1) -> Iterator[None]:
    """Again and again, each ``step_s``, for so long; time in which the machine stood still does not count."""
    left = seconds
    while left > 0:
        began = time.monotonic()
        yield
        time.sleep(step_s)
        left -= min(STALL_S, time.monotonic() - began)


def format_clock(at: float) -> str:
    return datetime.fromtimestamp(at).strftime("%H:%M:%S.%f")[:-4]


class FaultLog:
    """Of one cluster; threads write into it. ``written`` hears of each fault that is over."""

    def __init__(self, written: Callable[[InjectedFault], None] = lambda _: None) -> None:
        self._written = written
        self.faults: list[InjectedFault] = []
        self.stalls: list[tuple[float, float]] = []
        """When this very process stood still for longer than :data:`STALL_S`: the machine did, and every fault lasted
        longer than it was meant to."""
        self._lock = threading.Lock()

    @property
    def stalled_s(self) -> float:
        return sum(until - since for since, until in list(self.stalls))

    @contextmanager
    def fault(self, kind: str, target: str) -> Iterator[InjectedFault]:
        """Begun now, over at the end of the block; one that could not be done (it raises) is none."""
        fault = InjectedFault(kind, target, time.time())
        with self._lock:
            self.faults.append(fault)
        try:
            yield fault
        except BaseException:
            with self._lock:
                self.faults.remove(fault)
            raise
        fault.ended_at = time.time()
        self._written(fault)

    def counts(self) -> Counter[str]:
        with self._lock:
            return Counter(fault.kind for fault in self.faults)

    def faults_before(self, at: float) -> str:
        """The last faults that began before that moment, newest first."""
        with self._lock:
            known = [fault for fault in self.faults if fault.started_at <= at]
        return "; ".join(str(fault) for fault in known[-FAULTS_SHOWN:][::-1]) or "no fault"

    def stalled(self, began: float, ended: float) -> bool:
        """Whether the machine stood still at any time between."""
        return any(since <= ended and began <= until for since, until in list(self.stalls))

    def watch(self, over: threading.Event) -> None:
        """Notice stalls, until ``over``."""
        last = time.monotonic()
        while not over.wait(0.1):
            now = time.monotonic()
            if now - last > STALL_S:
                self.stalls.append((time.time() - (now - last), time.time()))
            last = now
