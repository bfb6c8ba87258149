"""Unpacks programs of Debian packages into a folder of TxLog's own, without installing them; it needs no root
rights."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from txlog.local.engines.maven_artifacts import cache_folder
from txlog.local.local_errors import CannotRun

DOWNLOAD_TIMEOUT_S: Final = 600.0


def unpack_packages(name: str, packages: Sequence[str], holds: str, folder: Path | None = None) -> Path:
    """The root folder of the unpacked packages, as ``name`` in ``folder`` (else in the user's cache). apt downloads
    them and verifies Debian's signatures, unless ``holds`` (a path in them) exists.

    :class:`CannotRun` without apt, and when apt cannot supply them.
    """
    root = (cache_folder() / "debian" if folder is None else folder) / name
    if (root / holds).exists():
        return root
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise CannotRun(f"{name} comes from Debian's packages, and there is no apt-get here; name it as external")
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root.parent) as place:
        new = Path(place) / "root"
        try:
            _run_command(["apt-get", "download", *packages], Path(place), name)
            for package in sorted(Path(place).glob("*.deb")):
                _run_command(["dpkg", "-x", str(package), str(new)], Path(place), name)
        except subprocess.TimeoutExpired:
            raise CannotRun(f"{name} could not be fetched within {DOWNLOAD_TIMEOUT_S:g} s") from None
        if not (new / holds).exists():
            raise CannotRun(f"{holds} is in none of Debian's packages {', '.join(packages)}")
        try:
            os.replace(new, root)
        except OSError:
            # Another process was quicker, and may run it already; or the folder has other content.
            if not (root / holds).exists():
                raise CannotRun(f"{root} is there and holds no {holds}; remove it") from None
    return root


def library_path(root: Path) -> str:
    """The ``LD_LIBRARY_PATH`` for a program of :func:`unpack_packages`."""
    found = [str(place) for at in ("usr/lib", "lib") for place in sorted((root / at).glob("*-linux-gnu*"))]
    return os.pathsep.join(found)


def _run_command(command: Sequence[str], folder: Path, name: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=DOWNLOAD_TIMEOUT_S)
    if done.returncode:
        raise CannotRun(f"{name} could not be fetched from Debian: {done.stderr.strip()[-400:]}")
