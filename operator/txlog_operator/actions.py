"""What the operator can do. Values: :mod:`.plan` makes them, :mod:`.act` carries them out."""

from __future__ import annotations

from dataclasses import dataclass

from txlog_operator.observation import TerminatedProcess
from txlog_operator.specs.common import KubeObject


@dataclass(frozen=True)
class ApplyObject:
    """Make this object, or make it what it shall be."""

    desired: KubeObject

    def __str__(self) -> str:
        return f"apply {self.desired['kind']} {self.desired['metadata']['name']}"


@dataclass(frozen=True)
class DeleteObject:
    kind: str
    name: str
    uid: str | None
    reason: str

    def __str__(self) -> str:
        return f"remove {self.kind} {self.name}: {self.reason}"


@dataclass(frozen=True)
class RestartMaster:
    """End a master's pod in order; its StatefulSet makes it again."""

    node: str
    pod: str
    uid: str
    reason: str

    def __str__(self) -> str:
        return f"restart {self.node}: {self.reason}"


@dataclass(frozen=True)
class ChangeMasterSettings:
    """Change what a master prefers, while it runs."""

    node: str
    url: str
    changes: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"set at {self.node}: " + ", ".join(f"{key} {value}" for key, value in self.changes)


@dataclass(frozen=True)
class ReportDown:
    """Tell a master that a process is gone for certain."""

    node: str
    url: str
    process: TerminatedProcess

    def __str__(self) -> str:
        return f"prove to {self.node} that {self.process.node} start {self.process.start} is gone"


@dataclass(frozen=True)
class AddPeer:
    """Ask this master to name a new one to the cluster."""

    url: str
    node: str
    data_center: str
    address: str
    weight: int

    def __str__(self) -> str:
        return f"name {self.node} to the cluster"


@dataclass(frozen=True)
class RemovePeer:
    """Ask this master to take another one out of the cluster; it brings in what it has, and ends."""

    url: str
    node: str

    def __str__(self) -> str:
        return f"take {self.node} out of the cluster"


@dataclass(frozen=True)
class PatchStatus:
    """Write the status of a backup, a restore or a schedule."""

    target: KubeObject
    status: KubeObject

    def __str__(self) -> str:
        state = self.status.get("state", "")
        return f"{self.target['kind']} {self.target['metadata']['name']} {state}: {self.status.get('message', '')}"


@dataclass(frozen=True)
class ReportDutyFailed:
    """Tell a master that a duty failed: it shows it to people."""

    url: str
    duty: str
    message: str

    def __str__(self) -> str:
        return f"{self.duty} failed: {self.message}"


PlanAction = (
    ApplyObject
    | DeleteObject
    | RestartMaster
    | ChangeMasterSettings
    | ReportDown
    | AddPeer
    | RemovePeer
    | PatchStatus
    | ReportDutyFailed
)
DISRUPTIVE_ACTIONS = (RestartMaster, RemovePeer)
