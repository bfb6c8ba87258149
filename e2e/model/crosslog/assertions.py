"""What no run may do. Each method raises :class:`CrosslogViolation`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from e2e.model.crosslog.masters import CrosslogMaster
from e2e.model.crosslog.values import (
    CrosslogEntry,
    CrosslogViolation,
    CutVector,
    ModelCutFinish,
    ModelOutcome,
    ModelPrepare,
)


@dataclass(slots=True, eq=False)
class ChainedWrite:
    """A write of a client that begins when the one before it is synced."""

    log: int
    uid: int
    is_synced: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class FinishedCut:
    """A cut that counts. ``synced_before``: by client, what was synced when it was found."""

    vector: CutVector
    synced_before: list[list[tuple[int, int]]]


@dataclass(slots=True, eq=False)
class CrosslogAssertions:
    """What an observer of the cluster remembers. ``chains``: the writes of each client, in its order."""

    counts: Counter[str]
    chains: list[list[ChainedWrite]] = field(default_factory=list)
    answered: dict[int, bool] = field(default_factory=dict)
    ended_by_another: set[int] = field(default_factory=set)
    half_seen: set[tuple[int, int]] = field(default_factory=set)
    _outcomes: dict[int, bool] = field(default_factory=dict)
    _cuts: dict[int, FinishedCut] = field(default_factory=dict)

    def answer(self, gid: int, commits: bool) -> None:
        """The client hears what was decided, once and for all."""
        if self.answered.setdefault(gid, commits) != commits:
            raise CrosslogViolation("a client was answered otherwise")

    def note_outcome(self, outcome: ModelOutcome) -> None:
        """An outcome counts in some copy of some log. All of a transaction say the same, whatever moves later."""
        if self._outcomes.setdefault(outcome.gid, outcome.commits) != outcome.commits:
            raise CrosslogViolation("two outcomes of one transaction")

    def note_halves(self, master: CrosslogMaster, participants: Sequence[tuple[int, ...]]) -> None:
        """Count what a reader of one master sees in a part of the repositories only. It is no fault: there is no
        isolation over logs."""
        for gid in master.prepared():
            done = effects_at(master, gid, participants[gid])
            if done and len(done) < len(participants[gid]):
                self.half_seen.add((gid, master.number))

    def note_cut(self, finish: ModelCutFinish, participants: Sequence[tuple[int, ...]]) -> None:
        """A cut counts in the system log. It has each transaction in all of its repositories, or in none."""
        vector = finish.vector
        if vector is None or finish.cut in self._cuts:
            return
        inside: dict[int, set[int]] = {}
        for log, prefix in vector.prefixes.items():
            for gid in _effects_of(prefix):
                inside.setdefault(gid, set()).add(log)
        if any(logs != set(participants[gid]) for gid, logs in inside.items()):
            raise CrosslogViolation("half a transaction in a cut")
        before = [[(each.log, each.uid) for each in chain if each.is_synced] for chain in self.chains]
        self._cuts[finish.cut] = FinishedCut(vector, before)
        self.counts["cuts"] += 1
        self.counts["consistent cuts"] += vector.is_consistent

    def finish(self, masters: Sequence[CrosslogMaster], participants: Sequence[tuple[int, ...]]) -> None:
        """All masters agree, each transaction has an effect in all repositories or in none, and every answer was
        true."""
        first = masters[0]
        for log, copy in enumerate(first.logs):
            ids = [entry.uid for entry in copy.entries]
            if any([entry.uid for entry in master.logs[log].entries] != ids for master in masters):
                raise CrosslogViolation("logs differ in the end")
        prepared = set(first.prepared())
        for gid in sorted(prepared):
            done = effects_at(first, gid, participants[gid])
            if done and len(done) < len(participants[gid]):
                raise CrosslogViolation("half a transaction in the end")
            if self.answered.get(gid, bool(done)) != bool(done):
                raise CrosslogViolation("a client was answered otherwise")
            self.counts["committed" if done else "aborted"] += 1
            self.counts["ended by another"] += gid in self.ended_by_another
        if any(commits and gid not in prepared for gid, commits in self.answered.items()):
            raise CrosslogViolation("a client was answered otherwise")
        for cut in self._cuts.values():
            if cut.vector.is_consistent:
                _check_consistent(cut, first)


def effects_at(master: CrosslogMaster, gid: int, participants: tuple[int, ...]) -> list[int]:
    """The repositories in which a transaction has taken effect at a master."""
    folds = {log: master.logs[log].fold for log in participants}
    return [log for log, fold in folds.items() if gid in fold.outcomes and fold.outcomes[gid].commits]


def _effects_of(prefix: Sequence[CrosslogEntry]) -> list[int]:
    """Transactions that take effect in the beginning of a log: read without the fold, of which this is a check."""
    prepared, decided = set[int](), dict[int, bool]()
    for entry in prefix:
        if isinstance(entry.content, ModelPrepare):
            prepared.add(entry.content.gid)
        elif isinstance(entry.content, ModelOutcome) and entry.content.gid in prepared:
            decided.setdefault(entry.content.gid, entry.content.commits)
    return [gid for gid, commits in decided.items() if commits]


def _check_consistent(cut: FinishedCut, final: CrosslogMaster) -> None:
    """No position has moved, and of what one client wrote the cut has all that was synced before something in it. What
    went with a lost disk is in no log and does not count."""
    inside: dict[int, set[int]] = {}
    for log, prefix in cut.vector.prefixes.items():
        ids = [entry.uid for entry in prefix]
        if [entry.uid for entry in final.logs[log].entries[: len(ids)]] != ids:
            raise CrosslogViolation("a consistent cut has moved")
        inside[log] = set(ids)
    for chain in cut.synced_before:
        held = [uid in inside[log] for log, uid in chain if uid in final.logs[log].ids]
        if any(later and not earlier for earlier, later in pairwise(held)):
            raise CrosslogViolation("a cut has a write and lacks one before it")
