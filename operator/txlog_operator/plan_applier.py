"""Performs the actions of a plan. A failed action is logged and left to the next reconcile: every action is
idempotent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from txlog.model.errors import ChangePending, TxLogError
from txlog_operator.actions import (
    AddPeer,
    ApplyObject,
    ChangeMasterSettings,
    DeleteObject,
    PatchStatus,
    PlanAction,
    RemovePeer,
    ReportDown,
    ReportDutyFailed,
    RestartMaster,
)
from txlog_operator.cluster_secrets import MasterAccess
from txlog_operator.kube_client import KubeClient

log = logging.getLogger("txlog_operator")

REQUEST_TIMEOUT_S: Final = 5.0
CONFIGURATION_CHANGE_TIMEOUT_S: Final = 30.0
"""Time-out of a configuration change, which waits for its index in the log."""

FailedAction = tuple[PlanAction, TxLogError]


async def apply_plan(
    kube: KubeClient, namespace: str, actions: Sequence[PlanAction], access: MasterAccess
) -> tuple[list[PlanAction], list[FailedAction]]:
    """The actions that succeeded, and those that failed with their errors. ``access`` holds the credentials for the
    masters."""
    done: list[PlanAction] = []
    failed: list[FailedAction] = []
    for action in actions:
        try:
            await _perform(kube, namespace, action, access)
            done.append(action)
            log.info("%s", action)
        except ChangePending as wait:
            log.info("%s: %s", action, wait)
        except TxLogError as wrong:
            failed.append((action, wrong))
            log.warning("%s: %s", action, wrong)
    return done, failed


async def _perform(kube: KubeClient, namespace: str, action: PlanAction, access: MasterAccess) -> None:
    match action:
        case ApplyObject():
            await kube.apply(action.desired)
        case DeleteObject():
            await kube.delete(action.kind, namespace, action.name, action.uid)
        case RestartMaster():
            await kube.delete("Pod", namespace, action.pod, action.uid)
        case PatchStatus():
            await kube.replace_status(action.target, action.status)
        case _:
            await asyncio.to_thread(_request_master, action, access)


def _request_master(
    action: ChangeMasterSettings | ReportDown | AddPeer | RemovePeer | ReportDutyFailed, access: MasterAccess
) -> None:
    wait_s = CONFIGURATION_CHANGE_TIMEOUT_S if isinstance(action, AddPeer | RemovePeer) else REQUEST_TIMEOUT_S
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
            case ReportDutyFailed():
                master.fail_duty(action.duty, action.message)
