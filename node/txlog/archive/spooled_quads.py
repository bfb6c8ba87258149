"""The set of quads that a base and many changes make, with bounded memory: operations by bucket in files of a temporary
folder, then one bucket after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Final, Self
from zlib import crc32

from txlog.model.errors import Unavailable
from txlog.model.quads import split_graph

BUCKET_BYTES: Final = 32 << 20
"""Planned bytes of a bucket; as a dictionary it takes several times as many."""
BUCKETS_MAX: Final = 512
HELD_BYTES: Final = 16 << 20
"""Bytes of operations in memory before they are written."""
PIECE_BYTES: Final = 1 << 20
_ADD: Final = ord("A")


class SpooledQuads:
    """:meth:`add_quads` and :meth:`change` in the order of the log, then :meth:`merge` once. ``form``: converts
    payloads to the form in which the store returns quads. ``bytes_about``: of all operations. Its folder is gone when
    the context ends."""

    def __init__(self, form: Callable[[bytes], bytes], bytes_about: int = 0) -> None:
        self._form = form
        self._buckets: list[list[bytes]] = [[] for _ in range(min(BUCKETS_MAX, 1 + bytes_about // BUCKET_BYTES))]
        self._held_bytes = 0
        self._folder = TemporaryDirectory(prefix="txlog-restore-")
        self.kept_graphs: set[bytes] = set()
        """After :meth:`merge`: graphs in brackets in which a quad came and went. Such a graph exists where an engine
        keeps empty graphs."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._folder.cleanup()

    def add_quads(self, lines: bytes) -> None:
        """Whole lines of canonical N-Quads, all of them there."""
        for line in lines.split(b"\n"):
            if line:
                self._put(line, b"A " + line)
        self._write_when_full()

    def change(self, payload: bytes) -> None:
        """A payload of kind QUADS, whose last operation on a quad counts."""
        for line in self._form(payload).split(b"\n"):
            if line:
                self._put(line[2:], line)
        self._write_when_full()

    def merge(self) -> Iterator[bytes]:
        """The quads that are there at the end, as whole lines, in pieces; each quad once."""
        self._write()
        for number in range(len(self._buckets)):
            yield from _join(self._merge_bucket(number))

    def _merge_bucket(self, number: int) -> list[bytes]:
        path = self._path(number)
        last: dict[bytes, bool] = {}
        came: set[bytes] = set()
        if path.exists():
            with path.open("rb") as file:
                for line in file:
                    quad = line[2:-1]
                    is_add = line[0] == _ADD
                    if not is_add and last.get(quad):
                        came.add(quad)
                    last[quad] = is_add
        self.kept_graphs |= {split_graph(quad)[1] for quad in came if not last[quad]} - {b""}
        return [quad for quad, is_there in last.items() if is_there]

    def _put(self, quad: bytes, operation: bytes) -> None:
        self._buckets[crc32(quad) % len(self._buckets)].append(operation)
        self._held_bytes += len(operation) + 1

    def _write_when_full(self) -> None:
        if self._held_bytes >= HELD_BYTES:
            self._write()

    def _write(self) -> None:
        try:
            for number, held in enumerate(self._buckets):
                if held:
                    with self._path(number).open("ab") as file:
                        file.write(b"\n".join(held) + b"\n")
                    held.clear()
        except OSError as error:
            raise Unavailable(
                "DiskFull", f"cannot write to {self._folder.name}: {error.strerror}; set TMPDIR to a folder with room"
            ) from error
        self._held_bytes = 0

    def _path(self, number: int) -> Path:
        return Path(self._folder.name, f"{number:04}.ops")


def _join(quads: Iterable[bytes]) -> Iterator[bytes]:
    held: list[bytes] = []
    size = 0
    for quad in quads:
        held.append(quad)
        size += len(quad) + 1
        if size >= PIECE_BYTES:
            yield b"\n".join(held) + b"\n"
            held, size = [], 0
    if held:
        yield b"\n".join(held) + b"\n"
