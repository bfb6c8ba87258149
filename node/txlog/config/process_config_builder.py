"""Builds the configurations of processes from a manifest, wherever they run. The supervisor (``txlog up`` or the
operator) supplies addresses and folders; everything else is defined here, once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from txlog.config.access_specs import LoadSpec
from txlog.config.archive_policy import ArchivePolicy, RehearsalPolicy
from txlog.config.backup_policy import BackupTargetSpec
from txlog.config.cluster import PeerSpec, TxLogCluster
from txlog.config.preferences import config_fields
from txlog.config.process_config import (
    ArchiverConfig,
    BackupJobConfig,
    ChangeSetsConfig,
    FolderConfig,
    Limits,
    LoadConfig,
    MasterArchiveConfig,
    MasterChangeSetsConfig,
    NodeConfig,
    OtherSiteConfig,
    PeerConfig,
    RehearsalConfig,
    S3Config,
    SiteLinkConfig,
    TargetConfig,
    TracesConfig,
    WorkerConfig,
)

SITE_TOKEN_FILE = "token"
"""In the Secret of another site."""
ARCHIVED_MIN_S = 60.0
ARCHIVED_DELAYS = 2
"""A rehearsal waits for the archiver so many times ``archive.maxDelay``, and at least so long."""
MASTER_STOP_MARGIN_S = 10.0
"""Added to its ``leaveTimeout``: for answers in progress, the last sync, and the exit of Python."""


def worker_names(cluster: TxLogCluster) -> list[str]:
    """Names of this data centre's workers, in order."""
    workers = cluster.spec.workers
    count = len(workers.external) if workers.external else workers.replicas
    return [f"{cluster.data_center}-worker-{index}" for index in range(1, count + 1)]


def build_worker_configs(cluster: TxLogCluster, url_of: Callable[[int], str]) -> list[WorkerConfig]:
    """``url_of``: the URL of the managed worker with that index (from 1)."""
    workers, names = cluster.spec.workers, worker_names(cluster)
    if workers.external:
        return [
            WorkerConfig(name=name, url=each.url.rstrip("/"), engine=each.engine)
            for name, each in zip(names, workers.external, strict=True)
        ]
    return [
        WorkerConfig(name=name, url=url_of(index), engine=workers.engine) for index, name in enumerate(names, start=1)
    ]


def build_node_config(
    cluster: TxLogCluster,
    node: str,
    *,
    url_of: Callable[[PeerSpec, int], str],
    port: int,
    journal_folder: Path,
    token_file: Path,
    workers: Sequence[WorkerConfig],
    change_sets_url: str | None = None,
    **more: Any,
) -> NodeConfig:
    """``url_of``: the URL at which this master reaches the master of that data centre and index (from 1).
    ``change_sets_url``: where masters read change sets; None: this data centre makes none. ``more``: fields of
    :class:`NodeConfig` that are in no manifest."""
    spec = cluster.spec
    peers = [
        PeerConfig(node=other, data_center=peer.name, url=url_of(peer, index), weight=peer.vote_weight)
        for peer in spec.peers
        for index, other in enumerate(peer.nodes, 1)
    ]
    return NodeConfig(
        node=node,
        data_center=cluster.data_center,
        repository=cluster.repository,
        port=port,
        journal_folder=journal_folder,
        journal_bytes_max=spec.masters.storage.size,
        log_keep_ms=spec.log.keep,
        log_bytes_max=spec.log.max_size,
        peer_token_file=token_file,
        peers=peers,
        workers=list(workers),
        split_mode=spec.split_mode,
        durability=spec.durability.default,
        write_timeout_s=spec.durability.write_timeout / 1000,
        non_deterministic_updates=spec.non_deterministic_updates,
        mixed_engines=spec.mixed_engines,
        updates_without_graph=spec.updates_without_graph,
        graphs=spec.durability.graphs,
        limits=Limits(
            keys_max=spec.limits.keys_max,
            synchronous_transactions=spec.durability.synchronous_queue.transactions,
            synchronous_bytes=spec.durability.synchronous_queue.bytes,
        ),
        load=_build_load_config(spec.load),
        archive=_build_master_archive_config(spec.archive),
        change_sets=MasterChangeSetsConfig(url=change_sets_url) if change_sets_url is not None else None,
        cors_origins=spec.cors.allowed_origins,
        traces=build_traces_config(cluster),
        **config_fields(spec),
        **more,
    )


def build_traces_config(cluster: TxLogCluster) -> TracesConfig | None:
    """Where the processes of this data centre send spans; None where nothing is traced."""
    traces = cluster.spec.telemetry.traces
    return None if traces is None else TracesConfig(endpoint=traces.endpoint, sample_ratio=traces.sample_ratio)


def _build_load_config(load: LoadSpec | None) -> LoadConfig | None:
    if load is None:
        return None
    return LoadConfig(sources=load.sources, networks=load.networks, bytes_max=load.max_size, timeout_ms=load.timeout)


def _build_master_archive_config(archive: ArchivePolicy | None) -> MasterArchiveConfig | None:
    if archive is None:
        return None
    return MasterArchiveConfig(
        max_delay_ms=archive.max_delay,
        on_full=archive.on_full,
        rehearsal_max_age_ms=archive.rehearsal.max_age if archive.rehearsal is not None else None,
    )


def build_target_config(target: BackupTargetSpec, secret_folder: Callable[[str], Path]) -> TargetConfig:
    """``secret_folder``: the folder with the files of the Secret of that name."""
    if target.folder is not None:
        return FolderConfig(folder=Path(target.folder.path))
    s3 = target.s3
    assert s3 is not None, "one of both, the model says"
    return S3Config(
        bucket=s3.bucket,
        prefix=s3.prefix,
        endpoint=s3.endpoint,
        region=s3.region,
        credentials_folder=secret_folder(s3.secret_ref.name) if s3.secret_ref else None,
    )


def build_backup_config(cluster: TxLogCluster, masters: Sequence[str], target: TargetConfig) -> BackupJobConfig:
    """Scheduled backups of this data centre, for a manifest that has ``backup``."""
    backup = cluster.spec.backup
    assert backup is not None, "asked for backups of a manifest that has none"
    return BackupJobConfig(
        data_center=cluster.data_center,
        masters=list(masters),
        target=target,
        keep=backup.keep,
        keep_days=backup.keep_days,
        window_s=_window_s(cluster.spec.archive),
        incremental=backup.incremental,
        chain=backup.chain,
        merges=backup.merges,
    )


def archive_target(cluster: TxLogCluster) -> BackupTargetSpec | None:
    """Where the log of this data centre is archived; None without an archive."""
    archive, backup = cluster.spec.archive, cluster.spec.backup
    if archive is None or archive.target is not None:
        return archive.target if archive is not None else None
    assert backup is not None, "the model demands one of both targets"
    return backup.target


def build_archiver_config(
    cluster: TxLogCluster, masters: Sequence[str], secret_folder: Callable[[str], Path]
) -> ArchiverConfig | None:
    """The archiver of this data centre; None without an archive. ``secret_folder`` as in
    :func:`build_target_config`."""
    archive, target = cluster.spec.archive, archive_target(cluster)
    if archive is None or target is None:
        return None
    return ArchiverConfig(
        data_center=cluster.data_center,
        masters=list(masters),
        target=build_target_config(target, secret_folder),
        max_delay_ms=archive.max_delay,
        window_s=_window_s(archive),
    )


def build_change_sets_config(
    cluster: TxLogCluster, masters: Sequence[str], *, folder: Path, port: int, token_file: Path, host: str = "127.0.0.1"
) -> ChangeSetsConfig | None:
    """The process that makes the change sets of this data centre; None where the manifest wants none."""
    policy = cluster.spec.change_sets
    if not policy.enabled:
        return None
    return ChangeSetsConfig(
        data_center=cluster.data_center,
        masters=list(masters),
        folder=folder,
        host=host,
        port=port,
        peer_token_file=token_file,
        keep_ms=policy.keep,
    )


def build_site_link_configs(
    cluster: TxLogCluster, masters: Sequence[str], folder: Path, secret_folder: Callable[[str], Path]
) -> list[SiteLinkConfig]:
    """The links of this data centre. ``folder``: of all of them. ``secret_folder``: of a Secret, by its name."""
    spec = cluster.spec
    return [
        SiteLinkConfig(
            data_center=cluster.data_center,
            site=spec.site or "",
            repository=cluster.repository,
            masters=list(masters),
            other=OtherSiteConfig(
                name=each.name,
                masters=each.urls,
                token_file=secret_folder(each.token_secret_ref.name) / SITE_TOKEN_FILE
                if each.token_secret_ref is not None
                else None,
            ),
            folder=folder / each.name,
            key=each.key,
            lag_ms=each.lag,
            offline=each.offline,
        )
        for each in spec.sites
    ]


def build_rehearsal_config(
    cluster: TxLogCluster,
    masters: Sequence[str],
    secret_folder: Callable[[str], Path],
    scratch_folder: Path | None = None,
) -> RehearsalConfig | None:
    """A rehearsal of a recovery of this data centre; None without an archive. Without ``archive.rehearsal`` its RPO and
    RTO are not bounded. ``secret_folder`` as in :func:`build_target_config`."""
    archive, target, backup = cluster.spec.archive, archive_target(cluster), cluster.spec.backup
    if archive is None or target is None:
        return None
    policy = archive.rehearsal
    return RehearsalConfig(
        data_center=cluster.data_center,
        masters=list(masters),
        target=build_target_config(target, secret_folder),
        backups=build_target_config(backup.target, secret_folder) if backup is not None else None,
        level=policy.level if policy is not None else "cluster",
        max_rpo_s=_max_rpo_ms(archive, policy) / 1000 if policy is not None else None,
        max_rto_s=policy.max_rto / 1000 if policy is not None else None,
        archived_s=max(ARCHIVED_MIN_S, ARCHIVED_DELAYS * archive.max_delay / 1000),
        scratch_folder=scratch_folder,
    )


def _max_rpo_ms(archive: ArchivePolicy, policy: RehearsalPolicy) -> int:
    return policy.max_rpo if policy.max_rpo is not None else max(10 * archive.max_delay, 10_000)


def _window_s(archive: ArchivePolicy | None) -> float | None:
    return archive.keep / 1000 if archive is not None and archive.keep is not None else None
