"""Updates that no two workers would carry out alike: evaluated once, here, and logged as what they change.

The effect is found on a copy of the data that follows the log, in a process of its own (``evaluators.py``), and stands
in the log behind a condition on all that the update looked at (``sparql/effects.py``). Where transactions of others
came between and changed that, every worker passes the effect over; this master sees it in its own log, evaluates again,
and tries again, until the time is over. One update at a time; the copy is kept for a while, since fetching it is what
takes longest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from aiohttp import ClientError

from txlog.evaluation.copy import PART, Effect
from txlog.evaluation.frames import MEMORY, TIME, Load
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
from txlog.server.frontdoor.evaluators import Evaluators, RemoteCopy
from txlog.server.frontdoor.stores import RETRY_S, Stores
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
LARGE_S: Final = 600.0
"""Data that was too large to copy is taken for that for so long: what an update names is copied at once."""
BEHIND_MAX: Final = 200_000
"""Entries that a copy is brought over; a worker that is further behind is no help."""
FETCHES_MAX: Final = 3
"""Of a part, when others keep writing what shows itself on all data only."""
PAGE_BYTES: Final = 4 << 20


class ReadLog(Protocol):
    """Entries of this master's log behind ``after``, at most up to ``upto``; raises what the feed answers."""

    async def __call__(self, after: Position, upto: int, bytes_max: int) -> list[PageEntry]: ...


class Effects:
    """``stores`` finds a worker to copy, ``read_log`` reads what follows, ``draw`` gives 128 random bits,
    ``evaluators`` has the process that holds the copy."""

    def __init__(self, site: Site, stores: Stores, read_log: ReadLog, draw: Draw, evaluators: Evaluators) -> None:
        self._site = site
        self._loop = site.loop
        self._stores = stores
        self._read_log = read_log
        self._draw = draw
        self._bytes_max = site.config.limits.body_bytes
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._evaluators = evaluators
        self._copy: RemoteCopy | None = None
        self._skips = 0
        self._large_until = 0.0
        self._idle: asyncio.TimerHandle | None = None

    async def logged(
        self, request: Request, update: Evaluated, asked: Asked, seen: Sums | None = None
    ) -> tuple[Write, bool]:
        """The write with its effect, and whether it is known that it took effect: False when the time was over before.
        ``seen``: what the update looks at must sum up to this where it takes effect, else it is not tried again.

        :class:`BadInput`: it fails; :class:`TooLarge`: its effect is; :class:`Conflict`: the data is too much to copy
        or to look at, or others changed that each time; :class:`Unavailable`: no worker to copy, no turn in time, or it
        was ended, since it took too much time or memory."""
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
        except Unavailable as ended:
            if ended.reason not in (TIME, MEMORY):
                self._give_up()
            raise
        except BaseException:
            self._give_up()
            raise
        finally:
            self._turn.release()
            self._keep_for_a_while()

    async def _tried(
        self, request: Request, update: Evaluated, deadline: float, seen: Sums | None
    ) -> tuple[Write, bool]:
        for _ in range(TRIES_MAX):
            copy = await self._current(request, update)
            if seen is not None and await copy.sums(update.looks_at) != seen:
                raise Conflict(_OVERTAKEN)
            effect = await copy.evaluate(update, self._draw, self._bytes_max)
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
        self, copy: RemoteCopy, write: AwaitedWrite, update: Evaluated, effect: Effect, deadline: float
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
            stands = found == index - 1 or await copy.sums(update.looks_at) == effect.sums
            await self._follow(copy, index)
        except (LogAhead, LogDiverged, LogNeedsRestore, Unavailable):
            # A split's end moved the entry, or the log was cut there, or the copy cannot follow (of a part of the data
            # it may not): it is logged all the same, and may count.
            self._give_up()
            return None
        return stands

    # The copy

    async def _current(self, request: Request, update: Evaluated) -> RemoteCopy:
        """A copy that shows what the update looks at, as of the end of this master's log."""
        agreement = self._loop.agreement
        skips = 0 if agreement is None else len(agreement.skips)
        copy = self._copy
        if copy is not None and skips == self._skips and copy.evaluator.is_there and copy.shows(update.looks_at):
            try:
                await self._follow(copy, self._loop.executable.value)
                return copy
            except (LogAhead, LogDiverged, LogNeedsRestore):
                pass  # the log was cut, or trimmed: this copy is of no use any more
            except Unavailable as lacks:
                if lacks.reason != PART:
                    raise
        for _ in range(FETCHES_MAX):
            self._give_up()
            copy = self._copy = await self._fetched(request, update.looks_at)
            self._skips = skips
            try:
                await self._follow(copy, self._loop.executable.value)
                return copy
            except Unavailable as lacks:
                if lacks.reason != PART:
                    raise
        raise Unavailable(
            "NoWorker",
            "this update is evaluated on a copy of a part of a worker, and the worker is behind an entry that shows "
            "itself on all data only; try again",
            RETRY_S,
        )

    def _give_up(self) -> None:
        copy, self._copy = self._copy, None
        if copy is not None:
            self._evaluators.give_back(copy.evaluator)

    async def _fetched(self, request: Request, looks_at: Sequence[str] | None) -> RemoteCopy:
        """A copy of everything; where that is too large, of all quads with these predicates."""
        now = asyncio.get_running_loop().time()
        if looks_at is None or now >= self._large_until:
            try:
                return await self._fetch(request, None)
            except TooLarge:
                self._large_until = now + LARGE_S
        if looks_at is None:
            raise _too_large("the repository", "name the predicates that it looks at")
        try:
            return await self._fetch(request, looks_at)
        except TooLarge:
            raise _too_large("all that has the predicates which it names", "name others") from None

    async def _fetch(self, request: Request, predicates: Sequence[str] | None) -> RemoteCopy:
        why = "no worker can be reached"
        for store in await self._stores.choose(request, shown=False):
            evaluator = await self._evaluators.take()
            copy = None
            try:
                work = Load(store.adapter.engine, None if predicates is None else tuple(predicates))
                rows = self._stores.rows(store, predicates, COPY_BYTES_MAX)
                position = await evaluator.load(work, rows)
                if position is None:
                    why = f"{store.worker.name} holds no prefix of the log"
                    continue
                await self._read_log(position, position.index, 1)
                if self._loop.executable.value - position.index <= BEHIND_MAX:
                    copy = RemoteCopy(evaluator, position, None if predicates is None else frozenset(predicates))
                    return copy
                why = f"{store.worker.name} is more than {BEHIND_MAX} entries behind"
            except (TimeoutError, WorkerFault, ClientError, OSError) as fault:
                why = f"{store.worker.name}: {fault}"
            except (LogAhead, LogDiverged, LogNeedsRestore) as fault:
                why = f"{store.worker.name}: {fault}"
            finally:
                if copy is None:
                    self._evaluators.give_back(evaluator)
        raise Unavailable("NoWorker", f"this update is evaluated on a copy of a worker, and {why}; try again", RETRY_S)

    async def _follow(self, copy: RemoteCopy, upto: int) -> None:
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
            await copy.follow(operations, last)

    def _keep_for_a_while(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._forget)

    def _forget(self) -> None:
        if not self._turn.locked():
            self._give_up()


def _too_large(what: str, instead: str) -> Conflict:
    return Conflict(
        f"this update is evaluated on a copy in memory, and {what} is larger than {COPY_BYTES_MAX >> 20} MiB; "
        f"{instead}, or write it so that every store gives the same result"
    )


_OVERTAKEN: Final = (
    "Transaction handling error: other transactions have changed what this one has looked at since it began to read; "
    "it has changed nothing. Roll it back and begin again"
)


def _busy(why: str) -> Unavailable:
    return Unavailable("EffectsBusy", f"{why}; nothing was done, send it again", RETRY_S)
