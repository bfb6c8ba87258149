"""What further repositories need on this machine: stores, and parts of the processes of their data centres. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from txlog.client.connection import REPOSITORIES_PATH
from txlog.config.manifest_reader import ClusterManifest, ManifestProblem
from txlog.config.process_config import (
    BackupJobConfig,
    DutyJobConfig,
    FolderConfig,
    RepositoriesConfig,
    RepositoryPipelineConfig,
    TargetConfig,
    WorkerConfig,
)
from txlog.config.repository_specs import RepositorySpec, repository_label, repository_worker_names
from txlog.local.repository_records import LocalRepository, RepositoryRecords, StoreRecord
from txlog.local.state_folder import StateFolder, Topology, WorkerLocation
from txlog.local.store_program import store_url


def planned_records(manifests: Sequence[ClusterManifest], known: RepositoryRecords) -> RepositoryRecords:
    """The records by these manifests: what they name, and what they named before and is not removed yet."""
    listed = [_from_manifest(manifest, each) for manifest in manifests for each in manifest.cluster.spec.repositories]
    named = {each.key for each in listed}
    numbers = {each.key: each.number for each in known.repositories}
    repositories = [each.model_copy(update={"number": numbers.get(each.key, 0)}) for each in listed]
    here = {manifest.data_center for manifest in manifests}
    repositories += [
        each.model_copy(update={"is_wanted": False})
        for each in known.repositories
        if each.key not in named and each.data_center in here
    ]
    return RepositoryRecords(was_used=known.was_used or bool(repositories), repositories=repositories)


def _from_manifest(manifest: ClusterManifest, spec: RepositorySpec) -> LocalRepository:
    dc, workers = manifest.data_center, spec.workers
    names = repository_worker_names(dc, spec.name, workers.count)
    if workers.external:
        stores = [
            StoreRecord(name=name, engine=each.engine, url=each.url.rstrip("/"))
            for name, each in zip(names, workers.external, strict=True)
        ]
    else:
        stores = [StoreRecord(name=name, engine=workers.engine) for name in names]
    return LocalRepository(name=spec.name, data_center=dc, stores=stores)


def repository_port_names(records: RepositoryRecords) -> list[str]:
    """Names of the stores that run on this machine."""
    return [store.name for each in records.repositories for store in each.stores if not store.url]


def repository_engines(records: RepositoryRecords) -> set[str]:
    """Engines of the stores that run on this machine."""
    return {store.engine for each in records.repositories for store in each.stores if not store.url}


def repository_locations(records: RepositoryRecords, ports: Mapping[str, int]) -> list[WorkerLocation]:
    """Where the stores are reached."""
    return [
        WorkerLocation(
            name=store.name,
            data_center=each.data_center,
            url=store.url or store_url(ports[store.name], store.engine),
            engine=store.engine,
            managed=not store.url,
            repository=each.name,
        )
        for each in records.repositories
        for store in each.stores
    ]


def master_repositories(topology: Topology, data_center: str, records: RepositoryRecords) -> RepositoriesConfig | None:
    """What masters of a data centre know of further repositories; None where there never were some."""
    if not records.was_used:
        return None
    return RepositoriesConfig(workers=_worker_configs(topology, data_center))


def pipeline_repositories(topology: Topology, data_center: str) -> list[RepositoryPipelineConfig]:
    """The further repositories that the pipeline of a data centre applies."""
    found = _worker_configs(topology, data_center)
    return [RepositoryPipelineConfig(name=name, workers=workers) for name, workers in found.items()]


def _worker_configs(topology: Topology, data_center: str) -> dict[str, list[WorkerConfig]]:
    found: dict[str, list[WorkerConfig]] = {}
    for worker in topology.repository_workers:
        if worker.data_center == data_center:
            fields = {"name": worker.name, "url": worker.url, "engine": worker.engine}
            found.setdefault(worker.repository, []).append(WorkerConfig.model_validate(fields))
    return found


def duty_group(data_center: str, repository: str) -> str:
    """Names the duties of a further repository in a data centre. No data centre has a dot in its name."""
    return f"{data_center}.{repository_label(repository)}"


def place_of(group: str) -> dict[str, str]:
    """What a :func:`duty_group`, or a data centre alone, means, as JSON."""
    data_center, _, repository = group.partition(".")
    return {"dataCenter": data_center, **({"repository": repository} if repository else {})}


def _master_urls(topology: Topology, data_center: str, repository: str) -> list[str]:
    return [f"{url}{REPOSITORIES_PATH}/{repository}" for url in topology.master_urls(data_center)]


def repository_backups(
    topology: Topology, records: RepositoryRecords, first: Mapping[str, BackupJobConfig]
) -> dict[str, BackupJobConfig]:
    """Backups of the further repositories that have workers, by :func:`duty_group`: as those of the first one, in a
    folder of their own on the same target. ``first``: those of the first repository, by data centre."""
    return {
        duty_group(each.data_center, each.name): config.model_copy(
            update={
                "masters": _master_urls(topology, each.data_center, each.name),
                "target": config.target.model_copy(update={"repository": each.name}),
                "window_s": None,  # an archive has the first repository alone
            }
        )
        for each in records.repositories
        if each.stores and (config := first.get(each.data_center)) is not None
    }


def repository_duties(
    topology: Topology,
    records: RepositoryRecords,
    state: StateFolder,
    backups: Mapping[str, BackupJobConfig],
) -> dict[str, DutyJobConfig]:
    """By :func:`duty_group`. Split backups of further repositories go into the state folder. ``backups``: those by
    schedule, from which a store is restored as well."""

    def kept(data_centers: Sequence[str], repository: str) -> list[TargetConfig]:
        groups = [duty_group(dc, repository) for dc in data_centers]
        return list({repr(target): target for g in groups if g in backups for target in [backups[g].target]}.values())

    def target(data_center: str, repository: str) -> FolderConfig:
        return FolderConfig(folder=state.split_backups(duty_group(data_center, repository)))

    found: dict[str, DutyJobConfig] = {}
    for each in records.repositories:
        group = duty_group(each.data_center, each.name)
        others = [dc for dc in topology.data_centers if dc != each.data_center]
        found[group] = DutyJobConfig(
            data_center=each.data_center,
            masters=_master_urls(topology, each.data_center, each.name),
            target=target(each.data_center, each.name),
            others=[*kept([each.data_center], each.name), *(target(dc, each.name) for dc in others)],
            elsewhere=[_master_urls(topology, dc, each.name) for dc in others],
            shown=state.rejoin_diffs(group),
            repaired=state.repair_patches(group),
        )
    return found


def find_mixed_repository(manifests: Sequence[ClusterManifest]) -> ManifestProblem | None:
    """Engines of one repository that differ between data centres, where a manifest does not allow it."""
    engines: dict[str, set[str]] = {}
    for manifest in manifests:
        for each in manifest.cluster.spec.repositories:
            engines.setdefault(each.name, set()).update(each.workers.engines)
    for manifest in manifests:
        for at, each in enumerate(manifest.cluster.spec.repositories):
            if len(engines[each.name]) > 1 and not manifest.cluster.spec.mixed_engines:
                found = " and ".join(sorted(engines[each.name]))
                wrong = f"has workers of {found} in all data centres; expected one engine, or spec.mixedEngines true"
                return ManifestProblem(manifest.file, manifest.line, f"spec.repositories[{at}].workers", wrong)
    return None


def find_other_spelling(manifests: Sequence[ClusterManifest]) -> ManifestProblem | None:
    """A repository that two data centres name by another spelling."""
    spelled: dict[str, str] = {}
    for manifest in manifests:
        for at, each in enumerate(manifest.cluster.spec.repositories):
            first = spelled.setdefault(repository_label(each.name), each.name)
            if first != each.name:
                wrong = f'is "{each.name}"; expected "{first}", as in another data centre, or quite another name'
                return ManifestProblem(manifest.file, manifest.line, f"spec.repositories[{at}].name", wrong)
    return None
