"""The outcome of a transaction, and waiting for it to reach a level (protocol section 5)."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from txlog.model.durability import WORKER_LEVELS, Durability
from txlog.model.entry import Position
from txlog.model.errors import BadInput
from txlog.model.ids import Txid
from txlog.protocol.views.decisions import SynchronousAnswer
from txlog.runtime.master_loop import MasterLoop
from txlog.runtime.worker_registry import WorkerRegistry

BELOW_APPLIED = (Durability.ACCEPTED, Durability.QUORUM, Durability.SYNCED)


class TransactionOutcome(NamedTuple):
    """``state``: ``unknown``, a level, ``blocked`` (workers refuse it), ``skipped`` or ``rolled-back``. ``position`` is
    set once it is synced; of a synchronous one, it is that of its effect. ``noop``: the transaction that counts
    instead.
    ``workers``: the answers of the workers that refused it. ``synchronous``: what is known of a synchronous one."""

    txid: Txid
    state: str
    level: Durability | None
    position: Position | None
    noop: Txid | None
    workers: dict[str, dict[str, Any]]
    synchronous: SynchronousAnswer | None = None

    def to_dict(self) -> dict[str, Any]:
        """As the API shows it."""
        place = self.position
        return {
            "txid": str(self.txid),
            "state": self.state,
            "durability": self.level,
            "position": None
            if place is None
            else {"epoch": place.epoch, "index": place.index, "hash": place.hash.hex()},
            "noop": None if self.noop is None else str(self.noop),
            "workers": self.workers,
            "synchronous": None if self.synchronous is None else {"state": self.synchronous.value},
        }


class TransactionTracker:
    """Reads the core, the log and the registry; it keeps only the answers of workers to skipped transactions."""

    def __init__(self, loop: MasterLoop, registry: WorkerRegistry) -> None:
        self._durability = loop.durability
        self._status = loop.status
        self._registry = registry
        self.skipped_refusals: dict[str, dict[str, dict[str, Any]]] = {}

    def keep_refusals(self, txid: str) -> None:
        """Keep the workers' answers to a transaction that is skipped: the workers continue and forget them."""
        found = self._registry.known.refusals(txid)
        if found:
            if len(self.skipped_refusals) >= 1000:  # only the newest are worth the memory
                self.skipped_refusals.pop(next(iter(self.skipped_refusals)))
            self.skipped_refusals[txid] = {**self.skipped_refusals.get(txid, {}), **found}

    def is_skipped(self, txid: Txid) -> bool:
        """Whether a skip of this transaction is stable."""
        agreement = self._status.log_state
        if agreement is None:
            return False
        index = agreement.skips.get(str(txid), 0)
        return 0 < index <= self._durability.stable.value

    def check_level(self, level: Durability) -> None:
        """:class:`BadInput` for a level that no transaction of this cluster reaches."""
        if level is Durability.ARCHIVED and not self._durability.has_archive:
            raise BadInput("durability archived: this cluster has no archive (spec.archive); nothing was logged")

    def outcome(self, txid: Txid, asked: Durability | None = None) -> TransactionOutcome:
        """The outcome for a client. A transaction reported as applied is visible to the client's later reads here. Only
        a client that ``asked`` for ``archived`` gets that as the level: it is not comparable with those of workers."""
        durability = self._durability
        level = durability.level_of(txid)
        if asked is Durability.ARCHIVED and level is not None and durability.is_archived(txid):
            level = asked
        index = durability.index_of(txid)
        stable = 0 < index <= durability.stable.value
        name = str(txid)
        agreement = self._status.log_state
        noop = agreement.keyed.noop_of(txid, index) if agreement is not None and stable else None
        workers = {**self.skipped_refusals.get(name, {}), **self._registry.known.refusals(name)}
        state = "unknown" if level is None else level.value
        synchronous = durability.synchronous_answer(txid, Durability.QUORUM)
        if synchronous is SynchronousAnswer.ROLLED_BACK:
            state = synchronous.value
        elif self.is_skipped(txid):
            state = "skipped"
            level = Durability.SYNCED if stable else level
        elif level in WORKER_LEVELS:
            self._registry.reads.raise_min_index(index)
        elif workers:
            state = "blocked"
        position = durability.position_at(index) if stable else None
        return TransactionOutcome(txid, state, level, position, noop, workers, synchronous)

    async def wait_for_level(self, txid: Txid, level: Durability, seconds: float) -> bool:
        """Wait until the transaction has reached ``level``. False after ``seconds``, or when it cannot reach the
        level: it is skipped, or the workers refuse it (see :meth:`outcome`)."""
        durability = self._durability
        deadline = asyncio.get_running_loop().time() + seconds
        first = level if level in BELOW_APPLIED else Durability.SYNCED
        if not await durability.wait_for(durability.wait_txid(txid, first), seconds):
            return False
        if level in BELOW_APPLIED:
            return True
        if level is Durability.ARCHIVED:
            return await self._wait_archived(txid, deadline)
        mark = durability.applied if level is Durability.APPLIED else durability.applied_all
        name = str(txid)
        while not self._cannot_be_applied(txid, level):
            if durability.is_trimmed(txid):
                return True
            left = deadline - asyncio.get_running_loop().time()
            index = durability.index_of(txid)
            if not index:
                if not await self._wait_in_log_again(txid, left):
                    return False
                continue
            future = durability.wait_index(mark, index)
            if future.done():
                return not self.is_skipped(txid)
            self._registry.add_refusal_waiter(name, future)
            try:
                if left <= 0 or not await durability.wait_for(future, left):
                    return False
            finally:
                future.cancel()
                self._registry.remove_refusal_waiter(name, future)
        return False

    async def _wait_archived(self, txid: Txid, deadline: float) -> bool:
        """Whether an archive has it by then. Workers may refuse it: what is archived is the entry."""
        durability = self._durability
        while not durability.is_archived(txid):
            left = deadline - asyncio.get_running_loop().time()
            index = durability.index_of(txid)
            if not index:
                if not await self._wait_in_log_again(txid, left):
                    return False
            elif left <= 0 or not await durability.wait_for(durability.wait_index(durability.archived, index), left):
                return False
        return True

    async def _wait_in_log_again(self, txid: Txid, seconds: float) -> bool:
        """Its branch was given up: it comes again, somewhere else."""
        return seconds > 0 and await self._durability.wait_for(self._durability.wait_in_stable_log(txid), seconds)

    def _cannot_be_applied(self, txid: Txid, level: Durability) -> bool:
        """Skipped; or refused by every worker here that could still execute it (``applied-all``: by any)."""
        if self.is_skipped(txid):
            return True
        refusing = self._registry.known.refusing(str(txid))
        if not refusing:
            return level is Durability.APPLIED_ALL and bool(self._registry.known.refusals(str(txid)))
        if level is Durability.APPLIED_ALL:
            return True
        able = [w for w in self._registry.workers.values() if w.state in ("Working", "Ahead", "Unknown")]
        return not able
