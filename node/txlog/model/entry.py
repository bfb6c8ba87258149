"""A transaction as the masters transfer it. Its hashes are in :mod:`txlog.model.hashes`."""

from __future__ import annotations

import msgspec

from txlog.model.bounds import Birth, Key, Kind, NodeId, Seq, Stamp
from txlog.model.ids import Origin, Txid

KIND_UPDATE = 1
"""Payload: a SPARQL update in UTF-8, normalised at the HTTP API; the same result on every worker."""
KIND_QUADS = 2
"""Payload: quads to delete and to add, see :mod:`txlog.model.quads`."""
KIND_SKIP = 3
"""The key is the txid of a transaction that every worker skips; the payload gives the reason (UTF-8). A key that begins
with ``namespace `` names no transaction: it is a change of the namespaces
(``server/frontdoor/namespace_changes.py``)."""
KIND_CONFIG = 4
"""The key is a change of the configuration (:mod:`txlog.model.configuration`); the payload gives the reason (UTF-8)."""
CONTROL_KINDS = (KIND_SKIP, KIND_CONFIG)
"""Kinds of entries over which workers only move their position. Their keys are no idempotency keys."""


class RunItem(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One transaction inside a run. ``key`` is the client's Idempotency-Key, empty when there is none. ``first_stamp``:
    the stamp or counter of its master when that first took it, which no later view changes; 0: not recorded, since a
    master of an older version may have to carry it. The age of its key counts from there."""

    stamp: Stamp
    kind: Kind
    key: Key
    payload: bytes
    first_stamp: Stamp = 0

    @property
    def age_stamp(self) -> int:
        """The stamp from which the age of its key counts."""
        return self.first_stamp or self.stamp


class TransactionRun(msgspec.Struct, array_like=True, frozen=True):
    """Transactions of one origin, consecutive: ``items[i]`` has seq ``first_seq + i``; stamps strictly grow."""

    node: NodeId
    birth: Birth
    first_seq: Seq
    items: list[RunItem]

    @property
    def origin(self) -> Origin:
        """The origin of the run's transactions."""
        return Origin(self.node, self.birth)

    @property
    def last_seq(self) -> int:
        """The seq of the last transaction of the run."""
        return self.first_seq + len(self.items) - 1


class Span(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """``count`` consecutive transactions of one origin, by name: a part of the log's order without contents."""

    node: NodeId
    birth: Birth
    first_seq: Seq
    count: Seq


class Position(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """How far a log or a worker is. ``index`` counts entries (0 = nothing). Two positions are compared by index and
    hash; the epoch is for people to read."""

    epoch: int
    index: int
    hash: bytes

    def __str__(self) -> str:
        return f"{self.epoch}:{self.index}:{self.hash.hex()}"


class LogEntry(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An entry of the log as workers see it. ``noop`` is empty, or the reason why the entry only moves the
    position: ``key <txid>`` (a repeated Idempotency-Key) or ``skip`` (skipped by a stable skip)."""

    index: int
    hash: bytes
    txid: Txid
    stamp: int
    kind: int
    payload: bytes
    noop: str
