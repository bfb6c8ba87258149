"""One entry of a log, with all that follows from the log up to it."""

from __future__ import annotations

from dataclasses import dataclass

from e2e.model.certification.values import EntryId, EntryKey, LogEntryOfModel, ModelRefusal, State, Vector

NO_ENTRY: EntryId = (-1, 0)


@dataclass(frozen=True, slots=True, eq=False)
class LogNode:
    """``hash``: of the log up to here. ``state``: of a store after it. ``vector``: by master, its last entry in this
    log. ``keys``: by key, the entry that took it. ``tried_keys``: of all entries, refused ones, too. ``requests``: of
    effects that count."""

    index: int
    hash: int
    txid: EntryId
    stamp: int
    entry: LogEntryOfModel
    refusal: ModelRefusal
    state: State
    vector: Vector
    keys: dict[EntryKey, EntryId]
    tried_keys: frozenset[EntryKey]
    requests: frozenset[int]

    @property
    def counts(self) -> bool:
        """Whether it changes anything."""
        return not self.refusal


def make_root(state: State, masters: int) -> LogNode:
    """What is before the first entry of a log."""
    return LogNode(
        0, 0, NO_ENTRY, 0, LogEntryOfModel(), ModelRefusal.NONE, state, (0,) * masters, {}, frozenset(), frozenset()
    )


def shared_index(one: list[LogNode], other: list[LogNode]) -> int:
    """The index up to which two logs are the same."""
    index = 0
    while index + 1 < min(len(one), len(other)) and one[index + 1].hash == other[index + 1].hash:
        index += 1
    return index
