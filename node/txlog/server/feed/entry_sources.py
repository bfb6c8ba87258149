"""Where a feed reads the entries of the log: as the log has them, or as what each one deleted and added."""

from __future__ import annotations

from typing import Protocol

from txlog.model.entry import CONTROL_KINDS, Position
from txlog.model.errors import LogAhead, LogDiverged, Unavailable
from txlog.model.synchronous_entry import KIND_DECISION
from txlog.protocol.log.log_state import LogState
from txlog.runtime.master_context import MasterContext
from txlog.runtime.watermark import Watermark
from txlog.server.feed.change_set_source import ChangeSetSource
from txlog.server.feed.log_pages import LogPageHandler
from txlog.wire.change_feed import FeedEvent, entry_event

PAGE_BYTES = 256 << 10
"""Bytes that are read at a time for one follower; a larger entry is a page of its own."""


class EntrySource(Protocol):
    """The entries of one kind of feed. ``mark`` moves when there is more to read."""

    @property
    def mark(self) -> Watermark: ...

    def end(self, settled: bool) -> int:
        """The last index that the feed may send. ``settled``: only final entries."""

    def is_on_log(self, at: Position) -> bool:
        """Whether this position is on the log, as far as this master can know."""

    async def check_start(self, at: Position) -> None:
        """Raises an error where no feed can begin at this position of the log."""

    async def read(self, at: Position, upto: int) -> list[FeedEvent]:
        """The next entries; none where they cannot be read now."""


class LogEntrySource:
    """The entries as the log has them."""

    def __init__(self, site: MasterContext, pages: LogPageHandler) -> None:
        self._context = site
        self._pages = pages

    @property
    def mark(self) -> Watermark:
        """The stable index."""
        return self._context.durability.stable

    def end(self, settled: bool) -> int:
        """The final index for ``settled``, else the stable index."""
        stable = self._context.durability.stable.value
        return min(stable, log_state(self._context).final_index) if settled else stable

    def is_on_log(self, at: Position) -> bool:
        """Whether the log has this hash at this index."""
        history = log_state(self._context).log_index
        return history.has_hash_at(at.index) and history.hash_at(at.index) == at.hash

    async def check_start(self, at: Position) -> None:
        """Every position that is served can be followed."""

    async def read(self, at: Position, upto: int) -> list[FeedEvent]:
        """The next entries, at least one."""
        found: list[FeedEvent] = []
        settled, previous = log_state(self._context).final_index, at.hash
        for entry in await self._pages.read(at, upto, PAGE_BYTES, keys=True):
            key = entry.key if entry.kind in (*CONTROL_KINDS, KIND_DECISION) else ""
            found.append(entry_event(entry, previous, key, entry.index <= settled))
            previous = entry.hash
        return found


class ChangeSetEntrySource:
    """The change sets of the entries. They may be kept longer than the log."""

    def __init__(self, site: MasterContext, log: LogEntrySource, changes: ChangeSetSource) -> None:
        self._context = site
        self._log = log
        self._changes = changes

    @property
    def mark(self) -> Watermark:
        """The last entry with a change set."""
        return self._changes.captured

    def end(self, settled: bool) -> int:
        """As of the log, and no entry without a change set."""
        return min(self._log.end(settled), self._changes.captured.value)

    def is_on_log(self, at: Position) -> bool:
        """Below the log's start, which is final, the change log compares the hash."""
        return at.index < log_state(self._context).log_index.start or self._log.is_on_log(at)

    async def position(self, index: int, at_hash: bytes | None) -> Position:
        """The position at an index. Errors as of :meth:`ChangeSetSource.position`."""
        found = await self._changes.position(index, at_hash)
        return Position(log_state(self._context).view.epoch, index, found)

    async def check_start(self, at: Position) -> None:
        """Raises :class:`LogGone` where change sets are not kept from there on."""
        if not self.is_on_log(at):
            return
        try:
            await self._changes.position(at.index, at.hash)
        except LogDiverged:
            raise Unavailable("ChangeSetsBehind", "the change sets are of a branch that was given up") from None

    async def read(self, at: Position, upto: int) -> list[FeedEvent]:
        """The next entries; none while the process that makes them does not answer, or has another branch."""
        try:
            return await self._changes.read(at, upto)
        except (Unavailable, LogAhead, LogDiverged):
            return []


def log_state(site: MasterContext) -> LogState:
    """The log; :class:`Unavailable` before the cluster is bootstrapped."""
    agreement = site.status.log_state
    if agreement is None:
        raise Unavailable("NotFounded", "the cluster is not founded yet: no log here")
    return agreement
