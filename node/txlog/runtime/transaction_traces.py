"""Spans of transactions on their way through one master: accepted, ordered, synced, applied.

A master records a transaction that it accepts if the client's trace is recorded, or by chance. It announces such
transactions to the other masters, which record their part in the same trace. Nothing of that is in the log or in a
message of the protocol, and a transaction that is not recorded costs one random number.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final

from txlog.model.errors import Refused
from txlog.model.ids import Txid
from txlog.runtime.durability_tracker import DurabilityTracker
from txlog.runtime.master_loop import PendingWrite
from txlog.runtime.master_status import MasterStatus
from txlog.telemetry.event_log import EventLog
from txlog.telemetry.trace_context import TraceContext, parse_traceparent
from txlog.telemetry.tracer import SpanKind, Tracer, TraceSpan

FOLLOWED_MAX: Final = 256
"""Transactions that are followed at the same time. Each turn of the loop looks at all of them."""
REMEMBERED_MAX: Final = 1024
"""Recorded transactions whose trace lanes may ask for."""
FOLLOW_NS_MAX: Final = 60 * 10**9
NOT_REACHED: Final = "not reached within a minute"


class TraceStage(Enum):
    """A part of a transaction's way; each ends when the transaction has reached a level here. The value is the name of
    its span."""

    ACCEPT = "accept"
    PERSIST = "persist"
    ORDER = "order"
    SYNC = "sync"
    APPLY = "apply"


OWN_STAGES: Final = (TraceStage.ACCEPT, TraceStage.ORDER, TraceStage.SYNC, TraceStage.APPLY)
FOREIGN_STAGES: Final = (TraceStage.PERSIST, TraceStage.ORDER, TraceStage.SYNC)
"""Of another master's transaction. Lanes record what workers execute."""
Announcement = tuple[Txid, TraceContext]


class FollowedTransaction:
    """A recorded transaction. ``write``: the client's request at this master, until its id is known: it holds the
    payload. None for another master's transaction."""

    def __init__(
        self, span: TraceSpan, stages: Sequence[TraceStage], began_ns: int, write: PendingWrite | None
    ) -> None:
        self.span = span
        self.write = write
        self.is_own = write is not None
        self.txid: Txid | None = None
        self.began_ns = began_ns
        self.stage_began_ns = began_ns
        self.waiting = list(stages)
        self.is_answered = write is None
        self.awaits_workers = False

    @property
    def is_done(self) -> bool:
        """Whether all its stages have ended."""
        return not self.waiting


class AppliedWaiter:
    """Waits for the workers of this data centre; see :class:`~txlog.runtime.watermark.Waiter`."""

    def __init__(self, traces: TransactionTraces, followed: FollowedTransaction) -> None:
        self._traces = traces
        self._followed = followed

    def done(self) -> bool:
        """Whether its transaction is no longer followed."""
        return self._followed.is_done

    def set_result(self, reached: bool, /) -> None:
        """The workers are there; or False: this master is ending."""
        if reached:
            self._traces.finish_stage(self._followed)


class WriteTrace:
    """The span of a client's request."""

    def __init__(self, traces: TransactionTraces, followed: FollowedTransaction) -> None:
        self._traces = traces
        self._followed = followed

    def end(self) -> None:
        """The request was answered, or its client has disconnected."""
        self._traces.end_write(self._followed)


class TransactionTraces:
    """The recorded transactions of one master. ``announce``: sends those that it has accepted to the other masters;
    ``clock_ns``: nanoseconds since 1970.

    The first error of a public method ends the traces of this master, and nothing else: the loop and clients call them.
    """

    def __init__(
        self,
        tracer: Tracer,
        durability: DurabilityTracker,
        status: MasterStatus,
        announce: Callable[[Sequence[Announcement]], None],
        log: EventLog,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._tracer = tracer
        self._durability = durability
        self._status = status
        self._announce = announce
        self._log = log
        self.has_failed = False
        """Whether an error has ended the traces of this master."""
        self._clock_ns = clock_ns
        self._followed: list[FollowedTransaction] = []
        self._contexts: OrderedDict[Txid, TraceContext] = OrderedDict()
        self.recorded = 0
        """Transactions whose spans were begun."""
        self.skipped = 0
        """Sampled transactions that were not recorded, because too many are followed."""
        durability.observer = self.advance

    def begin(self, write: PendingWrite, traceparent: str) -> WriteTrace | None:
        """Call this right after the write was submitted. None: it is not recorded."""
        try:
            return None if self.has_failed else self._begin(write, traceparent)
        except Exception as error:  # noqa: BLE001 - see the class
            self._fail(error)
            return None

    def _begin(self, write: PendingWrite, traceparent: str) -> WriteTrace | None:
        parent = parse_traceparent(traceparent) if traceparent else None
        if not self._tracer.is_sampled(parent) or not self._has_room():
            return None
        now = self._clock_ns()
        span = self._tracer.start("write", now, parent, SpanKind.SERVER, durability=write.level.value)
        span.set(transactions=len(write.batch))
        followed = FollowedTransaction(span, OWN_STAGES, now, write)
        self._followed.append(followed)
        return WriteTrace(self, followed)

    def on_announced(self, announcements: Sequence[Announcement]) -> None:
        """Another master has accepted these."""
        try:
            if not self.has_failed:
                self._take_announced(announcements)
        except Exception as error:  # noqa: BLE001 - see the class
            self._fail(error)

    def _take_announced(self, announcements: Sequence[Announcement]) -> None:
        now = self._clock_ns()
        for txid, context in announcements:
            self._remember(txid, context)
            if not self._has_room():
                continue
            span = self._tracer.start("replicate", now, context, SpanKind.CONSUMER, transaction=str(txid))
            followed = FollowedTransaction(span, FOREIGN_STAGES, now, None)
            followed.txid = txid
            self._followed.append(followed)
        self._advance()

    def contexts_between(self, after: int, upto: int) -> Mapping[Txid, tuple[int, TraceContext]]:
        """The recorded transactions that take effect above index ``after``, up to ``upto``, with their index."""
        found = {}
        for txid, context in self._contexts.items():
            index = self._durability.index_of(txid)
            if after < index <= upto:
                found[txid] = index, context
        return found

    def advance(self) -> None:
        """Ends the stages that transactions have reached. The loop calls this in each turn."""
        if not self._followed:
            return
        try:
            self._advance()
        except Exception as error:  # noqa: BLE001 - see the class
            self._fail(error)

    def _advance(self) -> None:
        accepted = [one for followed in self._followed if (one := self._find_txid(followed)) is not None]
        now = self._clock_ns()
        for followed in self._followed:
            while not followed.is_done and not followed.awaits_workers and self._is_reached(followed):
                self._finish_stage(followed, now)
            if not followed.is_done and now - followed.began_ns > FOLLOW_NS_MAX:
                self._give_up(followed, now)
        self._followed = [each for each in self._followed if not each.is_done]
        if accepted:
            self._announce(accepted)

    def finish_stage(self, followed: FollowedTransaction) -> None:
        """What a transaction waited for outside of the loop's turns has happened."""
        try:
            if not followed.is_done:
                self._finish_stage(followed, self._clock_ns())
        except Exception as error:  # noqa: BLE001 - see the class
            self._fail(error)

    def end_write(self, followed: FollowedTransaction) -> None:
        """A request was answered. The level that it was answered for was reached before."""
        self.advance()
        try:
            followed.is_answered = True
            followed.span.end(self._clock_ns())
        except Exception as error:  # noqa: BLE001 - see the class
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if not self.has_failed:
            self._log.error("TracesFailed", error=repr(error)[:1000])
        self.has_failed = True
        self._followed = []
        self._durability.observer = None

    def close(self) -> None:
        """Ends all spans, and sends what waits. It blocks, for :data:`~txlog.telemetry.tracer.CLOSE_TIMEOUT_S`."""
        self._durability.observer = None
        for followed in self._followed:
            self._give_up(followed, self._clock_ns(), "this master stops")
        self._followed = []
        self._tracer.close()

    def _has_room(self) -> bool:
        if len(self._followed) < FOLLOWED_MAX:
            self.recorded += 1
            return True
        self.skipped += 1
        return False

    def _find_txid(self, followed: FollowedTransaction) -> Announcement | None:
        """The last transaction of a write, once it is known, the first time."""
        write = followed.write
        if followed.txid is not None or write is None or not write.answers:
            return None
        answer = write.answers[-1]
        if isinstance(answer, Refused):
            self._give_up(followed, self._clock_ns(), answer.name)  # its message may hold a key or a term
            return None
        followed.txid, followed.write = answer.txid, None
        followed.span.set(transaction=str(answer.txid), repeat=answer.is_repeat)
        if answer.is_repeat:  # it was recorded when it was new
            followed.waiting = []
            return None
        self._remember(answer.txid, followed.span.context)
        return answer.txid, followed.span.context

    def _remember(self, txid: Txid, context: TraceContext) -> None:
        self._contexts[txid] = context
        while len(self._contexts) > REMEMBERED_MAX:
            self._contexts.popitem(last=False)

    def _is_reached(self, followed: FollowedTransaction) -> bool:
        txid, stage, durability = followed.txid, followed.waiting[0], self._durability
        if txid is None:
            return False
        if stage is TraceStage.ACCEPT:
            return txid.seq <= durability.accepted.value
        index = durability.index_of(txid)
        if stage is TraceStage.PERSIST:
            return index > 0 or self._status.is_persisted(txid)
        if stage is TraceStage.ORDER:
            return index > 0
        if stage is TraceStage.SYNC:
            return 0 < index <= durability.stable.value
        followed.awaits_workers = True
        durability.applied.add_waiter(index, AppliedWaiter(self, followed))
        return False

    def _finish_stage(self, followed: FollowedTransaction, now_ns: int, error: str = "") -> None:
        stage = followed.waiting.pop(0)
        part = self._tracer.start(stage.value, followed.stage_began_ns, followed.span.context)
        if stage in (TraceStage.ORDER, TraceStage.SYNC, TraceStage.APPLY) and followed.txid is not None:
            part.set(index=self._durability.index_of(followed.txid))
        part.end(now_ns, error)
        followed.stage_began_ns = now_ns
        if followed.is_done and not followed.is_own:
            followed.span.end(now_ns)

    def _give_up(self, followed: FollowedTransaction, now_ns: int, why: str = NOT_REACHED) -> None:
        if followed.is_done:
            return
        self._finish_stage(followed, now_ns, why)
        followed.waiting = []
        if followed.is_answered or followed.txid is None:
            followed.span.end(now_ns, why)
