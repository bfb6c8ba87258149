"""What all builders share: labels, owners, and how a pod of TxLog is allowed to run. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from txlog.config.cluster import PEER_PORT, SECURED_PEER_PORT, PeerSpec, ResourceRequirements, TxLogCluster
from txlog.config.process_config import LastSeenIncarnation
from txlog.config.units import format_quantity
from txlog.operator.names import GROUP, Names

Object = dict[str, Any]
"""One object of Kubernetes."""

MASTER_PORT: Final = PEER_PORT
MEETING_PORT: Final = SECURED_PEER_PORT
"""Of a master with certificates for the others; nothing else is answered there."""
WORKER_PORT: Final = 7878
USER: Final = 1000
"""Of every process; its volumes belong to the group of this number."""
CONFIG: Final = Path("/etc/txlog")
TOKEN: Final = Path("/etc/txlog-peers")
DATA: Final = Path("/var/lib/txlog")
SECRETS: Final = Path("/etc/txlog-secrets")
OWN: Final = Path("/etc/txlog-own")
"""What processes that ask masters are given: what they show, and whom they believe."""
TOKEN_FILE: Final = "TXLOG_TOKEN_FILE"
CA_FILE: Final = "TXLOG_CA_FILE"
"""As :mod:`txlog.client` reads them."""
USERS_KEY: Final = "users"
OWN_TOKEN_KEY: Final = "own-token"
AUTHORITY_KEY: Final = "ca.crt"
MANAGER: Final = "txlog-operator"


@dataclass(frozen=True)
class Around:
    """What no manifest says. ``owner``: the cluster's uid, without which nothing is collected with it; ``last_seen``:
    of each master, by node id; ``masters``: how many run while one of them is still leaving (default: as it says);
    ``pipeline_account``: by which Spark's driver may make executors, None where the chart gives none."""

    image: str
    pull_policy: str = "IfNotPresent"
    owner: str | None = None
    last_seen: Mapping[str, LastSeenIncarnation] = field(default_factory=dict)
    masters: int | None = None
    pipeline_account: str | None = None


def labels(cluster: TxLogCluster, component: str) -> dict[str, str]:
    return {**selector(cluster, component), "app.kubernetes.io/managed-by": MANAGER}


def selector(cluster: TxLogCluster, component: str) -> dict[str, str]:
    """Never changed: a StatefulSet's selector is immutable."""
    return {
        "app.kubernetes.io/name": "txlog",
        "app.kubernetes.io/instance": cluster.metadata.name,
        "app.kubernetes.io/component": component,
        f"{GROUP}/data-center": cluster.data_center,
    }


def made(cluster: TxLogCluster, around: Around, api: str, kind: str, name: str, component: str, **rest: Any) -> Object:
    """An object of this cluster, owned by it."""
    metadata: Object = {
        "name": name,
        "namespace": cluster.metadata.namespace,
        "labels": labels(cluster, component),
    }
    if around.owner is not None:
        metadata["ownerReferences"] = [
            {
                "apiVersion": cluster.api_version,
                "kind": cluster.kind,
                "name": cluster.metadata.name,
                "uid": around.owner,
                "controller": True,
                "blockOwnerDeletion": False,
            }
        ]
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **rest}


POD_SECURITY: Final[Object] = {
    "runAsNonRoot": True,
    "runAsUser": USER,
    "runAsGroup": USER,
    "fsGroup": USER,
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY: Final[Object] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
TMP: Final[Object] = {"name": "tmp", "mountPath": "/tmp"}
TMP_VOLUME: Final[Object] = {"name": "tmp", "emptyDir": {}}


def container(cluster: TxLogCluster, around: Around, name: str, command: list[str], **rest: Any) -> Object:
    return {
        "name": name,
        "image": cluster.spec.image or around.image,
        "imagePullPolicy": around.pull_policy,
        "command": command,
        "securityContext": CONTAINER_SECURITY,
        **rest,
    }


def pod_spec(containers: list[Object], volumes: list[Object], **rest: Any) -> Object:
    """Of pods that need nothing of the API server."""
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": POD_SECURITY,
        "containers": containers,
        "volumes": [*volumes, TMP_VOLUME],
        **rest,
    }


def resources_of(given: ResourceRequirements) -> Object:
    found = {"requests": dict(given.requests), "limits": dict(given.limits)}
    return {key: value for key, value in found.items() if value}


def claim(name: str, size: int, storage_class: str | None, template: Mapping[str, str] | None = None) -> Object:
    """A volume of a StatefulSet's pods; ``size`` in bytes."""
    spec: Object = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": format_quantity(size)}}}
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, **({"labels": dict(template)} if template else {})},
        "spec": spec,
    }


def scheme(cluster: TxLogCluster) -> str:
    """How clients speak to its masters."""
    return "https" if cluster.spec.security.tls_secret_ref is not None else "http"


def is_secured(cluster: TxLogCluster) -> bool:
    """Whether masters know each other by certificates, and meet at a port of their own."""
    return cluster.spec.security.peer_tls_secret_ref is not None


def master_urls(cluster: TxLogCluster) -> list[str]:
    """Of this data centre's masters, from inside this Kubernetes cluster."""
    names = Names(cluster)
    count = cluster.own_peer.masters
    return [f"{scheme(cluster)}://{names.master_host(index)}:{MASTER_PORT}" for index in range(1, count + 1)]


def meeting_address(cluster: TxLogCluster, peer: PeerSpec, index: int) -> str:
    """``host:port`` where masters of other data centres come to that one."""
    return peer.address_of(index, MEETING_PORT if is_secured(cluster) else MASTER_PORT)


def door_url(cluster: TxLogCluster, peer: PeerSpec, index: int) -> str | None:
    """Where that master of another data centre takes requests, as far as the manifest says it: its address, or, where
    that leads to the masters' own port, port 7300 of the same host. None when the address names a port of its own."""
    if not is_secured(cluster):
        return f"{scheme(cluster)}://{peer.address_of(index)}"
    return None if ":" in peer.address else f"{scheme(cluster)}://{peer.address_of(index)}"


@dataclass(frozen=True)
class Own:
    """What a container is given so that masters let it in, and so that it knows them: nothing where they ask for
    nothing. Of the certificates' Secret it gets the authority alone, of the users' its own token."""

    env: list[Object] = field(default_factory=list)
    mounts: list[Object] = field(default_factory=list)
    volumes: list[Object] = field(default_factory=list)


def own_access(cluster: TxLogCluster) -> Own:
    security, env, sources = cluster.spec.security, [], []
    if security.users is not None:
        env.append({"name": TOKEN_FILE, "value": str(OWN / OWN_TOKEN_KEY)})
        sources.append(_one_key(security.users.secret_ref.name, OWN_TOKEN_KEY))
    if security.tls_secret_ref is not None:
        env.append({"name": CA_FILE, "value": str(OWN / AUTHORITY_KEY)})
        sources.append(_one_key(security.tls_secret_ref.name, AUTHORITY_KEY))
    if not sources:
        return Own()
    mount = {"name": "own", "mountPath": str(OWN), "readOnly": True}
    return Own(env, [mount], [{"name": "own", "projected": {"sources": sources}}])


def _one_key(secret: str, key: str) -> Object:
    return {"secret": {"name": secret, "items": [{"key": key, "path": key}]}}


def worker_url(cluster: TxLogCluster, index: int) -> str:
    return f"http://{Names(cluster).worker_host(index)}:{WORKER_PORT}"
