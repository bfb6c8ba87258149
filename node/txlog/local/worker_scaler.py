"""Adds and removes workers while the cluster runs: ``txlog worker add`` and ``remove``.

``workers.json`` of the state folder records the differences from the manifests, also for the next start. A new store is
started first and filled by the client that requested it. Only then it becomes a worker (*serves*): the masters register
it, and the pipeline learns of it from them. A worker to remove is first removed from the masters, which wait for its
reads in progress.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable
from typing import Final, TypeVar

from txlog.client import MasterClient
from txlog.local.master_requests import request_master
from txlog.local.process_plan import ProcessPlan
from txlog.local.state_folder import StateFolder, WorkerChanges, WorkerLocation
from txlog.local.supervisor import Supervisor
from txlog.model.errors import BadInput, Conflict, NotFound, PeerFault, TxLogError, Unavailable
from txlog.model.ids import NODE_ID

log = logging.getLogger("txlog.local")
T = TypeVar("T")

READ_DRAIN_TIMEOUT_S: Final = 60.0
"""How long reads may continue at a worker that is being removed."""
NOTIFY_TIMEOUT_S: Final = 60.0
"""How long the supervisor retries a master that does not answer. A master that starts later reads the change."""
REQUEST_TIMEOUT_S: Final = 5.0
"""Time-out of a request, beside what the master may wait for reads."""
READ_DRAIN_REQUEST_S: Final = 30.0
"""How long one request waits for reads."""
RETRY_DELAY_S: Final = 0.5


class WorkerScaling:
    """For one supervisor. ``replan``: computes the plan for the current content of the state folder (it may take a
    second)."""

    def __init__(self, supervisor: Supervisor, state: StateFolder, replan: Callable[[], ProcessPlan]) -> None:
        self._supervisor = supervisor
        self._state = state
        self._replan = replan
        self._lock = asyncio.Lock()

    async def add(self, name: str, data_center: str) -> WorkerLocation:
        """An empty store of this name runs on return (or is about to). Idempotent for one that does not serve yet.
        :class:`Conflict` for one that serves."""
        async with self._lock:
            topology = self._supervisor.plan.topology
            if not NODE_ID.fullmatch(name) or not name.startswith(f"{data_center}-"):
                raise BadInput(f"{name}: expected a name such as {data_center}-worker-2")
            if data_center not in topology.data_centers:
                raise NotFound(f"no data centre is called {data_center}; there are {', '.join(topology.data_centers)}")
            if any(not w.managed and w.data_center == data_center for w in topology.workers):
                raise BadInput(f"the workers of {data_center} are not run by TxLog (workers.external)")
            known = next((w for w in topology.workers if w.name == name), None)
            if known is not None and known.serves:
                raise Conflict(f"{name} is a worker already; see txlog worker list")
            if known is None:
                if any(name == program.name for program in self._supervisor.plan.programs):
                    raise Conflict(f"{name} is the name of another process; take another one")
                self._save_changes(lambda changes: changes.with_added(name, data_center, serves=False))
                await self._apply_plan()
            return self._location_of(name)

    async def serve(self, name: str) -> None:
        """Makes it a worker: notifies every master of its data centre. :class:`Unavailable` names those that did not
        answer; they learn of it at their next start."""
        async with self._lock:
            worker = self._location_of(name)
            self._save_changes(lambda changes: changes.with_added(name, worker.data_center, serves=True))
            await self._apply_plan()
            await self._notify_masters(worker.data_center, lambda m: m.add_worker(name, worker.url, worker.engine))

    async def remove(self, name: str, *, purge: bool) -> None:
        """Ends its reads and transactions; its process ends when its reads in progress have finished. ``purge``: also
        deletes its files. Idempotent."""
        async with self._lock:
            worker = self._location_of(name)
            if not worker.managed:
                raise BadInput(f"{name} is not run by TxLog; take it out of workers.external and start again")
            others = [w for w in self._supervisor.plan.topology.workers if w.data_center == worker.data_center]
            if worker.serves and not any(w.serves for w in others if w.name != name):
                raise Conflict(f"{name} is the only worker of {worker.data_center}; add another one first")
            self._save_changes(lambda changes: changes.without(name))
            plan = await asyncio.to_thread(self._replan)
            self._supervisor.adopt_plan(plan)
            until = asyncio.get_running_loop().time() + READ_DRAIN_TIMEOUT_S
            while True:
                reading = sum(
                    await self._notify_masters(
                        worker.data_center, lambda m: m.remove_worker(name, READ_DRAIN_REQUEST_S)
                    )
                )
                if not reading:
                    break
                if asyncio.get_running_loop().time() > until:
                    log.warning(
                        "%s is ended although %d reads go on there after %g s", name, reading, READ_DRAIN_TIMEOUT_S
                    )
                    break
            await self._supervisor.apply_plan(plan)
            if purge:
                await asyncio.to_thread(shutil.rmtree, self._state.worker(name), True)

    def _location_of(self, name: str) -> WorkerLocation:
        found = next((w for w in self._supervisor.plan.topology.workers if w.name == name), None)
        if found is None:
            raise NotFound(f"no worker is called {name}; see txlog worker list")
        return found

    def _save_changes(self, how: Callable[[WorkerChanges], WorkerChanges]) -> None:
        self._state.write_worker_changes(how(self._state.worker_changes()))

    async def _apply_plan(self) -> None:
        plan = await asyncio.to_thread(self._replan)
        await self._supervisor.apply_plan(plan)

    async def _notify_masters(self, data_center: str, ask: Callable[[MasterClient], T]) -> list[T]:
        """The result of ``ask`` for each master of the data centre. :class:`Unavailable` names those that did not
        answer for :data:`NOTIFY_TIMEOUT_S`."""
        masters = self._supervisor.plan.topology.masters_of(data_center)
        found = await asyncio.gather(*(self._notify_master(master.url, ask) for master in masters))
        silent = [master.node for master, results in zip(masters, found, strict=True) if not results]
        if silent:
            raise Unavailable("NoMaster", f"{', '.join(silent)} did not answer; they know of it after their next start")
        return [result for results in found for result in results]

    async def _notify_master(self, url: str, ask: Callable[[MasterClient], T]) -> tuple[T, ...]:
        """One result; none when the master did not answer for :data:`NOTIFY_TIMEOUT_S`."""
        clock = asyncio.get_running_loop().time
        until = clock() + NOTIFY_TIMEOUT_S
        while True:
            try:
                return (await request_master(self._state, url, REQUEST_TIMEOUT_S, ask),)
            except TxLogError as wrong:
                if wrong.status < 500 and not isinstance(wrong, PeerFault):  # which is an answer of no master
                    raise Conflict(f"{url}: {wrong}") from None
            if clock() > until:
                return ()
            await asyncio.sleep(RETRY_DELAY_S)
