"""What a supervisor says to its masters about further repositories, and what becomes of their stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from txlog.client.errors import MasterUnreachable
from txlog.client.repository_calls import ListedRepository, RepositoryList
from txlog.local import daemon_control, repository_wants
from txlog.local.daemon_control import wait_repositories
from txlog.local.local_errors import CannotRun
from txlog.local.repository_records import LocalRepository, RepositoryRecords, read_repositories, write_repositories
from txlog.local.repository_want import WantStep, next_step
from txlog.local.repository_wants import RepositoryWants
from txlog.local.state_folder import MasterLocation, StateFolder, Topology, WorkerLocation
from txlog.model.errors import RepositoryRefused, Unavailable

STOCK = LocalRepository(name="stock", data_center="uk")
LISTED = ListedRepository("stock", 2)


@pytest.mark.parametrize(
    ("is_wanted", "number", "listed", "next_log", "step"),
    [
        (True, 0, None, 0, WantStep.ASK),
        (True, 0, None, 2, WantStep.ASK),
        (True, 0, [], 3, WantStep.ASK),
        (True, 0, ["uk"], 3, WantStep.KEEP),
        (True, 2, ["uk", "us"], 3, WantStep.KEEP),
        (True, 2, ["us", "request"], 3, WantStep.ASK),
        (True, 2, None, 0, WantStep.WAIT),
        (True, 2, None, 2, WantStep.WAIT),
        (True, 2, None, 3, WantStep.REPORT),
        (True, 1, [], 3, WantStep.REPLACE),
        (False, 2, ["uk"], 3, WantStep.WITHDRAW),
        (False, 2, ["us"], 3, WantStep.STAY),
        (False, 2, None, 0, WantStep.WAIT),
        (False, 2, None, 2, WantStep.WAIT),
        (False, 2, None, 3, WantStep.DISCARD),
        (False, 1, [], 3, WantStep.DISCARD),
        (False, 0, ["uk"], 3, WantStep.WITHDRAW),
        (False, 0, None, 0, WantStep.WAIT),
        (False, 0, None, 2, WantStep.DISCARD),
    ],
)
def test_the_step_depends_on_the_manifest_and_on_what_a_master_has_read(
    is_wanted: bool, number: int, listed: list[str] | None, next_log: int, step: WantStep
) -> None:
    """``listed``: who wants log 2 of that name; None: it is not listed."""
    record = STOCK.model_copy(update={"is_wanted": is_wanted, "number": number})
    found = [ListedRepository("catalogue", 0)]
    found += [] if listed is None else [ListedRepository("stock", 2, wanted_by=listed)]
    assert next_step(record, RepositoryList(found, next_log)) is step


class FakeMasters:
    """The catalogue of a cluster, as each of its masters answers."""

    def __init__(self) -> None:
        self.repositories: dict[str, ListedRepository] = {}
        self.next_log = 2
        self.refuses: dict[str, Exception] = {}
        """By URL or by the name of a repository."""
        self.wants: list[tuple[str, str, bool]] = []
        self.stopped: list[str] = []
        self.started: list[str] = []

    async def request(self, state: StateFolder, url: str, timeout_s: float, ask: Callable[[Any], Any]) -> Any:
        if url in self.refuses:
            raise self.refuses[url]
        return ask(self)

    def list_all(self) -> RepositoryList:
        return RepositoryList(list(self.repositories.values()), self.next_log)

    def set_want(self, name: str, data_center: str, is_wanted: bool, wait_s: float) -> ListedRepository:
        self.wants.append((name, data_center, is_wanted))
        if name in self.refuses:
            raise self.refuses[name]
        if name not in self.repositories:
            self.repositories[name] = ListedRepository(name, self.next_log)
            self.next_log += 1
        found = self.repositories[name]
        others = [each for each in found.wanted_by if each != data_center]
        found.wanted_by = [*others, data_center] if is_wanted else others
        return found

    async def stop(self, name: str) -> None:
        self.stopped.append(name)

    async def start(self, name: str) -> None:
        self.started.append(name)


async def eventually(true: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 - the supervisor has no event for what it shows
            await asyncio.sleep(0.01)


class Supervised:
    """A machine with one data centre and one store for each repository."""

    def __init__(self, folder: Path, masters: FakeMasters) -> None:
        self.masters = masters
        self.state = StateFolder(folder / "state")
        self.state.prepare()
        self.wants: RepositoryWants | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, *records: LocalRepository) -> None:
        write_repositories(self.state, RepositoryRecords(was_used=True, repositories=list(records)))
        topology = Topology(
            repository="catalogue",
            data_centers=["uk"],
            masters=[MasterLocation(node=f"uk-{n}", data_center="uk", url=f"http://uk-{n}") for n in (1, 2)],
            workers=[],
            repository_workers=[self.store(each.name) for each in records],
        )
        for worker in topology.repository_workers:
            self.state.worker(worker.name).mkdir(parents=True)
            (self.state.worker(worker.name) / "data").write_text("of before")
        self.wants = RepositoryWants(topology, self.state, self.masters)
        self._task = asyncio.create_task(self.wants.run())

    @staticmethod
    def store(name: str) -> WorkerLocation:
        url, engine = "http://127.0.0.1:1", "oxigraph"
        return WorkerLocation(
            name=f"uk-{name}-worker-1", data_center="uk", url=url, engine=engine, managed=True, repository=name
        )

    async def shows(self, name: str, state: str, said: str = "") -> None:
        """Waits until the supervisor shows that state."""
        assert self.wants is not None
        wants = self.wants
        await eventually(
            lambda: any(
                (each["name"], each["state"]) == (name, state) and said in each["message"] for each in wants.describe()
            )
        )

    async def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


@pytest.fixture
async def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Supervised]:
    masters = FakeMasters()
    monkeypatch.setattr(repository_wants, "request_master", masters.request)
    monkeypatch.setattr(repository_wants, "POLL_INTERVAL_S", 0.01)
    monkeypatch.setattr(repository_wants, "SETTLED_INTERVAL_S", 0.01)
    machine = Supervised(tmp_path, masters)
    yield machine
    await machine.end()


async def test_a_listed_repository_is_wanted_and_its_log_is_noted(machine: Supervised) -> None:
    machine.masters.refuses["http://uk-1"] = MasterUnreachable("http://uk-1", "not yet", sent=False)
    machine.start(STOCK)
    await machine.shows("stock", "Wanted")
    assert machine.masters.repositories["stock"].wanted_by == ["uk"]
    assert machine.masters.wants == [("stock", "uk", True)], "it is said once"
    assert read_repositories(machine.state).repositories[0].number == 2


async def test_one_that_cannot_be_created_delays_no_other_and_is_named(machine: Supervised) -> None:
    machine.masters.refuses["stock"] = RepositoryRefused("TooManyRepositories", "remove one first")
    machine.start(STOCK, LocalRepository(name="orders", data_center="uk"))
    await machine.shows("orders", "Wanted")
    await machine.shows("stock", "Unknown", "remove one first")
    machine.masters.refuses["stock"] = Unavailable("NotAllHere", "uk-2 is not")
    await machine.shows("stock", "Unknown", "uk-2 is not")
    del machine.masters.refuses["stock"]
    await machine.shows("stock", "Wanted")


async def test_a_dropped_repository_stays_with_its_stores(machine: Supervised) -> None:
    machine.masters.set_want("stock", "uk", True, 0.0)
    machine.start(STOCK.model_copy(update={"is_wanted": False, "number": 2}))
    await machine.shows("stock", "Unwanted")
    assert machine.masters.repositories["stock"].wanted_by == []
    assert machine.masters.stopped == []
    assert (machine.state.worker("uk-stock-worker-1") / "data").exists()


async def test_stores_of_a_removed_repository_end_and_are_kept_aside(machine: Supervised) -> None:
    machine.masters.next_log = 3
    machine.start(STOCK.model_copy(update={"is_wanted": False, "number": 2}))
    await eventually(lambda: not read_repositories(machine.state).repositories)
    assert read_repositories(machine.state).was_used
    assert machine.masters.stopped == ["uk-stock-worker-1"]
    assert not machine.state.worker("uk-stock-worker-1").exists()
    assert (machine.state.worker("uk-stock-worker-1.removed-2") / "data").read_text() == "of before"
    assert machine.masters.wants == []


async def test_a_removed_repository_is_not_made_again_by_its_manifest(machine: Supervised) -> None:
    machine.masters.next_log = 3
    machine.start(STOCK.model_copy(update={"number": 2}))
    await machine.shows("stock", "Removed")
    assert (machine.masters.repositories, machine.masters.stopped) == ({}, [])


async def test_one_that_was_made_again_by_name_begins_with_empty_stores(machine: Supervised) -> None:
    machine.masters.next_log = 3
    machine.start(STOCK.model_copy(update={"number": 2}))
    await machine.shows("stock", "Removed")
    machine.masters.repositories["stock"] = ListedRepository("stock", 3, wanted_by=["request"])
    machine.masters.next_log = 4
    await machine.shows("stock", "Wanted")
    assert sorted(machine.masters.repositories["stock"].wanted_by) == ["request", "uk"]
    assert (machine.masters.stopped, machine.masters.started) == (["uk-stock-worker-1"], ["uk-stock-worker-1"])
    assert list(machine.state.worker("uk-stock-worker-1").iterdir()) == []
    assert (machine.state.worker("uk-stock-worker-1.removed-2") / "data").exists()


class FakeSupervisor:
    """A supervisor that shows one state after the other, and then the last one."""

    def __init__(self, *shown: tuple[WantStep, str]) -> None:
        self.shown = list(shown)

    def status(self) -> dict[str, Any]:
        step, message = self.shown.pop(0) if len(self.shown) > 1 else self.shown[0]
        return {"repositories": [{"name": "stock", "dataCenter": "uk", "state": step.value, "message": message}]}


@pytest.mark.parametrize("end", [WantStep.KEEP, WantStep.STAY, WantStep.REPORT])
def test_up_waits_until_the_masters_know_every_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: WantStep
) -> None:
    fake = FakeSupervisor((WantStep.WAIT, "no master"), (WantStep.ASK, ""), (end, "gone a moment ago"), (end, ""))
    monkeypatch.setattr(daemon_control, "SupervisorClient", lambda state: fake)
    wait_repositories(StateFolder(tmp_path), 10.0)
    assert fake.shown == [(end, "")]


def test_up_names_the_repository_that_it_does_not_get(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeSupervisor((WantStep.ASK, "TooManyRepositories: remove one first"))
    monkeypatch.setattr(daemon_control, "SupervisorClient", lambda state: fake)
    with pytest.raises(CannotRun, match="stock of uk: TooManyRepositories: remove one first"):
        wait_repositories(StateFolder(tmp_path), 0.0)
