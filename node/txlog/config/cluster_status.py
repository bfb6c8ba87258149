"""How a resource of TxLog says how it is: conditions as Kubernetes knows them, and the status of a cluster."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from txlog.config.manifest_model import ManifestModel, list_map

TIME_PATTERN = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$"
TimeText = Annotated[str, Field(pattern=TIME_PATTERN, max_length=20)]


class ConditionType(StrEnum):
    """All of a cluster's conditions: each good when it is ``True``, each always there."""

    READY = "Ready"
    """The sum of the others, but for :attr:`AVAILABLE`."""
    AVAILABLE = "Available"
    """Whether this data centre serves now, whatever the others do."""
    SPEC_VALID = "SpecValid"
    RECONCILED = "Reconciled"
    MASTERS_READY = "MastersReady"
    PEERS_REACHABLE = "PeersReachable"
    LAG_WITHIN_LIMIT = "LagWithinLimit"
    HISTORY_CONSISTENT = "HistoryConsistent"
    WORKERS_CONSISTENT = "WorkersConsistent"
    LAST_BACKUP_SUCCEEDED = "LastBackupSucceeded"
    PIPELINE_HEALTHY = "PipelineHealthy"
    JOBS_HEALTHY = "JobsHealthy"
    SYNCHRONOUS_QUORUM = "SynchronousQuorum"
    """Whether graphs that need a quorum can be written here."""


class Condition(ManifestModel):
    """One condition, as Kubernetes defines it."""

    type: str = Field(max_length=60, description="Name of the condition.")
    status: Literal["True", "False", "Unknown"] = Field(description="`True` is good, for every condition.")
    reason: str = Field(pattern=r"^[A-Za-z]+$", max_length=60, description="One word for the cause.")
    message: str = Field(max_length=2000, description="What the reason means and what to do.")
    last_transition_time: TimeText = Field(description="When `status` changed last.")
    observed_generation: int = Field(ge=0, description="Generation of the manifest that was checked.")


class NodeStatus(ManifestModel):
    """One master of this data centre, as it last reported itself."""

    node: str = Field(description="Node id of the master.")
    birth: str = Field(default="", description="Incarnation of its journal, in hexadecimal digits.")
    start: int = Field(default=0, description="Number of starts of this incarnation.")
    state: str = Field(default="Unknown", description="State of the master. `Unknown` while it does not answer.")
    index: int | None = Field(default=None, description="Its last stable index.")


class WorkerStatusEntry(ManifestModel):
    """One worker of this data centre, as its masters report it."""

    name: str = Field(description="Name of the worker.")
    state: str = Field(default="Unknown", description="State of the worker.")
    index: int | None = Field(default=None, description="Index of its position.")
    error: str | None = Field(default=None, description="Its last error, while it has one.")


class PeerStatus(ManifestModel):
    """Another data centre, as the masters of this one see it."""

    name: str = Field(description="Name of the data centre.")
    reachable: Literal["True", "False", "Unknown"] = Field(
        default="Unknown", description="Whether a master here reaches one of its masters."
    )
    lag: str | None = Field(default=None, description="Time since its last message, while it is not reachable.")


class SplitStatus(ManifestModel):
    """The current split. Absent while all masters share one view."""

    phase: Literal["Suspected", "Split", "Rejoining"] = Field(
        description="`Suspected`: masters are silent. `Split`: a side continued without them. `Rejoining`: branches "
        "are merged."
    )
    silent: list[str] = Field(default=[], max_length=64, description="Node ids of the silent masters.")
    since: TimeText = Field(description="When the operator first saw the split.")
    strategy: str | None = Field(default=None, description="Value of `splitRecovery` in the last common view.")
    backup: str | None = Field(default=None, description="TxLogBackup of this data centre for this split.")


class PipelineStatus(ManifestModel):
    """The Spark application of this data centre."""

    job: str | None = Field(default=None, description="Name of its Kubernetes Job.")
    state: str = Field(default="Unknown", description="State of its pod.")
    executors: str | None = Field(
        default=None, description="Running and wanted executors, such as `2/2`. Absent with `mode: local`."
    )


class VolumeSizes(ManifestModel):
    """Size that every volume has requested at least. A manifest may not ask for less."""

    master: str | None = Field(default=None, max_length=40, description="Of the masters' volumes.")
    worker: str | None = Field(default=None, max_length=40, description="Of the stores' volumes.")
    changesets: str | None = Field(default=None, max_length=40, description="Of the volume of change sets.")


class ClusterStatus(ManifestModel):
    """What the operator observes. It is the only writer."""

    observed_generation: int = Field(
        default=0, description="Generation of the manifest that the operator last carried out in full."
    )
    state: str = Field(default="Unknown", description="The worst state of a master of this data centre.")
    masters_ready: str = Field(default="0/0", description="Ready masters of this data centre, such as `2/2`.")
    peers_reachable: str = Field(default="0/0", description="Other data centres that are reachable, such as `1/1`.")
    lag: str = Field(default="-", description="Longest time since the last message of another data centre.")
    recovery: str = Field(default="-", description="Value of `splitRecovery` in the current view.")
    applied: int | None = Field(
        default=None, description="The lowest index that a worker of this data centre has executed."
    )
    nodes: list[NodeStatus] = Field(
        default=[], max_length=64, description="The masters of this data centre.", json_schema_extra=list_map("node")
    )
    workers: list[WorkerStatusEntry] = Field(
        default=[], max_length=100, description="The workers of this data centre.", json_schema_extra=list_map("name")
    )
    peers: list[PeerStatus] = Field(
        default=[], max_length=64, description="The other data centres.", json_schema_extra=list_map("name")
    )
    split: SplitStatus | None = None
    pipeline: PipelineStatus = PipelineStatus()
    worker_replicas: int | None = Field(
        default=None, description="Pods of stores that TxLog runs, for `kubectl scale`. Absent with external workers."
    )
    worker_selector: str | None = Field(default=None, description="Labels of these pods, for `kubectl scale`.")
    volume_sizes: VolumeSizes = VolumeSizes()
    graph_rules: str | None = Field(
        default=None,
        max_length=64,
        description="Digest of the last `spec.durability.graphs` that the log had. Another list in the manifest is a "
        "change, which becomes an entry of the log; `changing` until then.",
    )
    last_backup: str | None = Field(default=None, description="Name of the last TxLogBackup that ended.")
    conditions: list[Condition] = Field(
        default=[],
        max_length=20,
        description="All conditions. `Ready` sums up the others, except `Available`.",
        json_schema_extra=list_map("type"),
    )
