"""Compares the workers of this data centre cell by cell, while writes go on.

What entries of the log touch is read soon. Everything else is read in slow passes. No query reads more than some
100,000 quads, except that it reads one cell. Readings of different positions are compared by what the entries between
them write (:mod:`txlog.divergence.cells`). Workers are paused only for a cell that is written all the time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from txlog.apply.log_source import LogSource, MasterLog
from txlog.client import FailoverClient
from txlog.config.process_config import PipelineConfig
from txlog.divergence.cell_schedule import CellRead, CellSchedule
from txlog.divergence.cells import CellEvidence, CellReading, CellReadings
from txlog.divergence.detector import CELLS_NAMED_MAX
from txlog.model.entry import Position
from txlog.model.errors import TxLogError, Unavailable
from txlog.model.graph_digests import build_cell_digests, build_graph_digests
from txlog.model.store_cell import StoreCell
from txlog.pipeline.cell_lister import CellLister
from txlog.pipeline.cell_reader import READ_TIMEOUT_S, CellAnswer, ReadPace, read_cells
from txlog.pipeline.scan_pace import PACE_POLL_S, ScanPace
from txlog.pipeline.scanned_workers import MASTER_TIMEOUT_S, ScannedWorker, ScannedWorkers
from txlog.pipeline.written_log import WrittenLog
from txlog.wire.comparison_report import ComparisonReport
from txlog.workers.http_transport import HttpTransport

log = logging.getLogger(__name__)

ALIGN_ENTRIES_MAX: Final = 5000
"""Workers that are further apart are not paused: one would have to wait for long."""
COST_SAMPLES: Final = 5
COST_QUADS_MIN: Final = 1000
"""The least quads of a read that says what one costs."""
SUMS_S: Final = 30.0
"""Least time between two reports of the sums of everything, while the log grows by entries that write nothing."""
PASS_PART: Final = 0.25
"""The part of the time that a pass has while more is written than can be read in time."""
REPORT_S: Final = 10.0
"""Between two reports of the progress."""


def run_cell_scan(config: PipelineConfig, meeting: threading.Lock, pace: ScanPace, stop: threading.Event) -> None:
    """Runs until ``stop``."""
    scanner = CellScanner(config, meeting, pace)
    try:
        pause_s = config.compare_s
        while not stop.wait(pause_s):
            try:
                pause_s = scanner.turn(stop)
            except (TxLogError, OSError) as wrong:
                log.info("cells are not compared this time: %s", wrong)
                pause_s = PACE_POLL_S
            except Exception:  # a bug must not end the comparison
                log.exception("comparing cells")
                pause_s = PACE_POLL_S
    finally:
        scanner.close()


class CellScanner:
    """The workers of one data centre whose engines can read cells. Not thread-safe. ``meeting``: as in
    :class:`~txlog.pipeline.scanned_workers.ScannedWorkers`. ``source``: of the log; None: the masters."""

    def __init__(
        self,
        config: PipelineConfig,
        meeting: threading.Lock,
        pace: ScanPace,
        *,
        source: LogSource | None = None,
        stable: Callable[[], Position] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pace = pace
        self._clock = clock
        self._workers = ScannedWorkers(config.data_center, config.masters, meeting)
        self._masters = FailoverClient(config.masters, MASTER_TIMEOUT_S, connect_s=MASTER_TIMEOUT_S / 2)
        self._source = source or MasterLog(self._masters)
        self._stable = stable or (lambda: self._masters.status().stable.position)
        self._share = config.compare_share
        self._log: WrittenLog | None = None
        self._readings: CellReadings | None = None
        self.schedule = CellSchedule(clock())
        self._fences: dict[str, int] = {}
        self._restarts = 0
        self._reads_graphs = False
        self._present: set[str] = set()
        self._listing: CellLister | None = None
        """Of the present pass."""
        self._relisting: CellLister | None = None
        """Of graphs to which entries may have added predicates."""
        self._costs = deque[float](maxlen=COST_SAMPLES)
        self._next_at = self._next_pass_at = self._next_report_at = self._next_sums_at = 0.0
        self._owed_s = 0.0
        """What the present pass has to get before written cells are read again."""
        self._differing: dict[StoreCell, bool] = {}
        """Cells that differ or did, as masters know; and whether they did when they were read last."""
        self._sums: dict[str, tuple[int, str]] = {}

    def close(self) -> None:
        """Close the connections to the masters."""
        self._workers.close()
        self._masters.close()

    def turn(self, stop: threading.Event) -> float:
        """Do one piece of work, if there is one. Returns the seconds until the next."""
        places = [place for place in self._workers.comparable() if place.adapter.capabilities.parts]
        if not places:
            return PACE_POLL_S
        began = self._pace.now()
        readings = self._follow(places)
        now = self._clock()
        is_free = now >= self._next_at
        is_pass_due = now >= max(self._next_at, self._next_pass_at)
        if is_pass_due and self._owed_s > 0:
            self._continue_pass(places, readings, stop)
        elif is_free and (read := self.schedule.next_due(now)) is not None:
            self._owed_s += self._read(read, places, readings, stop) * PASS_PART / (1 - PASS_PART)
        elif is_free and self._continue_relisting(places, now):
            pass
        elif is_pass_due:
            self._continue_pass(places, readings, stop)
        if self._relisting is None:
            if self.schedule.is_settled:
                self._pace.on_all_compared(began)
            if self.schedule.is_up_to_date and not any(self._differing.values()):
                self._report_sums(places, readings)
        self._report_progress(places)
        return min(PACE_POLL_S, max(0.0, max(self._next_at, self._next_pass_at) - self._clock()))

    # What is known

    def _follow(self, places: Sequence[ScannedWorker]) -> CellReadings:
        """Learn what entries wrote, and which workers there are."""
        if self._log is None or self._readings is None:
            self._log = WrittenLog(self._source, self._stable)
            self._readings = CellReadings(self._log.written)
        self._log.follow()
        readings, now, names = self._readings, self._clock(), {place.name for place in places}
        if readings.written.restarts != self._restarts:
            self._restarts = readings.written.restarts
            self._begin_again()
        self._note_changed(places, readings)
        self._adopt_findings(places, now)

        def is_current(cell: StoreCell) -> bool:
            return readings.is_current(cell, names)

        if names - self._present:  # it may have executed what was compared without it
            self.schedule.touch_all(now, is_current)
        self._present = names
        self.schedule.touch(readings.written.pop_touched(), now, is_current)
        self.schedule.extend(readings.written.pop_extended(), now)
        if self.schedule.reads_graphs and not self._reads_graphs:
            self._reads_graphs = True
            readings.forget_predicates()
            self._differing = {self.schedule.cell_of(cell): differs for cell, differs in self._differing.items()}
        return readings

    def _begin_again(self) -> None:
        self.schedule.restart(self._clock())
        self._listing = None

    def _note_changed(self, places: Sequence[ScannedWorker], readings: CellReadings) -> None:
        """A worker that is new, or was repaired or rebuilt, has to be read whole."""
        changed = [place for place in places if self._fences.get(place.name, -1) < place.fence]
        if not changed:
            return
        self._fences |= {place.name: place.fence for place in changed}
        readings.keep_fences(self._fences)
        self._begin_again()

    def _adopt_findings(self, places: Sequence[ScannedWorker], now: float) -> None:
        """What the masters know to differ is read soon, also after a repair or a restart of this process: only a newer
        reading ends a finding."""
        for place in places:
            known = place.status.divergence
            for cell in map(self.schedule.cell_of, known.cells if known is not None else ()):
                if cell not in self._differing:
                    self._differing[cell] = True
                    self.schedule.suspect(cell, now)

    # Reading

    def _read(
        self, read: CellRead, places: Sequence[ScannedWorker], readings: CellReadings, stop: threading.Event
    ) -> float:
        """Returns for how many seconds the slowest store worked that are not yet paid by pauses."""
        self.schedule.on_begin(read)
        try:
            answers = self._query(read, places, stop)
            return self._compare(read, answers, places, readings)
        except (TxLogError, OSError):
            self.schedule.on_failed(read, self._clock())
            self._next_at = self._clock() + PACE_POLL_S
            raise

    def _compare(
        self,
        read: CellRead,
        answers: Mapping[str, CellAnswer],
        places: Sequence[ScannedWorker],
        readings: CellReadings,
    ) -> float:
        now = self._clock()
        if not answers:
            raise Unavailable("NoStore", f"no store answers, or none is at a position of the log: {len(places)} asked")
        assert self._log is not None
        self._log.follow(max(each.log_index for answer in answers.values() for each in answer.readings.values()))
        for cell in read.cells:
            self._judge(cell, {name: answer.readings[cell] for name, answer in answers.items()}, places, readings, now)
        slowest = max(answers.values(), key=lambda answer: answer.busy_s)
        quads = sum(each.quads for each in slowest.readings.values())
        if quads >= COST_QUADS_MIN:
            self._costs.append(slowest.busy_s / quads)
        return self._pay(slowest.unpaid_s, quads, self._share)

    def _judge(
        self,
        cell: StoreCell,
        found: dict[str, CellReading],
        places: Sequence[ScannedWorker],
        readings: CellReadings,
        now: float,
    ) -> None:
        verdict = readings.judge(cell, found)
        # A finding ends when the masters have seen that the workers are equal again.
        was_found = cell in self._differing and any(place.status.divergence is not None for place in places)
        if verdict.differs and cell not in self._differing:
            log.warning("workers differ in %s of %s", cell.predicate or "the quads", cell.graph or "the default graph")
        if verdict.differs or cell in self._differing:
            self._differing[cell] = verdict.differs
            self._report_evidence(cell, verdict.evidence)
            self._next_sums_at = now  # a finding of another data centre ends by newer sums
        if not verdict.differs and not was_found:
            self._differing.pop(cell, None)
        quads = max(each.quads for each in found.values())
        is_suspect = verdict.differs or was_found
        if not self.schedule.on_read(cell, now, quads, is_compared=verdict.is_compared, is_suspect=is_suspect):
            readings.forget(cell)

    def _query(self, read: CellRead, places: Sequence[ScannedWorker], stop: threading.Event) -> dict[str, CellAnswer]:
        """The answers by worker. Aligned: of one index, as far as the workers reach it in time."""
        pace = ReadPace(lambda: self._share if read.is_urgent else self._pace.share("cells"), stop)
        begun = [threading.Event() for _ in places]

        def ask(place: ScannedWorker, event: threading.Event) -> CellAnswer | None:
            try:
                with HttpTransport(place.url, READ_TIMEOUT_S, connect_s=1.0) as transport:
                    return read_cells(place.adapter, transport, read.cells, pace, event.set)
            finally:
                event.set()

        with ThreadPoolExecutor(len(places)) as pool:
            indexes = [place.log_index for place in places]
            if read.is_aligned and max(indexes) - min(indexes) <= ALIGN_ENTRIES_MAX:
                names = [place.name for place in places]
                with self._workers.paused_at_same_index(names) as index:
                    asked = [pool.submit(ask, *pair) for pair in zip(places, begun, strict=True)]
                    self._workers.keep_paused(names, index, begun)
            else:
                asked = [pool.submit(ask, *pair) for pair in zip(places, begun, strict=True)]
            found = {}
            for place, answer in zip(places, asked, strict=True):
                try:
                    if (cells := answer.result()) is not None:
                        found[place.name] = cells
                except (TxLogError, OSError) as wrong:  # the worker's applier reports it
                    log.info("%s is not compared: %s", place.name, wrong)
        return found

    def _pay(self, busy_s: float, quads: int, share: float) -> float:
        """Pause after a read. Other load on the machine lengthens a read, so its cost is that of the cheapest one of
        the last few."""
        if self._costs and quads >= COST_QUADS_MIN:
            busy_s = min(busy_s, min(self._costs) * quads)
        self._next_at = self._clock() + busy_s / share - busy_s
        return busy_s

    # Passes

    def _continue_pass(self, places: Sequence[ScannedWorker], readings: CellReadings, stop: threading.Event) -> None:
        if not self.schedule.is_listed:
            self._listing = self._listing or CellLister()
            busy_s = self._pay(self._listing.step(places), 0, self._share)
            if self._listing.is_done and not self._listing.begun:
                self._listing, self._next_at = None, self._clock() + PACE_POLL_S  # no store answers
            elif self._listing.is_done:
                found = self._listing.cells()
                self.schedule.add_listed(found)
                self.schedule.end_listing()
                readings.on_listed(self._listing.begun, map(self.schedule.cell_of, found))
                self._listing = None
        else:
            read = self.schedule.next_in_pass()
            if read is None:
                self._owed_s = 0.0
                self.schedule.end_pass(self._clock())
                return
            busy_s = self._read(read, places, readings, stop)
        share = self._pace.share("cells")
        self._owed_s = max(0.0, self._owed_s - busy_s)
        self._next_pass_at = self._clock() + busy_s / share - busy_s

    def _continue_relisting(self, places: Sequence[ScannedWorker], now: float) -> bool:
        """List graphs to which an entry may have added any predicate. Returns whether there was something to do."""
        if self._relisting is None:
            graphs = self.schedule.pop_unlisted(now)
            if not graphs:
                return False
            self._relisting = CellLister(None if None in graphs else [name for name in graphs if name is not None])
        self._pay(self._relisting.step(places), 0, self._share)
        if self._relisting.is_done:
            found = self._relisting.cells()
            self.schedule.add_listed(found)
            self.schedule.touch_unread(found, now)
            self._relisting = None
        return True

    # Reports

    def _report_evidence(self, cell: StoreCell, evidence: Sequence[CellEvidence]) -> None:
        named = list(self._differing)[:CELLS_NAMED_MAX]
        if cell not in named:
            return
        more = len(self._differing) > CELLS_NAMED_MAX
        for worker, _, reading in evidence:
            at = reading.hash.hex()
            self._workers.report_digests(
                worker,
                build_cell_digests(cell, reading.log_index, at, reading.fence, reading.quads, reading.total, more=more),
            )

    def _report_sums(self, places: Sequence[ScannedWorker], readings: CellReadings) -> None:
        """What the cells add up to, at an index that all workers have reached: other data centres compare it."""
        index = min(place.log_index for place in places)
        digest = readings.written.hash_at(index)
        if digest is None or self._clock() < self._next_sums_at:
            return
        for place in places:
            sums = readings.sums_at(index, place.name)
            if sums is None:
                continue
            table: dict[str, tuple[int, int | None]] = {**sums}
            look = build_graph_digests("sums", index, digest.hex(), place.fence, table)
            if self._sums.get(place.name) != (index, look.fingerprint):
                self._sums[place.name] = index, look.fingerprint
                self._next_sums_at = self._clock() + SUMS_S
                self._workers.report_digests(place.name, look)

    def _report_progress(self, places: Sequence[ScannedWorker]) -> None:
        now = self._clock()
        if now < self._next_report_at:
            return
        self._next_report_at = now + REPORT_S
        done = self.schedule.progress(now)
        share = self._pace.share("cells")
        rest_s = min(self._costs) * done.quads_left / share if self._costs else None
        known = rest_s is not None and self.schedule.is_listed
        report = ComparisonReport(
            cells=done.cells,
            quads=done.quads,
            waiting=done.touched,
            oldest_cell_s=round(done.oldest_cell_s, 1),
            pass_s=None if done.pass_s is None else round(done.pass_s, 1),
            estimate_s=round(done.elapsed_s + (rest_s or 0.0), 1) if known else None,
        )
        for master in self._workers.masters:
            for place in places:
                try:
                    master.report_comparison(place.name, report)
                except TxLogError as wrong:  # also a master of an earlier version, which has no such report
                    log.debug("%s has no report of %s: %s", master.url, place.name, wrong)
