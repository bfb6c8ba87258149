"""Faults of workers and pipelines. None of them is the masters' business: not one may split anything."""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from e2e.lib.cluster.supervised import SupervisedCluster
from e2e.lib.report import CannotMeasure
from e2e.soak.fault_log import FaultLog, ShuffledDeck
from txlog.model.errors import TxLogError

LANE_PAUSE_S: Final = 2.0


@contextmanager
def suspended(arena: SupervisedCluster, name: str) -> Iterator[None]:
    """SIGSTOP for the length of the block. A process that is gone meanwhile is no error."""
    pid = arena.pids().get(name)
    if pid is None:
        raise CannotMeasure(f"{name} does not run, so it cannot be stopped")
    try:
        os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def pick_worker(arena: SupervisedCluster, draw: random.Random) -> str:
    return draw.choice(arena.topology.workers).name


def pick_pipeline(arena: SupervisedCluster, draw: random.Random) -> str:
    return f"{draw.choice(arena.topology.data_centers)}-pipeline"


def kill_worker(arena: SupervisedCluster, draw: random.Random, diary: FaultLog) -> None:
    name = pick_worker(arena, draw)
    with diary.fault("kill -9 of a worker", name):
        _kill(arena, name)


def kill_pipeline(arena: SupervisedCluster, draw: random.Random, diary: FaultLog) -> None:
    """The Spark driver, its JVM with it."""
    name = pick_pipeline(arena, draw)
    with diary.fault("kill -9 of a pipeline", name):
        _kill(arena, name)


def pause_worker(arena: SupervisedCluster, draw: random.Random, diary: FaultLog) -> None:
    name = pick_worker(arena, draw)
    with diary.fault("SIGSTOP of a worker", name), suspended(arena, name):
        time.sleep(1 + 3 * draw.random())


def pause_pipeline(arena: SupervisedCluster, draw: random.Random, diary: FaultLog) -> None:
    name = pick_pipeline(arena, draw)
    with diary.fault("SIGSTOP of a pipeline", name), suspended(arena, name):
        time.sleep(1 + 5 * draw.random())


def stop_worker(arena: SupervisedCluster, draw: random.Random, diary: FaultLog) -> None:
    name = pick_worker(arena, draw)
    with diary.fault("a worker is down", name):
        arena.control.stop(name)
        try:
            time.sleep(1 + 4 * draw.random())
        finally:
            arena.control.start(name)


def lose_worker_folder(arena: SupervisedCluster, draw: random.Random, diary: FaultLog) -> None:
    """Its disk is gone: it comes back empty, and everything is executed again."""
    name = pick_worker(arena, draw)
    with diary.fault("worker folder lost", name):
        arena.control.stop(name)
        try:
            shutil.rmtree(arena.state.worker(name))
            arena.state.worker(name).mkdir()
        finally:
            arena.control.start(name)


def restore_old_worker_folder(arena: SupervisedCluster, draw: random.Random, diary: FaultLog) -> None:
    """It comes back with a copy of its folder from some seconds ago."""
    name = pick_worker(arena, draw)
    folder = arena.state.worker(name)
    copy = arena.state.root / f"{name}-copy"
    shutil.rmtree(copy, ignore_errors=True)
    with diary.fault("worker folder of before", name):
        arena.control.stop(name)
        try:
            shutil.copytree(folder, copy)
        finally:
            arena.control.start(name)
        time.sleep(3 + 3 * draw.random())
        arena.control.stop(name)
        try:
            shutil.rmtree(folder)
            copy.rename(folder)
        finally:
            arena.control.start(name)


def lose_checkpoint(arena: SupervisedCluster, draw: random.Random, diary: FaultLog) -> None:
    name = pick_pipeline(arena, draw)
    with diary.fault("checkpoint deleted", name):
        scratch = arena.state.pipeline(name.removesuffix("-pipeline")) / "scratch"
        for path in [path for path in scratch.iterdir() if path.is_dir()]:
            shutil.rmtree(path, ignore_errors=True)
        _kill(arena, name)


def _kill(arena: SupervisedCluster, name: str) -> None:
    if arena.kill(name) is None:
        raise CannotMeasure(f"{name} does not run, so it cannot be killed")


WORKER_FAULTS: Final[tuple[tuple[int, Callable[[SupervisedCluster, random.Random, FaultLog], None]], ...]] = (
    (8, kill_worker),
    (1, kill_pipeline),
    (8, pause_worker),
    (6, pause_pipeline),
    (4, stop_worker),
    (2, lose_worker_folder),
    (2, restore_old_worker_folder),
    (1, lose_checkpoint),
)
"""With how often each is drawn. A Spark application takes 26 s of a processor to start, so few of them are killed."""


class FaultLane:
    """A thread that makes one of these faults after another, but none while it is asked to be quiet."""

    def __init__(self, arena: SupervisedCluster, diary: FaultLog, draw: random.Random) -> None:
        self._arena, self._diary, self._draw = arena, diary, draw
        self._free = threading.Semaphore(1)
        self._quiet = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stores", daemon=True)
        self.wrong: list[str] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join(60)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No fault of this lane within the block; one under way is waited for."""
        self._quiet.set()
        self._free.acquire()
        try:
            yield
        finally:
            self._quiet.clear()
            self._free.release()

    def _run(self) -> None:
        deck = ShuffledDeck(WORKER_FAULTS, self._draw)
        while not self._over.wait(LANE_PAUSE_S * (0.5 + self._draw.random())):
            if self._quiet.is_set():
                continue
            with self._free:
                try:
                    deck.draw()(self._arena, self._draw, self._diary)
                except (CannotMeasure, TxLogError):
                    continue  # it does not run at this moment: another one is hit
                except Exception as error:  # noqa: BLE001 - a lane that ends early would make everything look well
                    self.wrong.append(f"the lane of the stores ended: {error!r}")
                    return
