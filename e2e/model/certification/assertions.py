"""What no run may do: checked as the log grows by the fold, and here at the end."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from e2e.model.certification.log_chain import LogNode
from e2e.model.certification.sides import Side
from e2e.model.certification.values import WINDOW, EntryId, LeftOut, ModelBase, ModelRefusal, RuleBroken
from e2e.model.certification.verdicts import ModelCertifier, is_on_chain

LOG_STARTS_TRIED: Final = 3
_OF_LOG_STARTS: Final = frozenset({LeftOut.TRIM_SHORT, LeftOut.TRIM_MOVED, LeftOut.FROM_FIRST, LeftOut.FOOT_BARE})
"""Mutants that are judged by what a master behind a log start decides. The others are judged by what they do."""


@dataclass(slots=True, eq=False)
class CertificationAssertions:
    """By request, what its clients heard, and of which entry."""

    chance: random.Random
    left_out: frozenset[LeftOut]
    counts: Counter[str]
    done: dict[int, list[EntryId]] = field(default_factory=dict)
    conflicts: dict[int, list[EntryId]] = field(default_factory=dict)

    def answer_done(self, request: int, txid: EntryId) -> None:
        """The client hears that it took effect."""
        self.done.setdefault(request, []).append(txid)
        self.counts["answered done"] += 1

    def answer_conflict(self, request: int, txid: EntryId) -> None:
        """The client hears that other writes were in the way at each try."""
        self.conflicts.setdefault(request, []).append(txid)
        self.counts["answered conflict"] += 1

    def finish(self, side: Side) -> None:
        """At the end all masters are on one side."""
        self.counts["entries"] += len(side.log) - 1
        self._check_answers(side.log)
        if not self.left_out or self.left_out & _OF_LOG_STARTS:
            for _ in range(LOG_STARTS_TRIED):
                self._check_log_start(side)

    def _check_answers(self, log: list[LogNode]) -> None:
        """C8: what was answered as done counts, unless one of the rules gives a reason."""
        nodes = {node.txid: node for node in log[1:]}
        certifier = ModelCertifier(frozenset())
        taken_effect = log[-1].requests
        self.counts["answered conflict, counts all the same"] += sum(
            len(txids)
            for request, txids in self.conflicts.items()
            if request in taken_effect and request not in self.done
        )
        for request, txids in self.done.items():
            for txid in txids:
                node = nodes[txid]
                assert node.entry.base is not None, node
                if node.counts and not is_on_chain(node.entry.base, log, node.index):
                    self.counts["answered done, base on another branch, counts"] += 1
                if request not in taken_effect:
                    reason = certifier.verdict(log[: node.index], node.entry)
                    if not reason:
                        raise RuleBroken("answered done, and lost without a reason")
                    self.counts[f"answered done, moved, lost: {reason}"] += 1

    def _check_log_start(self, side: Side) -> None:
        """C7: a master that begins at any log start that may be kept decides as the others did."""
        log, final = side.log, self.chance.randrange(len(side.log))
        start = final if LeftOut.TRIM_SHORT in self.left_out else max(0, final - WINDOW)
        if LeftOut.TRIM_MOVED not in self.left_out and final <= side.held_until:
            start = min(start, side.moved_from)
        carried = start if LeftOut.FOOT_BARE in self.left_out else final
        for node in log[start + 1 :]:
            if node.entry.base is not None and node.refusal is not ModelRefusal.KEY and node.index > carried:
                _decide_behind(log, start, node, node.entry.base)


def _decide_behind(log: Sequence[LogNode], start: int, node: LogNode, base: ModelBase) -> None:
    """The verdict of a master that knows the entries behind a log start alone."""
    on_chain = base.index_after >= start and is_on_chain(base, log, node.index)
    seen = [each.index for each in log[start + 1 : node.index] if each.txid[1] <= base.vector[each.txid[0]]]
    last = base.log_index if on_chain else max(seen, default=0)
    is_old = node.index - last > (WINDOW if on_chain else WINDOW // 2)
    if is_old != (node.refusal is ModelRefusal.OLD):
        raise RuleBroken("age is decided otherwise behind a log start")
    first_judged = (base.log_index if on_chain else base.final) + 1
    if not is_old and first_judged <= start:
        raise RuleBroken("a verdict cannot be decided behind a log start")
