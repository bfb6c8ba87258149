"""How far a site is behind another one. Nothing here reads a clock: times are given in milliseconds since 1970."""

from __future__ import annotations

from typing import NamedTuple


class LinkLag(NamedTuple):
    """``entries``: those of the other site that are not imported, where they are known. ``seconds``: for how long the
    oldest of them has waited, or for how long it is not known that none waits."""

    entries: int
    seconds: float


class SourceState(NamedTuple):
    """What is known of the other site. ``waiting``: its changes that were read and not imported, in entries;
    ``oldest_ms``: when the first of them was written, None where there is none. ``unread``: how many entries it has
    besides. ``is_answering``: whether it answers now."""

    waiting: int
    oldest_ms: int | None
    unread: int
    is_answering: bool


class LagMeter:
    """Measures the lag of one link. It never shrinks while the other site does not answer, or nothing is imported.
    ``now_ms``: when the link began."""

    def __init__(self, now_ms: int) -> None:
        self._all_read_ms = now_ms

    def measure(self, source: SourceState, now_ms: int) -> LinkLag:
        """The lag now. Clocks of the two sites may differ: a lag is never negative."""
        since = now_ms
        if source.is_answering and not source.unread:
            self._all_read_ms = now_ms
        else:
            since = self._all_read_ms
        if source.oldest_ms is not None:
            since = min(since, source.oldest_ms)
        return LinkLag(source.waiting + source.unread, max(0, now_ms - since) / 1000)
