"""The taker's side of a state transfer, from the answer of the other site to the end: copy, pages, end.

Whatever is in the way, the copy is taken again: keys that were written meanwhile no longer differ.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from txlog.sites.decisions import Plan, Value
from txlog.sites.keys import KeyKind
from txlog.sites.link_record import ValueAt
from txlog.sites.site_book import SiteBook
from txlog.sites.state_copy import CopiedSite, StateCopy
from txlog.sites.state_spool import StateSpool
from txlog.sites.submitted_entry import EntryOutcome
from txlog.sites.transfer_steps import is_reset, plan_end, plan_page

SPOOL: Final = "state.sqlite"


class StateTransfer:
    """Of one site. ``folder``: of the link. ``done``: keys of ``keys`` that were written."""

    def __init__(self, folder: Path, kind: KeyKind) -> None:
        self._path = folder / SPOOL
        self._kind = kind
        self._spool: StateSpool | None = None
        self._copy: StateCopy | None = None
        self._planned: Plan | None = None
        self._page = 0
        self.done = 0

    @property
    def keys(self) -> int:
        """How many keys differed; 0 before they were compared."""
        return self._copy.keys if self._copy is not None and self._copy.is_done else 0

    @property
    def quads(self) -> int:
        """How many quads of both states were read."""
        return self._copy.quads if self._copy is not None else 0

    def close(self) -> None:
        """Forget the copy."""
        if self._copy is not None:
            self._copy.stop()
        if self._spool is not None:
            self._spool.close()
        self._spool, self._copy, self._planned, self.done = None, None, None, 0

    def next_plan(
        self, mine: SiteBook, theirs: SiteBook, here: CopiedSite, there: CopiedSite, keys_max: int
    ) -> Plan | None:
        """The next entry; None where something is waited for. Called when the last one was read back or is lost.
        Raises :class:`PeerFault` for a state that is none, and what the copy could not pass."""
        if not is_reset(mine, theirs):
            return None
        if self._copy is None:
            self._spool = StateSpool(self._path, self._kind)
            self._copy = StateCopy(self._spool, here, there)
        copy, spool = self._copy, self._spool
        assert spool is not None
        if not copy.is_done:
            return None
        if copy.error is not None:
            error = copy.error
            self.close()
            raise error
        if copy.at_there < theirs.anchor or copy.at_here < mine.anchor:
            self.close()
            return None
        if mine.index < copy.at_here or theirs.index < copy.at_there:
            return None
        self._planned = self._plan_page(mine, spool, keys_max)
        if self._planned is None:
            self._page, self._planned = 0, plan_end(mine, theirs, copy.at_there)
        return self._planned

    def _plan_page(self, mine: SiteBook, spool: StateSpool, keys_max: int) -> Plan | None:
        assert self._copy is not None
        while self.done < self._copy.keys:
            keys = spool.differing(self.done, keys_max)
            self._page = len(keys)
            plan = plan_page(mine, keys, self._copy.at_there)
            if plan is not None:
                return plan
            self.done += len(keys)
        return None

    def settle(self, outcome: EntryOutcome | None, *, is_own: bool) -> None:
        """What became of the entry that was planned last. ``outcome`` None: it was not written. ``is_own``: the record
        now is that entry's. Where it is another one, that of a page says nothing of its keys, so the copy is taken
        again."""
        planned, self._planned = self._planned, None
        if planned is None or outcome is not EntryOutcome.OVER:
            return
        if is_own and self._page:
            self.done += self._page
        else:
            self.close()  # also after the end

    def values(self, at: ValueAt, keys: Collection[bytes]) -> Mapping[bytes, Value] | None:
        """The other site's values of keys, where they are those of the copy."""
        if self._copy is None or self._spool is None or at.at != self._copy.at_there:
            return None
        return dict(self._spool.values(keys))
