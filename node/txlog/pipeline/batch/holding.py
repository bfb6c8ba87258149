"""The driver's side of a worker that is being loaded: the mark inside it, the lock, and the signs of life."""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from txlog.backup.locking import Lock
from txlog.model.entry import Position
from txlog.pipeline.batch.words import LoadLost
from txlog.workers import base
from txlog.workers.base import (
    NOTHING,
    TAKEOVER_S,
    Adapter,
    Loading,
    MarkerPosition,
    Operation,
    SystemGraphs,
    Transport,
    UnexpectedAnswer,
    Unreachable,
    Verdict,
    WorkerDiverged,
    WorkerRefused,
    WorkerResponse,
)

BEAT_S = 6.0
"""Between two signs of life: several fit into the time after which a silent owner is taken for dead."""


class Target(NamedTuple):
    """The worker, for one thread at a time."""

    name: str
    adapter: Adapter
    transport: Transport


class Start(NamedTuple):
    """Where a load begins. ``broken``: one that broke off lies there, and has to be repeated to its end."""

    since: MarkerPosition
    broken: Loading | None


def look(target: Target) -> Start:
    """Where the worker stands; raises what stands against loading it."""
    system = target.adapter.system_in(target.transport.send(target.adapter.read_system()))
    for loading in system.loading:
        if loading.since is None:
            raise WorkerRefused("Loading", f"a data set is being restored into {target.name}; wait, or begin it again")
        return Start(loading.since, loading)
    if len(system.markers) > 1:
        raise WorkerDiverged(f"{target.name} holds {len(system.markers)} markers: rebuild it (txlog worker rebuild)")
    if not system.markers:
        if not target.adapter.is_empty_in(target.transport.send(target.adapter.is_empty())):
            raise WorkerRefused("ForeignStore", f"{target.name} holds data that TxLog did not write; give it no batch")
        return Start(NOTHING, None)
    if system.markers[0].unordered:
        raise WorkerRefused("Unordered", f"{target.name} has executed in another order than the log's: no batch")
    return Start(system.markers[0], None)


class Held:
    """A worker that this process loads, from :meth:`begin` until :meth:`end` or until it is lost.

    Signs of life are renewed by a thread of their own, over a connection of their own: a load keeps the other one busy
    for long."""

    def __init__(self, target: Target, beating: Transport, takeover_s: float = TAKEOVER_S) -> None:
        self._target = target
        self._beating = beating
        self._takeover_s = takeover_s
        self._token: int | None = None
        self._perhaps: int | None = None
        self._busy = threading.Lock()
        self._over = threading.Event()
        self.lost: str | None = None
        self.loading = Loading(NOTHING.position, 0)

    def begin(self, start: Start, end: Position, wait_s: float) -> Loading:
        """The mark in the place of the marker, or of the mark of a load that broke off. Waits ``wait_s`` for whoever
        applies to it now; a silent one is taken for dead. :class:`LoadLost` when the worker has moved."""
        adapter = self._target.adapter
        lock = Lock(self._target, time.monotonic() + wait_s, self._takeover_s)
        while True:
            token = lock.claim()
            loading = Loading(end, secrets.randbits(62), start.since)
            expected = start.broken or (None if start.since == NOTHING else start.since)
            request = adapter.apply([], expected, loading, lock=base.Lock.CONFIRM, token=token)
            answer = self._target.transport.send(request)
            verdict = adapter.verdict(answer)
            if verdict is Verdict.APPLIED:
                break
            if verdict is Verdict.MOVED and self._raised_is(start, token):
                start = start._replace(since=start.since._replace(fence=start.since.fence + 1))
                continue
            self._target.transport.send(adapter.unclaim(token))
            if verdict is Verdict.REFUSED:
                raise UnexpectedAnswer("beginning to load", answer)
            if verdict is Verdict.MOVED:
                raise LoadLost(f"{self._target.name} has moved meanwhile; look at it again")
            lock.refuse_when_late()
            time.sleep(random.uniform(0.001, 0.01))
        self._token, self.loading = token, loading
        threading.Thread(target=self._beat, name=f"txlog-beat {self._target.name}", daemon=True).start()
        return loading

    def _raised_is(self, start: Start, token: int) -> bool:
        """Whether it is only that taking the lock from a dead applier has raised the fence."""
        system = self._system()
        raised = start.since._replace(fence=start.since.fence + 1)
        if start.broken is not None or system.markers != (raised,):
            return False
        self._target.transport.send(self._target.adapter.unclaim(token))
        return True

    def move(self, operations: Sequence[Operation], since: MarkerPosition) -> WorkerResponse | None:
        """What cannot be reduced to quads, together with the mark that begins behind it. None: done; else the
        worker's refusal, which changed nothing."""
        return self._apply(operations, self.loading._replace(since=since))

    def end(self, marker: MarkerPosition) -> None:
        """The worker is a worker again, and stands there."""
        refused = self._apply([], marker)
        if refused is not None:
            raise UnexpectedAnswer("setting the position", refused)

    def _apply(self, operations: Sequence[Operation], new: MarkerPosition | Loading) -> WorkerResponse | None:
        adapter, transport = self._target.adapter, self._target.transport
        release = isinstance(new, MarkerPosition)
        with self._busy:
            self.refuse_when_lost()
            assert self._token is not None, "begun"
            request = adapter.apply(
                operations, self.loading, new, lock=base.Lock.KEEP, token=self._token, release=release
            )
            try:
                answer = transport.send(request)
            except Unreachable:
                if not self._landed(new):
                    raise
            else:
                verdict = adapter.verdict(answer)
                if verdict is Verdict.REFUSED:
                    return answer
                if verdict is not Verdict.APPLIED and not self._landed(new):
                    self.lost = f"{self._target.name} is no longer being loaded by this batch: {answer.text[:300]}"
                    raise LoadLost(self.lost)
            if isinstance(new, Loading):
                self.loading = new
            else:
                self._over.set()
        return None

    def _landed(self, new: MarkerPosition | Loading) -> bool:
        adapter = self._target.adapter
        ask = adapter.is_loading(new) if isinstance(new, Loading) else adapter.is_at(new)
        return adapter.is_at_in(self._target.transport.send(ask))

    def refuse_when_lost(self) -> None:
        if self.lost is not None:
            raise LoadLost(self.lost)

    def abandon(self) -> None:
        """No more signs of life, and the lock goes, so that the next one need not wait until we pass for dead. The
        mark stays. Nothing to do after :meth:`end`, or when it was lost."""
        if not self._over.is_set():
            self._over.set()
            with self._busy:
                if self._token is not None and self.lost is None:
                    self._target.transport.send(self._target.adapter.unclaim(self._token))

    def _beat(self) -> None:
        while not self._over.wait(BEAT_S):
            with self._busy:
                if self._over.is_set():
                    return
                assert self._token is not None, "begun"
                new = random.randrange(self._target.adapter.tokens)
                try:
                    if self._perhaps is not None:
                        claims = self._target.adapter.system_in(self._beating.send(self._target.adapter.read_system()))
                        if claims.claims == self._target.adapter.claims_of(self._perhaps):
                            self._token = self._perhaps
                    self._perhaps = new
                    answer = self._beating.send(self._target.adapter.renew(self._token, new))
                except Unreachable:
                    continue  # whoever loads meets it, too; whether the lock is new is asked next time
                self._perhaps = None
                if answer.ok:
                    self._token = new
                else:
                    self.lost = f"the lock of {self._target.name} was taken over: this batch was silent for too long"
                    return

    def _system(self) -> SystemGraphs:
        adapter = self._target.adapter
        return adapter.system_in(self._target.transport.send(adapter.read_system()))
