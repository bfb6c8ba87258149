"""Log files: limits their size, and reads their last lines."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Final

LOG_BYTES_MAX: Final = 16 << 20
"""Limit of one log file; the previous one is kept as ``.1``."""


def rotate_log(log: Path, bytes_max: int = LOG_BYTES_MAX) -> None:
    """Moves a log's content to ``.1`` once it is large. The process continues to write to the same file, which it
    opened for appending, so at most the lines of this moment are lost."""
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > bytes_max:
            shutil.copyfile(log, log.with_name(log.name + ".1"))
            os.truncate(log, 0)


def last_lines(log: Path, count: int = 5) -> list[str]:
    """The last lines of a log."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, log.stat().st_size - 8192))
            return file.read().decode("utf-8", "replace").splitlines()[-count:]
    except FileNotFoundError:
        return []
