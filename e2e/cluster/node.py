"""One node: namespaces for mounts, network, processes, host name and IPC, with a cable to this machine's bridge.

Its first process holds the namespaces: when that is killed, everything in the node ends at once, as if it had lost
its power. The well-known folders of a node are mounts of its own folder, so nodes do not meet in them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from e2e.cluster.layout import BRIDGE, GATEWAY, NUMBERS, SERVICES, ClusterSite, ClusterUnavailable

PRIVATE_FOLDERS: Final = (
    *("/var/lib/kubelet", "/var/lib/containerd", "/run/containerd", "/var/log/pods", "/var/log/containers"),
    *("/var/lib/cni", "/run/netns", "/etc/cni/net.d", "/opt/cni/bin", "/var/lib/volumes"),
)
"""Folders that each node has for itself."""
VOLUMES: Final = "/var/lib/volumes"
"""Where a node keeps the volumes that the provisioner makes."""
STEP_S: Final = 0.05
T = TypeVar("T")


def run_command(*command: str, input_text: str | None = None, check: bool = True) -> str:
    """What it printed. :class:`ClusterUnavailable` with its words when it fails."""
    ended = subprocess.run(command, input=input_text, capture_output=True, text=True, check=False, timeout=300)
    if check and ended.returncode:
        raise ClusterUnavailable(f"{' '.join(command)[:200]}: {(ended.stderr or ended.stdout).strip()[-800:]}")
    return ended.stdout


def wait_until(what: str, seconds: float, look: Callable[[], T]) -> T:
    """The first true answer of ``look``; :class:`ClusterUnavailable` when there is none in time."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() >= deadline:
            raise ClusterUnavailable(f"{what}: not within {seconds:g} s")
        time.sleep(STEP_S)


@dataclass(frozen=True)
class ClusterNode:
    """Node ``k`` of a data centre."""

    site: ClusterSite
    k: int

    @property
    def name(self) -> str:
        return f"{self.site.name}-node-{self.k}"

    @property
    def x(self) -> int:
        return 10 * self.site.number + self.k

    @property
    def folder(self) -> Path:
        return self.site.folder / f"n{self.k}"

    @property
    def address(self) -> str:
        return self.site.host(self.k)

    @property
    def first_process(self) -> int | None:
        """None when the node has no power."""
        try:
            pid = int((self.folder / "pid").read_text())
            named = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        return pid if b"pause" in named else None

    def host_path(self, path: str) -> Path:
        """Where one of its folders (:data:`PRIVATE_FOLDERS`) lies on this machine."""
        return self.folder / "root" / path.lstrip("/")

    def log(self, name: str) -> Path:
        return self.folder / "log" / f"{name}.log"

    def command_inside(self, *command: str) -> list[str]:
        """The command that runs ``command`` in the node."""
        pid = self.first_process
        if pid is None:
            raise ClusterUnavailable(f"{self.name} is down")
        return ["nsenter", "--target", str(pid), "--all", "--", *command]

    def run(self, *command: str, input_text: str | None = None, check: bool = True) -> str:
        return run_command(*self.command_inside(*command), input_text=input_text, check=check)

    def start(self, name: str, *command: str) -> None:
        """A program that runs until the node ends; its words go to its log."""
        with open(self.log(name), "ab") as log:
            subprocess.Popen(
                self.command_inside(*command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def power_on(self, pause: Path) -> None:
        """Namespaces, cable, routes, folders. Nothing of Kubernetes runs yet."""
        if self.first_process is not None:
            raise ClusterUnavailable(f"{self.name} runs already")
        for folder in (self.folder / "log", self.folder / "root"):
            folder.mkdir(parents=True, exist_ok=True)
        ensure_bridge()
        held = subprocess.Popen(
            ["unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--mount-proc", "--kill-child", pause],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        children = Path(f"/proc/{held.pid}/task/{held.pid}/children")
        pid = wait_until(f"the first process of {self.name}", 10, lambda: children.read_text().strip())
        (self.folder / "pid").write_text(pid)
        wait_until(f"{self.name}'s namespaces", 10, lambda: self.first_process)
        self.run("hostname", self.name)
        self._connect_network(pid)
        self._folders()

    def _connect_network(self, pid: str) -> None:
        cable = f"{BRIDGE}{self.x}"
        run_command("ip", "link", "del", cable, check=False)
        # The same MAC at each start: neighbours that remember it still reach the node.
        mac = f"02:00:0a:dc:00:{self.x}"
        run_command(*f"ip link add {cable} type veth peer name up0 address {mac} netns {pid}".split())
        run_command(*f"ip link set {cable} master {BRIDGE} up".split())
        run_command(*f"ip route replace {self.site.pods(self.k)} via {self.address}".split())
        if self.k == 1:
            run_command(*f"ip route replace {self.site.services} via {self.address}".split())
        for setting in ("all.rp_filter=0", "default.rp_filter=0"):
            self.run("sysctl", "-qw", f"net.ipv4.conf.{setting}")
        self.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        self.run("sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=1", check=False)
        others = [
            ClusterNode(ClusterSite("", n), k) for n in NUMBERS for k in NUMBERS if (n, k) != (self.site.number, self.k)
        ]
        lines = [
            "link set lo up",
            f"addr add {self.address}/24 dev up0",
            "link set up0 up",
            *(f"route add {other.site.pods(other.k)} via {other.address}" for other in others),
            f"route add {SERVICES} via {GATEWAY}",  # some route is needed before kube-proxy translates the address
            "route add unreachable default",  # nothing leaves this machine
        ]
        self.run("ip", "-batch", "-", input_text="\n".join(lines))

    def _folders(self) -> None:
        script = "set -e\n"
        for path in PRIVATE_FOLDERS:
            for folder in (Path(path), self.host_path(path)):
                folder.mkdir(parents=True, exist_ok=True)
            script += f"mount --bind '{self.host_path(path)}' {path}; mount --make-rshared {path}\n"
        self.run("sh", "-e", input_text=script)

    def power_off(self) -> None:
        """Everything in it ends at once; its disks stay."""
        pid = self.first_process
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            wait_until(f"the end of {self.name}", 20, lambda: not Path(f"/proc/{pid}/ns/net").exists())
        (self.folder / "pid").unlink(missing_ok=True)


def ensure_bridge() -> None:
    """What all nodes are plugged into. Two may ask for it at once."""
    run_command("ip", "link", "add", BRIDGE, "type", "bridge", check=False)
    run_command("ip", "addr", "replace", f"{GATEWAY}/24", "dev", BRIDGE)
    run_command("ip", "link", "set", BRIDGE, "up")


def remove_network(nodes: Sequence[ClusterNode]) -> None:
    """Take the cables of nodes that are down, and the bridge with the last of them."""
    for node in nodes:
        run_command("ip", "link", "del", f"{BRIDGE}{node.x}", check=False)
        run_command("ip", "route", "del", node.site.pods(node.k), check=False)
    bridged = Path(f"/sys/class/net/{BRIDGE}/brif")
    if bridged.exists() and not any(bridged.iterdir()):
        run_command("ip", "link", "del", BRIDGE, check=False)
