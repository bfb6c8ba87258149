"""Which master receives from which, as each reports of itself: it names one-way links, deaf and mute masters (rule
22).

Each master's *row* lists the masters from which it receives directly, not through relays. Rows travel in the notices
between masters, also through third masters. So a lost link hides no row of a master from which any other receives. No
decision depends on them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import msgspec

from txlog.model.decode_errors import DECODE_ERRORS

TOPIC = "hears"
ROW_TTL_S = 5.0
"""Seconds for which a row counts. Masters send rows every second, and a row may pass through two others."""

MatrixRows = Mapping[str, frozenset[str] | None]
"""By node id: the masters from which it receives, or None where that is unknown."""


class ConnectivityRow(msgspec.Struct, array_like=True, frozen=True):
    """One master's row. ``number`` counts the rows of one start."""

    node: str
    start: int
    number: int
    heard_nodes: list[str]

    @property
    def version(self) -> tuple[int, int]:
        """Of two rows of one master the greater version is the newer."""
        return self.start, self.number


class LinkFinding(NamedTuple):
    """One fault of connectivity. ``kind``: ``cut``, ``one-way`` (from the first of ``nodes`` to the second nothing
    arrives), ``deaf``, ``mute`` or ``silent``. ``text`` describes it for operators."""

    kind: str
    nodes: list[str]
    text: str

    def to_dict(self) -> dict[str, Any]:
        """The finding as the API shows it."""
        return self._asdict()


class ConnectivityMatrix:
    """The rows of all masters. ``nodes`` returns the configured masters, this one included. ``hears`` returns the
    masters from which this one receives directly, now. ``clock``: monotonic seconds."""

    def __init__(
        self,
        node: str,
        nodes: Callable[[], Collection[str]],
        start: int,
        hears: Callable[[], list[str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node = node
        self._nodes = nodes
        self._start = start
        self._heard_nodes = hears
        self._clock = clock
        self._number = 0
        self._rows: dict[str, tuple[ConnectivityRow, float]] = {}

    def encode_notice(self) -> bytes:
        """The rows that this master knows, its own first."""
        self._number += 1
        own = ConnectivityRow(self._node, self._start, self._number, self._heard_nodes())
        return msgspec.json.encode([own, *(row for row, _ in self._fresh_rows())])

    def on_notice(self, body: bytes) -> None:
        """Take another master's rows. Of each master the newest row counts, independent of the master that relays
        it."""
        try:
            rows = msgspec.json.decode(body, type=list[ConnectivityRow])
        except DECODE_ERRORS:
            return  # a newer version's; only people miss it
        now = self._clock()
        for row in rows:
            if row.node == self._node or row.node not in self._nodes():
                continue
            before = self._rows.get(row.node)
            # A master that lost its disk restarts its count of starts: a row that has expired is always replaced.
            if before is None or now - before[1] > ROW_TTL_S or row.version > before[0].version:
                self._rows[row.node] = (row, now)

    def _fresh_rows(self) -> list[tuple[ConnectivityRow, float]]:
        now = self._clock()
        return [each for each in self._rows.values() if now - each[1] <= ROW_TTL_S]

    def rows(self) -> dict[str, frozenset[str] | None]:
        """The rows known now, in the order of the configuration."""
        found: dict[str, frozenset[str] | None] = dict.fromkeys(self._nodes())
        found.update((row.node, frozenset(row.heard_nodes)) for row, _ in self._fresh_rows())
        found[self._node] = frozenset(self._heard_nodes())
        return found


def diagnose(rows: MatrixRows) -> list[LinkFinding]:
    """The faults in ``rows``, each named once: a faulty master hides the faults of its links."""
    found: list[LinkFinding] = []
    named: set[str] = set()
    known = [node for node, row in rows.items() if row is not None]
    if len(known) == 1 < len(rows) and not rows[known[0]]:
        alone = known[0]
        why = f"{alone} hears no other master, and none is there to say whether it hears this one"
        return [LinkFinding("silent", [alone], why)]
    for node in rows:
        fault = _diagnose_master(node, rows)
        if fault is not None:
            found.append(fault)
            named.add(node)
    nodes = [node for node in rows if node not in named and rows[node] is not None]
    for at, a in enumerate(nodes):
        found += [fault for b in nodes[at + 1 :] if (fault := _diagnose_link(a, b, rows)) is not None]
    return found


def _diagnose_master(node: str, rows: MatrixRows) -> LinkFinding | None:
    others = {other: row for other, row in rows.items() if other != node and row is not None}
    hearing_it = [other for other, row in others.items() if node in row]
    mine = rows[node]
    if mine is None:
        if others and not hearing_it:
            return LinkFinding("silent", [node], f"no master hears {node}: it is down, mute, or its links are cut")
        return None
    heard = mine & set(rows) - {node}
    if len(others) < 2:
        return None  # of two masters none can tell which one is at fault: it is their link
    if not hearing_it and len(heard) == len(rows) - 1:
        return LinkFinding("mute", [node], f"{node} is mute: it hears all others, and none of them hears it")
    if not heard and len(hearing_it) == len(others):
        return LinkFinding("deaf", [node], f"{node} is deaf: all others hear it, and it hears none of them")
    return None


def _diagnose_link(a: str, b: str, rows: MatrixRows) -> LinkFinding | None:
    of_a, of_b = rows[a], rows[b]
    assert of_a is not None
    assert of_b is not None
    if (b in of_a) == (a in of_b):
        return None if b in of_a else LinkFinding("cut", [a, b], f"the link between {a} and {b} is cut, both ways")
    mute, deaf = (a, b) if b in of_a else (b, a)
    return LinkFinding("one-way", [mute, deaf], f"nothing arrives from {mute} at {deaf}; the other way the link works")
