"""Kubernetes, etcd, CoreDNS and Helm, built from Go modules that ``find_go.sum`` pins.

``python -m e2e.cluster.programs`` builds them into the cache (some minutes, once for each version of the sources and of
Go) and prints the folder. A build that fails ends with the compiler's words.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from e2e.cluster.go_compiler import find_go
from e2e.cluster.layout import ClusterUnavailable, cache_folder

SOURCES: Final = Path(__file__).with_name("programs")
PACKAGES: Final = ("./kube", "./coredns", "./pause", "helm.sh/helm/v3/cmd/helm")
KUBE: Final = (
    "etcd",
    "kubectl",
    "kubelet",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
)
"""Names of the one program: each part finds itself by the name it is called by."""
VERSION: Final = "k8s.io/component-base/version"


def build_stamp(compiler: str, sources: Path | None = None) -> str:
    """Of the sources and of Go: what was built under it can be taken again."""
    sources = sources or SOURCES
    told = hashlib.sha256()
    for file in sorted(path for path in sources.rglob("*") if path.is_file()):
        told.update(f"{file.relative_to(sources)}\0".encode() + file.read_bytes())
    version = subprocess.run([compiler, "env", "GOVERSION"], capture_output=True, text=True, check=True).stdout.strip()
    return f"{told.hexdigest()[:16]}-{version}"


def build_programs() -> Path:
    """The folder with all programs; they are built when they are not there. Two that build at once take turns."""
    compiler = find_go()
    folder = cache_folder() / build_stamp(compiler)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.parent / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _build(compiler, folder)
    return folder


def _build(compiler: str, folder: Path) -> None:
    release = re.search(r"k8s\.io/kubernetes (v1\.(\d+)\.\d+)", (SOURCES / "go.mod").read_text())
    assert release is not None
    print(f"building Kubernetes {release[1]} from its Go modules, some minutes ...", file=sys.stderr, flush=True)
    # A server that does not know its version calls itself v0.0.0, and charts refuse that.
    said = {
        "gitVersion": release[1],
        "gitMajor": "1",
        "gitMinor": release[2],
        "gitTreeState": "clean",
        "gitCommit": "0" * 7,
        "buildDate": "2026-01-01T00:00:00Z",
    }
    flags = "-s -w " + " ".join(f"-X {VERSION}.{name}={value}" for name, value in said.items())
    made = folder.with_name(f"{folder.name}.part")
    made.mkdir(exist_ok=True)
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"}
    environment.setdefault("GOGC", "400")
    ended = subprocess.run(
        [compiler, "build", "-trimpath", "-ldflags", flags, "-o", f"{made}/", *PACKAGES],
        cwd=SOURCES,
        env=environment,
        stdout=sys.stderr,
        check=False,
    )
    if ended.returncode:
        raise ClusterUnavailable(
            f"Kubernetes was not built: {compiler} ended with {ended.returncode}, its words are above"
        )
    for name in KUBE:
        (made / name).unlink(missing_ok=True)
        (made / name).symlink_to("kube")
    made.rename(folder)


if __name__ == "__main__":
    try:
        print(build_programs())
    except ClusterUnavailable as missing:
        sys.exit(str(missing))
