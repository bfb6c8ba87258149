"""Names of repositories."""

from __future__ import annotations

import re
from typing import Final

REPOSITORY_PATTERN: Final = r"^[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?$"
SYSTEM_NAME: Final = "system"
"""The log that names the others has it."""
_NAME: Final = re.compile(REPOSITORY_PATTERN)


def is_repository_name(text: str) -> bool:
    """Whether a repository may have this name."""
    return _NAME.fullmatch(text) is not None and text.lower() != SYSTEM_NAME
