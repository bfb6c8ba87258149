"""Runs TLC, the explicit-state checker of TLA+, on one module and one configuration."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from e2e.conformance.pinned_artifacts import TLA_TOOLS, fetch_pinned
from txlog.local.engines.java_runtime import obtain_java_home

HEAP: Final = "-Xmx1500m"
TIMEOUT_S: Final = 6 * 3600.0
_COUNTS: Final = re.compile(r"^(\d+) states generated, (\d+) distinct states found, (\d+) states left on queue", re.M)
_VIOLATED: Final = re.compile(r"Error: (?:Invariant|Action property) (\w+) is violated")


class CheckerFailed(Exception):
    """TLC did not come to a result; the text is the end of its output."""


class CheckResult(NamedTuple):
    """``violated``: the property that does not hold, empty when all hold in every reachable state. ``output``: what TLC
    printed, with the steps that lead to the violation."""

    generated: int
    distinct: int
    violated: str
    output: str


def prepare() -> tuple[Path, Path]:
    """Java and TLC's jar, fetched if necessary."""
    jar = fetch_pinned(TLA_TOOLS)
    return obtain_java_home(jar.parent / "java") / "bin" / "java", jar


def check_module(tools: tuple[Path, Path], module: str, configuration: str) -> CheckResult:
    """Explore every reachable state, or stop at the first violation. :class:`CheckerFailed` without a result."""
    java, jar = tools
    with tempfile.TemporaryDirectory(prefix="txlog-model-") as place:
        folder = Path(place)
        (folder / "Masters.tla").write_text(module)
        (folder / "Masters.cfg").write_text(configuration)
        command = [str(java), HEAP, "-XX:+UseSerialGC", f"-Djava.io.tmpdir={place}", "-cp", str(jar), "tlc2.TLC"]
        command += ["-workers", "1", "-checkpoint", "0", "-metadir", str(folder / "states"), "Masters.tla"]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    return read_result(done.stdout + done.stderr)


def read_result(output: str) -> CheckResult:
    """What TLC's output says. :class:`CheckerFailed` when it neither finished nor found a violation."""
    counts, violated = _COUNTS.findall(output), _VIOLATED.search(output)
    finished = "Model checking completed. No error has been found." in output
    if not counts or not (finished or violated):
        raise CheckerFailed(output[-3000:])
    generated, distinct, left = (int(count) for count in counts[-1])
    if finished and left:
        raise CheckerFailed(output[-3000:])
    return CheckResult(generated, distinct, violated[1] if violated else "", output)
