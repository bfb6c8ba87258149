"""A Spark of its own for one batch: the context alone, without SQL, which a batch does not need."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from txlog.config.process_config import PipelineConfig
from txlog.pipeline.spark_settings import TASK_ATTEMPTS, java_options, spark_environment

SCRATCH_FOLDER = "batch"
"""Inside the scratch folder; the next batch does not use the files of the last."""


@contextmanager
def start_spark_context(
    config: PipelineConfig, tasks: int, memory: str, classes: str | None = None
) -> Iterator[Future[Any]]:
    """Starts a ``SparkContext`` in the background, while worker and log are inspected. ``classes``: see
    :func:`~txlog.pipeline.spark_settings.java_options`."""
    scratch = config.scratch_folder.resolve() / SCRATCH_FOLDER
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        with spark_environment() as sockets, ThreadPoolExecutor(1) as starting:
            settings = build_batch_settings(config, tasks, memory, scratch, sockets, classes)
            context = starting.submit(_create_context, settings)
            try:
                yield context
            finally:
                if context.exception() is None:
                    context.result().stop()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _create_context(settings: dict[str, str]) -> Any:
    from pyspark import SparkConf, SparkContext

    conf = SparkConf()
    for key, value in settings.items():
        conf.set(key, value)
    context = SparkContext(conf=conf)
    context.setLogLevel("ERROR")
    return context


def build_batch_settings(
    config: PipelineConfig, tasks: int, memory: str, scratch: Path, sockets: Path, classes: str | None = None
) -> dict[str, str]:
    """Every setting that is not Spark's default. Reasons that are not here are in
    :mod:`txlog.pipeline.spark_settings`."""
    return {
        "spark.master": config.spark_master or f"local[{tasks},{TASK_ATTEMPTS}]",
        "spark.app.name": f"txlog-{config.data_center}-batch",
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": java_options(sockets, f"{config.data_center}-batch", classes),
        "spark.local.dir": str(scratch),
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(sockets),
        "spark.python.daemon.module": "txlog.pipeline.batch.batch_daemon",
        # memory for the pieces of all buckets in a reading task before it writes them out
        "spark.python.worker.memory": "128m",
        # one file for each bucket, written sequentially: no memory for sorting
        "spark.shuffle.sort.bypassMergeThreshold": "500",
        "spark.speculation": "false",
        "spark.task.maxFailures": str(TASK_ATTEMPTS),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
