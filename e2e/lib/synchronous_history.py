"""What clients were answered about synchronous writes, and whether the log agrees. Pure: no clock, no network.

A write has a name that is in its data and nowhere else. It may be sent several times under one key, to several masters;
each time is an attempt with its own answer.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Told(StrEnum):
    """What a client was answered."""

    COMMITTED = "committed"
    PENDING = "pending"
    ROLLED_BACK = "rolled-back"
    REFUSED = "refused"
    """Nothing was logged."""
    UNKNOWN = "unknown"
    """No answer came."""


class Attempt(NamedTuple):
    """One request. ``position``: index and hash of the effect, where the answer names them. ``is_minority``: the master
    was in a view that decides nothing, from before the request until after the answer."""

    name: str
    node: str
    told: Told
    txid: str = ""
    position: tuple[int, str] | None = None
    is_minority: bool = False


class LoggedEffect(NamedTuple):
    """What takes effect at an index of the log. ``name``: of the write, empty for what no client wrote."""

    log_index: int
    txid: str
    name: str


@dataclass
class SynchronousVerdict:
    """Findings, each beginning with the name or the id that it is about."""

    contradictions: list[str] = field(default_factory=list)
    executed_twice: list[str] = field(default_factory=list)
    logged_though_refused: list[str] = field(default_factory=list)
    rolled_back_by_minority: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found."""
        return not any(vars(self).values())


def judge_synchronous(
    attempts: Iterable[Attempt],
    effects: Iterable[LoggedEffect],
    hashes: Mapping[int, str],
    final: Mapping[str, Collection[str]] = {},
) -> SynchronousVerdict:
    """``effects`` and ``hashes``: of one master's whole log. ``final``: by txid, the states that masters answered when
    all was over. A committed one that repeats a key has no effect of its own: another try with its name has it."""
    found = SynchronousVerdict()
    by_name: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        by_name[attempt.name].append(attempt)
    logged = list(effects)
    counts = Counter(effect.name for effect in logged)
    executed = {effect.txid for effect in logged}
    found.executed_twice += [f"{name} takes effect {n} times" for name, n in counts.items() if name and n > 1]
    for name, tries in by_name.items():
        told = {attempt.told for attempt in tries}
        if Told.COMMITTED in told and not counts[name]:
            found.contradictions.append(f"{name} was answered as committed, and takes no effect")
        if told <= {Told.REFUSED} and counts[name]:
            found.logged_though_refused.append(f"{name} was refused each time, and takes effect")
        for attempt in tries:
            _judge_attempt(found, attempt, executed, hashes)
    names = {attempt.txid: name for name, tries in by_name.items() for attempt in tries if attempt.txid}
    for txid, states in final.items():
        wanted = Told.COMMITTED if txid in executed else Told.ROLLED_BACK
        repeats = {Told.COMMITTED.value} if counts[names.get(txid, "")] == 1 and names.get(txid) else set[str]()
        if set(states) - {wanted.value} - repeats or len(set(states)) > 1:
            found.contradictions.append(f"{txid} is {', '.join(sorted(set(states)))}; by the log it is {wanted.value}")
    return found


def _judge_attempt(
    found: SynchronousVerdict, attempt: Attempt, executed: Collection[str], hashes: Mapping[int, str]
) -> None:
    if attempt.told is Told.ROLLED_BACK and attempt.txid in executed:
        found.contradictions.append(f"{attempt.name}, {attempt.txid}: told rolled back, and takes effect")
    if attempt.told is Told.ROLLED_BACK and attempt.is_minority:
        found.rolled_back_by_minority.append(f"{attempt.name}: {attempt.node} decided nothing, and told it rolled back")
    if attempt.told is Told.COMMITTED and attempt.position is not None:
        index, value = attempt.position
        if hashes.get(index) != value:
            found.moved.append(f"{attempt.name} was answered with index {index}, where the log has another hash")
