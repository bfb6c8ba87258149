"""Who may speak with whom. Pure."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from txlog.config.cluster import TxLogCluster
from txlog.config.process_config import SPARK_BLOCKS_PORT, SPARK_DRIVER_PORT
from txlog.operator.build import executors, masters, pipeline, workers
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

DNS_PORT: Final = 53


def network_policies(cluster: TxLogCluster, around: Around) -> list[Object]:
    """Masters are for everybody who reaches them, on their ports; stores for the pods of this cluster alone; Spark's
    driver for its executors; and those reach it, each other, masters, stores and the servers of names, nobody else."""
    names = Names(cluster)
    same = {key: value for key, value in selector(cluster, "").items() if not key.endswith("/component")}
    assert same[f"{GROUP}/data-center"] == cluster.data_center
    doors = [MASTER_PORT, MEETING_PORT] if is_secured(cluster) else [MASTER_PORT]
    found = [_policy(cluster, around, names.master_hosts, masters.COMPONENT, doors, None)]
    if not cluster.spec.workers.external:
        found.append(_policy(cluster, around, names.worker_hosts, workers.COMPONENT, [WORKER_PORT], same))
    if executors.count(cluster):
        among = [SPARK_DRIVER_PORT, SPARK_BLOCKS_PORT]
        executor = selector(cluster, executors.COMPONENT)
        found.append(_policy(cluster, around, names.pipeline, pipeline.COMPONENT, among, executor))
        found.append(_of_executors(cluster, around))
    return found


def _of_executors(cluster: TxLogCluster, around: Around) -> Object:
    def of(component: str, *ports: int) -> Object:
        return {"to": [_peer(selector(cluster, component))], "ports": [_port(port) for port in ports]}

    driver, executor = (selector(cluster, each) for each in (pipeline.COMPONENT, executors.COMPONENT))
    ways = [
        of(pipeline.COMPONENT, SPARK_DRIVER_PORT, SPARK_BLOCKS_PORT),
        of(executors.COMPONENT, SPARK_BLOCKS_PORT),
        of(masters.COMPONENT, MASTER_PORT),
        # Where the servers of names are, every Kubernetes answers otherwise.
        {"ports": [_port(DNS_PORT, "UDP"), _port(DNS_PORT)]},
    ]
    outside = sorted({_port_of(each.url) for each in cluster.spec.workers.external or ()})
    if outside:
        ways.append({"ports": [_port(port) for port in outside]})  # a policy knows addresses, and these are names
    else:
        ways.append(of(workers.COMPONENT, WORKER_PORT))
    spec = {
        "podSelector": {"matchLabels": executor},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": [_peer(driver), _peer(executor)], "ports": [_port(SPARK_BLOCKS_PORT)]}],
        "egress": ways,
    }
    name = Names(cluster).executors
    return made(cluster, around, "networking.k8s.io/v1", "NetworkPolicy", name, executors.COMPONENT, spec=spec)


def _port_of(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def _peer(labels: dict[str, str]) -> Object:
    return {"podSelector": {"matchLabels": labels}}


def _port(number: int, protocol: str = "TCP") -> Object:
    return {"protocol": protocol, "port": number}


def _policy(
    cluster: TxLogCluster, around: Around, name: str, component: str, ports: list[int], source: dict[str, str] | None
) -> Object:
    rule: Object = {"ports": [_port(port) for port in ports]}
    if source is not None:
        rule["from"] = [_peer(source)]
    spec = {
        "podSelector": {"matchLabels": selector(cluster, component)},
        "policyTypes": ["Ingress"],
        "ingress": [rule],
    }
    return made(cluster, around, "networking.k8s.io/v1", "NetworkPolicy", name, component, spec=spec)
