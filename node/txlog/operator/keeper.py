"""One cluster kept true: observe, diagnose, plan, act, say how it is; whenever something changes, and now and then.

Nothing that matters is kept in here: a keeper that begins anew goes on where the last one was killed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from txlog.config.cluster import TxLogCluster
from txlog.config.cluster_status import ClusterStatus
from txlog.operator import conditions, status
from txlog.operator.act import Failed, act
from txlog.operator.actions import Action, Apply
from txlog.operator.build import Around, Object
from txlog.operator.build.masters import accepted
from txlog.operator.diagnose import Situation, diagnose
from txlog.operator.events import told_of, transitions
from txlog.operator.kube import ApiError, Kube
from txlog.operator.metrics import Metrics
from txlog.operator.names import bounded
from txlog.operator.observe import observe
from txlog.operator.plan import make_plan
from txlog.operator.refusing import read
from txlog.operator.securing import Access, Securing

log = logging.getLogger("txlog.operator")


@dataclass(frozen=True)
class Pace:
    """Seconds between two turns when nobody wakes it: while all is well, while something is not, and at least."""

    quiet: float = 3.0
    busy: float = 1.0
    least: float = 0.2


@dataclass(frozen=True)
class Settings:
    """Of an operator. ``image``: of what it makes where a manifest names none; ``pipeline_account``: by which Spark's
    driver may make executors."""

    image: str
    pull_policy: str = "IfNotPresent"
    pace: Pace = Pace()
    pipeline_account: str | None = None


CONFLICT: Final = 409


class Keeper:
    """Of one resource, by namespace and name."""

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        name: str,
        settings: Settings,
        metrics: Metrics,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._name = name
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._securing = Securing(kube)
        self._wake = asyncio.Event()
        self._said: list[str] = []
        self.turns = 0

    def wake(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        """Until it is cancelled. No error ends it: the next turn begins with what is there then."""
        while True:
            self._wake.clear()
            began = time.monotonic()
            pause = self._settings.pace.busy
            try:
                if await self.turn():
                    pause = self._settings.pace.quiet
                self._metrics.turned(self._namespace, self._name, time.monotonic() - began, "done")
            except ApiError as error:
                self._metrics.turned(self._namespace, self._name, time.monotonic() - began, "failed")
                log.warning("%s/%s: %s", self._namespace, self._name, error)
            except Exception:  # a fault of ours; the next turn begins with what is there
                self._metrics.turned(self._namespace, self._name, time.monotonic() - began, "failed")
                log.exception("%s/%s: a turn broke off", self._namespace, self._name)
            await asyncio.sleep(self._settings.pace.least)
            try:
                await asyncio.wait_for(self._wake.wait(), pause)
            except TimeoutError:
                continue

    async def turn(self) -> bool:
        """One look, and what follows from it. Returns whether all is well, so that the next may take its time."""
        self.turns += 1
        found = await self._kube.get("TxLogCluster", self._namespace, self._name)
        if found is None or "deletionTimestamp" in found["metadata"]:
            return True  # what was made of it is collected with it
        before = status.read_status(found)
        cluster, access, problems = await self._read(found)
        if cluster is None:
            return await self._say_invalid(found, before, problems)
        seen = await observe(self._kube, cluster, access, self._clock)
        situation = diagnose(seen)
        now = status.make_status(cluster, _generation(found), seen, situation, problems, before)
        around = Around(
            self._settings.image,
            self._settings.pull_policy,
            owner=found["metadata"]["uid"],
            last_seen=status.last_seen(now),
            pipeline_account=self._settings.pipeline_account,
        )
        # What was seen is kept before anything is done about it.
        await self._write(found, before, now)
        plan = make_plan(cluster, around, seen, situation)
        done, failed = await act(self._kube, self._namespace, plan, access.knowing(seen.names))
        await self._tell(found, before, now, done, failed)
        self._metrics.told(self._namespace, self._name, now)
        return self._is_well(now, situation, done, failed)

    def _is_well(
        self, now: ClusterStatus, situation: Situation, done: Sequence[Action], failed: Sequence[Failed]
    ) -> bool:
        ready = next(each.status for each in now.conditions if each.type == "Ready")
        return ready == "True" and situation is Situation.JOINED and not done and not failed

    async def _read(self, found: Object) -> tuple[TxLogCluster | None, Access, list[str]]:
        """What is kept true: the newest manifest, or, while something is wrong with it or with its Secrets, the last
        one that was right; how its masters are spoken with; and what is wrong."""
        cluster, problems = read(found, self._settings.pipeline_account)
        if cluster is not None:
            access, problems = await self._securing.look(cluster)
            if not problems:
                return cluster, access, problems
        cluster = await self._accepted()
        if cluster is None:
            return None, Access(), problems
        access, _ = await self._securing.look(cluster)
        return cluster, access, problems

    async def _accepted(self) -> TxLogCluster | None:
        """The last valid one of this resource."""
        name = bounded(f"{self._name}-masters")
        return accepted(await self._kube.get("ConfigMap", self._namespace, name))

    async def _say_invalid(self, found: Object, before: ClusterStatus, problems: Sequence[str]) -> bool:
        generation, now = _generation(found), self._clock()
        told = status.conditions(conditions.invalid(problems), before.conditions, generation, now)
        new = before.model_copy(update={"observed_generation": generation, "conditions": told})
        await self._write(found, before, new)
        await self._tell(found, before, new, [], [])
        return True

    async def _write(self, found: Object, before: ClusterStatus, now: ClusterStatus) -> None:
        if now == before and "status" in found:
            return
        try:
            await self._kube.put_status(found, status.written(now))
        except ApiError as error:
            if error.code != CONFLICT:
                raise
            self.wake()  # the resource was changed meanwhile: the next turn sees it

    async def _tell(
        self,
        found: Object,
        before: ClusterStatus,
        now: ClusterStatus,
        done: Sequence[Action],
        failed: Sequence[Failed],
    ) -> None:
        """Each decision and each change once, as an Event."""
        told = [*transitions(before, now), *told_of([each for each in done if not isinstance(each, Apply)], failed)]
        new = [each for each in told if each.message not in self._said]
        self._said = [each.message for each in told]
        for each in new:
            try:
                await self._kube.create(each.about(found, self._clock()))
            except ApiError as error:
                if error.code == 403:
                    raise
                log.warning("an Event was not taken: %s", error)


def _generation(found: Object) -> int:
    generation: Any = found["metadata"].get("generation", 0)
    return int(generation)
