"""What Spark is told. Each setting that is not Spark's default stands here with its reason."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from txlog.config.process_config import PipelineConfig
from txlog.pipeline.kubernetes_executors import KUBERNETES_MASTER_URL, SOCKET_FOLDER, build_executor_settings

JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss512k"
"""A heap of half a gigabyte and two cores: one collector thread, and the quick compiler only, since the driver's
work is short and always the same."""

CLASS_ARCHIVE = Path(sys.prefix) / "txlog-java" / "spark.jsa"
"""Spark's classes as :mod:`txlog.pipeline.jvm_class_archive` keeps them. Used where it is; never needed."""

TASK_ATTEMPTS = 4
"""``local[N]`` alone never tries a task twice."""


def build_spark_settings(config: PipelineConfig, socket_folder: Path) -> dict[str, str]:
    """``socket_folder``: short (a socket's path has about 100 bytes) and on this machine."""
    scratch = config.scratch_folder.resolve()
    workers = len(config.workers)
    apart = {} if config.executors is None else build_executor_settings(config.executors, JAVA_OPTIONS, os.environ)
    return {
        "spark.master": spark_master_url(config),
        "spark.app.name": f"txlog-{config.data_center}",
        "spark.driver.memory": config.driver_memory,
        "spark.driver.extraJavaOptions": java_options(socket_folder),
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        # TCP to the Python processes costs 40 ms in each micro-batch (delayed acknowledgements)
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": SOCKET_FOLDER if apart else str(socket_folder),
        "spark.python.daemon.module": "txlog.pipeline.pyspark_daemon",
        # the default manager starts about eight processes in each micro-batch (readlink, chmod)
        "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager",
        # the checkpoint is a cache of one number: no checksums, neither Spark's nor Hadoop's, each in a file of its own
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.sql.streaming.minBatchesToRetain": "2",
        # compiling a plan of one row into byte code never pays
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.lightweightPlanChangeValidation": "false",  # of every rule of the optimizer, for developers of Spark
        "spark.broadcast.compress": "false",  # a task of some kilobytes
        "spark.broadcast.checksum": "false",
        "spark.sql.shuffle.partitions": str(max(2, workers)),
        "spark.shuffle.sort.bypassMergeThreshold": "500",  # a batch: as many files as buckets, and nothing is sorted
        "spark.speculation": "false",  # never two tasks on one worker
        "spark.task.maxFailures": str(TASK_ATTEMPTS),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # few, for the memory; not fewer, since above it they are counted and thrown away in each micro-batch
        "spark.sql.ui.retainedExecutions": "100",
        "spark.ui.retainedJobs": "100",
        "spark.ui.retainedStages": "100",
        "spark.ui.retainedTasks": "1000",
        "spark.ui.liveUpdate.period": "-1",  # there is nobody to show it to
        "spark.sql.streaming.numRecentProgressUpdates": "5",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.sql.catalogImplementation": "in-memory",
        **apart,
    }


def spark_master_url(config: PipelineConfig) -> str:
    """Where Spark has its executors from."""
    if config.spark_master is not None:
        return config.spark_master
    if config.executors is not None:
        return KUBERNETES_MASTER_URL
    return f"local[{2 * len(config.workers) + config.batch_tasks},{TASK_ATTEMPTS}]"


def java_options(socket_folder: Path, classes: str | None = None) -> str:
    """Of the driver's JVM. ``classes``: how it shares classes; None: it takes the archive's, where there is one."""
    if classes is None:
        # one that is of another Java or of other jars is left aside, and not a word about it goes to our output
        classes = f"-XX:SharedArchiveFile={CLASS_ARCHIVE} -Xlog:cds*=off" if CLASS_ARCHIVE.exists() else ""
    return f"{JAVA_OPTIONS} -Djava.io.tmpdir={socket_folder} {classes}".rstrip()


def prepare_spark_home(folder: Path) -> Path:
    """A SPARK_HOME with Spark's programs and jars, but without its ``python`` folder. Beside the archive of classes,
    since an archive is of one path; in ``folder`` where the installation is not ours to write to.

    Spark puts the pyspark of that folder, a zip without byte code, before the installed one; each of a dozen Python
    processes would compile it anew, half a second of CPU each."""
    import pyspark

    installed = Path(pyspark.__file__).parent
    try:
        return _link_spark_home(installed, CLASS_ARCHIVE.parent / "spark")
    except OSError:  # an installation that is not ours to write to
        return _link_spark_home(installed, folder / "spark")


def _link_spark_home(installed: Path, home: Path) -> Path:
    home.mkdir(parents=True, exist_ok=True)
    for part in ("bin", "jars"):
        link = home / part
        if not link.is_symlink():
            with suppress(FileExistsError):  # another process has just made it
                link.symlink_to(installed / part)
        elif link.readlink() != installed / part:  # an installation that was moved
            new = home / f"{part}.{os.getpid()}"
            new.symlink_to(installed / part)
            new.replace(link)
    return home
