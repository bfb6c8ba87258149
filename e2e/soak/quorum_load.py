"""The part of a soak's load that needs a quorum, and the judgement of every answer that its clients got."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from e2e.lib.cluster.supervised import SupervisedCluster
from e2e.lib.history import LogRecord
from e2e.lib.load.synchronous_load import GRAPHS, PLAIN, SynchronousClients, final_states, name_of, read_effects
from e2e.lib.synchronous_history import Told, judge_synchronous
from txlog.client import MasterClient
from txlog.model.entry import KIND_QUADS, KIND_UPDATE

DECIDED_S: Final = 120.0


class QuorumLoad:
    """``clients`` write a graph with a rule, and one without; the soak's other clients write a third graph."""

    def __init__(self, arena: SupervisedCluster, seed: int) -> None:
        self._arena = arena
        self.clients = SynchronousClients(arena.nodes, arena.repository, seed, graphs=(GRAPHS[0], PLAIN))
        self._reported: set[str] = set()

    def judge(self, *, keeps_places: bool, last: bool) -> list[str]:
        """What answers, log and masters do not agree about; each text once. ``keeps_places``: the strategy keeps a
        stable COMMIT where it is. ``last``: also what is pending has an answer now."""
        clients = self.clients
        effects, hashes = read_effects(self._arena.masters[0])
        pending = sorted({one.txid for one in clients.attempts if one.told is Told.PENDING and one.txid})
        final = final_states(self._arena.nodes, pending, DECIDED_S) if last else {}
        judged = judge_synchronous(clients.attempts, effects, hashes, final)
        texts = [text for kind, found in vars(judged).items() if kind != "moved" or keeps_places for text in found]
        executed = Counter(effect.name for effect in effects)
        plain = (one.name for one in clients.plain if one.told is Told.COMMITTED)
        texts += [
            f"{name} was acknowledged, and takes effect {executed[name]} times" for name in plain if executed[name] != 1
        ]
        texts += clients.errors
        if last:
            texts += self._undecided()
        new = [text for text in texts if text not in self._reported]
        self._reported |= set(new)
        return new

    def told(self) -> dict[str, int]:
        """How often clients were told what, and how many of their requests sent a write again."""
        attempts = self.clients.attempts
        found = Counter(one.told.value for one in attempts)
        found["sent again"] = len(attempts) - len({one.name for one in attempts})
        return dict(found)

    def _undecided(self) -> list[str]:
        found = []
        for node, url in self._arena.nodes.items():
            with MasterClient(url, 10.0) as master:
                count = master.synchro()["queue"]["undecided"]
            found += [f"{node} has {count} undecided transactions"] if count else []
        return found


def without_quorum_writes(log: Sequence[LogRecord]) -> list[LogRecord]:
    """The part of a log that the soak's other clients wrote."""
    return [one for one in log if one.kind in (KIND_UPDATE, KIND_QUADS) and not name_of(one.payload)]
