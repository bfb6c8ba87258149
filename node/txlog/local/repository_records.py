"""The further repositories that the manifests of this machine name, or have named: ``repositories.json``.

A repository that its manifests name no more stays until it is removed by name. So its stores stay too, and what is
known of them is kept here.
"""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict

from txlog.local.state_folder import StateFolder

FILE: Final = "repositories.json"


class _RecordModel(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class StoreRecord(_RecordModel):
    """A store of a further repository. ``url``: of one that TxLog does not start, else empty."""

    name: str
    engine: str
    url: str = ""


class LocalRepository(_RecordModel):
    """A further repository in one data centre. ``is_wanted``: the manifest names it. ``number``: of its log, once the
    masters have said it, else 0."""

    name: str
    data_center: str
    stores: list[StoreRecord] = []
    is_wanted: bool = True
    number: int = 0

    @property
    def key(self) -> tuple[str, str]:
        """What identifies it on this machine."""
        return self.data_center, self.name


class RepositoryRecords(_RecordModel):
    """``was_used``: the manifests have named a further repository, so the masters may have a system log, and there is
    no way back from that."""

    was_used: bool = False
    repositories: list[LocalRepository] = []

    def find(self, key: tuple[str, str]) -> LocalRepository | None:
        """The repository with this key."""
        return next((each for each in self.repositories if each.key == key), None)

    def with_number(self, key: tuple[str, str], number: int) -> RepositoryRecords:
        """These records with the number of a repository's log."""
        changed = [
            each.model_copy(update={"number": number}) if each.key == key else each for each in self.repositories
        ]
        return self.model_copy(update={"repositories": changed})

    def without(self, key: tuple[str, str]) -> RepositoryRecords:
        """These records without a repository that is removed."""
        return self.model_copy(update={"repositories": [each for each in self.repositories if each.key != key]})


def read_repositories(state: StateFolder) -> RepositoryRecords:
    """What the state folder knows; nothing without the file."""
    return RepositoryRecords.model_validate(state.read(FILE, {}))


def write_repositories(state: StateFolder, records: RepositoryRecords) -> None:
    """Stores it. A cluster that never had further repositories has no such file."""
    if records.was_used:
        state.write(FILE, records.model_dump())
