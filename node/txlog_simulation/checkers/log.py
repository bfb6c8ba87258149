"""One log: every master's is a prefix of it, its keys grow, each transaction stands in it once (invariants 1, 3, 4)."""

from __future__ import annotations

from typing import NamedTuple

from txlog.model.entry import KIND_SKIP
from txlog.model.hashes import HASH_BYTES, chain_hash, chain_start, origin_tag
from txlog.model.ids import Origin, Txid
from txlog.model.records import Added
from txlog.model.stamp import LOGICAL_BITS
from txlog_simulation.checkers.transactions import Transactions
from txlog_simulation.mirror import Mirror
from txlog_simulation.violation import LOG, Findings


class Entry(NamedTuple):
    """An index of the agreed order. ``counts_instead``: the first transaction with the same idempotency key."""

    txid: Txid
    content: bytes
    counts_instead: Txid | None


class Log:
    """``entries`` is the longest log that was durable anywhere; ``hashes`` its chain hashes, end to end."""

    def __init__(self, findings: Findings, transactions: Transactions, key_retention_ms: int) -> None:
        self.findings = findings
        self.transactions = transactions
        self.entries: list[Entry] = []
        self.hashes = bytearray()
        self.index_of: dict[Txid, int] = {}
        self.skips: dict[str, int] = {}
        self.stable = 0
        self._retention = key_retention_ms << LOGICAL_BITS
        self._last_key: tuple[int, Origin, int] = (0, Origin("", 0), 0)
        self._in_log: dict[Origin, int] = {}
        self._first_of_key: dict[str, tuple[Txid, int]] = {}

    def hash_at(self, index: int, cluster_id: bytes) -> bytes:
        """Chain hash behind ``index``."""
        if index == 0:
            return chain_start(cluster_id)
        return bytes(self.hashes[(index - 1) * HASH_BYTES : index * HASH_BYTES])

    def added(self, node: str, record: Added, mirror: Mirror) -> None:
        """A piece of a master's log has become durable there. ``mirror`` is what was durable just before it."""
        if record.first_index != mirror.log + 1:
            self.findings.add(LOG, "13", f"{node} adds index {record.first_index} behind {mirror.log}")
            return
        at = (record.first_index - 1) * HASH_BYTES
        known = min(len(self.hashes) - at, len(record.hashes))
        if known > 0 and self.hashes[at : at + known] != record.hashes[:known]:
            self.findings.add(LOG, "14", f"fork: {self._first_difference(node, record, at)}")
            return
        self._check_payloads(node, record, mirror)
        if known < len(record.hashes):
            self._extend(node, record, mirror)

    def _first_difference(self, node: str, record: Added, at: int) -> str:
        index = record.first_index
        for span in record.spans:
            for seq in range(span.first_seq, span.first_seq + span.count):
                mine = record.hashes[(index - record.first_index) * HASH_BYTES :][:HASH_BYTES]
                if self.hashes[(index - 1) * HASH_BYTES : index * HASH_BYTES] != mine:
                    theirs = self.entries[index - 1].txid
                    return f"index {index} is {span.node}.{span.birth:016x}.{seq} at {node} and {theirs} elsewhere"
                index += 1
        return f"behind byte {at} at {node}"

    def _check_payloads(self, node: str, record: Added, mirror: Mirror) -> None:
        for span in record.spans:
            last = span.first_seq + span.count - 1
            held = mirror.held.get(Origin(span.node, span.birth), 0)
            if held < last:
                self.findings.add(LOG, "12", f"{node} has {span} in its log and holds its origin up to {held} only")

    def _extend(self, node: str, record: Added, mirror: Mirror) -> None:
        assert mirror.accepted is not None
        value = self.hash_at(len(self.entries), mirror.accepted.cluster_id)
        index = record.first_index - 1
        for span in record.spans:
            origin = Origin(span.node, span.birth)
            tag = origin_tag(origin)
            for seq in range(span.first_seq, span.first_seq + span.count):
                index += 1
                if index <= len(self.entries):
                    continue
                rows = self.transactions.made.get(origin, [])
                if seq > len(rows):
                    self.findings.add(LOG, "8", f"{node} has {origin}.{seq} at {index}, which is durable nowhere else")
                    return
                made = rows[seq - 1]
                value = chain_hash(value, made.stamp, tag, seq, made.content)
                if value != record.hashes[(index - record.first_index) * HASH_BYTES :][:HASH_BYTES]:
                    text = f"{node} has {origin}.{seq} at {index} with another stamp or content than its origin made"
                    self.findings.add(LOG, "3", text)
                    return
                self._append(node, origin, seq, made.stamp, made.content, made.key, made.kind)
                self.hashes += value

    def _append(self, node: str, origin: Origin, seq: int, stamp: int, content: bytes, key: str, kind: int) -> None:
        txid, index = Txid(origin, seq), len(self.entries) + 1
        if (stamp, origin, seq) <= self._last_key:
            self.findings.add(LOG, "13", f"{node} adds {txid} stamp {stamp} at {index} behind {self._last_key}")
        if seq != self._in_log.get(origin, 0) + 1:
            self.findings.add(LOG, "13", f"{node} adds {txid} behind seq {self._in_log.get(origin, 0)}")
        self._last_key = (stamp, origin, seq)
        self._in_log[origin] = seq
        instead: Txid | None = None
        if kind == KIND_SKIP:
            self.skips.setdefault(key, index)
        elif key:
            first = self._first_of_key.get(key)
            if first is not None and stamp - first[1] <= self._retention:
                instead = first[0]
            else:
                self._first_of_key[key] = (txid, stamp)
        self.entries.append(Entry(txid, self.transactions.made[origin][seq - 1].content, instead))
        self.index_of[txid] = index

    def first_added(self, node: str, record: Added, present: set[Origin], mirrors: dict[Origin, Mirror]) -> None:
        """A master adds entries that stand in no log yet: every member that it counts as present holds them."""
        index = record.first_index - 1
        for span in record.spans:
            index += span.count
            if index <= len(self.entries):
                continue
            last = span.first_seq + span.count - 1
            for member in sorted(present & set(mirrors)):
                if mirrors[member].held.get(Origin(span.node, span.birth), 0) < last:
                    self.findings.add(
                        LOG, "12", f"{node} adds {span} at {index}, {member.node} is present and does not hold it"
                    )

    def settled(self, node: str, stable: int, mirrors: dict[Origin, Mirror]) -> None:
        """A master calls its log stable up to here: every member holds that durably (invariants 6, 8)."""
        if stable > len(self.entries):
            self.findings.add(LOG, "33", f"{node} calls {stable} stable, no log is longer than {len(self.entries)}")
            return
        for index in range(self.stable + 1, stable + 1):
            txid = self.entries[index - 1].txid
            for member, mirror in mirrors.items():
                if mirror.held.get(txid.origin, 0) < txid.seq:
                    self.findings.add(
                        LOG, "33", f"{node} calls {index} ({txid}) stable, it is not durable at {member.node}"
                    )
        self.stable = max(self.stable, stable)
