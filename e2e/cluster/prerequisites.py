"""What the clusters need of a machine, and how it is got."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from e2e.cluster.layout import ClusterUnavailable

PACKAGES: Final = {
    "containerd": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "mmdebstrap": "mmdebstrap",
    "buildah": "buildah",
    "openssl": "openssl",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "sysctl": "procps",
}
"""Debian's package by program."""
PLUGIN: Final = Path("/usr/lib/cni/host-local")
PLUGIN_PACKAGE: Final = "containernetworking-plugins"


def missing_packages() -> list[str]:
    """Debian packages that are not there."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    found = [package for program, package in PACKAGES.items() if shutil.which(program, path=path) is None]
    return found if PLUGIN.exists() else [*found, PLUGIN_PACKAGE]


def check_prerequisites() -> None:
    """:class:`ClusterUnavailable` where clusters cannot run. Packages that are missing are installed where that is
    possible; ``TXLOG_APT=no`` only names them."""
    if os.geteuid() != 0:
        raise ClusterUnavailable("clusters need root: they make namespaces, mounts and network devices. Run it as root")
    tried = subprocess.run(
        ["unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode:
        raise ClusterUnavailable(f"clusters need namespaces, and this machine refuses them: {tried.stderr.strip()}")
    for device in ("/dev/net/tun", "/sys/fs/cgroup"):
        if not Path(device).exists():
            raise ClusterUnavailable(f"clusters need {device}, which is not here")
    packages = missing_packages()
    if not packages:
        return
    install = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    if shutil.which("apt-get") is None or os.environ.get("TXLOG_APT") == "no":
        raise ClusterUnavailable(f"clusters need packages that are not here: {' '.join(install)}")
    print(f"installing Debian's {', '.join(packages)} ...", file=sys.stderr, flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-q"], install):
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
        if ended.returncode:
            raise ClusterUnavailable(f"{' '.join(command)}: {ended.stderr.strip()[-500:]}")
