"""Transactions of clients: refused, known from before, or given a txid and a stamp (rules 3, 4, 16)."""

from __future__ import annotations

from txlog.model.entry import KIND_CONFIG, Item
from txlog.model.errors import KeyTaken, Refused, Unavailable
from txlog.model.ids import Txid
from txlog.protocol.configuring import Configuring
from txlog.protocol.events import Accepted, Now, Submission


class Submitting(Configuring):
    """All of one batch are taken, or refused together when this master takes no work."""

    def submit(self, batch: list[Submission], now: Now, room_for_work: bool) -> list[Accepted | Refused]:
        """Give txids and stamps to transactions, in order; each answer stands at its transaction's place.

        All of one batch are refused together when this master takes no work (:class:`Unavailable`)."""
        refusal = self._refuses_work(batch, room_for_work)
        if refusal is not None:
            return [refusal] * len(batch)
        agreement = self.agreement
        assert agreement is not None
        stopped = self.views.stopped
        if not stopped:
            self._promise(now)
        answers: list[Accepted | Refused] = []
        items: list[Item] = []
        contents: list[bytes] = []
        stamp = agreement.last_stamp
        seq = agreement.last_own
        fresh: dict[str, Accepted] = {}
        muted = self._takes_no_writes()
        changed = False
        for one in batch:
            if one.kind == KIND_CONFIG:
                wrong = self._refuses_change(one, changed)
                changed = True
            else:
                wrong = muted
            if wrong is not None:
                answers.append(wrong)
                continue
            before = self._repeats(one, stamp, fresh)
            if before is not None:
                answers.append(before)
                continue
            stamp += 1
            seq += 1
            items.append(Item(0 if stopped else stamp, one.kind, one.key, one.payload))
            contents.append(one.content)
            answer = Accepted(Txid(agreement.own.origin, seq), repeat=False)
            if one.key and one.kind != KIND_CONFIG:
                fresh[one.key] = answer
            answers.append(answer)
        if items and stopped:
            agreement.hold_late(items, contents)
        elif items:
            agreement.hold_own(items, contents)
            self._rounds.own_work(now.mono)
        return answers

    def _refuses_work(self, batch: list[Submission], room_for_work: bool) -> Refused | None:
        agreement, limits = self.agreement, self.settings
        self.full = not room_for_work
        if self.closing:
            return Unavailable("Closing", "this master is stopping; ask another one")
        if agreement is None:
            return Unavailable("NotFounded", "the cluster is not founded yet: every configured master must answer once")
        if self.views.accepted is None:
            return Unavailable("Learning", "this master has no journal of its own yet and catches up; ask another one")
        if not self.founding.admitted:
            return Unavailable("Starting", "this master asks its peers what they last heard of it")
        if not room_for_work:
            return Unavailable("DiskFull", "no room for new transactions on this master's disk; make room there", 10)
        waiting = sum(len(q) for q in agreement.queues) + len(agreement.late)
        if waiting + len(batch) > limits.queue_transactions_max:
            return Unavailable("QueueFull", f"{waiting} transactions wait for their order; a member may be silent")
        if sum(q.bytes for q in agreement.queues) > limits.queue_bytes_max:
            return Unavailable("QueueFull", "too many bytes wait for their order; a member may be silent")
        return None

    def _repeats(self, one: Submission, stamp: int, fresh: dict[str, Accepted]) -> Accepted | Refused | None:
        if not one.key or one.kind == KIND_CONFIG:
            return None
        agreement = self.agreement
        assert agreement is not None
        if one.key in fresh:
            return Accepted(fresh[one.key].txid, repeat=True)
        first = agreement.keys.known(one.key, stamp)
        if first is None:
            return None
        if first.content != one.content:
            return KeyTaken(f"Idempotency-Key {one.key[:80]!r} came with another body before, as {first.txid}")
        return Accepted(first.txid, repeat=True)
