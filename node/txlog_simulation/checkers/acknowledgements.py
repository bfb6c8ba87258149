"""What masters told clients, workers and peers is durable where they said so (invariants 2, 8; rules 5, 8, 15)."""

from __future__ import annotations

from txlog.model.ids import Origin
from txlog.model.view import View
from txlog.protocol.events import DurabilityMarks
from txlog.wire.messages import ReplicaState
from txlog_simulation.checkers.log import LogChecker
from txlog_simulation.checkers.transactions import TransactionChecker
from txlog_simulation.durable_state import DurableState
from txlog_simulation.violation import ACKNOWLEDGEMENT, PROMISE, ViolationLog


class AcknowledgementChecker:
    """``released_marks``: the highest marks of each origin, over all its starts. ``mirrors`` are those of the members
    whose disk was never lost; a lost one counts as having what it once had, and no more."""

    def __init__(
        self, findings: ViolationLog, transactions: TransactionChecker, log: LogChecker, weights: dict[str, int]
    ) -> None:
        self.findings = findings
        self.transactions = transactions
        self.log = log
        self.weights = [weights]
        """Every one that was ever in force, or may have been."""
        self.released_marks: dict[Origin, DurabilityMarks] = {}
        self._wiped: dict[Origin, dict[Origin, int]] = {}

    def on_wiped(self, origin: Origin, mirror: DurableState) -> None:
        """This disk is lost. What it did not hold until then, nobody may count on it for."""
        self._wiped[origin] = dict(mirror.held_seqs)

    def on_marks(self, origin: Origin, marks: DurabilityMarks, mirrors: dict[Origin, DurableState], view: View) -> None:
        """Marks have left a master: its clients and its workers know them."""
        mine = mirrors.get(origin)
        if mine is None:
            return
        before = self.released_marks.get(origin, DurabilityMarks(0, 0, 0, 0, 0))
        for name, told, durable in (
            ("accepted", marks.accepted, mine.held_seqs.get(origin, 0)),
            ("log", marks.log, mine.log_length),
            ("stable", marks.stable, mine.stable),
        ):
            if told > durable:
                self._report("15", f"{origin.node} tells {name} {told}, its disk has {durable}")
        if marks.synced > before.synced:
            self._check_synced(origin, marks.synced, mirrors, view)
        if marks.quorum > before.quorum:
            self.check_quorum(origin, origin, marks.quorum, mirrors, view)
        if marks.quorum_index > before.quorum_index:
            self._check_quorum_index(origin, before.quorum_index, marks.quorum_index, mirrors, view)
        self.transactions.on_accepted(origin, marks.accepted)
        self.released_marks[origin] = DurabilityMarks(*map(max, zip(before, marks, strict=True)))

    def _check_synced(self, origin: Origin, seq: int, mirrors: dict[Origin, DurableState], view: View) -> None:
        members = {member.origin for member in view.members}
        for member, mirror in mirrors.items():
            if member in members and mirror.held_seqs.get(origin, 0) < seq:
                self._report(
                    "16", f"{origin.node} tells synced {seq}, {member.node} has {mirror.held_seqs.get(origin, 0)}"
                )

    def _check_quorum_index(
        self, teller: Origin, after: int, upto: int, mirrors: dict[Origin, DurableState], view: View
    ) -> None:
        branch = self.log.branches.get(view.number)
        last = {} if branch is None else {one.txid.origin: one.txid.seq for one in branch.entries[after:upto]}
        for origin, seq in last.items():
            self.check_quorum(teller, origin, seq, mirrors, view)

    def check_quorum(
        self, teller: Origin, origin: Origin, seq: int, mirrors: dict[Origin, DurableState], view: View
    ) -> None:
        """A master tells that more than half of the weight has this transaction."""
        births = {member.node: member.birth for member in view.members}  # of one that was wiped since: an earlier one
        lacking = {
            member.node
            for member, mirror in mirrors.items()
            if mirror.held_seqs.get(origin, 0) < seq and births.get(member.node, member.birth) == member.birth
        }
        held = {member.node for member, mirror in mirrors.items() if mirror.held_seqs.get(origin, 0) >= seq}
        lacking |= {
            lost.node
            for lost, seqs in self._wiped.items()
            if births.get(lost.node) == lost.birth and seqs.get(origin, 0) < seq and lost.node not in held
        }
        # The mark may be of the view before, in which a disk counted that is lost now.
        lacking -= {
            lost.node for lost, seqs in self._wiped.items() if lost.node not in births and seqs.get(origin, 0) >= seq
        }
        for weights in self.weights:
            total = sum(weights.values())
            having = total - sum(weights.get(node, 0) for node in lacking)
            if 2 * having > total:
                return
        self._report("16", f"{teller.node} tells quorum {origin}.{seq}, {', '.join(sorted(lacking))} lack it")

    def _report(self, rule: str, text: str) -> None:
        self.findings.add(ACKNOWLEDGEMENT, rule, text)

    def check_final(self, mirrors: dict[Origin, DurableState], lost: set[Origin], complete: bool) -> None:
        """Every accepted transaction stands in the final log, or (``complete`` false) is durable somewhere still."""
        for origin, accepted in sorted(self.transactions.accepted.items()):
            if origin in lost:
                continue
            last = max((mirror.held_seqs.get(origin, 0) for mirror in mirrors.values()), default=0)
            if last < accepted:
                self._report("15", f"{origin.node} accepted up to {accepted}, the disks have {last}")
            if complete:
                in_log = sum(1 for entry in self.log.longest if entry.txid.origin == origin)
                if in_log < accepted:
                    self._report("15", f"{origin.node} accepted up to {accepted}, the log has {in_log}")


class PromiseChecker:
    """What posts assert (rules 4, 5, 8): looked at on the wire, against the disk and against later stamps."""

    def __init__(self, findings: ViolationLog, transactions: TransactionChecker) -> None:
        self.findings = findings
        self.transactions = transactions
        self.counter: dict[Origin, int] = {}

    def on_post(self, origin: Origin, claim: ReplicaState, mirror: DurableState) -> None:
        """A post has left a master."""
        if claim.counter > mirror.ceiling:
            self._report("5", f"{origin.node} posts counter {claim.counter}, its disk has {mirror.ceiling}")
        if claim.log_index > mirror.log_length:
            self._report("8", f"{origin.node} posts a log up to {claim.log_index}, its disk has {mirror.log_length}")
        durable = mirror.held_seqs.get
        for member, seq in zip(mirror.members, claim.held, strict=True):
            if seq and seq > durable(member, 0):
                self._report("8", f"{origin.node} posts held {seq} of {member.node}, its disk has {mirror.held_seqs}")
        rows = self.transactions.by_origin.get(origin, ())
        if claim.own_seq < len(rows) and 0 < rows[claim.own_seq].stamp <= claim.counter:
            self._report("7", f"{origin.node} posts counter {claim.counter} above a stamp behind seq {claim.own_seq}")
        if claim.counter > self.counter.get(origin, 0):
            self.counter[origin] = claim.counter

    def on_transaction(self, origin: Origin, stamp: int, seq: int) -> None:
        """A master makes a transaction (not durable yet)."""
        if stamp <= self.counter.get(origin, 0):
            self._report("4", f"{origin}.{seq} has stamp {stamp}, counter {self.counter[origin]} was promised")

    def _report(self, rule: str, text: str) -> None:
        self.findings.add(PROMISE, rule, text)
