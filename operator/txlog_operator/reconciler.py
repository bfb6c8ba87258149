"""Reconciles one cluster: observe, diagnose, plan, apply, write the status. Runs on every change, and periodically.

It keeps no essential state in memory: a new reconciler continues where a killed one stopped.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from txlog.config.cluster import TxLogCluster
from txlog.config.cluster_status import ClusterStatus
from txlog_operator import conditions, reconcile_outcome, status_writer
from txlog_operator.actions import ApplyObject, FailedAction, PlanAction
from txlog_operator.cluster_phase import ClusterPhase, cluster_phase_of
from txlog_operator.cluster_secrets import ClusterSecrets, MasterAccess
from txlog_operator.hibernation import HIBERNATED
from txlog_operator.kube_client import HTTP_CONFLICT, HTTP_FORBIDDEN, ApiError, KubeClient
from txlog_operator.kubernetes_events import action_events, transition_events
from txlog_operator.manifest_validation import read_manifest, with_pause_of
from txlog_operator.metrics import OperatorMetrics
from txlog_operator.object_names import bounded_name
from txlog_operator.observation import ClusterObservation
from txlog_operator.observe import observe
from txlog_operator.plan import make_plan, pending_changes
from txlog_operator.plan_applier import PlanApplier, failed_in_kubernetes
from txlog_operator.reconcile_traces import ReconcileTrace, ReconcileTraces
from txlog_operator.specs import BuildContext, KubeObject, desired_objects
from txlog_operator.specs.masters import accepted_manifest
from txlog_operator.status_reader import read_cluster_status
from txlog_operator.volume_growth import growing_volumes

log = logging.getLogger("txlog_operator")


@dataclass(frozen=True)
class ReconcileInterval:
    """Seconds between two reconciles without a wake-up: when all is well, when something is not, and the minimum."""

    idle_s: float = 3.0
    busy_s: float = 1.0
    min_s: float = 0.2


@dataclass(frozen=True)
class OperatorSettings:
    """Settings of an operator. ``build``: of what it makes for every cluster."""

    build: BuildContext
    interval: ReconcileInterval = ReconcileInterval()


STATUS_REFUSED: Final = (400, 413, 422)
"""Its content is not accepted: an unknown value, or too much."""
JITTER: Final = (0.8, 1.2)
"""By this the pauses vary, so that the clusters of an operator do not reconcile together."""
START_SPREAD_S: Final = 1.0
"""Within this time the first reconciles of an operator begin, and not all at once."""


class Reconciler:
    """Reconciles one resource, given by namespace and name."""

    def __init__(
        self,
        kube: KubeClient,
        namespace: str,
        name: str,
        settings: OperatorSettings,
        metrics: OperatorMetrics,
        clock: Callable[[], float] = time.time,
        traces: ReconcileTraces | None = None,
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._name = name
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._traces = traces
        self._secrets = ClusterSecrets(kube)
        self._applier = PlanApplier(kube, namespace)
        self._wake_event = asyncio.Event()
        self._emitted_messages: list[str] = []
        self._last_error = ""
        self._last_refusal = ""
        self.reconcile_count = 0

    def wake(self) -> None:
        """Makes the next reconcile start now."""
        self._wake_event.set()

    async def run(self) -> None:
        """Reconciles until it is cancelled. No error ends it: the next reconcile starts from the state it finds
        then."""
        await asyncio.sleep(random.uniform(0.0, START_SPREAD_S))
        while True:
            self._wake_event.clear()
            began = time.monotonic()
            pause = self._settings.interval.busy_s
            try:
                if await self.reconcile():
                    pause = self._settings.interval.idle_s
                self._last_error = ""
                self._metrics.observe_reconcile(self._namespace, self._name, time.monotonic() - began, "done")
            except Exception as error:  # an ApiError, or a bug; the next reconcile starts from the state it finds
                self._metrics.observe_reconcile(self._namespace, self._name, time.monotonic() - began, "failed")
                if repr(error) != self._last_error:
                    is_bug = not isinstance(error, ApiError)
                    log.warning("%s/%s: %s", self._namespace, self._name, error, exc_info=is_bug)
                self._last_error = repr(error)
                try:
                    await self._report_broken_off(error)
                except Exception:  # a bug in the report; without this, nothing would look after the cluster again
                    log.exception("%s/%s: the failure is not in its status", self._namespace, self._name)
            await asyncio.sleep(self._settings.interval.min_s)
            try:
                await asyncio.wait_for(self._wake_event.wait(), pause * random.uniform(*JITTER))
            except TimeoutError:
                continue

    async def reconcile(self) -> bool:
        """One observation and the actions that follow. Returns whether all is well, so that the next may wait
        longer."""
        self.reconcile_count += 1
        trace = ReconcileTrace()
        try:
            return await self._reconcile(trace)
        finally:
            if self._traces is not None:
                self._traces.record(self._namespace, self._name, trace)

    async def _reconcile(self, trace: ReconcileTrace) -> bool:
        found = await self._kube.get("TxLogCluster", self._namespace, self._name)
        if found is None:  # its deletion may have escaped a watch that was broken
            self._metrics.forget(self._namespace, self._name)
            return True
        if "deletionTimestamp" in found["metadata"]:
            return True  # Kubernetes collects the owned objects
        before = read_cluster_status(found)
        with trace.step("read"):
            cluster, access, problems = await self._read_spec(found)
        if cluster is None:
            return await self._report_invalid(found, before, problems)
        trace.traces = cluster.spec.telemetry.traces
        with trace.step("observe"):
            seen = await observe(self._kube, cluster, access, self._clock)
        seen = replace(seen, unchanged=self._applier.applied.unchanged(seen.objects))
        situation, generation = cluster_phase_of(seen), _generation(found)
        now = status_writer.make_status(cluster, generation, seen, situation, problems, before)
        around = replace(
            self._settings.build,
            owner_uid=found["metadata"]["uid"],
            last_seen=status_writer.last_seen_incarnations(now),
            graph_rules=before.graph_rules,
        )
        # The status is written before any action, so that a crash loses no observation.
        with trace.step("status"):
            written, stored = await self._write_before_actions(found, before, now)
        if written is None:
            return False  # the resource has changed, maybe its manifest: nothing is done by the old one
        with trace.step("plan"):
            plan = make_plan(cluster, around, seen, situation)
        with trace.step("apply") as applying:
            done, failed = await self._applier.apply_plan(plan, access.with_hosts(seen.tls_hosts))
            applying.attributes["actions"] = "; ".join(map(str, done))
            applying.error = "; ".join(f"{each.action}: {each.error}" for each in failed)
        mine = _own_objects(cluster, around, seen)
        outcome = reconcile_outcome.check_plan(
            failed_in_kubernetes(failed),
            cluster.spec.paused,
            mine,
            problems,
            growing_volumes(cluster, seen),
            pending_changes(cluster, seen, before.graph_rules),
        )
        after = status_writer.make_status(cluster, generation, seen, situation, problems, before, outcome)
        self._metrics.observe_status(self._namespace, self._name, after)
        with trace.step("report"):
            await self._write_status(written, stored, after)
            await self._emit_events(found, before, after, done, failed)
        trace.whole.attributes |= {"generation": generation, "phase": situation.value, "state": after.state}
        return self._is_stable(after, situation, done, failed)

    def _is_stable(
        self, now: ClusterStatus, situation: ClusterPhase, done: Sequence[PlanAction], failed: Sequence[FailedAction]
    ) -> bool:
        ready = next(each.status for each in now.conditions if each.type == "Ready")
        settled = now.state == HIBERNATED or (ready == "True" and situation is ClusterPhase.JOINED)
        return settled and not done and not failed

    async def _read_spec(self, found: KubeObject) -> tuple[TxLogCluster | None, MasterAccess, list[str]]:
        """The manifest in effect, the credentials for its masters, and the problems. While the newest manifest or its
        Secrets are invalid, the last valid manifest stays in effect."""
        cluster, problems = read_manifest(found, self._settings.build.pipeline_account)
        if cluster is not None:
            access, problems = await self._secrets.read_access(cluster)
            if not problems:
                return cluster, access, problems
        cluster = await self._last_valid_spec()
        if cluster is None:
            return None, MasterAccess(), problems
        cluster = with_pause_of(cluster, found)
        access, _ = await self._secrets.read_access(cluster)
        return cluster, access, problems

    async def _last_valid_spec(self) -> TxLogCluster | None:
        """The last valid manifest of this resource. A ConfigMap that a backup tool restored from another namespace
        names that one: the operator would command the masters there."""
        name = bounded_name(f"{self._name}-masters")
        found = accepted_manifest(await self._kube.get("ConfigMap", self._namespace, name))
        is_own = found is not None and (found.metadata.namespace, found.metadata.name) == (self._namespace, self._name)
        return found if is_own else None

    async def _report_invalid(self, found: KubeObject, before: ClusterStatus, problems: Sequence[str]) -> bool:
        generation, now = _generation(found), self._clock()
        merged = status_writer.merge_conditions(
            conditions.invalid_spec_checks(problems), before.conditions, generation, now
        )
        new = before.model_copy(update={"conditions": merged})
        await self._write_status(found, before, new)
        await self._emit_events(found, before, new, [], [])
        return True

    async def _report_broken_off(self, error: Exception) -> None:
        """Says in the status that reconciles break off: what it says besides may be long past. Of a server that does
        not answer, nothing can be written."""
        if isinstance(error, ApiError) and error.code in (0, HTTP_CONFLICT):
            return
        try:
            found = await self._kube.get_live("TxLogCluster", self._namespace, self._name)
            if found is None:
                return
            before, check = read_cluster_status(found), reconcile_outcome.check_broken_off(error)
            now = status_writer.with_failure(before, check, _generation(found), self._clock())
            await self._write_status(found, before, now)
            await self._emit_events(found, before, now, [], [])
            self._metrics.observe_status(self._namespace, self._name, now)
        except ApiError as wrong:
            if str(wrong) != self._last_refusal:
                log.warning("%s/%s: its status was not taken: %s", self._namespace, self._name, wrong)
            self._last_refusal = str(wrong)

    async def _write_before_actions(
        self, found: KubeObject, before: ClusterStatus, now: ClusterStatus
    ) -> tuple[KubeObject | None, ClusterStatus]:
        """The resource after the write, None where it has changed meanwhile, and the status that it has. A status that
        the API server does not accept stops no action: where the definitions are older than the operator, a split still
        gets its backup. The write after the actions fails again, and the reconcile with it."""
        try:
            return await self._write_status(found, before, now), now
        except ApiError as error:
            if error.code not in STATUS_REFUSED:
                raise
            return found, before

    async def _write_status(self, found: KubeObject, before: ClusterStatus, now: ClusterStatus) -> KubeObject | None:
        """The resource as it is after the write; None where it has changed meanwhile. Then it is read again, and the
        next reconcile begins at once."""
        if now == before and "status" in found:
            return found
        try:
            return await self._kube.replace_status(found, status_writer.status_to_json(now))
        except ApiError as error:
            if error.code != HTTP_CONFLICT:
                raise
            await self._kube.refresh("TxLogCluster", self._namespace, self._name)
            self.wake()
            return None

    async def _emit_events(
        self,
        found: KubeObject,
        before: ClusterStatus,
        now: ClusterStatus,
        done: Sequence[PlanAction],
        failed: Sequence[FailedAction],
    ) -> None:
        """Emits an Event for each decision and each change, once."""
        events = [
            *transition_events(before, now),
            *action_events([each for each in done if not isinstance(each, ApplyObject)], failed),
        ]
        new = [each for each in events if each.message not in self._emitted_messages]
        self._emitted_messages = [each.message for each in events]
        for each in new:
            try:
                await self._kube.create(each.to_object(found, self._clock()))
            except ApiError as error:
                if error.code == HTTP_FORBIDDEN:
                    raise
                log.warning("an Event was not taken: %s", error)


def _own_objects(cluster: TxLogCluster, around: BuildContext, seen: ClusterObservation) -> list[KubeObject]:
    """The cluster's objects as they were observed."""
    keys = [(each["kind"], str(each["metadata"]["name"])) for each in desired_objects(cluster, around)]
    return [seen.objects[key] for key in keys if key in seen.objects]


def _generation(found: KubeObject) -> int:
    generation: Any = found["metadata"].get("generation", 0)
    return int(generation)
