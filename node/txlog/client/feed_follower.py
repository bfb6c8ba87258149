"""The log as one stream that outlives masters: a follower goes on at another one, exactly behind what it has."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from txlog.client.master_client import MasterClient
from txlog.model.errors import BadInput, LogAhead, LogDiverged, LogGone, PeerFault, TxLogError, Unavailable
from txlog.wire.change_feed import FeedEvent, parse_feed_position

BACK_OFF_S: Final = (0.2, 5.0)
"""Between two rounds over all masters, doubled from the first to the second."""


class FeedFollower:
    """Iterate over it: ``position`` first, then ``entry`` and ``rewound``, each once and in order, over as many masters
    and connections as it takes. ``id`` is the place behind the last event that was yielded, to begin from another time.

    ``start``: ``now``, ``INDEX``, ``INDEX:HASH`` (compared) or ``EPOCH:INDEX:HASH``. ``until``: the index at which it
    ends; None: never. ``settled``: only what no rejoin moves. A master that does not answer, ends, or is not as far is
    left for the next one. :class:`LogDiverged` or :class:`LogGone` when that is what all masters say,
    :class:`Unavailable` when none has answered in ``patience_s`` (None: it waits for ever, once one has answered)."""

    def __init__(
        self,
        urls: Sequence[str],
        start: str = "now",
        *,
        until: int | None = None,
        settled: bool = False,
        patience_s: float | None = None,
        heartbeat_s: int = 5,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        assert urls, "at least one master"
        if start != "now":
            parse_feed_position(start, "from")
        if until is not None and until < 0:
            raise BadInput(f"until={until}: an index of the log")
        self.id = start
        self._urls = list(urls)
        self._until = until
        self._settled = settled
        self._patience_s = patience_s
        self._heartbeat_s = heartbeat_s
        self._sleep = sleep
        self._answered = False
        self._greeted = False

    def __iter__(self) -> Iterator[FeedEvent]:
        pause, heard = BACK_OFF_S[0], time.monotonic()
        while True:
            refusals: list[LogDiverged | LogGone] = []
            last: TxLogError | None = None
            for url in self._urls:
                self._answered = False
                try:
                    yield from self._events_from(url)
                except (LogDiverged, LogGone) as no:
                    refusals.append(no)
                except (Unavailable, LogAhead, PeerFault) as passed:
                    last = passed
                if self._reached_until:
                    return
                if self._answered:
                    pause, heard, refusals = BACK_OFF_S[0], time.monotonic(), []
            if len(refusals) == len(self._urls):
                raise refusals[-1]
            over = self._patience_s is not None and time.monotonic() - heard >= self._patience_s
            if last is not None and (over or not self._greeted):
                raise last
            self._sleep(pause)
            pause = min(2 * pause, BACK_OFF_S[1])

    @property
    def _reached_until(self) -> bool:
        return self._until is not None and self.id != "now" and parse_feed_position(self.id, "id").index >= self._until

    def _events_from(self, url: str) -> Iterator[FeedEvent]:
        """What one master has to tell, as long as it does."""
        with MasterClient(url) as master:
            feed = master.watch(self.id, until=self._until, settled=self._settled, heartbeat_s=self._heartbeat_s)
            for event in feed:
                self._answered = True
                if event.event == "gone":
                    raise LogGone(event.message)
                if event.event == "diverged":
                    raise LogDiverged(event.message)
                if event.event == "closing":
                    return
                self.id = event.id
                if event.event != "position" or not self._greeted:
                    self._greeted = True
                    yield event
