"""Rejects fields of a manifest that have no effect on Kubernetes yet, by name, instead of ignoring them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from txlog.config.cluster import TxLogCluster
from txlog_operator.specs import executors
from txlog_operator.specs.common import KubeObject
from txlog_operator.specs.recovery import recovery_spec


def read_manifest(found: KubeObject, account: str | None = None) -> tuple[TxLogCluster | None, list[str]]:
    """The parsed resource, and its problems and unsupported fields, one line each with field and reason. ``account``:
    the service account with which Spark's driver may create executors, None where the chart defines none."""
    cluster, problems = parse_manifest(found)
    problems = unsupported_fields(cluster, account) if cluster is not None else problems
    return (None if problems else cluster), problems


def with_pause_of(accepted: TxLogCluster, found: KubeObject) -> TxLogCluster:
    """The last valid manifest, paused if the newest one says so: ``paused`` does not depend on what is wrong there."""
    paused = (found.get("spec") or {}).get("paused") is True
    return accepted.model_copy(update={"spec": accepted.spec.model_copy(update={"paused": paused})})


def parse_manifest(found: KubeObject) -> tuple[TxLogCluster | None, list[str]]:
    """As :func:`read_manifest`, but accepts unsupported fields."""
    meta = found["metadata"]
    plain = {
        "apiVersion": found.get("apiVersion", "txlog.io/v1alpha1"),
        "kind": found.get("kind", "TxLogCluster"),
        "metadata": {"name": meta["name"], "namespace": meta.get("namespace", "default")},
        "spec": found.get("spec", {}),
    }
    try:
        return TxLogCluster.model_validate(plain), []
    except ValidationError as wrong:
        return None, [_format_errors(dict(error)) for error in wrong.errors()]


def unsupported_fields(cluster: TxLogCluster, account: str | None = None) -> list[str]:
    """Fields that are set and have no effect on Kubernetes yet, one line each."""
    spec = cluster.spec
    found = []
    if spec.security.tls_secret_ref is not None and spec.security.peer_tls_secret_ref is None:
        found.append(
            "spec.security.tlsSecretRef needs peerTlsSecretRef beside it: what clients send would go on to"
            " other masters plainly"
        )
    if spec.pipeline.mode == "executors":
        found += _unsupported_executor_fields(cluster, account)
    found += _missing_claims(cluster)
    if spec.sites:
        found.append("spec.sites does not act on Kubernetes yet; leave it out, or run the cluster with txlog up")
    if spec.repositories:
        found.append("spec.repositories does not act on Kubernetes yet; leave it out, or run the cluster with txlog up")
    if spec.workers.engine != "oxigraph":
        found.append(f"spec.workers.engine: {spec.workers.engine} does not run on Kubernetes yet; name it as external")
    for at, worker in enumerate(spec.workers.external or []):
        if worker.secret_ref is not None:
            found.append(f"spec.workers.external[{at}].secretRef does not act on Kubernetes yet; leave it out")
    return found


def _missing_claims(cluster: TxLogCluster) -> list[str]:
    """The folders that name no PersistentVolumeClaim, which only ``txlog up`` reads."""
    backup, archive, recovery = cluster.spec.backup, cluster.spec.archive, recovery_spec(cluster)
    targets = {
        "spec.backup.target": backup.target if backup is not None else None,
        "spec.archive.target": archive.target if archive is not None else None,
        "spec.bootstrap.recovery.archive.target": recovery.archive.target if recovery is not None else None,
        "spec.bootstrap.recovery.backups": recovery.backups if recovery is not None else None,
    }
    return [
        f"{name}.folder.claimName is missing; expected the PersistentVolumeClaim of that folder"
        for name, target in targets.items()
        if target is not None and target.folder is not None and not target.folder.claim_name
    ]


def _unsupported_executor_fields(cluster: TxLogCluster, account: str | None) -> list[str]:
    found = []
    if account is None:
        found.append(
            "spec.pipeline.mode: executors needs an account that may make pods; set executors: true for the operator's"
            " chart, or mode: local"
        )
    tasks = executors.executor_count(cluster) * executors.executor_cores(cluster)
    needed = executors.concurrent_tasks(cluster)
    if tasks < needed:
        found.append(
            f"spec.pipeline.executorCores: {tasks} tasks at once in all, which a batch would keep from the stream;"
            f" expected {needed} at least (one for each worker, {executors.batch_tasks(cluster)} for a batch)"
        )
    return found


def _format_errors(error: Mapping[str, Any]) -> str:
    context = error.get("ctx", {})
    field = "spec"
    for part in (*error["loc"][1:], *context.get("at", ())):
        field += f"[{part}]" if isinstance(part, int) else f".{part}"
    if error["type"] == "expected":
        return f"{field}: expected {context['what']}"
    if error["type"] == "value_error":
        return f"{field}: expected {context['error']}"
    return f"{field}: {error['msg']}"
