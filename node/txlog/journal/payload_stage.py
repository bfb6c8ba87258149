"""Payloads that are on the disk before their records, and the records that use them (why: docs/decisions/0021).

Each is an optimisation, never a need: a payload that does not fit, is not whole, or is not needed is written with its
record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from txlog.journal import format as fmt
from txlog.journal import record_bodies
from txlog.journal.format import RecordBody
from txlog.journal.origin_index import OriginIndex
from txlog.journal.segment_pool import SegmentPool
from txlog.journal.staged_payload import StagedPayload
from txlog.journal.vfs import Vfs
from txlog.journal.write_buffer import STATE_HEADER_GROWTH, WriteBuffer
from txlog.model.entry import TransactionRun
from txlog.model.hashes import HASH_BYTES
from txlog.model.ids import Origin
from txlog.model.records import Record, TransactionsPersisted

STAGED_MAX: Final = 8
"""Payloads on the disk or being written; a new one replaces the oldest."""
HEADROOM_BYTES: Final = 4096
"""Left before a payload in addition to the header and head at its begin: they may grow until the record is
appended."""
TRAILING_BYTES: Final = 2 << 20
"""Left after it, for the records that follow."""


class PayloadStaging:
    """The staged payloads of a journal, by content hash, the oldest first. All of it belongs to the journal's owner;
    ``on_error`` is called on the thread that writes."""

    def __init__(self, files: Vfs, space: SegmentPool, buffer: WriteBuffer, on_error: Callable[[str], None]) -> None:
        self._files = files
        self._space = space
        self._buffer = buffer
        self._on_error = on_error
        self._staged: dict[bytes, StagedPayload] = {}
        self._removable: list[StagedPayload] = []

    # -- life cycle

    def begin(self, content: bytes, size: int, key: str) -> StagedPayload | None:
        """A file for a payload with this content hash, of a transaction with this key. None when there is one already,
        or no room."""
        space, buffer = self._space, self._buffer
        if not size or content in self._staged:
            return None
        space.refresh()
        vitals = buffer.state_header
        slack = min(HEADROOM_BYTES, max(2 * fmt.SECTOR, space.segment_bytes // 8))
        at = _payload_offset(2 * buffer.header_bytes, len(vitals.encoded), key, vitals.own.node, slack)
        rest = fmt.seal_bytes(len(vitals.encoded)) + min(TRAILING_BYTES, space.segment_bytes // 8)
        staged = StagedPayload(self._files, space.next_name(), content, at, size, rest, self._on_error)
        if not space.can_open_segment(staged.file_bytes):
            return None
        space.claimed_bytes += staged.file_bytes
        self._staged[content] = staged
        if len(self._staged) > STAGED_MAX:
            self.discard(next(iter(self._staged.values())))
        return staged

    def finish(self, staged: StagedPayload) -> None:
        """The payload is finished and may be used, or it was removed since the disk was full."""
        self._release_space(staged)
        if staged.discarded:
            self._forget(staged)
        self._space.refresh()

    def discard(self, staged: StagedPayload) -> None:
        """The caller does not need this payload."""
        self._release_space(staged)
        self._forget(staged)

    def pop_removable(self) -> list[StagedPayload]:
        """The payloads whose :meth:`StagedPayload.remove` is due."""
        unwanted, self._removable = self._removable, []
        return unwanted

    def _release_space(self, staged: StagedPayload) -> None:
        if staged.claims_space:
            staged.claims_space = False
            self._space.claimed_bytes -= staged.file_bytes

    def _forget(self, staged: StagedPayload) -> None:
        if self._staged.get(staged.content) is staged:
            del self._staged[staged.content]
            self._removable.append(staged)

    # -- queries

    @property
    def has_payloads(self) -> bool:
        """Whether any payload is on the disk or being written."""
        return bool(self._staged)

    @property
    def claimed_bytes(self) -> int:
        """Disk bytes claimed by the payloads being written, as far as known."""
        return sum(staged.file_bytes for staged in self._staged.values() if staged.claims_space)

    def find_durable(self, content: bytes, size: int) -> StagedPayload | None:
        """The payload of this content, when all of it is durable."""
        staged = self._staged.get(content)
        return (
            staged
            if staged is not None and staged.is_durable and not staged.discarded and staged.size == size
            else None
        )

    # -- records that use them

    def split_out_staged(self, records: Sequence[Record]) -> list[Record]:
        """The same records, with each payload that is on the disk in a record of its own."""
        found: list[Record] = []
        for record in records:
            if isinstance(record, TransactionsPersisted):
                found += self._split_record(record)
            else:
                found.append(record)
        return found

    def _split_record(self, record: TransactionsPersisted) -> list[TransactionsPersisted]:
        run, contents = record.run, record.contents
        cuts = {0, len(run.items)}
        for at, item in enumerate(run.items):
            content = contents[HASH_BYTES * at : HASH_BYTES * (at + 1)]
            if self.find_durable(content, len(item.payload)) is not None:
                cuts.update((at, at + 1))
        if len(cuts) <= 2:
            return [record]
        edges = sorted(cuts)
        return [
            TransactionsPersisted(
                TransactionRun(run.node, run.birth, run.first_seq + start, run.items[start:stop]),
                contents[HASH_BYTES * start : HASH_BYTES * stop],
            )
            for start, stop in pairwise(edges)
        ]

    def match_records(self, work: Sequence[tuple[OriginIndex, RecordBody]]) -> dict[int, StagedPayload]:
        """The bodies, by identity, whose payload need not be written. The payload is on the disk, and the bytes in
        front of it fit however much earlier records change. What follows fits into another segment. ``work`` is all
        that is appended: only ``TransactionsPersisted`` have a known bound on these changes."""
        found: dict[int, StagedPayload] = {}
        segment_bytes = self._space.segment_bytes
        self._space.refresh()
        if not self._space.can_open_segment(segment_bytes):
            return found
        vitals, now = self._buffer.state_header, self._buffer.header_bytes
        new: set[Origin] = set()
        for held, body in work:
            growth = STATE_HEADER_GROWTH * len(new)
            if held.origin not in vitals.held:
                new.add(held.origin)
            staged = (
                self.find_durable(record_bodies.single_content_hash(held.encoded_origin, body.front), len(body.tail))
                if body.b == 1
                else None
            )
            if staged is None or staged in found.values():
                continue
            header = 2 * (now + fmt.SECTOR * -(-growth // fmt.SECTOR))
            frames = 2 * (fmt.HEAD_BYTES + len(vitals.encoded) + growth)
            fits = staged.offset >= header + frames + len(body.front) and (staged.offset - len(body.front)) % 8 == 0
            if fits and (not found or self._space.unclaimed_bytes >= (len(found) + 2) * segment_bytes):
                found[id(body)] = staged
        return found

    def consume(self, staged: StagedPayload) -> None:
        """Its file is a segment from here on."""
        del self._staged[staged.content]


def _payload_offset(header_bytes: int, vitals_bytes: int, key: str, node: str, slack: int) -> int:
    """The offset of one transaction's payload in its file: after header, Seal and head of its record, with ``slack``
    bytes to spare. ``header_bytes``: both copies. A record begins at a multiple of 8, so the distance depends on the
    length of its front."""
    front = _prologue_bytes(node, key)
    return fmt.align_to_8(header_bytes + 2 * (fmt.HEAD_BYTES + vitals_bytes) + front + slack) + front % 8


def _prologue_bytes(node: str, key: str) -> int:
    """Length of the front of a Held record of one transaction, with its first stamp (the package's docstring)."""
    name = key.encode()
    return fmt.align_to_8(1 + len(node.encode()) + 8) + 8 + 4 + 16 + 1 + (2 + len(name) + 8 if name else 0)
