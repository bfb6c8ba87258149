"""What all builders share: labels, owners, and how a pod of TxLog is allowed to run. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from txlog.config.cluster import PEER_PORT, SECURED_PEER_PORT, PeerSpec, ResourceRequirements, TxLogCluster
from txlog.config.process_config import LastSeenIncarnation
from txlog.config.units import format_quantity
from txlog_operator.object_names import GROUP, ObjectNames

KubeObject = dict[str, Any]
"""One object of Kubernetes."""

MASTER_PORT: Final = PEER_PORT
SECURE_PEER_PORT: Final = SECURED_PEER_PORT
"""Of a master with certificates for the others; nothing else is answered there."""
WORKER_PORT: Final = 7878
USER_ID: Final = 1000
"""Of every process; its volumes belong to the group of this number."""
CONFIG_FOLDER: Final = Path("/etc/txlog")
PEER_TOKEN_FOLDER: Final = Path("/etc/txlog-peers")
DATA_FOLDER: Final = Path("/var/lib/txlog")
SECRETS_FOLDER: Final = Path("/etc/txlog-secrets")
INTERNAL_CREDENTIALS_FOLDER: Final = Path("/etc/txlog-own")
"""What processes that ask masters are given: what they show, and whom they believe."""
TOKEN_FILE_VARIABLE: Final = "TXLOG_TOKEN_FILE"
CA_FILE_VARIABLE: Final = "TXLOG_CA_FILE"
"""As :mod:`txlog.client` reads them."""
USERS_KEY: Final = "users"
INTERNAL_TOKEN_KEY: Final = "own-token"
CA_KEY: Final = "ca.crt"
FIELD_MANAGER: Final = "txlog-operator"


@dataclass(frozen=True)
class BuildContext:
    """What no manifest says. ``owner_uid``: the cluster's uid, without which nothing is collected with it;
    ``last_seen``: of each master, by node id; ``master_count``: how many run while one of them is still leaving
    (default: as it says); ``pipeline_account``: by which Spark's driver may make executors, None where the chart gives
    none."""

    image: str
    pull_policy: str = "IfNotPresent"
    owner_uid: str | None = None
    last_seen: Mapping[str, LastSeenIncarnation] = field(default_factory=dict)
    master_count: int | None = None
    pipeline_account: str | None = None


def labels(cluster: TxLogCluster, component: str) -> dict[str, str]:
    return {**selector(cluster, component), "app.kubernetes.io/managed-by": FIELD_MANAGER}


def selector(cluster: TxLogCluster, component: str) -> dict[str, str]:
    """Never changed: a StatefulSet's selector is immutable."""
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
TMP_MOUNT: Final[KubeObject] = {"name": "tmp", "mountPath": "/tmp"}
TMP_VOLUME: Final[KubeObject] = {"name": "tmp", "emptyDir": {}}


def container(cluster: TxLogCluster, around: BuildContext, name: str, command: list[str], **rest: Any) -> KubeObject:
    return {
        "name": name,
        "image": cluster.spec.image or around.image,
        "imagePullPolicy": around.pull_policy,
        "command": command,
        "securityContext": CONTAINER_SECURITY,
        **rest,
    }


def pod_spec(containers: list[KubeObject], volumes: list[KubeObject], **rest: Any) -> KubeObject:
    """Of pods that need nothing of the API server."""
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": POD_SECURITY,
        "containers": containers,
        "volumes": [*volumes, TMP_VOLUME],
        **rest,
    }


def resource_requirements(given: ResourceRequirements) -> KubeObject:
    found = {"requests": dict(given.requests), "limits": dict(given.limits)}
    return {key: value for key, value in found.items() if value}


def volume_claim(
    name: str, size: int, storage_class: str | None, template: Mapping[str, str] | None = None
) -> KubeObject:
    """A volume of a StatefulSet's pods; ``size`` in bytes."""
    spec: KubeObject = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": format_quantity(size)}}}
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, **({"labels": dict(template)} if template else {})},
        "spec": spec,
    }


def url_scheme(cluster: TxLogCluster) -> str:
    """How clients speak to its masters."""
    return "https" if cluster.spec.security.tls_secret_ref is not None else "http"


def is_secured(cluster: TxLogCluster) -> bool:
    """Whether masters know each other by certificates, and meet at a port of their own."""
    return cluster.spec.security.peer_tls_secret_ref is not None


def master_urls(cluster: TxLogCluster) -> list[str]:
    """Of this data centre's masters, from inside this Kubernetes cluster."""
    names = ObjectNames(cluster)
    count = cluster.own_peer.masters
    return [f"{url_scheme(cluster)}://{names.master_host(index)}:{MASTER_PORT}" for index in range(1, count + 1)]


def peer_address(cluster: TxLogCluster, peer: PeerSpec, index: int) -> str:
    """``host:port`` where masters of other data centres come to that one."""
    return peer.address_of(index, SECURE_PEER_PORT if is_secured(cluster) else MASTER_PORT)


def remote_master_url(cluster: TxLogCluster, peer: PeerSpec, index: int) -> str | None:
    """Where that master of another data centre takes requests, as far as the manifest says it: its address, or, where
    that leads to the masters' own port, port 7300 of the same host. None when the address names a port of its own."""
    if not is_secured(cluster):
        return f"{url_scheme(cluster)}://{peer.address_of(index)}"
    return None if ":" in peer.address else f"{url_scheme(cluster)}://{peer.address_of(index)}"


@dataclass(frozen=True)
class InternalCredentials:
    """What a container is given so that masters let it in, and so that it knows them: nothing where they ask for
    nothing. Of the certificates' Secret it gets the authority alone, of the users' its own token."""

    env: list[KubeObject] = field(default_factory=list)
    mounts: list[KubeObject] = field(default_factory=list)
    volumes: list[KubeObject] = field(default_factory=list)


def internal_credentials(cluster: TxLogCluster) -> InternalCredentials:
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


def worker_url(cluster: TxLogCluster, index: int) -> str:
    return f"http://{ObjectNames(cluster).worker_host(index)}:{WORKER_PORT}"
