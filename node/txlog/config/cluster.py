"""A ``TxLogCluster`` (``txlog.io/v1alpha1``): what one data centre is to be. The same manifest is read by
``txlog up`` on one machine and by the operator on Kubernetes.

Fields that do not act yet are checked all the same, so that a manifest written today is right later; each says so
in its description ("Does not act yet").
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from txlog.config.access_specs import CorsSpec, LoadSpec, SecuritySpec
from txlog.config.archive_policy import ArchivePolicy
from txlog.config.backup_policy import BackupPolicy
from txlog.config.change_set_policy import NEEDS_ONE_ORDER, NEEDS_OXIGRAPH, ChangeSetsPolicy
from txlog.config.durability_specs import DurabilityDefaults
from txlog.config.limit_specs import LimitsSpec
from txlog.config.manifest_model import (
    ManifestModel,
    cel_rules,
    expected_error,
    immutable,
    immutable_storage_class,
    list_map,
)
from txlog.config.pipeline_spec import PipelineSpec
from txlog.config.pod_template import PodTemplate
from txlog.config.preferences import Preferences
from txlog.config.recovery_policy import BootstrapSpec
from txlog.config.repository_specs import FurtherRepositories, check_names, check_repositories
from txlog.config.resource_specs import ResourceRequirements, StorageSpec
from txlog.config.site_specs import LinkedSites, check_sites
from txlog.config.telemetry_spec import TelemetrySpec
from txlog.config.units import (
    STANDALONE_ENGINES,
    Duration,
    Quantity,
    duration_within,
    size_within,
)
from txlog.config.worker_specs import (
    MIXED_ENGINES_REQUIRED,
    VIRTUOSO_NOT_MIXED,
    VIRTUOSO_REFUSES_EFFECTS,
    WorkersSpec,
    check_engines,
)
from txlog.model.configuration import Master
from txlog.model.durability import Durability
from txlog.model.errors import BadInput
from txlog.model.synchronous import check_rules

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
    r"^([A-Za-z0-9{]([A-Za-z0-9{}.-]{0,251}[A-Za-z0-9}])?|\[[0-9A-Fa-f:.]{0,45}(\{index\})?[0-9A-Fa-f:.]{0,45}\])"
    r"(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?$"
)


class PeerSpec(ManifestModel):
    """A data centre, and how its masters ``<name>-1`` to ``<name>-<masters>`` are reached."""

    model_config = ConfigDict(
        json_schema_extra=cel_rules(
            (
                "self.masters == 1 || self.address.contains('{index}')",
                "address: {index} in it, since there are several masters and each has its own",
            )
        )
    )
    name: str = Field(
        pattern=NAME_PATTERN, description="Name of the data centre. The node ids of its masters begin with it."
    )
    masters: int = Field(ge=1, le=MASTERS_MAX, strict=True, description="Number of masters in this data centre.")
    address: str = Field(
        pattern=ADDRESS_PATTERN,
        description="Where other masters reach its masters; `{index}` counts them from 1. The default port is 7300, "
        "or 7301 "
        "with `peerTlsSecretRef`. `txlog up` uses loopback ports instead.",
    )
    vote_weight: int = Field(
        default=1,
        ge=0,
        le=1000,
        strict=True,
        description="Vote weight of each of its masters. Has no effect after the bootstrap: the log decides.",
    )

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
        return host if self.names_port else f"{host}:{port}"

    @property
    def names_port(self) -> bool:
        """Whether the address has a port. The colons of an IPv6 address are in brackets."""
        return ":" in self.address.rpartition("]")[2]


class LogSpec(ManifestModel):
    """How long masters keep entries of the log. Entries that a master, a worker or a backup needs are always kept."""

    keep: Annotated[Duration, AfterValidator(duration_within("0", "520w"))] = Field(
        default=7 * 86_400_000, description="Younger entries are kept, unless the journal exceeds `maxSize`."
    )
    max_size: Annotated[Quantity, AfterValidator(size_within("64Mi"))] = Field(
        default=10 << 30, description="Size of a master's journal above which `keep` has no effect."
    )


class MastersSpec(ManifestModel):
    """The masters of this data centre. Their number is in ``peers``."""

    storage: StorageSpec = Field(
        default=StorageSpec(),
        description="The volume of each master's journal.",
        json_schema_extra=immutable_storage_class("masters that exist"),
    )
    resources: ResourceRequirements = ResourceRequirements()
    pod_template: PodTemplate = Field(default=PodTemplate(), description="Additions to the pods of masters.")


ARCHIVE_NEEDS_TARGET = "a target, since there is no backup.target"
ARCHIVED_NEEDS_ARCHIVE = "another level, or spec.archive: without an archive no write is ever archived"
REPOSITORIES_NOT_ARCHIVED = "another level, since spec.repositories lists repositories, which have no archive yet"
ARCHIVE_KEEP_NEEDS_BACKUPS = "no archive.target beside it: the window needs the backups on the target of the archive"
AWAKE_MEMBERS = "the number of masters here cannot change while they are hibernated; wake them first"


def _weight_of(peer: str) -> str:
    """In CEL. The definition has no defaults inside of lists."""
    return f"(has({peer}.voteWeight) ? {peer}.voteWeight : 1)"


def _engine_of(worker: str) -> str:
    """As :func:`_weight_of`."""
    return f"(has({worker}.engine) ? {worker}.engine : 'oxigraph')"


def _no_worker_of(*engines: str) -> str:
    """A rule in CEL."""
    return (
        f"(has(self.workers.external) ? self.workers.external.all(w, !({_engine_of('w')} in {[*engines]}))"
        f" : !has(self.workers.engine) || !(self.workers.engine in {[*engines]}))"
    )


_ALL_OXIGRAPH = (
    f"(has(self.workers.external) ? self.workers.external.all(w, {_engine_of('w')} == 'oxigraph')"
    " : !has(self.workers.engine) || self.workers.engine == 'oxigraph')"
)
_ANY_OXIGRAPH = (
    f"(has(self.workers.external) ? self.workers.external.exists(w, {_engine_of('w')} == 'oxigraph')"
    " : !has(self.workers.engine) || self.workers.engine == 'oxigraph')"
)


class ClusterSpec(FurtherRepositories, LinkedSites, Preferences):
    """One data centre of a cluster: its masters, workers and pipeline."""

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
            (f"self.peers.exists(p, {_weight_of('p')} > 0)", "peers: a voteWeight above 0 for at least one of them"),
            (
                f"self.splitMode != 'Majority' || self.peers.all(p, 2 * {_weight_of('p')} <"
                f" self.peers.map(q, q.masters * {_weight_of('q')}).sum())",
                "splitMode: Majority needs less than half of all votes for each master (three masters at least)",
            ),
            (f"!self.mixedEngines || {_no_worker_of(*STANDALONE_ENGINES)}", f"mixedEngines: {VIRTUOSO_NOT_MIXED}"),
            (
                f"self.nonDeterministicUpdates == 'refuse' || {_no_worker_of('virtuoso')}",
                f"nonDeterministicUpdates: {VIRTUOSO_REFUSES_EFFECTS}",
            ),
            (
                "self.mixedEngines || !has(self.workers.external)"
                f" || self.workers.external.all(w, {_engine_of('w')} == {_engine_of('self.workers.external[0]')})",
                f"mixedEngines: {MIXED_ENGINES_REQUIRED}",
            ),
            (
                "!has(self.archive) || has(self.archive.target) || has(self.backup)",
                f"archive: {ARCHIVE_NEEDS_TARGET}",
            ),
            (
                "!has(self.archive) || !has(self.archive.keep) || !has(self.archive.target)",
                f"archive.keep: {ARCHIVE_KEEP_NEEDS_BACKUPS}",
            ),
            (
                f"has(self.archive) || self.durability.default != '{Durability.ARCHIVED}'",
                f"durability.default: {ARCHIVED_NEEDS_ARCHIVE}",
            ),
            (
                f"!self.changeSets.enabled || {_ALL_OXIGRAPH} || (self.mixedEngines && {_ANY_OXIGRAPH})",
                f"changeSets.enabled: {NEEDS_OXIGRAPH}",
            ),
            (
                "!self.changeSets.enabled || !self.splitRecovery.matches('^(?i)none$')",
                f"changeSets.enabled: {NEEDS_ONE_ORDER}",
            ),
            (
                "!oldSelf.hibernated || self.peers.all(p, p.name != self.dataCenter"
                " || oldSelf.peers.exists(q, q.name == p.name && q.masters == p.masters))",
                f"peers: {AWAKE_MEMBERS}",
            ),
        )
    )
    repository: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?$",
        description="Repository id in the URLs of clients, the same in every data centre. By default `metadata.name`.",
    )
    data_center: str = Field(
        pattern=NAME_PATTERN,
        description="Name of the peer that this manifest describes.",
        json_schema_extra=immutable("dataCenter"),
    )
    peers: list[PeerSpec] = Field(
        min_length=1,
        max_length=MASTERS_MAX,
        description="All data centres, this one included, in the same order everywhere. The first reachable master "
        "coordinates.",
        json_schema_extra=list_map("name"),
    )
    split_mode: Literal["Continue", "Majority"] = Field(
        default="Continue",
        description="Which side of a split orders writes: every side, or the one with more than half of all votes. "
        "Has no "
        "effect after the bootstrap.",
    )
    log: LogSpec = LogSpec()
    durability: DurabilityDefaults = DurabilityDefaults()
    non_deterministic_updates: Literal["effects", "refuse"] = Field(
        default="effects",
        description="Updates with RAND, UUID, LIMIT or the like. `effects`: a master evaluates them once and logs "
        "the changed "
        "quads. `refuse`: they are refused.",
    )
    mixed_engines: bool = Field(
        default=False,
        strict=True,
        description="The workers of all data centres have several engines. Updates that these may execute "
        "differently count "
        "as non-deterministic.",
    )
    updates_without_graph: Literal["default", "all"] = Field(
        default="all",
        description="What an update without GRAPH, WITH and USING reads and deletes from: all graphs as in RDF4J, or "
        "the default graph as in SPARQL 1.1.",
    )
    limits: LimitsSpec = LimitsSpec()
    load: LoadSpec | None = None
    cors: CorsSpec = CorsSpec()
    masters: MastersSpec = MastersSpec()
    workers: WorkersSpec = WorkersSpec()
    pipeline: PipelineSpec = PipelineSpec()
    backup: BackupPolicy | None = None
    archive: ArchivePolicy | None = None
    change_sets: ChangeSetsPolicy = ChangeSetsPolicy()
    bootstrap: BootstrapSpec | None = None
    security: SecuritySpec = SecuritySpec()
    telemetry: TelemetrySpec = TelemetrySpec()
    pod_template: PodTemplate = Field(
        default=PodTemplate(),
        description="Additions to all pods, those of Jobs, of the archiver and of change sets included. `masters`, "
        "`workers` and `pipeline` add their own.",
    )
    image: str | None = Field(
        default=None,
        pattern=r"^[^\s]{1,512}$",
        description="Image of all containers, by default that of the operator. Has an effect on Kubernetes only.",
    )
    paused: bool = Field(
        default=False,
        description="The operator observes and reports, and changes nothing. Has an effect on Kubernetes only.",
    )
    hibernated: bool = Field(
        default=False,
        strict=True,
        description="No pod of this data centre runs, and its volumes stay. Has an effect on Kubernetes only.",
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
        check_engines(self.workers.engines, self.mixed_engines, self.non_deterministic_updates)
        return self

    @model_validator(mode="after")
    def _check_archive(self) -> Self:
        if self.archive is not None and self.archive.target is None and self.backup is None:
            raise expected_error(ARCHIVE_NEEDS_TARGET, "archive", "target")
        if self.archive is not None and self.archive.keep is not None and self.archive.target is not None:
            raise expected_error(ARCHIVE_KEEP_NEEDS_BACKUPS, "archive", "keep")
        if self.archive is None and self.durability.default is Durability.ARCHIVED:
            raise expected_error(ARCHIVED_NEEDS_ARCHIVE, "durability", "default")
        return self

    @model_validator(mode="after")
    def _check_change_sets(self) -> Self:
        if not self.change_sets.enabled:
            return self
        engines = self.workers.engines
        if engines != {"oxigraph"} and not (self.mixed_engines and "oxigraph" in engines):
            raise expected_error(NEEDS_OXIGRAPH, "changeSets", "enabled")
        if self.split_recovery == "None":
            raise expected_error(NEEDS_ONE_ORDER, "changeSets", "enabled")
        return self

    @model_validator(mode="after")
    def _check_sites_and_repositories(self) -> Self:
        check_sites(self, self.change_sets.enabled, bool(self.durability.graphs))
        check_repositories(self, self.data_center, self.mixed_engines, self.non_deterministic_updates)
        if self.repositories and self.durability.default is Durability.ARCHIVED:
            raise expected_error(REPOSITORIES_NOT_ARCHIVED, "durability", "default")
        return self

    @model_validator(mode="after")
    def _check_graph_rules(self) -> Self:
        masters = [Master(node, peer.name, peer.vote_weight) for peer in self.peers for node in peer.nodes]
        try:
            rules = [rule.parse() for rule in self.durability.graphs]
            check_rules(rules, masters, workers_go_back=self.split_recovery != "None")
        except BadInput as wrong:
            raise expected_error(str(wrong), "durability", "graphs") from None
        return self

    @model_validator(mode="after")
    def _check_vote_weights(self) -> Self:
        total = sum(peer.masters * peer.vote_weight for peer in self.peers)
        for at, peer in enumerate(self.peers):
            if self.split_mode == "Majority" and 2 * peer.vote_weight >= total:
                raise expected_error(
                    f"less than half of all {total} votes for each master with splitMode: Majority; {peer.nodes[0]} "
                    f"has {peer.vote_weight}, so the others could not continue without it (three masters at least)",
                    *("peers", at, "voteWeight"),
                )
        return self


class ObjectMeta(ManifestModel):
    """The fields of a resource's metadata that TxLog uses."""

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

    @model_validator(mode="after")
    def _check_repository_names(self) -> Self:
        check_names(self.spec, self.repository)
        return self

    @property
    def repository(self) -> str:
        """The repository id at the front door."""
        return self.spec.repository or self.metadata.name

    @property
    def data_center(self) -> str:
        """Name of the data centre that the manifest describes."""
        return self.spec.data_center

    @property
    def own_peer(self) -> PeerSpec:
        """This data centre's line in ``peers``."""
        return next(peer for peer in self.spec.peers if peer.name == self.spec.data_center)
