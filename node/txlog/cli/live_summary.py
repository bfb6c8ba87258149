"""What a snapshot means for a person: one sentence, the severity of each part, and rates. The console in a browser says
the same (``console/src/summary.ts``)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum
from itertools import pairwise
from typing import Final, NamedTuple

from txlog.client.live_snapshot import LiveMaster, LiveSnapshot, LiveWorker

LAG_SHOWN: Final = 1000
"""Transactions that a worker may be behind before that is worth a warning."""
RATE_WINDOW_S: Final = 3.0
_WRONG_STATES: Final = frozenset({"Blocked", "Refused", "Diverged", "NeedsRestore"})


class Severity(Enum):
    """How much a part of the cluster asks for a person."""

    GOOD = "good"
    WAIT = "wait"
    WARN = "warn"
    BAD = "bad"


class Headline(NamedTuple):
    """What is going on, in a sentence or two."""

    severity: Severity
    text: str


def severity_of_worker(live: LiveSnapshot, worker: LiveWorker) -> Severity:
    """How well a worker is."""
    if (worker.differs is not None and worker.differs.wrong) or worker.state in _WRONG_STATES:
        return Severity.BAD
    if worker.state == "Unknown" or worker.index is None:
        return Severity.WAIT
    if worker.state != "Working" or worker.differs is not None or worker.fault:
        return Severity.WARN
    return Severity.WARN if (live.lag_of(worker) or 0) > LAG_SHOWN else Severity.GOOD


def severity_of_master(master: LiveMaster) -> Severity:
    """How well a master is, as the answering master sees it."""
    if master.present:
        return Severity.GOOD
    return Severity.WARN if master.in_view else Severity.BAD


def is_outdated(live: LiveSnapshot, worker: LiveWorker) -> bool:
    """Whether nothing arrives from the data centre of the worker, so that what is known of it is old."""
    return not any(master.present for master in live.masters if master.data_center == worker.data_center)


def headline(live: LiveSnapshot) -> Headline:
    """What is going on, and what happens next."""
    here = [master.node for master in live.masters if master.present]
    out = [master for master in live.masters if not master.present]
    away = _join([master.node for master in out])
    if live.view.holding:
        return Headline(Severity.BAD, f"The view cannot change: {live.view.holding}")
    if live.state == "Isolated":
        return Headline(
            Severity.BAD,
            f"Split. {_join(here)} {_verb(here, 'continues', 'continue')} as one side and "
            f"{_verb(here, 'takes', 'take')} writes; {away or 'the other side'} cannot be reached. "
            "When the link is back, the branches become one log.",
        )
    if live.state == "Suspected":
        text = f"{away or 'A member'} {_verb(out, 'is', 'are')} silent. Writes are accepted and wait. "
        return Headline(Severity.WARN, text + "If the silence lasts, this side continues alone.")
    if live.state == "Rejoining":
        return Headline(Severity.WARN, "The sides have met again. Their branches are being merged into one log.")
    if live.state != "Joined":
        return Headline(Severity.WARN, f"{live.node} is {live.state}.")
    if live.findings:
        return Headline(Severity.WARN, ". ".join(finding.text for finding in live.findings))
    if out:
        why = out[0].why or "reason not known"
        return Headline(Severity.WARN, f"{away} {_verb(out, 'is', 'are')} out of the view: {why}.")
    return _headline_of_workers(live)


def _headline_of_workers(live: LiveSnapshot) -> Headline:
    wrong = [worker for worker in live.workers if severity_of_worker(live, worker) is Severity.BAD]
    if wrong:
        names = _join([worker.name for worker in wrong])
        return Headline(Severity.BAD, f"{names}: {wrong[0].error or wrong[0].state}")
    if live.duties:
        first = live.duties[0]
        what = " ".join(part for part in (first.kind, first.worker) if part)
        amount = "1 duty is" if len(live.duties) == 1 else f"{len(live.duties)} duties are"
        return Headline(Severity.WARN, f"{amount} open, first: {what} ({first.why})")
    slow = [worker for worker in live.workers if severity_of_worker(live, worker) is not Severity.GOOD]
    masters = len(live.masters)
    together = "The master is in its view" if masters == 1 else f"All {masters} masters are in one view"
    if slow:
        names = _join([worker.name for worker in slow])
        return Headline(Severity.WAIT, f"{together}; {names} {_verb(slow, 'is', 'are')} not there yet.")
    workers = len(live.workers)
    keeping = {0: "there is no worker", 1: "the worker keeps up"}.get(workers, f"all {workers} workers keep up")
    transactions = "1 transaction" if live.log.stable == 1 else f"{live.log.stable:,} transactions"
    return Headline(Severity.GOOD, f"{together}, and {keeping} with {transactions}.")


def _join(names: Sequence[str]) -> str:
    return "".join(names) if len(names) < 2 else f"{', '.join(names[:-1])} and {names[-1]}"


def _verb(subjects: Sequence[object], one: str, many: str) -> str:
    return one if len(subjects) == 1 else many


class _Sample(NamedTuple):
    at: float
    counts: dict[str, int]


class RateHistory:
    """Transactions per second, from the snapshots of the last ``seconds``."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._samples: deque[_Sample] = deque()
        self._node = ""

    def add(self, live: LiveSnapshot) -> None:
        """Take in a snapshot. One of another master, whose clock and log may differ, begins the history again."""
        if live.node != self._node:
            self._samples.clear()
            self._node = live.node
        self._samples.append(_Sample(live.at, {origin.node: origin.transactions for origin in live.origins}))
        while len(self._samples) > 2 and live.at - self._samples[0].at > self._seconds:
            self._samples.popleft()

    def rates(self, now: float) -> dict[str, float]:
        """By master, over the last three seconds before ``now`` (as the snapshots' ``at``). A master sends nothing
        while nothing changes, so a time without snapshots is one without transactions."""
        if not self._samples:
            return {}
        last = self._samples[-1]
        first = next((sample for sample in self._samples if now - sample.at <= RATE_WINDOW_S), last)
        took = max(now - first.at, RATE_WINDOW_S / 6)
        return {node: max(0, count - first.counts.get(node, 0)) / took for node, count in last.counts.items()}

    def totals(self, now: float, buckets: int) -> list[float]:
        """The rate of all masters in each of ``buckets`` equal parts of the window before ``now``, oldest first."""
        found = [0.0] * buckets
        width = self._seconds / buckets
        for before, sample in pairwise(self._samples):
            place = buckets - 1 - int((now - sample.at) / width)
            if 0 <= place < buckets:
                found[place] += _grown(before, sample) / width
        return found


def _grown(first: _Sample, last: _Sample) -> int:
    return sum(max(0, count - first.counts.get(node, 0)) for node, count in last.counts.items())
