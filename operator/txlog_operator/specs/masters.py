"""The masters of a data centre: one StatefulSet, their configuration, and their Services. Pure."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Final

from txlog.config.cluster import PeerSpec, TxLogCluster
from txlog.config.preferences import SETTING_FIELDS
from txlog.config.process_config import NodeConfig
from txlog.config.process_config_builder import MASTER_STOP_MARGIN_S, build_node_config, build_worker_configs
from txlog_operator.object_names import ObjectNames, short_hash
from txlog_operator.specs import recovery
from txlog_operator.specs.common import (
    CONFIG_FOLDER,
    CONFIG_HASH_ANNOTATION,
    CONFIG_MOUNT,
    DATA_FOLDER,
    INTERNAL_TOKEN_KEY,
    MASTER_PORT,
    PEER_TOKEN_FOLDER,
    PEER_TOKEN_KEY,
    SECURE_PEER_PORT,
    TMP_MOUNT,
    USERS_KEY,
    BuildContext,
    KubeObject,
    build_object,
    change_sets_url,
    config_text,
    container,
    field_variable,
    headless_service,
    ip_families,
    is_secured,
    listen_host,
    peer_address,
    peer_token_secret,
    pod_spec,
    resource_requirements,
    selector,
    spread_over_nodes,
    url_scheme,
    volume_claim,
    worker_url,
)
from txlog_operator.specs.pod_template import build_pod_template

COMPONENT: Final = "master"
CLAIM: Final = "journal"
"""The volume claim of each master."""
USERS_FOLDER: Final = Path("/etc/txlog-users")
TLS_FOLDER: Final = Path("/etc/txlog-tls")
PEER_TLS_FOLDER: Final = Path("/etc/txlog-peer-tls")
TERMINATION_LOG: Final = Path("/dev/termination-log")
"""Each container has its own. After the end it holds the identity of the process, which proves that this process is
gone."""
REQUESTS: Final = {"cpu": "100m", "memory": "256Mi", "ephemeral-storage": "64Mi"}
"""Of each master, where the manifest names none: enough for a log of some million entries."""
INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"
ENDPOINT_DRAIN_S: Final = 2
"""Delay between the deletion of a pod and SIGTERM. Services remove the pod in this time, and the master still accepts
requests."""
TERMINATION_GRACE_S_MIN: Final = 75
ACCEPTED_MANIFEST_KEY: Final = "accepted.json"
"""Key of the last valid manifest, beside the masters' configurations. It stays in effect while a newer manifest is
invalid."""
LIVE_FIELDS: Final = {each.config for each in SETTING_FIELDS}
"""Fields that a running master accepts: a change restarts no master."""
LOG_OWNED_FIELDS: Final = {"peers", "split_mode", "last_seen", "graphs"}
"""Fields that only count for the bootstrap, or that each start receives again."""


def replica_count(cluster: TxLogCluster, around: BuildContext) -> int:
    """The number of masters that run, including one that leaves, without one that may not start yet."""
    return cluster.own_peer.masters if around.master_count is None else around.master_count


def journal_size(cluster: TxLogCluster, around: BuildContext) -> int:
    """Bytes of the volume of each journal."""
    return around.volume_sizes.get(COMPONENT, cluster.spec.masters.storage.size)


def node_names(cluster: TxLogCluster, around: BuildContext) -> list[str]:
    """Node ids of the running masters, including one that leaves."""
    return [f"{cluster.data_center}-{index}" for index in range(1, replica_count(cluster, around) + 1)]


def master_config(cluster: TxLogCluster, node: str, around: BuildContext) -> NodeConfig:
    """The configuration of the master with that node id. A leaving master is still among the peers."""
    names = ObjectNames(cluster)
    running = replica_count(cluster, around)
    if running > cluster.own_peer.masters:
        own = cluster.own_peer.model_copy(update={"masters": running})
        peers = [own if peer.name == own.name else peer for peer in cluster.spec.peers]
        cluster = cluster.model_copy(update={"spec": cluster.spec.model_copy(update={"peers": peers})})

    def url_of(peer: PeerSpec, index: int) -> str:
        if peer.name == cluster.data_center:
            return f"http://{names.master_host(index)}:{SECURE_PEER_PORT if is_secured(cluster) else MASTER_PORT}"
        return f"http://{peer_address(cluster, peer, index)}"

    found = build_node_config(
        cluster,
        node,
        url_of=url_of,
        port=MASTER_PORT,
        journal_folder=DATA_FOLDER / "journal",
        token_file=PEER_TOKEN_FOLDER / PEER_TOKEN_KEY,
        workers=build_worker_configs(cluster, lambda index: worker_url(cluster, index)),
        change_sets_url=change_sets_url(cluster),
        host=listen_host(around),
        last_seen=around.last_seen.get(node),
        identity_file=TERMINATION_LOG,
        **_security_fields(cluster),
    )
    return found.model_copy(update={"journal_bytes_max": journal_size(cluster, around)})


def _security_fields(cluster: TxLogCluster) -> dict[str, Any]:
    """The security fields of a master's configuration."""
    security, found = cluster.spec.security, dict[str, Any]()
    if security.users is not None:
        found |= {"users_file": USERS_FOLDER / USERS_KEY, "own_token_file": USERS_FOLDER / INTERNAL_TOKEN_KEY}
    if security.tls_secret_ref is not None:
        found["tls_folder"] = TLS_FOLDER
    if security.peer_tls_secret_ref is not None:
        found |= {"peer_tls_folder": PEER_TLS_FOLDER, "peer_port": SECURE_PEER_PORT}
    return found


def _secret_volumes(cluster: TxLogCluster) -> list[tuple[str, Path, str]]:
    """Name, folder and Secret of each volume. Whole folders only: the kubelet does not update single mounted files."""
    security = cluster.spec.security
    users = security.users
    found = [("peer-token", PEER_TOKEN_FOLDER, peer_token_secret(cluster))]
    if users is not None:
        found.append(("users", USERS_FOLDER, users.secret_ref.name))
    if security.tls_secret_ref is not None:
        found.append(("tls", TLS_FOLDER, security.tls_secret_ref.name))
    if security.peer_tls_secret_ref is not None:
        found.append(("peer-tls", PEER_TLS_FOLDER, security.peer_tls_secret_ref.name))
    return found


def restart_hash(cluster: TxLogCluster, around: BuildContext) -> str:
    """A hash of the fields that a master reads only at its start. Live fields and fields of the log are excluded.
    Addresses are included, since a running master keeps the ones it knows."""
    first = master_config(cluster, f"{cluster.data_center}-1", around)
    fixed = first.model_dump(mode="json", exclude=LIVE_FIELDS | LOG_OWNED_FIELDS, exclude_defaults=True)
    return short_hash([fixed, {peer.name: peer.address for peer in cluster.spec.peers}])


def config_map(cluster: TxLogCluster, around: BuildContext) -> KubeObject:
    """The ConfigMap with one file for each master. The pods do not depend on its content: a change takes effect at the
    next start. Defaults are left out, so that an older image can read it."""
    data = {f"{node}.json": config_text(master_config(cluster, node, around)) for node in node_names(cluster, around)}
    data |= recovery.recovery_files(cluster)
    data[ACCEPTED_MANIFEST_KEY] = cluster.model_dump_json(by_alias=True, exclude_unset=True) + "\n"
    return build_object(cluster, around, "v1", "ConfigMap", ObjectNames(cluster).master_hosts, COMPONENT, data=data)


def accepted_manifest(found: KubeObject | None) -> TxLogCluster | None:
    """The manifest from which this ConfigMap was built; None when it has none or it cannot be parsed."""
    try:
        return TxLogCluster.model_validate_json(found["data"][ACCEPTED_MANIFEST_KEY]) if found else None
    except (KeyError, ValueError):
        return None


def stateful_set(cluster: TxLogCluster, around: BuildContext) -> KubeObject:
    """The StatefulSet of the masters."""
    names, masters = ObjectNames(cluster), cluster.spec.masters
    marks = {CONFIG_HASH_ANNOTATION: restart_hash(cluster, around)}
    template = build_pod_template(cluster, COMPONENT, _pod(cluster, around), marks)
    spec: KubeObject = {
        "replicas": 0 if around.hibernated else replica_count(cluster, around),
        "serviceName": names.master_hosts,
        "ordinals": {"start": 1},
        # All masters bootstrap the cluster together, and none is ready before that.
        "podManagementPolicy": "Parallel",
        # The operator restarts them one by one, while no master is missing.
        "updateStrategy": {"type": "OnDelete"},
        # Who scales it by hand must not lose journals: the operator deletes the claim of a master that has left.
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        "selector": {"matchLabels": selector(cluster, COMPONENT)},
        "template": template,
        "volumeClaimTemplates": [
            volume_claim(CLAIM, journal_size(cluster, around), masters.storage.storage_class_name)
        ],
    }
    return build_object(cluster, around, "apps/v1", "StatefulSet", names.masters, COMPONENT, spec=spec)


def _pod(cluster: TxLogCluster, around: BuildContext) -> KubeObject:
    names, secrets = ObjectNames(cluster), _secret_volumes(cluster)
    config = f"{CONFIG_FOLDER}/{cluster.data_center}-$(TXLOG_INDEX).json"
    env = [field_variable("TXLOG_INDEX", f"metadata.labels['{INDEX_LABEL}']")]
    mounts: list[KubeObject] = [
        {"name": CLAIM, "mountPath": str(DATA_FOLDER)},
        CONFIG_MOUNT,
    ]
    first = recovery.init_containers(cluster, around, config, env, mounts)
    master = container(
        cluster,
        around,
        COMPONENT,
        ["python", "-m", "txlog.server", f"--config={config}"],
        env=env,
        ports=[{"name": name, "containerPort": port} for name, port in _ports(cluster).items()],
        resources=resource_requirements(cluster.spec.masters.resources, REQUESTS),
        startupProbe=_probe(cluster, "startup", periodSeconds=1, failureThreshold=600),
        livenessProbe=_probe(cluster, "live", periodSeconds=10, timeoutSeconds=5, failureThreshold=6),
        readinessProbe=_probe(cluster, "ready", periodSeconds=1, timeoutSeconds=2, failureThreshold=2),
        lifecycle={"preStop": {"exec": {"command": ["sleep", str(ENDPOINT_DRAIN_S)]}}},
        terminationMessagePath=str(TERMINATION_LOG),
        terminationMessagePolicy="File",
        volumeMounts=[
            *mounts,
            *({"name": name, "mountPath": str(folder), "readOnly": True} for name, folder, _ in secrets),
            TMP_MOUNT,
        ],
    )
    volumes = [
        {"name": "config", "configMap": {"name": names.master_hosts}},
        *({"name": name, "secret": {"secretName": secret}} for name, _, secret in secrets),
        *(recovery.recovery_volumes(cluster) if first else []),
    ]
    return pod_spec(
        around,
        [master],
        volumes,
        **({"initContainers": first} if first else {}),
        terminationGracePeriodSeconds=termination_grace_s(cluster),
        topologySpreadConstraints=spread_over_nodes(cluster, COMPONENT),
    )


def termination_grace_s(cluster: TxLogCluster) -> int:
    """Generous, because a master exits by itself. Independent of ``leaveTimeout``, which changes without restarts."""
    return max(
        TERMINATION_GRACE_S_MIN, math.ceil(cluster.spec.leave_timeout / 1000 + MASTER_STOP_MARGIN_S) + ENDPOINT_DRAIN_S
    )


def _probe(cluster: TxLogCluster, kind: str, **times: int) -> KubeObject:
    """The kubelet does not verify the certificate, so any certificate passes."""
    speaks = {"scheme": "HTTPS"} if url_scheme(cluster) == "https" else {}
    return {"httpGet": {"path": f"/health/{kind}", "port": "http", **speaks}, **times}


def _ports(cluster: TxLogCluster) -> dict[str, int]:
    """The ports of a pod by name: for clients, and for peers with certificates."""
    return {"http": MASTER_PORT} | ({"peers": SECURE_PEER_PORT} if is_secured(cluster) else {})


def services(cluster: TxLogCluster, around: BuildContext) -> list[KubeObject]:
    """A headless Service for host names, which peers need before any master is ready, and a Service for clients."""
    names = ObjectNames(cluster)
    ports = [{"name": "http", "port": MASTER_PORT, "targetPort": "http"}]
    spec = {"type": "ClusterIP", "selector": selector(cluster, COMPONENT), "ports": ports, **ip_families(around)}
    return [
        headless_service(cluster, around, names.master_hosts, COMPONENT, _ports(cluster)),
        build_object(cluster, around, "v1", "Service", names.clients, COMPONENT, spec=spec),
    ]
