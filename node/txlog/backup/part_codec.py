"""Converts N-Quads to compressed parts, and back. One compressed part is in memory at a time.

A part holds whole lines, so each part can be read alone; each is one zstd frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import Final

import zstandard

from txlog.backup.backup_errors import NotCanonical, ObjectMissing, PartDamaged, PartMissing, PartTruncated
from txlog.backup.backup_manifest import BackupPart
from txlog.backup.target import BackupTarget

PART_BYTES: Final = 32 << 20
"""Bytes of N-Quads after which a part ends with the current piece: 2 to 4 MB compressed, usually."""
PART_BYTES_MAX: Final = 1 << 30
"""Longest part that a manifest may name; longer ones are not read into memory. TxLog writes far smaller parts."""
COMPRESSION_LEVEL: Final = 3
"""zstd level. On N-Quads level 3 gives 7 % of the size at 450 MB/s of one core, level 9 gives 6 % at 60 MB/s."""
CHUNK_BYTES: Final = 1 << 20
COALESCE_BYTES: Final = 256 << 10


class PartWriter:
    """``write`` receives each part's name and bytes; ``parts`` collects the manifest's entries. ``prefix``: of the
    names."""

    def __init__(self, write: Callable[[str, bytes], None], part_bytes: int = PART_BYTES, prefix: str = "part") -> None:
        self._write = write
        self._prefix = prefix
        self._part_bytes = part_bytes
        self._compressed: list[bytes] = []
        self._plain_bytes = 0
        self._compressor = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL, write_checksum=True)
        self._frame: zstandard.ZstdCompressionObj | None = None
        self.parts: list[BackupPart] = []
        self.bytes = 0
        """Bytes of N-Quads so far."""

    def feed(self, chunk: bytes) -> None:
        """More N-Quads, with arbitrary boundaries."""
        self.bytes += len(chunk)
        while chunk:
            room = self._part_bytes - self._plain_bytes
            if len(chunk) < room:
                self._add(chunk)
                return
            # Split after the last line that fits; a line longer than a part gets a part of its own.
            cut = chunk.rfind(b"\n", 0, max(room, 0)) + 1 or chunk.find(b"\n", max(room, 0)) + 1
            if not cut:
                self._add(chunk)
                return
            self._add(chunk[:cut])
            self._finish_part()
            chunk = chunk[cut:]

    def finish(self) -> list[BackupPart]:
        """All parts, in order."""
        if self._plain_bytes:
            self._finish_part()
        return self.parts

    def _add(self, data: bytes) -> None:
        if self._frame is None:
            self._frame = self._compressor.compressobj()
        self._plain_bytes += len(data)
        self._compressed.append(self._frame.compress(data))

    def _finish_part(self) -> None:
        assert self._frame is not None
        data = b"".join([*self._compressed, self._frame.flush()])
        part = BackupPart(
            f"{self._prefix}-{len(self.parts) + 1:05}.nq.zst", len(data), sha256(data).hexdigest(), self._plain_bytes
        )
        self._compressed, self._frame, self._plain_bytes = [], None, 0
        self._write(part.name, data)
        self.parts.append(part)


def read_part(target: BackupTarget, backup: str, part: BackupPart) -> Iterator[bytes]:
    """The N-Quads of a part in pieces of at most :data:`CHUNK_BYTES`, after its length and checksum were verified."""
    where = f"{backup}/{part.name}"
    try:
        data = target.read(where, min(part.bytes, PART_BYTES_MAX))
    except ObjectMissing:
        raise PartMissing(f"{where} is not on {target.location}; take another backup (txlog backup list)") from None
    if len(data) < part.bytes:
        raise PartTruncated(f"{where} has {len(data):,} of {part.bytes:,} bytes; take another backup")
    if len(data) > part.bytes or sha256(data).hexdigest() != part.sha256:
        raise PartDamaged(f"{where} is not what was written: another checksum or length; take another backup")
    plain = 0
    with zstandard.ZstdDecompressor().stream_reader(data) as reader:
        while piece := reader.read(CHUNK_BYTES):
            plain += len(piece)
            yield piece
    if plain != part.plain:
        raise PartDamaged(f"{where} holds {plain:,} bytes of N-Quads, not {part.plain:,}; take another backup")


def coalesce(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes in fewer pieces: a store sends a kilobyte at a time, and each piece has a cost in every step."""
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= COALESCE_BYTES:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


def tee(pieces: Iterable[bytes], feed: Callable[[bytes], object]) -> Iterator[bytes]:
    """The same pieces, each after ``feed`` has received it."""
    for piece in pieces:
        feed(piece)
        yield piece


def batch_lines(pieces: Iterator[bytes], bytes_least: int) -> Iterator[bytes]:
    """Joins pieces to batches of whole lines, at least that long except the last."""
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= bytes_least and b"\n" in piece:
            text = b"".join(held)
            cut = text.rfind(b"\n") + 1
            yield text[:cut]
            held, size = [text[cut:]], len(text) - cut
    rest = b"".join(held)
    if rest:
        yield rest


def refuse_blank_nodes(pieces: Iterator[bytes], whose: str) -> Iterator[bytes]:
    """Passes pieces on, but raises :class:`NotCanonical` at a blank node: its label has no meaning outside the
    store."""
    rest = b""
    for piece in pieces:
        text = rest + piece
        cut = text.rfind(b"\n") + 1
        _check_lines(text[:cut], whose)
        rest = text[cut:]
        yield piece
    _check_lines(rest, whose)


def _check_lines(lines: bytes, whose: str) -> None:
    if b"_:" not in lines:
        return
    for line in lines.split(b"\n"):
        if b"_:" in line and _has_blank_node(line):
            raise NotCanonical(
                f"{whose} holds a blank node ({line[:200].decode('utf-8', 'replace')}), which no log can have "
                "put there: rebuild it, or adopt it: txlog backup adopt"
            )


def _has_blank_node(line: bytes) -> bool:
    if line.startswith(b"_:"):
        return True
    # A literal may contain anything; before its first quote and after its last there are only terms.
    first, last = line.find(b'"'), line.rfind(b'"')
    return b" _:" in (line if first < 0 else line[:first]) or (first >= 0 and b" _:" in line[last + 1 :])
