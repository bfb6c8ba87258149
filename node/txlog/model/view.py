"""Who must hold a transaction before it is added (protocol section 3)."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from txlog.model.ids import Origin


class Member(msgspec.Struct, array_like=True, frozen=True):
    """A master of a view: node id, birth of its journal, vote weight, data centre."""

    node: str
    birth: int
    weight: int
    data_center: str

    @property
    def origin(self) -> Origin:
        return Origin(self.node, self.birth)


class View(msgspec.Struct, array_like=True, frozen=True):
    """``(epoch, ballot, coordinator; members; base)``. View 1 is the founding record: base index 0, and the
    cluster's id is the hash of its members, so that proposing it again after a crash gives the same view."""

    epoch: int
    ballot: int
    coordinator: str
    members: list[Member]
    cluster_id: bytes
    base_index: int
    base_hash: bytes

    @property
    def number(self) -> tuple[int, int, str]:
        """Orders views: ``(epoch, ballot, coordinator)``."""
        return (self.epoch, self.ballot, self.coordinator)


def founding_id(members: list[Member]) -> bytes:
    """The cluster id that a founding record of these members carries (16 bytes). Births are random, so no
    two foundings share it."""
    text = "\n".join(f"{m.node} {m.birth:016x} {m.weight} {m.data_center}" for m in members)
    return blake2b(text.encode(), digest_size=16).digest()
