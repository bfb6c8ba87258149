"""The appliers' lock inside a worker, for other processes that must change the worker."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Protocol

from txlog.backup.pinned_snapshot import POLL_S, read_system_graphs
from txlog.model.errors import Unavailable
from txlog.workers.adapter import (
    TAKEOVER_S,
    Adapter,
    ApplyResult,
    SystemGraphs,
    Transport,
    UnexpectedAnswer,
    WorkerRequest,
)


class LockableWorker(Protocol):
    """A worker: :class:`~txlog.backup.pinned_snapshot.SourceWorker`, or the target of a load."""

    @property
    def name(self) -> str:
        """The worker's name in its cluster, for messages."""

    @property
    def adapter(self) -> Adapter:
        """The adapter of its engine."""

    @property
    def transport(self) -> Transport:
        """The connection to its store."""


class WorkerLock:
    """The appliers' lock of a worker. It takes over the lock of an owner that was silent for
    :data:`~txlog.workers.adapter.TAKEOVER_S`."""

    def __init__(self, into: LockableWorker, until: float, takeover_s: float | None = None) -> None:
        self._worker, self._until = into, until
        self._takeover_s = TAKEOVER_S if takeover_s is None else takeover_s
        self._last_system: SystemGraphs | None = None
        self._unchanged_since = 0.0

    def extend(self, until: float) -> None:
        """Another deadline (monotonic). Who claims in short calls keeps one lock, which watches a silent owner through
        all of them."""
        self._until = until

    def claim(self) -> int:
        """A token. The lock is held after a request that confirms the token has succeeded."""
        adapter, transport = self._worker.adapter, self._worker.transport
        while True:
            token = random.randrange(adapter.token_limit)
            system = read_system_graphs(adapter, transport)
            if not system.claims:
                if transport.send(adapter.claim(token)).ok:
                    return token
            elif self._is_dead(system):
                found = system.markers[0] if system.markers else None
                if transport.send(adapter.take_over(found, token)).ok:
                    return token
            self.raise_if_timed_out()
            time.sleep(POLL_S)

    def submit(self, build: Callable[..., WorkerRequest], doing: str) -> ApplyResult:
        """Sends one request with a claimed token: ``build`` makes it of its argument
        ``token``. The claim is released unless it was
        applied. :class:`UnexpectedAnswer` when the store refuses it; ``doing`` says what."""
        adapter, transport = self._worker.adapter, self._worker.transport
        token = self.claim()
        answer = transport.send(build(token=token))
        verdict = adapter.parse_apply_result(answer)
        if verdict is not ApplyResult.APPLIED:
            transport.send(adapter.release_claim(token))
        if verdict is ApplyResult.REFUSED:
            raise UnexpectedAnswer(doing, answer)
        return verdict

    def pause(self) -> None:
        """Waits a moment before the next attempt; raises as :meth:`raise_if_timed_out`."""
        self.raise_if_timed_out()
        time.sleep(random.uniform(POLL_S / 5, POLL_S))

    def raise_if_timed_out(self) -> None:
        """Raises :class:`~txlog.model.errors.Unavailable` (``Locked``) after the deadline of this lock."""
        if time.monotonic() > self._until:
            raise Unavailable("Locked", f"another applier has the lock of {self._worker.name}; end it, or try again")

    def _is_dead(self, system: SystemGraphs) -> bool:
        now = time.monotonic()
        if system != self._last_system:
            self._last_system, self._unchanged_since = system, now
        return now - self._unchanged_since > self._takeover_s and len(system.markers) < 2
