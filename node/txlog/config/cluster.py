"""A ``TxLogCluster`` (``txlog.io/v1alpha1``): what one data centre is to be. The same manifest is read by
``txlog up`` on one machine and by the operator on Kubernetes.

Fields that do not act yet are checked all the same, so that a manifest written today is right later; each says so
in its description ("Does not act yet").
"""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from txlog.config.manifest_model import NO_DEFAULTS, ManifestModel, cel_rules, expected_error, immutable, list_map
from txlog.config.preferences import Preferences
from txlog.config.schedule import parse_schedule
from txlog.config.units import (
    CpuQuantity,
    Duration,
    Engine,
    Quantity,
    ResourceQuantity,
    duration_within,
    size_at_least,
    size_at_most,
)
from txlog.model.durability import Durability

API_VERSION = "txlog.io/v1alpha1"
CLUSTER_KIND = "TxLogCluster"
PEER_PORT = 7300
SECURED_PEER_PORT = 7301
"""Where masters with certificates meet, unless an address names a port."""
MASTERS_MAX = 64
"""Masters of all data centres together; each exchanges posts with every other."""

NAME_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?$"
"""Of clusters and data centres. Node ids append ``-<index>`` and stay a DNS label (63 characters)."""

ADDRESS_PATTERN = (
    r"^[A-Za-z0-9{]([A-Za-z0-9{}.-]{0,251}[A-Za-z0-9}])?"
    r"(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?$"
)


RESOURCE_NAME_PATTERN = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"
"""Of a Secret or a claim of Kubernetes."""


class SecretRef(ManifestModel):
    """A Secret of the same namespace."""

    name: str = Field(pattern=RESOURCE_NAME_PATTERN)


class ResourceRequirements(ManifestModel):
    """As in a pod. Acts on Kubernetes only."""

    requests: dict[str, ResourceQuantity] = Field(default={})
    limits: dict[str, ResourceQuantity] = Field(default={})


class StorageSpec(ManifestModel):
    size: Annotated[Quantity, AfterValidator(size_at_least("64Mi"))] = Field(
        default=20 << 30, description="of each volume; `txlog up` refuses new work above it, as a full volume would"
    )
    storage_class_name: str | None = Field(default=None, min_length=1, description="acts on Kubernetes only")


class PeerSpec(ManifestModel):
    """A data centre and how to reach its masters ``<name>-1`` to ``<name>-<masters>``."""

    model_config = ConfigDict(
        json_schema_extra=cel_rules(
            (
                "self.masters == 1 || self.address.contains('{index}')",
                "address: {index} in it, since there are several masters and each has its own",
            )
        )
    )
    name: str = Field(pattern=NAME_PATTERN)
    masters: int = Field(ge=1, le=MASTERS_MAX, strict=True)
    address: str = Field(
        pattern=ADDRESS_PATTERN,
        description="host or host:port, {index} counts the masters from 1; port 7300 unless given, with "
        "security.peerTlsSecretRef 7301. "
        "`txlog up` puts loopback ports in its place",
    )
    vote_weight: int = Field(default=1, ge=0, le=1000, strict=True, description="of each of its masters")

    @model_validator(mode="after")
    def _check_address(self) -> Self:
        others = re.findall(r"\{(?!index\})[^}]*\}?|(?<!index)\}", self.address)
        if others:
            raise expected_error(f"{{index}} as the only thing in braces, not {others[0]}", "address")
        if self.masters > 1 and "{index}" not in self.address:
            raise expected_error(
                f"{{index}} in it, since there are {self.masters} masters and each has its own", "address"
            )
        return self

    @property
    def nodes(self) -> list[str]:
        """The node ids, in order of precedence."""
        return [f"{self.name}-{index}" for index in range(1, self.masters + 1)]

    def address_of(self, index: int, port: int = PEER_PORT) -> str:
        """``host:port`` of the master of that index (from 1); ``port`` where the address names none."""
        host = self.address.replace("{index}", str(index))
        return host if ":" in host else f"{host}:{port}"


class LogSpec(ManifestModel):
    """Nothing goes that somebody still needs. What is younger than ``keep`` stays besides, unless a master's journal is
    larger than ``maxSize``."""

    keep: Annotated[Duration, AfterValidator(duration_within("0", "520w"))] = 7 * 86_400_000
    max_size: Annotated[Quantity, AfterValidator(size_at_least("64Mi"))] = 10 << 30


class DurabilityDefaults(ManifestModel):
    """What a write without headers is told, and how long it waits for it."""

    default: Durability = Durability.APPLIED
    write_timeout: Annotated[Duration, AfterValidator(duration_within("100ms", "10m"))] = 30_000


class MastersSpec(ManifestModel):
    storage: StorageSpec = Field(default=StorageSpec(), json_schema_extra=immutable("storage of masters that exist"))
    resources: ResourceRequirements = ResourceRequirements()


class ExternalWorkerSpec(ManifestModel):
    """A store that somebody else runs."""

    url: str = Field(pattern=r"^https?://[^/\s?#]+(/[^\s?#]*)?$")
    engine: Engine = "oxigraph"
    secret_ref: SecretRef | None = Field(default=None, description="Does not act yet")


class WorkersSpec(ManifestModel):
    """Either ``replicas`` (1) of an ``engine`` that TxLog runs, or ``external`` ones."""

    # What is filled in by a default could not be told from what somebody wrote beside external.
    model_config = ConfigDict(
        json_schema_extra=cel_rules(
            (
                "!has(self.external) || !(has(self.replicas) || has(self.engine) || has(self.storage)"
                " || has(self.resources))",
                "either external or replicas, engine, storage and resources, not both",
            ),
            **{NO_DEFAULTS: True},
        )
    )
    replicas: int = Field(default=1, ge=1, le=100, strict=True)
    engine: Engine = "oxigraph"
    storage: StorageSpec = Field(default=StorageSpec(), json_schema_extra=immutable("storage of workers that exist"))
    resources: ResourceRequirements = ResourceRequirements()
    external: list[ExternalWorkerSpec] | None = Field(
        default=None, min_length=1, max_length=100, json_schema_extra=list_map("url")
    )

    @model_validator(mode="after")
    def _exactly_one_kind(self) -> Self:
        if self.external is not None:
            own = self.model_fields_set & {"replicas", "engine", "storage", "resources"}
            if own:
                raise expected_error(
                    f"either external or replicas, engine and storage, not both ({', '.join(sorted(own))})", "external"
                )
            urls = [worker.url.rstrip("/") for worker in self.external]
            twice = next((url for url in urls if urls.count(url) > 1), None)
            if twice:
                raise expected_error(f"every worker once; {twice} is there twice", "external")
        return self


_EXECUTOR_FIELDS = {"executors": "executors", "executor_cores": "executorCores", "executor_cpu": "executorCpu"} | {
    "executor_memory": "executorMemory"
}
"""Fields of :class:`PipelineSpec` that say something of executors, as they are written."""


class PipelineSpec(ManifestModel):
    """The Spark application. ``txlog up`` runs either mode as one local process."""

    model_config = ConfigDict(
        json_schema_extra=cel_rules(
            *(
                (
                    f"self.mode == 'executors' || !has(self.{name})",
                    f"no {name} with mode: local; remove it, or set mode: executors",
                )
                for name in _EXECUTOR_FIELDS.values()
            )
        )
    )
    mode: Literal["executors", "local"] = Field(
        default="local",
        description="local: one pod does it all. executors: tasks run in pods of their own, which Spark makes",
    )
    executors: int | None = Field(
        default=None, ge=1, le=1000, strict=True, description="how many; 2 unless given. Acts on Kubernetes only"
    )
    executor_cores: int | None = Field(
        default=None,
        ge=1,
        le=256,
        strict=True,
        description="tasks at once of each executor. A task waits for a store most of its time, so this is no number of"
        " processors. Unless given as many as the workers of the manifest need; acts on Kubernetes only",
    )
    executor_cpu: CpuQuantity | None = Field(
        default=None,
        description="processor that each executor asks for; 250m unless given. Acts on Kubernetes only",
    )
    executor_memory: (
        Annotated[Quantity, AfterValidator(size_at_least("1Gi")), AfterValidator(size_at_most("256Gi"))] | None
    ) = Field(
        default=None,
        description="of each executor's pod, as request and as limit; 1536Mi unless given. Acts on Kubernetes only",
    )
    resources: ResourceRequirements = Field(
        default=ResourceRequirements(), description="of the driver; with mode: local of all of it"
    )

    @model_validator(mode="after")
    def _check_executor_fields(self) -> Self:
        for field, name in _EXECUTOR_FIELDS.items():
            if self.mode == "local" and getattr(self, field) is not None:
                raise expected_error(f"no {name} with mode: local; remove it, or set mode: executors", name)
        return self


class S3TargetSpec(ManifestModel):
    """``secretRef`` holds ``AWS_ACCESS_KEY_ID`` and ``AWS_SECRET_ACCESS_KEY``; `txlog up` reads them as files from
    ``secrets/<name>`` of the state folder, or else from its environment."""

    bucket: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")
    prefix: str = Field(default="", pattern=r"^[A-Za-z0-9!_.*'()/-]{0,512}$")
    endpoint: str | None = Field(default=None, pattern=r"^https?://[^\s]+$")
    region: str = Field(default="us-east-1", pattern=r"^[a-z0-9-]{1,63}$")
    secret_ref: SecretRef | None = None


class FolderTargetSpec(ManifestModel):
    """A folder that is there where the backup runs: a disk, a mounted volume."""

    path: str = Field(pattern=r"^/.*$")
    claim_name: str | None = Field(
        default=None,
        pattern=RESOURCE_NAME_PATTERN,
        description="the PersistentVolumeClaim that is mounted at that path; needed on Kubernetes, acts there only",
    )


class BackupTargetSpec(ManifestModel):
    model_config = ConfigDict(json_schema_extra=cel_rules(("has(self.s3) != has(self.folder)", "either s3 or folder")))
    s3: S3TargetSpec | None = None
    folder: FolderTargetSpec | None = None

    @model_validator(mode="after")
    def _exactly_one_target(self) -> Self:
        if (self.s3 is None) == (self.folder is None):
            raise expected_error("either s3 or folder" + ("" if self.s3 is None else ", not both"))
        return self


def _validate_schedule(text: str) -> str:
    parse_schedule(text)
    return text


class BackupPolicy(ManifestModel):
    """Where backups go, when they are taken (without ``schedule``: by hand), and how many stay. Those of splits stay
    until they are released."""

    target: BackupTargetSpec
    schedule: Annotated[str, AfterValidator(_validate_schedule)] | None = Field(
        default=None, description="five fields as in cron (UTC), @daily and its like, or @every 6h"
    )
    keep: int = Field(default=14, ge=1, le=10_000, strict=True, description="the newest of this data centre")
    keep_days: int | None = Field(default=None, ge=1, le=36_500, strict=True, description="and all that are younger")


class UsersSpec(ManifestModel):
    """Who may read, write and administer: `txlog user`, docs/how-to/secure.md."""

    secret_ref: SecretRef = Field(
        description="its key `users` is the file of users; `txlog up` reads secrets/<name>/users of its state folder. "
        "On Kubernetes it has a second key, `own-token`: what TxLog's own processes show, the same in all data centres"
    )


class SecuritySpec(ManifestModel):
    """``peerTokenSecretRef`` acts on Kubernetes; ``txlog up`` draws a token itself. Without ``users`` everybody may do
    everything. ``tlsSecretRef`` (clients) and ``peerTlsSecretRef`` (masters among each other): ``txlog up`` makes
    certificates where none are given; on Kubernetes the Secrets must be there."""

    model_config = ConfigDict(
        json_schema_extra=cel_rules(
            (
                "!has(self.tlsSecretRef) || has(self.peerTlsSecretRef)",
                "tlsSecretRef needs peerTlsSecretRef beside it: what clients send would go on to other masters plainly",
            ),
            (
                "has(self.tlsSecretRef) == has(oldSelf.tlsSecretRef)"
                " && has(self.peerTlsSecretRef) == has(oldSelf.peerTlsSecretRef)",
                "tlsSecretRef and peerTlsSecretRef cannot come or go while masters run: those with and those without"
                " would not understand each other; delete the resource in all data centres (volumes stay), and apply"
                " it anew",
            ),
            (
                "!has(oldSelf.users) || has(self.users)",
                "users cannot be taken away while masters run, which would let nobody in who shows nothing; delete the"
                " resource (volumes stay), and apply it anew",
            ),
        )
    )
    peer_token_secret_ref: SecretRef | None = Field(
        default=None,
        description="its key `token` is what the masters of all data centres show each other; unless given, the Secret "
        "<metadata.name>-peer-token",
    )
    tls_secret_ref: SecretRef | None = Field(
        default=None,
        description="its keys `tls.crt`, `tls.key`, `ca.crt`: clients are spoken to with TLS; needs peerTlsSecretRef",
    )
    peer_tls_secret_ref: SecretRef | None = Field(
        default=None,
        description="its keys `tls.crt`, `tls.key` and `ca.crt`: masters know each other by certificates, whose DNS "
        "names are their node ids; they meet at port 7301 then. In all data centres, or in none",
    )
    users: UsersSpec | None = None


def _parse_network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError:
        raise ValueError("a network such as 10.1.0.0/16") from None


class LoadSpec(ManifestModel):
    """What a ``LOAD`` of SPARQL may fetch: the master that takes the update fetches it once, and logs its quads.
    Without ``spec.load`` it is refused. A host's name may lead into the world, and into ``networks``, nowhere else."""

    sources: list[Annotated[str, Field(pattern=r"^https?://[^/\s?#@]+(/[^\s#]*)$")]] = Field(
        min_length=1, max_length=100, description="URLs; one that ends in a slash stands for all that is below it"
    )
    networks: list[Annotated[str, AfterValidator(_parse_network)]] = Field(default=[], max_length=100)
    max_size: Annotated[Quantity, AfterValidator(size_at_least("1Ki")), AfterValidator(size_at_most("16Mi"))] = 16 << 20
    timeout: Annotated[Duration, AfterValidator(duration_within("1s", "10m"))] = 30_000


VIRTUOSO_NOT_MIXED = (
    "false where a worker is a virtuoso, which holds 1 and 1.0 of one subject and predicate as one value; no other "
    "engine does"
)
VIRTUOSO_REFUSES_EFFECTS = (
    "refuse where a worker is a virtuoso, which cannot tell whether what such an update looked at is as it was"
)
MIXED_ENGINES_REQUIRED = "true where the workers are of several engines, which carry some updates out differently"
_NO_VIRTUOSO = (
    "(has(self.workers.external) ? self.workers.external.all(w, w.engine != 'virtuoso')"
    " : !has(self.workers.engine) || self.workers.engine != 'virtuoso')"
)


class ClusterSpec(Preferences):
    """What the data centre is to be. What it has of :class:`Preferences` can be changed while the masters run, too."""

    model_config = ConfigDict(
        json_schema_extra=cel_rules(
            (
                "self.peers.exists_one(p, p.name == self.dataCenter)",
                "dataCenter: one of the peers, this one included",
            ),
            (
                "has(self.repository) == has(oldSelf.repository)"
                " && (!has(self.repository) || self.repository == oldSelf.repository)",
                "repository cannot be changed",
            ),
            ("self.peers.map(p, p.masters).sum() <= 64", "peers: at most 64 masters in all of them together"),
            ("self.peers.exists(p, p.voteWeight > 0)", "peers: a voteWeight above 0 for at least one of them"),
            (
                "self.splitMode != 'Majority' || self.peers.all(p, 2 * p.voteWeight < self.peers.map(q, q.masters *"
                " q.voteWeight).sum())",
                "splitMode: Majority needs less than half of all votes for each master (three masters at least)",
            ),
            (f"!self.mixedEngines || {_NO_VIRTUOSO}", f"mixedEngines: {VIRTUOSO_NOT_MIXED}"),
            (
                f"self.nonDeterministicUpdates == 'refuse' || {_NO_VIRTUOSO}",
                f"nonDeterministicUpdates: {VIRTUOSO_REFUSES_EFFECTS}",
            ),
            (
                "self.mixedEngines || !has(self.workers.external)"
                " || self.workers.external.all(w, w.engine == self.workers.external[0].engine)",
                f"mixedEngines: {MIXED_ENGINES_REQUIRED}",
            ),
        )
    )
    repository: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?$",
        description="id at the front door, the same in every data centre; metadata.name unless given",
    )
    data_center: str = Field(
        pattern=NAME_PATTERN,
        description="which of the peers this is; immutable",
        json_schema_extra=immutable("dataCenter"),
    )
    peers: list[PeerSpec] = Field(
        min_length=1,
        max_length=MASTERS_MAX,
        description="all data centres, this one included; the same list everywhere; order = precedence",
        json_schema_extra=list_map("name"),
    )
    split_mode: Literal["Continue", "Majority"] = Field(
        default="Continue", description="Majority: only those with more than half of all votes go on without the others"
    )
    log: LogSpec = LogSpec()
    durability: DurabilityDefaults = DurabilityDefaults()
    non_deterministic_updates: Literal["effects", "refuse"] = Field(
        default="effects",
        description="what becomes of an update with RAND, UUID, LIMIT or the like: it is evaluated once and logged as "
        "what it changes, or refused",
    )
    mixed_engines: bool = Field(
        default=False,
        strict=True,
        description="the workers of the data centres are of several engines: whatever these may carry out differently "
        "is a non-deterministic update",
    )
    updates_without_graph: Literal["default", "all"] = Field(
        default="default",
        description="what an update without GRAPH, WITH and USING acts on: the default graph, as SPARQL 1.1 says, or "
        "all graphs, as RDF4J does",
    )
    load: LoadSpec | None = None
    masters: MastersSpec = MastersSpec()
    workers: WorkersSpec = WorkersSpec()
    pipeline: PipelineSpec = PipelineSpec()
    backup: BackupPolicy | None = None
    security: SecuritySpec = SecuritySpec()
    image: str | None = Field(
        default=None,
        pattern=r"^[^\s]{1,512}$",
        description="of all its containers; the operator's own unless given. Acts on Kubernetes only",
    )
    paused: bool = Field(
        default=False, description="the operator looks and tells, and changes nothing. Acts on Kubernetes only"
    )

    @model_validator(mode="after")
    def _check_peers(self) -> Self:
        names = [peer.name for peer in self.peers]
        for at, name in enumerate(names):
            if name in names[:at]:
                raise expected_error(f"every data centre once; {name} is there twice", "peers", at, "name")
        if self.data_center not in names:
            raise expected_error(f"one of the peers ({', '.join(names)}), this one included", "dataCenter")
        nodes = [node for peer in self.peers for node in peer.nodes]
        if len(nodes) > MASTERS_MAX:
            raise expected_error(
                f"at most {MASTERS_MAX} masters in all peers together; there are {len(nodes)}", "peers"
            )
        for at, name in enumerate(names):
            if name in nodes:
                raise expected_error(f"another name; {name} is also the name of a master", "peers", at, "name")
        if not any(peer.vote_weight for peer in self.peers):
            raise expected_error("a voteWeight above 0 for at least one of them", "peers")
        addresses: set[str] = set()
        for at, peer in enumerate(self.peers):
            own = {peer.address_of(index) for index in range(1, peer.masters + 1)}
            if own & addresses:
                raise expected_error(
                    f"its own for every master; {min(own & addresses)} is there twice", "peers", at, "address"
                )
            addresses |= own
        return self

    @model_validator(mode="after")
    def _check_engines(self) -> Self:
        engines = {each.engine for each in self.workers.external or ()} or {self.workers.engine}
        if "virtuoso" in engines and self.mixed_engines:
            raise expected_error(VIRTUOSO_NOT_MIXED, "mixedEngines")
        if "virtuoso" in engines and self.non_deterministic_updates != "refuse":
            raise expected_error(VIRTUOSO_REFUSES_EFFECTS, "nonDeterministicUpdates")
        if len(engines) > 1 and not self.mixed_engines:
            raise expected_error(MIXED_ENGINES_REQUIRED, "mixedEngines")
        return self

    @model_validator(mode="after")
    def _check_vote_weights(self) -> Self:
        total = sum(peer.masters * peer.vote_weight for peer in self.peers)
        for at, peer in enumerate(self.peers):
            if self.split_mode == "Majority" and 2 * peer.vote_weight >= total:
                raise expected_error(
                    f"less than half of all {total} votes for each master with splitMode: Majority; {peer.nodes[0]} "
                    f"has {peer.vote_weight}, so nobody could go on without it (three masters at least)",
                    *("peers", at, "voteWeight"),
                )
        return self


class ObjectMeta(ManifestModel):
    name: str = Field(pattern=NAME_PATTERN)
    namespace: str = Field(default="default", pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")
    labels: dict[str, str] = Field(default={})
    annotations: dict[str, str] = Field(default={})


class TxLogCluster(ManifestModel):
    """One data centre of a cluster."""

    api_version: Literal["txlog.io/v1alpha1"]
    kind: Literal["TxLogCluster"]
    metadata: ObjectMeta
    spec: ClusterSpec

    @property
    def repository(self) -> str:
        """The repository id at the front door."""
        return self.spec.repository or self.metadata.name

    @property
    def data_center(self) -> str:
        return self.spec.data_center

    @property
    def own_peer(self) -> PeerSpec:
        """This data centre's line in ``peers``."""
        return next(peer for peer in self.spec.peers if peer.name == self.spec.data_center)
