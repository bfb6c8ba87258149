"""The settings of Spark. Each one that is not Spark's default is in this file with its reason."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from txlog.config.process_config import PipelineConfig
from txlog.pipeline.kubernetes_executors import KUBERNETES_MASTER_URL, SOCKET_FOLDER, build_executor_settings

JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss512k"
"""A heap of half a gigabyte and two cores. One collector thread and only the quick compiler, since the driver's work is
short and always the same."""

CLASS_ARCHIVE = Path(sys.prefix) / "txlog-java" / "spark.jsa"
"""The archive of Spark's classes that :mod:`txlog.pipeline.jvm_class_archive` creates. Used if it exists; never
required."""

TASK_ATTEMPTS = 4
"""``local[N]`` alone never retries a task."""


def build_spark_settings(config: PipelineConfig, socket_folder: Path) -> dict[str, str]:
    """``socket_folder``: short (a socket's path is limited to about 100 bytes) and on this machine."""
    scratch = config.scratch_folder.resolve()
    workers = _row_groups(config)
    executor_settings = (
        {}
        if config.executors is None
        else build_executor_settings(
            config.executors, f"{JAVA_OPTIONS} {log_options(f'{config.data_center}-executor')}", os.environ
        )
    )
    return {
        "spark.master": spark_master_url(config),
        "spark.app.name": f"txlog-{config.data_center}",
        "spark.driver.memory": config.driver_memory,
        "spark.driver.extraJavaOptions": java_options(socket_folder, f"{config.data_center}-pipeline"),
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        # TCP to the Python processes costs 40 ms in each micro-batch (delayed acknowledgements)
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": SOCKET_FOLDER if executor_settings else str(socket_folder),
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
        "spark.sql.lightweightPlanChangeValidation": "false",  # a check for developers of the optimizer
        "spark.broadcast.compress": "false",  # a task has a few kilobytes
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
        "spark.ui.liveUpdate.period": "-1",  # no user interface
        "spark.sql.streaming.numRecentProgressUpdates": "5",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.sql.catalogImplementation": "in-memory",
        **executor_settings,
    }


def spark_master_url(config: PipelineConfig) -> str:
    """The URL through which Spark obtains its executors."""
    if config.spark_master is not None:
        return config.spark_master
    if config.executors is not None:
        return KUBERNETES_MASTER_URL
    return f"local[{2 * _row_groups(config) + config.batch_tasks},{TASK_ATTEMPTS}]"


def _row_groups(config: PipelineConfig) -> int:
    """Partitions of one micro-batch: the workers, or the repositories if there are several."""
    return 1 + len(config.repositories) if config.repositories else len(config.workers)


def java_options(socket_folder: Path, node: str, classes: str | None = None) -> str:
    """Options of the driver's JVM. ``node``: its name in the log. ``classes``: how it shares classes; None: from the
    archive, if it exists."""
    if classes is None:
        # the JVM ignores an archive of another Java or of other jars, and must not log that to our output
        classes = f"-XX:SharedArchiveFile={CLASS_ARCHIVE} -Xlog:cds*=off" if CLASS_ARCHIVE.exists() else ""
    return f"{JAVA_OPTIONS} -Djava.io.tmpdir={socket_folder} {log_options(node)} {classes}".rstrip()


def log_options(node: str) -> str:
    """Options of a JVM whose log has the format of TxLog's other processes. ``node``: its name there. The files are at
    the same place in all containers, which have the same image."""
    folder = Path(__file__).parent
    settings, line = folder / "log4j2.properties", folder / "log4j2_line.json"
    return f"-Dlog4j2.configurationFile=file:{settings} -Dtxlog.log.template={line} -Dtxlog.node={node}"


@contextmanager
def spark_environment() -> Iterator[Path]:
    """Sets the variables with which Spark starts; yields a short-lived folder for its sockets."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory(prefix="txlog-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        os.environ["SPARK_HOME"] = str(prepare_spark_home(Path(folder)))
        yield Path(folder)


def prepare_spark_home(folder: Path) -> Path:
    """A SPARK_HOME with Spark's programs and jars, but without its ``python`` folder. It is beside the archive of
    classes, since an archive is valid for one path; or in ``folder`` where the installation is read-only.

    Spark prefers the pyspark of that folder, a zip without byte code, to the installed one. Each of a dozen Python
    processes would compile it again, which costs half a second of CPU each.
    """
    import pyspark

    installed = Path(pyspark.__file__).parent
    try:
        return _link_spark_home(installed, CLASS_ARCHIVE.parent / "spark")
    except OSError:  # the installation is read-only
        return _link_spark_home(installed, folder / "spark")


def _link_spark_home(installed: Path, home: Path) -> Path:
    home.mkdir(parents=True, exist_ok=True)
    for part in ("bin", "jars"):
        link = home / part
        if not link.is_symlink():
            with suppress(FileExistsError):  # another process has just created it
                link.symlink_to(installed / part)
        elif link.readlink() != installed / part:  # the installation was moved
            new = home / f"{part}.{os.getpid()}"
            new.symlink_to(installed / part)
            new.replace(link)
    return home
