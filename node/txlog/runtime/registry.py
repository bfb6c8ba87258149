"""How the workers are, as the pipelines say: those of this data centre, and what other masters tell of theirs.

Nothing here is durable: a pipeline reports after each application and at least every few seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from txlog.config.process import WorkerConfig
from txlog.divergence.detector import (
    DivergenceDetector,
    DivergenceFinding,
    ObservedWorker,
    append_digest,
    merge_digests,
)
from txlog.divergence.repair_policy import RepairStatus
from txlog.model.decoding import MALFORMED
from txlog.model.errors import BadInput, Conflict, NotFound
from txlog.model.hashes import NO_HASH
from txlog.model.look import GRAPHS_MAX, KINDS, Look
from txlog.runtime.lately import Lately
from txlog.runtime.loop import Loop
from txlog.runtime.watermark import Watermark

TOPIC = "workers"
STATES = ("Unknown", "Working", "Unreachable", "Blocked", "Diverged", "Ahead", "NeedsRestore", "Loading", "Refused")
"""Of a report. Shown is ``Unordered``, too: a worker that works, and has executed in another order."""
BODY_CHARACTERS_MAX = 2000
BACK_OFF_S = (0.25, 2.0)
STALE_S = 30.0
"""A worker of which nothing was heard for so long counts as not reachable."""


class Marker(msgspec.Struct, frozen=True):
    """A worker's own position; ``hash`` in hexadecimal."""

    epoch: int
    index: int
    hash: str
    fence: int = 0
    unordered: list[str] = []
    """Places ``index:hash`` where it stood before it was set on the log without going back (``None``)."""


class Report(msgspec.Struct, frozen=True, rename="camel"):
    """What a pipeline posts. ``status`` and ``body``: the worker's own answer to ``txid``, which it refused."""

    position: Marker | None = None
    state: str = "Unknown"
    error: str | None = None
    status: int | None = None
    body: str | None = None
    txid: str | None = None
    took_ms: float | None = None


class WorkerState(msgspec.Struct, rename="camel"):
    """A worker as it was last heard of. ``reported_at``: seconds since 1970, 0 while nothing was."""

    name: str
    url: str = ""
    engine: str = ""
    position: Marker | None = None
    state: str = "Unknown"
    error: str | None = None
    hold: int | None = None
    reported_at: float = 0.0
    status: int | None = None
    body: str | None = None
    txid: str | None = None
    took_ms: float | None = None
    looks: list[Look] = []
    """What it was seen to hold (:mod:`txlog.divergence`)."""
    divergence: DivergenceFinding | None = None
    """As this master judges it."""
    look_hold: int | None = None
    """A hold for a look, beside the other, ..."""
    look_hold_until: float = 0.0
    """... until then, on this process' clock."""
    repair_hold: int | None = None
    """A hold for a repair, as one for a look."""
    repair_hold_until: float = 0.0
    repair: RepairStatus | None = None
    """What becomes of it by itself while it differs, and what did."""

    @property
    def held_at(self) -> int | None:
        """The lowest of all holds."""
        now = time.monotonic()
        looking = self.look_hold if now < self.look_hold_until else None
        repairing = self.repair_hold if now < self.repair_hold_until else None
        asked = [index for index in (self.hold, looking, repairing) if index is not None]
        return min(asked, default=None)

    @property
    def is_in_repair(self) -> bool:
        """It is being repaired, or copied for that."""
        return self.repair_hold is not None and time.monotonic() < self.repair_hold_until

    def view(self) -> dict[str, Any]:
        """As the API shows it."""
        return {
            "name": self.name,
            "url": self.url,
            "engine": self.engine,
            "position": self.position,
            "state": "Unordered" if self.is_unordered and self.state == "Working" else self.state,
            "error": self.error,
            "hold": self.held_at,
            "reportedAt": self.reported_at or None,
            "status": self.status,
            "body": self.body,
            "txid": self.txid,
            "tookMs": self.took_ms,
            "divergence": self.divergence,
            "repair": self.repair,
        }

    @property
    def is_unordered(self) -> bool:
        """It has executed some transactions in another order than the log's: digests may differ."""
        return self.position is not None and bool(self.position.unordered)

    @property
    def index(self) -> int:
        return self.position.index if self.position is not None else 0


class Told(msgspec.Struct):
    """The notice between masters: the workers of one data centre that ``node`` heard of itself."""

    data_center: str
    workers: list[WorkerState]
    """All of the data centre's, those of which nothing was heard included: silence must not pass for consent."""


_report = msgspec.json.Decoder(Report)
_look = msgspec.json.Decoder(Look)
_told = msgspec.json.Decoder(Told)


class Tally:
    """How many there were since this process began, and how long they took in all, in milliseconds."""

    def __init__(self) -> None:
        self.done = 0
        self.took_ms = 0.0

    def count(self, took_ms: float, many: int = 1) -> None:
        self.done += many
        self.took_ms += took_ms

    @property
    def mean_ms(self) -> float:
        """0 while there was none."""
        return self.took_ms / self.done if self.done else 0.0


class Tick:
    """How far apart a doorbell rings for a worker that is behind although nothing new arrives."""

    def __init__(self) -> None:
        self.wait_s = BACK_OFF_S[0]
        self.due = 0.0
        self.index = -1


class Registry:
    """The workers of this data centre by name, in the configuration's order, and those of the others."""

    def __init__(
        self,
        data_center: str,
        workers: list[WorkerConfig],
        loop: Loop,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.data_center = data_center
        self.workers = {w.name: WorkerState(w.name, w.url, w.engine) for w in workers}
        self.elsewhere: dict[str, dict[str, WorkerState]] = {}
        self.heard_from: dict[str, tuple[str, float]] = {}  # node -> its data centre, when it told
        self.reading: Counter[str] = Counter()
        """Reads of clients that are under way, by worker."""
        self.reads = Tally()
        """Reads of clients that a worker has answered."""
        self.lately = Lately()
        self._promised = 0
        self.tasks: dict[str, Tally] = {}
        """Transactions that workers have executed, as their pipeline told this master."""
        self.findings = DivergenceDetector()
        self.differs: Callable[[str, DivergenceFinding | None], None] = lambda name, finding: None
        """Hears of each finding (``data centre/worker``) that is new or has changed; None: it is lifted."""
        self.refresh: Callable[[], None] = lambda: None
        """Says anew what becomes of the workers of this data centre (:attr:`WorkerState.repair`)."""
        self.tick = 0
        self.changed = asyncio.Event()
        """Set when other masters should be told; whoever tells clears it."""
        self._heard_here: set[str] = set()
        self._ticks = {name: Tick() for name in self.workers}
        self._bell: list[asyncio.Future[bool]] = []
        self._refusal_waiters: dict[str, list[asyncio.Future[bool]]] = {}
        self.awaited: dict[str, Watermark] = {}
        """How far workers are for whom somebody waits or has waited (:meth:`any_at`)."""
        self._loop = loop
        self._clock = clock

    # Who there is

    def add(self, config: WorkerConfig) -> None:
        """A worker more, from now on; one that is known already, at the same place, changes nothing.
        :class:`Conflict` for another place."""
        known = self.workers.get(config.name)
        if known is not None:
            if known.url != config.url:
                raise Conflict(f"{config.name} is at {known.url}; take it out first")
            return
        self.workers[config.name] = WorkerState(config.name, config.url, config.engine)
        self._ticks[config.name] = Tick()
        self.changed.set()
        self.evaluate()
        self.wake_all()

    def remove(self, name: str) -> None:
        """Nothing is applied to it, nothing is read from it, nobody waits for it any more."""
        self.workers.pop(name, None)
        self.tasks.pop(name, None)
        self._ticks.pop(name, None)
        if (mark := self.awaited.pop(name, None)) is not None:
            mark.give_up()
        self._heard_here.discard(name)
        self.changed.set()
        self.evaluate()
        self.wake_all()

    # In

    def report(self, name: str, body: bytes) -> int | None:
        """A pipeline's report; returns the index at which it shall hold the worker."""
        worker = self.workers.get(name)
        if worker is None:
            raise NotFound(f"no worker {name[:80]!r} in {self.data_center}; there are {', '.join(self.workers)}")
        try:
            report = _report.decode(body)
        except MALFORMED as wrong:
            raise BadInput(f"a worker's report: {wrong}") from None
        if report.state not in STATES:
            raise BadInput(f"state {report.state[:40]!r}: one of {', '.join(STATES)}")
        # A pipeline that cannot reach a worker does not know where it is; it is where it was heard of last.
        position = worker.position if report.state == "Unreachable" and report.position is None else report.position
        before = worker.index
        moved = worker.position != position or worker.state != report.state
        worker.position = position
        worker.state = report.state
        worker.error = report.error[:BODY_CHARACTERS_MAX] if report.error else None
        worker.status, worker.txid, worker.took_ms = report.status, report.txid, report.took_ms
        worker.body = report.body[:BODY_CHARACTERS_MAX] if report.body else None
        worker.reported_at = self._clock()
        if worker.index > before:
            self.tasks.setdefault(name, Tally()).count(report.took_ms or 0.0, worker.index - before)
        self._heard_here.add(name)
        if moved:
            self.changed.set()
        self.evaluate()
        self.judge()
        return worker.held_at

    def look(self, name: str, body: bytes) -> None:
        """What a worker was seen to hold, as its pipeline tells."""
        worker = self.workers.get(name)
        if worker is None:
            raise NotFound(f"no worker {name[:80]!r} in {self.data_center}; there are {', '.join(self.workers)}")
        try:
            look = _look.decode(body)
        except MALFORMED as wrong:
            raise BadInput(f"a look at a worker: {wrong}") from None
        if look.kind not in KINDS:
            raise BadInput(f"kind {look.kind[:40]!r}: one of {', '.join(KINDS)}")
        if look.graphs is not None and len(look.graphs) > GRAPHS_MAX:
            raise BadInput(f"{len(look.graphs)} graphs: at most {GRAPHS_MAX}, else none")
        looks = append_digest(worker.looks, look)
        if looks != worker.looks:
            worker.looks = looks
            self._heard_here.add(name)
            self.changed.set()
        self.judge()

    def judge(self) -> None:
        """Compare what is known of all workers; :attr:`differs` hears what is new."""
        known = [(f"{dc}/{w.name}", w) for dc, of in self._everywhere() for w in of.values()]
        new, lifted = self.findings.judge(
            [
                ObservedWorker(
                    name,
                    worker.engine,
                    [] if worker.is_unordered else worker.looks,
                    worker.txid if worker.state == "Blocked" else None,
                    worker.index,
                )
                for name, worker in known
            ]
        )
        for name, worker in known:
            worker.divergence = self.findings.finding_of(name)
        for name, finding in new:
            self.differs(name, finding)
        for name in lifted:
            self.differs(name, None)

    def views(self) -> list[dict[str, Any]]:
        """The workers of this data centre, as the API shows them."""
        self.refresh()
        return [worker.view() for worker in self.workers.values()]

    def _everywhere(self) -> list[tuple[str, dict[str, WorkerState]]]:
        return [(self.data_center, self.workers), *self.elsewhere.items()]

    def told(self, body: bytes, node: str) -> None:
        """Another master's notice. What was heard later counts."""
        try:
            told = _told.decode(body)
        except MALFORMED:
            return  # a newer version's; the protocol between the cores is not touched by it
        now = self._clock()
        self.heard_from[node] = (told.data_center, now)
        known = (
            self.workers if told.data_center == self.data_center else self.elsewhere.setdefault(told.data_center, {})
        )
        if told.data_center != self.data_center:
            listed = {heard.name for heard in told.workers}
            for gone in [name for name in known if name not in listed]:
                del known[gone]
        for heard in told.workers:
            before = known.get(heard.name)
            heard.hold = heard.look_hold = heard.repair_hold = None  # the other master's business
            if before is not None:
                heard.looks = merge_digests(before.looks, heard.looks)
                before.looks = heard.looks
            if before is None and told.data_center == self.data_center:
                continue
            if before is None or heard.reported_at > before.reported_at:
                if before is not None and told.data_center == self.data_center:
                    heard.hold = before.hold
                    heard.look_hold, heard.look_hold_until = before.look_hold, before.look_hold_until
                    heard.repair_hold, heard.repair_hold_until = before.repair_hold, before.repair_hold_until
                known[heard.name] = heard
        self.evaluate()
        self.judge()

    def telling(self) -> bytes:
        """What this master tells the others."""
        self.refresh()
        heard = [
            w if name in self._heard_here else WorkerState(w.name, w.url, w.engine) for name, w in self.workers.items()
        ]
        return msgspec.json.encode(Told(self.data_center, heard))

    # Out

    def evaluate(self) -> None:
        """Move the applied watermarks to what the reports say, as far as this master's log confirms it."""
        if not (self.workers or self.elsewhere or self._loop.applied.value or self._loop.applied_all.value):
            return  # asked in every turn, long before the first worker is heard
        local = [self._applied(w) for w in self.workers.values()]
        applied = max(local, default=0)
        everywhere = [*local, *(self._applied(w) for dc in self.elsewhere.values() for w in dc.values())]
        if applied != self._loop.applied.value:
            self._loop.applied.move(applied)
            self.lately.note(applied)
        to_all = min(everywhere, default=0)
        if to_all != self._loop.applied_all.value:
            self._loop.applied_all.move(to_all)
        for worker in self.workers.values():
            if worker.name in self.awaited:
                self.awaited[worker.name].move(worker.index)
            if worker.txid and worker.state == "Blocked":
                for future in self._refusal_waiters.pop(worker.txid, ()):
                    if not future.done():
                        future.set_result(True)

    async def any_at(self, needed: Mapping[str, int], seconds: float) -> bool:
        """Wait until one of these workers is known to be at its index. False when the time is over."""
        reached: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        for name, index in needed.items():
            worker = self.workers.get(name)
            if worker is not None:
                mark = self.awaited.setdefault(name, Watermark())
                mark.move(worker.index)
                mark.tell(index, reached)
        return await self._loop.within(reached, seconds)

    def promise(self, index: int) -> None:
        """A client was told that a worker here has executed this: what anybody reads next shall have it, too."""
        self._promised = max(self._promised, index)

    def good_enough(self) -> int:
        """The least index at which a worker is as good for a read as the best: what was promised, and not long
        behind (:data:`txlog.runtime.lately.LAG_S`)."""
        return max(min(self._promised, self._loop.applied.value), self.lately.least())

    def _applied(self, worker: WorkerState) -> int:
        """The index up to which a worker has executed this master's log; 0 when it is not on it."""
        position = worker.position
        if position is None or self.is_off(worker):
            return 0
        return min(position.index, self._loop.stable.value)

    def is_off(self, worker: WorkerState) -> bool:
        """Whether it is certain that what this worker has executed is not this master's log: it has to go back."""
        position, agreement = worker.position, self._loop.agreement
        if worker.state == "Diverged":
            return True
        if position is None or agreement is None:
            return False
        if position.index <= self._loop.stable.value:
            return not self.on_log(position)
        # Nobody stood above the base of this view before it was there. A worker of an abandoned branch may be above
        # the log for long; the pages cannot tell, since there is no hash to compare.
        view = agreement.view
        return agreement.installed and position.epoch < view.epoch and position.index > view.base_index

    def on_log(self, position: Marker) -> bool:
        """Whether this log has that hash there. Position 0 without a hash is on every log."""
        if position.index > self._loop.log_position().index:
            return False
        if position.index == 0 and position.hash == NO_HASH.hex():
            return True
        if self.is_below(position):
            return True  # it was, when it stood there; nobody knows the hash any more
        return self._loop.position_at(position.index).hash.hex() == position.hash

    def is_below(self, position: Marker) -> bool:
        """Below what this master keeps of the log: it cannot go on from there."""
        agreement = self._loop.agreement
        return agreement is not None and position.index < agreement.history.start

    def unordered(self) -> list[str]:
        """The workers of all data centres that are known to be unordered."""
        groups = [(self.data_center, self.workers), *self.elsewhere.items()]
        return [f"{dc}/{w.name}" for dc, workers in groups for w in workers.values() if w.is_unordered]

    def refused_here(self, txid: str) -> list[WorkerState]:
        """The workers of this data centre that refuse this transaction."""
        return [w for w in self.workers.values() if w.state == "Blocked" and w.txid == txid]

    def refusals(self, txid: str) -> dict[str, dict[str, Any]]:
        """Every worker's answer to a transaction that it refused alone, by ``data centre/name``."""
        found: dict[str, dict[str, Any]] = {}
        for data_center, workers in [(self.data_center, self.workers), *self.elsewhere.items()]:
            for worker in workers.values():
                if worker.txid == txid and worker.state == "Blocked":
                    found[f"{data_center}/{worker.name}"] = {
                        "state": worker.state,
                        "status": worker.status,
                        "body": worker.body,
                        "error": worker.error,
                    }
        return found

    def when_refused(self, txid: str, future: asyncio.Future[bool]) -> None:
        """Resolve ``future`` when a worker of this data centre reports that it refuses the transaction."""
        waiting = self._refusal_waiters.setdefault(txid, [])
        waiting[:] = [f for f in waiting if not f.done()]
        waiting.append(future)

    def no_longer(self, txid: str, future: asyncio.Future[bool]) -> None:
        """The counterpart of :meth:`when_refused`, once the future is done."""
        waiting = self._refusal_waiters.get(txid)
        if waiting is not None:
            waiting[:] = [f for f in waiting if f is not future]
            if not waiting:
                del self._refusal_waiters[txid]

    # The doorbell

    def is_behind(self, worker: WorkerState) -> bool:
        """Below the stable index (or its hold) and not stopped for a reason that only a person can remove."""
        end = self._loop.executable.value
        held = worker.held_at
        upto = end if held is None else min(held, end)
        return worker.index < upto or worker.position is None

    def ring(self) -> float:
        """Let the tick grow if a worker that is behind is due. Returns seconds until the next may be due."""
        now = self._loop_time()
        rang = False
        nearest = BACK_OFF_S[1]
        for name, worker in self.workers.items():
            tick = self._ticks[name]
            if not self.is_behind(worker):
                tick.wait_s, tick.index, tick.due = BACK_OFF_S[0], worker.index, now + BACK_OFF_S[0]
                continue
            if worker.index != tick.index:  # it moves: whoever moves it needs no bell
                tick.wait_s, tick.index, tick.due = BACK_OFF_S[0], worker.index, now + BACK_OFF_S[0]
            if now >= tick.due:
                rang = True
                tick.wait_s = min(2 * tick.wait_s, BACK_OFF_S[1])
                tick.due = now + tick.wait_s
            nearest = min(nearest, tick.due - now)
        if rang:
            self.tick += 1
            bell, self._bell = self._bell, []
            for future in bell:
                if not future.done():
                    future.set_result(True)
        return max(0.05, nearest)

    def listen(self, future: asyncio.Future[bool]) -> None:
        """Resolve ``future`` at the next tick."""
        if len(self._bell) & 63 == 63:
            self._bell = [f for f in self._bell if not f.done()]
        self._bell.append(future)

    def wake_all(self) -> None:
        """A hold has changed: everybody shall look."""
        self.tick += 1
        bell, self._bell = self._bell, []
        for future in bell:
            if not future.done():
                future.set_result(True)

    @staticmethod
    def _loop_time() -> float:
        return asyncio.get_running_loop().time()
