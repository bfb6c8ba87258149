"""Files that a killed store leaves behind and never removes by itself."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import Final

log = logging.getLogger("txlog.local")
PATTERN: Final = "bulk-*.sst"
"""Oxigraph sorts what it loads into such files, and takes them in at the end of a load."""


def remove_leftovers(folder: Path) -> int:
    """Removes them from the folder of a store that does not run. Returns how many."""
    found = [path for path in folder.glob(PATTERN) if path.is_file()]
    for path in found:
        with suppress(OSError):
            path.unlink()
    if found:
        log.info("removed %d files of a load that broke off from %s", len(found), folder)
    return len(found)
