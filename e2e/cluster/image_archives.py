"""Images without a registry: archives that a node's containerd takes in."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Final

from e2e.cluster.node_agent import PAUSE

ARCHITECTURE: Final = "amd64"


def build_pause_image(programs: Path) -> Path:
    """The image that holds a pod's namespaces: one static program."""
    archive = programs / "pause.tar"
    if not archive.exists():
        layer = io.BytesIO()
        with tarfile.open(fileobj=layer, mode="w") as made:
            _add_file(made, "pause", (programs / "pause").read_bytes(), 0o755)
        _write_archive(archive, PAUSE, layer.getvalue(), ["/pause"])
    return archive


def _write_archive(archive: Path, name: str, layer: bytes, command: list[str]) -> None:
    digest = hashlib.sha256(layer).hexdigest()
    told = {
        "architecture": ARCHITECTURE,
        "os": "linux",
        "config": {"Entrypoint": command},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    config = json.dumps(told).encode()
    file = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": file, "RepoTags": [name], "Layers": [f"{digest}/layer.tar"]}]
    part = archive.with_suffix(".part")
    with tarfile.open(part, "w") as made:
        _add_file(made, f"{digest}/layer.tar", layer)
        _add_file(made, file, config)
        _add_file(made, "manifest.json", json.dumps(manifest).encode())
    part.rename(archive)


def _add_file(made: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    file = tarfile.TarInfo(name)
    file.size, file.mode = len(content), mode
    made.addfile(file, io.BytesIO(content))
