"""The thread that writes large payloads ahead of their records, beside the syncs (``txlog.journal.laid``)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

from txlog.journal import Journal
from txlog.journal.laid import Laid
from txlog.runtime.company import Company

PIECE_BYTES: Final = 256 << 10
"""Written at once: what a sync may find before it on its way to the device."""
Then = Callable[[], None]
GIVE_WAY_S: Final = 0.007
"""So long others, if there are any, have the disk for themselves after each."""


class Laying:
    """All methods on the loop's thread. ``broken(error)``: the disk refused, this process must end."""

    def __init__(
        self, journal: Journal, broken: Callable[[BaseException], None], company: Company | None = None
    ) -> None:
        self._company = company or Company()
        self._journal = journal
        self._broken = broken
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[tuple[Callable[[], None], Then] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def begin(self, content: bytes, size: int, key: str) -> Laid | None:
        """None: this payload is written with its record."""
        laid = self._journal.begin_payload(content, size, key)
        self._remove_unwanted()
        return laid

    def write(self, laid: Laid, pieces: list[bytes], then: Then) -> None:
        """The next pieces; ``then()`` when they are written, or known not to be needed."""
        self._put(lambda: laid.write(b"".join(pieces)), then)

    def finish(self, laid: Laid, then: Then) -> None:
        """``then()`` when all of it is durable, or known not to be needed."""

        def done() -> None:
            self._journal.end_payload(laid)
            self._remove_unwanted()
            then()

        self._put(laid.finish, done)

    def drop(self, laid: Laid) -> None:
        """It will not be needed."""
        self._journal.drop_payload(laid)
        self._remove_unwanted()

    async def lay(self, content: bytes, key: str, payload: bytes) -> None:
        """All of a payload; returns when it is durable, or known not to be needed."""
        laid = self.begin(content, len(payload), key)
        if laid is None:
            return
        written = asyncio.Event()
        try:
            for offset in range(0, len(payload), PIECE_BYTES):
                written.clear()
                self.write(laid, [payload[offset : offset + PIECE_BYTES]], written.set)
                await written.wait()
                await self._company.rest(GIVE_WAY_S)
            written.clear()
            self.finish(laid, written.set)
            await written.wait()
        except asyncio.CancelledError:
            self.drop(laid)
            raise

    def _remove_unwanted(self) -> None:
        for laid in self._journal.take_unwanted():
            self._put(laid.remove, _nothing)

    def _put(self, job: Callable[[], None], then: Then) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="payloads", daemon=True)
            self._thread.start()
        self._jobs.put((job, then))

    def _work(self) -> None:
        while (given := self._jobs.get()) is not None:
            job, then = given
            error: BaseException | None = None
            try:
                job()
            except BaseException as wrong:  # noqa: BLE001 - handed to the owner, who ends the process by its name
                error = wrong
            try:
                self._loop.call_soon_threadsafe(self._done, error, then)
            except RuntimeError:
                return  # the loop is closed: nobody is left to be told

    def _done(self, error: BaseException | None, then: Then) -> None:
        if error is not None:
            self._broken(error)
        else:
            then()

    def close(self, timeout_s: float) -> None:
        """End the thread when what was given to it has run, or after ``timeout_s``."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(timeout_s)


def _nothing() -> None:
    """Nobody waits for a removal."""
