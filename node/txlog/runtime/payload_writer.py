"""The thread that writes large payloads ahead of their records, beside the syncs (``txlog.journal.staged_payload``)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

from txlog.journal import Journal
from txlog.journal.staged_payload import StagedPayload
from txlog.runtime.interactive_load import InteractiveLoad

CHUNK_BYTES: Final = 256 << 10
"""Written at once: the most that a sync finds before it on its way to the device."""
OnDone = Callable[[], None]
YIELD_S: Final = 0.007
"""Seconds for which the thread leaves the disk to interactive load, if there is any, after each chunk."""


class PayloadWriter:
    """Call all methods on the loop's thread. ``broken(error)``: the disk failed, this process must end."""

    def __init__(
        self, journal: Journal, broken: Callable[[BaseException], None], company: InteractiveLoad | None = None
    ) -> None:
        self._interactive_load = company or InteractiveLoad()
        self._journal = journal
        self._on_disk_failure = broken
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[tuple[Callable[[], None], OnDone] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def begin(self, content: bytes, size: int, key: str) -> StagedPayload | None:
        """Start to write a payload; None: it is written with its record."""
        laid = self._journal.stage_payload(content, size, key)
        self._remove_discarded()
        return laid

    def write(self, laid: StagedPayload, pieces: list[bytes], then: OnDone) -> None:
        """Write the next chunks; ``then()`` is called when they are written, or known not to be needed."""
        self._enqueue(lambda: laid.write(b"".join(pieces)), then)

    def finish(self, laid: StagedPayload, then: OnDone) -> None:
        """``then()`` is called when the whole payload is durable, or known not to be needed."""

        def done() -> None:
            self._journal.finish_staging(laid)
            self._remove_discarded()
            then()

        self._enqueue(laid.finish, done)

    def discard(self, laid: StagedPayload) -> None:
        """The caller does not need this payload any more."""
        self._journal.discard_staged(laid)
        self._remove_discarded()

    async def write_all(self, content: bytes, key: str, payload: bytes) -> None:
        """Write a whole payload; returns when it is durable, or known not to be needed."""
        laid = self.begin(content, len(payload), key)
        if laid is None:
            return
        written = asyncio.Event()
        try:
            for offset in range(0, len(payload), CHUNK_BYTES):
                written.clear()
                self.write(laid, [payload[offset : offset + CHUNK_BYTES]], written.set)
                await written.wait()
                await self._interactive_load.throttle(YIELD_S)
            written.clear()
            self.finish(laid, written.set)
            await written.wait()
        except asyncio.CancelledError:
            self.discard(laid)
            raise

    def _remove_discarded(self) -> None:
        for laid in self._journal.pop_removable_staged():
            self._enqueue(laid.remove, _no_op)

    def _enqueue(self, job: Callable[[], None], then: OnDone) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run_thread, name="payloads", daemon=True)
            self._thread.start()
        self._jobs.put((job, then))

    def _run_thread(self) -> None:
        while (given := self._jobs.get()) is not None:
            job, then = given
            error: BaseException | None = None
            try:
                job()
            except BaseException as wrong:  # noqa: BLE001 - handed to the owner, who ends the process by its name
                error = wrong
            try:
                self._loop.call_soon_threadsafe(self._job_done, error, then)
            except RuntimeError:
                return  # the loop is closed: it needs no result

    def _job_done(self, error: BaseException | None, then: OnDone) -> None:
        if error is not None:
            self._on_disk_failure(error)
        else:
            then()

    def close(self, timeout_s: float) -> None:
        """End the thread when it has run its queued jobs, or after ``timeout_s``."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(timeout_s)


def _no_op() -> None:
    """No caller waits for a removal."""
