"""Entries that a master's report names with their keys: what they mean decides about the next view."""

from __future__ import annotations

import msgspec

from txlog.model.bounds import Birth, Key, Kind, NodeId, Seq


class PendingConfigChange(msgspec.Struct, array_like=True, frozen=True):
    """A change of the configuration: its transaction and that transaction's key."""

    node: NodeId
    birth: Birth
    seq: Seq
    key: Key


class SynchronousReference(msgspec.Struct, array_like=True, frozen=True):
    """A synchronous transaction or a decision about some, without its payload: ``kind`` and ``key`` of this txid."""

    node: NodeId
    birth: Birth
    seq: Seq
    kind: Kind
    key: Key
