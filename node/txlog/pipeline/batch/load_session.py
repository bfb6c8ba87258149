"""The driver's side of a worker that is loading: the mark inside it, the lock, and the heartbeats."""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from txlog.apply.stored_marker import raise_if_overlapped
from txlog.backup.pinned_snapshot import read_system_graphs
from txlog.backup.worker_lock import WorkerLock
from txlog.model.entry import Position
from txlog.pipeline.batch.task_messages import LoadSuperseded
from txlog.workers.adapter import (
    EMPTY_MARKER,
    TAKEOVER_S,
    Adapter,
    ApplyResult,
    LoadMarker,
    LockAction,
    MarkerPosition,
    RequestOutcome,
    StoreOperation,
    Transport,
    UnexpectedAnswer,
    Unreachable,
    WorkerRefused,
    WorkerResponse,
)

HEARTBEAT_S = 6.0
"""Interval of heartbeats: several fit into the time after which a silent owner counts as dead."""


class LoadTarget(NamedTuple):
    """The worker. Not thread-safe."""

    name: str
    adapter: Adapter
    transport: Transport


class LoadStart(NamedTuple):
    """Where a load begins. ``interrupted``: the worker holds an interrupted load, which must be repeated to its end."""

    since: MarkerPosition
    interrupted: LoadMarker | None


def inspect_worker(target: LoadTarget) -> LoadStart:
    """The worker's start of a load; raises if it must not be loaded."""
    system = read_system_graphs(target.adapter, target.transport)
    raise_if_overlapped(target.name, system)
    for loading in system.loading:
        if loading.since is None:
            raise WorkerRefused("Loading", f"a data set is being restored into {target.name}; wait, or begin it again")
        return LoadStart(loading.since, loading)
    if not system.markers:
        if not target.adapter.parse_is_empty(target.transport.send(target.adapter.is_empty())):
            raise WorkerRefused("ForeignStore", f"{target.name} holds data that TxLog did not write; give it no batch")
        return LoadStart(EMPTY_MARKER, None)
    if system.markers[0].unordered:
        raise WorkerRefused("Unordered", f"{target.name} has executed in another order than the log's: no batch")
    return LoadStart(system.markers[0], None)


class LoadSession:
    """A worker that this process loads, from :meth:`begin` until :meth:`end` or until the load is lost.

    A thread of its own renews the heartbeats over a connection of its own: a load occupies the other one for long.
    """

    def __init__(self, target: LoadTarget, beating: Transport, takeover_s: float = TAKEOVER_S) -> None:
        self._target = target
        self._heartbeat_transport = beating
        self._takeover_s = takeover_s
        self._token: int | None = None
        self._unconfirmed_token: int | None = None
        self._request_lock = threading.Lock()
        self._ended = threading.Event()
        self._may_still_run = False
        """Whether a request without an answer may still be executed: the lock stays in the worker then."""
        self.lost: str | None = None
        self.may_be_marked = False
        """Whether the worker has, or may have, a mark that this process wrote."""
        self.loading = LoadMarker(EMPTY_MARKER.position, 0)

    @property
    def since(self) -> MarkerPosition:
        """Where the begun load, or what is left of it, starts."""
        assert self.loading.since is not None, "begun"
        return self.loading.since

    def begin(self, start: LoadStart, end: Position, wait_s: float, silent_s: float = 0.0) -> LoadMarker:
        """Replaces the marker, or the mark of an interrupted load, by the mark. Waits ``wait_s`` for a process that
        applies to the worker now; a silent one counts as dead. ``silent_s``: by so many seconds more than usual it may
        wait for an answer, and be silent. :class:`LoadSuperseded` when the worker has moved."""
        adapter = self._target.adapter
        lock = WorkerLock(self._target, time.monotonic() + wait_s + silent_s, self._takeover_s + silent_s)
        while True:
            token = lock.claim()
            self.loading = LoadMarker(end, secrets.randbits(62), start.since)
            expected = start.interrupted or (None if start.since == EMPTY_MARKER else start.since)
            request = adapter.apply([], expected, self.loading, lock=LockAction.CONFIRM, token=token)
            self.may_be_marked = True
            answer = self._target.transport.send(request)
            verdict = adapter.parse_apply_result(answer)
            if verdict is ApplyResult.APPLIED:
                break
            self.may_be_marked = False
            if verdict is ApplyResult.MOVED and self._fence_raised(start, token):
                start = start._replace(since=start.since._replace(fence=start.since.fence + 1))
                continue
            self._target.transport.send(adapter.release_claim(token))
            if verdict is ApplyResult.REFUSED:
                raise UnexpectedAnswer("beginning to load", answer)
            if verdict is ApplyResult.MOVED:
                raise LoadSuperseded(f"{self._target.name} has moved meanwhile; look at it again")
            lock.raise_if_timed_out()
            time.sleep(random.uniform(0.001, 0.01))
        self._token = token
        threading.Thread(target=self._send_heartbeats, name=f"txlog-beat {self._target.name}", daemon=True).start()
        return self.loading

    def _fence_raised(self, start: LoadStart, token: int) -> bool:
        """Whether the only change is that taking the lock from a dead applier has raised the fence."""
        system = read_system_graphs(self._target.adapter, self._target.transport)
        raised = start.since._replace(fence=start.since.fence + 1)
        if start.interrupted is not None or system.markers != (raised,):
            return False
        self._target.transport.send(self._target.adapter.release_claim(token))
        return True

    def advance(
        self, operations: Sequence[StoreOperation], since: MarkerPosition, timeout_s: float | None = None
    ) -> WorkerResponse | None:
        """Executes what cannot be reduced to quads, together with the mark that begins after it. Returns None, or the
        worker's refusal, which changed nothing. ``timeout_s``: for its answer; None for the transport's own."""
        return self._apply(operations, self.loading._replace(since=since), timeout_s)

    def end(self, marker: MarkerPosition) -> None:
        """Replaces the mark by the marker: the worker is a worker again, at that position."""
        refused = self._apply([], marker)
        if refused is not None:
            raise UnexpectedAnswer("setting the position", refused)

    def _apply(
        self,
        operations: Sequence[StoreOperation],
        new: MarkerPosition | LoadMarker,
        timeout_s: float | None = None,
    ) -> WorkerResponse | None:
        adapter, transport = self._target.adapter, self._target.transport
        release = isinstance(new, MarkerPosition)
        with self._request_lock:
            self.raise_if_lost()
            assert self._token is not None, "begun"
            request = adapter.apply(
                operations, self.loading, new, lock=LockAction.KEEP, token=self._token, release=release
            )
            try:
                answer = transport.send(replace(request, timeout_s=timeout_s))
            except Unreachable as lost:
                self._may_still_run = lost.fate is RequestOutcome.UNKNOWN
                if not self._was_applied(new):
                    raise
                self._may_still_run = False
            else:
                verdict = adapter.parse_apply_result(answer)
                if verdict is ApplyResult.REFUSED:
                    return answer
                if verdict is not ApplyResult.APPLIED and not self._was_applied(new):
                    self.lost = f"{self._target.name} is no longer being loaded by this batch: {answer.text[:300]}"
                    raise LoadSuperseded(self.lost)
            if isinstance(new, LoadMarker):
                self.loading = new
            else:
                self.may_be_marked = False
                self._ended.set()
        return None

    def _was_applied(self, new: MarkerPosition | LoadMarker) -> bool:
        adapter = self._target.adapter
        ask = adapter.is_loading(new) if isinstance(new, LoadMarker) else adapter.is_at(new)
        return adapter.parse_is_at(self._target.transport.send(ask))

    def raise_if_lost(self) -> None:
        """:class:`LoadSuperseded` when this process has lost the load."""
        if self.lost is not None:
            raise LoadSuperseded(self.lost)

    def abandon(self) -> None:
        """Ends the heartbeats and releases the lock, so that the next load need not wait for a time-out. The mark
        stays. Does nothing after :meth:`end`, or when the load was lost. Where a request of its own may still be
        executed, the lock stays as well: the next load beside it would execute the same twice."""
        if not self._ended.is_set():
            self._ended.set()
            with self._request_lock:
                if self._token is not None and self.lost is None and not self._may_still_run:
                    self._target.transport.send(self._target.adapter.release_claim(self._token))

    def _send_heartbeats(self) -> None:
        while not self._ended.wait(HEARTBEAT_S):
            with self._request_lock:
                if self._ended.is_set():
                    return
                assert self._token is not None, "begun"
                new = random.randrange(self._target.adapter.token_limit)
                try:
                    if self._unconfirmed_token is not None:
                        found = read_system_graphs(self._target.adapter, self._heartbeat_transport)
                        if found.claims == self._target.adapter.claims_for_token(self._unconfirmed_token):
                            self._token = self._unconfirmed_token
                    self._unconfirmed_token = new
                    answer = self._heartbeat_transport.send(self._target.adapter.renew(self._token, new))
                except (Unreachable, UnexpectedAnswer):
                    continue  # the loading thread meets the same error; the next beat checks the lock
                self._unconfirmed_token = None
                if answer.ok:
                    self._token = new
                else:
                    self.lost = f"the lock of {self._target.name} was taken over: this batch was silent for too long"
                    return
