"""The log as one stream over several masters: a follower continues at another master, directly after its position."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from txlog.client.errors import MasterUnreachable
from txlog.client.master_client import MasterClient
from txlog.model.errors import (
    BadInput,
    LogAhead,
    LogDiverged,
    LogGone,
    NoChangeSets,
    PeerFault,
    TxLogError,
    Unavailable,
)
from txlog.wire.change_feed import FeedEvent, parse_feed_position

BACK_OFF_S: Final = (0.2, 5.0)
"""Seconds between two rounds over all masters: the first pause and the longest; each pause doubles."""


class FeedFollower:
    """An iterator over feed events: ``position`` first, then ``entry`` and ``rewound``, each once and in order, over as
    many masters and connections as needed. ``id`` is the position after the last yielded event; a later follower may
    start there.

    ``start``: ``now``, ``INDEX``, ``INDEX:HASH`` (compared) or ``EPOCH:INDEX:HASH``. ``until``: the index at which the
    stream ends; None: never. ``settled``: only final entries, which no rejoin moves. ``change_sets``: each entry is
    what it deleted and added; masters of a data centre that makes none are passed over. ``open_master(url)``: a
    client. The follower moves to the next master when one does not answer, ends the feed, or is not as far.

    Raises :class:`LogDiverged`, :class:`LogGone` or :class:`NoChangeSets` when each master answers with one of them.
    Raises :class:`Unavailable` when none has answered in ``patience_s`` seconds (None: it waits for ever, once one has
    answered)."""

    def __init__(
        self,
        urls: Sequence[str],
        start: str = "now",
        *,
        until: int | None = None,
        settled: bool = False,
        patience_s: float | None = None,
        heartbeat_s: int = 5,
        change_sets: bool = False,
        open_master: Callable[[str], MasterClient] = MasterClient,
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
        self._change_sets = change_sets
        self._open_master = open_master
        self._answered = False
        self._greeted = False

    def __iter__(self) -> Iterator[FeedEvent]:
        pause, last_event_at = BACK_OFF_S[0], time.monotonic()
        while True:
            refusals: list[LogDiverged | LogGone | NoChangeSets] = []
            last: TxLogError | None = None
            for url in self._urls:
                self._answered = False
                try:
                    yield from self._events_from(url)
                except (LogDiverged, LogGone, NoChangeSets) as no:
                    refusals.append(no)
                except (MasterUnreachable, Unavailable, LogAhead, PeerFault) as passed:
                    last = passed
                if self._reached_until:
                    return
                if self._answered:
                    pause, last_event_at, refusals = BACK_OFF_S[0], time.monotonic(), []
            if len(refusals) == len(self._urls):
                raise refusals[-1]
            self._answered = False
            over = self._patience_s is not None and time.monotonic() - last_event_at >= self._patience_s
            if last is not None and (over or not self._greeted):
                raise last
            time.sleep(pause)
            pause = min(2 * pause, BACK_OFF_S[1])

    @property
    def is_answering(self) -> bool:
        """Whether the master that is followed now has answered, were it only with the position where its feed begins.
        False while the next one is looked for."""
        return self._answered

    @property
    def _reached_until(self) -> bool:
        return self._until is not None and self.id != "now" and parse_feed_position(self.id, "id").index >= self._until

    def _events_from(self, url: str) -> Iterator[FeedEvent]:
        """The events of one master's feed, until that feed ends."""
        with self._open_master(url) as master:
            feed = master.watch(
                self.id,
                until=self._until,
                settled=self._settled,
                heartbeat_s=self._heartbeat_s,
                change_sets=self._change_sets,
            )
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
