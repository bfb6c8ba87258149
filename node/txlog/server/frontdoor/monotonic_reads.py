"""Monotonic reads: what a client address reads next is never older than what it has seen, whichever worker answers.

A worker's answer does not contain its position. But a worker executes only what every member of the view has persisted.
It can therefore show no more than this master has when the answer begins: its log and its queue. Once one worker has
answered a client, another worker answers that client only when it is known to have executed as much. (Under
``splitRecovery: None`` workers continue while a member is silent, to the end of their own master's log.)
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

TRACKED_CLIENTS_MAX: Final = 4096
"""Addresses that are remembered, the latest ones: a few hundred bytes each."""


class MonotonicReads:
    """For each client address, the highest index that each worker may have shown it."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, dict[str, int]] = OrderedDict()

    def record(self, client: str, worker: str, known: int, end: int) -> None:
        """Records that ``worker``, known to be at ``known``, begins an answer while this master has no entry above
        ``end``."""
        before = self._clients.get(client)
        if before is not None and len(before) == 1 and before.get(worker) == end:
            self._clients.move_to_end(client)
            return
        before = self._clients.pop(client, {})
        kept = {name: index for name, index in before.items() if name != worker and index > known}
        self._clients[client] = {**kept, worker: end}
        if len(self._clients) > TRACKED_CLIENTS_MAX:
            self._clients.popitem(last=False)

    def min_index_for(self, client: str, worker: str, end: int) -> int:
        """The lowest index at which ``worker`` shows nothing older than other workers did; 0 if it may answer at once.
        It is at most this master's end (``end``), because the log may have been truncated since."""
        shown = self._clients.get(client)
        if shown is None:
            return 0
        return min(end, max((index for name, index in shown.items() if name != worker), default=0))

    def last_worker(self, client: str) -> str:
        """The worker that answered this client last; "" where none is remembered."""
        shown = self._clients.get(client)
        return next(reversed(shown), "") if shown else ""

    def forget(self, client: str) -> None:
        """Forgets a client: no worker reached the needed index in time. Any worker answers now, and the next read does
        not wait again."""
        self._clients.pop(client, None)
