"""A whole data set into one worker: Loading → batches → compared → its position.

Under the appliers' lock the worker is marked as loading, in one transaction with its being empty. From then on no
applier touches it, so the lock is given back. What breaks off leaves that mark.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from txlog.backup.faults import LoadingLost, RestoredDiffers, WorkerLoading, WorkerNotEmpty
from txlog.backup.locking import Lock
from txlog.backup.parts import gathered, whole_lines
from txlog.backup.progress import Told, counted
from txlog.backup.standing import POLL_S, system_of
from txlog.model.entry import Position
from txlog.workers.base import (
    Adapter,
    Loading,
    MarkerPosition,
    StreamTransport,
    SystemGraphs,
    UnexpectedAnswer,
    Verdict,
)
from txlog.workers.digest import Digest, digest, statements

BATCH_BYTES: Final = 8 << 20
"""N-Quads in one request: the store's memory grows with it, its speed hardly."""
LOCK_S: Final = 120.0


class Expected(NamedTuple):
    """What the worker must give out when everything is loaded."""

    position: Position
    quads: int
    digest: str


class Into(NamedTuple):
    """The worker to load into."""

    name: str
    adapter: Adapter
    transport: StreamTransport


def refuse_unless_empty(into: Into, *, again: bool) -> None:
    """:class:`~txlog.backup.faults.WorkerNotEmpty` or ``WorkerLoading``. ``again``: a load that broke off may lie
    there."""
    _refuse(into, _look(into), again)


class _Found(NamedTuple):
    """What lies in a worker, as of one moment."""

    system: SystemGraphs
    data: bool

    @property
    def full(self) -> bool:
        return self.data or bool(self.system.markers or self.system.loading)


def _look(into: Into) -> _Found:
    system = system_of(into.adapter, into.transport)
    return _Found(system, not into.adapter.is_empty_in(into.transport.send(into.adapter.is_empty())))


def _refuse(into: Into, found: _Found, again: bool) -> None:
    if found.system.loading:
        if not again:
            raise WorkerLoading(_said_loading(into, found.system))
        return
    if found.system.markers:
        raise WorkerNotEmpty(
            f"{into.name} stands at index {found.system.markers[-1].position.index}; only an empty worker is restored "
            "into (to replace what it holds: txlog worker rebuild)"
        )
    if found.data:
        raise WorkerNotEmpty(f"{into.name} holds data without a position; give TxLog an empty store")


def begin(into: Into, position: Position, *, emptying: bool, again: bool = False, lock_s: float = LOCK_S) -> Loading:
    """Mark the worker as loading; it is empty then. ``emptying``: whatever it holds goes. ``again``: only what a load
    that broke off has left there goes.

    To empty it is a request of its own, since beside others it takes as long as there are quads. So between it and the
    mark there is an empty worker, which is where every log can begin, and if a pipeline does just that, it is emptied
    once more."""
    loading = Loading(position, secrets.randbits(62))
    adapter, transport = into.adapter, into.transport
    lock = Lock(into, time.monotonic() + lock_s)
    while True:
        found = _look(into)
        if not emptying:
            _refuse(into, found, again)
        full = found.full
        emptying = emptying or full  # a load that broke off, from here on
        token = lock.claim()
        request = adapter.condemn(found.system, loading, token) if full else adapter.begin_loading(loading, token)
        answer = transport.send(request)
        verdict = adapter.verdict(answer)
        if verdict is Verdict.APPLIED and not full:
            return loading
        if verdict is Verdict.APPLIED:
            emptied = transport.send(adapter.empty())
            if not emptied.ok:
                raise UnexpectedAnswer("emptying", emptied)
            continue
        transport.send(adapter.unclaim(token))
        if verdict is Verdict.REFUSED:
            raise UnexpectedAnswer("beginning to load", answer)
        # Somebody applied or claimed at this very moment: what that led to is seen at the next turn.
        lock.refuse_when_late()
        time.sleep(random.uniform(POLL_S / 5, POLL_S))


def fill(into: Into, loading: Loading, pieces: Iterator[bytes], quads: int | None, told: Told) -> int:
    """Load N-Quads. Returns how many bytes."""
    size = 0
    for batch in whole_lines(counted("loading", quads, told, pieces), BATCH_BYTES):
        _still_ours(into, loading)
        answer = into.transport.send(into.adapter.load(batch))
        if not answer.ok:
            raise UnexpectedAnswer("loading", answer)
        size += len(batch)
    return size


def finish(into: Into, loading: Loading, expected: Expected, fence: int, told: Told) -> MarkerPosition:
    """Compare what the worker gives out, then let it be a worker at its position."""
    found = read_back(into, expected.quads, told)
    if (found.quads, f"{found.total:032x}") != (expected.quads, expected.digest):
        raise RestoredDiffers(
            f"{into.name} gives out {found.quads:,} quads with digest {found.total:032x}, loaded were "
            f"{expected.quads:,} with {expected.digest}; it stays marked as loading: empty it, or restore again"
        )
    marker = MarkerPosition(expected.position, fence)
    answer = into.transport.send(into.adapter.end_loading(loading, marker))
    if not answer.ok:
        _still_ours(into, loading)
        raise UnexpectedAnswer("setting the position", answer)
    return marker


def read_back(into: Into, quads: int | None, told: Told) -> Digest:
    """The digest of what the worker holds."""
    with statements(into.adapter, into.transport) as chunks:
        return digest(counted("comparing", quads, told, gathered(chunks)))


def _still_ours(into: Into, loading: Loading) -> None:
    if not into.adapter.is_at_in(into.transport.send(into.adapter.is_loading(loading))):
        raise LoadingLost(f"somebody else has begun to load {into.name} meanwhile; theirs counts, this one ends")


def _said_loading(into: Into, system: SystemGraphs) -> str:
    return (
        f"a restore into {into.name}, to stand at index {system.loading[0].position.index}, has begun and not ended; "
        "when none runs any more, begin again: txlog restore --again"
    )
