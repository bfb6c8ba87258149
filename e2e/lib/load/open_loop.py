"""An open load: requests set out at fixed times, whether or not the ones before were answered.

In a closed loop a slow answer keeps its client from asking, and so hides what everybody else would have waited. Here
the time of a request counts from when it was due, also when no connection was free then.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from e2e.lib.load.closed_loop import (
    RESPONSE_TIMEOUT_S,
    WRONG_ANSWERS_MAX,
    LoadConnection,
    RequestTemplate,
    is_complete,
    is_success,
)
from e2e.lib.report import quantile

CONNECTIONS_MAX: Final = 512
"""Of one load; a request that is due when all are taken waits for one, and its time runs."""


class TimedAnswer(NamedTuple):
    """Seconds from the load's beginning to when it was due, and from there to its answer. ``master``: its URL."""

    due_s: float
    took_s: float
    master: str


class OpenLoad:
    """``rate`` requests a second in all, to each of ``masters`` in turn (a list of this load's own: who is taken out of
    it is asked no more), one transaction in a request."""

    def __init__(self, masters: list[str], requests: RequestTemplate, rate: float) -> None:
        self.masters = list(masters)
        self.requests = requests
        self.rate = rate
        self.answers: list[TimedAnswer] = []
        self.wrong: list[str] = []
        self.lost = 0
        """Requests whose connection ended, was refused, or that were never answered: their outcome is unknown."""
        self._free: dict[str, list[LoadConnection]] = {url: [] for url in masters}
        self._busy: dict[int, LoadConnection] = {}
        self._waiting: deque[tuple[float, str]] = deque()

    def run(
        self,
        seconds: float,
        at: Mapping[float, Callable[[], None]] | None = None,
        patience_s: float = RESPONSE_TIMEOUT_S,
        arrivals: Sequence[float] | None = None,
    ) -> None:
        """For so long, then until the last answer, or ``patience_s``. ``at``: what is done after so many seconds; the
        load stands still while it runs, so longer work belongs into a thread. ``arrivals``: when requests are due, in
        seconds, where that is not at even distances."""
        dues = arrivals if arrivals is not None else [n / self.rate for n in range(int(self.rate * seconds))]
        epoll = select.epoll()
        planned = deque(sorted((at or {}).items(), key=lambda one: one[0]))
        total, sent, clock = len(dues), 0, time.perf_counter
        began = clock()
        try:
            while len(self.wrong) < WRONG_ANSWERS_MAX:
                now = clock() - began
                while planned and planned[0][0] <= now:
                    planned.popleft()[1]()
                while sent < total and (due := dues[sent]) <= now:
                    self._waiting.append((due, self.masters[sent % len(self.masters)]))
                    sent += 1
                self._send_waiting(epoll)
                if sent == total and not self._busy and not self._waiting and not planned:
                    return
                if now > seconds + patience_s:
                    self.lost += len(self._busy) + len(self._waiting)
                    return
                pause = dues[sent] - (clock() - began) if sent < total else 0.02
                for file, _ in epoll.poll(min(max(pause, 0.0), 0.02)):
                    self._receive(epoll, file, clock() - began)
        finally:
            for client in [*self._busy.values(), *(each for those in self._free.values() for each in those)]:
                client.socket.close()
            epoll.close()

    def _send_waiting(self, epoll: select.epoll) -> None:
        for _ in range(len(self._waiting)):
            due, url = self._waiting.popleft()
            free = self._free[url]
            if not free and len(self._busy) + sum(map(len, self._free.values())) < CONNECTIONS_MAX:
                try:
                    client = LoadConnection(url)
                except OSError:  # no process listens there any more
                    self.lost += 1
                    continue
                epoll.register(client.socket.fileno(), select.EPOLLIN)
                free.append(client)
            if free:
                self._send_request(free.pop(), due)
            else:
                self._waiting.append((due, url))

    def _send_request(self, client: LoadConnection, due: float) -> None:
        client.number = self.requests.next
        client.sent = due
        client.buffer = b""
        self._busy[client.socket.fileno()] = client
        with suppress(OSError):  # epoll will tell that this connection has ended
            client.send(self.requests.next_request())

    def _receive(self, epoll: select.epoll, file: int, now: float) -> None:
        client = self._busy.get(file)
        if client is None:  # a free one has only its end to tell
            for those in self._free.values():
                for each in [one for one in those if one.socket.fileno() == file]:
                    those.remove(each)
                    epoll.unregister(file)
                    each.socket.close()
            return
        try:
            data = client.receive(1 << 18)
        except OSError:
            data = b""
        if not data:
            self.lost += 1
            del self._busy[file]
            epoll.unregister(file)
            client.socket.close()
            return
        data = client.buffer + data
        split = data.find(b"\r\n\r\n")
        if split < 0 or not is_complete(data, split):
            client.buffer = data
            return
        del self._busy[file]
        self._free[client.master].append(client)
        if is_success(data):
            self.answers.append(TimedAnswer(client.sent, now - client.sent, client.master))
        else:
            self.wrong.append(data[:400].decode(errors="replace"))

    @property
    def first_error(self) -> str | None:
        """The first answer that was not good."""
        return self.wrong[0] if self.wrong else None

    def quantile_ms(self, share: float, since: float = 0.0, until: float = float("inf")) -> float | None:
        """Of the requests that were due in that time."""
        value = quantile([answer.took_s for answer in self.answers if since <= answer.due_s < until], share)
        return None if value is None else 1000 * value

    def per_s(self, since: float, until: float) -> float:
        """Answers a second that came in that time, whenever they were due."""
        return sum(since <= answer.due_s + answer.took_s < until for answer in self.answers) / (until - since)
