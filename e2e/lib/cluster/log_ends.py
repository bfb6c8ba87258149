"""Where the logs of running masters end, and when they are all at rest at one place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from e2e.lib.wait import NotYet, wait_until
from txlog.client import MasterClient


class LogEnds(NamedTuple):
    """``stable``: node to index and hash of the end of its stable log. ``queued``: transactions of all masters that
    wait for their place; ``unstable``: entries of all masters above their stable index."""

    stable: dict[str, tuple[int, str]]
    queued: int
    unstable: int

    @property
    def last(self) -> tuple[int, str]:
        return max(self.stable.values())

    @property
    def is_at_rest(self) -> bool:
        return len(set(self.stable.values())) == 1 and not self.queued and not self.unstable

    def __str__(self) -> str:
        behind = ", ".join(f"{node} {at[0]}" for node, at in self.stable.items() if at != self.last)
        return f"log at {self.last[0]}, {self.queued} waiting, behind: {behind or 'no master'}"


def read_log_ends(masters: Mapping[str, str]) -> LogEnds:
    """``masters``: node to URL."""
    ends: dict[str, tuple[int, str]] = {}
    queued = unstable = 0
    for node, url in masters.items():
        with MasterClient(url, 5.0) as master:
            status = master.status()
        ends[node] = (status.stable.index, status.stable.hash)
        queued += status.queue.transactions
        unstable += status.log.index - status.stable.index
    return LogEnds(ends, queued, unstable)


def wait_at_rest(masters: Mapping[str, str], deadline_s: float) -> tuple[int, str]:
    """Until nothing waits and all logs end alike; index and hash of that end."""

    def probe() -> LogEnds:
        ends = read_log_ends(masters)
        if not ends.is_at_rest:
            raise NotYet(str(ends))
        return ends

    return wait_until("the logs are at rest", deadline_s, probe).last
