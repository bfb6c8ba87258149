"""Asks a master which repositories its cluster has, and says which ones a manifest names."""

from __future__ import annotations

from urllib.parse import quote, urlencode

import msgspec

from txlog.client.connection import REPOSITORIES_PATH
from txlog.client.master_client import MasterClient


class ListedRepository(msgspec.Struct, rename="camel"):
    """A repository as a master lists it. ``log``: its number. ``wanted_by``: data centres whose manifest names it, or
    ``request``."""

    name: str
    log: int
    state: str = ""
    wanted_by: list[str] = []


class RepositoryList(msgspec.Struct, rename="camel"):
    """``next_log``: the number of the next log; one below it that is not listed is removed for good. 0: this master
    has not read the system log."""

    repositories: list[ListedRepository]
    next_log: int = 0


class RepositoryCalls(MasterClient):
    """A master of a cluster with several repositories."""

    def list_all(self) -> RepositoryList:
        """Every repository that is not removed."""
        return self._json.get(REPOSITORIES_PATH, RepositoryList)

    def set_want(self, name: str, data_center: str, is_wanted: bool, wait_s: float) -> ListedRepository:
        """Says whether the manifest of this data centre names the repository, which is created if it is wanted and new.
        ``wait_s``: for how long the master waits until it is open there. May be repeated."""
        path = f"{REPOSITORIES_PATH}/{quote(name, safe='')}?{urlencode({'wait': f'{wait_s:g}'})}"
        body = {"wantedBy" if is_wanted else "unwantedBy": data_center}
        return self._json.call("PUT", path, ListedRepository, body=body, repeatable=True)
