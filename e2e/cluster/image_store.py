"""Images unpacked once for all nodes of this machine: each gets links to the same files, which nobody ever writes to.

Without it every node would hold the image twice, as layers and unpacked, and take as long to unpack it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from e2e.cluster.layout import ClusterUnavailable, run_folder
from e2e.cluster.node import run_command, wait_until

READY_S: Final = 90.0
CONFIG: Final = """version = 2
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper"]
"""
DATABASES: Final = "*.db"
"""What containerd writes to: each node has its own."""


def image_marker(image: Path) -> str:
    """Of an archive's content, for the name of a file that says a node has it."""
    state = image.stat()
    return hashlib.sha256(f"{image}{state.st_size}{state.st_mtime_ns}".encode()).hexdigest()[:16]


def link_images(folder: Path, images: Sequence[Path]) -> None:
    """``folder``, a node's ``/var/lib/containerd`` before its first start, has these images."""
    made = _unpack_images(images)
    run_command("cp", "--archive", "--link", "--no-target-directory", str(made), str(folder))
    for linked in folder.rglob(DATABASES):
        own = linked.with_suffix(".own")
        shutil.copy2(linked, own)
        own.rename(linked)


def remove_shared_images() -> None:
    """With the last data centre of a run what its nodes shared goes too."""
    top = run_folder()
    if not any(top.glob("*/n*")):
        for old in top.glob("images-*"):
            shutil.rmtree(old, ignore_errors=True)


def _unpack_images(images: Sequence[Path]) -> Path:
    top = run_folder()
    top.mkdir(parents=True, exist_ok=True)
    folder = top / f"images-{hashlib.sha256(''.join(map(image_marker, images)).encode()).hexdigest()[:16]}"
    with open(top / "images.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            for old in top.glob("images-*"):
                shutil.rmtree(old)
            part = folder.with_name("images-.part")
            with _containerd(part) as address:
                for image in images:
                    run_command("ctr", "--address", address, "-n", "k8s.io", "images", "import", str(image))
            part.rename(folder)
    return folder


@contextmanager
def _containerd(root: Path) -> Iterator[str]:
    """One that only takes images in; its address."""
    with tempfile.TemporaryDirectory() as name:
        state = Path(name)
        config, address, log = state / "containerd.toml", f"{state}/containerd.sock", state / "containerd.log"
        config.write_text(CONFIG)
        command = ["containerd", "-c", str(config), "--root", str(root), "--state", f"{state}/run", "-a", address]
        with open(log, "wb") as said:
            running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        try:
            wait_until("containerd", READY_S, lambda: _is_answering(address))
            yield address
        except ClusterUnavailable as failed:
            raise ClusterUnavailable(f"{failed}; containerd said: {log.read_text()[-800:]}") from failed
        finally:
            os.kill(running.pid, signal.SIGTERM)
            running.wait(READY_S)


def _is_answering(address: str) -> bool:
    return "Server" in run_command("ctr", "--address", address, "version", check=False)
