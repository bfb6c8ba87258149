"""Fail-over over the masters of a data centre, nearest first. A read uses the first that answers; a write retries."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from txlog.client.errors import MasterUnreachable
from txlog.client.master_client import JSON_RESULTS, SPARQL_UPDATE, MasterClient
from txlog.client.responses import Doorbell, JsonPosition, QueryResult, StatusResponse, WriteResult
from txlog.client.retrying_write import DEFAULT_RETRY_POLICY, RetryingWrite, RetryPolicy
from txlog.model.durability import Durability
from txlog.model.errors import PeerFault, TxLogError, Unavailable
from txlog.wire.log_page import LogPage

T = TypeVar("T")

UNREACHABLE_BACKOFF_S = 5.0
"""Seconds for which a master that did not answer is tried last. Long enough that its time-outs do not show in the
latency of every micro-batch; short enough to return to the nearest master soon after its restart."""

PROBE_TIMEOUT_S = 0.5
"""Seconds that a master which did not answer may take for the readiness probe, before any other request. A hanging
master would otherwise cost the whole time-out of a long poll each time."""


WAIT_S = 10.0
"""Seconds that a master may take until a write reaches its durability level, or a worker the position of a query."""

QUERY_TIMEOUT_S = 60.0


class FailoverClient:
    """Fail-over over several masters, for one thread. A read is sent to each master at most once. A write
    (:meth:`update`, :meth:`upload`) is retried according to ``patience`` under one ``Idempotency-Key``, so that it
    takes effect once however often it was sent. ``repository``: its id; None asks a master for it."""

    def __init__(
        self,
        urls: Sequence[str],
        timeout_s: float = 5.0,
        *,
        connect_s: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        repository: str | None = None,
        patience: RetryPolicy = DEFAULT_RETRY_POLICY,
    ) -> None:
        assert urls, "at least one master"
        assert patience.tries > 0, "at least one try"
        self._clients = [MasterClient(url, timeout_s, connect_s=connect_s) for url in urls]
        self._dead_until = dict.fromkeys(range(len(urls)), 0.0)
        self._clock = clock
        self._sleep = sleep
        self._repository = repository
        self._retry_policy = patience

    def __enter__(self) -> FailoverClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        for client in self._clients:
            client.close()

    def call_first_available(self, ask: Callable[[MasterClient], T]) -> T:
        """The answer of the nearest master that has one. The client skips a master that is unreachable, not ready, or
        answers in another format (another version), and tries it last for :data:`UNREACHABLE_BACKOFF_S`. Any other
        error of a master is raised. When no master answers, the error of the last one is raised."""
        last: TxLogError | None = None
        for i in self._by_preference():
            try:
                self._probe(i)
                answer = ask(self._clients[i])
            except (MasterUnreachable, Unavailable, PeerFault) as passed:
                if getattr(passed, "reason", "") == "QueryTimeout":
                    raise  # it would take as long elsewhere
                self._dead_until[i] = self._clock() + UNREACHABLE_BACKOFF_S
                last = passed
            else:
                self._dead_until[i] = 0.0
                return answer
        assert last is not None
        raise last

    def _by_preference(self) -> list[int]:
        """Indices of the masters: nearest first, and last those that did not answer a moment ago."""
        now = self._clock()
        return sorted(range(len(self._clients)), key=lambda i: (self._dead_until[i] > now, i))

    def _probe(self, i: int) -> None:
        """Check that a master which did not answer last time is ready again. Raises :class:`Unavailable` or
        :class:`MasterUnreachable`; then no request was sent."""
        client = self._clients[i]
        if self._dead_until[i] and not client.health("ready", timeout_s=PROBE_TIMEOUT_S):
            raise Unavailable("Starting", f"{client.url} is not ready")

    # -- the repository

    def query(
        self,
        text: str,
        *,
        accept: str = JSON_RESULTS,
        at_least: JsonPosition | None = None,
        wait_s: float = QUERY_TIMEOUT_S,
    ) -> QueryResult:
        """As :meth:`MasterClient.query`, at the nearest master that has an answer. ``at_least``: the position of a
        write; the query then sees that write, whichever master accepted it."""
        if self._repository is None:
            self._repository = self.status().repository
        repository = self._repository
        return self.call_first_available(
            lambda m: m.query(repository, text, accept=accept, at_least=at_least, wait_s=wait_s)
        )

    def update(
        self,
        text: str,
        *,
        key: str | None = None,
        durability: Durability | None = None,
        synchronous: bool | str | None = None,
        wait_s: float = WAIT_S,
    ) -> WriteResult:
        """Write a SPARQL update as one transaction, at the nearest master that accepts it. When a master is
        unreachable, breaks off or answers 503, the client sends the update to the next one under the same ``key``,
        round after round. Between rounds it waits for ``Retry-After``. The client waits ``wait_s`` seconds for
        ``durability`` (None: the cluster's default); the result holds the level that was reached.

        A ``LOAD`` and an update that is evaluated once can have no key. If the caller gave none, such an update is
        sent without one. The client then sends it to another master only if it was certainly not sent.

        ``synchronous``: as in :meth:`MasterClient.write`. Where a master does not know within ``wait_s`` seconds
        whether the update takes effect, the client asks the next one under the same key. Raises :class:`RolledBack`
        when no quorum held it in time, and :class:`OutcomeUndecided` when no tries are left and it is still not known.

        Raises the error with which a master refused the update (:class:`~txlog.model.errors.KeyNotTaken` and
        :class:`~txlog.model.errors.KeyTaken` for a ``key`` that the caller gave). Raises :class:`Unavailable` or
        :class:`MasterUnreachable` when no tries are left; with ``sent`` where the update may still take effect."""
        write = RetryingWrite(text.encode(), SPARQL_UPDATE, (), key, durability, synchronous)
        return self._submit_with_retries(write, wait_s)

    def upload(
        self,
        data: bytes,
        media: str,
        *,
        graphs: Sequence[str] = (),
        key: str | None = None,
        durability: Durability | None = None,
        synchronous: bool | str | None = None,
        wait_s: float = WAIT_S,
    ) -> WriteResult:
        """Add RDF of the media type ``media`` to ``graphs`` (IRIs), or to the graphs that it names. Otherwise as
        :meth:`update`."""
        return self._submit_with_retries(RetryingWrite(data, media, graphs, key, durability, synchronous), wait_s)

    def _submit_with_retries(self, writing: RetryingWrite, wait_s: float) -> WriteResult:
        until, left = self._clock() + self._retry_policy.seconds, self._retry_policy.tries
        while True:
            failed: list[Unavailable | MasterUnreachable] = []
            for i in self._by_preference():
                wait = min(wait_s, until - self._clock())
                try:
                    written = writing.send_to(self._clients[i], self._repository_of(i), max(0.0, wait))
                except (MasterUnreachable, Unavailable) as passed:
                    self._dead_until[i] = self._clock() + UNREACHABLE_BACKOFF_S
                    if not writing.may_retry(passed):
                        raise writing.final_error(passed) from passed
                    left -= 1
                    failed.append(passed)
                    if left == 0 or self._clock() >= until:
                        raise writing.final_error(passed) from passed
                else:
                    self._dead_until[i] = 0.0
                    return written
            self._sleep(max(0.0, min(*(one.retry_after_s for one in failed), until - self._clock())))

    def _repository_of(self, i: int) -> str:
        """The repository id, once that master is ready. Raises :class:`MasterUnreachable`; then nothing was sent."""
        try:
            self._probe(i)
            if self._repository is None:
                self._repository = self._clients[i].status().repository
        except (MasterUnreachable, Unavailable, PeerFault) as no:
            raise MasterUnreachable(self._clients[i].url, str(no), sent=False) from no
        return self._repository

    # -- the log

    def status(self) -> StatusResponse:
        """As :meth:`MasterClient.status`, of the nearest master that answers."""
        return self.call_first_available(lambda m: m.status())

    def doorbell(self, after: int, tick: int = 0, timeout_s: float = 5.0) -> Doorbell:
        """As :meth:`MasterClient.doorbell`, at the nearest master that answers."""
        return self.call_first_available(lambda m: m.doorbell(after, tick, timeout_s))

    def log_page(
        self,
        after: int,
        at_hash: bytes | None = None,
        upto: int | None = None,
        max_bytes: int | None = None,
        unordered: Sequence[tuple[int, bytes]] = (),
    ) -> LogPage:
        """As :meth:`MasterClient.log_page`, from the nearest master that answers."""
        return self.call_first_available(lambda m: m.log_page(after, at_hash, upto, max_bytes, unordered))
