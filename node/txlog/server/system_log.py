"""The system log at one master: reads its stable entries, writes new ones, and waits for what they change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

from txlog.model.configuration import Configuration, Master
from txlog.model.durability import Durability
from txlog.model.entry import KIND_UPDATE
from txlog.model.errors import Refused, Unavailable
from txlog.model.hashes import content_hash
from txlog.model.ids import Origin, Txid
from txlog.protocol.events import Submission
from txlog.server.log_service import LogService
from txlog.system.catalogue import RepositoryCatalogue
from txlog.system.entries import SystemEntry, SystemLogFold, encode_entry

SYSTEM_NAME: Final = "system"
"""How the log is named where repositories have their names. No repository can have it."""
NO_MAJORITY: Final = "the system log does not reach more than half of the votes of all masters from here"
READ_BYTES: Final = 1 << 20


class SystemLog:
    """Follows the log of ``service``. ``changed()`` is called when its entries, or the masters that answer, may have
    changed; ``noticed(peer, topic, body)`` for a notice of another master."""

    def __init__(
        self, service: LogService, changed: Callable[[], None], noticed: Callable[[str, str, bytes], None]
    ) -> None:
        self.service = service
        self.fold = SystemLogFold()
        self._on_change = changed
        self._on_notice = noticed
        self._waiters: list[asyncio.Future[None]] = []
        service.observer = self

    # The log

    def on_stable_moved(self) -> None:
        """Reads the entries that became stable. After a view that an operator forced, all of them again."""
        stable = self.service.loop.durability.stable.value
        if stable < self.fold.index:
            self.fold = SystemLogFold()
        if stable > self.fold.index:
            self._read(stable)
        self.wake()

    def on_log_truncated(self) -> None:
        """The stable index has moved before."""

    def on_notice(self, peer: str, topic: str, body: bytes) -> None:
        """Passes on what another master's runtime sent."""
        self._on_notice(peer, topic, body)

    def _read(self, stable: int) -> None:
        status, fold = self.service.loop.status, self.fold
        log = status.log_state
        assert log is not None, "a log has a stable end"
        for span in log.log_index.spans(fold.index, stable):
            seq, end = span.first_seq, span.first_seq + span.count
            while seq < end:
                for item in status.read_transactions(span.node, span.birth, seq, end - seq, READ_BYTES).items:
                    fold.apply(fold.index + 1, Txid(Origin(span.node, span.birth), seq), item.payload)
                    seq += 1

    # What it is

    @property
    def catalogue(self) -> RepositoryCatalogue | None:
        """The repositories; None until the log says which one is the first."""
        return self.fold.catalogue

    @property
    def configuration(self) -> Configuration | None:
        """The masters with which the system log was founded; None before."""
        view = self.service.loop.status.cluster_view
        return view.bootstrap_configuration if view is not None else None

    @property
    def masters(self) -> Sequence[Master]:
        """The masters of :attr:`configuration`, in order of precedence."""
        found = self.configuration
        return found.masters if found is not None else ()

    @property
    def members(self) -> list[str]:
        """The masters of its view."""
        view = self.service.loop.status.view
        return [member.node for member in view.members] if view is not None else []

    @property
    def is_at_work(self) -> bool:
        """Whether this master takes part in it, with more than half of the votes."""
        context = self.service.context
        status, configuration = context.status, self.configuration
        if not context.is_ready or configuration is None or not status.is_view_active:
            return False
        return configuration.has_majority([context.config.node, *status.present_peers])

    @property
    def has_ended(self) -> bool:
        """Whether this log has failed here, or is closed: nothing of it changes any more."""
        return self.service.loop.end_reason is not None

    # Entries

    async def submit(self, entry: SystemEntry, deadline: float) -> str:
        """Writes an entry and waits for its place. Why it changed nothing; empty if it counts. ``deadline``: of
        :func:`time.monotonic`. :class:`Unavailable` before anything is written, or when the outcome is not known."""
        if not self.is_at_work:
            raise Unavailable(
                "NoMajority", "the system log does not reach more than half of the masters' votes from here"
            )
        payload = encode_entry(entry)
        submission = Submission(KIND_UPDATE, "", payload, content_hash(KIND_UPDATE, "", payload))
        write = self.service.loop.write([submission], Durability.SYNCED)
        timeout_s = max(0.0, deadline - time.monotonic())
        await self.service.loop.durability.wait_for(write.reached, timeout_s)
        answer = write.answers[0] if write.answers else None
        if isinstance(answer, Refused):
            raise answer
        if answer is None or not await self.wait_until(lambda: answer.txid in self.fold.outcomes, deadline):
            raise Unavailable(
                "OutcomeUnknown", "the system log did not take it in time; look at the list, and ask again"
            )
        return self.fold.outcomes[answer.txid]

    async def wait_until(self, condition: Callable[[], bool], deadline: float) -> bool:
        """Whether the condition became true in time. It is tried when something has changed. False at once when
        this log has ended."""
        while not condition():
            timeout_s = deadline - time.monotonic()
            if timeout_s <= 0 or self.has_ended:
                return False
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await asyncio.wait([waiter], timeout=timeout_s)
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
        return True

    def wake(self) -> None:
        """Something has changed: those that wait look again."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._on_change()
