"""The entries of the system log as bytes, and their fold. Pure.

An entry is the payload of an ordinary transaction in the system log. No store reads that log, so its entries need no
kind of their own. Text: JSON with ``type``. An unknown field or type is no error in the log: a newer program wrote it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from txlog.model.bounds import Birth, NodeId
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.errors import BadInput
from txlog.model.ids import Txid
from txlog.system.catalogue import (
    FIRST_LOG,
    BeginRemoval,
    CatalogueChange,
    CatalogueRefusal,
    CreateRepository,
    EndRemoval,
    FoundingMember,
    FoundRepository,
    RepositoryCatalogue,
    RepositoryRecord,
    RepositorySettings,
    RepositoryState,
    WantRepository,
)

OUTCOMES_MAX: Final = 1000
"""Entries whose outcome is kept for those that wrote them."""


class FirstRepository(msgspec.Struct, frozen=True, tag="first"):
    """Log 0, as the master that founded the system log has it. The first such entry counts."""

    name: str
    cluster_id: str
    split_recovery: str
    split_mode: str
    key_retention_ms: int


class _Create(msgspec.Struct, frozen=True, tag="create"):
    number: int
    name: str
    split_recovery: str
    split_mode: str
    key_retention_ms: int


class _Found(msgspec.Struct, frozen=True, tag="found"):
    number: int
    cluster_id: str
    members: list[tuple[NodeId, Birth]]
    keeps_literals: bool
    level: int


class _Want(msgspec.Struct, frozen=True, tag="want"):
    name: str
    by: str
    is_wanted: bool


class _Removing(msgspec.Struct, frozen=True, tag="removing"):
    number: int


class _Removed(msgspec.Struct, frozen=True, tag="removed"):
    number: int


SystemEntry = FirstRepository | CatalogueChange
_decoder: Any = msgspec.json.Decoder(FirstRepository | _Create | _Found | _Want | _Removing | _Removed)


def encode_entry(entry: SystemEntry) -> bytes:
    """The payload of an entry."""
    match entry:
        case CreateRepository(number, name, settings):
            return msgspec.json.encode(_Create(number, name, *settings))
        case FoundRepository(number, cluster_id, members, keeps_literals, level):
            births = [(member.node, member.birth) for member in members]
            return msgspec.json.encode(_Found(number, cluster_id.hex(), births, keeps_literals, level))
        case WantRepository():
            return msgspec.json.encode(_Want(*entry))
        case BeginRemoval(number):
            return msgspec.json.encode(_Removing(number))
        case EndRemoval(number):
            return msgspec.json.encode(_Removed(number))
        case FirstRepository():
            return msgspec.json.encode(entry)


def decode_entry(payload: bytes) -> SystemEntry:
    """The inverse of :func:`encode_entry`; :class:`BadInput` for bytes that are no entry of this program."""
    try:
        return _to_entry(_decoder.decode(payload))
    except DECODE_ERRORS as wrong:
        raise BadInput(f"an entry of the system log that this program does not know: {wrong}") from None


def _to_entry(found: Any) -> SystemEntry:
    match found:
        case _Create():
            settings = RepositorySettings(found.split_recovery, found.split_mode, found.key_retention_ms)
            return CreateRepository(found.number, found.name, settings)
        case _Found():
            members = tuple(FoundingMember(node, birth) for node, birth in found.members)
            cluster_id = bytes.fromhex(found.cluster_id)
            return FoundRepository(found.number, cluster_id, members, found.keeps_literals, found.level)
        case _Want():
            return WantRepository(found.name, found.by, found.is_wanted)
        case _Removing():
            return BeginRemoval(found.number)
        case _Removed():
            return EndRemoval(found.number)
        case _:
            assert isinstance(found, FirstRepository), "the decoder gives nothing else"
            bytes.fromhex(found.cluster_id)  # ValueError for another text
            return found


class SystemLogFold:
    """The state after the stable entries of the system log. ``index``: of the last entry. ``catalogue``: None until
    the entry about log 0. ``outcomes``: why the entry of a transaction changed nothing, empty if it counted; of the
    last :data:`OUTCOMES_MAX` transactions. ``unknown``: entries that this program does not know."""

    def __init__(self) -> None:
        self.index = 0
        self.catalogue: RepositoryCatalogue | None = None
        self.first: FirstRepository | None = None
        self.outcomes: dict[Txid, str] = {}
        self.unknown = 0

    def apply(self, index: int, txid: Txid, payload: bytes) -> None:
        """The entry at the next index."""
        assert index == self.index + 1, f"entry {index} after {self.index}"
        self.index = index
        try:
            outcome = self._apply(decode_entry(payload))
        except BadInput:
            self.unknown += 1
            outcome = "UnknownEntry"
        self.outcomes[txid] = outcome
        if len(self.outcomes) > OUTCOMES_MAX:
            del self.outcomes[next(iter(self.outcomes))]

    def _apply(self, entry: SystemEntry) -> str:
        if isinstance(entry, FirstRepository):
            if self.catalogue is not None:
                return CatalogueRefusal.FOUNDED_BEFORE
            settings = RepositorySettings(entry.split_recovery, entry.split_mode, entry.key_retention_ms)
            cluster_id = bytes.fromhex(entry.cluster_id)
            record = RepositoryRecord(FIRST_LOG, entry.name, settings, RepositoryState.FOUNDED, cluster_id)
            self.catalogue, self.first = RepositoryCatalogue(record), entry
            return ""
        if self.catalogue is None:
            return CatalogueRefusal.UNKNOWN
        return self.catalogue.apply(entry) or ""
