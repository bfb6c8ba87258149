"""Updates that two workers could execute differently: evaluated once, here, and logged as their effect.

The effect is computed on a copy of the data that follows the log, in a process of its own (:mod:`.evaluator_pool`). The
log entry has the effect with a condition on everything that the update read (``sparql/update_effect.py``). If other
transactions changed that in between, every worker ignores the effect. This master sees that in its own log, evaluates
again, and retries until the time is over. One update runs at a time. The copy is kept for a while, because fetching it
takes longest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol

from aiohttp import ClientError

from txlog.evaluation.dataset_copy import PARTIAL_COPY, UpdateEffect
from txlog.evaluation.pipe_protocol import OUT_OF_MEMORY_REASON, TIMEOUT_REASON, LoadDataset
from txlog.http.router import Request
from txlog.http.write_options import WriteOptions
from txlog.model.durability import Durability
from txlog.model.entry import Position
from txlog.model.entry_effects import EntryEffect, find_effects
from txlog.model.errors import (
    BadInput,
    Conflict,
    KeyTaken,
    LogAhead,
    LogDiverged,
    LogNeedsRestore,
    Refused,
    TooLarge,
    Unavailable,
    WorkerFault,
)
from txlog.model.hashes import content_hash
from txlog.model.ids import Txid
from txlog.model.synchronous import SynchronousRequest
from txlog.protocol.events import Submission
from txlog.runtime.master_context import MasterContext
from txlog.runtime.master_loop import AwaitedWrite, PendingWrite
from txlog.server.frontdoor.evaluator_pool import EvaluatorPool, RemoteCopy
from txlog.server.frontdoor.read_router import RETRY_S, ReadRouter
from txlog.server.frontdoor.synchronous_door import SynchronousDoor, is_synchronous
from txlog.sparql import EvaluatedUpdate, RandomBits
from txlog.telemetry.trace_context import HEADER as TRACEPARENT_HEADER
from txlog.wire.log_page import PageEntry
from txlog.workers.adapter import StoreOperation

COPY_BYTES_MAX: Final = 64 << 20
"""Maximum size of a worker's answer, close to its size as N-Quads: some 400,000 statements. In memory it takes five to
six times as much."""
ATTEMPTS_MAX: Final = 10
"""Each failed attempt leaves an entry in the log that changes nothing."""
QUEUED_MAX: Final = 64
"""Requests that wait for their turn."""
COPY_IDLE_S: Final = 60.0
"""Seconds after which an unused copy is dropped; the next update fetches a copy again."""
TOO_LARGE_CACHE_S: Final = 600.0
"""Seconds for which data that was too large to copy is assumed to still be. Meanwhile only the predicates that an
update names are copied."""
LAG_ENTRIES_MAX: Final = 200_000
"""Maximum number of entries that a copy catches up; a worker with a larger lag is not used."""
FETCHES_MAX: Final = 3
"""Fetches of a copy, if other clients keep writing what no copy can apply: of a partial copy what needs all data, and
of workers that keep literals as they were sent what computes values."""
WORKER_WAIT_S: Final = 10.0
"""How long an update waits for a worker to execute such an entry."""
PAGE_BYTES: Final = 4 << 20


class LogPageReader(Protocol):
    """Reads entries of this master's log after ``after``, up to ``upto`` at most; raises the errors of the feed."""

    async def __call__(self, after: Position, upto: int, bytes_max: int) -> list[PageEntry]: ...


class DataCondition(Protocol):
    """Something that must hold for the data in which an update takes effect."""

    async def holds_in(self, copy: RemoteCopy) -> bool: ...


class OptimisticUpdateExecutor:
    """``stores`` finds a worker to copy, ``read_log`` reads the entries that follow, and ``draw`` gives 128 random
    bits. ``evaluators`` provides the process that holds the copy."""

    def __init__(
        self,
        site: MasterContext,
        stores: ReadRouter,
        read_log: LogPageReader,
        draw: RandomBits,
        evaluators: EvaluatorPool,
    ) -> None:
        self._site = site
        self._loop = site.loop
        self._durability = site.durability
        self._status = site.status
        self._router = stores
        self._read_log = read_log
        self._draw = draw
        self._bytes_max = site.config.limits.body_bytes
        self._synchronous_door = SynchronousDoor(lambda: site.status.configuration)
        self._lock = asyncio.Lock()
        self._queued = 0
        self._evaluator_pool = evaluators
        self._copy: RemoteCopy | None = None
        self._copy_skip_count = 0
        self._too_large_until = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None

    async def submit(
        self, request: Request, update: EvaluatedUpdate, asked: WriteOptions, condition: DataCondition | None = None
    ) -> tuple[PendingWrite, bool]:
        """The write with its effect, and whether it is known to have taken effect: False if the time was over before.
        A ``condition`` must hold for the data before the update's index.

        :class:`BadInput`: the update fails. :class:`TooLarge`: its effect is too large. :class:`Conflict`: the data is
        too large to copy or to read, or other clients changed it at each attempt. :class:`Unavailable`: there is no
        worker to copy or no turn in time, or the evaluation was ended because it took too much time or memory.
        """
        deadline = asyncio.get_running_loop().time() + asked.timeout_s
        async with self._turn(asked.timeout_s):
            return await self._submit_with_retries(request, update, deadline, condition, asked.synchronous)

    async def check(
        self, request: Request, update: EvaluatedUpdate, condition: DataCondition, timeout_s: float
    ) -> None:
        """Raises :class:`Conflict` where the condition does not hold for the data at the end of this master's log."""
        async with self._turn(timeout_s):
            await self._check(await self._current_copy(request, update), condition)

    @asynccontextmanager
    async def _turn(self, timeout_s: float) -> AsyncIterator[None]:
        """One caller at a time has the copy."""
        if self._queued >= QUEUED_MAX:
            raise _overloaded(f"{QUEUED_MAX} updates wait to be evaluated")
        self._queued += 1
        try:
            async with asyncio.timeout(timeout_s):
                await self._lock.acquire()
        except TimeoutError:
            raise _overloaded("other updates are being evaluated") from None
        finally:
            self._queued -= 1
        try:
            yield
        except (BadInput, TooLarge, Conflict, KeyTaken):
            raise  # the copy is unchanged
        except Unavailable as ended:
            if ended.reason not in (TIMEOUT_REASON, OUT_OF_MEMORY_REASON):
                self._discard_copy()
            raise
        except BaseException:
            self._discard_copy()
            raise
        finally:
            self._lock.release()
            self._restart_idle_timer()

    async def _submit_with_retries(
        self,
        request: Request,
        update: EvaluatedUpdate,
        deadline: float,
        condition: DataCondition | None,
        synchronous: SynchronousRequest,
    ) -> tuple[PendingWrite, bool]:
        for _ in range(ATTEMPTS_MAX):
            copy = await self._current_copy(request, update)
            if condition is not None:
                await self._check(copy, condition)
            effect = await copy.evaluate(update, self._draw, self._bytes_max)
            kind, payload = effect.body.kind, effect.body.payload
            submission = Submission(kind, "", payload, content_hash(kind, "", payload))
            converted = await self._synchronous_door.convert_off_loop(submission, synchronous)
            write = self._loop.write([converted], Durability.SYNCED)
            trace = self._site.trace_write(write, request.headers.get(TRACEPARENT_HEADER, ""))
            try:
                is_unchanged = await self._took_effect(copy, write, update, effect, deadline)
            finally:
                if trace is not None:
                    trace.end()
            if is_unchanged is None or is_unchanged:
                return write, is_unchanged is not None
            if asyncio.get_running_loop().time() >= deadline:
                break
        raise Conflict(
            "other transactions changed what this update looks at, each time before its effect had its place; "
            "it has changed nothing. Send it again"
        )

    async def _check(self, copy: RemoteCopy, condition: DataCondition) -> None:
        if not await condition.holds_in(copy):
            raise Conflict(_SERIALIZATION_CONFLICT)

    async def _took_effect(
        self, copy: RemoteCopy, write: AwaitedWrite, update: EvaluatedUpdate, effect: UpdateEffect, deadline: float
    ) -> bool | None:
        """Whether the entry's condition holds at its index in the log. None: that is not known in time."""
        durability = self._durability
        reached = await durability.wait_for(write.reached, deadline - asyncio.get_running_loop().time())
        if not write.answers:
            return None
        answer = write.answers[0]
        if isinstance(answer, Refused):
            raise answer
        index = durability.index_of(answer.txid) if reached else 0
        left = deadline - asyncio.get_running_loop().time()
        if not index or not await durability.wait_for(durability.wait_index(durability.executable, index), left):
            return None
        found = copy.position.index
        try:
            await self._catch_up(copy, index - 1)
            if copy.position.index != index - 1:
                return None
            if is_synchronous(write.batch[0]):
                return await self._took_effect_at_commit(copy, answer.txid, update, effect)
            is_unchanged = found == index - 1 or await copy.fingerprint(update.read_predicates) == effect.fingerprint
            await self._catch_up(copy, index)
        except (LogAhead, LogDiverged, LogNeedsRestore, Unavailable):
            # A rejoin moved the entry, or the log was truncated there, or the copy (of a part of the data) cannot
            # follow. The entry is logged all the same, and may take effect.
            self._discard_copy()
            return None
        return is_unchanged

    async def _took_effect_at_commit(
        self, copy: RemoteCopy, txid: Txid, update: EvaluatedUpdate, effect: UpdateEffect
    ) -> bool | None:
        """As :meth:`_took_effect`, of a synchronous transaction. ``copy`` has the data before the index of its COMMIT.
        The transactions that the COMMIT names before it take effect before it."""
        entries = await self._read_log(copy.position, copy.position.index + 1, 1)
        effects = find_effects(entries[0].entry) if entries else []
        at = next((number for number, one in enumerate(effects) if one.txid == txid), None)
        if at is None:
            return None  # it is skipped
        try:
            if at:
                await copy.apply_operations(_operations(effects[:at]), copy.position)
            is_unchanged = await copy.fingerprint(update.read_predicates) == effect.fingerprint
            last = Position(0, entries[0].index, entries[0].hash)
            await copy.apply_operations(_operations(effects[at:]), last)
        except BaseException:
            self._discard_copy()  # it may be between two positions
            raise
        return is_unchanged

    # The copy

    async def _current_copy(self, request: Request, update: EvaluatedUpdate) -> RemoteCopy:
        """A copy with the data that the update reads, as of the end of this master's log."""
        agreement = self._status.log_state
        skips = 0 if agreement is None else len(agreement.skips)
        copy = self._copy
        if (
            copy is not None
            and skips == self._copy_skip_count
            and copy.evaluator.is_usable
            and copy.covers(update.read_predicates)
        ):
            try:
                await self._catch_up(copy, self._durability.executable.value)
                return copy
            except (LogAhead, LogDiverged, LogNeedsRestore):
                pass  # the log was truncated or trimmed: this copy is of no more use
            except Unavailable as lacks:
                if lacks.reason != PARTIAL_COPY:
                    raise
        least = 0
        for _ in range(FETCHES_MAX):
            self._discard_copy()
            copy = self._copy = await self._fetch_full_or_partial_copy(request, update.read_predicates, least)
            self._copy_skip_count = skips
            end = self._durability.executable.value
            try:
                await self._catch_up(copy, end)
                return copy
            except Unavailable as lacks:
                if lacks.reason != PARTIAL_COPY:
                    raise
            if not await self._wait_for_worker(end):
                break
            least = end
        raise Unavailable(
            "NoWorker",
            "this update is evaluated on a copy of a worker; no copy can follow an entry that needs all data or "
            "computes values, and no worker has executed it yet; try again",
            RETRY_S,
        )

    def _discard_copy(self) -> None:
        copy, self._copy = self._copy, None
        if copy is not None:
            self._evaluator_pool.release(copy.evaluator)

    async def _wait_for_worker(self, index: int) -> bool:
        """Waits until a worker has executed the log up to ``index``; False where none does in time."""
        names = [store.worker.name for store in self._router.readable_workers()]
        return await self._site.registry.reads.wait_any_at(dict.fromkeys(names, index), WORKER_WAIT_S)

    async def _fetch_full_or_partial_copy(
        self, request: Request, looks_at: Sequence[str] | None, least: int
    ) -> RemoteCopy:
        """A copy of all quads; if that is too large, of all quads with these predicates."""
        now = asyncio.get_running_loop().time()
        if looks_at is None or now >= self._too_large_until:
            try:
                return await self._fetch_copy(request, None, least)
            except TooLarge:
                self._too_large_until = now + TOO_LARGE_CACHE_S
        if looks_at is None:
            raise _copy_too_large("the repository", "name the predicates that it looks at")
        try:
            return await self._fetch_copy(request, looks_at, least)
        except TooLarge:
            raise _copy_too_large("all that has the predicates which it names", "name others") from None

    async def _fetch_copy(self, request: Request, predicates: Sequence[str] | None, least: int) -> RemoteCopy:
        """``least``: the index that the worker has executed."""
        why = "no worker can be reached"
        for store in await self._router.choose(request, shown=False):
            if store.worker.index < least:
                why = f"{store.worker.name} has not executed entry {least}"
                continue
            evaluator = await self._evaluator_pool.acquire()
            copy = None
            try:
                work = LoadDataset(store.adapter.engine, None if predicates is None else tuple(predicates))
                rows = self._router.stream_rows(store, predicates, COPY_BYTES_MAX)
                position = await evaluator.load(work, rows)
                if position is None:
                    why = f"{store.worker.name} holds no prefix of the log"
                    continue
                await self._read_log(position, position.index, 1)
                if self._durability.executable.value - position.index <= LAG_ENTRIES_MAX:
                    copy = RemoteCopy(evaluator, position, None if predicates is None else frozenset(predicates))
                    return copy
                why = f"{store.worker.name} is more than {LAG_ENTRIES_MAX} entries behind"
            except (TimeoutError, WorkerFault, ClientError, OSError, LogAhead, LogDiverged, LogNeedsRestore) as fault:
                why = f"{store.worker.name}: {fault}"
            finally:
                if copy is None:
                    self._evaluator_pool.release(evaluator)
        raise Unavailable("NoWorker", f"this update is evaluated on a copy of a worker, and {why}; try again", RETRY_S)

    async def _catch_up(self, copy: RemoteCopy, upto: int) -> None:
        while copy.position.index < upto:
            entries = await self._read_log(copy.position, upto, PAGE_BYTES)
            if not entries:
                return
            operations = _operations([effect for each in entries for effect in find_effects(each.entry)])
            last = Position(0, entries[-1].index, entries[-1].hash)
            await copy.apply_operations(operations, last)

    def _restart_idle_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._idle_timer = asyncio.get_running_loop().call_later(COPY_IDLE_S, self._on_idle)

    def _on_idle(self) -> None:
        if not self._lock.locked():
            self._discard_copy()


def _operations(effects: Sequence[EntryEffect]) -> list[StoreOperation]:
    return [StoreOperation(effect.kind, effect.payload) for effect in effects]


def _copy_too_large(what: str, instead: str) -> Conflict:
    return Conflict(
        f"this update is evaluated on a copy in memory, and {what} is larger than {COPY_BYTES_MAX >> 20} MiB; "
        f"{instead}, or write it so that every store gives the same result"
    )


_SERIALIZATION_CONFLICT: Final = (
    # RDF4J's own words come first: its clients and their tests look for them.
    "Transaction handling error: Observed State has Changed: other transactions have changed what this one has looked "
    "at since it began to read; it has changed nothing. Roll it back and begin again"
)


def _overloaded(why: str) -> Unavailable:
    return Unavailable("EffectsBusy", f"{why}; nothing was done, send it again", RETRY_S)
