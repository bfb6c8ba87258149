"""Bounds the expanded size of a body: a prefix, a list of objects or a parameter expands a few bytes to megabytes.

One transaction is one message to a peer and one entry in every log, so TxLog refuses an oversized one before it exists.
"""

from __future__ import annotations

from io import BytesIO
from typing import Final

from txlog.model.errors import TooLarge

EXPANDED_BYTES_MAX: Final = 16 << 20
"""Bytes to which any body may expand; a body larger than this may expand to twice its own size."""
PARSED_BYTES_MAX: Final = 256 << 20
"""Bytes that the parser may read for all INSERT DATA and DELETE DATA of an update, each with the prefixes before it."""
CACHED_BODIES_MAX: Final = 2048
"""A longer IRI is resolved each time: a cache of long ones would use too much memory."""


def limit_for(size: int) -> int:
    """The number of bytes to which a body of ``size`` bytes may expand."""
    return max(EXPANDED_BYTES_MAX, 2 * size)


def expansion_too_large(limit: int) -> TooLarge:
    """The error for a body that expands to more than ``limit`` bytes."""
    return TooLarge(
        f"with its IRIs in full, this comes to more than {limit} bytes in one transaction; send it in parts, or with "
        "shorter IRIs"
    )


def check_expansion(size: int, limit: int) -> None:
    """Raise :class:`TooLarge` for a ``size`` above the limit; both are bytes."""
    if size > limit:
        raise expansion_too_large(limit)


class ExpansionBuffer(BytesIO):
    """A buffer of at most ``limit`` bytes; a write beyond it raises :class:`TooLarge`."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        """Append bytes; returns their number. Raises :class:`TooLarge` beyond the limit."""
        check_expansion(self.tell() + len(data), self._limit)
        return super().write(data)
