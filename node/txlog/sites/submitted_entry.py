"""An entry of a link that was written: whether it may still take effect, and what follows where it took none."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

VOID_MAX: Final = 2
"""Entries without effect since the record was changed last; then something in the log is in the way."""


class EntryOutcome(StrEnum):
    """``Open``: it may still take effect. ``Over``: the record is another one now, so it took effect or never will.
    ``Void``: it was read back, and the record is as before. ``Unseen``: it was not read back in time."""

    OPEN = "Open"
    OVER = "Over"
    VOID = "Void"
    UNSEEN = "Unseen"


class SubmittedEntry:
    """``text``, ``key``: what was written, and under which idempotency key. ``expected``: the name of the record that
    it replaces, ``made``: of that which it leaves. ``index``: its place in the log, None: not known. ``until``: for how
    long it is waited for, in seconds."""

    def __init__(self, text: bytes, key: str, expected: bytes | None, made: bytes = b"") -> None:
        self.text = text
        self.key = key
        self.expected = expected
        self.made = made
        self.index: int | None = None
        self.until = 0.0

    def outcome(self, record: bytes | None, read: int, now: float) -> EntryOutcome:
        """``record``: that of the book, which has read the log up to the entry ``read``."""
        if record != self.expected:
            return EntryOutcome.OVER
        if self.index is not None and read >= self.index:
            return EntryOutcome.VOID
        return EntryOutcome.OPEN if now < self.until else EntryOutcome.UNSEEN


class VoidEntries:
    """Counts entries without effect in a row. ``touched``: the last entry that changed the record."""

    def __init__(self) -> None:
        self._count = 0
        self._touched = -1

    def add(self, touched: int) -> int:
        """One more. Returns how many there are since the record was changed last."""
        if touched != self._touched:
            self._count, self._touched = 0, touched
        self._count += 1
        return self._count

    def is_blocked(self, touched: int) -> bool:
        """Whether no entry can take effect until the record is changed."""
        return self._count >= VOID_MAX and touched == self._touched
