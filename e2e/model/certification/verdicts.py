"""C2: whether an effect counts, from the log in front of it alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from e2e.model.certification.log_chain import LogNode
from e2e.model.certification.values import (
    WINDOW,
    LeftOut,
    LogEntryOfModel,
    ModelBase,
    ModelRefusal,
    StoredQuad,
    WrittenQuad,
    stored,
)


def is_on_chain(base: ModelBase, log: Sequence[LogNode], before: int) -> bool:
    """Whether the marker behind the data is in the log in front of an index. Then the state that was read is one of
    this chain."""
    return base.index_after < before and log[base.index_after].hash == base.hash_after


@dataclass(slots=True, eq=False)
class _SeenWrites:
    """By stored quad, the masters whose entries delete it and add it."""

    deleted: dict[StoredQuad, set[int]] = field(default_factory=dict)
    added: dict[StoredQuad, set[int]] = field(default_factory=dict)

    def note(self, master: int, entry: LogEntryOfModel) -> None:
        """An entry that the reader had seen."""
        self._note(self.deleted, master, entry.deletes)
        self._note(self.added, master, entry.adds)

    @staticmethod
    def _note(by_quad: dict[StoredQuad, set[int]], master: int, quads: tuple[WrittenQuad, ...]) -> None:
        for quad in quads:
            by_quad.setdefault(stored(quad), set()).add(master)

    def depend_on_order(self) -> bool:
        """Whether one master deletes a quad that another one adds. Entries of one master keep their order."""
        return any(quad in self.added and len(masters | self.added[quad]) > 1 for quad, masters in self.deleted.items())


class ModelCertifier:
    """The verdict, perhaps without a part of the rule."""

    def __init__(self, left_out: frozenset[LeftOut]) -> None:
        self._left_out = left_out

    def verdict(self, log: Sequence[LogNode], effect: LogEntryOfModel) -> ModelRefusal:
        """Of an effect directly behind this log, which begins with the root."""
        base, left_out = effect.base, self._left_out
        assert base is not None, effect
        on_chain = LeftOut.INDEX_ONLY in left_out or is_on_chain(base, log, len(log))
        if not on_chain and LeftOut.HASH_ONLY in left_out:
            return ModelRefusal.BASE
        if self._age(log, base, on_chain=on_chain) > (WINDOW if on_chain else WINDOW // 2):
            return ModelRefusal.OLD
        lacks = any(mine < seen for mine, seen in zip(log[-1].vector, base.vector, strict=True))
        if lacks and not on_chain and LeftOut.MISSING_OK not in left_out:
            return ModelRefusal.MISSING
        seen_writes = _SeenWrites()
        for index in range(self._first_judged(log, base, on_chain=on_chain), len(log)):
            node = log[index]
            if not node.entry.touches(effect.reads, left_out):
                continue
            refusal = self._judge(log, node, is_seen=_is_seen(node, base), on_chain=on_chain)
            if refusal:
                return refusal
            if not on_chain and _is_seen(node, base) and node.counts and node.entry.text is None:
                seen_writes.note(node.txid[0], node.entry)
        if not left_out & {LeftOut.ORDER_OK, LeftOut.COVERED_OK} and seen_writes.depend_on_order():
            return ModelRefusal.ORDER
        return ModelRefusal.NONE

    def _first_judged(self, log: Sequence[LogNode], base: ModelBase, *, on_chain: bool) -> int:
        if on_chain:
            return base.log_index + 1
        return _first_unseen(log, base) if LeftOut.FROM_UNSEEN in self._left_out else base.final + 1

    def _age(self, log: Sequence[LogNode], base: ModelBase, *, on_chain: bool) -> int:
        """Entries since the last one that was seen. A base of another branch may have half of the window, so that what
        counts here was not too old there."""
        if LeftOut.FROM_FIRST in self._left_out:
            return len(log) - (base.log_index + 1 if on_chain else _first_unseen(log, base))
        last = base.log_index if on_chain else max((node.index for node in log[1:] if _is_seen(node, base)), default=0)
        return len(log) - last

    def _judge(self, log: Sequence[LogNode], node: LogNode, *, is_seen: bool, on_chain: bool) -> ModelRefusal:
        """Of one entry whose writes meet the read set."""
        left_out = self._left_out
        if not node.counts:
            wrote_nothing = on_chain and LeftOut.DECLARED not in left_out
            if wrote_nothing or (LeftOut.ACTUAL_OFF in left_out and not is_seen):
                return ModelRefusal.NONE
        if on_chain or not is_seen:
            return ModelRefusal.OTHER
        if LeftOut.COVERED_OK in left_out:
            return ModelRefusal.NONE
        if node.entry.text is not None:
            return ModelRefusal.NONE if LeftOut.TEXT_COVERED in left_out else ModelRefusal.TEXT
        if not node.counts:
            return ModelRefusal.NONE if LeftOut.FALLEN_OK in left_out else ModelRefusal.FALLEN
        if LeftOut.RISEN_OK not in left_out and self._may_have_risen(log, node):
            return ModelRefusal.RISEN
        return ModelRefusal.NONE

    def _may_have_risen(self, log: Sequence[LogNode], node: LogNode) -> bool:
        """Whether an entry that counts here may have been refused where it was seen: an effect that was judged there by
        other entries, or one whose key another entry of this log has. That one may be behind it here, and was in
        front of it there."""
        key, base = node.entry.key, node.entry.base
        if key is not None:
            if LeftOut.KEY_BEHIND in self._left_out:
                if key in log[node.index - 1].tried_keys:
                    return True
            elif any(each.txid != node.txid and each.entry.key == key for each in log[1:]):
                return True
        return base is not None and is_on_chain(base, log, node.index)


def _is_seen(node: LogNode, base: ModelBase) -> bool:
    return node.txid[1] <= base.vector[node.txid[0]]


def _first_unseen(log: Sequence[LogNode], base: ModelBase) -> int:
    return next((node.index for node in log[1:] if not _is_seen(node, base)), len(log))
