"""``python -m txlog.pipeline.jvm_class_archive``: archives the classes that Spark loads at its start, so that the next
JVM can map them.

Until Spark has run its first job, a JVM spends half of its CPU time on reading, checking and linking classes: 3 of 6 s.
Java can store the result (class data sharing, JEP 350: ``-XX:ArchiveClassesAtExit``) in a file of 90 MB inside the
installation. An archive is valid for one Java and one set of jars: another JVM silently ignores it and starts as
without it. Create it once after installing; every Spark of this installation uses it if it exists.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from txlog.config.process_config import PipelineConfig
from txlog.pipeline.batch.spark_context import start_spark_context
from txlog.pipeline.spark_settings import CLASS_ARCHIVE

log = logging.getLogger("txlog.pipeline.jvm_class_archive")

TASKS = 2
DRIVER_MEMORY = "512m"
EXIT_TIMEOUT_S = 600.0
"""Time for the JVM to write the file when it exits: some seconds, minutes on a busy machine."""


class ArchiveError(Exception):
    """Java could not create the archive; the message is for a person. Spark starts without it."""


def create_archive(to: Path = CLASS_ARCHIVE) -> Path:
    """Runs Spark with a job of a batch's shape, and stores its classes in ``to``, which is replaced atomically."""
    to.parent.mkdir(parents=True, exist_ok=True)
    new = to.with_name(to.name + ".new")
    new.unlink(missing_ok=True)
    with _spark_context(DRIVER_MEMORY, f"-XX:ArchiveClassesAtExit={new} -Xlog:cds*=off") as starting:
        context = starting.result()
        _run_sample_job(context)
        gateway = context._gateway
    # the JVM exits, and writes the archive, when its standard input closes
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(EXIT_TIMEOUT_S)
    except subprocess.TimeoutExpired as late:
        gateway.proc.kill()
        raise ArchiveError(f"Java did not write its classes within {EXIT_TIMEOUT_S:g} s") from late
    if not new.exists():
        raise ArchiveError("Java wrote no classes; it has to be a Java 17 or 21 with class data sharing")
    os.replace(new, to)
    return to


@contextmanager
def _spark_context(memory: str, classes: str | None) -> Iterator[Future[Any]]:
    """Spark as for a batch, without a worker."""
    with tempfile.TemporaryDirectory(prefix="txlog-archive-") as scratch:
        config = PipelineConfig.model_validate(
            {
                "data_center": "none",
                "masters": ["http://127.0.0.1:1"],
                "workers": [{"name": "none", "url": "http://127.0.0.1:1"}],
                "scratch_folder": scratch,
            }
        )
        with start_spark_context(config, TASKS, memory, classes) as starting:
            yield starting


def _run_sample_job(context: Any) -> None:
    """A job of a batch's shape: read, shuffle, load."""
    pairs = context.parallelize(range(TASKS), TASKS).map(lambda number: (number, b""))
    pairs.partitionBy(TASKS).mapPartitions(lambda found: [sum(1 for _ in found)]).coalesce(1).collect()


def main() -> int:
    """Creates the archive. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m txlog.pipeline.jvm_class_archive", description=__doc__)
    parser.add_argument(
        "--start-only",
        action="store_true",
        help="make nothing: start Spark as a batch does and run a job with nothing to do; print `started` and `done`",
    )
    parser.add_argument("--if-missing", action="store_true", help="make nothing where one is already")
    parser.add_argument("--memory", default=DRIVER_MEMORY, help="of Spark's driver")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    if options.start_only:
        with _spark_context(options.memory, None) as starting:
            context = starting.result()
            print("started", flush=True)
            _run_sample_job(context)
            print("done", flush=True)
        return 0
    if options.if_missing and CLASS_ARCHIVE.exists():
        return 0
    try:
        made = create_archive()
    except ArchiveError as why:
        log.error("%s", why)
        return 1
    log.info("%s, %.0f MB", made, made.stat().st_size / 1e6)
    return 0


if __name__ == "__main__":
    sys.exit(main())
