"""What the operator can do. Values: :mod:`.plan` makes them, :mod:`.act` carries them out."""

from __future__ import annotations

from dataclasses import dataclass

from txlog.operator.build.common import Object
from txlog.operator.observation import Ended


@dataclass(frozen=True)
class Apply:
    """Make this object, or make it what it shall be."""

    wanted: Object

    def __str__(self) -> str:
        return f"apply {self.wanted['kind']} {self.wanted['metadata']['name']}"


@dataclass(frozen=True)
class Remove:
    kind: str
    name: str
    uid: str | None
    why: str

    def __str__(self) -> str:
        return f"remove {self.kind} {self.name}: {self.why}"


@dataclass(frozen=True)
class Restart:
    """End a master's pod in order; its StatefulSet makes it again."""

    node: str
    pod: str
    uid: str
    why: str

    def __str__(self) -> str:
        return f"restart {self.node}: {self.why}"


@dataclass(frozen=True)
class Tell:
    """Change what a master prefers, while it runs."""

    node: str
    url: str
    changes: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"set at {self.node}: " + ", ".join(f"{key} {value}" for key, value in self.changes)


@dataclass(frozen=True)
class Prove:
    """Tell a master that a process is gone for certain."""

    node: str
    url: str
    ended: Ended

    def __str__(self) -> str:
        return f"prove to {self.node} that {self.ended.node} start {self.ended.start} is gone"


@dataclass(frozen=True)
class NameMaster:
    """Ask this master to name a new one to the cluster."""

    url: str
    node: str
    data_center: str
    address: str
    weight: int

    def __str__(self) -> str:
        return f"name {self.node} to the cluster"


@dataclass(frozen=True)
class TakeOut:
    """Ask this master to take another one out of the cluster; it brings in what it has, and ends."""

    url: str
    node: str

    def __str__(self) -> str:
        return f"take {self.node} out of the cluster"


@dataclass(frozen=True)
class Say:
    """Write the status of a backup, a restore or a schedule."""

    found: Object
    status: Object

    def __str__(self) -> str:
        state = self.status.get("state", "")
        return f"{self.found['kind']} {self.found['metadata']['name']} {state}: {self.status.get('message', '')}"


@dataclass(frozen=True)
class Report:
    """Tell a master that a duty failed: it shows it to people."""

    url: str
    duty: str
    message: str

    def __str__(self) -> str:
        return f"{self.duty} failed: {self.message}"


Action = Apply | Remove | Restart | Tell | Prove | NameMaster | TakeOut | Say | Report
DISRUPTIVE = (Restart, TakeOut)
