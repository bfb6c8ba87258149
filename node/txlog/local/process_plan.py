"""Plans the processes of one machine from manifests. Pure: other modules write the files and start the processes.

Every master, store and link gets a loopback port in place of the manifest's addresses. For each peer, a master gets the
port of the link to it, so that every link can be delayed and cut (:mod:`txlog.local.link_proxy`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from txlog.config.cluster import PeerSpec
from txlog.config.manifest_reader import BadManifest, ClusterManifest, ManifestProblem
from txlog.config.process_config import (
    ArchiverConfig,
    BackupJobConfig,
    ChangeSetsConfig,
    DutyJobConfig,
    FolderConfig,
    NodeConfig,
    PipelineConfig,
    RehearsalConfig,
    RepositoriesConfig,
    SiteLinkConfig,
    TargetConfig,
    WorkerConfig,
)
from txlog.config.process_config_builder import (
    build_archiver_config,
    build_backup_config,
    build_change_sets_config,
    build_node_config,
    build_rehearsal_config,
    build_site_link_configs,
    build_target_config,
    build_traces_config,
    worker_names,
)
from txlog.config.repository_specs import repository_worker_names
from txlog.local.link_proxy import LinkConfig
from txlog.local.local_security import security_fields
from txlog.local.process_spec import (
    ProcessSpec,
    archiver_program,
    change_sets_name,
    change_sets_program,
    loopback_url,
    master_program,
    pipeline_program,
    site_link_name,
    site_link_program,
)
from txlog.local.repository_plan import (
    find_mixed_repository,
    find_other_spelling,
    master_repositories,
    pipeline_repositories,
    repository_backups,
    repository_duties,
    repository_locations,
    repository_port_names,
)
from txlog.local.repository_records import RepositoryRecords
from txlog.local.state_folder import MasterLocation, StateFolder, Topology, WorkerChanges, WorkerLocation
from txlog.local.store_program import StorePrograms, store_program, store_url

LINK_PROXY_NAME = "links"
"""The name of the process that carries all links."""


JobConfig = TypeVar("JobConfig", BackupJobConfig, RehearsalConfig)


@dataclass(frozen=True)
class ScheduledPlan(Generic[JobConfig]):
    """Backups or rehearsals. ``schedule``: as in the manifest; None: by hand only."""

    config: JobConfig
    schedule: str | None


NO_REPOSITORIES = RepositoryRecords()


@dataclass(frozen=True)
class ProcessPlan:
    """Every process to run. ``master_configs`` and ``pipeline_configs``: configurations by process name."""

    topology: Topology
    programs: tuple[ProcessSpec, ...]
    links: tuple[LinkConfig, ...]
    master_configs: Mapping[str, NodeConfig]
    pipeline_configs: Mapping[str, PipelineConfig]
    backup_plans: Mapping[str, ScheduledPlan[BackupJobConfig]] = field(default_factory=dict)
    """By data centre; only those with a target. Those of further repositories: by
    :func:`~txlog.local.repository_plan.duty_group`."""
    duty_configs: Mapping[str, DutyJobConfig] = field(default_factory=dict)
    """By data centre, and by :func:`~txlog.local.repository_plan.duty_group` for further repositories."""
    archiver_configs: Mapping[str, ArchiverConfig] = field(default_factory=dict)
    """By data centre; only those with an archive."""
    rehearsal_plans: Mapping[str, ScheduledPlan[RehearsalConfig]] = field(default_factory=dict)
    """The same."""
    change_set_configs: Mapping[str, ChangeSetsConfig] = field(default_factory=dict)
    """By data centre; only those that make change sets."""
    site_link_configs: Sequence[SiteLinkConfig] = ()
    repositories: RepositoryRecords = NO_REPOSITORIES

    @property
    def port_names(self) -> list[str]:
        """The names that have a port now."""
        workers = [*self.topology.workers, *self.topology.repository_workers]
        stores = [worker.name for worker in workers if worker.managed]
        links = [_link_name(link.source, link.target) for link in self.links]
        peers = [_peer_port_name(node) for node, config in self.master_configs.items() if config.peer_port is not None]
        changes = [change_sets_name(data_center) for data_center in self.change_set_configs]
        return [*self.master_configs, *stores, *links, *peers, *changes]

    @property
    def directions(self) -> list[tuple[str, str]]:
        """Every ordered pair of masters that has a link."""
        return [(link.source, link.target) for link in self.links]


def check_complete(manifests: Sequence[ClusterManifest]) -> None:
    """All masters bootstrap a cluster together: :class:`BadManifest` names data centres without a manifest, and mixed
    engines that a manifest does not allow."""
    have = {manifest.data_center for manifest in manifests}
    peers = manifests[0].cluster.spec.peers
    missing = [peer.name for peer in peers if peer.name not in have]
    if missing:
        wrong = f"names {', '.join(missing)}, of which no manifest was given; expected one for each (-f takes several)"
        raise BadManifest([ManifestProblem(manifests[0].file, manifests[0].line, "spec.peers", wrong)])
    engines = sorted({engine for manifest in manifests for engine in manifest.cluster.spec.workers.engines})
    plain = next((manifest for manifest in manifests if not manifest.cluster.spec.mixed_engines), None)
    if len(engines) > 1 and plain is not None:
        wrong = (
            f"is missing, and the workers are {' and '.join(engines)}; expected true in every data centre's manifest"
        )
        raise BadManifest([ManifestProblem(plain.file, plain.line, "spec.mixedEngines", wrong)])
    for problem in (find_other_spelling(manifests), find_mixed_repository(manifests)):
        if problem is not None:
            raise BadManifest([problem])
    names = [name for manifest in manifests for name in _process_names(manifest)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        wrong = f"two processes would be called {twice}; expected another name of a data centre"
        raise BadManifest([ManifestProblem(manifests[0].file, manifests[0].line, "spec.peers", wrong)])


def _process_names(manifest: ClusterManifest) -> list[str]:
    dc = manifest.data_center
    sites = [site_link_name(dc, each.name) for each in manifest.cluster.spec.sites]
    others = [f"{dc}-pipeline", f"{dc}-archiver", change_sets_name(dc), *sites]
    further = [
        name
        for each in manifest.cluster.spec.repositories
        for name in repository_worker_names(dc, each.name, each.workers.count)
    ]
    return [*manifest.cluster.own_peer.nodes, *worker_names(manifest.cluster), *further, *others]


NO_CHANGES = WorkerChanges()


def _managed_worker_names(manifest: ClusterManifest, changes: WorkerChanges) -> list[str]:
    """Names of the stores that run on this machine."""
    added = [each.name for each in changes.added if each.data_center == manifest.data_center]
    planned = worker_names(manifest.cluster)
    return [
        *(name for name in planned if name not in changes.removed),
        *(name for name in added if name not in planned),
    ]


def port_names(
    manifests: Sequence[ClusterManifest],
    changes: WorkerChanges = NO_CHANGES,
    repositories: RepositoryRecords = NO_REPOSITORIES,
) -> list[str]:
    """The names that need a port: masters, then stores, then links, so that the numbers are readable."""
    nodes = [node for manifest in manifests for node in manifest.cluster.own_peer.nodes]
    workers = [
        name for m in manifests if not m.cluster.spec.workers.external for name in _managed_worker_names(m, changes)
    ]
    secured = [m for m in manifests if m.cluster.spec.security.peer_tls_secret_ref is not None]
    peers = [_peer_port_name(node) for manifest in secured for node in manifest.cluster.own_peer.nodes]
    captures = [change_sets_name(m.data_center) for m in manifests if m.cluster.spec.change_sets.enabled]
    links = [_link_name(a, b) for a in nodes for b in nodes if a != b]
    return [*nodes, *workers, *links, *peers, *captures, *repository_port_names(repositories)]


def _link_name(source: str, target: str) -> str:
    return f"{source}>{target}"


def _peer_port_name(node: str) -> str:
    """Name of the port for peers with certificates."""
    return f"{node}/peers"


def make_plan(
    manifests: Sequence[ClusterManifest],
    state: StateFolder,
    ports: Mapping[str, int],
    stores: StorePrograms,
    *,
    python: str = sys.executable,
    changes: WorkerChanges = NO_CHANGES,
    repositories: RepositoryRecords = NO_REPOSITORIES,
) -> ProcessPlan:
    """The plan with ``changes``, for manifests that passed :func:`check_complete`. ``ports`` has one for each of
    :func:`port_names`. ``repositories``: of :func:`~txlog.local.repository_plan.planned_records`."""
    topology = _topology(manifests, ports, changes, repositories)
    further = {dc: master_repositories(topology, dc, repositories) for dc in topology.data_centers}
    nodes = {
        node: _node_config(manifest, node, state, ports, topology, further[manifest.data_center])
        for manifest in manifests
        for node in manifest.cluster.own_peer.nodes
    }
    duties = _duty_config(manifests, topology, state)
    pipelines = {
        f"{manifest.data_center}-pipeline": _pipeline_config(manifest, topology, state, duties[manifest.data_center])
        for manifest in manifests
    }
    backups = _backup_plans(manifests, topology, state, repositories)
    duties |= repository_duties(topology, repositories, state, {name: each.config for name, each in backups.items()})
    workers = [*topology.workers, *topology.repository_workers]
    programs = [store_program(worker, state, stores) for worker in workers if worker.managed]
    links = _links(topology.masters, ports)
    if links:
        command = (python, "-m", "txlog.local.link_proxy", "--config", str(state.root / "links.json"))
        programs.append(ProcessSpec(name=LINK_PROXY_NAME, role="links", data_center="", command=command))
    programs += [master_program(nodes[master.node], master, state, python) for master in topology.masters]
    programs += [
        pipeline_program(name, config.data_center, state, python, stores.java_home)
        for name, config in pipelines.items()
    ]
    archivers = {
        cluster.data_center: config
        for cluster in (manifest.cluster for manifest in manifests)
        if (config := build_archiver_config(cluster, topology.master_urls(cluster.data_center), state.secret))
    }
    programs += [archiver_program(data_center, state, python) for data_center in archivers]
    change_sets = _change_sets_configs(manifests, topology, state, ports)
    programs += [change_sets_program(config, state, python) for config in change_sets.values()]
    sites = [config for manifest in manifests for config in _site_link_configs(manifest, topology, state)]
    programs += [site_link_program(config, python, state.own_environment) for config in sites]
    return ProcessPlan(
        topology,
        tuple(programs),
        links,
        nodes,
        pipelines,
        backups,
        duties,
        archivers,
        _rehearsal_plans(manifests, topology, state),
        change_sets,
        sites,
        repositories,
    )


def _pipeline_config(
    manifest: ClusterManifest, topology: Topology, state: StateFolder, duties: DutyJobConfig
) -> PipelineConfig:
    spec = manifest.cluster.spec
    return PipelineConfig(
        data_center=manifest.data_center,
        masters=topology.master_urls(manifest.data_center),
        workers=_worker_configs(topology, manifest.data_center),
        scratch_folder=state.pipeline(manifest.data_center) / "scratch",
        traces=build_traces_config(manifest.cluster),
        bulk_target=None if spec.workers.external else duties.target,
        repositories=pipeline_repositories(topology, manifest.data_center),
        **spec.limits.pipeline_fields(),
    )


def _topology(
    manifests: Sequence[ClusterManifest],
    ports: Mapping[str, int],
    changes: WorkerChanges,
    repositories: RepositoryRecords,
) -> Topology:
    return Topology(
        repository=manifests[0].cluster.repository,
        data_centers=[manifest.data_center for manifest in manifests],
        masters=[
            MasterLocation(
                node=node,
                data_center=manifest.data_center,
                url=loopback_url(ports[node], tls=manifest.cluster.spec.security.tls_secret_ref is not None),
            )
            for manifest in manifests
            for node in manifest.cluster.own_peer.nodes
        ],
        workers=[worker for manifest in manifests for worker in _worker_locations(manifest, ports, changes)],
        repository_workers=repository_locations(repositories, ports),
    )


def _links(masters: Sequence[MasterLocation], ports: Mapping[str, int]) -> tuple[LinkConfig, ...]:
    """One for each ordered pair of masters."""
    return tuple(
        LinkConfig(
            source=a.node,
            target=b.node,
            listen_port=ports[_link_name(a.node, b.node)],
            target_port=ports.get(_peer_port_name(b.node), ports[b.node]),
        )
        for a in masters
        for b in masters
        if a is not b
    )


def _duty_config(
    manifests: Sequence[ClusterManifest], topology: Topology, state: StateFolder
) -> dict[str, DutyJobConfig]:
    """Split backups go to the manifest's target, else into the state folder."""
    targets: dict[str, TargetConfig] = {}
    for manifest in manifests:
        backup, data_center = manifest.cluster.spec.backup, manifest.data_center
        folder = FolderConfig(folder=state.split_backups(data_center))
        targets[data_center] = build_target_config(backup.target, state.secret) if backup else folder
    masters = {dc: topology.master_urls(dc) for dc in targets}
    return {
        dc: DutyJobConfig(
            data_center=dc,
            masters=masters[dc],
            target=target,
            others=[other for name, other in targets.items() if name != dc and other != target],
            elsewhere=[urls for name, urls in masters.items() if name != dc],
            shown=state.rejoin_diffs(dc),
            repaired=state.repair_patches(dc),
        )
        for dc, target in targets.items()
    }


def _change_sets_configs(
    manifests: Sequence[ClusterManifest], topology: Topology, state: StateFolder, ports: Mapping[str, int]
) -> dict[str, ChangeSetsConfig]:
    """By data centre; only those that make change sets."""
    found: dict[str, ChangeSetsConfig] = {}
    for cluster in (each.cluster for each in manifests if each.cluster.spec.change_sets.enabled):
        dc = cluster.data_center
        masters, port, folder = topology.master_urls(dc), ports[change_sets_name(dc)], state.change_sets(dc)
        config = build_change_sets_config(cluster, masters, folder=folder, port=port, token_file=state.token_file)
        assert config is not None, "it is enabled"
        found[dc] = config
    return found


def _site_link_configs(manifest: ClusterManifest, topology: Topology, state: StateFolder) -> list[SiteLinkConfig]:
    dc = manifest.data_center
    return build_site_link_configs(manifest.cluster, topology.master_urls(dc), state.sites(dc), state.secret)


def _rehearsal_plans(
    manifests: Sequence[ClusterManifest], topology: Topology, state: StateFolder
) -> dict[str, ScheduledPlan[RehearsalConfig]]:
    found: dict[str, ScheduledPlan[RehearsalConfig]] = {}
    for manifest in manifests:
        dc, archive = manifest.data_center, manifest.cluster.spec.archive
        config = build_rehearsal_config(manifest.cluster, topology.master_urls(dc), state.secret)
        if config is not None and archive is not None:
            found[dc] = ScheduledPlan(config, archive.rehearsal.schedule if archive.rehearsal is not None else None)
    return found


def _backup_plans(
    manifests: Sequence[ClusterManifest], topology: Topology, state: StateFolder, repositories: RepositoryRecords
) -> dict[str, ScheduledPlan[BackupJobConfig]]:
    first: dict[str, ScheduledPlan[BackupJobConfig]] = {}
    for manifest in manifests:
        dc, backup = manifest.data_center, manifest.cluster.spec.backup
        if backup is not None:
            target = build_target_config(backup.target, state.secret)
            config = build_backup_config(manifest.cluster, topology.master_urls(dc), target)
            first[dc] = ScheduledPlan(config, backup.schedule)
    further = repository_backups(topology, repositories, {dc: each.config for dc, each in first.items()})
    return first | {
        group: ScheduledPlan(config, first[config.data_center].schedule) for group, config in further.items()
    }


def _worker_locations(
    manifest: ClusterManifest, ports: Mapping[str, int], changes: WorkerChanges
) -> list[WorkerLocation]:
    workers = manifest.cluster.spec.workers
    names = worker_names(manifest.cluster)
    filling = {each.name for each in changes.added if not each.serves}
    dc = manifest.data_center
    if workers.external:
        return [
            WorkerLocation(name=name, data_center=dc, url=each.url.rstrip("/"), engine=each.engine, managed=False)
            for name, each in zip(names, workers.external, strict=True)
        ]
    return [
        WorkerLocation(
            name=name,
            data_center=dc,
            url=store_url(ports[name], workers.engine),
            engine=workers.engine,
            managed=True,
            serves=name not in filling,
        )
        for name in _managed_worker_names(manifest, changes)
    ]


def _worker_configs(topology: Topology, data_center: str) -> list[WorkerConfig]:
    return [
        WorkerConfig.model_validate({"name": worker.name, "url": worker.url, "engine": worker.engine})
        for worker in topology.workers
        if worker.data_center == data_center and worker.serves
    ]


def _change_sets_url(manifest: ClusterManifest, ports: Mapping[str, int]) -> str | None:
    enabled = manifest.cluster.spec.change_sets.enabled
    return loopback_url(ports[change_sets_name(manifest.data_center)]) if enabled else None


def _node_config(
    manifest: ClusterManifest,
    node: str,
    state: StateFolder,
    ports: Mapping[str, int],
    topology: Topology,
    repositories: RepositoriesConfig | None,
) -> NodeConfig:
    def url_of(peer: PeerSpec, index: int) -> str:
        other = peer.nodes[index - 1]
        return loopback_url(ports[other if other == node else _link_name(node, other)])

    return build_node_config(
        manifest.cluster,
        node,
        url_of=url_of,
        port=ports[node],
        journal_folder=state.master(node) / "journal",
        token_file=state.token_file,
        workers=_worker_configs(topology, manifest.data_center),
        change_sets_url=_change_sets_url(manifest, ports),
        peer_port=ports.get(_peer_port_name(node)),
        repositories=repositories,
        **security_fields(manifest, node, state),
    )
