"""Snapshots of a cluster as they change, from one master at a time: the follower continues at another master."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from txlog.client.errors import MasterUnreachable
from txlog.client.live_snapshot import LiveSnapshot, parse_live_line
from txlog.client.master_client import MasterClient
from txlog.model.errors import NotFound, PeerFault, TxLogError, Unavailable

HEARTBEATS_MISSED_S: Final = 40.0
"""Seconds without a byte after which a master counts as gone. It writes one at least every 15 s."""
BACK_OFF_S: Final = (0.5, 5.0)
"""Seconds between two rounds over all masters: the first pause and the longest; each pause doubles."""


class LiveEvent(NamedTuple):
    """A snapshot of the master at ``url``; or None with the reason why that master sends none."""

    url: str
    snapshot: LiveSnapshot | None
    problem: str


class LiveFollower:
    """An iterator over snapshots, without an end. It follows the first master that answers, and moves to the next one
    when that one ends. Each failure is an event, too.

    ``open_client``: opens a client for a URL and a time-out in seconds. Raises the last error when no master answers in
    the first round. Raises at once what every master would answer: :class:`Unauthorized`, :class:`Forbidden`."""

    def __init__(self, urls: Sequence[str], open_client: Callable[[str, float], MasterClient] = MasterClient) -> None:
        assert urls, "at least one master"
        self._urls = list(urls)
        self._open_client = open_client

    def __iter__(self) -> Iterator[LiveEvent]:
        pause, has_answered = BACK_OFF_S[0], False
        while True:
            last: TxLogError | None = None
            for url in self._urls:
                answered = False
                try:
                    with self._open_client(url, HEARTBEATS_MISSED_S) as client:
                        for line in client.follow_live(HEARTBEATS_MISSED_S):
                            snapshot = parse_live_line(url, line)
                            answered = answered or snapshot is not None
                            # A line without a snapshot is passed on: the reader may want another master by now.
                            yield LiveEvent(url, snapshot, "")
                    last = Unavailable("StreamEnded", f"{url}: the stream ended")
                except (MasterUnreachable, Unavailable, PeerFault, NotFound) as passed:
                    last = passed
                yield LiveEvent(url, None, str(last))
                if answered:
                    pause, has_answered = BACK_OFF_S[0], True
            if not has_answered and last is not None:
                raise last
            time.sleep(pause)
            pause = min(2 * pause, BACK_OFF_S[1])
