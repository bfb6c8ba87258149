"""Changes to a state of quads that is too large for memory: the changes are in memory, the state passes by. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from txlog.backup.backup_errors import ManyChanges
from txlog.workers.digest import Digest

CHANGES_BYTES_MAX: Final = 64 << 20
"""N-Quads of changes in memory, where they take about three times as much: of a whole chain of incremental backups."""
PIECE_BYTES: Final = 1 << 20
_ADD: Final = ord("A")
_MODULUS: Final = 1 << 128


class ExactChanges(NamedTuple):
    """``added``: quads that the state lacked; ``deleted``: quads that it had. Lines without newline, sorted."""

    added: list[bytes]
    deleted: list[bytes]

    @property
    def plain_bytes(self) -> int:
        """Bytes of N-Quads of both."""
        return count_bytes(self.added) + count_bytes(self.deleted)


class QuadChanges:
    """Quads that are there or gone after the changes; the last change of a quad counts. ``bytes_max``: N-Quads that may
    be in memory, above which :class:`~txlog.backup.backup_errors.ManyChanges` is raised."""

    def __init__(self, bytes_max: int | None = None) -> None:
        self._is_there: dict[bytes, bool] = {}
        self._bytes = 0
        self._bytes_max = bytes_max

    def change(self, payload: bytes) -> None:
        """A payload of kind QUADS, in the form in which the store returns quads."""
        for line in payload.split(b"\n"):
            if line:
                self._set(line[2:], line[0] == _ADD)

    def set_quads(self, lines: bytes, *, is_there: bool) -> None:
        """Whole lines of N-Quads, all of which came, or all of which went."""
        for line in lines.split(b"\n"):
            if line:
                self._set(line, is_there)

    def apply_to(self, state: Iterable[bytes]) -> Iterator[bytes]:
        """The state after the changes, in pieces of whole lines. ``state``: pieces of whole lines, no line twice."""
        known = self._is_there.keys()
        for piece in state:
            lines = piece.split(b"\n")
            if known.isdisjoint(lines):
                yield piece
            elif left := [line for line in lines if line and line not in known]:
                yield join_lines(left)
        yield from _pieces([quad for quad, is_there in self._is_there.items() if is_there])

    def compare_with(self, state: Iterable[bytes]) -> ExactChanges:
        """What the changes come to in this state: without what it had already, and what it never had."""
        found: set[bytes] = set()
        for piece in state:
            found |= self._is_there.keys() & piece.split(b"\n")
        added = sorted(quad for quad, is_there in self._is_there.items() if is_there and quad not in found)
        return ExactChanges(added, sorted(quad for quad in found if not self._is_there[quad]))

    def _set(self, quad: bytes, is_there: bool) -> None:
        if quad not in self._is_there:
            self._bytes += len(quad) + 1
            if self._bytes_max is not None and self._bytes > self._bytes_max:
                raise ManyChanges(
                    f"the changes since the full backup exceed the {CHANGES_BYTES_MAX >> 20} MiB that they may take"
                )
        self._is_there[quad] = is_there


def add_digests(before: Digest, added: Digest, deleted: Digest) -> Digest:
    """The digest of a state after exact changes: a digest is a sum over the quads."""
    graphs: dict[str, tuple[int, int]] = {}
    for name in before.graphs.keys() | added.graphs.keys():
        was, came, went = (each.graphs.get(name, (0, 0)) for each in (before, added, deleted))
        quads = was[0] + came[0] - went[0]
        if quads:
            graphs[name] = (quads, (was[1] + came[1] - went[1]) % _MODULUS)
    total = (before.total + added.total - deleted.total) % _MODULUS
    return Digest(before.quads + added.quads - deleted.quads, total, graphs)


def count_bytes(quads: Iterable[bytes]) -> int:
    """Bytes of these lines with their newlines."""
    return sum(len(quad) + 1 for quad in quads)


def join_lines(quads: Iterable[bytes]) -> bytes:
    """Whole lines of N-Quads."""
    return b"\n".join(quads) + b"\n"


def _pieces(quads: list[bytes]) -> Iterator[bytes]:
    each = max(1, PIECE_BYTES // max(map(len, quads), default=1))
    for at in range(0, len(quads), each):
        yield join_lines(quads[at : at + each])
