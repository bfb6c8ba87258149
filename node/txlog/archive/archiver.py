"""Copies the stable entries of the log to a stream, from the masters of one data centre.

It keeps nothing of its own: what is archived is what the target lists, and what follows is what the masters answer. One
object is written at a time, in order, so a path has no holes. Each step can be repeated after a kill at any point.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from txlog.archive.archive_errors import FileDamaged, StreamTaken
from txlog.archive.block_codec import ArchivedEntry
from txlog.archive.branch_line import BranchLine, PutTimes
from txlog.archive.file_name import FileName, Node
from txlog.archive.format import AFTER_GAP, EncodedFile, FileMeta, encode_file
from txlog.archive.page_proof import prove_page
from txlog.archive.path import StreamPaths, find_paths
from txlog.archive.read_back import ReadBack
from txlog.archive.stream import Stream, StreamId
from txlog.archive.stream_position import (
    find_first_place,
    find_position,
    read_hash,
    read_stable,
    verified_places,
)
from txlog.backup.backup_errors import OtherCluster, TargetDenied, TargetFull, TargetUnreachable
from txlog.backup.backup_writer import VERSION
from txlog.backup.chain_check import read_cluster_id
from txlog.backup.target import BackupTarget
from txlog.client import MasterClient
from txlog.model.errors import LogAhead, LogDiverged, LogNeedsRestore, TxLogError
from txlog.model.view import NO_VIEW, Number
from txlog.telemetry.event_log import EventLog

PAGE_BYTES: Final = 4 << 20
PAGES_PER_ROUND: Final = 8
"""Pages of one master before the others are asked again."""
PROBE_OTHERS_S: Final = 1.0
"""Between two questions to each further master whether it is on the same branch."""
RETRY_MASTER_S: Final = 5.0
"""Between two questions to a master that failed, while another one has the entries: each may take seconds."""
REPORT_S: Final = 5.0
GAP_PATIENCE_S: Final = 60.0
LIST_AGAIN_S: Final = 60.0
"""Between two listings of the stream for masters whose logs leave the known paths."""
PLACE_SURE_S: Final = 600.0
"""So long the end of a known file is where another one may begin: compaction deletes what it replaced an hour later."""
TARGET_ERRORS: Final = (TargetUnreachable, TargetFull, TargetDenied)
TARGET_RETRY_S: Final = 1.0
ATTEMPTS_MAX: Final = 1000


class ArchiverSettings(NamedTuple):
    """As in :class:`~txlog.config.process_config.ArchiverConfig`."""

    data_center: str
    max_delay_s: float
    file_bytes: int
    probe_s: float = 60.0


class _WaitingFile(NamedTuple):
    """A file that is on its way to the target. ``entry_count``: how many waiting entries of the line it holds."""

    line: BranchLine
    entry_count: int
    file: EncodedFile


class _Round:
    """``fed``: lines whose entries were read in this round. ``followed``: these, and lines that some master has not
    reached yet. ``beyond``: masters whose log begins after every archived place."""

    def __init__(self) -> None:
        self.fed: list[BranchLine] = []
        self.followed: list[BranchLine] = []
        self.beyond: list[MasterClient] = []
        self.is_more = False


class Archiver:
    """:meth:`start`, then :meth:`run_round` again and again, then :meth:`flush`. Every call may raise the errors of the
    target; the next one then goes on. ``clock``: monotonic seconds."""

    def __init__(
        self,
        target: BackupTarget,
        masters: Sequence[MasterClient],
        settings: ArchiverSettings,
        log: EventLog,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._target = target
        self._masters = masters
        self._settings = settings
        self._log = log
        self._clock = clock
        self._writer = secrets.randbits(64)
        self._put_times = PutTimes()
        self._lines: list[BranchLine] = []
        self._waiting: _WaitingFile | None = None
        self._damaged: set[FileName] = set()
        self._names: set[FileName] = set()
        self._starts: set[Node] = set()
        self._view_written: Number = NO_VIEW
        self._asked_at: dict[str, float] = {}
        self._line_of: dict[str, BranchLine] = {}
        self._failing: set[str] = set()
        self._fault = ""
        self._target_checked_at = 0.0
        self._beyond_since: float | None = None
        self._reported_at = -REPORT_S
        self._listed_at = 0.0
        self.reported: Node | None = None
        """The last place that is on the target and on a path from the start of the stream, or from a gap."""
        self.files_written = self.bytes_written = 0
        self.gaps = self.losses = 0
        """Those that the stream has."""
        self.on_file: Callable[[FileName], None] = lambda _: None
        """Called for each file that is on the target."""

    # Start

    def start(self) -> None:
        """Finds the cluster, the stream and the last archived places. Raises what the masters and the target raise;
        :class:`StreamTaken` and :class:`~txlog.archive.archive_errors.NoConditionalPut` need a person."""
        cluster = bytes.fromhex(read_cluster_id(self._masters))
        self.stream = Stream(self._target, StreamId(cluster, self._settings.data_center))
        start = self.stream.read_start()
        if start is None:
            self.stream.create(find_first_place(self._masters, cluster, self._log))
            start = self.stream.read_start()
            if start is None:
                raise StreamTaken(f"{self.stream.location}: stream.json is gone; look who deletes objects there")
        else:
            self.stream.check_target()
        self._target_checked_at = self._clock()
        self.losses = len(self.stream.read_losses())
        self._list_files()
        self._damaged.clear()
        self._lines.clear()
        self._line_of.clear()
        self._waiting = None
        paths = self._prove_heads()
        self.reported = paths.heads[0]
        counts = {"heads": len(paths.heads), "unreached": len(paths.unreached)}
        self._log.info("ArchiverStarted", stream=self.stream.location, archived=str(self.reported), **counts)

    @property
    def places(self) -> list[Node]:
        """The archived end of each branch that is followed, the newest first."""
        found = dict.fromkeys([*([self.reported] if self.reported else []), *(line.base for line in self._lines)])
        return sorted(found, reverse=True)

    @property
    def fault(self) -> str:
        """Why no master can be followed; empty while one can."""
        return self._fault if len(self._failing) == len(self._masters) else ""

    def prepare_read_back(self, read_back: ReadBack) -> None:
        """After :meth:`start`: what of the stream is still to be read back."""
        known, floors = [], []
        for master in self._masters:
            try:
                status = master.status()
            except TxLogError:
                continue
            floors.append(int((status.trim or {}).get("keptFrom", 0)))
            known += verified_places(status.archive, self._settings.data_center)
        read_back.begin(self.stream, self._paths(), self._starts, known, min(floors, default=0))
        self.on_file = read_back.add

    def _prove_heads(self) -> StreamPaths:
        """The paths, after the last file of each was read and proved: an object may have been cut off or damaged."""
        proved: set[FileName] = set()
        while True:
            paths = self._paths()
            last = [paths.reached[head] for head in paths.heads]
            unproved = [name for name in last if name is not None and name not in proved]
            if not unproved:
                return paths
            for name in unproved:
                if self._is_sound(name):
                    proved.add(name)

    def _paths(self) -> StreamPaths:
        return find_paths(self._names, self._starts, self._damaged)

    def _is_sound(self, name: FileName) -> bool:
        try:
            self.stream.read_file(name)
        except (FileDamaged, OtherCluster) as fault:
            self._damaged.add(name)
            self._log.error("ArchiveFileDamaged", file=str(name), error=str(fault))
            return False
        return True

    def files_changed(self, written: Iterable[FileName], deleted: Iterable[FileName]) -> None:
        """Files of the stream were compacted, or are below its recovery window now."""
        self._names |= set(written)
        self._names -= set(deleted)
        starts = self.stream.read_starts()
        if starts is not None:
            self._starts = set(starts.all)

    # Rounds

    def run_round(self) -> float:
        """Reads what is new, writes what is due. Returns the seconds after which the next round is due."""
        this = _Round()
        for master in sorted(self._masters, key=lambda each: each.url in self._failing):
            now = self._clock()
            if self._may_wait(master, this, now):
                continue
            self._asked_at[master.url] = now
            try:
                self._follow(master, this)
            except TARGET_ERRORS:
                raise
            except TxLogError as error:
                self._failing.add(master.url)
                self._fault = f"{error.name}: {error}"
                self._log.warning_rate_limited("MasterNotFollowed", master.url, error=self._fault)
            else:
                self._failing.discard(master.url)
        self._consider_gap(this)
        self._write_due(False)
        # A line that no master follows any more is gone once it is written.
        self._lines = [line for line in self._lines if line.entries or line in self._line_of.values()]
        self._check_target()
        self._report()
        return 0.0 if this.is_more else self._poll_s

    def _may_wait(self, master: MasterClient, this: _Round, now: float) -> bool:
        """Whether this master need not be asked in this round."""
        spent_s = now - self._asked_at.get(master.url, -RETRY_MASTER_S)
        if master.url in self._failing:
            return bool(this.fed) and spent_s < RETRY_MASTER_S
        return self._line_of.get(master.url) in this.fed and spent_s < PROBE_OTHERS_S

    @property
    def _poll_s(self) -> float:
        return min(self._settings.max_delay_s / 4, 1.0)

    def flush(self) -> None:
        """Writes everything that was read."""
        self._write_due(True)
        self._report(force=True)

    def _follow(self, master: MasterClient, this: _Round) -> None:
        """Finds the line of this master's log and reads what follows on it. A line that another master has fed in this
        round is only compared."""
        for line in self._lines:
            try:
                self._read_pages(master, line, this)
            except LogAhead:
                if not self._is_behind(master, line):
                    continue
            except (LogDiverged, LogNeedsRestore):
                continue
            self._assign(master, line, this)
            return
        found = self._open_line(master)
        if found is None:
            this.beyond.append(master)
            return
        same = next((line for line in self._lines if line.end == found.end), None)
        if same is None:
            self._lines.append(found)
            this.is_more = True
        self._assign(master, same or found, this)

    def _assign(self, master: MasterClient, line: BranchLine, this: _Round) -> None:
        self._line_of[master.url] = line
        this.followed.append(line)

    def _is_behind(self, master: MasterClient, line: BranchLine) -> bool:
        """Whether the log of a master that has not reached the end of a line is a part of it. The log of another branch
        may be the shorter one."""
        stable = read_stable(master)
        if stable.index > line.end.index:
            return False  # it has moved on meanwhile: the next round compares it
        expected = line.hash_at(stable.index)
        if expected is None:
            expected = self._hash_at(line.base, stable.index)
        return expected is None or expected == stable.hash

    def _hash_at(self, node: Node, index: int) -> bytes | None:
        """The chain hash at an index of the path to a reached place, from the file; None outside of the path."""
        for name in self._paths().path_to(node):
            if name.first <= index <= name.last:
                return self.stream.read_file(name).entries[index - name.first].hash
            if name.first - 1 == index:
                return name.before
        return None

    def _read_pages(self, master: MasterClient, line: BranchLine, this: _Round) -> None:
        is_fed = line in this.fed
        for _ in range(PAGES_PER_ROUND):
            if not is_fed and line.is_full(self._settings.file_bytes):
                this.is_more = True
                return
            after = line.end
            upto = after.index if is_fed else None
            page = master.log_page(
                after.index, after.hash, upto=upto, max_bytes=PAGE_BYTES, keys=True, effect_names=True
            )
            entries = prove_page(master.url, page, after, self.stream.id.cluster)
            if is_fed:
                return
            line.add(entries, page.view, page.settled, self._clock())
            if not entries or entries[-1].index >= page.stable_index:
                this.fed.append(line)
                return
        this.fed.append(line)
        this.is_more = True

    def _open_line(self, master: MasterClient) -> BranchLine | None:
        """A line for a log that none of the lines continues; None when it begins after every archived place."""
        self._list_again()
        paths = self._prove_heads()
        found = find_position(master, paths, self._hash_at)
        if found.node is None:
            return None
        if found.left is not None:
            self._check_loss(master, paths, found.node, found.left)
            self._log.info("ArchiveBranched", master=master.url, common=str(found.node), head=str(found.left))
        line = BranchLine(found.node)
        line.sure_at = self._listed_at
        return line

    def _list_again(self) -> None:
        """Another process may have compacted files: their names lead nowhere now."""
        now = self._clock()
        if now - self._listed_at >= LIST_AGAIN_S:
            self._list_files()

    def _list_files(self) -> None:
        starts = self.stream.read_starts()
        if starts is not None:
            self.gaps = len(starts.gaps)
            self._starts = set(starts.all)
        self._names = {each.name for each in self.stream.list_files()}
        self._listed_at = self._clock()

    def _consider_gap(self, this: _Round) -> None:
        """A gap is recorded when no master has what follows the archived places: at once when all masters answered,
        otherwise after a while, since one that is away may have it."""
        if this.followed or not this.beyond:
            self._beyond_since = None
            return
        now = self._clock()
        if self._beyond_since is None:
            self._beyond_since = now
        if self._failing and now - self._beyond_since < GAP_PATIENCE_S:
            return
        paths = self._paths()
        begins = []
        for master in this.beyond:
            index = int((master.status().trim or {}).get("keptFrom", 0))
            begins.append((Node(index, read_hash(master, index)), master))
        begin, master = min(begins, key=lambda each: each[0])
        if begin in paths.reached:  # the log was trimmed while it was asked
            return
        self.stream.record_gap(paths.heads[0], begin, master.url)
        self._starts.add(begin)
        self.gaps += 1
        line = BranchLine(begin, after_gap=True)
        line.sure_at = now
        self._lines.append(line)
        self._assign(master, line, this)
        self._log.error("ArchiveGap", master=master.url, after=str(paths.heads[0]), begin=str(begin))

    def _check_loss(self, master: MasterClient, paths: StreamPaths, common: Node, head: Node) -> None:
        """A log that leaves a path below what was final there is no rejoin: the masters lost entries."""
        name = paths.reached[head]
        if name is None:
            return
        settled = self.stream.read_header(name).settled
        if common.index >= settled:
            return
        self.stream.record_lost(head, common, settled, master.url)
        self.losses = len(self.stream.read_losses())
        self._log.error("ArchiveAhead", master=master.url, common=str(common), head=str(head), settled=settled)

    # Writing

    def _write_due(self, everything: bool) -> None:
        if self._waiting is not None:
            self._write(self._waiting)
        for line in list(self._lines):
            while line in self._lines and line.entries and (everything or self._is_due(line)):
                self._write(self._encode(line))

    def _is_due(self, line: BranchLine) -> bool:
        settings = self._settings
        spent_s = self._put_times.p99 + self._poll_s  # the next round comes only then
        return line.is_due(self._clock(), settings.max_delay_s, spent_s, settings.file_bytes)

    def _encode(self, line: BranchLine) -> _WaitingFile:
        entries: list[ArchivedEntry] = line.take_file(self._settings.file_bytes)
        history = self._read_history(line.view)
        meta = FileMeta(
            self.stream.id.cluster,
            self._settings.data_center,
            view=line.view,
            history=history,
            software=VERSION,
            written=round(time.time(), 3),
        )
        flags = AFTER_GAP if line.after_gap else 0
        made = encode_file(entries, line.base.hash, meta, settled=line.settled, writer=self._writer, flags=flags)
        return _WaitingFile(line, len(entries), made)

    def _read_history(self, view: Number) -> list[str] | None:
        """The history of the view, once for each view; None when no master has this view any more."""
        if view == self._view_written:
            return None
        for master in self._masters:
            try:
                found = master.branch()["view"]
            except TxLogError:
                continue
            if tuple(found["order"]) == view:
                self._view_written = view
                return list(found["history"])
        return None

    def _write(self, waiting: _WaitingFile) -> None:
        """Until the target answers, this file is the next one, with these bytes. Nothing is written or reported that no
        path leads to."""
        self._waiting = waiting
        name, line = waiting.file.name, waiting.line
        if not self._is_on_path(line):
            self._leave(line)
            return
        while True:
            while name in self._damaged:
                name = name._replace(attempt=name.attempt + 1)
            if name.attempt > ATTEMPTS_MAX:
                raise StreamTaken(f"{self.stream.location}: every object that is created there is damaged at once")
            began = self._clock()
            if self.stream.create_file(name, waiting.file.data):
                self._put_times.add(self._clock() - began)
                sure_at = began
                self.files_written += 1
                self.bytes_written += len(waiting.file.data)
                break
            # The answer to an earlier try was lost, or another archiver wrote it. It counts once it is proved.
            if self._is_sound(name):
                sure_at = line.sure_at  # how old that object is, is not known
                break
        self._names.add(name)
        if not self._is_on_path(line):  # this process was stopped meanwhile
            self._leave(line)
            return
        line.archived(waiting.entry_count, self._clock())
        line.sure_at = max(sure_at, line.sure_at)
        self._waiting = None
        self.reported = name.end
        self.on_file(name)

    def _is_on_path(self, line: BranchLine) -> bool:
        """Whether a file may begin at the end of this line's files. While this archiver was stopped, another one may
        have gone on, and the files that lead here may be in a compacted one."""
        if self._clock() - line.sure_at >= PLACE_SURE_S:
            self._list_files()
            if line.base not in self._paths().reached:
                return False
            line.sure_at = self._listed_at
        return True

    def _leave(self, line: BranchLine) -> None:
        """The masters' logs are looked for on the paths again."""
        self._log.warning("ArchiverOvertaken", place=str(line.base), waiting=len(line.entries))
        self._lines.remove(line)
        self._line_of = {url: each for url, each in self._line_of.items() if each is not line}
        self._waiting = None

    # Watching

    def _check_target(self) -> None:
        """An idle archiver learns also that its target is gone."""
        now = self._clock()
        if now - self._target_checked_at >= self._settings.probe_s:
            self.stream.check_target()
            self._target_checked_at = now

    def _report(self, *, force: bool = False) -> None:
        now = self._clock()
        if force or now - self._reported_at >= REPORT_S:
            self._reported_at = now
            waiting = sum(len(line.entries) for line in self._lines)
            self._log.info("Archived", position=str(self.reported), waiting=waiting, files=self.files_written)
