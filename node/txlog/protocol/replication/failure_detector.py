"""Whom this master hears, and whom they hear. Guesses: safety never depends on them (rule 14)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_NEVER_MS: Final = -(1 << 60)


class FailureDetector:
    """``mono`` milliseconds of what was heard last; ``since_ms`` is when this process began to listen."""

    def __init__(self, node: str, round_timeout_ms: int, since_ms: int) -> None:
        self.node = node
        self.now_ms = since_ms
        self.since_ms = since_ms
        self._timeout_ms = round_timeout_ms
        self._heard_ms: dict[str, int] = {}
        self._reply_ms: dict[str, int] = {}
        self._peers_heard: dict[str, list[str]] = {}
        self._peers_heard_ms: dict[str, int] = {}
        """When it said so, as far as known here."""
        self._reachable_ms: dict[str, int] = {}
        self._sampled_ms = since_ms

    def set_round_timeout(self, round_timeout_ms: int) -> None:
        """Another round time-out from now on."""
        self._timeout_ms = round_timeout_ms

    def tick(self, mono_ms: int) -> None:
        """Time has passed. A process that stood still has heard nobody, which says nothing of the others."""
        if mono_ms <= self.now_ms:
            return
        if mono_ms - self.now_ms > self._timeout_ms:
            self.since_ms = mono_ms
        self.now_ms = mono_ms
        if mono_ms - self._sampled_ms >= self._timeout_ms // 8:
            self._sampled_ms = mono_ms
            for node in self.reachable():
                self._reachable_ms[node] = mono_ms

    def on_message(self, node: str) -> None:
        """Any message of it."""
        self._heard_ms[node] = self.now_ms

    def on_reply(self, node: str) -> None:
        """It has heard this master."""
        self._reply_ms[node] = self.now_ms

    def on_direct_peers(self, node: str, others: list[str]) -> None:
        """It says whom it has heard itself."""
        self._set_peers_heard_by(node, others)
        if self.node in others:
            self.on_reply(node)

    def _set_peers_heard_by(self, node: str, others: list[str]) -> None:
        self._peers_heard[node] = others
        self._peers_heard_ms[node] = self.now_ms

    def peers_heard_by(self, node: str) -> list[str] | None:
        """Whom it hears, as it was told last; None before it was."""
        return self._peers_heard.get(node)

    def on_reachable_peers(self, node: str, others: list[str]) -> None:
        """Its post says whom it hears, itself or through others: no word of the link between it and this master."""
        self._set_peers_heard_by(node, others)

    def on_relayed_connectivity(self, told: list[tuple[str, list[str]]], ages_ms: Sequence[int] = ()) -> None:
        """What others say whom they hear, as somebody tells, and how old that is; whom this master hears itself knows
        better, and so does who has heard it later."""
        for at, (node, others) in enumerate(told):
            said_ms = self.now_ms - (max(0, ages_ms[at]) if at < len(ages_ms) else 0)
            if node != self.node and not self.is_alive(node) and said_ms >= self._peers_heard_ms.get(node, _NEVER_MS):
                self._peers_heard[node], self._peers_heard_ms[node] = others, said_ms

    def known_connectivity(self) -> list[tuple[str, list[str], int]]:
        """Whom others say that they hear, and how old that is: of those that this master hears itself, and, as long as
        it is not too old, of those that it was told of, so that both ends of any chain know each other. It ages with
        each step, so that nobody hears its own word again for ever."""
        near, step_ms = self.live_peers(), self._timeout_ms // 16
        found = [(node, self._peers_heard[node], 0) for node in near if node in self._peers_heard]
        for node in sorted(self._peers_heard):
            age_ms = self.now_ms - self._peers_heard_ms[node] + step_ms
            if node not in near and age_ms <= self._timeout_ms:
                found.append((node, self._peers_heard[node], age_ms))
        return found

    def is_alive(self, node: str) -> bool:
        return self.now_ms - self._heard_ms.get(node, _NEVER_MS) <= self._timeout_ms

    def is_bidirectional(self, node: str) -> bool:
        """Heard, and hearing this master, within the round time-out."""
        return self.is_alive(node) and self.now_ms - self._reply_ms.get(node, _NEVER_MS) <= self._timeout_ms

    def live_peers(self) -> list[str]:
        return sorted(node for node in self._heard_ms if self.is_alive(node))

    def reachable(self) -> set[str]:
        """Both ways, directly or through others that say whom they hear. Whom only others hear must hear one of these
        in turn, as far as it is known: who is deaf is heard by all, and is not there."""
        found = {self.node, *(node for node in self._heard_ms if self.is_bidirectional(node))}
        heard: set[str] = set()
        edge = [node for node in found if node != self.node]
        while edge:
            for other in self._peers_heard.get(edge.pop(), []):
                if other not in found and other not in heard:
                    heard.add(other)
                    edge.append(other)
        while back := {node for node in heard if self._hears_any_of(node, found)}:
            found |= back
            heard -= back
        return found

    def _hears_any_of(self, node: str, nodes: set[str]) -> bool:
        """Nor is it known to be deaf who has said nothing for a while: two steps away nobody tells what it says."""
        others = self._peers_heard.get(node)
        old = self.now_ms - self._peers_heard_ms.get(node, _NEVER_MS) > self._timeout_ms
        return others is None or old or any(other in nodes for other in others)

    def on_view_accepted(self, nodes: list[str]) -> None:
        """These have reported to the change of views that is accepted now: their silence is over."""
        for node in nodes:
            self._reachable_ms[node] = self.now_ms

    def silent_ms(self, node: str) -> int:
        """How long it has not been reachable, directly or through others."""
        return self.now_ms - max(self._reachable_ms.get(node, self.since_ms), self.since_ms)
