"""The log as an applier sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from txlog.client import FailoverClient, MasterClient
from txlog.model.entry import LogEntry, Position


class LogSource(Protocol):
    """Somebody who holds the log: a master, the masters of a data centre, a list in a test."""

    def page(
        self, after: Position | None, upto: int, max_bytes: int, unordered: Sequence[tuple[int, bytes]] = ()
    ) -> list[LogEntry]:
        """The entries behind ``after`` (None: from the first), at most up to index ``upto``, about ``max_bytes`` of
        payload and at least one when there is one; consecutive. Empty: there is none. What a worker that stood at the
        places ``unordered`` has executed is a no-op (:class:`~txlog.workers.adapter.MarkerPosition`).

        Raises :class:`~txlog.model.errors.LogDiverged`, :class:`~txlog.model.errors.LogAhead` or
        :class:`~txlog.model.errors.LogNeedsRestore` when the log does not continue at ``after``, compared by index
        and hash, also when there is nothing behind it. Any other error is the log's, and the applier passes it on."""


class MasterLog:
    """The log of a master, or of the nearest of several that answers."""

    def __init__(self, masters: MasterClient | FailoverClient) -> None:
        self._masters = masters

    def page(
        self, after: Position | None, upto: int, max_bytes: int, unordered: Sequence[tuple[int, bytes]] = ()
    ) -> list[LogEntry]:
        index, value = (0, None) if after is None else (after.index, after.hash)
        return self._masters.log_page(index, value, upto, max_bytes, unordered).log_entries()
