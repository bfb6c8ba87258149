"""What is so where nothing else is said of backups. A master reads it without the rest of their manifest."""

from __future__ import annotations

from typing import Final

INCREMENTS_DEFAULT: Final = 14
