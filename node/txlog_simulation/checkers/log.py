"""One log in each view, one stable log in a line of views: prefixes, keys, each once (invariants 1, 3, 4, 6)."""

from __future__ import annotations

from typing import NamedTuple

from txlog.model.entry import CONTROL_KINDS, Span
from txlog.model.hashes import HASH_BYTES, chain_hash, chain_start, origin_tag
from txlog.model.ids import Origin, Txid
from txlog.model.records import LogAppended, ReassignedStamps, TransactionsPersisted, ViewAccepted
from txlog.model.stamp import LOGICAL_BITS
from txlog.model.synchronous_entry import SYNCHRONOUS_AND_DECISION
from txlog.model.view import Number, View
from txlog_simulation.checkers.synchronous import ObservedEffect, ObservedSynchronous, SynchronousFold
from txlog_simulation.checkers.transactions import TransactionChecker
from txlog_simulation.durable_state import DurableState
from txlog_simulation.violation import LOG, ViolationLog


class ObservedEntry(NamedTuple):
    """An index of a log. ``age_stamp``: the one from which the age of its key counts. ``counts_instead``: the first
    transaction with the same idempotency key."""

    txid: Txid
    stamp: int
    content: bytes
    key: str
    kind: int
    age_stamp: int
    counts_instead: Txid | None = None


class ObservedBranch:
    """The longest log that was durable anywhere in one view. ``hashes``: its chain hashes, end to end. ``final_index``:
    what any master called stable in this view, or in one that it has grown from."""

    def __init__(self, cluster_id: bytes, retention: int) -> None:
        self.start = chain_start(cluster_id)
        self.entries: list[ObservedEntry] = []
        self.hashes = bytearray()
        self.in_log: dict[Origin, int] = {}
        self.settled = 0
        self.base = 0
        """How long the closed log is that the view goes on from."""
        self.moved: set[Number] = set()
        """Views that it has grown from by a merge."""
        self._retention = retention
        self.keeps_keys = retention >= 1 << 40
        """For longer than any run: of one key, one transaction counts."""
        self._uses_of_key: dict[str, list[tuple[Txid, int]]] = {}
        self.synchronous = SynchronousFold()
        self.effects: dict[int, list[ObservedEffect]] = {}
        """What takes effect at entries of synchronous transactions and decisions, by index."""

    def hash_at(self, index: int) -> bytes:
        """Chain hash behind ``index``."""
        return bytes(self.hashes[(index - 1) * HASH_BYTES : index * HASH_BYTES]) if index else self.start

    def copy(self, length: int) -> ObservedBranch:
        """Its first ``length`` entries, to go on with."""
        other = ObservedBranch(b"", self._retention)
        other.start = self.start
        other.entries = [entry._replace(counts_instead=None) for entry in self.entries[:length]]
        other.hashes = self.hashes[: length * HASH_BYTES]
        for entry in other.entries:
            other.in_log[entry.txid.origin] = entry.txid.seq
        other.settle(min(self.settled, length))
        return other

    def truncated_copy(self, length: int) -> ObservedBranch:
        """The same branch, as if it had never been longer."""
        other = self.copy(length)
        other.base, other.moved = min(self.base, length), self.moved
        return other

    def settle(self, index: int) -> None:
        """The first effect with a key counts, decided along the stable log: against all that counted before."""
        for at in range(self.settled, index):
            entry = self.entries[at]
            if entry.kind in SYNCHRONOUS_AND_DECISION:
                self._settle_synchronous(at + 1, entry)
            elif entry.kind not in CONTROL_KINDS and entry.key:
                self.entries[at] = entry._replace(counts_instead=self._use(entry.key, entry.txid, entry.age_stamp))
        self.settled = max(self.settled, index)

    def _settle_synchronous(self, index: int, entry: ObservedEntry) -> None:
        found: list[ObservedEffect] = []
        for one in self.synchronous.step(ObservedSynchronous(entry.txid, entry.key, entry.age_stamp), entry.kind):
            found.append(ObservedEffect(one.txid, self._use(one.key, one.txid, one.age) if one.key else None))
        if found:
            self.effects[index] = found

    def _use(self, key: str, txid: Txid, age: int) -> Txid | None:
        """The transaction that counts instead; None when this one does."""
        uses = self._uses_of_key.setdefault(key, [])
        near = [first for first, before in uses if abs(age - before) <= self._retention]
        if not near:
            uses.append((txid, age))
        return near[0] if near else None


class LogChecker:
    """``branches``: by the number of their view."""

    def __init__(self, findings: ViolationLog, transactions: TransactionChecker, key_retention_ms: int) -> None:
        self.findings = findings
        self.transactions = transactions
        self.branches: dict[Number, ObservedBranch] = {}
        self._retention = key_retention_ms << LOGICAL_BITS
        self._stamps: dict[str, dict[Txid, int]] = {}

    @property
    def longest(self) -> list[ObservedEntry]:
        """Of the highest view."""
        return self.branches[max(self.branches)].entries if self.branches else []

    def branch_of(self, mirror: DurableState) -> ObservedBranch:
        """The log of the view that a master has accepted."""
        view = mirror.accepted
        assert view is not None
        found = self.branches.get(view.number)
        if found is None:
            found = self.branches[view.number] = ObservedBranch(view.cluster_id, self._retention)
        return found

    def forget_all_but(self, known: set[Number]) -> None:
        """A disk is lost, and with it the views that nobody else has accepted or grown from."""
        self.branches = {number: branch for number, branch in self.branches.items() if number in known}

    def forget_after(self, longest: dict[Number, int]) -> None:
        """A master goes on with an older log: what stood behind these entries of a view stands nowhere any more."""
        for number, branch in self.branches.items():
            if longest.get(number, 0) < len(branch.entries):
                self.branches[number] = branch.truncated_copy(longest.get(number, 0))

    # What a master has made durable

    def on_persisted(self, node: str, record: TransactionsPersisted) -> None:
        """With these stamps it holds them."""
        mine, run = self._stamps.setdefault(node, {}), record.run
        for at, item in enumerate(run.items):
            mine[Txid(run.origin, run.first_seq + at)] = item.stamp

    def stamp_of(self, node: str, txid: Txid) -> int:
        """That this transaction has at this master."""
        return self._stamps.get(node, {}).get(txid, 0)

    def on_repaired(self, node: str, txid: Txid, stamp: int) -> None:
        """It was damaged there, and came back with this stamp."""
        self._stamps.setdefault(node, {})[txid] = stamp

    def _restamp(self, node: str, stamped: list[ReassignedStamps]) -> None:
        mine = self._stamps.setdefault(node, {})
        for several in stamped:
            for at, stamp in enumerate(several.stamps):
                mine[Txid(Origin(several.node, several.birth), several.first_seq + at)] = stamp

    def on_view_accepted(self, node: str, record: ViewAccepted, mirror: DurableState, ancestors: list[Number]) -> None:
        """A master has accepted a view; ``mirror`` is what was durable just before, ``ancestors`` all views that it
        descends from. Its base is the same everywhere, and what was stable at this master stands in it as it stood."""
        view = record.view
        self._restamp(node, record.reassigned)
        if not view.ancestors:
            return
        if record.cut > mirror.log_length:
            self.findings.add(LOG, "21", f"{node} cuts its log behind {record.cut}, it is {mirror.log_length} long")
            return
        old = mirror.accepted
        if old is not None and old.cluster_id != view.cluster_id:
            old = None  # a founding that never came about
        before = self.branch_of(mirror) if old is not None else self._branch_without_view(view, mirror)
        if (
            old is not None
            and old.diverged_index != -1
            and record.cut < old.final_index(mirror.stable, mirror.installed)
        ):
            self.findings.add(LOG, "21", f"{node} cuts at {record.cut}, all share {old.diverged_index}")
        mine = before.copy(record.cut)
        mine.base = view.base_index
        self._extend(node, mine, record.cut + 1, record.spans, record.hashes, mirror)
        if len(mine.entries) != view.base_index or mine.hash_at(view.base_index) != view.base_hash:
            self.findings.add(LOG, "25", f"{node} accepts {view.number} with another base than it names")
        known = self.branches.get(view.number)
        if known is None:
            self.branches[view.number] = mine
            self._check_kept(node, view, mine, ancestors)
        elif known.base != mine.base or known.hashes[: len(mine.hashes)] != mine.hashes:
            self.findings.add(LOG, "25", f"{node} accepts {view.number} with another base than others")

        moved = self.branches[view.number].moved
        if old is not None and old.number in ancestors and old.number not in moved and record.cut < mirror.stable:
            self.findings.add(LOG, "21", f"{node} cuts at {record.cut}, stable was {mirror.stable}")

    def _branch_without_view(self, view: View, mirror: DurableState) -> ObservedBranch:
        """The log of a master that had none, or none but a snapshot."""
        if not mirror.log_start:
            return ObservedBranch(view.cluster_id, self._retention)
        branches = self.branches.values()
        return next(
            b
            for b in branches
            if len(b.entries) >= mirror.log_start and b.hash_at(mirror.log_start) == mirror.log_start_hash
        )

    def _check_kept(self, node: str, view: View, mine: ObservedBranch, ancestors: list[Number]) -> None:
        """What was stable in a view stands at its place in every view that has grown from it (invariant 6), and is
        stable there."""
        parent = self.branches.get(ancestors[-1])
        mine.moved = set(parent.moved) if parent is not None else set()
        if parent is not None and view.merged:
            mine.moved |= set(ancestors)  # a merge moves what the branches do not share
        for number in ancestors:
            grown = self.branches.get(number)
            if grown is None or number in mine.moved:
                continue
            if not _extends(grown, mine):
                text = f"{node} accepts {view.number}: of {grown.settled} entries that were stable in {number}"
                self.findings.add(LOG, "6", f"{text} not all are at their place")
            else:
                mine.settle(grown.settled)  # also what its first acceptor had not heard of

    def on_appended(self, node: str, record: LogAppended, mirror: DurableState) -> None:
        """A piece of a master's log has become durable there. ``mirror`` is what was durable just before it."""
        if record.first_index != mirror.log_length + 1:
            self.findings.add(LOG, "13", f"{node} adds index {record.first_index} behind {mirror.log_length}")
            return
        branch = self.branch_of(mirror)
        at = (record.first_index - 1) * HASH_BYTES
        known = min(len(branch.hashes) - at, len(record.hashes))
        if known > 0 and branch.hashes[at : at + known] != record.hashes[:known]:
            self.findings.add(LOG, "14", f"fork: {self._first_difference(node, branch, record)}")
            return
        self._check_payloads(node, record.spans, mirror)
        if known < len(record.hashes):
            self._extend(node, branch, record.first_index, record.spans, record.hashes, mirror)

    def _first_difference(self, node: str, branch: ObservedBranch, record: LogAppended) -> str:
        index = record.first_index
        for span in record.spans:
            for seq in range(span.first_seq, span.first_seq + span.count):
                mine = record.hashes[(index - record.first_index) * HASH_BYTES :][:HASH_BYTES]
                if branch.hash_at(index) != mine:
                    theirs = branch.entries[index - 1].txid
                    return f"index {index} is {span.node}.{span.birth:016x}.{seq} at {node} and {theirs} elsewhere"
                index += 1
        return f"behind {record.first_index} at {node}"

    def _check_payloads(self, node: str, spans: list[Span], mirror: DurableState) -> None:
        for span in spans:
            last = span.first_seq + span.count - 1
            held = mirror.held_seqs.get(Origin(span.node, span.birth), 0)
            if held < last:
                self.findings.add(LOG, "12", f"{node} has {span} in its log and holds its origin up to {held} only")

    def _extend(
        self,
        node: str,
        branch: ObservedBranch,
        first_index: int,
        spans: list[Span],
        hashes: bytes,
        mirror: DurableState,
    ) -> None:
        self._check_payloads(node, spans, mirror)
        value = branch.hash_at(len(branch.entries))
        index = first_index - 1
        for span in spans:
            origin = Origin(span.node, span.birth)
            tag = origin_tag(origin)
            for seq in range(span.first_seq, span.first_seq + span.count):
                index += 1
                if index <= len(branch.entries):
                    continue
                rows = self.transactions.by_origin.get(origin, [])
                if seq > len(rows):
                    self.findings.add(LOG, "8", f"{node} has {origin}.{seq} at {index}, which is durable nowhere else")
                    return
                made, stamp = rows[seq - 1], self.stamp_of(node, Txid(origin, seq))
                value = chain_hash(value, stamp, tag, seq, made.content)
                if value != hashes[(index - first_index) * HASH_BYTES :][:HASH_BYTES]:
                    text = f"{node} has {origin}.{seq} at {index} with another stamp or content than it holds"
                    self.findings.add(LOG, "3", text)
                    return
                age = made.first_stamp or stamp
                entry = ObservedEntry(Txid(origin, seq), stamp, made.content, made.key, made.kind, age)
                self._append(node, branch, entry)
                branch.hashes += value

    def _append(self, node: str, branch: ObservedBranch, entry: ObservedEntry) -> None:
        txid, index = entry.txid, len(branch.entries) + 1
        last = branch.entries[-1] if branch.entries else None
        if last is not None and (entry.stamp, txid) <= (last.stamp, last.txid):
            text = f"{node} adds {txid} stamp {entry.stamp} at {index} behind {last.txid} stamp {last.stamp}"
            self.findings.add(LOG, "13", text)
        if txid.seq != branch.in_log.get(txid.origin, 0) + 1:
            self.findings.add(LOG, "13", f"{node} adds {txid} behind seq {branch.in_log.get(txid.origin, 0)}")
        branch.in_log[txid.origin] = txid.seq
        branch.entries.append(entry)

    # What a master says

    def on_first_appended(
        self, node: str, record: LogAppended, present: set[Origin], mirrors: dict[Origin, DurableState]
    ) -> None:
        """A master adds entries that stand in no log yet: every member that it counts as present holds them."""
        mine = next((mirror for origin, mirror in mirrors.items() if origin.node == node), None)
        if mine is None or mine.accepted is None:
            return  # its disk is not what it was
        branch = self.branch_of(mine)
        index = record.first_index - 1
        for span in record.spans:
            index += span.count
            if index <= len(branch.entries):
                continue
            last = span.first_seq + span.count - 1
            for member in sorted(present & set(mirrors)):
                if mirrors[member].held_seqs.get(Origin(span.node, span.birth), 0) < last:
                    self.findings.add(
                        LOG, "12", f"{node} adds {span} at {index}, {member.node} is present and does not hold it"
                    )

    def on_stable(self, node: str, stable: int, mirror: DurableState, mirrors: dict[Origin, DurableState]) -> None:
        """A master calls its log stable up to here: every member of its view holds that durably, and it never was
        another one (invariants 6, 8). ``mirror`` is this master's, after the record that says so."""
        branch = self.branch_of(mirror)
        if stable > len(branch.entries):
            text = f"{node} calls {stable} stable, no log of its view is longer than {len(branch.entries)}"
            self.findings.add(LOG, "33", text)
            return
        assert mirror.accepted is not None
        members = {m.origin for m in mirror.accepted.members}
        for index in range(branch.settled + 1, stable + 1):
            entry = branch.entries[index - 1]
            for member in sorted(members & set(mirrors)):
                if mirrors[member].held_seqs.get(entry.txid.origin, 0) < entry.txid.seq:
                    self.findings.add(
                        LOG, "33", f"{node} calls {index} ({entry.txid}) stable, it is not durable at {member.node}"
                    )
        branch.settle(stable)


def _extends(one: ObservedBranch, other: ObservedBranch) -> bool:
    """What was stable in the one stands at its place in the other."""
    return one.settled <= len(other.entries) and other.hash_at(one.settled) == one.hash_at(one.settled)
