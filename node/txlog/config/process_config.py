"""The start configuration of one process: the files that a supervisor writes from the manifests.

JSON, validated on reading; an unknown field is an error, so that a misspelt one is never ignored. Durations are in
milliseconds unless the name ends in ``_s``, sizes in bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from txlog.config.durability_specs import GraphRuleSpec
from txlog.config.repository_names import REPOSITORY_PATTERN
from txlog.config.units import AS_WRITTEN, Engine, can_keep_literals
from txlog.model.durability import Durability
from txlog.model.ids import NODE_ID
from txlog.model.site_switch import SITE_NAME

INCREMENTS_DEFAULT: Final = 14
"""How many partial backups follow a full one where nothing else is said of them."""


class StrictModel(BaseModel):
    """Base of all configurations: an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PeerConfig(StrictModel):
    """A master of the cluster, this one included; the list's order is the precedence, the same everywhere.
    ``url`` is the address at which *this* process reaches it (a link proxy locally)."""

    node: str = Field(pattern=NODE_ID.pattern)
    data_center: str
    url: str
    weight: int = Field(default=1, ge=0, le=1000)


class WorkerConfig(StrictModel):
    """An RDF store of this data centre."""

    name: str = Field(pattern=NODE_ID.pattern)
    url: str
    engine: Engine = "oxigraph"


class LastSeenIncarnation(StrictModel):
    """The last incarnation and start that the supervisor saw of this master (protocol section 1)."""

    birth: int
    start: int


class Limits(StrictModel):
    """Bounds on what is held in memory or taken from outside; each shows in the metrics when it is reached."""

    body_bytes: int = Field(
        default=16 << 20, ge=1024, description="one request body; as large as one transaction may be"
    )
    queue_transactions: int = Field(
        default=2_000_000, ge=100, description="waiting for their order; 100 to 200 bytes each"
    )
    queue_bytes: int = Field(default=4 << 30, ge=1 << 20, description="payload waiting for its order, on disk")
    synchronous_transactions: int = Field(
        default=10_000, ge=1, description="undecided synchronous transactions of this master"
    )
    synchronous_bytes: int = Field(default=64 << 20, ge=1 << 20, description="bytes of their payloads")
    keys_max: int = Field(default=20_000_000, ge=1000, description="idempotency keys that are kept; 32 bytes each")
    batch_transactions: int = Field(
        default=10_000, ge=1, description="transactions in one run of the journal and the wire"
    )
    frame_bytes: int = Field(
        default=4 << 20, ge=1 << 16, description="payload in one message to a peer, one transaction may exceed it"
    )
    requests_in_flight: int = Field(default=4096, ge=1, description="write requests that wait for an answer")
    evaluation_s: float = Field(
        default=60.0, gt=0, description="one step of what the master evaluates itself, in a process of its own"
    )
    evaluation_bytes: int = Field(
        default=1 << 30, ge=192 << 20, description="address space of such a process; there are up to six"
    )


class LoadConfig(StrictModel):
    """What ``LOAD`` may fetch. ``sources``: URLs; one that ends in a slash includes everything below it. ``networks``:
    addresses to which their host names may resolve, besides public ones."""

    sources: list[str] = Field(min_length=1)
    networks: list[str] = []
    bytes_max: int = Field(default=16 << 20, ge=1)
    timeout_ms: int = Field(default=30_000, ge=1)


class MasterArchiveConfig(StrictModel):
    """What a master knows of the archive of its data centre. ``max_delay_ms``: as in :class:`ArchiverConfig`.
    ``on_full``: whether a journal that is nearly full lets the log go before it is archived."""

    max_delay_ms: int = Field(ge=100, le=3_600_000)
    on_full: Literal["gap", "hold"] = "gap"
    rehearsal_max_age_ms: int | None = Field(default=None, ge=1, description="of the last good rehearsal; None: none")


class TracesConfig(StrictModel):
    """Where spans go, and the part of the traces that is recorded."""

    endpoint: str
    sample_ratio: float = Field(ge=0, le=1)


class MasterChangeSetsConfig(StrictModel):
    """Where a master reads the change sets of its data centre."""

    url: str


class RepositoriesConfig(StrictModel):
    """What a master knows of further repositories, beside the first one."""

    create: Literal["manifest", "anybody"] = Field(
        default="manifest", description="anybody: an administrator's PUT of RDF4J's protocol makes one, too"
    )
    workers: dict[str, list[WorkerConfig]] = Field(
        default={}, description="the stores of this data centre by repository; one without has none here"
    )


class NodeConfig(StrictModel):
    """One master."""

    node: str = Field(pattern=NODE_ID.pattern)
    data_center: str
    repository: str
    host: str = "127.0.0.1"
    port: int = Field(ge=1, le=65535)
    journal_folder: Path
    segment_bytes: int = Field(default=64 << 20, ge=1 << 16)
    journal_bytes_max: int | None = Field(default=None, description="refuse new work above it, as for a full disk")
    log_keep_ms: int = Field(default=0, ge=0, description="entries younger than that are kept in any case, until ...")
    log_bytes_max: int = Field(default=10 << 30, ge=1, description="... the journal is that large")
    trim_interval_ms: int = Field(default=10_000, ge=50, description="between two looks at what may go")
    peer_token_file: Path
    users_file: Path | None = Field(
        default=None, description="who may do what (docs/how-to/secure.md); without it everybody may do everything"
    )
    own_token_file: Path | None = Field(
        default=None, description="with users: what TxLog's own processes show, which may do everything"
    )
    tls_folder: Path | None = Field(
        default=None, description="tls.crt and tls.key: clients are spoken to with TLS; without it, plainly"
    )
    peer_tls_folder: Path | None = Field(
        default=None,
        description="tls.crt, tls.key and ca.crt: masters know each other by certificates; without it, by the token",
    )
    peer_port: int | None = Field(
        default=None, ge=1, le=65535, description="with peer_tls_folder: the port for the other masters alone"
    )
    peers: list[PeerConfig] = Field(min_length=1)
    workers: list[WorkerConfig] = []
    round_timeout_ms: int = Field(default=2000, ge=50)
    idle_interval_ms: int = Field(default=1000, ge=10, validate_default=True)
    max_peer_lag_ms: int = Field(default=60_000, ge=1000)
    max_clock_skew_ms: int = Field(default=60_000, ge=0)
    leave_timeout_ms: int = Field(
        default=5000, ge=0, le=600_000, description="a stop waits so long for those that stay to hold what is here"
    )
    none_split_delay_ms: int = Field(default=10_000, ge=1000)
    split_mode: Literal["Continue", "Majority"] = "Continue"
    split_recovery: Literal["Simple", "Smart", "None"] = "Smart"
    worker_repair: Literal["auto", "manual"] = "auto"
    key_retention_ms: int = Field(default=24 * 3600 * 1000, ge=1000)
    durability: Durability = Durability.APPLIED
    write_timeout_s: float = Field(default=30.0, gt=0)
    graphs: list[GraphRuleSpec] = Field(
        default=[], description="graphs whose transactions are synchronous; counts when the cluster is bootstrapped"
    )
    non_deterministic_updates: Literal["effects", "refuse"] = "effects"
    mixed_engines: bool = False
    updates_without_graph: Literal["default", "all"] = "all"
    load: LoadConfig | None = Field(default=None, description="without it LOAD is refused")
    archive: MasterArchiveConfig | None = Field(default=None, description="without it no archiver is expected")
    change_sets: MasterChangeSetsConfig | None = Field(default=None, description="without it there are none")
    cors_origins: list[str] = Field(default=[], description="of web pages that may use the repository")
    repositories: RepositoriesConfig | None = Field(
        default=None, description="without it the cluster has its first repository alone (decisions/0126)"
    )
    traces: TracesConfig | None = Field(default=None, description="without it nothing is traced")
    clock_offset_ms: int = Field(
        default=0, description="for tests alone: this master's clock is wrong by so much; no manifest sets it"
    )
    limits: Limits = Limits()
    last_seen: LastSeenIncarnation | None = None
    properties_file: Path | None = Field(
        default=None,
        description="the cluster.properties that this was made of: what changes while it runs is written back there, "
        "and what holds of its settings is read there",
    )
    identity_file: Path | None = Field(
        default=None,
        description="written at each start: this node, its birth and its start. On Kubernetes it is the container's "
        "termination message, so that its end proves later which process is gone",
    )

    @property
    def names_as_written(self) -> bool:
        """Whether the workers hold literals as they were sent, whatever the cluster was founded with: the engine says
        so by its name."""
        return any(worker.engine == AS_WRITTEN for worker in self.workers)

    @property
    def can_keep_literals(self) -> bool:
        """Whether each worker of this data centre is a server that can hold literals as they are sent. Whether it does
        is decided when the cluster is founded (:class:`txlog.runtime.literal_form.LiteralForm`)."""
        return can_keep_literals((worker.engine for worker in self.workers), mixed=self.mixed_engines)

    @model_validator(mode="after")
    def _check_literals(self) -> Self:
        same = all(worker.engine == AS_WRITTEN for worker in self.workers)
        if self.names_as_written and (self.mixed_engines or not same):
            raise PydanticCustomError(
                "expected", f"workers: expected {AS_WRITTEN} for all or none, without mixed_engines"
            )
        return self

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        if (self.peer_tls_folder is None) != (self.peer_port is None):
            raise PydanticCustomError("expected", "peer_tls_folder and peer_port: expected both or none")
        if self.peer_port == self.port:
            raise PydanticCustomError("expected", "peer_port: expected another port than that of clients")
        if self.tls_folder is not None and self.peer_tls_folder is None:
            raise PydanticCustomError(
                "expected", "tls_folder without peer_tls_folder: what clients send would go on to other masters plainly"
            )
        return self

    @field_validator("split_mode")
    @classmethod
    def _check_vote_weights(cls, mode: str, info: ValidationInfo) -> str:
        peers: list[PeerConfig] = info.data.get("peers", [])
        total = sum(peer.weight for peer in peers)
        heavy = next((peer for peer in peers if 2 * peer.weight >= total), None)
        if mode == "Majority" and heavy is not None:
            what = (
                f"Majority, but {heavy.node} has {heavy.weight} of all {total} votes: the others could not continue "
                "without it; give every master less than half"
            )
            raise PydanticCustomError("expected", "{what}", {"what": what})
        return mode

    @field_validator("idle_interval_ms")
    @classmethod
    def _check_idle_interval(cls, idle_ms: int, info: ValidationInfo) -> int:
        timeout_ms = info.data.get("round_timeout_ms")
        if timeout_ms is not None and idle_ms >= timeout_ms:
            what = (
                f"{idle_ms} is not below round_timeout_ms ({timeout_ms}): a peer with nothing to do would look silent"
            )
            raise PydanticCustomError("expected", "{what}", {"what": what})
        return idle_ms


SPARK_DRIVER_PORT = 7078
SPARK_BLOCKS_PORT = 7079
"""Port at which a driver and executor pods exchange blocks of data."""


class ExecutorsConfig(StrictModel):
    """Executors as pods of Kubernetes, which the driver, itself a pod, creates and deletes. Its own name and address
    are in its environment (``POD_NAME``, ``POD_IP``), its rights are those of its account."""

    name: str = Field(
        pattern=r"^[a-z0-9]([a-z0-9-]{0,36}[a-z0-9])?$", description="what the names of the pods begin with"
    )
    namespace: str
    selector: str = Field(min_length=1, description="labels of all executors of this data centre, as `a=b,c=d`")
    image: str
    pull_policy: str = "IfNotPresent"
    template: Path = Field(description="the pod of an executor, as far as Spark does not say it itself")
    count: int = Field(ge=1)
    cores: int = Field(ge=1, description="tasks at once of each")
    cpu: str
    heap_mb: int = Field(ge=480, description="of the JVM; Spark takes no less")
    overhead_mb: int = Field(ge=1, description="for everything else in the pod: Python's processes")
    driver_port: int = Field(default=SPARK_DRIVER_PORT, ge=1024, le=65535, description="of the driver, for executors")
    blocks_port: int = Field(default=SPARK_BLOCKS_PORT, ge=1024, le=65535, description="of each of them, for all")


class FolderConfig(StrictModel):
    """Backups go to an existing folder: a disk, or a volume. ``repository``: those of a further repository, in a folder
    of its own there."""

    folder: Path
    repository: str | None = Field(default=None, pattern=REPOSITORY_PATTERN)


class S3Config(StrictModel):
    """Backups go to an S3-compatible store. Credentials are files in ``credentials_folder``, as in a mounted Secret.
    They are named like the environment variables (``AWS_ACCESS_KEY_ID``, …), which are used without such a folder.
    ``repository``: as of :class:`FolderConfig`."""

    bucket: str
    repository: str | None = Field(default=None, pattern=REPOSITORY_PATTERN)
    prefix: str = ""
    endpoint: str | None = None
    region: str = "us-east-1"
    credentials_folder: Path | None = None
    timeout_s: float = Field(default=60.0, gt=0, description="for one object, at most a part's length")
    connect_s: float = Field(default=5.0, gt=0)


TargetConfig = FolderConfig | S3Config


class RepositoryPipelineConfig(StrictModel):
    """What the Spark application of a data centre applies of a further repository."""

    name: str
    workers: list[WorkerConfig] = Field(min_length=1)


class PipelineConfig(StrictModel):
    """The Spark application of one data centre. ``masters`` and ``workers``: of the first repository."""

    data_center: str
    masters: list[str] = Field(min_length=1, description="URLs of the masters of this data centre, nearest first")
    workers: list[WorkerConfig] = Field(min_length=1)
    scratch_folder: Path
    spark_master: str | None = Field(
        default=None,
        description="default: local[2 x workers + batch tasks,4]; with executors the API server that every pod knows",
    )
    executors: ExecutorsConfig | None = Field(default=None, description="unless given, the driver does it all itself")
    driver_memory: str = "512m"
    budget_s: float = Field(default=2.0, gt=0, description="how long one worker may hold a micro-batch")
    poll_s: float = Field(default=5.0, gt=0, le=30, description="how long one doorbell request waits")
    execution_s: float = Field(
        default=20.0,
        gt=0,
        description="how long a worker may take to execute one transaction, and a second for each 512 KiB of it; "
        "one that takes longer twice is skipped when no worker executes it (decisions/0051)",
    )
    closed_connections: int = Field(
        default=3, ge=2, description="requests without an answer at which a transaction counts as one that ends stores"
    )
    batch_from: int = Field(
        default=500_000, ge=1, description="operations that a worker lacks when a batch brings them (decisions/0010)"
    )
    batch_tasks: int = Field(default=2, ge=1, description="of a batch at once, beside the stream's")
    compare_s: float = Field(
        default=5.0, ge=0, description="between two looks at how many quads each graph has; 0: no comparison of cells"
    )
    compare_sums_s: float = Field(
        default=3600.0, ge=0, description="between two whole readings of a store whose engine has no cells; 0: none"
    )
    compare_share: float = Field(
        default=0.1, gt=0, le=1, description="the part of the time that a store may be at it at most"
    )
    traces: TracesConfig | None = Field(default=None, description="without it nothing is traced")
    bulk_target: TargetConfig | None = Field(
        default=None,
        description="where the parts of bulk loads are; only where a supervisor restarts the stores (decisions/0125)",
    )
    compare_idle_share: float = Field(
        default=0.015, gt=0, le=1, description="the same for a store that rests: all that was written was compared"
    )
    repositories: list[RepositoryPipelineConfig] = Field(
        default=[], description="the further repositories that have workers here (decisions/0126)"
    )


class BackupJobConfig(StrictModel):
    """One backup of one data centre, for a schedule or a duty. With a ``name`` it is idempotent. ``at``: exactly this
    index. Split backups are pinned until they are released."""

    data_center: str
    masters: list[str] = Field(min_length=1)
    target: TargetConfig
    why: Literal["manual", "schedule", "split"] = "schedule"
    name: str | None = None
    at: int | None = Field(default=None, ge=1)
    wait_s: float = Field(default=60.0, gt=0, description="until a worker must stand there")
    keep: int = Field(default=14, ge=1)
    keep_days: int | None = Field(default=None, ge=1)
    window_s: float | None = Field(default=None, gt=0, description="recovery window of the archive on this target")
    incremental: bool = Field(default=False, description="an incremental backup where one is possible")
    chain: int = Field(default=INCREMENTS_DEFAULT, ge=1, description="how many of these may follow a full one")
    merges: int = Field(default=0, ge=0, description="how often in a row a full chain is merged, without a worker")


class DutyJobConfig(StrictModel):
    """Performs the duties of one data centre. ``others``: targets of other data centres, for a restore. ``elsewhere``:
    the masters of each, for a copy of a live worker. ``shown``: folder of the rejoin comparison of restored workers.
    ``repaired``: folder of the patches of repairs."""

    data_center: str
    masters: list[str] = Field(min_length=1)
    target: TargetConfig
    others: list[TargetConfig] = []
    elsewhere: list[list[str]] = []
    shown: Path | None = None
    repaired: Path | None = None


RehearsalLevel = Literal["data", "cluster"]
"""Of a rehearsal: the data alone, or with a master of the new cluster, which takes a write."""


class RehearsalConfig(StrictModel):
    """One rehearsal of a recovery of one data centre. ``target``: of the archive. ``backups``: where the bases are, by
    default there as well. ``scratch_folder``: where the throw-away store lies, by default the system's folder for
    temporary files."""

    data_center: str = Field(pattern=NODE_ID.pattern)
    masters: list[str] = Field(min_length=1, description="URLs of the masters of this data centre, nearest first")
    target: TargetConfig
    backups: TargetConfig | None = None
    level: RehearsalLevel = "cluster"
    max_rpo_s: float | None = Field(default=None, ge=0)
    max_rto_s: float | None = Field(default=None, ge=0)
    archived_s: float = Field(default=60.0, ge=0, description="how long the archiver may take to come to the worker")
    scratch_folder: Path | None = None


class ArchiverConfig(StrictModel):
    """The archiver of one data centre. ``max_delay_ms``: a stable entry is on the target so much later at most, while
    masters and target answer."""

    data_center: str = Field(pattern=NODE_ID.pattern)
    masters: list[str] = Field(min_length=1, description="URLs of the masters of this data centre, nearest first")
    target: TargetConfig
    max_delay_ms: int = Field(default=1000, ge=100, le=3_600_000)
    file_bytes: int = Field(default=16 << 20, ge=1, le=16 << 20, description="of a file, before compression")
    probe_s: float = Field(default=60.0, gt=0, description="between two checks of an idle target")
    compact_s: float = Field(default=300.0, ge=0, description="files of so many seconds become one; 0: none does")
    grace_s: float = Field(default=3600.0, ge=0, description="how long small files stay beside a compacted one")
    window_s: float | None = Field(default=None, gt=0, description="recovery window; the backups are on this target")


class ChangeSetsConfig(StrictModel):
    """The process that makes the change sets of one data centre."""

    data_center: str
    masters: list[str] = Field(min_length=1, description="URLs of the masters of this data centre")
    folder: Path = Field(description="of the store and the change log")
    host: str = "127.0.0.1"
    port: int = Field(ge=1, le=65535, description="where masters read change sets")
    peer_token_file: Path
    keep_ms: int = Field(ge=1000, description="how long change sets are kept")
    quads_max: int = Field(default=1_000_000, ge=1, description="of a change set; of a larger one its graphs are kept")
    replay_max: int = Field(
        default=1_000_000, ge=0, description="entries of the log that an empty store executes; else it copies a worker"
    )


class OtherSiteConfig(StrictModel):
    """The site from which a link imports."""

    name: str = Field(pattern=SITE_NAME)
    masters: list[str] = Field(min_length=1, description="URLs of its masters")
    token_file: Path | None = Field(default=None, description="the token of a user there, without it none is shown")


class SiteLinkConfig(StrictModel):
    """The process that imports the changes of another site."""

    data_center: str
    site: str = Field(pattern=SITE_NAME)
    repository: str
    masters: list[str] = Field(min_length=1, description="URLs of the masters of this data centre")
    other: OtherSiteConfig
    folder: Path = Field(description="of the version table")
    key: Literal["property", "subject", "quad"] = "property"
    lag_ms: int = Field(default=1000, ge=0, description="between two imports")
    offline: bool = Field(default=False, description="the value of the manifest, which counts when it has changed")
    keys_max: int = Field(default=10_000, ge=1, description="keys of a batch")
    rows_max: int = Field(default=1_000_000, ge=1, description="changes that wait for the other site")
    max_clock_skew_ms: int = Field(default=60_000, ge=0, description="by which the other site's clock may be ahead")
