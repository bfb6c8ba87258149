"""Reads the statuses that an operator wrote, also one of another version. Pure.

Versions meet when an operator is rolled back, and where several operators share the definitions. What this version does
not know is left out; what it knows counts, so that nothing is forgotten and no order is carried out again.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from txlog.config.backup_resources import JobStatus
from txlog.config.cluster_status import ClusterStatus
from txlog_operator.specs import KubeObject

M = TypeVar("M", bound=BaseModel)
UNREADABLE: Final = "its status is of another version of the operator"


def read_cluster_status(found: KubeObject) -> ClusterStatus:
    """The status of a TxLogCluster as last written, without the fields that cannot be read."""
    return _read(ClusterStatus, found.get("status") or {})[0]


def read_job_status(work: KubeObject) -> JobStatus:
    """The status of a backup, restore or rehearsal. Where its state cannot be read it counts as failed: it may have
    ended, and a restore must not begin again."""
    status, unreadable = _read(JobStatus, work.get("status") or {})
    if "state" in unreadable:
        return status.model_copy(update={"state": "Failed", "message": UNREADABLE})
    return status


def _read(model: type[M], written: dict[str, Any]) -> tuple[M, set[str]]:
    """The value, and the names of the fields that were left out. Every field has a default."""
    try:
        return model.model_validate(written, extra="ignore"), set()
    except ValidationError as wrong:
        bad = {str(each["loc"][0]) for each in wrong.errors()}
        rest = {name: value for name, value in written.items() if name not in bad}
        return model.model_validate(rest, extra="ignore"), bad
