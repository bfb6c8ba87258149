"""Stores that no cluster knows."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from e2e.lib.cluster.masters import stop_processes, wait_for_listener
from e2e.lib.ports import free_ports

OXIGRAPH: Final = Path(sys.executable).parent / "oxigraph"


@contextmanager
def empty_oxigraph(folder: Path, port: int | None = None) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """An empty Oxigraph on disk: its URL and its process; its folder goes with it. ``port``: a free one without it."""
    port = port or free_ports(1)[0]
    process = subprocess.Popen([OXIGRAPH, "serve", "-l", folder, "-b", f"127.0.0.1:{port}"], stderr=subprocess.DEVNULL)
    try:
        wait_for_listener(port)
        yield f"http://127.0.0.1:{port}", process
    finally:
        stop_processes([process])
        shutil.rmtree(folder, ignore_errors=True)
