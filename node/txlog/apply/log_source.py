"""The interface through which an applier reads the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from txlog.client import FailoverClient, MasterClient
from txlog.model.entry import LogEntry, Position
from txlog.workers.adapter import MarkerPosition, WorkerRefused


class LogSource(Protocol):
    """A holder of the log: a master, the masters of a data centre, a list in a test."""

    def page(
        self, after: Position | None, upto: int, max_bytes: int, unordered: Sequence[tuple[int, bytes]] = ()
    ) -> list[LogEntry]:
        """The consecutive entries after ``after`` (None: from the first), at most up to index ``upto``: about
        ``max_bytes`` of payload, and at least one entry when there is one. Empty: there is none. Entries that a worker
        executed up to the positions ``unordered`` are no-ops (:class:`~txlog.workers.adapter.MarkerPosition`).

        Raises :class:`~txlog.model.errors.LogDiverged`, :class:`~txlog.model.errors.LogAhead` or
        :class:`~txlog.model.errors.LogNeedsRestore` when the log does not continue at ``after``, compared by index
        and hash, also when no entry follows it. Any other error is the log's, and the applier raises it."""


class MasterLog:
    """The log of a master, or of the nearest of several that answers. ``epoch`` and ``cluster`` are those of the last
    page, since an entry contains neither."""

    def __init__(self, masters: MasterClient | FailoverClient) -> None:
        self._masters = masters
        self.epoch = 0
        self.cluster = b""

    def page(
        self, after: Position | None, upto: int, max_bytes: int, unordered: Sequence[tuple[int, bytes]] = ()
    ) -> list[LogEntry]:
        """As in :class:`LogSource`. When no master answers, raises :class:`~txlog.client.errors.MasterUnreachable`."""
        index, value = (0, None) if after is None else (after.index, after.hash)
        page = self._masters.log_page(index, value, upto, max_bytes, unordered)
        self.epoch, self.cluster = page.stable.epoch, page.cluster
        return page.log_entries()


def refuse_other_cluster(url: str, marker: MarkerPosition, log: bytes) -> None:
    """:class:`~txlog.workers.adapter.WorkerRefused` for a store that executed the log of another cluster than ``log``.
    Both ids may be empty: not known."""
    if marker.cluster and log and marker.cluster != log:
        raise WorkerRefused(
            "OtherCluster", f"{url} holds the data of the cluster {marker.cluster.hex()}, not of {log.hex()}"
        )
