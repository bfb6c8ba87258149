"""Do the workers of this data centre hold the same? Looked at in the background, one query each, at one index.

Every look is exact by itself (counts and marker come from one moment of the store); a short hold makes the moments meet
at one index while writes go on. The masters keep the looks, compare and judge (:mod:`txlog.divergence`).
Fingerprints of pieces are compared here: they are an alarm, upon which looks follow
(docs/decisions/0030-fingerprints-are-an-alarm.md).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from typing import Final, NamedTuple, TypeVar

from txlog.client import MasterClient, Worker
from txlog.config.process import PipelineConfig
from txlog.model.errors import TxLogError, Unavailable
from txlog.model.look import Look, look_of
from txlog.workers import ADAPTERS
from txlog.workers.base import Adapter, MarkerPosition, Piece, SystemGraphs, UnexpectedAnswer, WorkerResponse
from txlog.workers.digest import Digester
from txlog.workers.transport import HttpTransport

log = logging.getLogger(__name__)

MASTER_S: Final = 2.0
MEET_S: Final = 2.0
"""How long workers may take to come to one index; who does not is compared the next time."""
MEETING_S: Final = 10.0
"""Two meetings and their queries, and room for a busy machine."""
POLL_S: Final = 0.02
RENEW_S: Final = 1.0
"""After so long a hold is put again: masters forget it after five seconds."""
OPEN_S: Final = (0.1, 2.0)
"""How long a hold outlives the sending of the queries, at first and at most: a store fixes a query's moment when it
begins with it, and nobody is told when that was. It doubles when that was too short. Ended earlier by all answers."""
TRIES: Final = 3
"""So often a piece is looked at, or all is read, that met at no index; then what is next has its turn."""
COUNT_TRIES: Final = 2
"""The same for counts. The second time stores are held longer; without it what is found in ten seconds would take
fifteen."""
MISSED: Final = 5
"""Looks one after another that met at no index until that is said."""
PACED_BY: Final = 5
"""Looks, the last ones."""
BEGIN_S: Final = 4.0
"""So long stores are held until all of them have begun to be read; who has not by then is read at another index."""
COUNT_S: Final = 120.0
READ_S: Final = 120.0
"""For the next bytes of an answer: a store that is stopped holds up all comparing for so long."""
PIECE: Final = 100_000
"""Quads of which a fingerprint is asked at once: about 0.6 s of a store's processor."""
DOUBTED_S: Final = (60.0, 3600.0)
"""How long fingerprints are not looked at when sums have not confirmed one, at first and at most; doubled each time."""
PAUSE_S_MAX: Final = 20.0
"""Between two pieces of a data set that is read slowly: below the time after which stores give a reader up."""


T = TypeVar("T")


class Place(NamedTuple):
    """A worker to look at. ``differs``: that it does is known."""

    name: str
    url: str
    adapter: Adapter
    differs: bool


def start(config: PipelineConfig, stop: threading.Event) -> None:
    """In threads of their own, until ``stop``: counts often, fingerprints of a piece as often, sums seldom."""
    meeting = threading.Lock()
    if config.compare_s > 0:
        threading.Thread(target=_run, args=(config, "counts", stop, meeting), name="txlog-counts", daemon=True).start()
    if config.compare_sums_s > 0:
        threading.Thread(target=_run, args=(config, "sums", stop, meeting), name="txlog-sums", daemon=True).start()
    if config.compare_pieces_s > 0:
        threading.Thread(target=_run, args=(config, "pieces", stop, meeting), name="txlog-pieces", daemon=True).start()


def _run(config: PipelineConfig, kind: str, stop: threading.Event, meeting: threading.Lock) -> None:
    least = {"counts": config.compare_s, "sums": config.compare_sums_s, "pieces": config.compare_pieces_s}[kind]
    pacings = defaultdict[int, Pacing](lambda: Pacing(least, config.compare_share))
    pause = least
    with Comparing(config, meeting) as comparing:
        while not stop.wait(pause):
            began, piece = time.monotonic(), comparing.piece
            try:
                if kind == "pieces":
                    busy = comparing.pieces(stop)
                else:
                    busy = comparing.counts() if kind == "counts" else comparing.sums(stop)
            except (TxLogError, OSError) as wrong:
                log.info("workers are not compared by %s this time: %s", kind, wrong)
                busy = time.monotonic() - began
            pause = pacings[piece].pause_after(busy)


class Pacing:
    """Pauses between looks, so that looking takes ``share`` of a store's time at most, and ``least`` seconds at least.

    Whatever else the machine does adds to what a look takes, a store that was just filled most of all: the least of the
    last few is what it costs. One alone says nothing yet."""

    def __init__(self, least: float, share: float) -> None:
        self._least, self._share = least, share
        self._took: deque[float] = deque(maxlen=PACED_BY)

    def pause_after(self, busy: float) -> float:
        """``busy``: the seconds that the last look took."""
        self._took.append(busy)
        costs = min(self._took) if len(self._took) > 1 else 0.0
        return max(self._least, costs / self._share - costs)


class Comparing:
    """The workers of one data centre. One thread. ``meeting``: of all that compare them, since a worker has one hold
    for them: whoever is done first would lift it for the others."""

    def __init__(self, config: PipelineConfig, meeting: threading.Lock) -> None:
        self._config = config
        self._meeting = meeting
        self._masters = [MasterClient(url, MASTER_S, connect_s=MASTER_S / 2) for url in config.masters]
        self._open_s = OPEN_S[0]
        self._missed = 0
        self._apart = False
        """The last sums were not of all stores at one index."""
        self._pieces = Pieces()

    def __enter__(self) -> Comparing:
        return self

    def __exit__(self, *_: object) -> None:
        for master in self._masters:
            master.close()

    def counts(self) -> float:
        """One look at each worker, and another at once when they met at no index. Returns the seconds that the slowest
        store was at it."""
        busy = 0.0
        for _ in range(COUNT_TRIES):
            looks, took = self._asked(self._places(), _count)
            busy += took
            # All at once: of two that differ nobody can say which is wrong before the third is heard of.
            for name, look in looks:
                self._tell(name, look)
            positions = len({look.place for _, look in looks})
            self._learn(positions)
            if positions < 2:
                break
        return busy

    def _asked(
        self, places: Sequence[Place], ask: Callable[[Place, HttpTransport], T | None]
    ) -> tuple[list[tuple[str, T]], float]:
        """What each answered, by name, asked at one index, and the seconds that the slowest was at it."""
        if not places:
            return [], 0.0

        def timed(place: Place, transport: HttpTransport) -> tuple[T | None, float]:
            began = time.monotonic()
            return ask(place, transport), time.monotonic() - began

        with ExitStack() as closing, ThreadPoolExecutor(len(places)) as pool:
            transports = [closing.enter_context(HttpTransport(place.url, COUNT_S, connect_s=1.0)) for place in places]
            with self._met([place.name for place in places]):
                asked = [pool.submit(timed, *pair) for pair in zip(places, transports, strict=True)]
                wait(asked, self._open_s)
            busy, found = 0.0, list[tuple[str, T]]()
            for place, answer in zip(places, asked, strict=True):
                try:
                    told, seconds = answer.result()
                except (TxLogError, OSError) as wrong:  # it is reported by who applies to it
                    log.info("%s is not looked at: %s", place.name, wrong)
                    continue
                busy = max(busy, seconds)
                if told is not None:
                    found.append((place.name, told))
        return found, busy

    @property
    def piece(self) -> int:
        """How many quads lie before the next piece. The further in, the more a store has to pass over."""
        return self._pieces.first

    def pieces(self, stop: threading.Event) -> float:
        """One look at the fingerprints of the next piece. Where they differ, all is read at once: by sums it is told
        which graphs, and who is right. Returns the seconds that the slowest store was at it."""
        if self._pieces.doubted:
            return 0.0
        first = self.piece

        def ask(place: Place, transport: HttpTransport) -> tuple[MarkerPosition, Piece] | None:
            request = place.adapter.piece(first, PIECE)
            assert request is not None
            piece = place.adapter.piece_in(transport.send(request))
            marker = _only(piece.system)
            return None if marker is None else (marker, piece)

        places = [place for place in self._places() if not place.differs and place.adapter.piece(0, 1) is not None]
        found, busy = self._asked(places, ask)
        self._learn(len({marker.position for _, (marker, _) in found}))
        differing = self._pieces.differing(first, found)
        if differing:
            log.info("the pieces behind %d quads differ in %s: all is read", first, ", ".join(differing))
            self._pieces.judged(self._confirmed(stop, {name: marker.fence for name, (marker, _) in found}))
        return busy

    def _confirmed(self, stop: threading.Event, fences: Mapping[str, int]) -> bool:
        """Whether stores differ, as sums have it, or one was repaired since it had this fence. Where sums met at no
        index they say nothing: once more then."""
        for _ in range(TRIES):
            self.sums(stop, share=1.0)
            places = self._places()
            if any(place.differs for place in places):
                return True
            now = {place.name: _marker(place) for place in places if place.name in fences}
            if any(marker is None or marker.fence != fences[name] for name, marker in now.items()):
                return True
            if not self._apart:
                return False
            log.info("all was read, but not at one index, which says nothing")
        return False

    def _learn(self, positions: int) -> None:
        if positions < 2:
            self._open_s, self._missed = max(OPEN_S[0], self._open_s * 0.9), 0
            return
        self._open_s, self._missed = min(OPEN_S[1], self._open_s * 2), self._missed + 1
        if self._missed % MISSED == 0:
            log.warning("the workers met at no index in %d looks; held for %.1f s now", self._missed, self._open_s)

    def sums(self, stop: threading.Event, share: float | None = None) -> float:
        """All of each worker read, slowly, as of one moment. ``share``: of the time, unless the configured one. Returns
        the seconds for which the stores were asked."""
        places = self._places()
        if not places:
            return 0.0
        names = [place.name for place in places]
        begun = [threading.Event() for _ in places]
        share = share or self._config.compare_share
        with ThreadPoolExecutor(len(places)) as pool:
            with self._met(names) as held_at:
                reads = [
                    pool.submit(_summed, place, share, stop, event) for place, event in zip(places, begun, strict=True)
                ]
                until = time.monotonic() + BEGIN_S
                for event in begun:
                    while not event.wait(RENEW_S) and time.monotonic() < until:
                        if held_at is not None:
                            self._hold(names, held_at)
            looks: list[Look] = []
            for place, read in zip(places, reads, strict=True):
                try:
                    look = read.result()
                except (TxLogError, OSError) as wrong:
                    log.info("%s is not summed up: %s", place.name, wrong)
                    continue
                if look is not None:
                    looks.append(look)
                    self._tell(place.name, look)
            self._apart = len(looks) < len(places) or len({look.place for look in looks}) > 1
        return 0.0  # reading has kept to its share

    def _places(self) -> list[Place]:
        found = []
        for worker in self._workers():
            engine = worker.engine or "oxigraph"
            adapter = ADAPTERS.get(engine)
            if adapter is None or not adapter.capabilities.digest or not worker.url:
                continue
            if worker.state == "Working" and worker.position is not None and not worker.position.unordered:
                found.append(Place(worker.name, worker.url, adapter, worker.divergence is not None))
        return found

    def _workers(self) -> list[Worker]:
        last: TxLogError | None = None
        for master in self._masters:
            try:
                return master.workers()
            except TxLogError as error:
                last = error
        raise Unavailable("NoMaster", f"no master of {self._config.data_center} answers: {last}")

    @contextmanager
    def _met(self, names: Sequence[str]) -> Iterator[int | None]:
        """As many of them as possible at one index meanwhile, which is that of the hold; None: nobody has to be held.
        One alone has nobody to meet. Another comparison is waited for, but not one whose store has stopped
        answering."""
        mine = self._meeting.acquire(timeout=MEETING_S)
        index: int | None = None
        try:
            if len(names) > 1 and self._moving(names):
                until = time.monotonic() + MEET_S
                index = max(self._indexes(names).values())
                self._hold(names, index)
                while time.monotonic() < until:
                    at = self._indexes(names)
                    if max(at.values()) > index:  # it passed before it heard of the hold
                        index = max(at.values())
                        self._hold(names, index)
                    elif min(at.values()) == index:
                        break
                    time.sleep(POLL_S)
            yield index
        finally:
            for master in self._masters:
                for name in names:
                    with suppress(TxLogError):
                        master.lift_hold(name, why="look")
            if mine:
                self._meeting.release()

    def _moving(self, names: Sequence[str]) -> bool:
        """Whether anything has to be held: workers of a log that stands still stand at its end anyway."""
        ends = set()
        for master in self._masters:
            with suppress(TxLogError):
                ends.add(master.status().stable.index)
        return set(self._indexes(names).values()) != ends

    def _indexes(self, names: Sequence[str]) -> dict[str, int]:
        found = {w.name: w.position.index for w in self._workers() if w.name in names and w.position is not None}
        if not found:
            raise Unavailable("NoWorker", "no worker stands anywhere any more")
        return found

    def _hold(self, names: Sequence[str], index: int) -> None:
        for master in self._masters:
            with suppress(TxLogError):
                for name in names:
                    master.put_hold(name, index, why="look")

    def _tell(self, name: str, look: Look) -> None:
        for master in self._masters:
            try:
                master.report_look(name, look)
            except TxLogError as wrong:
                log.info("%s is not told of %s: %s", master.url, name, wrong)


class Pieces:
    """Which piece is looked at next, and what was seen of each."""

    def __init__(self) -> None:
        self.first = 0
        self._tries = 0
        self._seen: dict[tuple[str, int], tuple[MarkerPosition, str]] = {}
        self._doubted_s = DOUBTED_S[0]
        self._again_at = 0.0

    @property
    def doubted(self) -> bool:
        """No pieces are to be looked at now."""
        return time.monotonic() < self._again_at

    def differing(self, first: int, found: Sequence[tuple[str, tuple[MarkerPosition, Piece]]]) -> list[str]:
        """Of the workers in ``found`` those that hold something else than another at the same position, or than they
        did before at the same marker."""
        differing = set()
        at: dict[object, dict[str, str]] = {}
        for name, (marker, piece) in found:
            before = self._seen.get((name, first))
            if before is not None and before[0] == marker and before[1] != piece.fingerprint:
                differing.add(name)
            self._seen[name, first] = marker, piece.fingerprint
            at.setdefault(marker.position, {})[name] = piece.fingerprint
        for there in at.values():
            if len(set(there.values())) > 1:
                differing.update(there)
        self._tries += 1
        if len(at) < 2 or differing or self._tries >= TRIES:
            most = max((piece.quads for _, (_, piece) in found), default=0)
            self.first, self._tries = (0 if most < PIECE else first + PIECE), 0
        return sorted(differing)

    def judged(self, confirmed: bool) -> None:
        """Whether sums have confirmed that. Where not, an order is not what it should be: all is not read for it again
        and again."""
        if confirmed:
            self._doubted_s, self._again_at = DOUBTED_S[0], 0.0
            return
        self._again_at = time.monotonic() + self._doubted_s
        log.info("sums do not confirm it: no pieces are looked at for %.0f s", self._doubted_s)
        self._doubted_s = min(DOUBTED_S[1], self._doubted_s * 2)


def _count(place: Place, transport: HttpTransport) -> Look | None:
    counted = place.adapter.counts_in(transport.send(place.adapter.counts()))
    marker = _only(counted.system)
    if marker is None:
        return None
    at = marker.position
    table = {name: (quads, None) for name, quads in counted.graphs.items()}
    return look_of("counts", at.index, at.hash.hex(), marker.fence, table)


def _only(system: SystemGraphs) -> MarkerPosition | None:
    """Where it stands; None when it holds no prefix of the log."""
    if system.loading or len(system.markers) != 1 or system.markers[0].unordered:
        return None
    return system.markers[0]


def _marker(place: Place) -> MarkerPosition | None:
    with HttpTransport(place.url, COUNT_S, connect_s=1.0) as transport:
        return _only(place.adapter.system_in(transport.send(place.adapter.read_system())))


def _summed(place: Place, share: float, stop: threading.Event, begun: threading.Event) -> Look | None:
    """All that it holds, read as of one moment; ``begun`` when that is fixed, or will not be. None: it holds no prefix
    of the log, went on before that, was repaired meanwhile (what was would be found once more), or ``stop``."""
    try:
        marker = _marker(place)
        if marker is None:
            return None
        with HttpTransport(place.url, READ_S, connect_s=1.0) as transport, _snapshot(place, transport) as chunks:
            if _marker(place) != marker:
                return None
            begun.set()
            look = _sum(marker, chunks, share, stop)
        now = _marker(place)
        return look if now is not None and now.fence == marker.fence else None
    finally:
        begun.set()


@contextmanager
def _snapshot(place: Place, transport: HttpTransport) -> Iterator[Iterator[bytes]]:
    with transport.stream(place.adapter.snapshot()) as answer:
        if answer.status != 200:
            body = b"".join(answer.chunks)
            raise UnexpectedAnswer("reading all statements", WorkerResponse(answer.status, answer.headers, body))
        yield iter(place.adapter.cleaned(answer.chunks))


def _sum(marker: MarkerPosition, chunks: Iterator[bytes], share: float, stop: threading.Event) -> Look | None:
    made = Digester()
    began = time.monotonic()
    for chunk in chunks:
        made.feed(chunk)
        busy = time.monotonic() - began
        if stop.wait(min(PAUSE_S_MAX, busy / share - busy)):
            return None
        began = time.monotonic()
    at = marker.position
    table: dict[str, tuple[int, int | None]] = {**made.digest().graphs}
    return look_of("sums", at.index, at.hash.hex(), marker.fence, table)
