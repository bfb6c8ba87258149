"""Updates that no two workers would carry out alike: evaluated once, here, and logged as what they change.

The effect is found on a copy of the data that follows the log, and stands in the log behind a condition on all that
the update looked at (``sparql/effects.py``). Where transactions of others came between and changed that, every worker
passes the effect over; this master sees it in its own log, evaluates again, and tries again, until the time is over.
One update at a time; the copy is kept for a while, since fetching it is what takes longest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from aiohttp import ClientError

from txlog.model.durability import Durability
from txlog.model.entry import NOT_FOR_WORKERS, Position
from txlog.model.errors import (
    BadInput,
    Conflict,
    LogAhead,
    LogDiverged,
    LogNeedsRestore,
    Refused,
    TooLarge,
    Unavailable,
    WorkerFault,
)
from txlog.model.hashes import content_hash
from txlog.protocol.events import Submission
from txlog.runtime.asked import Asked
from txlog.runtime.loop import AwaitedWrite, Write
from txlog.runtime.site import Site
from txlog.runtime.web import Request
from txlog.server.frontdoor.copy import Copy, Effect, copied
from txlog.server.frontdoor.stores import RETRY_S, Store, Stores
from txlog.sparql import Draw, Evaluated, Sums
from txlog.wire.pages import PageEntry
from txlog.workers.base import Operation

COPY_BYTES_MAX: Final = 64 << 20
"""Of a worker's answer, about as long as N-Quads: some 400,000 statements. Five to six times as much in memory."""
TRIES_MAX: Final = 10
"""Each failed one leaves an entry in the log that changes nothing."""
WAITING_MAX: Final = 64
"""Requests that wait for their turn."""
IDLE_S: Final = 60.0
"""A copy that nobody needed for so long is given up; the next update fetches it anew."""
SECONDS_MAX: Final = 60.0
"""For one step on the copy. It cannot be stopped, but its client is answered."""
BEHIND_MAX: Final = 200_000
"""Entries that a copy is brought over; a worker that is further behind is no help."""
PAGE_BYTES: Final = 4 << 20
T = TypeVar("T")


class ReadLog(Protocol):
    """Entries of this master's log behind ``after``, at most up to ``upto``; raises what the feed answers."""

    async def __call__(self, after: Position, upto: int, bytes_max: int) -> list[PageEntry]: ...


class Effects:
    """``stores`` finds a worker to copy, ``read_log`` reads what follows, ``draw`` gives 128 random bits."""

    def __init__(self, site: Site, stores: Stores, read_log: ReadLog, draw: Draw) -> None:
        self._site = site
        self._loop = site.loop
        self._stores = stores
        self._read_log = read_log
        self._draw = draw
        self._bytes_max = site.config.limits.body_bytes
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._copy: Copy | None = None
        self._skips = 0
        self._idle: asyncio.TimerHandle | None = None
        self._pool = ThreadPoolExecutor(1, "effects")
        self._stuck: asyncio.Future[Any] | None = None

    async def logged(
        self, request: Request, update: Evaluated, asked: Asked, seen: Sums | None = None
    ) -> tuple[Write, bool]:
        """The write with its effect, and whether it is known that it took effect: False when the time was over before.
        ``seen``: what the update looks at must sum up to this where it takes effect, else it is not tried again.

        :class:`BadInput`: it fails; :class:`TooLarge`: its effect is; :class:`Conflict`: the data is too much to copy
        or to look at, or others changed that each time; :class:`Unavailable`: no worker to copy, no turn in time."""
        deadline = asyncio.get_running_loop().time() + asked.seconds
        if self._waiting >= WAITING_MAX:
            raise _busy(f"{WAITING_MAX} updates wait to be evaluated")
        self._waiting += 1
        try:
            async with asyncio.timeout(asked.seconds):
                await self._turn.acquire()
        except TimeoutError:
            raise _busy("other updates are being evaluated") from None
        finally:
            self._waiting -= 1
        try:
            return await self._tried(request, update, deadline, seen)
        except (BadInput, TooLarge, Conflict):
            raise  # the copy is as it was
        except BaseException:
            self._copy = None
            raise
        finally:
            self._turn.release()
            self._keep_for_a_while()

    async def _tried(
        self, request: Request, update: Evaluated, deadline: float, seen: Sums | None
    ) -> tuple[Write, bool]:
        if self._stuck is not None and not self._stuck.done():
            raise _busy("an update that takes too long is still being evaluated")
        for _ in range(TRIES_MAX):
            copy = await self._current(request)
            if seen is not None and await self._step(partial(copy.sums, update.looks_at)) != seen:
                raise Conflict(_OVERTAKEN)
            effect = await self._step(partial(copy.evaluate, update, self._draw, self._bytes_max))
            kind, payload = effect.prepared.kind, effect.prepared.payload
            write = self._loop.write(
                [Submission(kind, "", payload, content_hash(kind, "", payload))], Durability.SYNCED
            )
            stands = await self._stands(copy, write, update, effect, deadline)
            if stands is None or stands:
                return write, stands is not None
            if seen is not None:
                raise Conflict(_OVERTAKEN)
            if asyncio.get_running_loop().time() >= deadline:
                break
        raise Conflict(
            "other transactions changed what this update looks at, each time before its effect had its place; "
            "it has changed nothing. Send it again"
        )

    async def _stands(
        self, copy: Copy, write: AwaitedWrite, update: Evaluated, effect: Effect, deadline: float
    ) -> bool | None:
        """Whether the entry's condition holds where it stands in the log. None: that is not known in time."""
        loop = self._loop
        reached = await loop.within(write.reached, deadline - asyncio.get_running_loop().time())
        if not write.answers:
            return None
        answer = write.answers[0]
        if isinstance(answer, Refused):
            raise answer
        index = loop.index_of(answer.txid) if reached else 0
        left = deadline - asyncio.get_running_loop().time()
        if not index or not await loop.within(loop.wait_index(loop.executable, index), left):
            return None
        found = copy.position.index
        try:
            await self._follow(copy, index - 1)
            if copy.position.index != index - 1:
                return None
            stands = found == index - 1 or await self._step(partial(copy.sums, update.looks_at)) == effect.sums
            await self._follow(copy, index)
        except (LogAhead, LogDiverged, LogNeedsRestore, Unavailable):
            # A split's end moved the entry, or the log was cut there, or the copy cannot follow: it is logged all the
            # same, and may count.
            self._copy = None
            return None
        return stands

    # The copy

    async def _current(self, request: Request) -> Copy:
        """The copy as of the end of this master's log."""
        agreement = self._loop.agreement
        skips = 0 if agreement is None else len(agreement.skips)
        copy, self._copy = self._copy, None
        if copy is not None and skips == self._skips:
            try:
                await self._follow(copy, self._loop.executable.value)
                self._copy = copy
                return copy
            except (LogAhead, LogDiverged, LogNeedsRestore):
                pass  # the log was cut, or trimmed: this copy is of no use any more
        copy = await self._fetch(request)
        await self._follow(copy, self._loop.executable.value)
        self._copy, self._skips = copy, skips
        return copy

    async def _fetch(self, request: Request) -> Copy:
        why = "no worker can be reached"
        for store in await self._stores.choose(request):
            try:
                rows = await self._rows(store)
            except (TimeoutError, WorkerFault, ClientError, OSError) as fault:
                why = f"{store.worker.name}: {fault}"
                continue
            copy = await self._step(partial(copied, store.adapter, rows))
            if copy is None:
                why = f"{store.worker.name} holds no prefix of the log"
                continue
            try:
                await self._read_log(copy.position, copy.position.index, 1)
            except (LogAhead, LogDiverged, LogNeedsRestore) as fault:
                why = f"{store.worker.name}: {fault}"
                continue
            if self._loop.executable.value - copy.position.index <= BEHIND_MAX:
                return copy
            why = f"{store.worker.name} is more than {BEHIND_MAX} entries behind"
        raise Unavailable("NoWorker", f"this update is evaluated on a copy of a worker, and {why}; try again", RETRY_S)

    async def _rows(self, store: Store) -> bytes:
        pieces: list[bytes] = []
        size = 0
        async with self._stores.ask(store, store.adapter.everything()) as answer:
            if answer.status != 200:
                raise WorkerFault(f"it answered {answer.status}")
            async for piece in answer.content.iter_any():
                size += len(piece)
                if size > COPY_BYTES_MAX:
                    raise Conflict(
                        "this update is evaluated on a copy of the repository in memory, which is larger than "
                        f"{COPY_BYTES_MAX >> 20} MiB; write it so that every store gives the same result"
                    )
                pieces.append(piece)
        return b"".join(pieces)

    async def _follow(self, copy: Copy, upto: int) -> None:
        while copy.position.index < upto:
            entries = await self._read_log(copy.position, upto, PAGE_BYTES)
            if not entries:
                return
            operations = [
                Operation(entry.kind, entry.payload)
                for entry in entries
                if not entry.noop and entry.kind not in NOT_FOR_WORKERS
            ]
            last = Position(0, entries[-1].index, entries[-1].hash)
            await self._step(partial(copy.follow, operations, last))

    def _keep_for_a_while(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._forget)

    def _forget(self) -> None:
        if not self._turn.locked():
            self._copy = None

    async def _step(self, work: Callable[[], T]) -> T:
        """In the thread, one after the other. Whoever leaves before its end leaves the copy to it."""
        step = asyncio.get_running_loop().run_in_executor(self._pool, work)
        self._stuck = step
        try:
            return await asyncio.wait_for(asyncio.shield(step), SECONDS_MAX)
        except TimeoutError:
            raise Unavailable("QueryTimeout", "the update took longer than it may; let it do less", 1) from None


_OVERTAKEN: Final = (
    "Transaction handling error: other transactions have changed what this one has looked at since it began to read; "
    "it has changed nothing. Roll it back and begin again"
)


def _busy(why: str) -> Unavailable:
    return Unavailable("EffectsBusy", f"{why}; nothing was done, send it again", RETRY_S)
