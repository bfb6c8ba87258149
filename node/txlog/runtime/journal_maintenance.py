"""Work on the journal that no transaction waits for: idle seals, new segment files, scrubbing, removal of segments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

IDLE_SEAL_S: Final = 1.0
"""Seconds without a sync after which the journal may record that everything in it is durable."""
SCRUB_START_DELAY_S: Final = 2.0
"""Seconds after a start before old segments are read."""
SCRUB_AFTER_SEAL_S: Final = 0.1
"""Seconds after a segment was sealed until it is read again."""
SCRUB_NEW_INTERVAL_S: Final = 0.003
"""Seconds between two chunks of it: some 30 MB/s, or 30,000 records, with a quarter of a core at most."""
SCRUB_OLD_INTERVAL_S: Final = 0.1
"""Seconds between two chunks of an old segment: 1.3 MB/s, half a percent of a core."""


class JournalMaintenance:
    """``is_syncing()``: whether a sync is under way. ``sealed()`` is called after an idle seal. ``failed(error)`` is
    called when this process must end. A journal that offers none of this work gets none."""

    def __init__(
        self,
        journal: Any,
        is_syncing: Callable[[], bool],
        sealed: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._journal = journal
        self._is_syncing = is_syncing
        self._on_sealed = sealed
        self._on_failed = failed
        self._asyncio_loop = asyncio.get_running_loop()
        self._syncs = 0
        self._is_stopped = False
        self._is_preparing = False
        self._is_scrubbing = False
        self._seal_timer: asyncio.TimerHandle | None = None
        self._scrub_timer: asyncio.TimerHandle | None = None
        self._schedule_scrub(SCRUB_START_DELAY_S)

    def after_sync(self) -> None:
        """Start what is due after a sync."""
        self._syncs += 1
        self._schedule_seal()
        self._prepare_segment()
        self._remove_trimmed()
        if self._scrub_timer is None and not self._is_scrubbing:
            self._schedule_scrub(SCRUB_AFTER_SEAL_S)

    def stop(self) -> None:
        """Start nothing any more. Work in a thread ends by itself; its result is ignored."""
        self._is_stopped = True
        for handle in (self._seal_timer, self._scrub_timer):
            if handle is not None:
                handle.cancel()

    def _prepare_segment(self) -> None:
        """Preallocate the journal's next file in another thread than the sync's: it takes longer than a sync."""
        if self._is_preparing:
            return
        prepare = self._journal.begin_preallocation()
        if prepare is None:
            return
        self._is_preparing = True
        self._run_in_thread(prepare, self._segment_prepared)

    def _segment_prepared(self, prepare: Any) -> None:
        self._is_preparing = False
        self._journal.end_preallocation(prepare)

    def _remove_trimmed(self) -> None:
        """Remove the segments that a trim freed in a thread of its own: unlinking a large file takes a while."""
        if not hasattr(self._journal, "begin_removal"):
            return
        removal = self._journal.begin_removal()
        if removal is not None:
            self._run_in_thread(removal, self._removal_done)

    def _removal_done(self, removal: Any) -> None:
        self._journal.end_removal(removal)
        self._remove_trimmed()

    def _schedule_scrub(self, seconds: float) -> None:
        if hasattr(self._journal, "begin_scrub"):
            self._scrub_timer = self._asyncio_loop.call_later(seconds, self._begin_scrub)

    def _begin_scrub(self) -> None:
        """Read sealed segments again, a chunk at a time: to build their indexes, and to find latent corruption."""
        self._scrub_timer = None
        if self._is_stopped or self._is_scrubbing:
            return
        survey = self._journal.begin_scrub()
        if survey is not None:
            self._is_scrubbing = True
            self._run_in_thread(survey, self._scrub_done)

    def _scrub_done(self, survey: Any) -> None:
        self._is_scrubbing = False
        self._journal.end_scrub(survey)
        self._schedule_scrub(SCRUB_NEW_INTERVAL_S if survey.is_new else SCRUB_OLD_INTERVAL_S)

    def _run_in_thread(self, work: Any, then: Callable[[Any], None]) -> None:
        """Run ``work.run()`` in a thread, then ``then(work)`` here. An error there ends this process."""
        self._asyncio_loop.run_in_executor(None, work.run).add_done_callback(partial(self._thread_done, work, then))

    def _thread_done(self, work: Any, then: Callable[[Any], None], done: asyncio.Future[None]) -> None:
        if self._is_stopped or done.cancelled():
            return
        error = done.exception()
        if error is not None:
            self._on_failed(error)
        else:
            then(work)

    def _schedule_seal(self) -> None:
        if hasattr(self._journal, "seal") and self._seal_timer is None:
            self._seal_timer = self._asyncio_loop.call_later(IDLE_SEAL_S, self._seal, self._syncs)

    def _seal(self, syncs: int) -> None:
        self._seal_timer = None
        if self._is_stopped or self._is_syncing():
            return
        if self._syncs != syncs:
            self._schedule_seal()
            return
        try:
            self._journal.seal()
        except Exception as wrong:  # noqa: BLE001 - the disk, an assertion: both end the process by name
            self._on_failed(wrong)
            return
        self._on_sealed()
