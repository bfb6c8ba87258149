"""The masters of a data centre, nearest first: the first that answers is asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from txlog.client.answers import Doorbell, Status
from txlog.client.faults import MasterUnreachable
from txlog.client.master import MasterClient
from txlog.model.errors import PeerFault, TxLogError, Unavailable
from txlog.wire.pages import LogPage

T = TypeVar("T")

DEAD_S = 5.0
"""How long a master that did not answer is asked last. Long enough that its time-outs do not show in the latency
of every micro-batch, short enough to go back to the nearest soon after its restart."""

PROBE_S = 0.5
"""How long a master that did not answer may take to say that it is ready, before it is asked anything else again:
one that hangs would otherwise cost the whole time-out of a long poll each time."""


class Masters:
    """Fail-over over clients of one thread. Only reading calls go through it; a write names its master."""

    def __init__(
        self,
        urls: Sequence[str],
        timeout_s: float = 5.0,
        *,
        connect_s: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        assert urls, "at least one master"
        self._clients = [MasterClient(url, timeout_s, connect_s=connect_s) for url in urls]
        self._dead_until = dict.fromkeys(range(len(urls)), 0.0)
        self._clock = clock

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def first(self, ask: Callable[[MasterClient], T]) -> T:
        """The answer of the nearest master that has one. A master that cannot be reached, says that it is not
        ready, or answers in a format that is not ours (another version) is passed over and remembered for
        :data:`DEAD_S`; any other error is the answer. When none has
        one, the error of the last asked."""
        now = self._clock()
        order = sorted(range(len(self._clients)), key=lambda i: (self._dead_until[i] > now, i))
        last: TxLogError | None = None
        for i in order:
            client = self._clients[i]
            try:
                if self._dead_until[i] and not client.health("ready", timeout_s=PROBE_S):
                    raise Unavailable("Starting", f"{client.url} is not ready")
                answer = ask(client)
            except (MasterUnreachable, Unavailable, PeerFault) as passed:
                self._dead_until[i] = self._clock() + DEAD_S
                last = passed
            else:
                self._dead_until[i] = 0.0
                return answer
        assert last is not None
        raise last

    def status(self) -> Status:
        return self.first(lambda m: m.status())

    def doorbell(self, after: int, tick: int = 0, timeout_s: float = 5.0) -> Doorbell:
        return self.first(lambda m: m.doorbell(after, tick, timeout_s))

    def log_page(
        self,
        after: int,
        at_hash: bytes | None = None,
        upto: int | None = None,
        max_bytes: int | None = None,
        unordered: Sequence[tuple[int, bytes]] = (),
    ) -> LogPage:
        return self.first(lambda m: m.log_page(after, at_hash, upto, max_bytes, unordered))
