"""Shared by all builders: labels, owners, and the security context of TxLog's pods. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel

from txlog.config.cluster import PEER_PORT, SECURED_PEER_PORT, PeerSpec, TxLogCluster
from txlog.config.process_config import LastSeenIncarnation
from txlog.config.resource_specs import ResourceRequirements
from txlog.config.units import format_quantity
from txlog_operator.object_names import GROUP, ObjectNames

KubeObject = dict[str, Any]
"""One object of Kubernetes, as JSON."""

MASTER_PORT: Final = PEER_PORT
SECURE_PEER_PORT: Final = SECURED_PEER_PORT
"""Port of a master for peers with certificates; it serves nothing else."""
WORKER_PORT: Final = 7878
CHANGE_SETS_PORT: Final = 7303
"""Where masters read change sets."""
USER_ID: Final = 1000
"""User of every process, unless the platform chooses one; its volumes belong to the group of this number."""
CONFIG_FOLDER: Final = Path("/etc/txlog")
PEER_TOKEN_FOLDER: Final = Path("/etc/txlog-peers")
PEER_TOKEN_KEY: Final = "token"
DATA_FOLDER: Final = Path("/var/lib/txlog")
SECRETS_FOLDER: Final = Path("/etc/txlog-secrets")
INTERNAL_CREDENTIALS_FOLDER: Final = Path("/etc/txlog-own")
"""Folder with the credentials of processes that connect to masters: their token and the trusted authorities."""
TOKEN_FILE_VARIABLE: Final = "TXLOG_TOKEN_FILE"
CA_FILE_VARIABLE: Final = "TXLOG_CA_FILE"
"""The variables that :mod:`txlog.client` reads."""
USERS_KEY: Final = "users"
INTERNAL_TOKEN_KEY: Final = "own-token"
CA_KEY: Final = "ca.crt"
FIELD_MANAGER: Final = "txlog-operator"


@dataclass(frozen=True)
class BuildContext:
    """Facts that are not in the manifest. ``image``: where the manifest names none. ``owner_uid``: the cluster's uid;
    without it Kubernetes collects no object with the cluster. ``last_seen``: of each master, by node id.
    ``master_count``: how many run while one of them still leaves, or may not start yet (default: the manifest's count).
    ``pipeline_account``: the service account with which Spark's driver may create executors, None where the chart
    defines none."""

    image: str
    pull_policy: str = "IfNotPresent"
    owner_uid: str | None = None
    last_seen: Mapping[str, LastSeenIncarnation] = field(default_factory=dict)
    master_count: int | None = None
    pipeline_account: str | None = None
    ip_family: Literal["IPv4", "IPv6"] = "IPv4"
    """The family in which pods listen: that of their first address."""
    platform_ids: bool = False
    """The platform chooses user and group of each pod."""
    hibernated: bool = False
    """No pod runs."""
    volume_sizes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of the volumes by component, while they are not those of the manifest."""
    graph_rules: str | None = None
    """Digest of the manifest's last rules for graphs that the log had."""


def labels(cluster: TxLogCluster, component: str) -> dict[str, str]:
    """The labels of an object of this component."""
    return {**selector(cluster, component), "app.kubernetes.io/managed-by": FIELD_MANAGER}


def selector(cluster: TxLogCluster, component: str) -> dict[str, str]:
    """The labels of a selector. They never change: a StatefulSet's selector is immutable."""
    return {
        "app.kubernetes.io/name": "txlog",
        "app.kubernetes.io/instance": cluster.metadata.name,
        "app.kubernetes.io/component": component,
        f"{GROUP}/data-center": cluster.data_center,
    }


def build_object(
    cluster: TxLogCluster, around: BuildContext, api: str, kind: str, name: str, component: str, **rest: Any
) -> KubeObject:
    """An object of this cluster, owned by it."""
    metadata: KubeObject = {
        "name": name,
        "namespace": cluster.metadata.namespace,
        "labels": labels(cluster, component),
    }
    if around.owner_uid is not None:
        metadata["ownerReferences"] = [
            {
                "apiVersion": cluster.api_version,
                "kind": cluster.kind,
                "name": cluster.metadata.name,
                "uid": around.owner_uid,
                "controller": True,
                "blockOwnerDeletion": False,
            }
        ]
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **rest}


POD_SECURITY: Final[KubeObject] = {
    "runAsNonRoot": True,
    "runAsUser": USER_ID,
    "runAsGroup": USER_ID,
    "fsGroup": USER_ID,
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY: Final[KubeObject] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
CONFIG_HASH_ANNOTATION: Final = f"{GROUP}/config"
"""Of a pod: it is replaced when its configuration changes."""
CONFIG_MOUNT: Final[KubeObject] = {"name": "config", "mountPath": str(CONFIG_FOLDER), "readOnly": True}
HOME_VARIABLE: Final[KubeObject] = {"name": "HOME", "value": "/tmp"}
TMP_MOUNT: Final[KubeObject] = {"name": "tmp", "mountPath": "/tmp"}
TMP_VOLUME: Final[KubeObject] = {"name": "tmp", "emptyDir": {}}


def container(cluster: TxLogCluster, around: BuildContext, name: str, command: list[str], **rest: Any) -> KubeObject:
    """A container of TxLog's image; ``rest`` adds or replaces fields."""
    return {
        "name": name,
        "image": cluster.spec.image or around.image,
        "imagePullPolicy": around.pull_policy,
        "command": command,
        "securityContext": CONTAINER_SECURITY,
        **rest,
    }


def config_text(config: BaseModel) -> str:
    """The file of a process's configuration: only what differs from the defaults (decision 37)."""
    return config.model_dump_json(indent=1, exclude_defaults=True) + "\n"


ID_FIELDS: Final = ("runAsUser", "runAsGroup", "fsGroup", "fsGroupChangePolicy")
"""Fields that a platform which chooses ids by itself refuses, such as OpenShift with ``restricted-v2``."""


def pod_security(around: BuildContext) -> KubeObject:
    """The security context of a pod."""
    if not around.platform_ids:
        return POD_SECURITY
    return {key: value for key, value in POD_SECURITY.items() if key not in ID_FIELDS}


def pod_spec(around: BuildContext, containers: list[KubeObject], volumes: list[KubeObject], **rest: Any) -> KubeObject:
    """The spec of a pod that has no access to the API server."""
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(around),
        "containers": containers,
        "volumes": [*volumes, TMP_VOLUME],
        **rest,
    }


def spread_over_nodes(cluster: TxLogCluster, component: str) -> list[KubeObject]:
    """Constraints that place the pods of a component on different nodes, where there are enough."""
    pods = {"matchLabels": selector(cluster, component)}
    over = {"topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    return [{"maxSkew": 1, **over, "labelSelector": pods}]


def resource_requirements(given: ResourceRequirements, default_requests: Mapping[str, str]) -> KubeObject:
    """The manifest's requests and limits in the notation of Kubernetes. A resource that the manifest names in neither
    gets the default request: without one the pod would be the first to be evicted, and a ResourceQuota admits none.
    There is no default limit: too low a one ends a process, and how much a log or a store needs is not known here."""
    named = {*given.requests, *given.limits}
    requests = {key: value for key, value in default_requests.items() if key not in named} | dict(given.requests)
    return {key: value for key, value in (("requests", requests), ("limits", dict(given.limits))) if value}


def volume_claim(
    name: str, size: int, storage_class: str | None, template: Mapping[str, str] | None = None
) -> KubeObject:
    """A volume claim template of a StatefulSet; ``size`` in bytes."""
    spec: KubeObject = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": format_quantity(size)}}}
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, **({"labels": dict(template)} if template else {})},
        "spec": spec,
    }


def headless_service(
    cluster: TxLogCluster, around: BuildContext, name: str, component: str, ports: Mapping[str, int]
) -> KubeObject:
    """A Service that gives each pod of a component a host name, also before it is ready. ``ports``: by name."""
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": selector(cluster, component),
        "ports": [{"name": each, "port": port, "targetPort": each} for each, port in ports.items()],
        **ip_families(around),
    }
    return build_object(cluster, around, "v1", "Service", name, component, spec=spec)


def disruption_budget(cluster: TxLogCluster, around: BuildContext, name: str, component: str) -> KubeObject:
    """At most one unavailable pod. It also allows the eviction of a single one, so that no drain waits for ever."""
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": selector(cluster, component)}}
    return build_object(cluster, around, "policy/v1", "PodDisruptionBudget", name, component, spec=spec)


def single_pod_deployment(
    cluster: TxLogCluster, around: BuildContext, name: str, component: str, template: KubeObject
) -> KubeObject:
    """A Deployment of one pod, which ends before the next one begins."""
    spec = {
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": selector(cluster, component)},
        "template": template,
    }
    return build_object(cluster, around, "apps/v1", "Deployment", name, component, spec=spec)


def field_variable(name: str, path: str) -> KubeObject:
    """A variable of a container with the value of a field of its pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def url_scheme(cluster: TxLogCluster) -> str:
    """The scheme of client connections to its masters: ``http`` or ``https``."""
    return "https" if cluster.spec.security.tls_secret_ref is not None else "http"


def is_secured(cluster: TxLogCluster) -> bool:
    """Whether masters authenticate each other by certificates, on a port of their own."""
    return cluster.spec.security.peer_tls_secret_ref is not None


def master_urls(cluster: TxLogCluster) -> list[str]:
    """URLs of this data centre's masters, from inside this Kubernetes cluster."""
    names = ObjectNames(cluster)
    count = cluster.own_peer.masters
    return [f"{url_scheme(cluster)}://{names.master_host(index)}:{MASTER_PORT}" for index in range(1, count + 1)]


def peer_address(cluster: TxLogCluster, peer: PeerSpec, index: int) -> str:
    """``host:port`` of that peer for masters of other data centres."""
    return peer.address_of(index, SECURE_PEER_PORT if is_secured(cluster) else MASTER_PORT)


def remote_master_url(cluster: TxLogCluster, peer: PeerSpec, index: int) -> str | None:
    """The URL for clients of that master in another data centre, as far as the manifest determines it. It is the peer's
    address, or port 7300 of the same host where the address is the peer port. None when the address names another port.
    """
    if not is_secured(cluster):
        return f"{url_scheme(cluster)}://{peer.address_of(index)}"
    return None if peer.names_port else f"{url_scheme(cluster)}://{peer.address_of(index)}"


def listen_host(around: BuildContext) -> str:
    """The address at which a pod listens: all addresses of the family."""
    return "::" if around.ip_family == "IPv6" else "0.0.0.0"


def ip_families(around: BuildContext) -> KubeObject:
    """Fields of a Service. With IPv4 the cluster chooses, as it does without these fields."""
    return {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv6"]} if around.ip_family == "IPv6" else {}


@dataclass(frozen=True)
class InternalCredentials:
    """The credentials that a container needs to connect to masters; empty where masters require none. The container
    receives only the authority from the certificates' Secret, and only its own token from the users' Secret."""

    env: list[KubeObject] = field(default_factory=list)
    mounts: list[KubeObject] = field(default_factory=list)
    volumes: list[KubeObject] = field(default_factory=list)


def internal_credentials(cluster: TxLogCluster) -> InternalCredentials:
    """The credentials of this cluster's own processes."""
    security, env, sources = cluster.spec.security, [], []
    if security.users is not None:
        env.append({"name": TOKEN_FILE_VARIABLE, "value": str(INTERNAL_CREDENTIALS_FOLDER / INTERNAL_TOKEN_KEY)})
        sources.append(_single_key_source(security.users.secret_ref.name, INTERNAL_TOKEN_KEY))
    if security.tls_secret_ref is not None:
        env.append({"name": CA_FILE_VARIABLE, "value": str(INTERNAL_CREDENTIALS_FOLDER / CA_KEY)})
        sources.append(_single_key_source(security.tls_secret_ref.name, CA_KEY))
    if not sources:
        return InternalCredentials()
    mount = {"name": "own", "mountPath": str(INTERNAL_CREDENTIALS_FOLDER), "readOnly": True}
    return InternalCredentials(env, [mount], [{"name": "own", "projected": {"sources": sources}}])


def _single_key_source(secret: str, key: str) -> KubeObject:
    return {"secret": {"name": secret, "items": [{"key": key, "path": key}]}}


def peer_token_secret(cluster: TxLogCluster) -> str:
    """The Secret with the token that masters share."""
    given = cluster.spec.security.peer_token_secret_ref
    return given.name if given else ObjectNames(cluster).peer_token


def change_sets_url(cluster: TxLogCluster) -> str | None:
    """Where masters read change sets; None where the manifest wants none."""
    if not cluster.spec.change_sets.enabled:
        return None
    return f"http://{ObjectNames(cluster).change_sets_host}:{CHANGE_SETS_PORT}"


def worker_url(cluster: TxLogCluster, index: int) -> str:
    """The URL of the worker with this number."""
    return f"http://{ObjectNames(cluster).worker_host(index)}:{WORKER_PORT}"
