"""Events: what people see of the operator's decisions in ``kubectl describe``. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from txlog.config.cluster_status import ClusterStatus
from txlog.model.errors import TxLogError
from txlog.operator.actions import Action
from txlog.operator.build.common import MANAGER, Object
from txlog.operator.names import bounded, digest
from txlog.operator.status import time_text


@dataclass(frozen=True)
class Event:
    kind: Literal["Normal", "Warning"]
    reason: str
    message: str

    def about(self, found: Object, now: float) -> Object:
        meta, at = found["metadata"], time_text(now)
        name = bounded(f"{meta['name']}.{digest([self.reason, self.message, now])}", 200)
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
            "source": {"component": MANAGER},
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }


def transitions(before: ClusterStatus, now: ClusterStatus) -> Iterator[Event]:
    """What has become another between two statuses."""
    old = {each.type: each.status for each in before.conditions}
    for each in now.conditions:
        if each.type in old and old[each.type] != each.status:
            good = each.status == "True"
            yield Event("Normal" if good else "Warning", f"{each.type}{each.status}", f"{each.type}: {each.message}")
    was = before.split.phase if before.split is not None else None
    phase = now.split.phase if now.split is not None else None
    if phase != was and now.split is not None:
        silent = ", ".join(now.split.silent)
        yield Event("Warning", f"Split{phase}", f"{phase}: {silent or 'members'} silent since {now.split.since}")
    elif phase != was and before.split is not None:
        yield Event("Normal", "SplitOver", f"one log again; it began {before.split.since}")


def told_of(done: Sequence[Action], failed: Sequence[tuple[Action, TxLogError]]) -> Iterator[Event]:
    for action in done:
        yield Event("Normal", type(action).__name__, str(action))
    for action, wrong in failed:
        yield Event("Warning", f"{type(action).__name__}Failed", f"{action}: {wrong}")
