"""Whose an object is: the operator changes and deletes its own alone. Pure.

An object belongs to a cluster when it names the cluster as an owner, by uid. One without a controller belongs to it
when it carries all labels that the operator would give it: its owner was removed with ``--cascade=orphan``, or a backup
of the namespace was restored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from txlog.model.errors import TxLogError
from txlog_operator.specs.common import FIELD_MANAGER, KubeObject

MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"


class ForeignObject(TxLogError):
    """An object of this name exists and belongs to another owner; the operator leaves it as it is."""


def owner_uids(found: KubeObject) -> set[str]:
    """The uids of the owners of an object."""
    return {str(each.get("uid")) for each in found["metadata"].get("ownerReferences", ())}


def foreign_owner(found: KubeObject, wanted: KubeObject) -> str:
    """Who owns ``found``, in words; empty when it is the object that ``wanted`` describes."""
    if owner_uids(found) & owner_uids(wanted):
        return ""
    controller = next((each for each in found["metadata"].get("ownerReferences", ()) if each.get("controller")), None)
    if controller is not None:
        return f"it belongs to {controller.get('kind')} {controller.get('name')} (uid {controller.get('uid')})"
    labels: Mapping[str, Any] = found["metadata"].get("labels") or {}
    if wanted["metadata"].get("labels", {}).items() <= labels.items():
        return ""
    return f"it carries no label {MANAGED_BY_LABEL}={FIELD_MANAGER} of this cluster, and no owner"


def is_owned(found: KubeObject, owner_uid: str | None) -> bool:
    """Whether an object with the labels of a cluster belongs to it. Without ``owner_uid`` the labels decide."""
    controller = next((each for each in found["metadata"].get("ownerReferences", ()) if each.get("controller")), None)
    return owner_uid is None or controller is None or controller.get("uid") == owner_uid


def is_being_deleted(found: KubeObject | None) -> bool:
    """Whether an object is there, and will not be soon."""
    return found is not None and "deletionTimestamp" in found["metadata"]


def is_made_by_operator(found: KubeObject, owner_uid: str | None) -> bool:
    """As :func:`is_owned`, of an object whose labels people give to their own, too: a Job with those of a backup is
    let through to the masters."""
    labels: Mapping[str, Any] = found["metadata"].get("labels") or {}
    return labels.get(MANAGED_BY_LABEL) == FIELD_MANAGER and is_owned(found, owner_uid)


def refusal(found: KubeObject, wanted: KubeObject) -> ForeignObject | None:
    """The error for applying ``wanted`` over ``found``; None when that is allowed."""
    why = foreign_owner(found, wanted)
    if not why:
        return None
    return ForeignObject(
        f"{wanted['kind']} {wanted['metadata']['name']} exists, and is not the operator's: {why}; it stays as it is."
        " Rename or remove it, or give the TxLogCluster another name"
    )
