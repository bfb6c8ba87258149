"""The appliers' lock inside a worker, for whoever else has to change it."""

from __future__ import annotations

import random
import time
from typing import Protocol

from txlog.backup.standing import POLL_S, system_of
from txlog.model.errors import Unavailable
from txlog.workers.base import TAKEOVER_S, Adapter, SystemGraphs, Transport


class Locked(Protocol):
    """A worker: :class:`~txlog.backup.standing.Source`, or what is loaded into."""

    @property
    def name(self) -> str: ...

    @property
    def adapter(self) -> Adapter: ...

    @property
    def transport(self) -> Transport: ...


class Lock:
    """The appliers' lock of a worker, also from one that is gone for :data:`~txlog.workers.base.TAKEOVER_S`."""

    def __init__(self, into: Locked, until: float, takeover_s: float | None = None) -> None:
        self._into, self._until = into, until
        self._takeover_s = TAKEOVER_S if takeover_s is None else takeover_s
        self._seen: SystemGraphs | None = None
        self._since = 0.0

    def claim(self) -> int:
        """A token; it counts when a request that confirms it has succeeded."""
        adapter, transport = self._into.adapter, self._into.transport
        while True:
            token = random.randrange(adapter.tokens)
            system = system_of(adapter, transport)
            if not system.claims:
                if transport.send(adapter.claim(token)).ok:
                    return token
            elif self._is_dead(system):
                found = system.markers[0] if system.markers else None
                if transport.send(adapter.take_over(found, token)).ok:
                    return token
            self.refuse_when_late()
            time.sleep(POLL_S)

    def refuse_when_late(self) -> None:
        if time.monotonic() > self._until:
            raise Unavailable("Locked", f"another applier has the lock of {self._into.name}; end it, or try again")

    def _is_dead(self, system: SystemGraphs) -> bool:
        now = time.monotonic()
        if system != self._seen:
            self._seen, self._since = system, now
        return now - self._since > self._takeover_s and len(system.markers) < 2
