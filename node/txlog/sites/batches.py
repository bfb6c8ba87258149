"""The batch of a link: what the other site lacks of a site's own changes, as the net change of each key."""

from __future__ import annotations

from typing import Final, NamedTuple

from txlog.changesets.change_set import ChangeSet, combine
from txlog.sites.link_record import Version
from txlog.sites.site_book import SiteBook

KEYS_MAX: Final = 10_000
"""Keys of a batch; one entry with more is a batch of its own."""


class Offer(NamedTuple):
    """A key of a batch. ``version``: at the end of the batch. ``change``: its net change since the cursor; None where
    the change does not apply to what the other site had, so the whole value is needed."""

    key: bytes
    version: Version
    change: ChangeSet | None


class Batch(NamedTuple):
    """Changes of ``site``: of its entries after ``begin`` up to ``to``. ``seen``: up to where that site had then
    imported the other one's log. ``clock``: no version of that site up to ``to`` has a greater stamp."""

    site: str
    begin: int
    to: int
    seen: int
    clock: int
    offers: list[Offer]


def cut_batch(book: SiteBook, begin: int, keys_max: int = KEYS_MAX) -> Batch | None:
    """The next batch after the entry ``begin`` of the site of ``book``; None where there is nothing to send, or not
    yet. It ends at a clean position: one after which no key waits for a correction. A batch without keys only says
    what the site has imported; there is one only where keys were imported."""
    if begin < book.acknowledged:
        return None  # the other site's own log has a later cursor, which the caller has not read yet
    end = _end_of_batch(book, begin, keys_max)
    if end is None:
        return None
    touched: dict[bytes, None] = {}
    for index, keys in book.changed_keys(begin):
        if index > end:
            break
        touched.update(dict.fromkeys(keys))
    if not touched:
        return None
    offers = [offer for key in touched if (offer := _offer_of(book, key, begin, end)) is not None]
    return Batch(book.site, begin, end, book.cursor_at(end), book.clock, offers)


def _end_of_batch(book: SiteBook, begin: int, keys_max: int) -> int | None:
    """The last clean entry with at most so many changed keys before it, or the first clean one; None where there is
    none."""
    last = book.clean_at(book.index)
    if last <= begin:
        return None
    count, found = 0, 0
    for index, keys in book.changed_keys(begin):
        if index > last:
            break
        count += len(keys)
        is_clean = book.clean_at(index) == index
        if count > keys_max:
            if found:
                return found
            if is_clean:
                return index
        if is_clean:
            found = index
    return last


def _offer_of(book: SiteBook, key: bytes, begin: int, end: int) -> Offer | None:
    """The offer of a key that was changed in the range; None where its last write is not of this site."""
    changes = book.changes(key, begin, end)
    version = changes[-1].version
    if version.site != book.site or not any(row.is_local for row in changes):
        return None
    if any(not row.is_local for row in changes):
        return Offer(key, version, None)
    if changes[0].at <= book.whole_until:
        return Offer(key, version, None)  # it changed a value that the other site never had
    return Offer(key, version, combine(row.change for row in changes))
