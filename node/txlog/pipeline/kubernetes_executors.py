"""Executors as pods of Kubernetes: the settings of Spark's driver for them, and the removal of those that a former
driver left.

The driver is a pod itself, in client mode. Executors connect to its address, and its pod owns them, so Kubernetes
collects them with it. Spark replaces a lost executor. A driver that restarts in its pod has none of the executors of
its predecessor. Those exit when the driver does not answer, and are deleted before the new ones are created.
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
"""Folder of the sockets of Spark's Python processes: one setting applies to driver and executors."""
NETWORK_TIMEOUT_S = 30
"""An executor that is silent for so long is lost. Spark's default of two minutes would stop all applying for two
minutes: a micro-batch waits for all of its tasks."""
HEARTBEAT_S = 5
FAILURE_WINDOW_MINUTES = 10
"""Window in which lost executors are counted. Spark exits, and is restarted, when they are more than 3 and more than
twice the configured number."""
API_TIMEOUT_S = 5.0


class DriverPodUnknown(Exception):
    """The driver does not know the name of its pod; the message is for a person."""


def build_executor_settings(
    executors: ExecutorsConfig, java_options: str, environ: Mapping[str, str]
) -> dict[str, str]:
    """``java_options``: of an executor's JVM. ``environ``: the driver's environment; :class:`DriverPodUnknown` names
    what is missing there."""
    missing = [name for name in ("POD_IP", "POD_NAME") if not environ.get(name)]
    if missing:
        raise DriverPodUnknown(
            f"executors are pods of Kubernetes and so must the driver be: {', '.join(missing)} not set"
        )
    address = environ["POD_IP"] if ":" not in environ["POD_IP"] else f"[{environ['POD_IP']}]"
    return {
        "spark.submit.deployMode": "client",
        "spark.kubernetes.namespace": executors.namespace,
        # the driver's pod owns its executors, so Kubernetes collects them with it
        "spark.kubernetes.driver.pod.name": environ["POD_NAME"],
        "spark.driver.host": address,
        "spark.driver.bindAddress": address,
        "spark.driver.port": str(executors.driver_port),
        "spark.driver.blockManager.port": str(executors.blocks_port),
        "spark.blockManager.port": str(executors.blocks_port),
        # otherwise any client of the driver's port could register executors or submit tasks
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.kubernetes.container.image": executors.image,
        "spark.kubernetes.container.image.pullPolicy": executors.pull_policy,
        "spark.kubernetes.executor.podTemplateFile": str(executors.template),
        "spark.kubernetes.executor.podTemplateContainerName": "spark-executor",
        # unique for each start: executors of a former process may still exist
        "spark.kubernetes.executor.podNamePrefix": f"{executors.name}-{secrets.token_hex(4)}",
        "spark.executor.instances": str(executors.count),
        "spark.executor.cores": str(executors.cores),
        "spark.kubernetes.executor.request.cores": executors.cpu,
        "spark.executor.memory": f"{executors.heap_mb}m",
        "spark.executor.memoryOverhead": f"{executors.overhead_mb}m",
        "spark.executor.extraJavaOptions": java_options,
        "spark.executor.syncLogLevel.enabled": "true",
        "spark.dynamicAllocation.enabled": "false",
        # Spark must replace a killed executor by an equal one, not by one with a single task
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
    """Asks the API server of ``master`` (Spark's URL of it) to delete all executors of this data centre. Only this
    driver has executors here, so existing ones belong to a process that is gone. A failure is only logged: Spark will
    report more of it."""
    server = master.removeprefix("k8s://")
    query = urlencode({"labelSelector": executors.selector})
    url = f"{server}/api/v1/namespaces/{quote(executors.namespace)}/pods?{query}"
    headers, tls = {"Accept": "application/json"}, None
    if (account / "token").exists():
        headers["Authorization"] = f"Bearer {(account / 'token').read_text().strip()}"
    if server.startswith("https:"):
        authority = account / "ca.crt"
        tls = ssl.create_default_context(cafile=str(authority) if authority.exists() else None)
    asked = urllib.request.Request(url, method="DELETE", headers=headers)
    try:
        with urllib.request.urlopen(asked, timeout=API_TIMEOUT_S, context=tls):
            return
    except (OSError, urllib.error.HTTPError) as wrong:
        log.warning("executors of a former process were not removed: %s", wrong)
