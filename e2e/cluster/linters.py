"""promtool, kubeconform and the schemas that it reads, and a registry for tests of releases, from Go modules that
``linters/*/go.sum`` pins.

``python -m e2e.cluster.linters`` builds them into the cache, once for each version of the modules and of Go. promtool
takes two minutes of two processors, since all of Prometheus' query language is in it.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from e2e.cluster.go_compiler import find_go
from e2e.cluster.layout import ClusterUnavailable, cache_folder
from e2e.cluster.programs import build_stamp

FOLDER: Final = Path(__file__).with_name("linters")
PACKAGES: Final = {
    "promtool": "github.com/prometheus/prometheus/cmd/promtool",
    "kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform",
    "registry": "github.com/google/go-containerregistry/cmd/registry",
}
"""By program, which is also the folder of its ``go.mod``."""
TAGS: Final = "remove_all_sd"
"""Without the service discoveries of Prometheus and the clients of every cloud, which rules do not need."""


def build_linter(name: str) -> Path:
    """The program; it is built when it is not there. :class:`ClusterUnavailable` with the compiler's words above."""
    compiler = find_go()
    folder = cache_folder() / "linters"
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / f"{name}-{build_stamp(compiler, FOLDER / name)}"
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _build(compiler, name, program)
    return program


def module_folder(module: str, pins: Path) -> Path:
    """Where the files of a Go module are, in the version that ``go.mod`` and ``go.sum`` of the folder ``pins`` name."""
    command = [find_go(), "mod", "download", "-json", module]
    environment = {**os.environ, "GOFLAGS": "-mod=mod"}
    done = subprocess.run(command, cwd=pins, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterUnavailable(f"{module} is not there: {done.stderr.strip() or done.stdout.strip()}")
    return Path(json.loads(done.stdout)["Dir"])


def _build(compiler: str, name: str, program: Path) -> None:
    print(f"building {name} from its Go modules ...", file=sys.stderr, flush=True)
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"}
    environment.setdefault("GOGC", "400")
    made = program.with_name(f"{program.name}.part")
    command = [compiler, "build", "-trimpath", "-ldflags", "-s -w", "-tags", TAGS, "-o", str(made), PACKAGES[name]]
    ended = subprocess.run(command, cwd=FOLDER / name, env=environment, stdout=sys.stderr, check=False)
    if ended.returncode:
        raise ClusterUnavailable(f"{name} was not built: {compiler} ended with {ended.returncode}")
    made.rename(program)


if __name__ == "__main__":
    try:
        for each in PACKAGES:
            print(build_linter(each))
    except ClusterUnavailable as missing:
        sys.exit(str(missing))
