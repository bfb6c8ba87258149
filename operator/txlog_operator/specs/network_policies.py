"""Network policies of a cluster. Pure."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from txlog.config.cluster import TxLogCluster
from txlog.config.process_config import SPARK_BLOCKS_PORT, SPARK_DRIVER_PORT
from txlog_operator.object_names import ObjectNames
from txlog_operator.specs import archiver, change_sets, executors, jobs, masters, pipeline, recovery, workers
from txlog_operator.specs.common import (
    CHANGE_SETS_PORT,
    MASTER_PORT,
    SECURE_PEER_PORT,
    WORKER_PORT,
    BuildContext,
    KubeObject,
    build_object,
    is_secured,
    selector,
)

DNS_PORT: Final = 53


def network_policies(cluster: TxLogCluster, around: BuildContext) -> list[KubeObject]:
    """Masters accept every client on their ports, stores only pods of this cluster, the process that makes change sets
    only masters, and Spark's driver only its executors. No other pod accepts connections. Executors reach the driver,
    each other, masters, stores, DNS servers and the collector of traces, and nothing else."""
    names = ObjectNames(cluster)
    doors = [MASTER_PORT, SECURE_PEER_PORT] if is_secured(cluster) else [MASTER_PORT]
    same = _data_center(cluster)
    found = [_policy(cluster, around, names.master_hosts, masters.COMPONENT, doors, None)]
    if not cluster.spec.workers.external:
        found.append(_policy(cluster, around, names.worker_hosts, workers.COMPONENT, [WORKER_PORT], same))
    if cluster.spec.change_sets.enabled:
        source = selector(cluster, masters.COMPONENT)
        found.append(_policy(cluster, around, names.change_sets, change_sets.COMPONENT, [CHANGE_SETS_PORT], source))
    found.append(_closed_policy(cluster, around))
    if executors.executor_count(cluster):
        among = [SPARK_DRIVER_PORT, SPARK_BLOCKS_PORT]
        executor = selector(cluster, executors.COMPONENT)
        found.append(_policy(cluster, around, names.pipeline, pipeline.COMPONENT, among, executor))
        found.append(_executor_policies(cluster, around))
    return found


CLOSED_COMPONENTS: Final = (
    *(jobs.COMPONENT, jobs.DUTY_COMPONENT),
    *(archiver.COMPONENT, recovery.COMPONENT, pipeline.COMPONENT),
)
"""What only connects to others. Policies add up: a driver with executors accepts those all the same."""


def _closed_policy(cluster: TxLogCluster, around: BuildContext) -> KubeObject:
    among = {"key": "app.kubernetes.io/component", "operator": "In", "values": sorted(CLOSED_COMPONENTS)}
    pods = {"matchLabels": _data_center(cluster), "matchExpressions": [among]}
    spec = {"podSelector": pods, "policyTypes": ["Ingress"]}
    return _network_policy(cluster, around, ObjectNames(cluster).closed, pipeline.COMPONENT, spec)


def _executor_policies(cluster: TxLogCluster, around: BuildContext) -> KubeObject:
    def of(component: str, *ports: int) -> KubeObject:
        return {"to": [_peer(selector(cluster, component))], "ports": [_port(port) for port in ports]}

    driver, executor = (selector(cluster, each) for each in (pipeline.COMPONENT, executors.COMPONENT))
    ways = [
        of(pipeline.COMPONENT, SPARK_DRIVER_PORT, SPARK_BLOCKS_PORT),
        of(executors.COMPONENT, SPARK_BLOCKS_PORT),
        of(masters.COMPONENT, MASTER_PORT),
        # The location of the DNS servers differs between distributions of Kubernetes.
        {"ports": [_port(DNS_PORT, "UDP"), _port(DNS_PORT)]},
    ]
    external, traces = cluster.spec.workers.external, cluster.spec.telemetry.traces
    if not external:
        ways.append(of(workers.COMPONENT, WORKER_PORT))
    outside = {each.url for each in external or ()} | ({traces.endpoint} if traces is not None else set())
    if outside:  # a policy matches addresses, and these are host names
        ways.append({"ports": [_port(port) for port in sorted({_port_of(url) for url in outside})]})
    spec = {
        "podSelector": {"matchLabels": executor},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": [_peer(driver), _peer(executor)], "ports": [_port(SPARK_BLOCKS_PORT)]}],
        "egress": ways,
    }
    return _network_policy(cluster, around, ObjectNames(cluster).executors, executors.COMPONENT, spec)


def _port_of(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def _peer(labels: dict[str, str]) -> KubeObject:
    return {"podSelector": {"matchLabels": labels}}


def _port(number: int, protocol: str = "TCP") -> KubeObject:
    return {"protocol": protocol, "port": number}


def _policy(
    cluster: TxLogCluster,
    around: BuildContext,
    name: str,
    component: str,
    ports: list[int],
    source: dict[str, str] | None,
) -> KubeObject:
    rule: KubeObject = {"ports": [_port(port) for port in ports]}
    if source is not None:
        rule["from"] = [_peer(source)]
    spec = {
        "podSelector": {"matchLabels": selector(cluster, component)},
        "policyTypes": ["Ingress"],
        "ingress": [rule],
    }
    return _network_policy(cluster, around, name, component, spec)


def _network_policy(
    cluster: TxLogCluster, around: BuildContext, name: str, component: str, spec: KubeObject
) -> KubeObject:
    return build_object(cluster, around, "networking.k8s.io/v1", "NetworkPolicy", name, component, spec=spec)


def _data_center(cluster: TxLogCluster) -> dict[str, str]:
    """The labels that all pods of the cluster in this data centre have."""
    return {key: value for key, value in selector(cluster, "").items() if not key.endswith("/component")}
