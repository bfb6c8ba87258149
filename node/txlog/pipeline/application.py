"""One Spark application: waits for a master, starts the query, ends with it."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from txlog.client import FailoverClient
from txlog.config.process_config import PipelineConfig
from txlog.model.errors import TxLogError
from txlog.pipeline import divergence_scanner
from txlog.pipeline.batch import batch_scheduler
from txlog.pipeline.kubernetes_executors import delete_stale_executors
from txlog.pipeline.lost_log import report_to_waiting_masters
from txlog.pipeline.repository_configs import repository_configs
from txlog.pipeline.spark_settings import build_spark_settings, spark_environment, spark_master_url

log = logging.getLogger(__name__)

EXIT_QUERY_FAILED = 1
"""Exit code when the query ended by itself: the supervisor restarts the application."""

STOP_TIMEOUT_S = 8.0
"""How long stopping the query and Spark may take before the process exits without them."""

MASTER_RETRY_S = 0.5

PROGRESS_TRACKING_OPTIONS = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": "60000",
}
"""The checkpoint's files are few, and no query depends on them: the checkpoint is a cache of one number, deleted at
each start."""


def run(config: PipelineConfig) -> int:
    """Run until SIGTERM or SIGINT (0) or until the query dies (:data:`EXIT_QUERY_FAILED`)."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if not wait_for_master(config, stop):
        return 0
    with spark_session(config) as spark:
        query = start_query(spark, config)
        log.info("the pipeline of %s follows the log for %d workers", config.data_center, len(config.workers))
        for further in config.repositories:
            log.info("and that of the repository %s for %d workers", further.name, len(further.workers))
        configs = repository_configs(config)
        batch_scheduler.start_schedulers(spark, list(configs.values()), stop)
        for each in configs.values():
            divergence_scanner.start_divergence_scan(each, stop)
        died: list[str] = []
        threading.Thread(target=_watch_query, args=(query, died, stop), name="txlog-query", daemon=True).start()
        stop.wait()
        if died:
            log.error("the query ended: %s", died[0])
            return EXIT_QUERY_FAILED
        log.info("stopping")
        query.stop()
    return 0


def wait_for_master(config: PipelineConfig, stop: threading.Event) -> bool:
    """Returns True when a master answers and is ready, False when ``stop`` came first. Logs what it waits for, at
    growing intervals."""
    masters = FailoverClient(config.masters, timeout_s=2.0)
    said_at, pause_s = 0.0, 1.0
    try:
        while not stop.is_set():
            try:
                status = masters.status()
            except TxLogError as unreachable:
                if time.monotonic() >= said_at:
                    log.info("waiting for a master of %s: %s", config.data_center, unreachable)
                    said_at, pause_s = time.monotonic() + pause_s, min(pause_s * 2, 60.0)
                report_to_waiting_masters(config)
            else:
                log.info("%s is %s, stable at %d", status.node, status.state, status.stable.index)
                return True
            stop.wait(MASTER_RETRY_S)
        return False
    finally:
        masters.close()


@contextmanager
def spark_session(config: PipelineConfig) -> Iterator[Any]:
    """Spark with TxLog's settings in a clean scratch folder; both are removed afterwards.

    The checkpoint is deleted as a whole, never in part: Spark refuses an incomplete one.
    """
    for folder in ("checkpoint", "local", "warehouse", "turns", "repositories"):
        shutil.rmtree(config.scratch_folder / folder, ignore_errors=True)
    config.scratch_folder.mkdir(parents=True, exist_ok=True)
    if config.executors is None:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    else:  # the driver's address is its pod's
        delete_stale_executors(config.executors, spark_master_url(config))
    with spark_environment() as sockets:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder
        for key, value in build_spark_settings(config, sockets).items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        try:
            yield spark
        finally:
            _run_with_timeout(STOP_TIMEOUT_S, spark.stop)


def start_query(spark: Any, config: PipelineConfig) -> Any:
    """The streaming query from the doorbell to the workers."""
    from txlog.pipeline.doorbell_source import CONFIG_OPTION, DoorbellSource
    from txlog.pipeline.worker_sink import WorkersSink

    spark.dataSource.register(DoorbellSource)
    config_json = config.model_dump_json()
    requests = spark.readStream.format(DoorbellSource.name()).option(CONFIG_OPTION, config_json).load()
    return (
        requests.writeStream.foreach(WorkersSink(config_json))
        .options(**PROGRESS_TRACKING_OPTIONS)
        .option("checkpointLocation", str(config.scratch_folder.resolve() / "checkpoint"))
        .start()
    )


def _watch_query(query: Any, died: list[str], stop: threading.Event) -> None:
    try:
        query.awaitTermination()
        if not stop.is_set():
            died.append("it was stopped from outside")
    except Exception as error:  # noqa: BLE001 - the process logs any cause (also a lost JVM) and exits
        if not stop.is_set():
            died.append(str(error))
    stop.set()


def _run_with_timeout(seconds: float, act: Callable[[], Any]) -> None:
    """Runs it in another thread, and stops waiting after ``seconds``: a hanging JVM must not keep the process alive."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        log.warning("Spark did not stop within %g s", seconds)
