"""Where things lie and which addresses they have.

Node ``k`` of data centre number ``n`` has ``x = 10 n + k``: its host is 10.220.0.x, its pods are 10.221.x.0/24; the
services of the data centre are 10.222.n.0/24, its DNS domain is ``<name>.local``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
BRIDGE: Final = "txkube"
GATEWAY: Final = "10.220.0.1"
"""This machine, as the nodes see it."""
PODS: Final = "10.221.0.0/16"
SERVICES: Final = "10.222.0.0/16"
NUMBERS: Final = range(1, 10)
"""Of data centres, and of the nodes of each."""


class ClusterUnavailable(Exception):
    """What is missing or did not happen, and what to do next."""


def cache_folder() -> Path:
    """What is made once and serves every clone: programs and base images."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "txlog" / "kube"


def run_folder() -> Path:
    """What belongs to the clusters that run now: ``build/cluster``, or ``TXLOG_CLUSTER_FOLDER``."""
    return Path(os.environ.get("TXLOG_CLUSTER_FOLDER") or ROOT / "build" / "cluster").resolve()


@dataclass(frozen=True)
class ClusterSite:
    """One data centre. ``number`` gives its addresses."""

    name: str
    number: int

    @property
    def folder(self) -> Path:
        return run_folder() / self.name

    @property
    def domain(self) -> str:
        return f"{self.name}.local"

    @property
    def api(self) -> str:
        return f"https://{self.host(1)}:6443"

    @property
    def services(self) -> str:
        return f"10.222.{self.number}.0/24"

    @property
    def kubeconfig(self) -> Path:
        """Of its administrator."""
        return self.folder / "admin.kubeconfig"

    def host(self, k: int) -> str:
        return f"10.220.0.{10 * self.number + k}"

    def pods(self, k: int) -> str:
        return f"10.221.{10 * self.number + k}.0/24"

    @property
    def hosts_range(self) -> str:
        return f"10.220.0.{10 * self.number + 1}-10.220.0.{10 * self.number + 9}"

    @property
    def pods_range(self) -> str:
        return f"10.221.{10 * self.number + 1}.0-10.221.{10 * self.number + 9}.255"
