"""The masters of a data centre: one StatefulSet, what each is told, and the Services in front of them. Pure."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Final

from txlog.config.cluster import PeerSpec, TxLogCluster
from txlog.config.process_config import NodeConfig
from txlog.config.process_config_builder import MASTER_STOP_MARGIN_S, build_node_config, build_worker_configs
from txlog.operator.build.common import (
    CONFIG,
    DATA,
    MASTER_PORT,
    MEETING_PORT,
    OWN_TOKEN_KEY,
    TMP,
    TOKEN,
    USERS_KEY,
    Around,
    Object,
    claim,
    container,
    is_secured,
    labels,
    made,
    meeting_address,
    pod_spec,
    resources_of,
    scheme,
    selector,
    worker_url,
)
from txlog.operator.names import GROUP, Names, digest

COMPONENT: Final = "master"
TOKEN_KEY: Final = "token"
USERS: Final = Path("/etc/txlog-users")
TLS: Final = Path("/etc/txlog-tls")
PEER_TLS: Final = Path("/etc/txlog-peer-tls")
IDENTITY: Final = Path("/dev/termination-log")
"""Each container has its own, and its end shows it: that proves which process is gone."""
INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"
CONFIG_HASH: Final = f"{GROUP}/config"
DRAIN_S: Final = 2
"""Between a pod's end being known and the master hearing of it: Services learn of it meanwhile, and it takes work."""
STOP_S_MIN: Final = 75
ACCEPTED: Final = "accepted.json"
"""Beside what the masters read: the last manifest that was valid. It is kept true while a newer one is not."""
LIVE: Final = {
    "round_timeout_ms",
    "idle_interval_ms",
    "max_peer_lag_ms",
    "none_split_delay_ms",
    "max_clock_skew_ms",
    "leave_timeout_ms",
    "split_recovery",
    "worker_repair",
}
"""What a master takes while it runs: changing it restarts nobody."""
BY_THE_LOG: Final = {"peers", "split_mode", "last_seen"}
"""What counts at the founding only, or is told anew at each start."""


def replicas(cluster: TxLogCluster, around: Around) -> int:
    return max(cluster.own_peer.masters, around.masters or 0)


def node_names(cluster: TxLogCluster, around: Around) -> list[str]:
    """Of those that run, also of one that is leaving."""
    return [f"{cluster.data_center}-{index}" for index in range(1, replicas(cluster, around) + 1)]


def config_of(cluster: TxLogCluster, node: str, around: Around) -> NodeConfig:
    """What the master of that node id is told. One that is leaving is still among the peers."""
    names = Names(cluster)
    running = replicas(cluster, around)
    if running > cluster.own_peer.masters:
        own = cluster.own_peer.model_copy(update={"masters": running})
        peers = [own if peer.name == own.name else peer for peer in cluster.spec.peers]
        cluster = cluster.model_copy(update={"spec": cluster.spec.model_copy(update={"peers": peers})})

    def url_of(peer: PeerSpec, index: int) -> str:
        if peer.name == cluster.data_center:
            return f"http://{names.master_host(index)}:{MEETING_PORT if is_secured(cluster) else MASTER_PORT}"
        return f"http://{meeting_address(cluster, peer, index)}"

    return build_node_config(
        cluster,
        node,
        url_of=url_of,
        port=MASTER_PORT,
        journal_folder=DATA / "journal",
        token_file=TOKEN / TOKEN_KEY,
        workers=build_worker_configs(cluster, lambda index: worker_url(cluster, index)),
        host="0.0.0.0",
        last_seen=around.last_seen.get(node),
        identity_file=IDENTITY,
        **_security_of(cluster),
    )


def _security_of(cluster: TxLogCluster) -> dict[str, Any]:
    """What a master's configuration says of it."""
    security, found = cluster.spec.security, dict[str, Any]()
    if security.users is not None:
        found |= {"users_file": USERS / USERS_KEY, "own_token_file": USERS / OWN_TOKEN_KEY}
    if security.tls_secret_ref is not None:
        found["tls_folder"] = TLS
    if security.peer_tls_secret_ref is not None:
        found |= {"peer_tls_folder": PEER_TLS, "peer_port": MEETING_PORT}
    return found


def _secret_volumes(cluster: TxLogCluster) -> list[tuple[str, Path, str]]:
    """Name, folder and Secret of each. Whole folders, never single files of them: what is in those is not renewed."""
    security = cluster.spec.security
    token, users = security.peer_token_secret_ref, security.users
    found = [("peer-token", TOKEN, token.name if token else Names(cluster).peer_token)]
    if users is not None:
        found.append(("users", USERS, users.secret_ref.name))
    if security.tls_secret_ref is not None:
        found.append(("tls", TLS, security.tls_secret_ref.name))
    if security.peer_tls_secret_ref is not None:
        found.append(("peer-tls", PEER_TLS, security.peer_tls_secret_ref.name))
    return found


def restart_hash(cluster: TxLogCluster, around: Around) -> str:
    """Of what a master only learns at its start. What it takes live, and what the log says of the cluster, is not in
    it; addresses are, since a master that runs keeps to those it knows."""
    first = config_of(cluster, f"{cluster.data_center}-1", around)
    told = first.model_dump(mode="json", exclude=LIVE | BY_THE_LOG, exclude_defaults=True)
    return digest([told, {peer.name: peer.address for peer in cluster.spec.peers}])


def config_map(cluster: TxLogCluster, around: Around) -> Object:
    """A file for each master. It is not part of the pods: what is changed in it counts from the next start on. Without
    defaults, so that an older image still reads it."""
    data = {
        f"{node}.json": config_of(cluster, node, around).model_dump_json(indent=1, exclude_defaults=True) + "\n"
        for node in node_names(cluster, around)
    }
    data[ACCEPTED] = cluster.model_dump_json(by_alias=True, exclude_unset=True) + "\n"
    return made(cluster, around, "v1", "ConfigMap", Names(cluster).master_hosts, COMPONENT, data=data)


def accepted(standing: Object | None) -> TxLogCluster | None:
    """The manifest that this ConfigMap was made from; None without one, or when it can no longer be read."""
    try:
        return TxLogCluster.model_validate_json(standing["data"][ACCEPTED]) if standing else None
    except (KeyError, ValueError):
        return None


def stateful_set(cluster: TxLogCluster, around: Around) -> Object:
    names, masters = Names(cluster), cluster.spec.masters
    template: Object = {
        "metadata": {
            "labels": labels(cluster, COMPONENT),
            "annotations": {CONFIG_HASH: restart_hash(cluster, around)},
        },
        "spec": _pod(cluster, around),
    }
    spec: Object = {
        "replicas": replicas(cluster, around),
        "serviceName": names.master_hosts,
        "ordinals": {"start": 1},
        # A cluster is founded by all its masters at once, and none is ready before that.
        "podManagementPolicy": "Parallel",
        # The operator restarts them, one after the other, when nobody is missed.
        "updateStrategy": {"type": "OnDelete"},
        # A master that was taken out for good has nothing that the log lacks, and its journal would be refused.
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Delete"},
        "selector": {"matchLabels": selector(cluster, COMPONENT)},
        "template": template,
        "volumeClaimTemplates": [claim("journal", masters.storage.size, masters.storage.storage_class_name)],
    }
    return made(cluster, around, "apps/v1", "StatefulSet", names.masters, COMPONENT, spec=spec)


def _pod(cluster: TxLogCluster, around: Around) -> Object:
    names, secrets = Names(cluster), _secret_volumes(cluster)
    command = ["python", "-m", "txlog.server", f"--config={CONFIG}/{cluster.data_center}-$(TXLOG_INDEX).json"]
    master = container(
        cluster,
        around,
        COMPONENT,
        command,
        env=[_field("TXLOG_INDEX", f"metadata.labels['{INDEX_LABEL}']")],
        ports=[{"name": name, "containerPort": port} for name, port in _ports(cluster)],
        resources=resources_of(cluster.spec.masters.resources),
        startupProbe=_probe(cluster, "startup", periodSeconds=1, failureThreshold=600),
        livenessProbe=_probe(cluster, "live", periodSeconds=10, timeoutSeconds=5, failureThreshold=6),
        readinessProbe=_probe(cluster, "ready", periodSeconds=1, timeoutSeconds=2, failureThreshold=2),
        lifecycle={"preStop": {"exec": {"command": ["sleep", str(DRAIN_S)]}}},
        terminationMessagePath=str(IDENTITY),
        terminationMessagePolicy="File",
        volumeMounts=[
            {"name": "journal", "mountPath": str(DATA)},
            {"name": "config", "mountPath": str(CONFIG), "readOnly": True},
            *({"name": name, "mountPath": str(folder), "readOnly": True} for name, folder, _ in secrets),
            TMP,
        ],
    )
    volumes = [
        {"name": "config", "configMap": {"name": names.master_hosts}},
        *({"name": name, "secret": {"secretName": secret}} for name, _, secret in secrets),
    ]
    return pod_spec(
        [master],
        volumes,
        terminationGracePeriodSeconds=stop_s(cluster),
        topologySpreadConstraints=[
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": selector(cluster, COMPONENT)},
            }
        ],
    )


def stop_s(cluster: TxLogCluster) -> int:
    """Generous, since a master ends by itself, and not as exact as ``leaveTimeout``, which changes without restarts."""
    return max(STOP_S_MIN, math.ceil(cluster.spec.leave_timeout / 1000 + MASTER_STOP_MARGIN_S) + DRAIN_S)


def _probe(cluster: TxLogCluster, kind: str, **times: int) -> Object:
    """The kubelet looks at no certificate: it may be anybody's."""
    speaks = {"scheme": "HTTPS"} if scheme(cluster) == "https" else {}
    return {"httpGet": {"path": f"/health/{kind}", "port": "http", **speaks}, **times}


def _ports(cluster: TxLogCluster) -> list[tuple[str, int]]:
    """Of a pod, by name: that of clients, and where masters with certificates meet."""
    return [("http", MASTER_PORT), *([("peers", MEETING_PORT)] if is_secured(cluster) else [])]


def _field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def services(cluster: TxLogCluster, around: Around) -> list[Object]:
    """One for names, which peers need before anybody is ready; one for clients."""
    names = Names(cluster)
    ports = [{"name": name, "port": port, "targetPort": name} for name, port in _ports(cluster)]
    select: dict[str, Any] = {"selector": selector(cluster, COMPONENT), "ports": ports[:1]}
    hosts = {"clusterIP": "None", "publishNotReadyAddresses": True, **select, "ports": ports}
    return [
        made(cluster, around, "v1", "Service", names.master_hosts, COMPONENT, spec=hosts),
        made(cluster, around, "v1", "Service", names.clients, COMPONENT, spec={"type": "ClusterIP", **select}),
    ]


def disruption_budget(cluster: TxLogCluster, around: Around) -> Object:
    """One at a time; also of a single one, so that no node waits for ever to be drained."""
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": selector(cluster, COMPONENT)}}
    return made(cluster, around, "policy/v1", "PodDisruptionBudget", Names(cluster).master_hosts, COMPONENT, spec=spec)
