"""Faults of links: resolves names to directions, and builds the table for the link proxies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from txlog.local.local_errors import CannotRun
from txlog.local.state_folder import Topology

DELAY_MS_MAX = 60_000


@dataclass(frozen=True)
class LinkFault:
    """The fault of one direction. A direction without delay and cut is not in the table."""

    delay_ms: float = 0.0
    cut: bool = False


class LinkFaultTable:
    """The faults by direction ``(from, to)``. A name is a master's, or a data centre's for all its masters."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._faults: dict[tuple[str, str], LinkFault] = {}

    def delay(self, a: str, b: str, delay_ms: float) -> int:
        """Delays the links between ``a`` and ``b``, in both directions; 0 removes it. Returns the number of
        directions."""
        if not 0 <= delay_ms <= DELAY_MS_MAX:
            raise CannotRun(f"a delay is 0 to {DELAY_MS_MAX} ms, not {delay_ms:g} ms")
        return self._update_faults(self._both_ways(a, b), delay_ms=delay_ms)

    def cut(self, a: str, b: str, one_way: bool = False) -> int:
        """Cuts the link from ``a`` to ``b``, and from ``b`` to ``a`` unless ``one_way``."""
        return self._update_faults(self._directions_between(a, b) if one_way else self._both_ways(a, b), cut=True)

    def heal(self, a: str | None = None, b: str | None = None, *, delays: bool = False) -> int:
        """Removes the cuts (and ``delays``) between two names, of all links of one, or everywhere."""
        if a is None:
            directions = self.directions
        else:
            others = [b] if b else [m.node for m in self._topology.masters if m.node not in self._nodes_of(a)]
            directions = [pair for other in others for pair in self._both_ways(a, other)]
        return self._update_faults(directions, cut=False, **({"delay_ms": 0.0} if delays else {}))

    @property
    def directions(self) -> list[tuple[str, str]]:
        """Every direction of the cluster."""
        nodes = [master.node for master in self._topology.masters]
        return [(a, b) for a in nodes for b in nodes if a != b]

    def fault(self, a: str, b: str) -> LinkFault:
        """The fault of the direction from ``a`` to ``b``."""
        return self._faults.get((a, b), LinkFault())

    def rows(self) -> list[dict[str, Any]]:
        """The table in the form that the proxies accept."""
        return [
            {"from": a, "to": b, "delayMs": fault.delay_ms, "cut": fault.cut}
            for (a, b), fault in sorted(self._faults.items())
        ]

    def _update_faults(self, directions: Sequence[tuple[str, str]], **changes: Any) -> int:
        for pair in directions:
            fault = replace(self._faults.pop(pair, LinkFault()), **changes)
            if fault != LinkFault():
                self._faults[pair] = fault
        return len(set(directions))

    def _nodes_of(self, name: str) -> list[str]:
        nodes = [m.node for m in self._topology.masters if name in (m.node, m.data_center)]
        if not nodes:
            known = [*self._topology.data_centers, *(m.node for m in self._topology.masters)]
            raise CannotRun(f"no data centre or master is called {name}; there are {', '.join(known)}")
        return nodes

    def _directions_between(self, a: str, b: str) -> list[tuple[str, str]]:
        pairs = [(x, y) for x in self._nodes_of(a) for y in self._nodes_of(b) if x != y]
        if not pairs:
            raise CannotRun(f"there is no link between {a} and {b}: a link is between two masters")
        return pairs

    def _both_ways(self, a: str, b: str) -> list[tuple[str, str]]:
        return [*self._directions_between(a, b), *self._directions_between(b, a)]
