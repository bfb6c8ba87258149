"""What clients submitted and what they were told: the truth that logs, journals and workers are held against."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from txlog.model.hashes import HASH_BYTES
from txlog.model.ids import Origin, Txid
from txlog.model.records import ReassignedStamps, TransactionsPersisted
from txlog.model.synchronous_entry import KIND_DECISION
from txlog.protocol.events import Submission
from txlog_simulation.violation import LOG, PROMISE, ViolationLog


class OriginTransaction(NamedTuple):
    """A transaction as its origin made it durable."""

    stamp: int
    content: bytes
    key: str
    kind: int
    first_stamp: int


class TransactionChecker:
    """``by_origin``: per origin, index ``seq - 1``. ``submitted``: content hashes per node that clients brought.
    ``lost``: origins whose disk is not what it was."""

    def __init__(self, findings: ViolationLog) -> None:
        self.findings = findings
        self.by_origin: dict[Origin, list[OriginTransaction]] = {}
        self.submitted: dict[str, set[bytes]] = {}
        self.accepted: dict[Origin, int] = {}
        self.accepted_count = 0
        self.lost: set[Origin] = set()
        self.on_own: Callable[[Txid, str, int, bytes], None] | None = None
        """Told of each transaction that its origin has made durable."""

    def is_decision(self, origin: Origin, seq: int) -> bool:
        """Whether its origin has made a decision durable under this name."""
        rows = self.by_origin.get(origin, [])
        return seq <= len(rows) and rows[seq - 1].kind == KIND_DECISION

    def on_submitted(self, node: str, batch: list[Submission]) -> None:
        """A client brought this to a master."""
        self.submitted.setdefault(node, set()).update([one.content for one in batch])

    def on_persisted(self, node: str, record: TransactionsPersisted) -> None:
        """These transactions have become durable at a master."""
        run = record.run
        own = run.node == node and run.origin not in self.lost  # else an earlier birth of it, heard of from others
        rows = self.by_origin.setdefault(run.origin, [])
        for at, item in enumerate(run.items):
            content = record.contents[at * HASH_BYTES : (at + 1) * HASH_BYTES]
            seq = run.first_seq + at
            made = OriginTransaction(item.stamp, content, item.key, item.kind, item.first_stamp)
            if seq <= len(rows):
                if rows[seq - 1].content != content and run.node == node and run.origin in self.lost:
                    del rows[seq - 1 :]  # an old image of its disk, of which nobody who answers could tell
                    rows.append(made)
                elif rows[seq - 1].content != content:
                    self.findings.add(LOG, "3", f"{run.origin}.{seq} has another content at {node} than at its origin")
                elif rows[seq - 1].first_stamp != item.first_stamp:
                    self.findings.add(LOG, "16", f"{run.origin}.{seq} has another age at {node} than at its origin")
            elif not own and run.origin in self.lost and seq == len(rows) + 1:
                rows.append(made)  # it was on the way when its origin's disk was lost
            elif not own:
                self.findings.add(
                    PROMISE, "8", f"{node} holds {run.origin}.{seq}, which is not durable at its origin (yet)"
                )
            elif seq != len(rows) + 1:
                self.findings.add(PROMISE, "3", f"{run.origin} makes seq {seq} behind seq {len(rows)}")
            else:
                rows.append(made)
                if self.on_own is not None:
                    self.on_own(Txid(run.origin, seq), item.key, item.kind, content)
                if content not in self.submitted.get(node, ()):
                    self.findings.add(LOG, "3", f"{run.origin}.{seq} was never submitted there")

    def on_restamped(self, origin: Origin, stamped: list[ReassignedStamps]) -> None:
        """Its own transactions have other stamps from now on."""
        rows = self.by_origin.get(origin, [])
        for several in stamped:
            if Origin(several.node, several.birth) == origin:
                for at, stamp in enumerate(several.stamps, several.first_seq - 1):
                    if at < len(rows):
                        rows[at] = rows[at]._replace(stamp=stamp)

    def on_accepted(self, origin: Origin, seq: int) -> None:
        """The clients of this origin were told that everything up to ``seq`` is accepted."""
        before = self.accepted.get(origin, 0)
        if seq > before:
            self.accepted[origin] = seq
            self.accepted_count += seq - before
