"""Events: the operator's decisions as ``kubectl describe`` shows them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from txlog.config.cluster_status import ClusterStatus
from txlog_operator.actions import FailedAction, PlanAction
from txlog_operator.job_attempts import format_time
from txlog_operator.object_names import bounded_name, short_hash
from txlog_operator.specs.common import FIELD_MANAGER, KubeObject


@dataclass(frozen=True)
class KubernetesEvent:
    """One Event about a cluster, before it becomes an object."""

    kind: Literal["Normal", "Warning"]
    reason: str
    message: str

    def to_object(self, found: KubeObject, now: float) -> KubeObject:
        """The Event object about ``found``; ``now`` in seconds since 1970."""
        meta, at = found["metadata"], format_time(now)
        name = bounded_name(f"{meta['name']}.{short_hash([self.reason, self.message, now])}", 200)
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": meta["namespace"]},
            "involvedObject": {
                "apiVersion": found["apiVersion"],
                "kind": found["kind"],
                "name": meta["name"],
                "namespace": meta["namespace"],
                "uid": meta["uid"],
                "resourceVersion": meta.get("resourceVersion", ""),
            },
            "reason": self.reason,
            "message": self.message[:1000],
            "type": self.kind,
            "source": {"component": FIELD_MANAGER},
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }


def transition_events(before: ClusterStatus, now: ClusterStatus) -> Iterator[KubernetesEvent]:
    """An Event for each change between two statuses."""
    old = {each.type: each.status for each in before.conditions}
    for each in now.conditions:
        if each.type in old and old[each.type] != each.status:
            good = each.status == "True"
            yield KubernetesEvent(
                "Normal" if good else "Warning", f"{each.type}{each.status}", f"{each.type}: {each.message}"
            )
    was = before.split.phase if before.split is not None else None
    phase = now.split.phase if now.split is not None else None
    if phase != was and now.split is not None:
        silent = ", ".join(now.split.silent)
        yield KubernetesEvent(
            "Warning", f"Split{phase}", f"{phase}: {silent or 'members'} silent since {now.split.since}"
        )
    elif phase != was and before.split is not None:
        yield KubernetesEvent("Normal", "SplitOver", f"one log again; it began {before.split.since}")


def action_events(done: Sequence[PlanAction], failed: Sequence[FailedAction]) -> Iterator[KubernetesEvent]:
    """An Event for each action that was performed, and for each that failed."""
    for action in done:
        yield KubernetesEvent("Normal", type(action).__name__, str(action))
    for each in failed:
        yield KubernetesEvent("Warning", f"{type(each.action).__name__}Failed", f"{each.action}: {each.error}")
