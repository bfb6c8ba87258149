"""A history made by hand: a log start behind a decision, and before what that decision names.

Random runs hardly reach it. A master learns of a COMMIT by a post, and not of the transaction, which the writer has
already moved to its log. A minority of such masters opens a view with the COMMIT in its base. Those who hold the
transaction join that view later, so it enters the log behind its decision. Then the log is trimmed between the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from e2e.model.synchronous.random_run import RandomRun, RunOptions
from e2e.model.synchronous.values import TransactionKind

_ORIGIN, _WRITER, _HOLDER, _MINORITY, _OTHER = range(5)
_SEED = 1


def run_directed(options: RunOptions) -> Counter[str]:
    """Counts of the history; :class:`ModelViolation` where a rule is broken. Five masters, under Smart."""
    history = _DirectedRun(_SEED, options)
    history.decide_out_of_sight()
    history.open_minority_view()
    history.join_holders()
    history.trim_between()
    return history.finish()


class _DirectedRun(RandomRun):
    """A run whose messages arrive where the script says."""

    def decide_out_of_sight(self) -> None:
        """The writer has the transaction in its log, and posts its COMMIT to one master that has never seen it."""
        self.network.is_whole = True
        for _ in range(3):
            self._round(self.ids, self.ids)
        for _ in range(2):
            self.clients.originate(self.masters[_MINORITY], TransactionKind.ORDINARY)
        self.network.groups = [0, 0, 0, 1, 1]
        self._round((_MINORITY,), (_WRITER, _HOLDER, _OTHER))
        self._round((_OTHER,), (_WRITER, _HOLDER))
        self.named = self.clients.originate(self.masters[_ORIGIN], TransactionKind.SYNCHRONOUS)
        self.clients.due[self.named] = 1 << 30
        self.assertions.synced_before[self.named] = 0
        self._round((_ORIGIN,), (_WRITER, _HOLDER))
        self._round((_HOLDER,), (_WRITER,))
        writer = self.masters[_WRITER]
        assert self.named in writer.places, writer.log
        self._decide(writer)
        assert self.counts["COMMITs"] == 1, self.counts
        self.changes.post(writer)
        writer.down = 1
        self._deliver_to((_MINORITY,))
        assert self.named not in self.masters[_MINORITY].places, self.masters[_MINORITY].log

    def open_minority_view(self) -> None:
        """Two masters that have the COMMIT alone."""
        self._change_view(_MINORITY, (_MINORITY, _OTHER))

    def join_holders(self) -> None:
        """Those who hold the transaction follow them; then the writer does."""
        self._change_view(_MINORITY, (_ORIGIN, _HOLDER, _MINORITY, _OTHER))
        self.masters[_WRITER].down = 0
        self._change_view(_MINORITY, tuple(self.ids))

    def trim_between(self) -> None:
        """The newest backup is at the decision. So is the log start, and a worker goes back to it."""
        master = self.masters[_MINORITY]
        decision = next(entry.txid for entry in master.log if entry.transaction.kind is TransactionKind.DECISION)
        at = master.places[decision]
        assert at < master.places[self.named], master.log
        self.readers.backups = [each for each in self.readers.backups if each.position <= at]
        self.readers.trim(master, self.masters)
        assert master.start.index == at, master.start
        self.readers.restore(master, master)
        self.note(master)

    def finish(self) -> Counter[str]:
        """As a random run ends."""
        self._heal()
        self.assertions.finish(self.masters, self.clients.accepted, self.clients.lost, self._whole_fold().keys)
        return self.counts

    def _round(self, senders: Collection[int], receivers: Collection[int]) -> None:
        for sender in senders:
            self.changes.post(self.masters[sender])
        self._deliver_to(receivers)

    def _deliver_to(self, receivers: Collection[int]) -> None:
        """What is on its way to these arrives; everything else is lost."""
        while self.network.in_flight:
            sender, receiver, message = self.network.in_flight.pop(0)
            if receiver in receivers and not self.masters[receiver].down:
                self.changes.receive(sender, receiver, message)
                if self.masters[receiver].is_active:
                    self._advance(self.masters[receiver])

    def _change_view(self, coordinator: int, members: tuple[int, ...]) -> None:
        master = self.masters[coordinator]
        master.highest_seen = max(each.promised[0] for each in self.masters)
        self.changes.propose(master, members)
        self._deliver_to(members)
