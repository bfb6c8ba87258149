"""The condition ``Reconciled``: whether the operator could do what the manifest specifies, and if not, why. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from txlog.config.cluster_status import ClusterStatus, ConditionType
from txlog.model.errors import NoQuorumLeft, TxLogError
from txlog_operator.actions import FailedAction
from txlog_operator.condition_check import ConditionCheck, join_first
from txlog_operator.drift import foreign_managers
from txlog_operator.object_ownership import ForeignObject
from txlog_operator.specs import KubeObject

PAUSED: Final = "Paused"
_REASON_BY_CODE: Final = {0: "NotReached", 401: "Forbidden", 403: "Forbidden", 429: "TooManyRequests"}


def check_before(before: ClusterStatus, generation: int) -> ConditionCheck:
    """Before the actions of a reconcile: the last outcome, unless the manifest is a newer one."""
    kind = ConditionType.RECONCILED
    last = next((each for each in before.conditions if each.type == kind), None)
    if last is None or last.observed_generation != generation:
        return ConditionCheck(kind, "Unknown", "Pending", "the manifest has changed, and is being carried out")
    return ConditionCheck(kind, last.status, last.reason, last.message)


def check_plan(
    failed: Sequence[FailedAction],
    paused: bool,
    mine: Sequence[KubeObject],
    problems: Sequence[str],
    growing: Sequence[str] = (),
    pending: Sequence[str] = (),
) -> ConditionCheck:
    """After the actions. ``mine``: the objects as they are, for fields that others added to them; ``problems``: what is
    wrong with the newest manifest, which is then not the one that was carried out; ``growing``: volumes that do not
    have their size yet; ``pending``: what masters do not have yet."""
    kind = ConditionType.RECONCILED
    if paused:
        return ConditionCheck(kind, "True", PAUSED, "spec.paused: nothing is changed, also not put right")
    if failed:
        text = join_first([f"{each.action}: {each.error}" for each in failed])
        return ConditionCheck(kind, "False", failure_reason(failed[0].error), text)
    if growing:
        return ConditionCheck(kind, "Unknown", "VolumesGrow", f"volumes grow: {join_first(growing)}")
    if pending:
        return ConditionCheck(kind, "Unknown", "ChangesPending", f"not in effect yet: {'; '.join(pending)}")
    if problems:
        return ConditionCheck(kind, "True", "LastValid", "the last valid manifest is carried out; see SpecValid")
    others = [
        f"{each['kind']} {each['metadata']['name']} ({', '.join(by)})"
        for each in mine
        if (by := foreign_managers(each))
    ]
    if others:
        text = f"everything is applied; fields that others added are left as they are: {', '.join(others)}"
        return ConditionCheck(kind, "True", "AllApplied", text)
    return ConditionCheck(kind, "True", "AllApplied", "everything that the manifest specifies is applied")


def check_broken_off(error: Exception) -> ConditionCheck:
    """After a reconcile that could not even observe."""
    return ConditionCheck(
        ConditionType.RECONCILED, "False", failure_reason(error), f"the reconcile broke off: {error or repr(error)}"
    )


def failure_reason(error: Exception) -> str:
    """One word for an error."""
    if isinstance(error, ForeignObject):
        return "ForeignObject"
    if isinstance(error, NoQuorumLeft):
        return "NoQuorumLeft"
    code: int | None = getattr(error, "code", None)
    if not isinstance(error, TxLogError):
        return "InternalError"
    if code is None:
        return "MasterRefused"
    return _REASON_BY_CODE.get(code, "Refused" if code < 500 else "ServerError")
