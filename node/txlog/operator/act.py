"""Carrying out a plan. What fails is said and left to the next turn: everything here can be done again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from txlog.model.errors import ChangePending, TxLogError
from txlog.operator.actions import Action, Apply, NameMaster, Prove, Remove, Report, Restart, Say, TakeOut, Tell
from txlog.operator.kube import Kube
from txlog.operator.securing import Access

log = logging.getLogger("txlog.operator")

ANSWER_S: Final = 5.0
CHANGE_S: Final = 30.0
"""A change of the configuration waits for its place in the log."""

Failed = tuple[Action, TxLogError]


async def act(
    kube: Kube, namespace: str, actions: Sequence[Action], access: Access
) -> tuple[list[Action], list[Failed]]:
    """What was done, and what was not and why. Masters are told by ``access``."""
    done: list[Action] = []
    failed: list[Failed] = []
    for action in actions:
        try:
            await _do(kube, namespace, action, access)
            done.append(action)
            log.info("%s", action)
        except ChangePending as wait:
            log.info("%s: %s", action, wait)
        except TxLogError as wrong:
            failed.append((action, wrong))
            log.warning("%s: %s", action, wrong)
    return done, failed


async def _do(kube: Kube, namespace: str, action: Action, access: Access) -> None:
    match action:
        case Apply():
            await kube.apply(action.wanted)
        case Remove():
            await kube.delete(action.kind, namespace, action.name, action.uid)
        case Restart():
            await kube.delete("Pod", namespace, action.pod, action.uid)
        case Say():
            await kube.put_status(action.found, action.status)
        case _:
            await asyncio.to_thread(_tell, action, access)


def _tell(action: Tell | Prove | NameMaster | TakeOut | Report, access: Access) -> None:
    wait_s = CHANGE_S if isinstance(action, NameMaster | TakeOut) else ANSWER_S
    with access.client(action.url, wait_s) as master:
        match action:
            case Tell():
                master.change_settings(dict(action.changes))
            case Prove():
                master.report_down(action.ended.node, action.ended.birth, action.ended.start)
            case NameMaster():
                master.add_peer(action.node, action.data_center, [action.address], action.weight)
            case TakeOut():
                master.remove_peer(action.node)
            case Report():
                master.fail_duty(action.duty, action.message)
