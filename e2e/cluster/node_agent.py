"""What makes a node of Kubernetes: containerd, kubelet, kube-proxy."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from e2e.cluster import control_plane, image_store
from e2e.cluster.layout import PODS, ClusterUnavailable
from e2e.cluster.node import ClusterNode, run_command, wait_until

READY_S: Final = 90.0
LOCAL_DISK: Final = "20Gi"
"""What pods may write to the disk of a node, all together."""
CONTROL_GROUPS: Final = Path("/sys/fs/cgroup")
PLUGINS: Final = ("bridge", "host-local", "loopback", "portmap")
PLUGIN_FOLDERS: Final = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
PAUSE: Final = "localhost/pause:1"

# restrict_oom_score_adj: without CAP_SYS_RESOURCE every container fails with "can't get final child's PID from pipe".
CONTAINERD: Final = f"""version = 2
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
"""


def join_cluster(node: ClusterNode, programs: Path, images: Sequence[Path]) -> None:
    """Containers run on it, and the API server calls it Ready. ``images``: archives that it has."""
    _network(node)
    _provide_images(node, images)
    (node.folder / "containerd.toml").write_text(CONTAINERD)
    node.start("containerd", "containerd", "-c", str(node.folder / "containerd.toml"))
    _control_groups(node)
    wait_until(f"containerd of {node.name} ({node.log('containerd')})", READY_S, lambda: _version(node))
    for image in images:
        import_image(node, image)
    site = node.site
    for token in ("node", "proxy"):
        control_plane.write_kubeconfig(site, f"{token}-{node.name}", node.folder / f"{token}.kubeconfig")
    (node.folder / "resolv.conf").write_text("")
    (node.folder / "kubelet.yaml").write_text(json.dumps(_kubelet(node), indent=1))
    node.start(
        "kubelet",
        str(programs / "kubelet"),
        f"--config={node.folder}/kubelet.yaml",
        f"--kubeconfig={node.folder}/node.kubeconfig",
        f"--node-ip={node.address}",
        f"--hostname-override={node.name}",
    )
    node.start(
        "proxy",
        str(programs / "kube-proxy"),
        f"--kubeconfig={node.folder}/proxy.kubeconfig",
        f"--hostname-override={node.name}",
        f"--cluster-cidr={PODS}",
        "--conntrack-max-per-core=0",
    )
    wait_until(f"{node.name} Ready ({node.log('kubelet')})", READY_S, lambda: is_ready(node, programs))
    _announce_local_disk(node, programs)


def _announce_local_disk(node: ClusterNode, programs: Path) -> None:
    """Pods that request ephemeral storage have no node without it. This kubelet does not measure its disk, and keeps
    what the API server has of it."""
    capacity = json.dumps({"status": {"capacity": {"ephemeral-storage": LOCAL_DISK}}})
    patch = ("patch", "node", node.name, "--subresource=status", "--type=merge", "-p", capacity)
    control_plane.kubectl(node.site, programs, *patch)


def is_ready(node: ClusterNode, programs: Path) -> bool:
    """What the API server says of it."""
    path = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
    return control_plane.kubectl(node.site, programs, "get", "node", node.name, "-o", path, check=False) == "True"


def import_image(node: ClusterNode, archive: Path) -> None:
    """Once for each content of the archive."""
    done = _image_marker(node, archive)
    if not done.exists():
        node.run("ctr", "-n", "k8s.io", "images", "import", str(archive))
        done.touch()


def _image_marker(node: ClusterNode, archive: Path) -> Path:
    """A file that is there when the node has the image."""
    return node.folder / f"image-{image_store.image_marker(archive)}"


def _provide_images(node: ClusterNode, images: Sequence[Path]) -> None:
    """A node that starts for the first time has the images; one that comes back has what it had."""
    folder = node.host_path("/var/lib/containerd")
    if images and not any(folder.iterdir()):
        image_store.link_images(folder, images)
        for image in images:
            _image_marker(node, image).touch()


def _version(node: ClusterNode) -> bool:
    return bool(node.run("ctr", "version", check=False).count("Server"))


def _network(node: ClusterNode) -> None:
    found = next((folder for folder in PLUGIN_FOLDERS if (folder / "host-local").exists()), None)
    if found is None:
        raise ClusterUnavailable("no CNI plugins: apt-get install containernetworking-plugins")
    for plugin in PLUGINS:
        target = node.host_path("/opt/cni/bin") / plugin
        if not target.exists():
            shutil.copy2(found / plugin, target)
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": node.site.pods(node.k)}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    wired = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": addresses,
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    told = {"cniVersion": "0.4.0", "name": "pods", "plugins": [wired, ports]}
    (node.host_path("/etc/cni/net.d") / "10-bridge.conflist").write_text(json.dumps(told))


def _control_groups(node: ClusterNode) -> None:
    """Its own group below each hierarchy, so that two kubelets do not tidy up after each other."""
    if (CONTROL_GROUPS / "cgroup.controllers").exists():
        (CONTROL_GROUPS / node.name).mkdir(exist_ok=True)
        return
    for hierarchy in CONTROL_GROUPS.iterdir():
        if hierarchy.is_dir() and not hierarchy.is_symlink():
            (hierarchy / node.name).mkdir(exist_ok=True)
    for what in ("cpus", "mems"):  # an empty cpuset takes no process
        whole = (CONTROL_GROUPS / "cpuset" / f"cpuset.{what}").read_text()
        (CONTROL_GROUPS / "cpuset" / node.name / f"cpuset.{what}").write_text(whole)


def leave_control_groups(node: ClusterNode) -> None:
    """Of a node that is down."""
    for top in (CONTROL_GROUPS / node.name, *CONTROL_GROUPS.glob(f"*/{node.name}")):
        if top.is_dir():
            run_command("find", str(top), "-depth", "-type", "d", "-exec", "rmdir", "{}", "+", check=False)


def _kubelet(node: ClusterNode) -> dict[str, object]:
    site = node.site
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(site.folder / "pki" / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.name}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "clusterDomain": site.domain,
        "clusterDNS": [site.host(1)],
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "resolvConf": str(node.folder / "resolv.conf"),
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "200Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "nodeStatusUpdateFrequency": "2s",
        "nodeLeaseDurationSeconds": 10,
        "serializeImagePulls": False,
    }
