"""Restarts stores that still execute a request long after its time-out: only the end of its process ends it.

The pipeline reports such a worker as ``stalled`` and ``running``, and sends it nothing until the request is over
(:mod:`txlog.apply.suspect`). A store that TxLog did not start is left to its operator.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from txlog.client import WorkerStatus
from txlog.config.process_config import DutyJobConfig
from txlog.local.master_requests import request_master
from txlog.local.state_folder import StateFolder
from txlog.model.errors import TxLogError

log = logging.getLogger("txlog.local")

POLL_INTERVAL_S: Final = 1.0
REQUEST_TIMEOUT_S: Final = 2.0


class StalledStoreRestarter:
    """``restart(worker, reported_at)`` ends the store's process if it was running at that time, in seconds since 1970,
    and returns whether it did; the supervisor starts it again."""

    def __init__(
        self,
        plans: Mapping[str, DutyJobConfig],
        state: StateFolder,
        restart: Callable[[str, float], Awaitable[bool]],
    ) -> None:
        self._plans = plans
        self._state = state
        self._restart = restart

    async def run(self) -> None:
        """Runs until it is cancelled."""
        while True:
            await asyncio.gather(*(self._poll(plan.masters) for plan in self._plans.values()))
            await asyncio.sleep(POLL_INTERVAL_S)

    async def _poll(self, masters: Sequence[str]) -> None:
        for url in masters:
            try:
                workers = await request_master(self._state, url, REQUEST_TIMEOUT_S, lambda m: m.workers())
            except TxLogError:
                continue  # another master of the data centre may know
            for worker in stalled_workers(workers):
                if await self._restart(worker.name, float(worker.reported_at or 0.0)):
                    log.warning("restarted %s: %s", worker.name, worker.error)
            return


def stalled_workers(workers: Sequence[WorkerStatus]) -> list[WorkerStatus]:
    """Those whose store has to be restarted."""
    return [worker for worker in workers if worker.fault == "stalled" and worker.running]
