"""How a resource of TxLog says how it is: conditions as Kubernetes knows them, and the status of a cluster."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from txlog.config.manifest_model import ManifestModel, list_map

TIME_PATTERN = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$"


class ConditionType(StrEnum):
    """All of a cluster's conditions: each good when it is ``True``, each always there."""

    READY = "Ready"
    """The sum of the others."""
    SPEC_VALID = "SpecValid"
    MASTERS_READY = "MastersReady"
    PEERS_REACHABLE = "PeersReachable"
    LAG_WITHIN_LIMIT = "LagWithinLimit"
    HISTORY_CONSISTENT = "HistoryConsistent"
    WORKERS_CONSISTENT = "WorkersConsistent"
    LAST_BACKUP_SUCCEEDED = "LastBackupSucceeded"
    PIPELINE_HEALTHY = "PipelineHealthy"


class Condition(ManifestModel):
    type: str = Field(max_length=60)
    status: Literal["True", "False", "Unknown"]
    reason: str = Field(pattern=r"^[A-Za-z]+$", max_length=60)
    message: str = Field(max_length=2000, description="what it means and what to do")
    last_transition_time: str = Field(pattern=TIME_PATTERN, max_length=20)
    observed_generation: int = Field(ge=0)


class NodeStatus(ManifestModel):
    """A master of this data centre as it last told itself. ``birth`` and ``start`` name its process."""

    node: str
    birth: str = ""
    start: int = 0
    state: str = "Unknown"
    index: int | None = Field(default=None, description="up to where its log is stable")


class WorkerStatusEntry(ManifestModel):
    name: str
    state: str = "Unknown"
    index: int | None = None
    error: str | None = None


class PeerStatus(ManifestModel):
    """Another data centre, as this one's masters see it."""

    name: str
    reachable: Literal["True", "False", "Unknown"] = "Unknown"
    lag: str | None = Field(default=None, description="since when nobody here heard of any of its masters")


class SplitStatus(ManifestModel):
    """There while a master is silent or apart. ``phase``: Suspected, Split (somebody went on alone), Rejoining."""

    phase: Literal["Suspected", "Split", "Rejoining"]
    silent: list[str] = Field(default=[], max_length=64)
    since: str = Field(pattern=TIME_PATTERN, max_length=20)
    strategy: str | None = Field(default=None, description="in force in the view that was left")
    backup: str | None = Field(default=None, description="the TxLogBackup of this data centre")


class PipelineStatus(ManifestModel):
    job: str | None = None
    state: str = "Unknown"
    executors: str | None = Field(default=None, description="how many run, of how many; none with mode: local")


class ClusterStatus(ManifestModel):
    """Written by the operator alone. The texts are for the columns of ``kubectl get``."""

    observed_generation: int = 0
    state: str = Field(default="Unknown", description="of the master of this data centre that is worst off")
    masters_ready: str = "0/0"
    peers_reachable: str = "0/0"
    lag: str = "-"
    recovery: str = "-"
    applied: int | None = None
    nodes: list[NodeStatus] = Field(default=[], max_length=64, json_schema_extra=list_map("node"))
    workers: list[WorkerStatusEntry] = Field(default=[], max_length=100, json_schema_extra=list_map("name"))
    peers: list[PeerStatus] = Field(default=[], max_length=64, json_schema_extra=list_map("name"))
    split: SplitStatus | None = None
    pipeline: PipelineStatus = PipelineStatus()
    last_backup: str | None = Field(default=None, description="the last TxLogBackup that ended")
    conditions: list[Condition] = Field(default=[], max_length=20, json_schema_extra=list_map("type"))
