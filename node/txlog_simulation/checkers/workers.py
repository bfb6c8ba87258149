"""What workers executed is the log up to their position, in order, each once (invariants 3, 5, 6)."""

from __future__ import annotations

from txlog.model.entry import Item
from txlog.model.hashes import HASH_BYTES, content_hash
from txlog.model.ids import Origin, Txid
from txlog_simulation.checkers.log import Log
from txlog_simulation.violation import WORKER, Findings


class Worker:
    """A model of an RDF store: it remembers its position and survives its master's crashes."""

    def __init__(self, name: str, findings: Findings, log: Log) -> None:
        self.name = name
        self.findings = findings
        self.log = log
        self.index = 0
        self.hash = b""
        self.effects: dict[Txid, int] = {}

    def offered(self, told_stable: int, hash_here: bytes | None) -> bool:
        """Its master offers the log up to ``told_stable``; ``hash_here`` is the master's hash at this position,
        None when its log is shorter than that. False when nothing may be executed."""
        if told_stable < self.index and hash_here is None:
            self._wrong("33", f"executed up to {self.index}, its master's log is shorter now")
            return False
        if self.index and hash_here is not None and hash_here != self.hash:
            self._wrong("33", f"executed {self.index} with another hash than its master has there now")
            return False
        return told_stable > self.index

    def execute(self, origin: Origin, seq: int, item: Item, noop: Txid | None, value: bytes) -> None:
        """One entry, as its master serves it."""
        self.index += 1
        self.hash = value
        if self.index > len(self.log.settled):
            self._wrong("15", f"executes {self.index}, no stable log has that")
            return
        entry = self.log.settled[self.index - 1]
        if entry.txid != Txid(origin, seq) or self._hash() != value:
            self._wrong("14", f"executes {origin}.{seq} at {self.index}, the log has {entry.txid}")
        if content_hash(item.kind, item.key, item.payload) != entry.content:
            self._wrong("8", f"executes {entry.txid} with another payload than was accepted")
        if noop != entry.counts_instead:
            self._wrong("16", f"executes {entry.txid} with {noop} instead, by the log it is {entry.counts_instead}")
        if noop is None:
            self.effects[entry.txid] = self.effects.get(entry.txid, 0) + 1
            if self.effects[entry.txid] > 1:
                self._wrong("16", f"executes {entry.txid} twice")

    def _hash(self) -> bytes:
        return bytes(self.log.settled_hashes[(self.index - 1) * HASH_BYTES : self.index * HASH_BYTES])

    def _wrong(self, rule: str, text: str) -> None:
        self.findings.add(WORKER, rule, f"worker of {self.name} {text}")
