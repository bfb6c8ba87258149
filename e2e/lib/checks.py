"""Whether logs and workers agree with what clients were answered. Pure: no clock, no network; each check is one scan.

*lost*: acknowledged and not there. *doubled*: an id, or a name that takes effect, twice in one log, or a counter that
was raised once too often. *foreign*: there although it was refused or never sent. *disordered*: logged before
something that was acknowledged as synced before it was sent. *differs*: a worker does not hold what its log leads to.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyoxigraph

from e2e.lib.history import ClientOperation, LoggedOperation, LogRecord, WriteOutcome, transaction_name
from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.model.quads import decode_quads

ORDERED_LEVELS: Final = ("synced", "applied", "applied-all")
"""Levels that promise a place in the order."""
_SUBJECT: Final = re.compile(r"<urn:faults:(op|counter):([0-9-]+)>")


@dataclass
class Verdict:
    """What checks found. Each finding begins with the name or the id that it is about."""

    acknowledged: int = 0
    unknown: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)
    differs: list[str] = field(default_factory=list)

    @property
    def findings(self) -> dict[str, list[str]]:
        return {name: found for name, found in vars(self).items() if isinstance(found, list)}

    @property
    def is_clean(self) -> bool:
        return not any(self.findings.values())

    def add(self, other: Verdict) -> None:
        """The findings of another scan with the same history."""
        self.acknowledged = max(self.acknowledged, other.acknowledged)
        self.unknown = max(self.unknown, other.unknown)
        for name, found in other.findings.items():
            self.findings[name].extend(found)


def check_log(history: Iterable[ClientOperation], log: Iterable[LoggedOperation]) -> Verdict:
    """One master's log against the history."""
    operations = list(history)
    indexes: dict[str, list[int]] = {}
    for found in log:
        indexes.setdefault(found.name, []).append(found.log_index)
    verdict = _check_counts(operations, {name: len(each) for name, each in indexes.items()})
    verdict.disordered = check_order(operations, {name: each[0] for name, each in indexes.items()})
    return verdict


def check_worker(history: Iterable[ClientOperation], names: Iterable[str]) -> Verdict:
    """A worker's contents against the history. A set holds a name once, so :func:`check_counters` looks for
    doubles."""
    return _check_counts(list(history), Counter(names))


def check_counters(logged: Mapping[str, int], found: Mapping[str, int]) -> list[str]:
    """Counters that updates raised by one each: what a worker holds against the number of raises in the log. More
    means that one was executed twice, less that one was not."""
    return [
        f"{name}: raised {logged.get(name, 0)} times, is {found.get(name, 0)}"
        for name in sorted({*logged, *found})
        if logged.get(name, 0) != found.get(name, 0)
    ]


def _check_counts(operations: list[ClientOperation], counts: Mapping[str, int]) -> Verdict:
    verdict = Verdict()
    known = set()
    for operation in operations:
        known.add(operation.name)
        count = counts.get(operation.name, 0)
        if count > 1:
            verdict.doubled.append(f"{operation.name} {count} times")
        if operation.outcome is WriteOutcome.ACKNOWLEDGED:
            verdict.acknowledged += 1
            if not count:
                verdict.lost.append(f"{operation.name} ({operation.level} {operation.txid})")
        elif operation.outcome is WriteOutcome.UNKNOWN:
            verdict.unknown += 1
        elif count:
            verdict.foreign.append(f"{operation.name} was refused")
    verdict.foreign += [f"{name} was never sent" for name in counts if name not in known]
    return verdict


def check_order(operations: Sequence[ClientOperation], indexes: Mapping[str, int]) -> list[str]:
    """``indexes``: name to index in the log. Real time: what was acknowledged as synced before another was sent comes
    before it."""
    placed = [operation for operation in operations if operation.name in indexes]
    ended = sorted(
        (op.ended_at, indexes[op.name], op.name)
        for op in placed
        if op.outcome is WriteOutcome.ACKNOWLEDGED and op.level in ORDERED_LEVELS
    )
    wrong = []
    at, highest, there = 0, 0, ""
    for operation in sorted(placed, key=lambda op: op.started_at):
        while at < len(ended) and ended[at][0] < operation.started_at:
            highest, there = max((highest, there), ended[at][1:])
            at += 1
        if indexes[operation.name] < highest:
            wrong.append(
                f"{operation.name} at {indexes[operation.name]}, below {there} at {highest}, which was there before"
            )
    return wrong


def check_exactly_once(acknowledged: Iterable[str], effects: Sequence[Mapping[str, int]]) -> list[str]:
    """Acknowledged txids that do not take effect exactly once in each log. ``effects``: of each log, how often each
    txid takes effect."""
    return [
        f"{txid}: {[log.get(txid, 0) for log in effects]}"
        for txid in acknowledged
        if any(log.get(txid) != 1 for log in effects)
    ]


def judge_log(
    history: Sequence[ClientOperation], log: Sequence[LogRecord], side_of: Callable[[str], str], *, moves: bool
) -> Verdict:
    """Entry by entry: also what no client wrote so, and ids. ``moves``: a rejoin may move what was acknowledged; then
    order is judged among transactions of one side. ``side_of`` a master: with whom it parted each time."""
    judged = Verdict()
    found: list[LoggedOperation] = []
    ids: set[str] = set()
    for record in log:
        if record.txid in ids:
            judged.doubled.append(f"{record.txid} again at {record.log_index}")
        ids.add(record.txid)
        name = transaction_name(record)
        if name is None:
            judged.foreign.append(f"{record.txid} at {record.log_index}: {record.payload[:120]!r}")
        elif name and not record.noop:
            found.append(LoggedOperation(record.log_index, name, record.txid))
    checked = check_log(history, found)
    if moves:
        sides: dict[str, list[ClientOperation]] = {}
        for operation in history:
            if operation.txid:
                sides.setdefault(side_of(operation.txid.partition(".")[0]), []).append(operation)
        # A repetition on the other side of a split may be the one that counts in the end; no client here knows of it.
        answered = {operation.name: operation.txid for operation in history}
        indexes = {each.name: each.log_index for each in found if each.txid == answered.get(each.name)}
        checked.disordered = [wrong for each in sides.values() for wrong in check_order(each, indexes)]
    judged.add(checked)
    judged.lost += [
        f"{op.name} ({op.level} {op.txid}): that id is not in the log"
        for op in history
        if op.txid and op.txid not in ids
    ]
    return judged


class LogReplay:
    """What a worker must hold after a log: the log executed, one entry after another, in a store of this process."""

    def __init__(self) -> None:
        self._store = pyoxigraph.Store()
        self._adds: list[bytes] = []

    def run(self, log: Iterable[LogRecord]) -> None:
        for record in log:
            if record.noop:
                continue
            if record.kind == KIND_QUADS:
                for is_add, line in decode_quads(record.payload):
                    if is_add:
                        self._adds.append(line)
                    else:
                        self._flush()
                        for quad in pyoxigraph.parse(line, pyoxigraph.RdfFormat.N_QUADS):
                            self._store.remove(quad)
            elif record.kind == KIND_UPDATE:
                self._flush()
                self._store.update(record.payload.decode())

    def quads(self) -> set[str]:
        self._flush()
        return {str(quad) for quad in self._store}

    def _flush(self) -> None:
        if self._adds:
            lines, self._adds = b"\n".join(self._adds) + b"\n", []
            self._store.extend(pyoxigraph.parse(lines, pyoxigraph.RdfFormat.N_QUADS))


def parse_dump(dump: bytes) -> set[str]:
    """A worker's N-Quads as :meth:`LogReplay.quads` formats them."""
    return {str(quad) for quad in pyoxigraph.parse(dump, pyoxigraph.RdfFormat.N_QUADS)}


def judge_worker(worker: str, wanted: set[str], held: set[str]) -> Verdict:
    """Quad by quad. A counter that is too high was raised twice; any other quad too many is foreign."""
    judged = Verdict()
    missing, more = wanted - held, held - wanted
    raised = {_counter_of(quad) for quad in missing} - {None}
    for quad in sorted(more):
        counter = _counter_of(quad)
        (judged.doubled if counter in raised and counter else judged.foreign).append(f"{quad} in {worker}")
    judged.differs += [f"{quad} is not in {worker}" for quad in sorted(missing)]
    return judged


def _counter_of(quad: str) -> str | None:
    found = _SUBJECT.search(quad)
    return found[2] if found is not None and found[1] == "counter" else None
