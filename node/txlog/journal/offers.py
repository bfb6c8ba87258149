"""Which payloads are on the disk before their records, and which records take them (why: docs/decisions/0021).

Each is an offer, never a need: what does not fit, is not whole, or is not wanted is written with its record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from txlog.journal import bodies
from txlog.journal import format as fmt
from txlog.journal.buffer import VITALS_GROWTH, Buffer
from txlog.journal.files import Files
from txlog.journal.format import Body
from txlog.journal.index import OriginIndex
from txlog.journal.laid import Laid
from txlog.journal.space import Space
from txlog.model.entry import Run
from txlog.model.hashes import HASH_BYTES
from txlog.model.ids import Origin
from txlog.model.records import Held, Record

FILES_MAX: Final = 8
"""Written or in the writing; the oldest goes when there is another one."""
FRONT_BYTES: Final = 4096
"""Left in front of a payload beside what header and head take when it is begun: they may grow until they are there."""
REST_BYTES: Final = 2 << 20
"""Behind it, for the records that follow."""


class Offers:
    """Those of a journal, by content hash, the oldest first. All of it belongs to the journal's owner; ``on_error`` is
    told on the thread that writes."""

    def __init__(self, files: Files, space: Space, buffer: Buffer, on_error: Callable[[str], None]) -> None:
        self._files = files
        self._space = space
        self._buffer = buffer
        self._on_error = on_error
        self._laid: dict[bytes, Laid] = {}
        self._unwanted: list[Laid] = []

    # -- from the first byte to the end

    def begin(self, content: bytes, size: int, key: str) -> Laid | None:
        """A file for a payload with this content hash, of a transaction with this key. None when there is one, or no
        room."""
        space, buffer = self._space, self._buffer
        if not size or content in self._laid:
            return None
        space.refresh()
        vitals = buffer.vitals
        slack = min(FRONT_BYTES, max(2 * fmt.SECTOR, space.segment_bytes // 8))
        at = _place_for(2 * buffer.header_bytes, len(vitals.encoded), key, vitals.own.node, slack)
        rest = fmt.seal_bytes(len(vitals.encoded)) + min(REST_BYTES, space.segment_bytes // 8)
        laid = Laid(self._files, space.new_name(), content, at, size, rest, self._on_error)
        if not space.may_open_for_work(laid.file_bytes):
            return None
        space.claimed += laid.file_bytes
        self._laid[content] = laid
        if len(self._laid) > FILES_MAX:
            self.drop(next(iter(self._laid.values())))
        return laid

    def end(self, laid: Laid) -> None:
        """It is finished, and may be used; or it is gone, as the disk was full."""
        self._unclaim(laid)
        if laid.gone:
            self._forget(laid)
        self._space.refresh()

    def drop(self, laid: Laid) -> None:
        """It will not be wanted."""
        self._unclaim(laid)
        self._forget(laid)

    def take_unwanted(self) -> list[Laid]:
        """Whose :meth:`Laid.remove` is due."""
        unwanted, self._unwanted = self._unwanted, []
        return unwanted

    def _unclaim(self, laid: Laid) -> None:
        if laid.claimed:
            laid.claimed = False
            self._space.claimed -= laid.file_bytes

    def _forget(self, laid: Laid) -> None:
        if self._laid.get(laid.content) is laid:
            del self._laid[laid.content]
            self._unwanted.append(laid)

    # -- what there is

    @property
    def any(self) -> bool:
        """Whether there is one, written or in the writing."""
        return bool(self._laid)

    @property
    def claimed(self) -> int:
        """Bytes of the disk that those in the writing take, as far as anybody knows."""
        return sum(laid.file_bytes for laid in self._laid.values() if laid.claimed)

    def ready(self, content: bytes, size: int) -> Laid | None:
        """The one of this content, when all of it is durable."""
        laid = self._laid.get(content)
        return laid if laid is not None and laid.done and not laid.gone and laid.size == size else None

    # -- records that take them

    def apart(self, records: Sequence[Record]) -> list[Record]:
        """The same, each payload that is on the disk in a record of its own."""
        found: list[Record] = []
        for record in records:
            if isinstance(record, Held):
                found += self._held_apart(record)
            else:
                found.append(record)
        return found

    def _held_apart(self, record: Held) -> list[Held]:
        run, contents = record.run, record.contents
        cuts = {0, len(run.items)}
        for at, item in enumerate(run.items):
            content = contents[HASH_BYTES * at : HASH_BYTES * (at + 1)]
            if self.ready(content, len(item.payload)) is not None:
                cuts.update((at, at + 1))
        if len(cuts) <= 2:
            return [record]
        edges = sorted(cuts)
        return [
            Held(
                Run(run.node, run.birth, run.first_seq + start, run.items[start:stop]),
                contents[HASH_BYTES * start : HASH_BYTES * stop],
            )
            for start, stop in pairwise(edges)
        ]

    def choose(self, work: Sequence[tuple[OriginIndex, Body]]) -> dict[int, Laid]:
        """By the identity of the body, those whose payload need not be written: it is there, what stands in front of it
        fits however much the records before it change, and what follows finds room in another segment. ``work`` is all
        that is appended: only for ``Held`` is it known how much they change."""
        found: dict[int, Laid] = {}
        segment_bytes = self._space.segment_bytes
        self._space.refresh()
        if not self._space.may_open_for_work(segment_bytes):
            return found
        vitals, now = self._buffer.vitals, self._buffer.header_bytes
        new: set[Origin] = set()
        for held, body in work:
            growth = VITALS_GROWTH * len(new)
            if held.origin not in vitals.held:
                new.add(held.origin)
            laid = self.ready(bodies.only_content(held.data, body.front), len(body.tail)) if body.b == 1 else None
            if laid is None or laid in found.values():
                continue
            header = 2 * (now + fmt.SECTOR * -(-growth // fmt.SECTOR))
            frames = 2 * (fmt.HEAD_BYTES + len(vitals.encoded) + growth)
            fits = laid.at >= header + frames + len(body.front) and (laid.at - len(body.front)) % 8 == 0
            if fits and (not found or self._space.unclaimed >= (len(found) + 2) * segment_bytes):
                found[id(body)] = laid
        return found

    def take(self, laid: Laid) -> None:
        """Its file is a segment from here on."""
        del self._laid[laid.content]


def _place_for(header_bytes: int, vitals_bytes: int, key: str, node: str, slack: int) -> int:
    """Where in its file the payload of one transaction goes: behind header, Seal and head of its record, with ``slack``
    bytes to spare. ``header_bytes``: both copies. A record begins at a multiple of 8, so this is as far from one as
    its front is long."""
    front = _front_bytes(node, key)
    return fmt.padded(header_bytes + 2 * (fmt.HEAD_BYTES + vitals_bytes) + front + slack) + front % 8


def _front_bytes(node: str, key: str) -> int:
    """Of a Held record of one transaction (the package's docstring)."""
    name = key.encode()
    return fmt.padded(1 + len(node.encode()) + 8) + 8 + 4 + 16 + 1 + (2 + len(name) if name else 0)
