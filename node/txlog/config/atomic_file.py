"""Writes small files so that a reader, or a process that is killed, never meets a half written one."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(path: Path, content: bytes, mode: int | None = None) -> None:
    """Replaces the file. After a loss of power it may have the old content, or none. ``mode``: its permissions, by
    default those of the process. ``OSError``; the old content remains then."""
    _replace(path, content, mode, is_synced=False)


def write_durably(path: Path, content: bytes, mode: int | None = None) -> None:
    """The same, and durable on return: syncs the file before the rename, then the folder."""
    _replace(path, content, mode, is_synced=True)
    sync_folder(path.parent)


def _replace(path: Path, content: bytes, mode: int | None, *, is_synced: bool) -> None:
    new = path.with_name(path.name + ".new")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666 if mode is None else 0o600)
    with open(handle, "wb") as file:
        if mode is not None:
            os.fchmod(handle, mode)
        file.write(content)
        file.flush()
        if is_synced:
            os.fsync(handle)
    os.replace(new, path)


def sync_folder(folder: Path) -> None:
    """Makes the names in the folder durable. ``OSError``."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
