"""Compares the workers of this data centre in the background: the threads, and the comparison of whole stores.

Stores are compared by cells (:mod:`txlog.pipeline.cell_scanner`). Beside that, small stores are counted by one query
each, at one index: so what is missing is found within seconds. Stores whose engine cannot read cells are read whole,
rarely. Every sample is exact by itself: counts and marker come from one moment of the store. A short pause makes the
moments meet at one index while writes continue. The masters keep the samples, compare and judge
(:mod:`txlog.divergence`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import Final, TypeVar

from txlog.backup.pinned_snapshot import read_system_graphs
from txlog.config.process_config import PipelineConfig
from txlog.model.errors import TxLogError
from txlog.model.graph_digests import GraphDigests, build_graph_digests
from txlog.pipeline.cell_reader import PAUSE_S_MAX, READ_TIMEOUT_S, single_marker
from txlog.pipeline.cell_scanner import run_cell_scan
from txlog.pipeline.scan_pace import PACE_POLL_S, DutyCycle, ScanPace, pause, watch_positions
from txlog.pipeline.scanned_workers import ScannedWorker, ScannedWorkers
from txlog.workers import ADAPTERS
from txlog.workers.adapter import MarkerPosition
from txlog.workers.digest import Digester, stream_statements
from txlog.workers.http_transport import HttpTransport

log = logging.getLogger(__name__)

QUERY_START_S: Final = (0.1, 2.0)
"""How long a pause lasts after the queries were sent, at first and at most. A store fixes a query's moment when it
starts the query, which no client can observe. It doubles after a value that was too short. It ends earlier when all
stores have answered."""
COUNT_ATTEMPTS: Final = 2
"""Attempts for counts that reached no common index. The second attempt pauses stores for longer. Without it, detection
within ten seconds would take fifteen."""
MISALIGNED_WARN_EVERY: Final = 5
"""Consecutive samples without a common index until a warning is logged."""
COUNT_TIMEOUT_S: Final = 120.0
COUNT_QUADS_MAX: Final = 2_000_000
"""A larger store is not counted whole: about 0.8 s of a store. Its cells are compared alone."""
SIZE_S: Final = 600.0
"""Between two looks whether a large store has become small enough."""

T = TypeVar("T")


def start_divergence_scan(config: PipelineConfig, stop: threading.Event) -> None:
    """Runs in threads of its own until ``stop``: cells all the time, counts of small stores often, and sums, rarely, of
    stores whose engine cannot read cells."""
    meeting, pace = threading.Lock(), ScanPace(config)
    threading.Thread(target=_watch_loop, args=(config, pace, stop), name="txlog-pace", daemon=True).start()
    if config.compare_s > 0:
        cells = (config, meeting, pace, stop)
        threading.Thread(target=run_cell_scan, args=cells, name="txlog-cells", daemon=True).start()
    for kind, least in {"counts": config.compare_s, "sums": config.compare_sums_s}.items():
        if least > 0:
            arguments = (config, kind, least, stop, meeting, pace)
            threading.Thread(target=_scan_loop, args=arguments, name=f"txlog-{kind}", daemon=True).start()


def _watch_loop(config: PipelineConfig, pace: ScanPace, stop: threading.Event) -> None:
    read = watch_positions(config, pace, _has_cells)
    while True:
        try:
            read()
        except OSError as wrong:
            log.info("no master has the workers' positions: %s", wrong)
        except Exception:  # a bug must not end it: the stores would count as resting
            log.exception("reading the workers' positions")
        if stop.wait(PACE_POLL_S):
            return


def _has_cells(engine: str) -> bool:
    adapter = ADAPTERS.get(engine)
    return adapter is not None and adapter.capabilities.parts


def _scan_loop(
    config: PipelineConfig, kind: str, least: float, stop: threading.Event, meeting: threading.Lock, pace: ScanPace
) -> None:
    cycle = DutyCycle(least)
    with DivergenceScanner(config, meeting, pace) as comparing:
        stopped = stop.wait(least)
        while not stopped:
            began = time.monotonic()
            try:
                busy = comparing.compare_counts() if kind == "counts" else comparing.compare_sums(stop)
            except (TxLogError, OSError) as wrong:
                log.info("workers are not compared by %s this time: %s", kind, wrong)
                busy = time.monotonic() - began
            except Exception:  # a bug must not end the comparison
                log.exception("comparing by %s", kind)
                busy = time.monotonic() - began
            cycle.record(busy)
            stopped = pause(stop, cycle, pace, kind)


class DivergenceScanner:
    """The workers of one data centre. Not thread-safe. ``meeting``: as in
    :class:`~txlog.pipeline.scanned_workers.ScannedWorkers`."""

    def __init__(self, config: PipelineConfig, meeting: threading.Lock, pace: ScanPace | None = None) -> None:
        self._pace = pace or ScanPace(config)
        self._workers = ScannedWorkers(config.data_center, config.masters, meeting)
        self._query_start_s = QUERY_START_S[0]
        self._misaligned = 0
        self._sizes: dict[str, tuple[int, float]] = {}
        """Quads of each worker, and when they were counted."""

    def __enter__(self) -> DivergenceScanner:
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.close()

    def compare_counts(self) -> float:
        """One sample of each worker that is small enough, and another at once when they reached no common index.
        Returns the seconds that the slowest store took."""
        places, busy = self._small_workers()
        for _ in range(COUNT_ATTEMPTS):
            looks, took = self._query_workers(places, _count_quads)
            busy += took
            # All at once: when two differ, the masters need the third to judge which is wrong.
            for name, look in looks:
                self._sizes[name] = look.quads, time.monotonic()
                self._workers.report_digests(name, look)
            positions = len({look.position for _, look in looks})
            self._adapt_query_start(positions)
            if positions < 2:
                break
        return busy

    def _small_workers(self) -> tuple[list[ScannedWorker], float]:
        """Those that may be counted whole, and the seconds that it took to find out. No store is counted beyond the
        bound for it."""
        found, busy = [], 0.0
        for place in self._workers.comparable():
            quads, at = self._sizes.get(place.name, (COUNT_QUADS_MAX, -SIZE_S))
            began = time.monotonic()
            if quads > COUNT_QUADS_MAX // 2 and (quads <= COUNT_QUADS_MAX or began > at + SIZE_S):
                with HttpTransport(place.url, COUNT_TIMEOUT_S, connect_s=1.0) as transport:
                    try:
                        answer = transport.send(place.adapter.size_up_to(COUNT_QUADS_MAX + 1))
                        quads = place.adapter.parse_size(answer)
                    except (TxLogError, OSError) as wrong:
                        log.info("%s is not counted: %s", place.name, wrong)
                        continue
                self._sizes[place.name] = quads, began
                busy = max(busy, time.monotonic() - began)
            if quads <= COUNT_QUADS_MAX:
                found.append(place)
        return found, busy

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
            with self._workers.paused_at_same_index([place.name for place in places]):
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

    def _adapt_query_start(self, positions: int) -> None:
        if positions < 2:
            self._query_start_s, self._misaligned = max(QUERY_START_S[0], self._query_start_s * 0.9), 0
            return
        self._query_start_s, self._misaligned = min(QUERY_START_S[1], self._query_start_s * 2), self._misaligned + 1
        if self._misaligned % MISALIGNED_WARN_EVERY == 0:
            log.warning(
                "the workers met at no index in %d looks; held for %.1f s now", self._misaligned, self._query_start_s
            )

    def compare_sums(self, stop: threading.Event) -> float:
        """Reads all of each worker whose engine cannot read cells, slowly, as of one moment. Returns the seconds for
        which the stores worked."""
        places = [place for place in self._workers.comparable() if is_read_whole(place)]
        if not places:
            return 0.0
        names = [place.name for place in places]
        begun = [threading.Event() for _ in places]
        with ThreadPoolExecutor(len(places)) as pool:
            with self._workers.paused_at_same_index(names) as held_at:
                reads = [
                    pool.submit(_digest_worker, place, lambda: self._pace.share("sums"), stop, event)
                    for place, event in zip(places, begun, strict=True)
                ]
                self._workers.keep_paused(names, held_at, begun)
            for place, read in zip(places, reads, strict=True):
                try:
                    look = read.result()
                except (TxLogError, OSError) as wrong:
                    log.info("%s is not summed up: %s", place.name, wrong)
                    continue
                if look is not None:
                    self._workers.report_digests(place.name, look)
        return 0.0  # the read itself has kept to its share


def is_read_whole(place: ScannedWorker) -> bool:
    """Whether a worker's engine cannot read cells."""
    return not place.adapter.capabilities.parts


def _count_quads(place: ScannedWorker, transport: HttpTransport) -> GraphDigests | None:
    counted = place.adapter.parse_counts(transport.send(place.adapter.counts()))
    marker = single_marker(counted.system)
    if marker is None:
        return None
    at = marker.position
    table = {name: (quads, None) for name, quads in counted.graphs.items()}
    return build_graph_digests("counts", at.index, at.hash.hex(), marker.fence, table)


def _read_marker(place: ScannedWorker) -> MarkerPosition | None:
    with HttpTransport(place.url, COUNT_TIMEOUT_S, connect_s=1.0) as transport:
        return single_marker(read_system_graphs(place.adapter, transport))


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
            stream_statements(place.adapter, transport) as chunks,
        ):
            if _read_marker(place) != marker:
                return None
            begun.set()
            look = _digest_chunks(marker, chunks, share, stop)
        now = _read_marker(place)
        return look if now is not None and now.fence == marker.fence else None
    finally:
        begun.set()


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
