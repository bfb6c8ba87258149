"""Requests of clients in a process with a loop: the fast path's way (answered in the turn), and that of a task."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from txlog.model.durability import Durability
from txlog.model.entry import KIND_CONFIG
from txlog.model.errors import Refused, Unavailable
from txlog.protocol.events import Submission, SubmissionAccepted
from txlog.runtime.master_loop import PendingWrite
from txlog.runtime.transaction_status import BELOW_APPLIED
from txlog_simulation.lost_disks import check_old_copy
from txlog_simulation.membership_faults import check_submission
from txlog_simulation.simulated_clients import check_age
from txlog_simulation.violation import ACKNOWLEDGEMENT, LIVENESS, PROCESS

if TYPE_CHECKING:
    from txlog.model.ids import Txid
    from txlog_simulation.looped_process import LoopedProcess


class TrackedRequest(Protocol):
    """A request whose answers and waiter are looked at. ``is_noted``: its answers have been compared."""

    write: PendingWrite
    is_noted: bool

    @property
    def is_answered(self) -> bool: ...


class OpenRequests:
    """Those of one process that wait for answers or a level."""

    def __init__(self, process: LoopedProcess) -> None:
        self._process = process
        self._requests: list[TrackedRequest] = []

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: TrackedRequest) -> None:
        """One more."""
        self._requests.append(request)

    def note_answers(self) -> None:
        """The loop has answered some of them: compare that with what their clients sent, before it can be durable."""
        machine = self._process.machine
        world = machine.world
        for request in self._requests:
            write = request.write
            if request.is_noted or not write.answers:
                continue
            request.is_noted = True
            if machine.origin is not None and not machine.damaged:
                trimmed = machine.durable_state.trimmed_seqs
                world.clients.on_answers(machine.origin, write.batch, write.answers, world.now_ms, trimmed)
            taken = any(isinstance(answer, SubmissionAccepted) for answer in write.answers)
            if taken:
                check_old_copy(machine)
            check_submission(world, machine, taken and write.batch[0].kind != KIND_CONFIG)
            for answer in write.answers:
                if isinstance(answer, SubmissionAccepted) and answer.is_repeat:
                    world.coverage["client's retry"] += 1
                    check_age(world, machine, answer)
                if isinstance(answer, Refused):
                    reason = getattr(answer, "reason", type(answer).__name__)
                    world.coverage["refused for a full disk"] += reason == "DiskFull"
                    world.refused[reason] += 1

    def check_answers(self) -> None:
        """The levels that clients were answered with in the callback that has run: are they true?"""
        left: list[TrackedRequest] = []
        for request in self._requests:
            if not request.write.waiter.done() or not request.is_noted:
                left.append(request)
            elif request.is_answered:
                self.check_levels(request.write)
        self._requests = left

    def check_levels(self, write: PendingWrite) -> None:
        """All new transactions of a write have its level, here and now."""
        levels = self._process.machine.levels
        if levels is None:
            return
        level = write.level if write.level in BELOW_APPLIED else Durability.SYNCED
        for answer in write.answers:
            if isinstance(answer, SubmissionAccepted) and not answer.is_repeat:
                levels.check(answer.txid, level)

    def check_idle(self) -> None:
        """The loop has nothing to do: each request has an answer, and none waits for what has been reached."""
        machine, durability = self._process.machine, self._process.loop.durability
        marks = {
            Durability.ACCEPTED: durability.accepted,
            Durability.QUORUM: durability.quorum,
        }
        for request in self._requests:
            write = request.write
            if not request.is_noted:
                text = f"{machine.name} is idle, and a request for {write.level} has no answer"
                machine.world.violations.add(LIVENESS, "32", text)
                return
            seq = _last_new(write)
            if seq and marks.get(write.level, durability.synced).value >= seq and not write.waiter.done():
                text = f"{machine.name} does not tell a client that its seq {seq} is {write.level}"
                machine.world.violations.add(ACKNOWLEDGEMENT, "15", text)
                return

    def waiting_for(self, stable: set[Txid]) -> list[TrackedRequest]:
        """Those whose clients wait, though their transactions are among these."""
        return [
            request
            for request in self._requests
            if not request.write.waiter.done() and (news := _new(request.write)) and stable.issuperset(news)
        ]


def _new(write: PendingWrite) -> list[Txid]:
    return [a.txid for a in write.answers if isinstance(a, SubmissionAccepted) and not a.is_repeat]


def _last_new(write: PendingWrite) -> int:
    return max((txid.seq for txid in _new(write)), default=0)


class LoopRequest:
    """A request as the fast path has it: it is its own waiter, and tells its client in the turn. ``answered(write)`` is
    called when all have reached the level."""

    def __init__(
        self,
        process: LoopedProcess,
        batch: list[Submission],
        level: str,
        answered: Callable[[PendingWrite], None] = lambda write: None,
    ) -> None:
        self._process = process
        self._answered = answered
        self._is_done = False
        self.is_noted = False
        self.is_answered = False
        self.write = PendingWrite(batch, Durability(level), self)

    def enqueue(self) -> None:
        """Hand it to the loop, or be refused."""
        process = self._process
        world, loop = process.machine.world, process.loop
        plan = world.plan.loop
        assert plan is not None
        world.transactions.on_submitted(process.machine.name, self.write.batch)
        world.clients.on_sent(self.write.batch)
        world.trace_event(process.machine.name, "submit", f"count={len(self.write.batch)} for {self.write.level}")
        is_full = loop.in_flight >= plan.in_flight_max
        process.track(self)
        try:
            loop.enqueue(self.write)
        except Unavailable as refused:
            self._is_done = self.is_noted = True
            world.refused[refused.reason] += 1
            world.coverage["too many requests"] += 1
            raise
        if is_full:
            text = f"{process.machine.name} takes a request beside {loop.in_flight} others"
            world.violations.add(PROCESS, "32", text)
        if not self._is_done:
            loop.in_flight += 1

    # The interface of a waiter

    def done(self) -> bool:
        """See :class:`txlog.runtime.watermark.Waiter`."""
        return self._is_done

    def set_result(self, reached: bool, /) -> None:
        """See :class:`txlog.runtime.watermark.Waiter`."""
        process, write = self._process, self.write
        if self._is_done:
            return
        self._is_done = True
        process.loop.in_flight -= 1
        if not reached or all(isinstance(answer, Refused) for answer in write.answers):
            return
        process.machine.on_step("tell")
        self.is_answered = True
        process.open.check_levels(write)
        process.machine.world.trace_event(process.machine.name, "tell", f"{write.level} {len(write.answers)}")
        process.machine.world.coverage["answered in the turn"] += 1
        self._answered(write)
