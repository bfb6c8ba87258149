"""The log as a pipeline reads it."""

from __future__ import annotations

from collections.abc import Sequence

from txlog.client import FailoverClient
from txlog.model.entry import LogEntry, Position


class PagedMasterLog:
    """The log of the nearest master that answers. It remembers the epoch and the cluster, which a page contains and an
    entry does not."""

    def __init__(self, masters: FailoverClient) -> None:
        self._masters = masters
        self.epoch = 0
        self.cluster = b""

    def page(
        self, after: Position | None, upto: int, max_bytes: int, unordered: Sequence[tuple[int, bytes]] = ()
    ) -> list[LogEntry]:
        """As in :class:`~txlog.apply.log_source.LogSource`; sets ``epoch`` and ``cluster`` to those of the page."""
        index, at_hash = (0, None) if after is None else (after.index, after.hash)
        page = self._masters.log_page(index, at_hash, upto, max_bytes, unordered)
        self.epoch, self.cluster = page.stable.epoch, page.cluster
        return page.log_entries()
