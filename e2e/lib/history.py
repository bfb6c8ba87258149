"""What clients were told, and whether logs and workers agree with it. Pure: no clock, no network.

A time-out, a broken connection, an answer that never came: *unknown*, never *failed*; such a transaction may be
there once or not at all. A check is one scan over what is checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple


class WriteOutcome(Enum):
    ACKNOWLEDGED = "acknowledged"
    """Promised: it is there exactly once, for ever."""
    UNKNOWN = "unknown"
    REFUSED = "refused"
    """Every attempt was answered with an error that promises that nothing happened: it is not there."""


class ClientOperation(NamedTuple):
    """A client's transaction, however often it was sent. ``name`` is in its data, and nowhere else. ``started_at`` and
    ``ended_at`` are times of one clock: first attempt sent, last answer. ``level`` is what was promised."""

    name: str
    started_at: float
    ended_at: float
    outcome: WriteOutcome
    level: str = ""
    txid: str = ""


class LoggedOperation(NamedTuple):
    """A transaction in a log: its index (``log_index``), and the name in its data."""

    log_index: int
    name: str
    txid: str


class HistoryVerdict(NamedTuple):
    """``lost``: acknowledged and not there. ``duplicated``: there more than once. ``ghosts``: there although refused,
    or never sent. ``reordered``: logged before something that was acknowledged as synced before it was sent."""

    acknowledged: int
    unknown: int
    lost: list[str]
    duplicated: list[str]
    ghosts: list[str]
    reordered: list[str]

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.duplicated or self.ghosts or self.reordered)

    def merge(self, other: HistoryVerdict) -> HistoryVerdict:
        """Of one history, both scans' findings."""
        return HistoryVerdict(
            self.acknowledged,
            self.unknown,
            [*self.lost, *other.lost],
            [*self.duplicated, *other.duplicated],
            [*self.ghosts, *other.ghosts],
            [*self.reordered, *other.reordered],
        )


ORDERED_LEVELS = ("synced", "applied", "applied-all")
"""Levels that promise a place in the order."""


def check_log(history: Iterable[ClientOperation], log: Iterable[LoggedOperation]) -> HistoryVerdict:
    """One master's log against the history. ``log`` has the transactions that take effect, in order; a repeated
    key's entry is a no-op and not among them."""
    operations = list(history)
    places: dict[str, list[int]] = {}
    for found in log:
        places.setdefault(found.name, []).append(found.log_index)
    verdict = _check(operations, {name: len(each) for name, each in places.items()})
    return verdict._replace(reordered=check_order(operations, {name: each[0] for name, each in places.items()}))


def check_worker(history: Iterable[ClientOperation], names: Iterable[str]) -> HistoryVerdict:
    """A worker's contents against the history. A set holds a name once, so doubles are looked for by
    :func:`check_counters`."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return _check(list(history), counts)


def check_counters(logged: Mapping[str, int], found: Mapping[str, int]) -> list[str]:
    """Counters that updates raised by one each: what a worker holds against the number of raises in the log. More
    means that one was executed twice, less that one was not."""
    wrong = []
    for name in sorted({*logged, *found}):
        if logged.get(name, 0) != found.get(name, 0):
            wrong.append(f"{name}: raised {logged.get(name, 0)} times, is {found.get(name, 0)}")
    return wrong


def _check(operations: list[ClientOperation], counts: Mapping[str, int]) -> HistoryVerdict:
    known = set()
    lost, doubled, ghosts = [], [], []
    acknowledged = unknown = 0
    for operation in operations:
        known.add(operation.name)
        count = counts.get(operation.name, 0)
        if count > 1:
            doubled.append(f"{operation.name} {count} times")
        if operation.outcome is WriteOutcome.ACKNOWLEDGED:
            acknowledged += 1
            if not count:
                lost.append(f"{operation.name} ({operation.level} {operation.txid})")
        elif operation.outcome is WriteOutcome.UNKNOWN:
            unknown += 1
        elif count:
            ghosts.append(f"{operation.name} was refused")
    ghosts += [f"{name} was never sent" for name in counts if name not in known]
    return HistoryVerdict(acknowledged, unknown, lost, doubled, ghosts, [])


def check_order(operations: Sequence[ClientOperation], places: Mapping[str, int]) -> list[str]:
    """``places``: name to index in the log. Real time: what was acknowledged as synced before another was sent stands
    before it."""
    placed = [operation for operation in operations if operation.name in places]
    ended = sorted(
        (op.ended_at, places[op.name], op.name)
        for op in placed
        if op.outcome is WriteOutcome.ACKNOWLEDGED and op.level in ORDERED_LEVELS
    )
    wrong = []
    at, highest, there = 0, 0, ""
    for operation in sorted(placed, key=lambda op: op.started_at):
        while at < len(ended) and ended[at][0] < operation.started_at:
            highest, there = max((highest, there), ended[at][1:])
            at += 1
        if places[operation.name] < highest:
            wrong.append(
                f"{operation.name} at {places[operation.name]}, below {there} at {highest}, which was there before"
            )
    return wrong
