"""Tells the masters which further repositories the manifests name, and ends the stores of removed ones.

Each repository of a data centre has a task of its own, so one that cannot be created delays no other. A store of a
removed repository is not deleted: its folder gets another name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from txlog.client.errors import MasterUnreachable
from txlog.client.repository_calls import RepositoryCalls
from txlog.local.config_files import prepare_store
from txlog.local.master_requests import request_master
from txlog.local.repository_records import LocalRepository, read_repositories, write_repositories
from txlog.local.repository_want import WantStep, next_step
from txlog.local.state_folder import StateFolder, Topology
from txlog.model.errors import TxLogError, Unavailable

log = logging.getLogger("txlog.local")

POLL_INTERVAL_S: Final = 1.0
"""Between two steps while something is to be done, ..."""
SETTLED_INTERVAL_S: Final = 5.0
"""... and while nothing is."""
OPEN_WAIT_S: Final = 5.0
"""How long a master waits until a new repository is open there. Later it opens all the same."""
REQUEST_TIMEOUT_S: Final = 15.0
_SETTLED: Final = (WantStep.KEEP, WantStep.STAY, WantStep.REPORT)
T = TypeVar("T")


class StoreHost(Protocol):
    """What ends and starts stores."""

    async def stop(self, name: str) -> None: ...
    async def start(self, name: str) -> None: ...


class RepositoryWants:
    """The further repositories of one plan. ``state``: has the records. ``stores``: the supervisor."""

    def __init__(self, topology: Topology, state: StateFolder, stores: StoreHost) -> None:
        self._topology = topology
        self._state = state
        self._stores = stores
        self._shown: dict[tuple[str, str], tuple[WantStep, str]] = {}

    async def run(self) -> None:
        """Runs until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for record in read_repositories(self._state).repositories:
                group.create_task(self._follow(record.key))

    def describe(self) -> list[dict[str, Any]]:
        """Every repository with its state and the last error."""
        found = []
        for record in read_repositories(self._state).repositories:
            step, message = self._shown.get(record.key, (WantStep.WAIT, ""))
            about = {"name": record.name, "dataCenter": record.data_center, "log": record.number}
            found.append({**about, "state": step.value, "message": message})
        return found

    async def _follow(self, key: tuple[str, str]) -> None:
        """Brings the masters in line with the manifest, for as long as the repository is known here."""
        while (record := read_repositories(self._state).find(key)) is not None:
            step, message = self._shown.get(key, (WantStep.WAIT, ""))[0], ""
            try:
                step = await self._advance(record)
            except (TxLogError, OSError) as wrong:
                message = str(wrong)
            self._show(key, step, message)
            is_settled = step in _SETTLED and not message
            await asyncio.sleep(SETTLED_INTERVAL_S if is_settled else POLL_INTERVAL_S)

    async def _advance(self, record: LocalRepository) -> WantStep:
        """One step; returns which."""
        listed = await self._ask(record.data_center, lambda calls: calls.list_all())
        step = next_step(record, listed)
        found = next((each for each in listed.repositories if each.name == record.name), None)
        match step:
            case WantStep.ASK | WantStep.WITHDRAW:
                wanted = step is WantStep.ASK
                found = await self._ask(
                    record.data_center,
                    lambda calls: calls.set_want(record.name, record.data_center, wanted, OPEN_WAIT_S),
                )
            case WantStep.REPLACE:
                await self._set_stores_aside(record, restart=True)
            case WantStep.DISCARD:
                await self._set_stores_aside(record, restart=False)
                write_repositories(self._state, read_repositories(self._state).without(record.key))
                return step
        if found is not None and found.log != record.number:
            write_repositories(self._state, read_repositories(self._state).with_number(record.key, found.log))
        return step

    async def _ask(self, data_center: str, ask: Callable[[RepositoryCalls], T]) -> T:
        """The answer of the first master of the data centre that has one."""
        last: TxLogError = Unavailable("NoMaster", f"no master of {data_center}")
        for master in self._topology.masters_of(data_center):
            try:
                answer = await request_master(self._state, master.url, REQUEST_TIMEOUT_S, ask)
            except (MasterUnreachable, Unavailable) as wrong:
                last = wrong
            else:
                return answer
        raise last

    async def _set_stores_aside(self, record: LocalRepository, *, restart: bool) -> None:
        """Ends the stores that run here, and gives their folders another name."""
        for worker in self._topology.repository_workers:
            if not worker.managed or (worker.data_center, worker.repository) != record.key:
                continue
            await self._stores.stop(worker.name)
            folder = self._state.worker(worker.name)
            if folder.exists():
                folder.rename(_free_name(self._state, worker.name, record.number))
            if restart:
                prepare_store(worker, self._state)
                await self._stores.start(worker.name)

    def _show(self, key: tuple[str, str], step: WantStep, message: str) -> None:
        if self._shown.get(key) == (step, message):
            return
        self._shown[key] = step, message
        data_center, name = key
        say = log.warning if message or step is WantStep.REPORT else log.info
        say("repository %s of %s: %s %s", name, data_center, step, message)


def _free_name(state: StateFolder, store: str, number: int) -> Path:
    """A folder that does not exist yet."""
    at = 1
    while (folder := state.worker(f"{store}.removed-{number}" + (f"-{at}" if at > 1 else ""))).exists():
        at += 1
    return folder
