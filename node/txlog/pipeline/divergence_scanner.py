"""Compares the workers of this data centre in the background, by one query each, at one index.

Every sample is exact by itself: counts and marker come from one moment of the store. A short pause makes the moments
meet at one index while writes continue. The masters keep the samples, compare and judge (:mod:`txlog.divergence`).
Fingerprints of pieces are compared here. They are an alarm, which samples then confirm
(docs/decisions/0030-fingerprints-are-an-alarm.md).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from typing import Final, NamedTuple, TypeVar

from txlog.client import MasterClient, WorkerStatus
from txlog.config.process_config import PipelineConfig
from txlog.model.errors import TxLogError, Unavailable
from txlog.model.graph_digests import GraphDigests, build_graph_digests
from txlog.pipeline.scan_pace import PACE_POLL_S, DutyCycle, ScanPace, pause, watch_positions
from txlog.workers import ADAPTERS
from txlog.workers.adapter import (
    Adapter,
    MarkerPosition,
    RangeFingerprint,
    SystemGraphs,
    UnexpectedAnswer,
    WorkerResponse,
)
from txlog.workers.digest import Digester
from txlog.workers.http_transport import HttpTransport

log = logging.getLogger(__name__)

MASTER_TIMEOUT_S: Final = 2.0
ALIGN_TIMEOUT_S: Final = 2.0
"""Time for the workers to reach one index; a worker that does not is compared the next time."""
ALIGN_LOCK_TIMEOUT_S: Final = 10.0
"""Two alignments and their queries, with a margin for a busy machine."""
POLL_S: Final = 0.02
PAUSE_RENEW_S: Final = 1.0
"""Interval in which a pause is renewed: masters drop it after five seconds."""
QUERY_START_S: Final = (0.1, 2.0)
"""How long a pause lasts after the queries were sent, at first and at most. A store fixes a query's moment when it
starts the query, which no client can observe. It doubles after a value that was too short. It ends earlier when all
stores have answered."""
ATTEMPTS: Final = 3
"""Attempts for a piece, or for a full read, that reached no common index; then the next item follows."""
COUNT_ATTEMPTS: Final = 2
"""The same for counts. The second attempt pauses stores for longer. Without it, detection within ten seconds would take
fifteen."""
MISALIGNED_WARN_EVERY: Final = 5
"""Consecutive samples without a common index until a warning is logged."""
READ_START_TIMEOUT_S: Final = 4.0
"""Longest pause until all stores have started to be read; a later store is read at another index."""
COUNT_TIMEOUT_S: Final = 120.0
READ_TIMEOUT_S: Final = 120.0
"""Time-out for the next bytes of an answer: a stopped store delays all comparisons for so long."""
PIECE_QUADS: Final = 100_000
"""Quads of one fingerprint request: about 0.6 s of a store's CPU."""
FALSE_ALARM_BACKOFF_S: Final = (60.0, 3600.0)
"""How long fingerprints are suspended after sums did not confirm an alarm, at first and at most; doubled each time."""
PAUSE_S_MAX: Final = 20.0
"""Between two pieces of a slow read: below the time-out after which stores abandon a reader."""


T = TypeVar("T")


class ScannedWorker(NamedTuple):
    """A worker to compare. ``is_diverged``: its divergence is known already."""

    name: str
    url: str
    adapter: Adapter
    is_diverged: bool


def start_divergence_scan(config: PipelineConfig, stop: threading.Event) -> None:
    """Runs in threads of its own until ``stop``: counts often, fingerprints of a piece as often, sums rarely."""
    meeting, pace = threading.Lock(), ScanPace(config)
    periods = {"counts": config.compare_s, "sums": config.compare_sums_s, "pieces": config.compare_pieces_s}
    threading.Thread(target=_watch_loop, args=(config, pace, stop), name="txlog-pace", daemon=True).start()
    for kind, least in periods.items():
        if least > 0:
            arguments = (config, kind, least, stop, meeting, pace)
            threading.Thread(target=_scan_loop, args=arguments, name=f"txlog-{kind}", daemon=True).start()


def _watch_loop(config: PipelineConfig, pace: ScanPace, stop: threading.Event) -> None:
    read = watch_positions(config, pace, _has_fingerprints)
    while True:
        try:
            read()
        except OSError as wrong:
            log.info("no master has the workers' positions: %s", wrong)
        if stop.wait(PACE_POLL_S):
            return


def _has_fingerprints(engine: str) -> bool:
    adapter = ADAPTERS.get(engine)
    return adapter is not None and adapter.fingerprint_range(0, 1) is not None


def _scan_loop(
    config: PipelineConfig, kind: str, least: float, stop: threading.Event, meeting: threading.Lock, pace: ScanPace
) -> None:
    cycles = defaultdict[int, DutyCycle](lambda: DutyCycle(least))
    with DivergenceScanner(config, meeting, pace) as comparing:
        stopped = stop.wait(least)
        while not stopped:
            began, piece = time.monotonic(), comparing.piece_offset
            try:
                if kind == "pieces":
                    busy = comparing.compare_pieces(stop)
                else:
                    busy = comparing.compare_counts() if kind == "counts" else comparing.compare_sums(stop)
            except (TxLogError, OSError) as wrong:
                log.info("workers are not compared by %s this time: %s", kind, wrong)
                busy = time.monotonic() - began
            cycles[piece].record(busy)
            stopped = pause(stop, cycles[piece], pace, kind)


class DivergenceScanner:
    """The workers of one data centre. Not thread-safe. ``meeting``: shared by all scanners of them. A worker has one
    pause for all, so the first to finish would lift it for the others."""

    def __init__(self, config: PipelineConfig, meeting: threading.Lock, pace: ScanPace | None = None) -> None:
        self._config = config
        self._pace = pace or ScanPace(config)
        self._align_lock = meeting
        self._masters = [MasterClient(url, MASTER_TIMEOUT_S, connect_s=MASTER_TIMEOUT_S / 2) for url in config.masters]
        self._query_start_s = QUERY_START_S[0]
        self._misaligned = 0
        self._sums_misaligned = False
        """The last sums did not cover all stores at one index."""
        self._piece_scan = PieceScan()
        self._pass_began = 0.0

    def __enter__(self) -> DivergenceScanner:
        return self

    def __exit__(self, *_: object) -> None:
        for master in self._masters:
            master.close()

    def compare_counts(self) -> float:
        """One sample of each worker, and another at once when they reached no common index. Returns the seconds that
        the slowest store took."""
        busy = 0.0
        for _ in range(COUNT_ATTEMPTS):
            looks, took = self._query_workers(self._comparable_workers(), _count_quads)
            busy += took
            # All at once: when two differ, the masters need the third to judge which is wrong.
            for name, look in looks:
                self._report(name, look)
            positions = len({look.position for _, look in looks})
            self._adapt_query_start(positions)
            if positions < 2:
                break
        return busy

    def _query_workers(
        self, places: Sequence[ScannedWorker], ask: Callable[[ScannedWorker, HttpTransport], T | None]
    ) -> tuple[list[tuple[str, T]], float]:
        """The answers by worker name, queried at one index, and the seconds that the slowest took."""
        if not places:
            return [], 0.0

        def timed(place: ScannedWorker, transport: HttpTransport) -> tuple[T | None, float]:
            began = time.monotonic()
            return ask(place, transport), time.monotonic() - began

        with ExitStack() as closing, ThreadPoolExecutor(len(places)) as pool:
            transports = [
                closing.enter_context(HttpTransport(place.url, COUNT_TIMEOUT_S, connect_s=1.0)) for place in places
            ]
            with self._paused_at_same_index([place.name for place in places]):
                asked = [pool.submit(timed, *pair) for pair in zip(places, transports, strict=True)]
                wait(asked, self._query_start_s)
            busy, found = 0.0, list[tuple[str, T]]()
            for place, answer in zip(places, asked, strict=True):
                try:
                    report, seconds = answer.result()
                except (TxLogError, OSError) as wrong:  # the worker's applier reports it
                    log.info("%s is not looked at: %s", place.name, wrong)
                    continue
                busy = max(busy, seconds)
                if report is not None:
                    found.append((place.name, report))
        return found, busy

    @property
    def piece_offset(self) -> int:
        """Number of quads before the next piece. The higher it is, the more quads a store must skip."""
        return self._piece_scan.next_offset

    def compare_pieces(self, stop: threading.Event) -> float:
        """One sample of the fingerprints of the next piece. Where they differ, all is read at once: sums show which
        graphs differ and which worker is right. Returns the seconds that the slowest store took."""
        if self._piece_scan.is_suspended:
            return 0.0
        first = self.piece_offset
        if first == 0:
            self._pass_began = time.monotonic()

        def ask(place: ScannedWorker, transport: HttpTransport) -> tuple[MarkerPosition, RangeFingerprint] | None:
            request = place.adapter.fingerprint_range(first, PIECE_QUADS)
            assert request is not None
            piece = place.adapter.parse_fingerprint_range(transport.send(request))
            marker = _single_marker(piece.system)
            return None if marker is None else (marker, piece)

        places = [
            place
            for place in self._comparable_workers()
            if not place.is_diverged and place.adapter.fingerprint_range(0, 1) is not None
        ]
        found, busy = self._query_workers(places, ask)
        self._adapt_query_start(len({marker.position for _, (marker, _) in found}))
        differing = self._piece_scan.find_differing(first, found)
        if found and self.piece_offset == 0 and not differing:
            self._pace.on_whole_pass(self._pass_began)
        if differing:
            log.info("the ranges after %d quads differ in %s: all is read", first, ", ".join(differing))
            self._piece_scan.record_confirmation(
                self._confirm_by_sums(stop, {name: marker.fence for name, (marker, _) in found})
            )
        return busy

    def _confirm_by_sums(self, stop: threading.Event, fences: Mapping[str, int]) -> bool:
        """Whether sums show a difference, or a worker was repaired since it had this fence. Sums without a common index
        are repeated once, since they prove nothing."""
        for _ in range(ATTEMPTS):
            self.compare_sums(stop, share=1.0)
            places = self._comparable_workers()
            if any(place.is_diverged for place in places):
                return True
            now = {place.name: _read_marker(place) for place in places if place.name in fences}
            if any(marker is None or marker.fence != fences[name] for name, marker in now.items()):
                return True
            if not self._sums_misaligned:
                return False
            log.info("all was read, but not at one index, so nothing can be compared")
        return False

    def _adapt_query_start(self, positions: int) -> None:
        if positions < 2:
            self._query_start_s, self._misaligned = max(QUERY_START_S[0], self._query_start_s * 0.9), 0
            return
        self._query_start_s, self._misaligned = min(QUERY_START_S[1], self._query_start_s * 2), self._misaligned + 1
        if self._misaligned % MISALIGNED_WARN_EVERY == 0:
            log.warning(
                "the workers met at no index in %d looks; held for %.1f s now", self._misaligned, self._query_start_s
            )

    def compare_sums(self, stop: threading.Event, share: float | None = None) -> float:
        """Reads all of each worker, slowly, as of one moment. ``share``: of the time, instead of the configured one.
        Returns the seconds for which the stores worked."""
        places = self._comparable_workers()
        if not places:
            return 0.0
        names = [place.name for place in places]
        begun = [threading.Event() for _ in places]
        get_share = (lambda: self._pace.share("sums")) if share is None else (lambda: share)
        with ThreadPoolExecutor(len(places)) as pool:
            with self._paused_at_same_index(names) as held_at:
                reads = [
                    pool.submit(_digest_worker, place, get_share, stop, event)
                    for place, event in zip(places, begun, strict=True)
                ]
                until = time.monotonic() + READ_START_TIMEOUT_S
                for event in begun:
                    while not event.wait(PAUSE_RENEW_S) and time.monotonic() < until:
                        if held_at is not None:
                            self._pause(names, held_at)
            looks: list[GraphDigests] = []
            for place, read in zip(places, reads, strict=True):
                try:
                    look = read.result()
                except (TxLogError, OSError) as wrong:
                    log.info("%s is not summed up: %s", place.name, wrong)
                    continue
                if look is not None:
                    looks.append(look)
                    self._report(place.name, look)
            self._sums_misaligned = len(looks) < len(places) or len({look.position for look in looks}) > 1
        return 0.0  # the read itself has kept to its share

    def _comparable_workers(self) -> list[ScannedWorker]:
        found = []
        for worker in self._list_workers():
            engine = worker.engine or "oxigraph"
            adapter = ADAPTERS.get(engine)
            if adapter is None or not adapter.capabilities.digest or not worker.url:
                continue
            if worker.state == "Working" and worker.position is not None and not worker.position.unordered:
                found.append(ScannedWorker(worker.name, worker.url, adapter, worker.divergence is not None))
        return found

    def _list_workers(self) -> list[WorkerStatus]:
        last: TxLogError | None = None
        for master in self._masters:
            try:
                return master.workers()
            except TxLogError as error:
                last = error
        raise Unavailable("NoMaster", f"no master of {self._config.data_center} answers: {last}")

    @contextmanager
    def _paused_at_same_index(self, names: Sequence[str]) -> Iterator[int | None]:
        """Pauses as many workers as possible at one index in the meantime and yields that index; None when no pause is
        needed. A single worker needs no alignment. It waits for another comparison, but not for one whose store has
        stopped answering."""
        mine = self._align_lock.acquire(timeout=ALIGN_LOCK_TIMEOUT_S)
        index: int | None = None
        try:
            if len(names) > 1 and self._needs_pause(names):
                until = time.monotonic() + ALIGN_TIMEOUT_S
                index = max(self._worker_indexes(names).values())
                self._pause(names, index)
                while time.monotonic() < until:
                    at = self._worker_indexes(names)
                    if max(at.values()) > index:  # a worker passed the index before the pause took effect
                        index = max(at.values())
                        self._pause(names, index)
                    elif min(at.values()) == index:
                        break
                    time.sleep(POLL_S)
            yield index
        finally:
            for master in self._masters:
                for name in names:
                    with suppress(TxLogError):
                        master.resume_worker(name, why="look")
            if mine:
                self._align_lock.release()

    def _needs_pause(self, names: Sequence[str]) -> bool:
        """Whether a pause is needed: while the log does not grow, all workers are at its end anyway."""
        ends = set()
        for master in self._masters:
            with suppress(TxLogError):
                ends.add(master.status().stable.index)
        return set(self._worker_indexes(names).values()) != ends

    def _worker_indexes(self, names: Sequence[str]) -> dict[str, int]:
        found = {w.name: w.position.index for w in self._list_workers() if w.name in names and w.position is not None}
        if not found:
            raise Unavailable("NoWorker", "no worker has a position")
        return found

    def _pause(self, names: Sequence[str], index: int) -> None:
        for master in self._masters:
            with suppress(TxLogError):
                for name in names:
                    master.pause_worker(name, index, why="look")

    def _report(self, name: str, look: GraphDigests) -> None:
        for master in self._masters:
            try:
                master.report_digests(name, look)
            except TxLogError as wrong:
                log.info("%s has no report of %s: %s", master.url, name, wrong)


class PieceScan:
    """The next piece, and the fingerprints seen of each piece."""

    def __init__(self) -> None:
        self.next_offset = 0
        self._attempts = 0
        self._fingerprints: dict[tuple[str, int], tuple[MarkerPosition, str]] = {}
        self._backoff_s = FALSE_ALARM_BACKOFF_S[0]
        self._resume_at = 0.0

    @property
    def is_suspended(self) -> bool:
        """Whether pieces are not compared now."""
        return time.monotonic() < self._resume_at

    def find_differing(
        self, first: int, found: Sequence[tuple[str, tuple[MarkerPosition, RangeFingerprint]]]
    ) -> list[str]:
        """The workers in ``found`` that differ from another at the same position, or from their own earlier result at
        the same marker."""
        differing = set()
        at: dict[object, dict[str, str]] = {}
        for name, (marker, piece) in found:
            before = self._fingerprints.get((name, first))
            if before is not None and before[0] == marker and before[1] != piece.fingerprint:
                differing.add(name)
            self._fingerprints[name, first] = marker, piece.fingerprint
            at.setdefault(marker.position, {})[name] = piece.fingerprint
        for there in at.values():
            if len(set(there.values())) > 1:
                differing.update(there)
        self._attempts += 1
        if len(at) < 2 or differing or self._attempts >= ATTEMPTS:
            most = max((piece.quads for _, (_, piece) in found), default=0)
            self.next_offset, self._attempts = (0 if most < PIECE_QUADS else first + PIECE_QUADS), 0
        return sorted(differing)

    def record_confirmation(self, confirmed: bool) -> None:
        """Records whether sums confirmed the difference. If not, a store's order is not as expected: the full read is
        not repeated for it each time."""
        if confirmed:
            self._backoff_s, self._resume_at = FALSE_ALARM_BACKOFF_S[0], 0.0
            return
        self._resume_at = time.monotonic() + self._backoff_s
        log.info("sums do not confirm it: no pieces are looked at for %.0f s", self._backoff_s)
        self._backoff_s = min(FALSE_ALARM_BACKOFF_S[1], self._backoff_s * 2)


def _count_quads(place: ScannedWorker, transport: HttpTransport) -> GraphDigests | None:
    counted = place.adapter.parse_counts(transport.send(place.adapter.counts()))
    marker = _single_marker(counted.system)
    if marker is None:
        return None
    at = marker.position
    table = {name: (quads, None) for name, quads in counted.graphs.items()}
    return build_graph_digests("counts", at.index, at.hash.hex(), marker.fence, table)


def _single_marker(system: SystemGraphs) -> MarkerPosition | None:
    """The worker's marker; None when it holds no prefix of the log."""
    if system.loading or len(system.markers) != 1 or system.markers[0].unordered:
        return None
    return system.markers[0]


def _read_marker(place: ScannedWorker) -> MarkerPosition | None:
    with HttpTransport(place.url, COUNT_TIMEOUT_S, connect_s=1.0) as transport:
        return _single_marker(place.adapter.parse_system_graphs(transport.send(place.adapter.read_system())))


def _digest_worker(
    place: ScannedWorker, share: Callable[[], float], stop: threading.Event, begun: threading.Event
) -> GraphDigests | None:
    """The digest of the whole content, read as of one moment; sets ``begun`` when that moment is fixed, or never will
    be. None when the worker holds no prefix of the log, moved before that, or was repaired meanwhile (its result would
    be stale), or after ``stop``."""
    try:
        marker = _read_marker(place)
        if marker is None:
            return None
        with (
            HttpTransport(place.url, READ_TIMEOUT_S, connect_s=1.0) as transport,
            _open_snapshot(place, transport) as chunks,
        ):
            if _read_marker(place) != marker:
                return None
            begun.set()
            look = _digest_chunks(marker, chunks, share, stop)
        now = _read_marker(place)
        return look if now is not None and now.fence == marker.fence else None
    finally:
        begun.set()


@contextmanager
def _open_snapshot(place: ScannedWorker, transport: HttpTransport) -> Iterator[Iterator[bytes]]:
    with transport.stream(place.adapter.snapshot()) as answer:
        if answer.status != 200:
            body = b"".join(answer.chunks)
            raise UnexpectedAnswer("reading all statements", WorkerResponse(answer.status, answer.headers, body))
        yield iter(place.adapter.clean_snapshot(answer.chunks))


def _digest_chunks(
    marker: MarkerPosition, chunks: Iterator[bytes], share: Callable[[], float], stop: threading.Event
) -> GraphDigests | None:
    made = Digester()
    began = time.monotonic()
    for chunk in chunks:
        made.feed(chunk)
        busy = time.monotonic() - began
        if stop.wait(min(PAUSE_S_MAX, busy / share() - busy)):
            return None
        began = time.monotonic()
    at = marker.position
    table: dict[str, tuple[int, int | None]] = {**made.digest().graphs}
    return build_graph_digests("sums", at.index, at.hash.hex(), marker.fence, table)
