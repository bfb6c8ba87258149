"""Histories made by hand: one for each way in which what was read may differ from what is in front of the effect.

In most of them a reader is on the side that loses a split. One entry, ``(0, 1)`` or ``(1, 1)``, is in flight to both
sides. So it is at another place behind the rejoin, and random runs seldom meet that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from e2e.model.certification.log_chain import LogNode, make_root
from e2e.model.certification.log_fold import ChainFold
from e2e.model.certification.updates import EvaluatedForm, UpdateForm
from e2e.model.certification.values import (
    EntryId,
    LeftOut,
    LogEntryOfModel,
    ModelBase,
    ModelRefusal,
    RuleBroken,
    StoredQuad,
    TextUpdate,
    WrittenQuad,
)
from e2e.model.certification.verdicts import ModelCertifier

Log = list[LogNode]
_DRAW: Final = 3
_ONE: Final[StoredQuad] = (0, 0, 1)
_TWO: Final[StoredQuad] = (1, 1, 1)


class DirectedHistory(NamedTuple):
    """``run`` returns the verdict on the last effect. With all rules it is ``expected``."""

    name: str
    expected: ModelRefusal
    run: Callable[[frozenset[LeftOut]], ModelRefusal]


class _Script:
    """Entries by txid, and logs that are written down one by one."""

    def __init__(self, left_out: frozenset[LeftOut], *quads: StoredQuad) -> None:
        self._left_out = left_out
        self._fold = ChainFold(left_out, Counter())
        self.root = [make_root(frozenset(quads or (_ONE, _TWO)), 4)]

    def write(self, txid: EntryId, *, adds: WrittenQuad | None = None, deletes: WrittenQuad | None = None) -> EntryId:
        """Plain quads."""
        return self.put(txid, LogEntryOfModel((deletes,) if deletes else (), (adds,) if adds else ()))

    def put(self, txid: EntryId, entry: LogEntryOfModel) -> EntryId:
        """Any entry."""
        self._fold.entries[txid] = entry
        return txid

    def evaluate(
        self,
        txid: EntryId,
        log: Log,
        form: EvaluatedForm,
        *,
        before: int | None = None,
        at: int | None = None,
        final: int = 0,
    ) -> EntryId:
        """An effect on the state at an index of this log, by default its end, as also for the marker ``before`` the
        data. The marker after the data is at the end."""
        last = len(log) - 1
        at = last if at is None else at
        first, behind = log[at if before is None else before], log[last]
        if LeftOut.MARKER_LATE in self._left_out:
            first = behind
        if LeftOut.ONE_MARKER in self._left_out:
            behind = first
        base = ModelBase(first.index, first.hash, first.vector, final, behind.index, behind.hash)
        deletes, adds = form.change(log[at].state, _DRAW)
        reads, request = form.reads(self._left_out), txid[0] * 100 + txid[1]
        entry = LogEntryOfModel(
            deletes, adds, ("e", *txid), None, base, reads, request, lambda on: form.change(on, _DRAW)
        )
        return self.put(txid, entry)

    def extend(self, log: Log, *txids: EntryId) -> Log:
        """The log with these entries behind it."""
        log = list(log)
        for txid in txids:
            log.append(self._fold.next_node(log, log[-1].stamp + 1, txid))
        return log

    def verdict(self, log: Log) -> ModelRefusal:
        """On the last entry. :class:`RuleBroken` where it is refused, and no rule says so."""
        node = log[-1]
        if node.refusal and not ModelCertifier(frozenset()).verdict(log[:-1], node.entry):
            raise RuleBroken("refused without a reason")
        return node.refusal


def _increment(subject: int, predicate: int) -> EvaluatedForm:
    return EvaluatedForm(UpdateForm.INCREMENT, subject, predicate, 0, 0)


def _if_there(subject: int, predicate: int, value: int, other: int) -> EvaluatedForm:
    return EvaluatedForm(UpdateForm.IF_THERE, subject, predicate, other, value)


def _sum(predicate: int, subject: int, other: int) -> EvaluatedForm:
    return EvaluatedForm(UpdateForm.SUM, subject, predicate, other, 0)


def _rejoin(script: _Script, on_both: EntryId, losers: Log, effect: EntryId) -> ModelRefusal:
    """``losers``: the log of the losing side, whose first entry is ``(0, 1)``. The winner has what is in flight to
    both, and an unrelated write."""
    unrelated = script.write((2, 1), adds=(4, 0, "3"))
    script.extend(losers, effect)
    return script.verdict(script.extend(script.root, on_both, unrelated, (0, 1), effect))


def _unseen(left_out: frozenset[LeftOut]) -> ModelRefusal:
    """On one chain: an entry between what was read and the effect writes what was read."""
    script = _Script(left_out)
    effect = script.evaluate((0, 1), script.root, EvaluatedForm(UpdateForm.UNLESS, 0, 1, 2, 0))
    return script.verdict(script.extend(script.root, script.write((1, 1), adds=(3, 2, "1")), effect))


def _unseen_form(left_out: frozenset[LeftOut]) -> ModelRefusal:
    """The same, and it writes the value in another form."""
    script = _Script(left_out)
    effect = script.evaluate((0, 1), script.root, _if_there(0, 2, 3, 1))
    return script.verdict(script.extend(script.root, script.write((1, 1), adds=(0, 2, "03")), effect))


def _unseen_text(left_out: frozenset[LeftOut]) -> ModelRefusal:
    """The same, and it is a text."""
    script = _Script(left_out)
    effect = script.evaluate((0, 1), script.root, _increment(0, 2))
    text = script.put((1, 1), LogEntryOfModel(text=TextUpdate(0, 0, 2)))
    return script.verdict(script.extend(script.root, text, effect))


def _read_before_marker(left_out: frozenset[LeftOut]) -> ModelRefusal:
    """A worker applies an entry between the data and the second marker."""
    script = _Script(left_out)
    log = script.extend(script.root, script.write((1, 1), adds=(0, 2, "4")))
    effect = script.evaluate((0, 1), log, _increment(0, 2), at=0)
    return script.verdict(script.extend(log, effect))


def _refused_between(left_out: frozenset[LeftOut]) -> ModelRefusal:
    """On one chain: what is refused wrote nothing, so it blocks no other one."""
    script = _Script(left_out)
    refused = script.evaluate((1, 1), script.root, _sum(1, 0, 2))
    effect = script.evaluate((0, 1), script.root, _increment(0, 2))
    return script.verdict(script.extend(script.root, script.write((2, 1), adds=(3, 1, "2")), refused, effect))


def _untouched(left_out: frozenset[LeftOut]) -> ModelRefusal:
    """A base of another branch, and the winner wrote something else."""
    script = _Script(left_out)
    losers = script.extend(script.root, script.write((0, 1), adds=(0, 2, "4")))
    effect = script.evaluate((0, 2), losers, _increment(0, 2))
    return script.verdict(script.extend(script.root, script.write((2, 1), adds=(4, 0, "3")), (0, 1), effect))


def _winner_wrote(left_out: frozenset[LeftOut]) -> ModelRefusal:
    """A base of another branch, and the winner wrote what was read, at an index below the base's."""
    script = _Script(left_out)
    losers = script.extend(script.root, script.write((0, 1), adds=(4, 0, "3")))
    effect = script.evaluate((0, 2), losers, _increment(0, 2))
    return script.verdict(script.extend(script.root, script.write((2, 1), adds=(0, 2, "4")), (0, 1), effect))


def _absent(left_out: frozenset[LeftOut]) -> ModelRefusal:
    """The effect is in flight to both sides, what was read is not: the winner orders one without the other."""
    script = _Script(left_out)
    losers = script.extend(script.root, script.write((0, 1), adds=(0, 2, "4")))
    effect = script.evaluate((1, 1), losers, _increment(0, 2))
    return script.verdict(script.extend(script.root, effect))


def _reordered(left_out: frozenset[LeftOut]) -> ModelRefusal:
    """One adds a quad and the other deletes it: together it is gone; the other way round it is there."""
    script = _Script(left_out)
    script.write((0, 1), adds=(0, 2, "4"))
    losers = script.extend(script.root, (0, 1), script.write((1, 1), deletes=(0, 2, "4")))
    return _rejoin(script, (1, 1), losers, script.evaluate((0, 2), losers, _if_there(0, 2, 4, 1)))


def _text_moved(left_out: frozenset[LeftOut]) -> ModelRefusal:
    """A text copied what it found. In front of that, it finds something else."""
    script = _Script(left_out)
    script.write((0, 1), adds=(0, 0, "3"))
    losers = script.extend(script.root, (0, 1), script.put((1, 1), LogEntryOfModel(text=TextUpdate(0, 0, 1))))
    return _rejoin(script, (1, 1), losers, script.evaluate((0, 2), losers, _increment(0, 1)))


def _risen(left_out: frozenset[LeftOut]) -> ModelRefusal:
    """An effect was refused behind a write, and counts in front of it."""
    script = _Script(left_out)
    refused = script.evaluate((1, 1), script.root, _sum(1, 0, 2))
    losers = script.extend(script.root, script.write((0, 1), adds=(1, 1, "2")), refused)
    return _rejoin(script, refused, losers, script.evaluate((0, 2), losers, _increment(0, 2)))


def _risen_by_key(left_out: frozenset[LeftOut]) -> ModelRefusal:
    """One key with two bodies: the second one changed nothing, and in front of the first one it counts."""
    script = _Script(left_out)
    script.put((0, 1), LogEntryOfModel(adds=((4, 1, "1"),), key=("k",)))
    second = script.put((1, 1), LogEntryOfModel(adds=((0, 2, "4"),), key=("k",)))
    losers = script.extend(script.root, (0, 1), second)
    return _rejoin(script, second, losers, script.evaluate((0, 2), losers, _increment(0, 2)))


def _fallen(left_out: frozenset[LeftOut]) -> ModelRefusal:
    """An effect that was seen falls, because the winner wrote what it had read."""
    script = _Script(left_out)
    seen = script.evaluate((0, 1), script.root, _sum(1, 0, 2))
    losers = script.extend(script.root, seen)
    effect = script.evaluate((0, 2), losers, _increment(0, 2))
    return script.verdict(script.extend(script.root, script.write((2, 1), adds=(3, 1, "2")), seen, effect))


def _none_rises_by_a_fall(left_out: frozenset[LeftOut]) -> ModelRefusal:
    """One effect wrote what a second one had read. The winner wrote what the first one had read, so that falls; the
    second one must not rise, for the reader had seen nothing of it."""
    script = _Script(left_out, (2, 0, 1), (2, 1, 1))
    script.write((2, 1), adds=(2, 0, "4"))
    losers = script.extend(script.root, script.write((0, 1), adds=(4, 1, "1")))
    script.evaluate((0, 2), losers, _if_there(2, 0, 1, 1))
    script.evaluate((1, 1), losers, _if_there(2, 1, 1, 2))
    losers = script.extend(losers, (0, 2), (1, 1))
    effect = script.evaluate((0, 3), losers, _increment(2, 2))
    script.extend(losers, effect)
    return script.verdict(script.extend(script.root, (2, 1), (0, 1), (0, 2), (1, 1), effect))


def _between_the_markers(left_out: frozenset[LeftOut]) -> ModelRefusal:
    """The marker before the data is on both branches. An effect behind it was seen to count, and is refused in the
    merged log."""
    script = _Script(left_out)
    seen = script.evaluate((0, 1), script.root, _sum(1, 0, 2))
    losers = script.extend(script.root, seen)
    effect = script.evaluate((0, 2), losers, _increment(0, 2), before=0)
    return script.verdict(script.extend(script.root, script.write((2, 1), adds=(3, 1, "2")), seen, effect))


HISTORIES: Final = (
    DirectedHistory("unseen", ModelRefusal.OTHER, _unseen),
    DirectedHistory("unseen-form", ModelRefusal.OTHER, _unseen_form),
    DirectedHistory("unseen-text", ModelRefusal.OTHER, _unseen_text),
    DirectedHistory("read-before-marker", ModelRefusal.OTHER, _read_before_marker),
    DirectedHistory("refused-between", ModelRefusal.NONE, _refused_between),
    DirectedHistory("untouched", ModelRefusal.NONE, _untouched),
    DirectedHistory("winner-wrote", ModelRefusal.OTHER, _winner_wrote),
    DirectedHistory("absent", ModelRefusal.MISSING, _absent),
    DirectedHistory("reordered", ModelRefusal.ORDER, _reordered),
    DirectedHistory("text-moved", ModelRefusal.TEXT, _text_moved),
    DirectedHistory("risen", ModelRefusal.RISEN, _risen),
    DirectedHistory("risen-by-key", ModelRefusal.RISEN, _risen_by_key),
    DirectedHistory("fallen", ModelRefusal.FALLEN, _fallen),
    DirectedHistory("none-rises-by-a-fall", ModelRefusal.FALLEN, _none_rises_by_a_fall),
    DirectedHistory("between-the-markers", ModelRefusal.OTHER, _between_the_markers),
)


def broken_histories(left_out: frozenset[LeftOut]) -> dict[str, str]:
    """What breaks, by the name of the history. A verdict other than the expected one breaks it with all rules only."""
    broken: dict[str, str] = {}
    for history in HISTORIES:
        try:
            found = history.run(left_out)
        except RuleBroken as why:
            broken[history.name] = str(why)
        else:
            if not left_out and found is not history.expected:
                broken[history.name] = f"the verdict is {found or 'that it counts'}"
    return broken
