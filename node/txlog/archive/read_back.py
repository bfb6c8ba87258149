"""Reads written files back from the target and proves them. Up to the *verified* places masters may trim their log.

A target may answer that it has an object and lose it, or flip a bit later. A file that is not what was written is
written again from the masters, which still have its entries: they keep what is not verified.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final

from txlog.archive.archive_errors import FileDamaged
from txlog.archive.block_codec import ArchivedEntry
from txlog.archive.file_name import FileName, Node
from txlog.archive.format import AFTER_GAP, FileMeta, encode_file
from txlog.archive.page_proof import prove_page
from txlog.archive.path import StreamPaths
from txlog.archive.stream import Stream
from txlog.backup.backup_errors import OtherCluster
from txlog.backup.backup_writer import VERSION
from txlog.client import MasterClient
from txlog.model.errors import LogDiverged, LogNeedsRestore, TxLogError
from txlog.model.view import NO_VIEW
from txlog.telemetry.event_log import EventLog
from txlog.wire.archive_report import PLACES_REPORTED_MAX

STEP_S: Final = 0.25
"""How long one call may read; then new entries are next."""
REPAIR_RETRY_S: Final = 10.0
PAGE_BYTES: Final = 4 << 20
ATTEMPTS_MAX: Final = 1000


class _Repair(Enum):
    """What became of a damaged file. ``LOST``: no master has its entries any more, so waiting is of no use, and masters
    would keep the log for it until their disks are full."""

    DONE = 1
    LATER = 2
    LOST = 3


class ReadBack:
    """:meth:`begin` after each start of the archiver, :meth:`add` for each file that it wrote, :meth:`step` between its
    rounds. ``clock``: monotonic seconds."""

    def __init__(
        self, masters: Sequence[MasterClient], log: EventLog, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._masters = masters
        self._log = log
        self._clock = clock
        self._waiting: deque[FileName] = deque()
        self._unproved: set[Node] = set()
        self._tips: list[Node] = []
        self._retry_at = 0.0

    def begin(
        self, stream: Stream, paths: StreamPaths, gaps: Iterable[Node], known: Iterable[Node], floor: int
    ) -> None:
        """``known``: places that masters know to be verified. ``floor``: the log is trimmed up to this index already,
        so what is below is read by ``txlog archive check`` alone."""
        self._stream, self._gaps = stream, set(gaps)
        self._waiting.clear()
        self._unproved.clear()
        self._tips.clear()
        trusted, queued = set(known), set[FileName]()
        for head in paths.heads:
            nodes = paths.nodes_to(head)
            at = max((i for i, node in enumerate(nodes) if node in trusted or node.index <= floor), default=0)
            path = paths.path_to(head)
            while at < len(path) and path[at].level:
                at += 1  # it was read back before anything that it replaces was deleted
            for name in path[at:]:
                if name not in queued:
                    queued.add(name)
                    self._waiting.append(name)
                    self._unproved.add(name.end)
            self._note_tip(nodes[at], nodes[at])

    def add(self, name: FileName) -> None:
        """A file that was written, or was found to exist already."""
        self._waiting.append(name)
        self._unproved.add(name.end)

    @property
    def verified(self) -> list[Node]:
        """The last verified place of each path, the newest first."""
        return self._tips[::-1]

    def step(self) -> None:
        """Reads some files. Raises the errors of the target, then the same file is next."""
        until = self._clock() + STEP_S
        while self._waiting and self._clock() < until and self._clock() >= self._retry_at:
            name = self._waiting[0]
            try:
                self._stream.read_file(name)
            except (FileDamaged, OtherCluster) as fault:
                self._log.error("ArchiveFileDamaged", file=str(name), error=str(fault))
                repair = self._write_again(name)
                if repair is _Repair.LATER:
                    self._retry_at = self._clock() + REPAIR_RETRY_S
                    return
                if repair is _Repair.LOST:
                    self._log.error("ArchiveFileLost", file=str(name))
                    self._waiting.popleft()  # its end stays unproved
                    continue
                self._log.info("ArchiveFileRepaired", file=str(name))
            self._waiting.popleft()
            self._unproved.discard(name.end)
            self._note_tip(name.start, name.end)

    def _note_tip(self, start: Node, end: Node) -> None:
        if start in self._unproved:
            return
        others = [each for each in self._tips if each not in (start, end)]
        self._tips = [*others[-PLACES_REPORTED_MAX + 1 :], end]

    def _write_again(self, name: FileName) -> _Repair:
        """Under the next attempt that is free, until one can be read."""
        without = 0
        for master in self._masters:
            try:
                data = self._encode(master, name)
            except (LogDiverged, LogNeedsRestore):
                without += 1
                continue
            except TxLogError as error:
                self._log.warning_rate_limited("MasterNotFollowed", master.url, error=f"{error.name}: {error}")
                continue
            if data is None:
                continue
            for attempt in range(0 if name.level else name.attempt + 1, ATTEMPTS_MAX):
                other = name._replace(attempt=attempt, level=0)
                self._stream.create_file(other, data)
                try:
                    self._stream.read_file(other)
                except (FileDamaged, OtherCluster):
                    continue
                return _Repair.DONE
        return _Repair.LOST if without == len(self._masters) else _Repair.LATER

    def _encode(self, master: MasterClient, name: FileName) -> bytes | None:
        """None when the master has not all of these entries yet. :class:`LogDiverged` and :class:`LogNeedsRestore` when
        it never has them again."""
        entries: list[ArchivedEntry] = []
        after, view, settled = name.start, NO_VIEW, 0
        while after.index < name.last:
            page = master.log_page(
                after.index, after.hash, upto=name.last, max_bytes=PAGE_BYTES, keys=True, effect_names=True
            )
            found = prove_page(master.url, page, after, self._stream.id.cluster)
            if not found:
                return None
            entries += found
            after, view, settled = Node(found[-1].index, found[-1].hash), page.view, page.settled
        if after != name.end:
            raise LogDiverged(f"the log of {master.url} has other entries there")
        meta = FileMeta(
            self._stream.id.cluster,
            self._stream.id.data_center,
            view=view,
            history=None,
            software=VERSION,
            written=round(time.time(), 3),
        )
        flags = AFTER_GAP if name.start in self._gaps else 0
        made = encode_file(entries, name.before, meta, settled=min(settled, name.last), writer=0, flags=flags)
        return made.data
