"""Small answers that are kept while nothing is written: a client that reads the same again gets the same.

An answer counts as long as its worker is at the end of this master's log, at the marker that it had when it was asked:
the store can hold nothing newer. It is kept for a second at most, so that a store that was changed without TxLog shows
it soon.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from txlog.runtime.worker_state import RegisteredWorker, WorkerMarker
from txlog.server.frontdoor.plain_queries import PlainReadHead

KEPT_S: Final = 1.0
ANSWERS_MAX: Final = 512
BYTES_MAX: Final = 8 << 10
"""Of the body of an answer: together with :data:`ANSWERS_MAX`, at most 4 MiB for a repository."""


class KeptAnswer(NamedTuple):
    """``head``: without the date and the empty line. ``until``: of the monotonic clock."""

    marker: WorkerMarker
    head: bytes
    body: bytes
    until: float


class KeptAnswers:
    """The answers of one repository, by the head of the request and the worker. Requests of the same bytes have the
    same head object. ``log_end``: the index of the last entry that this master has persisted."""

    def __init__(self, log_end: Callable[[], int]) -> None:
        self._log_end = log_end
        self._answers: dict[tuple[PlainReadHead, str], KeptAnswer] = {}

    def marker_at_end(self, worker: RegisteredWorker) -> WorkerMarker | None:
        """The marker of a worker that has executed all that this master has; None for any other."""
        marker = worker.position
        return marker if marker is not None and marker.index == self._log_end() else None

    def keep(
        self, asked: PlainReadHead, worker: str, marker: WorkerMarker, head: bytes, body: bytes, now: float
    ) -> None:
        """``marker``: as :meth:`marker_at_end` gave it when the worker was asked."""
        if len(body) > BYTES_MAX:
            return
        if len(self._answers) >= ANSWERS_MAX:
            self._answers.clear()
        self._answers[asked, worker] = KeptAnswer(marker, head, body, now + KEPT_S)

    def find(self, asked: PlainReadHead, worker: RegisteredWorker, now: float) -> KeptAnswer | None:
        """The answer of this worker that still counts."""
        kept = self._answers.get((asked, worker.name))
        if kept is None:
            return None
        if now < kept.until and self.marker_at_end(worker) == kept.marker:
            return kept
        del self._answers[asked, worker.name]
        return None
