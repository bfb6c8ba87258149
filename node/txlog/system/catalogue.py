"""Which repositories a cluster has: the fold of the entries of the system log about them.

The system log works under *Majority*, and only its stable entries are applied, in their order. So every master has the
same catalogue at the same index. An entry that an earlier one has made meaningless changes nothing, and the reason is
the same at every master. A master asks :meth:`RepositoryCatalogue.find_refusal` before it writes an entry, too: the
answer is for its client then, and counts for nothing.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple

FIRST_LOG: Final = 0
"""The log of the first repository, which is older than the system log and cannot be removed."""
FIRST_NUMBER: Final = 2
"""The number of the first repository that the system log creates; 1 is the system log."""
LOGS_MAX: Final = 16
"""Repositories that a cluster has at a time, the first one included: a log without work still has its own timers."""
BY_REQUEST: Final = ""
"""Who wants a repository that a client's request created; every other name is that of a data centre."""
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")
"""As a manifest has it."""
_RESERVED: Final = frozenset({"system"})


class CatalogueRefusal(StrEnum):
    """Why an entry changes nothing."""

    BAD_NAME = "BadName"
    NAME_TAKEN = "NameTaken"
    """Another repository has it, or one that differs by upper and lower case only: stores know one of both."""
    NUMBER_TAKEN = "NumberTaken"
    """The number is not the next one: another entry was first."""
    TOO_MANY = "TooManyRepositories"
    UNKNOWN = "UnknownRepository"
    FOUNDED_BEFORE = "FoundedBefore"
    NO_MEMBERS = "NoMembers"
    """No master would hold the log, or one of them is named twice."""
    CLUSTER_ID_TAKEN = "ClusterIdTaken"
    """Another log has the id, or it is empty: messages of two logs would look alike."""
    REMOVING = "Removing"
    NOT_REMOVING = "NotRemoving"
    FIRST_REPOSITORY = "FirstRepository"
    NAMED_BY_MANIFEST = "NamedByManifest"


class RepositoryState(StrEnum):
    """How far a repository is. ``REMOVED``: it has no data and no name, and its number is never used again."""

    CREATED = "Created"
    FOUNDED = "Founded"
    REMOVING = "Removing"
    REMOVED = "Removed"


class RepositorySettings(NamedTuple):
    """What is the same for a log in all data centres; texts as in a manifest, the time in milliseconds."""

    split_recovery: str
    split_mode: str
    key_retention_ms: int


class FoundingMember(NamedTuple):
    """A master of view 1 of a log, with the birth of its empty journal for this log."""

    node: str
    birth: int


class CreateRepository(NamedTuple):
    """``create``: a repository exists from here on. ``number``: of its log."""

    number: int
    name: str
    settings: RepositorySettings


class FoundRepository(NamedTuple):
    """``found``: view 1 of its log. The first one counts. ``keeps_literals``: the stores of all members can hold
    literals as they are sent. ``level``: the least one of their programs."""

    number: int
    cluster_id: bytes
    members: tuple[FoundingMember, ...]
    keeps_literals: bool = False
    level: int = 0


class WantRepository(NamedTuple):
    """``want``: whether a data centre, by its manifest, or :data:`BY_REQUEST` wants the repository."""

    name: str
    by: str
    is_wanted: bool


class BeginRemoval(NamedTuple):
    """``removing``: its log takes no new work from here on."""

    number: int


class EndRemoval(NamedTuple):
    """``removed``: no transaction in its log is undecided. The name is free."""

    number: int


CatalogueChange = CreateRepository | FoundRepository | WantRepository | BeginRemoval | EndRemoval


class RepositoryRecord(NamedTuple):
    """What the catalogue has of one repository. ``cluster_id`` and ``members`` are empty until it is founded."""

    number: int
    name: str
    settings: RepositorySettings
    state: RepositoryState = RepositoryState.CREATED
    cluster_id: bytes = b""
    members: tuple[FoundingMember, ...] = ()
    wanted_by: frozenset[str] = frozenset()
    keeps_literals: bool = False
    level: int = 0

    @property
    def is_kept(self) -> bool:
        """Whether it has its name, and may have data."""
        return self.state is not RepositoryState.REMOVED

    @property
    def is_named_by_manifest(self) -> bool:
        """Whether a data centre wants it."""
        return bool(self.wanted_by - {BY_REQUEST})


class RepositoryCatalogue:
    """The repositories after the stable entries of the system log. ``first``: log 0, as the first entry has it."""

    def __init__(self, first: RepositoryRecord) -> None:
        assert first.number == FIRST_LOG, f"the first repository has log 0, not {first.number}"
        assert first.state is RepositoryState.FOUNDED, f"log 0 is at work, not {first.state}"
        self.records = {FIRST_LOG: first}
        """By number; removed ones stay, so that their numbers are not used again."""

    @property
    def next_number(self) -> int:
        """The number of the next repository."""
        return max(FIRST_NUMBER, max(self.records) + 1)

    def kept(self) -> list[RepositoryRecord]:
        """Every repository that is not removed, by number."""
        return [record for record in self.records.values() if record.is_kept]

    def find(self, name: str) -> RepositoryRecord | None:
        """The repository of this very name."""
        return next((record for record in self.kept() if record.name == name), None)

    def unwanted(self) -> list[RepositoryRecord]:
        """Repositories that neither a manifest nor a request wants. They stay until they are removed by name: a list
        that was rendered empty by mistake must not be a removal."""
        return [
            record
            for record in self.kept()
            if not record.wanted_by and record.number != FIRST_LOG and record.state is not RepositoryState.REMOVING
        ]

    def apply(self, change: CatalogueChange) -> CatalogueRefusal | None:
        """The next stable entry. Why it changes nothing; None if it counts."""
        refusal = self.find_refusal(change)
        if refusal is None:
            record = self._changed(change)
            self.records[record.number] = record
        return refusal

    def find_refusal(self, change: CatalogueChange) -> CatalogueRefusal | None:
        """Why this entry would change nothing, if it were the next one; None if it would count."""
        match change:
            case CreateRepository():
                return self._refuse_creation(change)
            case FoundRepository():
                return self._refuse_founding(change)
            case WantRepository():
                return _refuse_work(self.find(change.name))
            case BeginRemoval():
                return self._refuse_removal(change)
            case EndRemoval():
                record = self._kept_record(change.number)
                if record is None:
                    return CatalogueRefusal.UNKNOWN
                is_removing = record.state is RepositoryState.REMOVING
                return None if is_removing else CatalogueRefusal.NOT_REMOVING

    def _kept_record(self, number: int) -> RepositoryRecord | None:
        record = self.records.get(number)
        return record if record is not None and record.is_kept else None

    def _refuse_creation(self, change: CreateRepository) -> CatalogueRefusal | None:
        folded = change.name.lower()
        if _NAME.fullmatch(change.name) is None or folded in _RESERVED:
            return CatalogueRefusal.BAD_NAME
        kept = self.kept()
        taken = next((record for record in kept if record.name.lower() == folded), None)
        if taken is not None:
            is_ending = taken.state is RepositoryState.REMOVING
            return CatalogueRefusal.REMOVING if is_ending else CatalogueRefusal.NAME_TAKEN
        if len(kept) >= LOGS_MAX:
            return CatalogueRefusal.TOO_MANY
        return None if change.number == self.next_number else CatalogueRefusal.NUMBER_TAKEN

    def _refuse_founding(self, change: FoundRepository) -> CatalogueRefusal | None:
        record = self._kept_record(change.number)
        if record is not None and record.state is RepositoryState.FOUNDED:
            return CatalogueRefusal.FOUNDED_BEFORE
        refusal = _refuse_work(record)
        if refusal is not None:
            return refusal
        if not change.members or len({member.node for member in change.members}) < len(change.members):
            return CatalogueRefusal.NO_MEMBERS
        taken = any(other.cluster_id == change.cluster_id for other in self.records.values())
        return CatalogueRefusal.CLUSTER_ID_TAKEN if taken or not change.cluster_id else None

    def _refuse_removal(self, change: BeginRemoval) -> CatalogueRefusal | None:
        record = self._kept_record(change.number)
        refusal = _refuse_work(record)
        if record is None or refusal is not None:
            return refusal
        if record.number == FIRST_LOG:
            return CatalogueRefusal.FIRST_REPOSITORY
        return CatalogueRefusal.NAMED_BY_MANIFEST if record.is_named_by_manifest else None

    def _changed(self, change: CatalogueChange) -> RepositoryRecord:
        """The record that this change makes."""
        match change:
            case CreateRepository():
                return RepositoryRecord(*change)
            case FoundRepository(number, cluster_id, members, keeps_literals, level):
                return self.records[number]._replace(
                    state=RepositoryState.FOUNDED,
                    cluster_id=cluster_id,
                    members=members,
                    keeps_literals=keeps_literals,
                    level=level,
                )
            case WantRepository(name, by, is_wanted):
                record = self.find(name)
                assert record is not None, "an unknown name was refused"
                wanted_by = record.wanted_by | {by} if is_wanted else record.wanted_by - {by}
                return record._replace(wanted_by=wanted_by)
            case BeginRemoval(number):
                return self.records[number]._replace(state=RepositoryState.REMOVING)
            case EndRemoval(number):
                return self.records[number]._replace(state=RepositoryState.REMOVED, wanted_by=frozenset())


def _refuse_work(record: RepositoryRecord | None) -> CatalogueRefusal | None:
    """Why a repository takes nothing new."""
    if record is None:
        return CatalogueRefusal.UNKNOWN
    return CatalogueRefusal.REMOVING if record.state is RepositoryState.REMOVING else None
