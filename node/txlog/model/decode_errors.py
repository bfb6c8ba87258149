"""What decoding raises for bytes that are not what they should be."""

from __future__ import annotations

from typing import Final

DECODE_ERRORS: Final = (ValueError, RecursionError)
"""For ``except`` around msgspec: its ``DecodeError`` is a ``ValueError``, and so is the ``UnicodeDecodeError`` that it
raises for wrong UTF-8; what is nested too deep is a ``RecursionError``."""
