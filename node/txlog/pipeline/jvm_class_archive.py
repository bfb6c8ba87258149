"""``python -m txlog.pipeline.jvm_class_archive``: the classes that Spark loads at its start, ready to be mapped by the
next JVM.

Half of what a JVM does until Spark has run its first job is reading, checking and linking classes: 3 of 6 s of
processor. Java can keep the result (class data sharing, JEP 350: ``-XX:ArchiveClassesAtExit``) in a file of 90 MB,
which lies in the installation. It is of one Java and of one set of jars: a JVM for which it was not made says
nothing, leaves it, and starts as without it. Made once, after installing; whatever runs Spark here takes it when it
is there.
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
"""For the JVM to write the file when it ends: some seconds, minutes where others have the processor."""


class ArchiveError(Exception):
    """Java could not make one; the message is for a person. Spark starts without it."""


def create_archive(to: Path = CLASS_ARCHIVE) -> Path:
    """Run Spark with a job of a batch's shape, and keep its classes in ``to``, which is replaced as a whole."""
    to.parent.mkdir(parents=True, exist_ok=True)
    new = to.with_name(to.name + ".new")
    new.unlink(missing_ok=True)
    with _spark_context(DRIVER_MEMORY, f"-XX:ArchiveClassesAtExit={new} -Xlog:cds*=off") as starting:
        context = starting.result()
        _run_sample_job(context)
        gateway = context._gateway
    # it ends, and writes, when nobody is at the other end of its input
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
    """Spark as a batch has it, with nobody to work for."""
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
    """Of a batch's shape: read, shuffle, load."""
    pairs = context.parallelize(range(TASKS), TASKS).map(lambda number: (number, b""))
    pairs.partitionBy(TASKS).mapPartitions(lambda found: [sum(1 for _ in found)]).coalesce(1).collect()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m txlog.pipeline.jvm_class_archive", description=__doc__)
    parser.add_argument(
        "--start-only",
        action="store_true",
        help="make nothing: start Spark as a batch does and run a job with nothing to do; say `started` and `done`",
    )
    parser.add_argument("--if-missing", action="store_true", help="make nothing where one is already")
    parser.add_argument("--memory", default=DRIVER_MEMORY, help="of Spark's driver")
    told = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    if told.start_only:
        with _spark_context(told.memory, None) as starting:
            context = starting.result()
            print("started", flush=True)
            _run_sample_job(context)
            print("done", flush=True)
        return 0
    if told.if_missing and CLASS_ARCHIVE.exists():
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
