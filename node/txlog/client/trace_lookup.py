"""Asks masters which transactions are recorded in traces."""

from __future__ import annotations

from collections.abc import Sequence

from txlog.client.connection import MasterConnection
from txlog.client.errors import MasterUnreachable
from txlog.client.json_calls import JsonCalls
from txlog.client.responses import RecordedTrace, RecordedTraces


class TraceLookup:
    """``GET /txlog/traces`` at the first of these masters that answers. For one thread at a time."""

    def __init__(self, urls: Sequence[str], timeout_s: float) -> None:
        self._masters = [JsonCalls(MasterConnection(url, timeout_s=timeout_s, connect_s=timeout_s)) for url in urls]

    def recorded(self, after: int, upto: int) -> list[RecordedTrace]:
        """The recorded transactions with an index above ``after``, up to ``upto``. Raises
        :class:`~txlog.client.errors.MasterUnreachable` when no master answers."""
        for number, master in enumerate(self._masters, 1):
            try:
                return master.get(f"/txlog/traces?after={after}&upto={upto}", RecordedTraces).transactions
            except MasterUnreachable:
                if number == len(self._masters):
                    raise
        return []
