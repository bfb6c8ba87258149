"""An older revision of the program, kept to be run beside this one: see ``README.md``."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).with_name("older-wire.tar.gz")


def unpack(into: Path) -> Path:
    """The older program below ``into``; the folder to put in front of ``PYTHONPATH``."""
    with tarfile.open(PACKAGE) as archive:
        archive.extractall(into)
    return into / "node"
