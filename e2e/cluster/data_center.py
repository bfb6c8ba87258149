"""One data centre: a whole Kubernetes of its own, and what can happen to it."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Final

from e2e.cluster import control_plane, image_store, node_agent
from e2e.cluster.layout import BRIDGE, NUMBERS, ROOT, ClusterSite, ClusterUnavailable
from e2e.cluster.node import ClusterNode, remove_network, wait_until

ACCOUNT_S: Final = 30.0


class ClusterLevel(IntEnum):
    """How much of Kubernetes runs."""

    API = 1
    """etcd and the API server"""
    CONTROLLERS = 2
    """and controllers and scheduler: sets make pods, which nobody runs"""
    NODES = 3
    """and nodes that run them"""


class DataCenter:
    """``images``: archives that every node has; ``peers``: other data centres whose names its DNS passes on."""

    def __init__(
        self, site: ClusterSite, programs: Path, *, images: Sequence[Path] = (), peers: Mapping[str, int] | None = None
    ) -> None:
        self.site = site
        self.programs = programs
        self.images = list(images)
        self.peers = dict(peers or {})

    @property
    def nodes(self) -> list[ClusterNode]:
        """Those that were ever started, with power or without."""
        return [ClusterNode(self.site, k) for k in NUMBERS if (self.site.folder / f"n{k}").exists()]

    def up(self, level: ClusterLevel = ClusterLevel.NODES) -> None:
        """Its first node, new or after a power loss."""
        node = ClusterNode(self.site, 1)
        if node.first_process is None and Path(f"/sys/class/net/{BRIDGE}{node.x}").exists() and not self.nodes:
            raise ClusterUnavailable(
                f"data centre number {self.site.number} of another folder runs on this machine: end it"
            )
        node.power_on(self.programs / "pause")
        control_plane.create_credentials(self.site)
        control_plane.start_api(node, self.programs)
        if level >= ClusterLevel.CONTROLLERS:
            control_plane.start_controllers(node, self.programs)
        if level >= ClusterLevel.NODES:
            control_plane.start_dns(node, self.programs, self.peers)
            node_agent.join_cluster(node, self.programs, self.images)
            python = ("env", f"PYTHONPATH={ROOT}", sys.executable, "-m")
            node.start("volumes", *python, "e2e.cluster.volume_provisioner", self.site.name, str(self.site.number))
        if level >= ClusterLevel.CONTROLLERS:
            self._wait_for_accounts()

    def _wait_for_accounts(self) -> None:
        """A pod is refused before its namespace has its account."""
        wait_until(
            f"the default account of {self.site.name}",
            ACCOUNT_S,
            lambda: self.kubectl("get", "serviceaccount", "default", "-o", "name", check=False),
        )

    def add_node(self, k: int) -> ClusterNode:
        """Node ``k`` (2 to 9), new or after a power loss."""
        node = ClusterNode(self.site, k)
        node.power_on(self.programs / "pause")
        node_agent.join_cluster(node, self.programs, self.images)
        return node

    def add_image(self, archive: Path) -> None:
        """To all nodes that run, and to those to come."""
        if archive not in self.images:
            self.images.append(archive)
        for node in self.nodes:
            if node.first_process is not None:
                node_agent.import_image(node, archive)

    def kubectl(self, *arguments: str, input_text: str | None = None, check: bool = True) -> str:
        """As its administrator; what it printed."""
        return control_plane.kubectl(self.site, self.programs, *arguments, input_text=input_text, check=check)

    def power_off(self) -> None:
        """All nodes at once; :meth:`up` and :meth:`add_node` find their disks."""
        for node in self.nodes:
            node.power_off()

    def block_from(self, other: ClusterSite, deaf: bool) -> None:
        """It no longer hears ``other``, or does again. One side alone makes a cut in one direction."""
        for node in self.nodes:
            for addresses in (other.pods_range, other.hosts_range):
                rule = ["PREROUTING", "-i", "up0", "-m", "iprange", "--src-range", addresses, "-j", "DROP"]
                filtered = ["iptables", "-w", "-t", "raw"]
                with contextlib.suppress(ClusterUnavailable):
                    while True:
                        node.run(*filtered, "-D", *rule)
                if deaf:
                    node.run(*filtered, "-I", *rule)

    def delay_to(self, other: ClusterSite, delay_ms: float, jitter_ms: float = 0, loss_percent: float = 0) -> None:
        """What it sends to ``other`` arrives that much later; to be said on both sides. See :mod:`e2e.cluster.wan`."""
        for node in self.nodes:
            node.run("sh", "-c", "test ! -f /run/wan.pid || kill $(cat /run/wan.pid)", check=False)
            if delay_ms or jitter_ms or loss_percent:
                figures = (str(delay_ms), str(jitter_ms), str(loss_percent))
                node.start(
                    "wan", sys.executable, str(ROOT / "e2e" / "cluster" / "wan.py"), *figures, *_routes_to(other)
                )

    def down(self) -> None:
        """Nothing of it is left."""
        nodes = self.nodes
        self.power_off()
        remove_network(nodes)
        for node in nodes:
            node_agent.leave_control_groups(node)
        shutil.rmtree(self.site.folder, ignore_errors=True)
        image_store.remove_shared_images()


def _routes_to(other: ClusterSite) -> list[str]:
    return [f"{subnet},{other.host(k)}" for k in (1, 2, 3) for subnet in (f"{other.host(k)}/32", other.pods(k))]


__all__ = ["ClusterLevel", "DataCenter"]
