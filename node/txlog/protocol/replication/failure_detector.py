"""The peers that this master receives from, and the peers that those receive from. Guesses: safety never depends on
them (rule 14)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

SILENCES_MAX: Final = 512
"""Silences that are kept of one node. More than this merge into the oldest one, without a change of their sum."""
_NEVER_MS: Final = -(1 << 60)


class FailureDetector:
    """Records when each peer was last seen, in ``mono`` milliseconds. ``since_ms`` is when this process began to
    receive."""

    def __init__(self, node: str, round_timeout_ms: int, since_ms: int) -> None:
        self.node = node
        self.now_ms = since_ms
        self.since_ms = since_ms
        self._timeout_ms = round_timeout_ms
        self._heard_ms: dict[str, int] = {}
        self._reply_ms: dict[str, int] = {}
        self._peers_heard: dict[str, list[str]] = {}
        self._peers_heard_ms: dict[str, int] = {}
        """When the peer reported it, as far as known here."""
        self._reachable_ms: dict[str, int] = {}
        self._silent_since: dict[str, int] = {}
        """When the present silence of a node began, about: one round time-out before the node counted as silent."""
        self._silences: dict[str, deque[tuple[int, int]]] = {}
        """The silences of each node that are over, as begin and end."""
        self._sampled_ms = since_ms

    def set_round_timeout(self, round_timeout_ms: int) -> None:
        """Replace the round time-out, in milliseconds."""
        self._timeout_ms = round_timeout_ms

    def tick(self, mono_ms: int) -> None:
        """Advance the time. A process that was paused has received nothing meanwhile, which proves no peer silent."""
        if mono_ms <= self.now_ms:
            return
        if mono_ms - self.now_ms > self._timeout_ms:
            self.since_ms = mono_ms
        self.now_ms = mono_ms
        if mono_ms - self._sampled_ms >= self._timeout_ms // 8:
            self._sampled_ms = mono_ms
            self._sample_reachable()

    def _sample_reachable(self) -> None:
        reachable = self.reachable()
        for node in self._reachable_ms:
            if node not in reachable:
                self._silent_since.setdefault(node, self._reachable_ms[node] - self._timeout_ms)
        for node in reachable:
            self._reachable_ms[node] = self.now_ms
            began_ms = self._silent_since.pop(node, None)
            if began_ms is not None:
                self._record_silence(node, began_ms)

    def _record_silence(self, node: str, began_ms: int) -> None:
        past = self._silences.setdefault(node, deque())
        past.append((began_ms, self.now_ms))
        if len(past) > SILENCES_MAX:
            (first_ms, end_ms), (next_ms, next_end_ms) = past.popleft(), past.popleft()
            past.appendleft((next_ms - (end_ms - first_ms), next_end_ms))

    def on_message(self, node: str) -> None:
        """A message of any kind arrived from the node."""
        self._heard_ms[node] = self.now_ms

    def on_reply(self, node: str) -> None:
        """The node has received from this master."""
        self._reply_ms[node] = self.now_ms

    def on_direct_peers(self, node: str, others: list[str]) -> None:
        """The node reports the peers that it receives from directly."""
        self._set_peers_heard_by(node, others)
        if self.node in others:
            self.on_reply(node)

    def _set_peers_heard_by(self, node: str, others: list[str]) -> None:
        self._peers_heard[node] = others
        self._peers_heard_ms[node] = self.now_ms

    def peers_heard_by(self, node: str) -> list[str] | None:
        """The peers that the node receives from, as last reported; None before any report."""
        return self._peers_heard.get(node)

    def on_reachable_peers(self, node: str, others: list[str]) -> None:
        """The node's post reports the peers that it receives from, directly or through others. It proves nothing about
        the link between the node and this master."""
        self._set_peers_heard_by(node, others)

    def on_relayed_connectivity(self, reports: list[tuple[str, list[str]]], ages_ms: Sequence[int] = ()) -> None:
        """A peer relays which peers others receive from, with the age of each report. A report is ignored for nodes
        that this master receives from itself, and where a later report is known."""
        for at, (node, others) in enumerate(reports):
            said_ms = self.now_ms - (max(0, ages_ms[at]) if at < len(ages_ms) else 0)
            if node != self.node and not self.is_alive(node) and said_ms >= self._peers_heard_ms.get(node, _NEVER_MS):
                self._peers_heard[node], self._peers_heard_ms[node] = others, said_ms

    def known_connectivity(self) -> list[tuple[str, list[str], int]]:
        """For each node the peers that it receives from, and the age of that report in milliseconds. It covers the
        nodes that this master receives from and, while they are recent enough, the relayed ones. So both ends of any
        chain know each other. A report ages with each hop, so that it does not circulate for ever."""
        near, step_ms = self.live_peers(), self._timeout_ms // 16
        found = [(node, self._peers_heard[node], 0) for node in near if node in self._peers_heard]
        for node in sorted(self._peers_heard):
            age_ms = self.now_ms - self._peers_heard_ms[node] + step_ms
            if node not in near and age_ms <= self._timeout_ms:
                found.append((node, self._peers_heard[node], age_ms))
        return found

    def is_alive(self, node: str) -> bool:
        """Whether a message of the node arrived within the round time-out."""
        return self.now_ms - self._heard_ms.get(node, _NEVER_MS) <= self._timeout_ms

    def is_bidirectional(self, node: str) -> bool:
        """Whether the node is alive and has received from this master within the round time-out."""
        return self.is_alive(node) and self.now_ms - self._reply_ms.get(node, _NEVER_MS) <= self._timeout_ms

    def live_peers(self) -> list[str]:
        """The nodes that are alive, sorted."""
        return sorted(node for node in self._heard_ms if self.is_alive(node))

    def reachable(self) -> set[str]:
        """The nodes that are reachable in both directions, directly or through others that report their peers. A node
        that only others receive from must itself receive from one of these, as far as known. A master that receives
        nothing but sends to all is not reachable."""
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
        """Whether the node receives from any of these. A node whose report is missing or old counts as receiving: two
        hops away its reports are not relayed."""
        others = self._peers_heard.get(node)
        old = self.now_ms - self._peers_heard_ms.get(node, _NEVER_MS) > self._timeout_ms
        return others is None or old or any(other in nodes for other in others)

    def on_view_accepted(self, nodes: list[str]) -> None:
        """These nodes have reported to the view change that is accepted now: their silence is over."""
        for node in nodes:
            self._reachable_ms[node] = self.now_ms
            self._silent_since.pop(node, None)
            self._silences.pop(node, None)

    def silent_ms(self, node: str) -> int:
        """For how many milliseconds the node has not been reachable, directly or through others."""
        return self.now_ms - max(self._reachable_ms.get(node, self.since_ms), self.since_ms)

    def is_silent(self, node: str) -> bool:
        """Whether the node was reachable once and is not at the last look."""
        return node in self._silent_since

    def silent_ms_within(self, node: str, window_ms: int) -> int:
        """For how many of the last ``window_ms`` milliseconds the node was silent, in one silence or several. Each one
        was longer than the round time-out. A node that was never reachable has none here."""
        from_ms = max(self.now_ms - window_ms, self.since_ms)
        silences = list(self._silences.get(node, ()))
        if node in self._silent_since:
            silences.append((self._silent_since[node], self.now_ms))
        return sum(max(0, end_ms - max(began_ms, from_ms)) for began_ms, end_ms in silences)
