"""The actions of the operator, as values: :mod:`.plan` creates them, :mod:`.plan_applier` performs them."""

from __future__ import annotations

from dataclasses import dataclass

from txlog.model.errors import TxLogError
from txlog_operator.observation import TerminatedProcess
from txlog_operator.specs.common import KubeObject


@dataclass(frozen=True)
class ApplyObject:
    """Create this object, or update it by server-side apply."""

    desired: KubeObject
    recorded: PatchStatus | None = None
    """The status that announces it. Where that was refused since its resource is gone or has changed, the object is
    not made: who deletes a restore means it."""

    def __str__(self) -> str:
        return f"apply {self.desired['kind']} {self.desired['metadata']['name']}"


@dataclass(frozen=True)
class DeleteObject:
    """Delete this object, if its uid still matches."""

    kind: str
    name: str
    uid: str | None
    reason: str

    @classmethod
    def of(cls, kind: str, found: KubeObject, reason: str) -> DeleteObject:
        """Deletes the object of this kind that was found."""
        return cls(kind, found["metadata"]["name"], found["metadata"].get("uid"), reason)

    def __str__(self) -> str:
        return f"remove {self.kind} {self.name}: {self.reason}"


@dataclass(frozen=True)
class GrowVolume:
    """Let a claim request a larger size, if its uid still matches."""

    name: str
    uid: str | None
    size: str

    def __str__(self) -> str:
        return f"grow PersistentVolumeClaim {self.name} to {self.size}"


@dataclass(frozen=True)
class ReplaceStatefulSet:
    """Delete a StatefulSet without its pods, if its uid still matches. The next reconcile creates it again."""

    name: str
    uid: str | None
    reason: str

    def __str__(self) -> str:
        return f"replace StatefulSet {self.name}: {self.reason}"


@dataclass(frozen=True)
class RestartMaster:
    """Terminate a master's pod gracefully; its StatefulSet creates it again."""

    node: str
    pod: str
    uid: str
    reason: str

    def __str__(self) -> str:
        return f"restart {self.node}: {self.reason}"


@dataclass(frozen=True)
class ChangeMasterSettings:
    """Change settings of a running master."""

    node: str
    url: str
    changes: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"set at {self.node}: " + ", ".join(f"{key} {value}" for key, value in self.changes)


@dataclass(frozen=True)
class ReportDown:
    """Report to a master that a process is certainly gone."""

    node: str
    url: str
    process: TerminatedProcess

    def __str__(self) -> str:
        return f"prove to {self.node} that {self.process.node} start {self.process.start} is gone"


@dataclass(frozen=True)
class AddPeer:
    """Ask this master to add a new peer to the cluster."""

    url: str
    node: str
    data_center: str
    address: str
    weight: int

    def __str__(self) -> str:
        return f"name {self.node} to the cluster"


@dataclass(frozen=True)
class RemovePeer:
    """Ask this master to remove a peer from the cluster. The peer replicates its transactions and exits."""

    url: str
    node: str

    def __str__(self) -> str:
        return f"take {self.node} out of the cluster"


@dataclass(frozen=True)
class ChangeGraphRules:
    """Ask this master to bring these rules for graphs into the log: a JSON list, as the API takes it."""

    node: str
    url: str
    rules: str

    def __str__(self) -> str:
        return f"set the rules for graphs at {self.node}: {self.rules[:300]}"


@dataclass(frozen=True)
class PatchStatus:
    """Write the status of a backup, a restore or a schedule."""

    target: KubeObject
    status: KubeObject
    only_after: ApplyObject | None = None
    """The action without whose success this status would not be true."""

    def __str__(self) -> str:
        state = self.status.get("state", "")
        return f"{self.target['kind']} {self.target['metadata']['name']} {state}: {self.status.get('message', '')}"


@dataclass(frozen=True)
class ReportDutyFailed:
    """Report to a master that a duty failed; the master shows it to operators."""

    url: str
    duty: str
    message: str

    def __str__(self) -> str:
        return f"{self.duty} failed: {self.message}"


PlanAction = (
    ApplyObject
    | DeleteObject
    | GrowVolume
    | ReplaceStatefulSet
    | RestartMaster
    | ChangeMasterSettings
    | ReportDown
    | AddPeer
    | RemovePeer
    | ChangeGraphRules
    | PatchStatus
    | ReportDutyFailed
)


@dataclass(frozen=True)
class FailedAction:
    """An action that could not be performed, and why."""

    action: PlanAction
    error: TxLogError


DISRUPTIVE_ACTIONS = (RestartMaster, RemovePeer)
