"""Whether anything that a link has written can still take effect, after it was taken offline."""

from __future__ import annotations

from txlog.sites.link_record import StepKind
from txlog.sites.site_book import SiteBook


class LinkSeal:
    """Of one time offline. ``begin``: the last entry of the own log when it began, as the masters know it.

    A *seal* is an entry of the link that imports nothing and replaces the record. Entries that were written before it
    expect an earlier record, so none of them takes effect after it. Nothing else is written until the link is online
    again."""

    def __init__(self, begin: int) -> None:
        self._begin = begin

    def is_closed(self, mine: SiteBook) -> bool:
        """Whether nothing can be imported any more. ``mine``: the book of the own log."""
        if mine.index < self._begin or mine.awaits_anchor:
            return False
        if mine.record is None:
            return True  # no entry of the link expects that
        return mine.last_step == StepKind.SEAL and mine.link_index > self._begin
