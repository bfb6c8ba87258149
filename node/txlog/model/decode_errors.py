"""The exceptions that decoding raises for malformed bytes."""

from __future__ import annotations

from typing import Final

DECODE_ERRORS: Final = (ValueError, RecursionError)
"""For ``except`` around msgspec: its ``DecodeError`` is a ``ValueError``, and so is the ``UnicodeDecodeError`` that it
raises for wrong UTF-8; input that is nested too deep raises ``RecursionError``."""
