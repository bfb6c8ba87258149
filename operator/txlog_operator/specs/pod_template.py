"""Adds a manifest's ``podTemplate`` to the pods that the builders make. Pure. What TxLog itself sets always stays."""

from __future__ import annotations

from collections.abc import Mapping

from txlog.config.cluster import TxLogCluster
from txlog.config.pod_template import EnvironmentVariable, PodTemplate
from txlog_operator.specs.common import CONTAINER_SECURITY, KubeObject, labels, selector


def template_of(cluster: TxLogCluster, component: str) -> PodTemplate:
    """What the manifest adds to the pods of a component: for all pods, and for these alone."""
    spec = cluster.spec
    own = {
        "master": spec.masters.pod_template,
        "worker": spec.workers.pod_template,
        "pipeline": spec.pipeline.pod_template,
        "executor": spec.pipeline.pod_template,
    }
    return spec.pod_template.merged_with(own[component]) if component in own else spec.pod_template


def build_pod_template(
    cluster: TxLogCluster, component: str, pod: KubeObject, annotations: Mapping[str, str] | None = None
) -> KubeObject:
    """The template of a workload: ``pod`` is its spec as TxLog needs it, with TxLog's container first."""
    added = template_of(cluster, component)
    metadata: KubeObject = {"labels": {**added.labels, **labels(cluster, component)}}
    marks = {**added.annotations, **(annotations or {})}
    if marks:
        metadata["annotations"] = marks
    return {"metadata": metadata, "spec": _with_additions(cluster, component, pod, added)}


def _with_additions(cluster: TxLogCluster, component: str, pod: KubeObject, added: PodTemplate) -> KubeObject:
    if added.is_empty:
        return pod
    own, *others = pod["containers"]
    found = {**pod, "containers": [_with_variables(own, added.env), *others]}
    first = [_with_variables(each, added.env) for each in pod.get("initContainers", [])]
    if added.volumes:
        found["volumes"] = [*pod["volumes"], *added.volumes]
    if added.sidecars or first:  # a sidecar may be the way to what TxLog's own container reads before the pod starts
        found["initContainers"] = [*(_sidecar(each) for each in added.sidecars), *first]
    spread = [_with_selector(cluster, component, each) for each in added.topology_spread_constraints]
    account = None if pod.get("serviceAccountName") else added.service_account_name
    chosen = {
        "nodeSelector": added.node_selector,
        "tolerations": added.tolerations,
        "affinity": added.affinity,
        "topologySpreadConstraints": spread,
        "priorityClassName": added.priority_class_name,
        "serviceAccountName": account,
        "imagePullSecrets": [{"name": each.name} for each in added.image_pull_secrets],
    }
    return found | {name: value for name, value in chosen.items() if value}


def _with_variables(container: KubeObject, added: list[EnvironmentVariable]) -> KubeObject:
    own = container.get("env", [])
    names = {variable["name"] for variable in own}
    more = [each.model_dump(by_alias=True, exclude_none=True) for each in added if each.name not in names]
    return {**container, "env": [*own, *more]} if more else container


def _sidecar(container: KubeObject) -> KubeObject:
    """As a native sidecar: one beside the container of a Job would keep the Job from ending."""
    return {"securityContext": CONTAINER_SECURITY, **container, "restartPolicy": "Always"}


def _with_selector(cluster: TxLogCluster, component: str, constraint: KubeObject) -> KubeObject:
    return {"labelSelector": {"matchLabels": selector(cluster, component)}, **constraint}
