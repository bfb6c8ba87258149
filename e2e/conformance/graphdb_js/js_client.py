"""GraphDB's JavaScript client, fetched by npm as ``package-lock.json`` pins it: ``client.js``."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from txlog.local.local_errors import CannotRun

SOURCE: Final = Path(__file__).parent
FOLDER: Final = Path(__file__).parents[3] / "build" / "graphdb_js"
PINNED: Final = ("package.json", "package-lock.json")
NPM_S: Final = 300.0
TIMEOUT_S: Final = 180.0


def run_js_client(server: str, repository: str) -> int:
    """How many checks it made against ``server`` (the URL that its repositories stand under).

    :class:`CannotRun` without node and npm, and where the packages cannot be fetched; AssertionError with what the
    client said when something was wrong."""
    node = shutil.which("node")
    if node is None:
        raise CannotRun("node is not installed")
    modules = installed(FOLDER)
    done = subprocess.run(
        [node, "--unhandled-rejections=strict", SOURCE / "client.js", server, repository],
        env={"NODE_PATH": str(modules), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    words = done.stdout.split()
    if done.returncode != 0 or len(words) < 2 or words[-2] != "checks":
        raise AssertionError(f"{done.stdout}{done.stderr}".strip()[:1500])
    return int(words[-1])


def installed(folder: Path) -> Path:
    """The packages, under this folder; fetched where they are not the pinned ones. :class:`CannotRun`."""
    modules, mark = folder / "node_modules", folder / "installed.json"
    wanted = (SOURCE / "package-lock.json").read_bytes()
    if modules.is_dir() and mark.exists() and mark.read_bytes() == wanted:
        return modules
    npm = shutil.which("npm")
    if npm is None:
        raise CannotRun("npm is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    mark.unlink(missing_ok=True)
    for name in PINNED:
        shutil.copyfile(SOURCE / name, folder / name)
    # Peers are what the package's own style checker would need; no script of a package is run.
    command = [npm, "ci", "--legacy-peer-deps", "--ignore-scripts", "--no-audit", "--no-fund"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=NPM_S, check=False)
    except subprocess.TimeoutExpired:
        raise CannotRun(f"npm did not fetch the packages within {NPM_S:g} s; try again") from None
    if done.returncode != 0:
        said = f"{done.stdout}{done.stderr}".strip()[-1500:]
        if "EINTEGRITY" in said:
            raise AssertionError(f"a package is not the one that is pinned; do not use it: {said}")
        raise CannotRun(f"npm cannot fetch the packages: {said}")
    mark.write_bytes(wanted)
    return modules
