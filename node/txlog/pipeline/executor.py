"""``python -m txlog.pipeline.executor executor``: an executor of Spark, in a pod that Spark's driver created.

Spark takes the container's command from the template of such pods, and appends the argument ``executor``. Everything
else is in the environment. This program builds the JVM's command from it and replaces itself by the JVM.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from txlog.pipeline.spark_settings import prepare_spark_home

EXECUTOR_ROLE = "executor"
EXIT_USAGE = 64
EXECUTOR_BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
JAVA_OPTION_PREFIX = "SPARK_JAVA_OPT_"
BACKEND_ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
"""Arguments of the JVM, and the variable in which Spark passes each."""
MEMORY_VARIABLE = "SPARK_EXECUTOR_MEMORY"


class NotStartedByDriver(Exception):
    """The process was not started by a driver of Spark; the message is for a person."""


def build_command(environ: Mapping[str, str], home: Path) -> list[str]:
    """The JVM and its arguments; ``home``: the folder with Spark's jars. :class:`NotStartedByDriver` names what is
    missing."""
    missing = [name for name in (*BACKEND_ARGUMENTS.values(), MEMORY_VARIABLE) if not environ.get(name)]
    if missing:
        raise NotStartedByDriver(
            f"no {', '.join(missing)}: only a driver of Spark starts this program, in a pod of its own"
        )
    java = Path(environ["JAVA_HOME"]) / "bin" / "java" if environ.get("JAVA_HOME") else shutil.which("java")
    if java is None:
        raise NotStartedByDriver("no Java: set JAVA_HOME")
    memory = environ[MEMORY_VARIABLE]
    arguments = [word for argument, name in BACKEND_ARGUMENTS.items() for word in (argument, environ[name])]
    heap = [f"-Xms{memory}", f"-Xmx{memory}"]
    return [
        str(java),
        *read_java_options(environ),
        *heap,
        "-cp",
        str(home / "jars" / "*"),
        EXECUTOR_BACKEND,
        *arguments,
    ]


def read_java_options(environ: Mapping[str, str]) -> list[str]:
    """The JVM's options in Spark's order: one in each variable."""
    numbers = sorted(
        int(name.removeprefix(JAVA_OPTION_PREFIX)) for name in environ if name.startswith(JAVA_OPTION_PREFIX)
    )
    return [environ[f"{JAVA_OPTION_PREFIX}{number}"] for number in numbers]


def main() -> int:
    """Returns an exit code on errors; otherwise the JVM replaces this process."""
    if sys.argv[1:] == [EXECUTOR_ROLE]:
        home = prepare_spark_home(Path("/tmp"))
        try:
            command = build_command(os.environ, home)
            os.execve(command[0], command, {**os.environ, "SPARK_HOME": str(home)})
        except (NotStartedByDriver, OSError) as wrong:
            print(wrong, file=sys.stderr)
    else:
        print(f"usage: python -m txlog.pipeline.executor {EXECUTOR_ROLE}", file=sys.stderr)
    return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())
