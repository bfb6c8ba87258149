"""The observation of a data centre at one moment. Values only: what could not be observed is ``None``, never an
error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from txlog.client.responses import StatusResponse
from txlog_operator.specs.common import KubeObject


@dataclass(frozen=True)
class TerminatedProcess:
    """A process of a master that is certainly gone: its container has terminated after it wrote its identity."""

    node: str
    birth: str
    start: int
    exit_code: int


@dataclass(frozen=True)
class PodStatus:
    """One pod. ``waiting_reason``: why its container does not run. ``terminated_processes``: processes that ended in
    it. ``termination_message``: the last output of its container, after it ended."""

    name: str
    uid: str
    ip: str = ""
    revision: str = ""
    ready: bool = False
    running: bool = False
    terminating: bool = False
    waiting_reason: str = ""
    restarts: int = 0
    terminated_processes: tuple[TerminatedProcess, ...] = ()
    termination_message: str = ""
    ended: bool = False
    """Its container has terminated."""


@dataclass(frozen=True)
class ObservedMaster:
    """The complete report of a master. ``peers``: as in ``/txlog/peers``. ``settings``: those in effect, by key.
    ``configuration``: None before the cluster is bootstrapped. ``synchro``: as ``/txlog/synchro``, where the log has
    rules for graphs."""

    status: StatusResponse
    duties: tuple[Mapping[str, Any], ...] = ()
    peers: tuple[Mapping[str, Any], ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    configuration: Mapping[str, Any] | None = None
    synchro: Mapping[str, Any] | None = None

    @property
    def birth(self) -> str:
        """The incarnation of the master's journal, in hexadecimal."""
        birth = self.status.birth
        return birth if isinstance(birth, str) else f"{birth:016x}"


@dataclass(frozen=True)
class ClusterObservation:
    """``now``: seconds since 1970. ``objects``: existing objects by kind and name. ``master_pods``: pods by node id.
    ``masters``: this data centre's masters by node id; None when one did not answer. ``urls``: their URLs.
    ``job_resources``: its TxLogBackups, TxLogRestores and TxLogRehearsals, and ``schedules``. ``job_pods``: their pods,
    by the name of the Job. ``masters_to_notify``: URL and answer of all masters, also of other data centres, while
    there is a down report for them."""

    now: float
    objects: Mapping[tuple[str, str], KubeObject] = field(default_factory=dict)
    master_pods: Mapping[str, PodStatus] = field(default_factory=dict)
    worker_pods: Mapping[str, PodStatus] = field(default_factory=dict)
    pipeline_pods: Mapping[str, PodStatus] = field(default_factory=dict)
    """Pods by the name of their Job."""
    executor_pods: Mapping[str, PodStatus] = field(default_factory=dict)
    masters: Mapping[str, ObservedMaster | None] = field(default_factory=dict)
    urls: Mapping[str, str] = field(default_factory=dict)
    job_resources: tuple[KubeObject, ...] = ()
    schedules: tuple[KubeObject, ...] = ()
    job_pods: Mapping[str, PodStatus] = field(default_factory=dict)
    job_problems: Mapping[str, str] = field(default_factory=dict)
    """Why the pod of a Job does not start, by the Job's name: from the last warning about Job or pod."""
    pod_names: frozenset[str] = frozenset()
    """Every pod of this data centre, whatever its state."""
    unchanged: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Objects that are as the API server made them of the last apply, with the hash of what was applied."""
    masters_to_notify: Mapping[str, tuple[str, ObservedMaster | None]] = field(default_factory=dict)
    tls_hosts: Mapping[str, str] = field(default_factory=dict)
    """By URL, the host that the certificate of a master must name; empty without TLS."""

    @property
    def reachable_masters(self) -> dict[str, ObservedMaster]:
        """The masters that answered, by node id."""
        return {node: master for node, master in self.masters.items() if master is not None}
