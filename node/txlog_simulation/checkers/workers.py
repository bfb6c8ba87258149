"""What workers executed is the log up to their position, in order, each once (invariants 3, 5, 6)."""

from __future__ import annotations

from txlog.model.entry import CONTROL_KINDS, RunItem
from txlog.model.hashes import content_hash
from txlog.model.ids import Origin, Txid
from txlog.protocol.log.log_index import LogIndex
from txlog_simulation.checkers.log import ObservedBranch
from txlog_simulation.checkers.synchronous import ObservedEffect
from txlog_simulation.violation import WORKER, ViolationLog


class SimulatedWorker:
    """A model of an RDF store: it remembers its position and survives its master's crashes."""

    def __init__(self, name: str, findings: ViolationLog) -> None:
        self.name = name
        self.findings = findings
        self.index = 0
        self.hash = b""
        self.effects: dict[Txid, int] = {}
        self.left_positions: list[tuple[int, bytes]] = []
        """Where it stood on orders that were abandoned, and did not go back (``None``)."""
        self.seen: set[Txid] = set()
        self.keys: dict[str, Txid] = {}
        self.cluster = self.refused_by = b""
        """Whose log it has executed, as its marker says (empty in an empty store), and which cluster refused it."""
        self.past_stable = False
        """A view of the strategy ``None`` offered it more than is stable, and it stands above what is stable still."""
        self.births: set[int] = set()
        """Of its master's disks whose log it has executed."""
        self.backups: list[tuple[int, bytes, dict[Txid, int]]] = [(0, b"", {})]

    def back_up(self) -> tuple[int, bytes]:
        """A verified backup at exactly this position."""
        self.backups.append((self.index, self.hash, dict(self.effects)))
        return self.index, self.hash

    def newest_backup_up_to(self, stable: int, history: LogIndex) -> tuple[int, bytes] | None:
        """The newest verified backup that stands on this log, up to there."""
        found = [
            (at, value)
            for at, value, _ in self.backups[1:]
            if at <= stable and self._is_position_on(at, value, history)
        ]
        return max(found, default=None)

    def follow(self, cluster: bytes) -> None:
        """The log of this cluster is executed from here on; no store ever mixes two."""
        if self.cluster not in (b"", cluster):
            self._report("30", f"holds {self.cluster.hex()[:8]} up to {self.index}, executes {cluster.hex()[:8]}")
        self.cluster = cluster

    def discard(self) -> None:
        """A person lets this content go, and with it what it was refused for."""
        self.index, self.hash, self.cluster, self.refused_by = 0, b"", b"", b""
        self.effects, self.left_positions, self.seen, self.keys = {}, [], set(), {}

    def restore_backup(self, history: LogIndex, cluster: bytes) -> None:
        """To the newest backup that stands on the log of its master, which is of ``cluster``. A store of another
        cluster is never emptied by itself."""
        if self.cluster not in (b"", cluster):
            self._report("30", f"holds {self.cluster.hex()[:8]} up to {self.index}, is emptied for {cluster.hex()[:8]}")
        on_chain = [b for b in self.backups if self._is_position_on(b[0], b[1], history)]
        self.index, self.hash, effects = max(on_chain, key=lambda b: b[0])
        self.effects = dict(effects)
        self.left_positions, self.seen, self.keys = [], set(effects), {}
        self.past_stable = False
        self.cluster = cluster if self.index else b""

    def skip_ahead(self, at: int, value: bytes) -> None:
        """Set on the log as it is; what it has executed besides, its masters know from where it stood."""
        self.left_positions.append((self.index, self.hash))
        self.index, self.hash = at, value

    def is_on(self, history: LogIndex) -> bool:
        """Whether its position is on this log (protocol section 4)."""
        return not self.index or self.index < history.start or self._is_position_on(self.index, self.hash, history)

    @staticmethod
    def _is_position_on(index: int, value: bytes, history: LogIndex) -> bool:
        return not index or (history.has_hash_at(index) and history.hash_at(index) == value)

    def execute(
        self,
        branch: ObservedBranch,
        origin: Origin,
        seq: int,
        item: RunItem,
        noop: Txid | None,
        value: bytes,
        *,
        to_end: bool = False,
        passes: bool = False,
    ) -> None:
        """One entry, as its master serves it from the log of its view. ``to_end``: not only what is stable;
        ``passes``: it was executed before, or one of its key was."""
        self.index += 1
        self.hash = value
        if self.index > (len(branch.entries) if to_end else branch.settled):
            self._report("15", f"executes {self.index}, no {'log' if to_end else 'stable log'} has that")
            return
        entry = branch.entries[self.index - 1]
        if entry.txid != Txid(origin, seq) or branch.hash_at(self.index) != value:
            self._report("14", f"executes {origin}.{seq} at {self.index}, the log has {entry.txid}")
        if content_hash(item.kind, item.key, item.payload) != entry.content:
            self._report("8", f"executes {entry.txid} with another payload than was accepted")
        if self.index <= branch.settled and noop != entry.counts_instead:
            self._report("16", f"executes {entry.txid} with {noop} instead, by the log it is {entry.counts_instead}")
        if passes:
            if (
                noop is None
                and item.kind not in CONTROL_KINDS
                and entry.txid not in self.seen
                and item.key not in self.keys
            ):
                self._report("16", f"passes over {entry.txid}, which it never executed")
            self.seen.add(entry.txid)
            return
        self.seen.add(entry.txid)
        if noop is None and item.key and item.kind not in CONTROL_KINDS:
            first = self.keys.setdefault(item.key, entry.txid)
            if self.left_positions and first != entry.txid and branch.keeps_keys:
                self._report("16", f"executes {entry.txid}, and {first} of the same key before")
        if noop is None:
            self.effects[entry.txid] = self.effects.get(entry.txid, 0) + 1
            if self.effects[entry.txid] > 1:
                self._report("16", f"executes {entry.txid} twice")

    def execute_synchronous(
        self, branch: ObservedBranch, txid: Txid, served: list[ObservedEffect], value: bytes
    ) -> list[Txid]:
        """A synchronous transaction or a decision, and what its master says takes effect there. Returns what it
        executes."""
        self.index += 1
        self.hash = value
        if self.index > branch.settled:
            self._report("15", f"executes {self.index}, no stable log has that")
            return []
        entry = branch.entries[self.index - 1]
        if entry.txid != txid or branch.hash_at(self.index) != value:
            self._report("14", f"executes {txid} at {self.index}, the log has {entry.txid}")
        if served != branch.effects.get(self.index, []):
            self._report("S7", f"executes {served} at {self.index}, by the log it is {branch.effects.get(self.index)}")
        self.seen.add(txid)
        found = [effect.txid for effect in served if effect.counts_instead is None]
        for one in found:
            self.effects[one] = self.effects.get(one, 0) + 1
            if self.effects[one] > 1:
                self._report("S7", f"executes {one} twice")
        return found

    def _report(self, rule: str, text: str) -> None:
        self.findings.add(WORKER, rule, f"worker of {self.name} {text}")
