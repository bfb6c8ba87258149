"""Follows the log for what its entries write, as far as the comparison of stores needs it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final

from txlog.apply.log_source import LogSource
from txlog.divergence.written_cells import WrittenCells
from txlog.model.declared_writes import decode_declaration, find_writes
from txlog.model.entry import KIND_UPDATE, LogEntry, Position
from txlog.model.entry_effects import find_effects, skips_effect
from txlog.model.errors import BadInput, LogAhead, LogDiverged, LogNeedsRestore
from txlog.model.quad_pattern import EVERY_QUAD, QuadPattern
from txlog.sparql.analysis.update_patterns import find_added_patterns, find_written_patterns

log = logging.getLogger(__name__)

PAGE_BYTES: Final = 1 << 20
BEHIND_MAX: Final = 100_000
"""Entries that are followed. A log that grows faster is passed over: then what they write is not known."""


class WrittenLog:
    """``written``: what the entries wrote, up to :attr:`~WrittenCells.head`. ``stable()``: the position up to which
    workers may execute. For one thread."""

    def __init__(self, source: LogSource, stable: Callable[[], Position]) -> None:
        self._source = source
        self._stable = stable
        self.written = WrittenCells(stable())

    def follow(self, upto: int | None = None) -> None:
        """Read the entries up to index ``upto``, or to the stable position. Raises the errors of the source."""
        head = self.written.head
        if upto is not None and upto <= head.index:
            return
        end = self._stable()
        if end.index < head.index or (end.index == head.index and end.hash == head.hash):
            return  # a master that is behind another one knows nothing new
        if end.index - head.index > BEHIND_MAX:
            log.info("%d entries are passed over: every cell is compared again", end.index - head.index)
            self.written.restart(end)
            return
        last = end.index if upto is None else min(upto, end.index)
        try:
            while entries := self._source.page(self.written.head, last, PAGE_BYTES):
                for entry in entries:
                    writes = list(find_entry_writes(entry))
                    is_wide = any(each.graph is None or each.predicate is None for each in writes)
                    self.written.add(entry.index, entry.hash, writes, find_additions(entry) if is_wide else ())
        except LogAhead as behind:
            log.debug("not followed this time: %s", behind)
        except (LogDiverged, LogNeedsRestore) as other:
            # A rejoin has moved what was followed, or this was behind a trim.
            log.info("every cell is compared again: %s", other)
            self.written.restart(self._stable())


def find_entry_writes(entry: LogEntry) -> Iterator[QuadPattern]:
    """What a worker may write at an entry of a page. A superset."""
    if skips_effect(entry):
        yield EVERY_QUAD  # a worker may have executed it before the skip was known
        return
    try:
        effects = find_effects(entry)
    except BadInput:
        yield EVERY_QUAD
        return
    for effect in effects:
        if effect.kind == KIND_UPDATE and decode_declaration(effect.payload) is None:
            yield from find_text_writes(effect.payload)
        else:
            yield from find_writes(effect.kind, "", effect.payload).patterns()


def find_additions(entry: LogEntry) -> Iterator[QuadPattern]:
    """Of what a worker may write at an entry, what may be new cells. A superset."""
    if skips_effect(entry) or any(decode_declaration(each.payload) is not None for each in find_effects(entry)):
        yield EVERY_QUAD
        return
    for effect in find_effects(entry):
        if effect.kind == KIND_UPDATE:
            yield from find_added_patterns(effect.payload.decode())


def find_text_writes(payload: bytes) -> tuple[QuadPattern, ...]:
    """What a text without a declaration may write. No other process has to come to the same: a finding is a difference
    of what stores hold, and a repair reads them again."""
    try:
        return find_written_patterns(payload.decode())
    except UnicodeDecodeError:
        return (EVERY_QUAD,)
