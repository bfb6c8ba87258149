"""What was seen of a data centre at one moment. Values only: what could not be seen is ``None``, never an error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from txlog.client.responses import StatusResponse
from txlog.operator.build.common import Object


@dataclass(frozen=True)
class Ended:
    """A process of a master that is gone for certain: its container has terminated, and had said which it was."""

    node: str
    birth: str
    start: int
    code: int


@dataclass(frozen=True)
class Pod:
    """``waiting``: why its container does not run; ``ended``: processes that ended in it; ``said``: the last words of
    its container, when it has ended."""

    name: str
    uid: str
    ip: str = ""
    revision: str = ""
    ready: bool = False
    running: bool = False
    leaving: bool = False
    waiting: str = ""
    restarts: int = 0
    ended: tuple[Ended, ...] = ()
    said: str = ""


@dataclass(frozen=True)
class Heard:
    """What a master told, in whole. ``peers``: as ``/txlog/peers``; ``settings``: by key, what is in force;
    ``configuration``: None before the cluster is founded."""

    status: StatusResponse
    duties: tuple[Mapping[str, Any], ...] = ()
    peers: tuple[Mapping[str, Any], ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    configuration: Mapping[str, Any] | None = None

    @property
    def birth(self) -> str:
        birth = self.status.birth
        return birth if isinstance(birth, str) else f"{birth:016x}"


@dataclass(frozen=True)
class Observation:
    """``now``: seconds since 1970. ``objects``: what stands, by kind and name. ``pods``: the masters' by node id.
    ``masters``: this data centre's, by node id; None when one did not answer. ``urls``: where they are.
    ``works``: its TxLogBackups and TxLogRestores, and ``schedules``; ``jobs``: their pods, by the name of the Job.
    ``listeners``: URL and answer of all masters, also those of other data centres, while there is something to be
    proved to them."""

    now: float
    objects: Mapping[tuple[str, str], Object] = field(default_factory=dict)
    pods: Mapping[str, Pod] = field(default_factory=dict)
    workers: Mapping[str, Pod] = field(default_factory=dict)
    pipeline: Mapping[str, Pod] = field(default_factory=dict)
    """By the name of the Job."""
    executors: Mapping[str, Pod] = field(default_factory=dict)
    masters: Mapping[str, Heard | None] = field(default_factory=dict)
    urls: Mapping[str, str] = field(default_factory=dict)
    works: tuple[Object, ...] = ()
    schedules: tuple[Object, ...] = ()
    jobs: Mapping[str, Pod] = field(default_factory=dict)
    listeners: Mapping[str, tuple[str, Heard | None]] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    """By URL, the host that the certificate of a master must name; empty where they speak plainly."""

    @property
    def heard(self) -> dict[str, Heard]:
        return {node: heard for node, heard in self.masters.items() if heard is not None}
