"""Who may speak with whom. Pure."""

from __future__ import annotations

from txlog.config.cluster import TxLogCluster
from txlog.operator.build import masters, workers
from txlog.operator.build.common import (
    MASTER_PORT,
    MEETING_PORT,
    WORKER_PORT,
    Around,
    Object,
    is_secured,
    made,
    selector,
)
from txlog.operator.names import GROUP, Names


def network_policies(cluster: TxLogCluster, around: Around) -> list[Object]:
    """Masters are for everybody who reaches them, on their ports; stores for the pods of this cluster alone."""
    names = Names(cluster)
    same = {key: value for key, value in selector(cluster, "").items() if not key.endswith("/component")}
    assert same[f"{GROUP}/data-center"] == cluster.data_center
    doors = [MASTER_PORT, MEETING_PORT] if is_secured(cluster) else [MASTER_PORT]
    found = [_policy(cluster, around, names.master_hosts, masters.COMPONENT, doors, None)]
    if not cluster.spec.workers.external:
        found.append(_policy(cluster, around, names.worker_hosts, workers.COMPONENT, [WORKER_PORT], same))
    return found


def _policy(
    cluster: TxLogCluster, around: Around, name: str, component: str, ports: list[int], source: dict[str, str] | None
) -> Object:
    rule: Object = {"ports": [{"protocol": "TCP", "port": port} for port in ports]}
    if source is not None:
        rule["from"] = [{"podSelector": {"matchLabels": source}}]
    spec = {
        "podSelector": {"matchLabels": selector(cluster, component)},
        "policyTypes": ["Ingress"],
        "ingress": [rule],
    }
    return made(cluster, around, "networking.k8s.io/v1", "NetworkPolicy", name, component, spec=spec)
