"""What the system log says of transactions over several repositories: decisions, and what is forgotten.

Only stable entries are applied. The system log works under *Majority*, so none of them ever leaves it.
"""

from __future__ import annotations

from typing import NamedTuple

from txlog.model.crosslog_entry import DecideKey, FinishedKey
from txlog.model.ids import Origin, Txid


class StableDecision(NamedTuple):
    """The decision that counts. ``place``: its index in the system log. ``key_owner``: the transaction that had the
    client's key before, so that this one is aborted."""

    place: int
    commits: bool
    participants: tuple[int, ...]
    key_owner: Txid | None = None


class SystemFold:
    """The state after the stable entries of the system log. ``watermarks``: by origin, the greatest seq that is
    forgotten."""

    def __init__(self) -> None:
        self.decisions: dict[Txid, StableDecision] = {}
        self.watermarks: dict[Origin, int] = {}

    def is_finished(self, gid: Txid) -> bool:
        """Whether a transaction is forgotten. It is never decided again."""
        return gid.seq <= self.watermarks.get(gid.origin, 0)

    def apply_decide(self, log_index: int, key: DecideKey, key_owner: Txid | None = None) -> StableDecision | None:
        """The next DECIDE; the decision, if it is the first one and nothing is forgotten. ``key_owner``: the
        transaction that committed with the client's key before: then a commit is that of the other, and an abort of
        this one."""
        if self.is_finished(key.gid) or key.gid in self.decisions:
            return None
        other = key_owner if key.commits and key_owner != key.gid else None
        found = StableDecision(log_index, key.commits and other is None, key.participants, other)
        self.decisions[key.gid] = found
        return found

    def apply_finished(self, key: FinishedKey) -> list[Txid]:
        """The next FINISHED; the transactions whose decisions are forgotten now."""
        self.watermarks[key.origin] = max(self.watermarks.get(key.origin, 0), key.seq)
        forgotten = [gid for gid in self.decisions if self.is_finished(gid)]
        for gid in forgotten:
            del self.decisions[gid]
        return forgotten
