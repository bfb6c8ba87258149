"""The name of a file of the archive. Names alone tell how files follow each other: one listing gives the path."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from txlog.model.hashes import HASH_BYTES

SUFFIX: Final = ".txl"
_DIGITS: Final = 16
_NAME: Final = re.compile(
    rf"^([0-9a-f]{{{_DIGITS}}})-([0-9a-f]{{{_DIGITS}}})"
    rf"-([0-9a-f]{{{2 * HASH_BYTES}}})-([0-9a-f]{{{2 * HASH_BYTES}}})(?:\.([1-9][0-9]{{0,3}}))?\{SUFFIX}$"
)
LEVELS: Final = (0, 1)
"""Of files: as shipped, compacted."""
INDEX_MAX: Final = (1 << 62) - 1


@dataclass(frozen=True, order=True, slots=True)
class Node:
    """A place of the log between two entries: the chain hash after the entry at ``index``."""

    index: int
    hash: bytes

    def __str__(self) -> str:
        return f"{self.index}:{self.hash.hex()}"


class FileName(NamedTuple):
    """The entries ``first`` to ``last``; the chain hash is ``before`` at ``first - 1`` and ``after`` at ``last``.
    ``attempt``: above 0 where an object of the lower attempt exists and is damaged. ``level``: 0 as it was shipped, 1
    where several files became one; a folder each."""

    first: int
    last: int
    before: bytes
    after: bytes
    attempt: int = 0
    level: int = 0

    @property
    def start(self) -> Node:
        """The place after which the file begins."""
        return Node(self.first - 1, self.before)

    @property
    def end(self) -> Node:
        """The place of the file's last entry."""
        return Node(self.last, self.after)

    @property
    def entries(self) -> int:
        """The number of entries."""
        return self.last - self.first + 1

    def __str__(self) -> str:
        more = f".{self.attempt}" if self.attempt else ""
        return f"{self.first:016x}-{self.last:016x}-{self.before.hex()}-{self.after.hex()}{more}{SUFFIX}"


def parse_file_name(text: str, level: int = 0) -> FileName | None:
    """The inverse of ``str(name)``; None for any other object."""
    found = _NAME.match(text)
    if found is None:
        return None
    first, last = int(found[1], 16), int(found[2], 16)
    if not 1 <= first <= last <= INDEX_MAX:
        return None
    return FileName(first, last, bytes.fromhex(found[3]), bytes.fromhex(found[4]), int(found[5] or 0), level)
