"""One wake-up of the stream for the logs of several repositories.

Each repository has a thread that waits for its own log. So a log that does not answer delays no other one. A thread
that has rung waits until the micro-batch with its rows is over, as the source of one repository does.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Final, Generic, Protocol, TypeVar

log = logging.getLogger(__name__)

RETRY_S: Final = 1.0
"""The wait after an error that is a bug: the thread of a repository never ends by one."""

RowT = TypeVar("RowT", covariant=True)
T = TypeVar("T")


class LogPoller(Protocol[RowT]):
    """The wake-ups of one log, as in :class:`~txlog.pipeline.doorbell_source.WakeupPoller`."""

    def wait(self, pos: int, tick: int) -> tuple[int, int]: ...
    def ranges(self, upto: int) -> Sequence[RowT]: ...


class RepositoryBells(Generic[T]):
    """``pollers``: by repository. A bell is a count that grows with each wake-up of any log."""

    def __init__(self, pollers: Mapping[str, LogPoller[T]]) -> None:
        self._pollers = pollers
        self._changed = threading.Condition()
        self._bell = 0
        self._done = 0
        """The bell whose micro-batch is over."""
        self._rung: dict[str, int] = {}
        self._positions = dict.fromkeys(pollers, 0)
        self._is_stopped = False
        for name in pollers:
            threading.Thread(target=self._poll, args=(name,), name=f"txlog-bell {name}", daemon=True).start()

    def stop(self) -> None:
        """The threads end after their next answer."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def wait(self, after: int, timeout_s: float) -> int:
        """The bell, once it is above ``after``, at the latest after ``timeout_s`` seconds. ``after``: the bell of the
        last micro-batch, which is over."""
        with self._changed:
            self._bell = max(self._bell, after)  # a new process of the same query goes on counting
            self._done = after
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._bell > after or self._is_stopped, timeout_s)
            return self._bell

    def ranges(self, after: int, upto: int) -> dict[str, list[T]]:
        """The rows of each repository that rang above ``after``, up to ``upto``."""
        with self._changed:
            rung = {name: self._positions[name] for name, bell in self._rung.items() if after < bell <= upto}
        return {name: list(self._pollers[name].ranges(position)) for name, position in rung.items()}

    def _poll(self, name: str) -> None:
        poller, tick = self._pollers[name], 0
        while not self._is_stopped:
            before = self._positions[name], tick
            try:
                found = poller.wait(*before)
            except Exception:  # a bug; the other repositories go on
                log.exception("the log of %s", name or "the first repository")
                time.sleep(RETRY_S)
                continue
            if found != before:
                tick = found[1]
                self._ring(name, found[0])

    def _ring(self, name: str, position: int) -> None:
        """Wakes the stream, and waits until it has served this repository."""
        with self._changed:
            self._bell += 1
            mine = self._rung[name] = self._bell
            self._positions[name] = position
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._done >= mine or self._is_stopped)
