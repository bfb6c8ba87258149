"""What clients have been shown: so that what an address reads next is not older, whichever worker answers.

A worker's answer does not say how far it was. But nothing is executed that not every member of the view holds, so it
can show no more than what this master holds when the answer begins: its log, and what waits behind it for its order.
Whoever was shown something by one worker is answered by another only when that one is known to have executed as much.
(Under ``splitRecovery: None`` workers go on while a member is silent, to the end of their own master's log.)
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

TRACKED_CLIENTS_MAX: Final = 4096
"""Addresses that are remembered, the latest: a few hundred bytes each."""


class MonotonicReads:
    """By address of a client: the highest index that each worker may have shown it."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, dict[str, int]] = OrderedDict()

    def record(self, client: str, worker: str, known: int, end: int) -> None:
        """``worker``, known to be at ``known``, begins an answer while nothing is held here above ``end``."""
        before = self._clients.pop(client, {})
        kept = {name: index for name, index in before.items() if name != worker and index > known}
        self._clients[client] = {**kept, worker: end}
        if len(self._clients) > TRACKED_CLIENTS_MAX:
            self._clients.popitem(last=False)

    def min_index_for(self, client: str, worker: str, end: int) -> int:
        """The least index at which ``worker`` shows nothing older than others have; 0: it may answer as it is. No more
        than what is held here (``end``): the log may have been cut off since."""
        shown = self._clients.get(client)
        if shown is None:
            return 0
        return min(end, max((index for name, index in shown.items() if name != worker), default=0))

    def forget(self, client: str) -> None:
        """Nobody came that far in time: it is answered by whoever is there, and the next read does not wait again."""
        self._clients.pop(client, None)
