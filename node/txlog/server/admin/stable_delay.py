"""How long entries of the log have been stable, by the clock of this master: the delay of what follows the log."""

from __future__ import annotations

from collections.abc import Callable

from txlog.model.stamp import stamp_ms
from txlog.runtime.master_context import MasterContext
from txlog.server.admin.archive_delay import StableAges


class StableDelay:
    """:meth:`note` must be called regularly. ``clock``: monotonic seconds, ``wall_clock``: seconds since 1970."""

    def __init__(self, site: MasterContext, clock: Callable[[], float], wall_clock: Callable[[], float]) -> None:
        self._context = site
        self._clock = clock
        self._wall_clock = wall_clock
        self._ages = StableAges()

    def note(self) -> None:
        """Remember what is stable now."""
        self._ages.note(self._context.durability.stable.value, self._clock())

    def age_above(self, index: int) -> float:
        """Seconds since the oldest stable entry above ``index`` was stable here, or since its stamp, whichever is
        longer. So neither a restart nor a stamp that is ahead shortens it."""
        agreement, stable = self._context.status.log_state, self._context.durability.stable.value
        if agreement is None or stable <= index:
            return 0.0
        oldest = max(index, agreement.log_index.start) + 1
        if oldest > min(stable, agreement.log_index.length):
            return 0.0
        stamped_s = self._wall_clock() - stamp_ms(self._context.status.stamp_at(oldest)) / 1000
        return max(0.0, stamped_s, self._ages.age_of(oldest, self._clock()))
