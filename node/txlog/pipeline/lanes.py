"""On the executor: one lane for each worker, in which it is brought up to the log whatever the others do.

A task rings the lanes of its rows and waits for them, but no longer than :data:`PATIENCE_S`: a worker that catches
up, or hangs, goes on in its lane while the micro-batch ends and the next one serves the others.

Spark hands tasks to its Python processes in turn, so several processes know a worker. Its *turn*, a locked file in
the scratch folder, lets one of them at a time apply to it, since some stores do not keep overlapping updates apart.
The file also holds the highest index asked for, so that a ring is not lost on a lane that is busy elsewhere. Neither
is needed for exactly-once, which is the marker inside the worker: on several machines each has turns of its own.

Lanes live as long as their process; this module must be importable (not pickled) for that.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from txlog.config.process import PipelineConfig, WorkerConfig
from txlog.pipeline.applying import NOTHING_KNOWN, Applied, Known, WorkerApplier
from txlog.pipeline.reports import Reports

log = logging.getLogger(__name__)

PATIENCE_S = 0.25
"""How long a task waits for its lanes. Long enough that a usual transaction is applied and reported within its
micro-batch; what a worker that is behind may add to the latency of the others."""

FAR = 100_000
"""Entries that a worker is behind when another machine may want to take it for a batch, ..."""
GIVE_WAY_S = 0.1
"""... for which the lock inside the worker is free so long after each application."""


class Ring(NamedTuple):
    """Bring ``worker`` up to ``upto``. ``store``: its :class:`WorkerConfig` as JSON; empty for a configured one."""

    worker: str
    upto: int
    store: str = ""


class Applier(Protocol):
    """Brings one worker towards ``upto`` for about ``budget_s``; never raises for the worker's or a master's fault."""

    def __call__(self, upto: int, budget_s: float, known: Known) -> Applied: ...


class Turn:
    """Who may apply to a worker on this machine, how far it was asked to go, and what the last one knew of it."""

    _WANTED = 20

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._asking = os.open(path.with_name(path.name + ".asked"), os.O_RDWR | os.O_CREAT, 0o600)

    def want(self, upto: int) -> None:
        """The last word counts: a log that was founded anew begins again at 0."""
        os.pwrite(self._fd, b"%0*d" % (self._WANTED, upto), 0)

    def wanted(self) -> int:
        return int(os.pread(self._fd, self._WANTED, 0) or b"0")

    def take(self) -> bool:
        """True when it is ours; False when another process has it. Given back also when the process dies."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def give_back(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    @contextmanager
    def asked_for(self) -> Iterator[None]:
        """Meanwhile a lane gives way at its next chance, and takes no turn."""
        fcntl.flock(self._asking, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._asking, fcntl.LOCK_UN)

    def is_asked_for(self) -> bool:
        """Whether a batch wants the worker. Never for long: it is asked for by a lock that ends with its process."""
        try:
            fcntl.flock(self._asking, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._asking, fcntl.LOCK_UN)
        return False

    def close(self) -> None:
        os.close(self._fd)
        os.close(self._asking)

    def known(self) -> Known:
        """Only for who has the turn."""
        told = os.pread(self._fd, 4096, self._WANTED)
        return msgspec.json.decode(told, type=Known) if told else NOTHING_KNOWN

    def note(self, known: Known) -> None:
        """Only for who has the turn."""
        told = msgspec.json.encode(known)
        os.pwrite(self._fd, told, self._WANTED)
        os.ftruncate(self._fd, self._WANTED + len(told))


class Lane:
    """One worker in this process. ``ring`` and ``wait`` are for tasks; everything else happens in its own thread."""

    def __init__(self, worker: str, turn: Turn, apply: Applier, reports: Reports, budget_s: float) -> None:
        self._worker = worker
        self._turn = turn
        self._apply = apply
        self._reports = reports
        self._budget_s = budget_s
        self._met = False
        self._changed = threading.Condition()
        self._rung = 0
        self._answered = 0
        threading.Thread(target=self._run, name=f"txlog-lane {worker}", daemon=True).start()

    def ring(self, upto: int) -> int:
        """Ask for ``upto``; the number to :meth:`wait` for."""
        self._turn.want(upto)
        with self._changed:
            self._rung += 1
            self._changed.notify_all()
            return self._rung

    def wait(self, number: int, deadline: float) -> bool:
        """Until this ring was answered or ``deadline`` (monotonic); whether it was answered."""
        with self._changed:
            return self._changed.wait_for(lambda: self._answered >= number, max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._rung > self._answered)
                number = self._rung
            try:
                self._serve()
            except Exception:  # a fault of ours must not end the lane for good; the next ring tries again
                log.exception("worker %s", self._worker)
            with self._changed:
                self._answered = number
                self._changed.notify_all()

    def _serve(self) -> None:
        while not self._turn.is_asked_for() and self._turn.take():
            try:
                wanted, healthy = self._drive()
            finally:
                self._turn.give_back()
            if not healthy or self._turn.wanted() <= wanted:
                return  # asked for more just before the turn was given back, nobody else would do it

    def _drive(self) -> tuple[int, bool]:
        """Apply and report until the worker is where it is wanted, is held, or cannot go on. Returns what was
        wanted at last and whether it could go on."""
        before: int | None = None
        while True:
            wanted = self._turn.wanted()
            hold = self._reports.hold(self._worker)
            # nothing is applied before the masters have told a new lane of their holds
            limit = 0 if not self._met else wanted if hold is None else min(wanted, hold)
            done = self._apply(limit, self._budget_s, self._turn.known())
            self._turn.note(done.known)
            self._reports.tell(self._worker, done.report)
            if not done.healthy:
                return wanted, False
            hold = self._reports.hold(self._worker)
            at = done.report.position.index if done.report.position else 0
            # at == before: the master that gives the pages is not as far as the one that rang; it will ring
            if at >= (wanted if hold is None else min(wanted, hold)) or at == before:
                return wanted, True
            before = at if self._met else None
            self._met = True
            if self._turn.is_asked_for():
                return wanted, False
            if wanted - at > FAR:
                time.sleep(GIVE_WAY_S)


class Lanes:
    """The lanes of one application in this process."""

    def __init__(self, config: PipelineConfig, applier: Callable[[PipelineConfig, str], Applier]) -> None:
        self._config = config
        self._applier = applier
        self._reports = Reports(config.masters)
        self._lanes: dict[tuple[str, str], Lane] = {}

    def drive(self, rows: Sequence[Ring], patience_s: float = PATIENCE_S) -> None:
        """Ring for each and wait, at most ``patience_s`` for all of them."""
        deadline = time.monotonic() + patience_s
        rung = [(self._lane(row), row.upto) for row in rows]
        numbers = [(lane, lane.ring(upto)) for lane, upto in rung]
        for lane, number in numbers:
            lane.wait(number, deadline)

    def _lane(self, ring: Ring) -> Lane:
        """One that came back at another place gets a lane of its own."""
        key = (ring.worker, ring.store)
        if key not in self._lanes:
            config = self._config
            if ring.store:
                store = WorkerConfig.model_validate_json(ring.store)
                config = config.model_copy(update={"workers": [store]})
            turn = Turn(config.scratch_folder / "turns" / ring.worker)
            apply = self._applier(config, ring.worker)
            self._lanes[key] = Lane(ring.worker, turn, apply, self._reports, config.budget_s)
        return self._lanes[key]


_running: dict[str, Lanes] = {}


def drive(config_json: str, rows: Sequence[Ring]) -> None:
    """What a task does: see :meth:`Lanes.drive`. The lanes of a configuration are made once in each process."""
    if config_json not in _running:
        _running[config_json] = Lanes(PipelineConfig.model_validate_json(config_json), WorkerApplier)
    _running[config_json].drive(rows)
