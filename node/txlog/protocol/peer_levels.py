"""Which version's abilities the other masters have: what an older one would lose is used only when none is older."""

from __future__ import annotations

from collections.abc import Collection, Iterable


class PeerLevels:
    """The level that each other master said last, in its hello or its reply to one."""

    def __init__(self) -> None:
        self._levels: dict[str, int] = {}

    def on_level(self, node: str, level: int) -> None:
        """A message that the node itself sent says its level; 0: its version says none."""
        self._levels[node] = level

    def are_all(self, level: int, others: Iterable[str], proven: Collection[str]) -> bool:
        """Whether all these masters have at least this level. ``proven``: those that had it, as the log or a view
        proves. They have it still unless a hello since this start says otherwise."""
        return all(self._levels.get(node, level if node in proven else 0) >= level for node in others)

    def older(self, level: int, others: Iterable[str]) -> list[str]:
        """The masters that are known to have less than this level."""
        return [node for node in others if self._levels.get(node, level) < level]

    def undecided(self, level: int, others: list[str]) -> list[str]:
        """The masters that sent no hello since this start, where only they leave open whether all have this level.
        Empty when one is known to be older: waiting for the rest would change nothing."""
        if any(self._levels.get(node, level) < level for node in others):
            return []
        return [node for node in others if node not in self._levels]
