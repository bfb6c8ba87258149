"""The metrics of synchronous transactions."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Any, Final

from txlog.protocol.log.synchronous_effects import LAG_BOUNDS_MS
from txlog.runtime.master_context import MasterContext
from txlog.server.admin.metric_families import counter, counters, gauge, gauges, histogram
from txlog.server.admin.synchronous_view import SynchronousHandler

REFUSALS: Final = ("NoQuorum", "SynchroNone", "SynchroFull")
"""Reasons for which only synchronous transactions are refused."""


class SynchronousMetrics:
    """Quorums, undecided transactions and decisions. Commits are counted from the start of this process."""

    def __init__(self, site: MasterContext, view: SynchronousHandler) -> None:
        self._context = site
        self._view = view
        log = site.status.log_state
        self._before = list(log.synchronous.commits.by_lag) if log is not None else [0] * (len(LAG_BOUNDS_MS) + 1)
        """What recovery has read again."""
        self._lag_ms_before = log.synchronous.commits.lag_ms if log is not None else 0

    def collect(self) -> Iterable[Any]:
        """Nothing in a cluster that has no synchronous transactions."""
        found = self._view.describe()
        if found["anchor"] is None and not found["graphs"]:
            return
        yield gauge("view_quorate", "1 while this master decides about synchronous transactions", found["quorate"])
        queue = found["queue"]
        yield gauge("synchro_undecided", "synchronous transactions without a decision", queue["undecided"])
        yield gauge("synchro_undecided_bytes", "payload of this master's own undecided ones", queue["bytes"])
        yield gauge("synchro_oldest_seconds", "age of the oldest undecided one", queue["oldestSeconds"])
        yield gauge("synchro_doomed", "undecided ones that this view rolls back", queue["doomed"])
        for name, text in (("needs", "votes that the quorum of a rule needs"), ("here", "votes that are here")):
            values = {(rule["match"],): rule[name] for rule in found["graphs"]}
            yield gauges(f"synchro_{name}", text, ["match"], values)
        refused = self._context.loop.counts.refused
        by_reason = {(reason,): refused.get(reason, 0) for reason in REFUSALS}
        yield counters("synchro_refused", "refused by this master; nothing was logged", ["reason"], by_reason)
        yield from self._decisions()

    def _decisions(self) -> Iterable[Any]:
        log = self._context.status.log_state
        if log is None:
            return
        commits = log.synchronous.commits
        by_lag = [max(0, now - old) for now, old in zip(commits.by_lag, self._before, strict=True)]
        yield counter("synchro_commits", "that took effect in this master's log since its start", sum(by_lag))
        yield counter("synchro_rollbacks", "rolled back in this master's log", len(log.synchronous.limbo.rolled_back))
        bounds = [*(f"{bound / 1000:g}" for bound in LAG_BOUNDS_MS), "+Inf"]
        text = "from the acceptance of a synchronous transaction to its COMMIT"
        lag_s = max(0, commits.lag_ms - self._lag_ms_before) / 1000
        yield histogram("synchro_commit_lag_seconds", text, list(zip(bounds, accumulate(by_lag), strict=True)), lag_s)
        slot = log.slots.get(log.own.origin)
        status = self._context.status
        peers = {node: status.peer(node) for node in self._context.other_nodes} if slot is not None else {}
        held = {
            (node,): float(peer.held_seq(slot)) for node, peer in peers.items() if peer is not None and slot is not None
        }
        text = "the last transaction of this master that another one is known to hold"
        yield gauges("synchro_held_seq", text, ["node"], held)
