"""Performs the actions of a plan. A failed action is logged and left to a later reconcile: every action is
idempotent."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from txlog.model.errors import ChangePending, TxLogError
from txlog.supervision.retry_delay import next_delay_s
from txlog_operator.actions import (
    AddPeer,
    ApplyObject,
    ChangeGraphRules,
    ChangeMasterSettings,
    DeleteObject,
    FailedAction,
    GrowVolume,
    PatchStatus,
    PlanAction,
    RemovePeer,
    ReplaceStatefulSet,
    ReportDown,
    ReportDutyFailed,
    RestartMaster,
)
from txlog_operator.cluster_secrets import MasterAccess
from txlog_operator.drift import AppliedObjects
from txlog_operator.kube_client import HTTP_CONFLICT, HTTP_NOT_FOUND, ApiError, KubeClient
from txlog_operator.object_ownership import ForeignObject, refusal
from txlog_operator.specs.common import KubeObject

log = logging.getLogger("txlog_operator")

REQUEST_TIMEOUT_S: Final = 5.0
CONFIGURATION_CHANGE_TIMEOUT_S: Final = 30.0
"""Time-out of a configuration change, which waits for its index in the log."""
REFUSED_RETRY_S: Final = (1.0, 60.0)
"""Before an action that the API server refused is tried again: at first, and at most."""


class RefusedActions:
    """Actions that the API server refused or failed at, and when each is due again. Forgotten at a restart."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._refused: dict[PlanActionKey, tuple[float, float, FailedAction]] = {}

    def waiting(self, action: PlanAction) -> FailedAction | None:
        """The former refusal of this very action, while it is not due again."""
        entry = self._refused.get(_key_of(action))
        same = entry is not None and entry[2].action == action
        return entry[2] if entry is not None and same and self._clock() < entry[0] else None

    def record(self, failed: FailedAction) -> None:
        """Delays the next attempt, twice as long as the last time."""
        key = _key_of(failed.action)
        before = self._refused.get(key)
        last_s = before[1] if before is not None and before[2].action == failed.action else 0.0
        delay_s = next_delay_s(last_s, REFUSED_RETRY_S)
        self._refused[key] = (self._clock() + delay_s, delay_s, failed)

    def keep(self, plan: Sequence[PlanAction], failed: Sequence[FailedAction]) -> None:
        """Forgets what is planned no more, and what did not fail again."""
        keys = {_key_of(each.action) for each in failed} & {_key_of(each) for each in plan}
        self._refused = {key: entry for key, entry in self._refused.items() if key in keys}


PlanActionKey = tuple[str, str, str]


def _key_of(action: PlanAction) -> PlanActionKey:
    match action:
        case ApplyObject():
            return ("apply", action.desired["kind"], action.desired["metadata"]["name"])
        case DeleteObject():
            return ("delete", action.kind, action.name)
        case _:
            return (type(action).__name__, "", str(action))


class PlanApplier:
    """Performs the plans of one cluster. ``applied`` remembers what the API server made of each apply."""

    def __init__(self, kube: KubeClient, namespace: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._kube = kube
        self._namespace = namespace
        self._refused = RefusedActions(clock)
        self._logged: set[str] = set()
        """What the last plan logged of actions that failed: the same again is no news."""
        self.applied = AppliedObjects()

    async def apply_plan(
        self, actions: Sequence[PlanAction], access: MasterAccess
    ) -> tuple[list[PlanAction], list[FailedAction]]:
        """The actions that succeeded, and those that failed with their errors. ``access`` holds the credentials for the
        masters. A refused object is tried again with growing delays, and counts as failed meanwhile."""
        done: list[PlanAction] = []
        failed: list[FailedAction] = []
        now: set[str] = set()
        for action in actions:
            if isinstance(action, PatchStatus) and action.only_after is not None and action.only_after not in done:
                continue
            if isinstance(action, ApplyObject) and _is_superseded(action, failed):
                continue
            waiting = self._refused.waiting(action)
            if waiting is not None:
                failed.append(waiting)
                continue
            try:
                await self._perform(action, access)
                done.append(action)
                log.info("%s", action)
            except ChangePending as wait:
                self._log_once(logging.INFO, f"{action}: {wait}", now)
            except TxLogError as wrong:
                failed.append(FailedAction(action, wrong))
                self._log_once(logging.WARNING, f"{action}: {wrong}", now)
                if _is_refusal(action, wrong):
                    self._refused.record(failed[-1])
        self._refused.keep(actions, failed)
        self._logged = now | {f"{each.action}: {each.error}" for each in failed}
        return done, failed

    def _log_once(self, level: int, text: str, now: set[str]) -> None:
        if text not in self._logged:
            log.log(level, "%s", text)
        now.add(text)

    async def _perform(self, action: PlanAction, access: MasterAccess) -> None:
        match action:
            case ApplyObject():
                self.applied.record(action.desired, await apply_own(self._kube, action.desired))
            case DeleteObject():
                await self._kube.delete(action.kind, self._namespace, action.name, action.uid)
            case GrowVolume():
                await self._kube.apply(claim_of_size(self._namespace, action))
            case ReplaceStatefulSet():
                await self._kube.delete("StatefulSet", self._namespace, action.name, action.uid, orphan=True)
            case RestartMaster():
                await self._kube.delete("Pod", self._namespace, action.pod, action.uid)
            case PatchStatus():
                await self._kube.replace_status(action.target, action.status)
            case _:
                await asyncio.to_thread(_request_master, action, access)


def claim_of_size(namespace: str, action: GrowVolume) -> KubeObject:
    """A claim with nothing but its requested size: all else of it belongs to the controller that made it."""
    meta = {"name": action.name, "namespace": namespace} | ({"uid": action.uid} if action.uid is not None else {})
    spec = {"resources": {"requests": {"storage": action.size}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}


def _is_superseded(action: ApplyObject, failed: Sequence[FailedAction]) -> bool:
    """Whether the resource for which this object is made has changed, or is gone."""
    codes = [each.error.code for each in failed if each.action is action.recorded and isinstance(each.error, ApiError)]
    return any(code in (HTTP_NOT_FOUND, HTTP_CONFLICT) for code in codes)


def _is_refusal(action: PlanAction, wrong: TxLogError) -> bool:
    """Whether the next attempt will fail as well, or may take long: the API server refused a write, a webhook is down,
    or no answer came. A status is always written again: it records what has happened."""
    if isinstance(action, PatchStatus):
        return False
    return isinstance(wrong, ForeignObject | ApiError)


async def apply_own(kube: KubeClient, wanted: KubeObject) -> KubeObject:
    """Applies an object of the operator. :class:`ForeignObject` when another one has its name, also when it appears in
    this moment: then the API server finds that the two managers disagree, or that the uid is another."""
    meta = wanted["metadata"]
    found = await kube.get_live(wanted["kind"], meta["namespace"], meta["name"])
    if found is None:
        try:
            return await kube.apply(wanted, force=False)
        except ApiError as error:
            if error.code != HTTP_CONFLICT:
                raise
            what = f"{wanted['kind']} {meta['name']}"
            raise ForeignObject(f"{what} has just appeared, and is not the operator's: {error}") from None
    foreign = refusal(found, wanted)
    if foreign is not None:
        raise foreign
    return await kube.apply({**wanted, "metadata": {**meta, "uid": found["metadata"]["uid"]}})


def failed_in_kubernetes(failed: Sequence[FailedAction]) -> list[FailedAction]:
    """Without what another writer was faster with: the next reconcile reads it and decides again."""
    return [each for each in failed if not (isinstance(each.error, ApiError) and each.error.code == HTTP_CONFLICT)]


def _request_master(
    action: ChangeMasterSettings | ReportDown | AddPeer | RemovePeer | ChangeGraphRules | ReportDutyFailed,
    access: MasterAccess,
) -> None:
    is_long = isinstance(action, AddPeer | RemovePeer | ChangeGraphRules)
    wait_s = CONFIGURATION_CHANGE_TIMEOUT_S if is_long else REQUEST_TIMEOUT_S
    with access.client(action.url, wait_s) as master:
        match action:
            case ChangeMasterSettings():
                master.change_settings(dict(action.changes))
            case ReportDown():
                master.report_down(action.process.node, action.process.birth, action.process.start)
            case AddPeer():
                master.add_peer(action.node, action.data_center, [action.address], action.weight)
            case RemovePeer():
                master.remove_peer(action.node)
            case ChangeGraphRules():
                master.configure({"graphs": json.loads(action.rules)})
            case ReportDutyFailed():
                master.fail_duty(action.duty, action.message)
