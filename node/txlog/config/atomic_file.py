"""Writes small files atomically, also across a loss of power."""

from __future__ import annotations

import os
from pathlib import Path


def write_durably(path: Path, content: bytes) -> None:
    """Replaces the file. Durable on return: syncs the file before the rename, then the folder. ``OSError``; the old
    content remains then."""
    new = path.with_name(path.name + ".new")
    with open(new, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes the names in the folder durable. ``OSError``."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
