"""Client transactions: refused, recognised as repeats, or given a txid and a stamp (rules 3, 4, 16)."""

from __future__ import annotations

from txlog.model.entry import KIND_CONFIG, RunItem
from txlog.model.errors import KeyTaken, Refused, Unavailable
from txlog.model.ids import Txid
from txlog.protocol.events import ClockReading, Submission, SubmissionAccepted
from txlog.protocol.membership.configuration_changes import ConfigurationChanges


class SubmissionHandler(ConfigurationChanges):
    """A batch is taken as a whole, or refused as a whole when this master takes no work."""

    def submit(
        self, batch: list[Submission], now: ClockReading, room_for_work: bool
    ) -> list[SubmissionAccepted | Refused]:
        """Give txids and stamps to transactions, in order; answer ``i`` is that of transaction ``i``.

        All of one batch are refused together when this master takes no work (:class:`Unavailable`)."""
        refusal = self._admission_error(batch, room_for_work)
        if refusal is not None:
            return [refusal] * len(batch)
        agreement = self.log_state
        assert agreement is not None
        stopped = self.views.is_stopped
        if not stopped:
            self._raise_counter(now)
        answers: list[SubmissionAccepted | Refused] = []
        items: list[RunItem] = []
        contents: list[bytes] = []
        stamp = agreement.last_stamp
        seq = agreement.last_own_seq
        fresh: dict[str, SubmissionAccepted] = {}
        muted = self._write_error()
        changed = False
        for one in batch:
            if one.kind == KIND_CONFIG:
                wrong = self._change_error(one, changed)
                changed = True
            else:
                wrong = muted
            if wrong is not None:
                answers.append(wrong)
                continue
            before = self._find_repeat(one, stamp, fresh)
            if before is not None:
                answers.append(before)
                continue
            stamp += 1
            seq += 1
            items.append(RunItem(0 if stopped else stamp, one.kind, one.key, one.payload))
            contents.append(one.content)
            answer = SubmissionAccepted(Txid(agreement.own.origin, seq), repeat=False)
            if one.key and one.kind != KIND_CONFIG:
                fresh[one.key] = answer
            answers.append(answer)
        if items and stopped:
            agreement.persist_unstamped(items, contents)
        elif items:
            agreement.persist_own(items, contents)
            self._post_schedule.on_own_transactions(now.mono)
        return answers

    def _admission_error(self, batch: list[Submission], room_for_work: bool) -> Refused | None:
        agreement, limits = self.log_state, self.settings
        self.disk_full = not room_for_work
        if self.closing:
            return Unavailable("Closing", "this master is stopping; ask another one")
        if agreement is None:
            return Unavailable("NotFounded", "the cluster is not founded yet: every configured master must answer once")
        if self.views.accepted is None:
            return Unavailable("Learning", "this master has no journal of its own yet and catches up; ask another one")
        if not self.bootstrap.admitted:
            return Unavailable("Starting", "this master asks its peers what they last heard of it")
        if not room_for_work:
            return Unavailable("DiskFull", "no room for new transactions on this master's disk; make room there", 10)
        waiting = sum(len(q) for q in agreement.queues) + len(agreement.unstamped)
        if waiting + len(batch) > limits.queue_transactions_max:
            return Unavailable("QueueFull", f"{waiting} transactions wait for their order; a member may be silent")
        if sum(q.payload_bytes for q in agreement.queues) > limits.queue_bytes_max:
            return Unavailable("QueueFull", "too many bytes wait for their order; a member may be silent")
        return None

    def _find_repeat(
        self, one: Submission, stamp: int, fresh: dict[str, SubmissionAccepted]
    ) -> SubmissionAccepted | Refused | None:
        if not one.key or one.kind == KIND_CONFIG:
            return None
        agreement = self.log_state
        assert agreement is not None
        if one.key in fresh:
            return SubmissionAccepted(fresh[one.key].txid, repeat=True)
        first = agreement.keys.find_first_use(one.key, stamp)
        if first is None:
            return None
        if first.content != one.content:
            return KeyTaken(f"Idempotency-Key {one.key[:80]!r} came with another body before, as {first.txid}")
        return SubmissionAccepted(first.txid, repeat=True)
