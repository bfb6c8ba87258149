"""What a body unfolds to is bounded: a prefix, a list of objects or a parameter says megabytes in a few bytes.

One transaction is one message to a peer and one entry in every log, so a flood must be refused before it is made.
"""

from __future__ import annotations

from io import BytesIO
from typing import Final

from txlog.model.errors import TooLarge

EXPANDED_BYTES_MAX: Final = 16 << 20
"""What any body may come to, in full; a larger one to twice its own size."""
PARSED_BYTES_MAX: Final = 256 << 20
"""What all INSERT DATA and DELETE DATA of an update may be read as, each with the prefixes before it."""
CACHED_BODIES_MAX: Final = 2048
"""A longer IRI is resolved each time: a cache of long ones would be the flood."""


def limit_for(size: int) -> int:
    """How many bytes a body of ``size`` may unfold to."""
    return max(EXPANDED_BYTES_MAX, 2 * size)


def expansion_too_large(limit: int) -> TooLarge:
    """What to say of one that unfolds to more."""
    return TooLarge(
        f"with its IRIs in full, this comes to more than {limit} bytes in one transaction; send it in parts, or with "
        "shorter IRIs"
    )


def check_expansion(size: int, limit: int) -> None:
    """:class:`TooLarge` above the limit."""
    if size > limit:
        raise expansion_too_large(limit)


class ExpansionBuffer(BytesIO):
    """Takes at most ``limit`` bytes, and raises :class:`TooLarge` in the middle of more."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        check_expansion(self.tell() + len(data), self._limit)
        return super().write(data)
