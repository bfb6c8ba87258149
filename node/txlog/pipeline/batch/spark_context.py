"""A Spark of its own for one batch: the context alone, without SQL, which a batch does not need."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from txlog.config.process_config import PipelineConfig
from txlog.pipeline.spark_settings import TASK_ATTEMPTS, java_options, prepare_spark_home

SCRATCH_FOLDER = "batch"
"""In the scratch folder; what a batch leaves there is of no use to the next one."""


@contextmanager
def start_spark_context(
    config: PipelineConfig, tasks: int, memory: str, classes: str | None = None
) -> Iterator[Future[Any]]:
    """A ``SparkContext``, while it starts: the worker and the log are looked at meanwhile. ``classes``: see
    :func:`~txlog.pipeline.spark_settings.java_options`."""
    scratch = config.scratch_folder.resolve() / SCRATCH_FOLDER
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    sockets = Path(tempfile.mkdtemp(prefix="txlog-", dir="/tmp"))
    os.environ["SPARK_HOME"] = str(prepare_spark_home(sockets))
    try:
        with ThreadPoolExecutor(1) as starting:
            settings = build_batch_settings(config, tasks, memory, scratch, sockets, classes)
            context = starting.submit(_create_context, settings)
            try:
                yield context
            finally:
                if context.exception() is None:
                    context.result().stop()
    finally:
        shutil.rmtree(sockets, ignore_errors=True)
        shutil.rmtree(scratch, ignore_errors=True)


def _create_context(settings: dict[str, str]) -> Any:
    from pyspark import SparkConf, SparkContext

    told = SparkConf()
    for key, value in settings.items():
        told.set(key, value)
    context = SparkContext(conf=told)
    context.setLogLevel("ERROR")
    return context


def build_batch_settings(
    config: PipelineConfig, tasks: int, memory: str, scratch: Path, sockets: Path, classes: str | None = None
) -> dict[str, str]:
    """Every setting that is not Spark's default; why, where :mod:`txlog.pipeline.spark_settings` does not say it."""
    return {
        "spark.master": config.spark_master or f"local[{tasks},{TASK_ATTEMPTS}]",
        "spark.app.name": f"txlog-{config.data_center}-batch",
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": java_options(sockets, classes),
        "spark.local.dir": str(scratch),
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(sockets),
        "spark.python.daemon.module": "txlog.pipeline.batch.batch_daemon",
        # what a task that reads holds of pieces for all buckets before it gives them away
        "spark.python.worker.memory": "128m",
        # as many files as buckets, each written from its beginning to its end: nothing is held to be sorted
        "spark.shuffle.sort.bypassMergeThreshold": "500",
        "spark.speculation": "false",
        "spark.task.maxFailures": str(TASK_ATTEMPTS),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
