"""Executors as pods of Kubernetes: what Spark's driver is told of them, and the end of those that a former one left.

The driver is a pod itself, in client mode: executors come to its address and are owned by it, so that they go with it.
One that is lost Spark makes again. A driver that is started anew in its pod has none of the executors of the process
before: those end by themselves when nobody answers, and are removed before the new ones are made.
"""

from __future__ import annotations

import logging
import secrets
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlencode

from txlog.config.process_config import ExecutorsConfig

log = logging.getLogger(__name__)

KUBERNETES_MASTER_URL = "k8s://https://kubernetes.default.svc:443"
SERVICE_ACCOUNT_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SOCKET_FOLDER = "/tmp"
"""Of Spark's Python processes, in driver and executors: one setting counts for all of them."""
NETWORK_TIMEOUT_S = 30
"""Without a word from an executor, it is lost. Spark's two minutes would be two minutes without applying anything: a
micro-batch waits for all of its tasks."""
HEARTBEAT_S = 5
FAILURE_WINDOW_MINUTES = 10
"""Of executors that were lost within so long. Where those are more than twice as many as there should be, and than 3,
Spark ends itself, and is started anew."""
API_TIMEOUT_S = 5.0


class DriverPodUnknown(Exception):
    """The driver does not know which pod it is; the message is for a person."""


def build_executor_settings(
    executors: ExecutorsConfig, java_options: str, environ: Mapping[str, str]
) -> dict[str, str]:
    """``java_options``: of an executor's JVM. ``environ``: the driver's; :class:`DriverPodUnknown` names what is
    missing there."""
    missing = [name for name in ("POD_IP", "POD_NAME") if not environ.get(name)]
    if missing:
        raise DriverPodUnknown(
            f"executors are pods of Kubernetes and so must the driver be: {', '.join(missing)} not set"
        )
    address = environ["POD_IP"] if ":" not in environ["POD_IP"] else f"[{environ['POD_IP']}]"
    return {
        "spark.submit.deployMode": "client",
        "spark.kubernetes.namespace": executors.namespace,
        # it owns its executors, which Kubernetes collects with it
        "spark.kubernetes.driver.pod.name": environ["POD_NAME"],
        "spark.driver.host": address,
        "spark.driver.bindAddress": address,
        "spark.driver.port": str(executors.driver_port),
        "spark.driver.blockManager.port": str(executors.blocks_port),
        "spark.blockManager.port": str(executors.blocks_port),
        # whoever reaches the driver's port could give it executors or tasks of his own
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.kubernetes.container.image": executors.image,
        "spark.kubernetes.container.image.pullPolicy": executors.pull_policy,
        "spark.kubernetes.executor.podTemplateFile": str(executors.template),
        "spark.kubernetes.executor.podTemplateContainerName": "spark-executor",
        # another one at each start: those of a former process may still be there
        "spark.kubernetes.executor.podNamePrefix": f"{executors.name}-{secrets.token_hex(4)}",
        "spark.executor.instances": str(executors.count),
        "spark.executor.cores": str(executors.cores),
        "spark.kubernetes.executor.request.cores": executors.cpu,
        "spark.executor.memory": f"{executors.heap_mb}m",
        "spark.executor.memoryOverhead": f"{executors.overhead_mb}m",
        "spark.executor.extraJavaOptions": java_options,
        "spark.executor.syncLogLevel.enabled": "true",
        "spark.dynamicAllocation.enabled": "false",
        # one that was killed, for its memory or otherwise, is followed by one like it, not by one of a single task
        "spark.kubernetes.allocation.recoveryMode.enabled": "false",
        # the first executor begins
        "spark.scheduler.minRegisteredResourcesRatio": "0.0",
        "spark.executor.heartbeatInterval": f"{HEARTBEAT_S}s",
        "spark.network.timeout": f"{NETWORK_TIMEOUT_S}s",
        "spark.network.timeoutInterval": f"{HEARTBEAT_S}s",
        "spark.executor.failuresValidityInterval": f"{FAILURE_WINDOW_MINUTES}m",
        # neither ConfigMaps, Services nor claims: the account has rights for pods alone
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
    }


def delete_stale_executors(executors: ExecutorsConfig, master: str, account: Path = SERVICE_ACCOUNT_FOLDER) -> None:
    """Ask the API server of ``master`` (Spark's URL of it) to remove all executors of this data centre. Nobody but this
    driver has any: what is there is of a process that is gone. Where that fails Spark will say more of it."""
    server = master.removeprefix("k8s://")
    query = urlencode({"labelSelector": executors.selector})
    url = f"{server}/api/v1/namespaces/{quote(executors.namespace)}/pods?{query}"
    told, tls = {"Accept": "application/json"}, None
    if (account / "token").exists():
        told["Authorization"] = f"Bearer {(account / 'token').read_text().strip()}"
    if server.startswith("https:"):
        authority = account / "ca.crt"
        tls = ssl.create_default_context(cafile=str(authority) if authority.exists() else None)
    asked = urllib.request.Request(url, method="DELETE", headers=told)
    try:
        with urllib.request.urlopen(asked, timeout=API_TIMEOUT_S, context=tls):
            return
    except (OSError, urllib.error.HTTPError) as wrong:
        log.warning("executors of a former process were not removed: %s", wrong)
