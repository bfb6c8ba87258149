"""``GET /txlog/synchro``: whether this master's view decides, which quorums are here, and what is undecided."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from txlog.config.durability_specs import to_rule_spec
from txlog.http.router import Request, Response, Route, json_response
from txlog.model.configuration import Configuration, Master
from txlog.model.errors import LogAhead, LogDiverged, LogNeedsRestore
from txlog.model.quorum import compute_needs, count_votes, format_quorum, meets_needs
from txlog.model.stamp import stamp_ms
from txlog.model.synchronous import GraphRule
from txlog.protocol.views.undecided import SynchronousStatus, UndecidedState, UndecidedStatus
from txlog.runtime.master_context import MasterContext
from txlog.wire.change_feed import FeedPosition, parse_feed_position

UNDECIDED_SHOWN_MAX = 1000
"""Undecided transactions in one answer, those of the log first."""


class SynchronousHandler:
    """``GET /txlog/synchro``, and the numbers for ``GET /metrics``."""

    def __init__(self, site: MasterContext) -> None:
        self._context = site

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [Route("GET", "/txlog/synchro", self.get)]

    async def get(self, request: Request, _: Mapping[str, str]) -> Response:
        """See :func:`describe_synchronous`. ``at=INDEX:HASH``: with ``undecidedAt``, what was undecided at this
        position. :class:`LogAhead`, :class:`LogDiverged`, :class:`LogNeedsRestore` where this log cannot tell."""
        at = request.query.get("at")
        if at is None:
            return json_response(self.describe())
        return json_response(self.describe() | {"undecidedAt": self._undecided_at(parse_feed_position(at, "at"))})

    def _undecided_at(self, at: FeedPosition) -> list[str]:
        log = self._context.status.log_state
        if log is None or log.synchronous.is_unused:
            return []
        stable = self._context.durability.executable.value
        if at.index > stable:
            raise LogAhead(f"index {at.index} is above this master's stable index {stable}; ask again later")
        if at.index < log.log_index.served_from:
            raise LogNeedsRestore(f"index {at.index} is below {log.log_index.served_from}, from which the log is kept")
        if at.hash not in (None, log.log_index.hash_at(at.index)):
            raise LogDiverged(f"index {at.index} has another hash in this log than {at.hash.hex()}: another branch")
        return [str(txid) for txid in log.synchronous.undecided_at(at.index, log.log_index)]

    def describe(self) -> dict[str, Any]:
        """See :func:`describe_synchronous`."""
        site = self._context
        limit = site.config.limits.synchronous_transactions
        return describe_synchronous(
            site.status.synchronous_status, site.status.configuration, site.config.node, time.time() * 1000, limit
        )


def describe_synchronous(
    found: SynchronousStatus | None, configuration: Configuration | None, node: str, now_ms: float, limit: int
) -> dict[str, Any]:
    """As the API shows it. ``found``: None in a cluster that has no synchronous transactions yet. ``limit``: how many
    of its own this master may leave undecided."""
    rules: Sequence[GraphRule] = [] if configuration is None else configuration.graphs
    electorate: Sequence[Master] = found.anchor.electorate if found is not None else []
    present = found.present if found is not None else []
    voters = {voter for voter, _ in found.anchor.voters} if found is not None else set[str]()
    undecided = found.undecided if found is not None else []
    ages = [max(0.0, now_ms - stamp_ms(one.transaction.stamp)) / 1000 for one in undecided]
    own = sum(one.transaction.txid.origin.node == node for one in undecided)
    return {
        "quorate": found is not None and found.quorate,
        "view": None if found is None else ".".join(map(str, found.view)),
        "anchor": None if found is None else ".".join(map(str, found.anchor.number)),
        "electorate": {
            "votes": count_votes(electorate, {m.node for m in electorate}),
            "here": count_votes(electorate, present),
            "masters": [
                {"node": m.node, "votes": m.weight, "here": m.node in present, "counts": m.node in voters}
                for m in electorate
            ],
        },
        "graphs": [_describe_rule(rule, electorate, present, found is not None and found.quorate) for rule in rules],
        "queue": {
            "undecided": len(undecided),
            "own": own,
            "limit": limit,
            "oldestSeconds": round(max(ages, default=0.0), 3),
            "doomed": sum(one.state is UndecidedState.DOOMED for one in undecided),
        },
        "undecided": [
            describe_undecided(one) | {"ageSeconds": round(age, 3)}
            for one, age in list(zip(undecided, ages, strict=True))[:UNDECIDED_SHOWN_MAX]
        ],
    }


def describe_undecided(one: UndecidedStatus) -> dict[str, Any]:
    """One undecided transaction. ``held``: the members that are known to hold it."""
    found = one.transaction
    return {
        "txid": str(found.txid),
        "owner": found.txid.origin.node,
        "index": found.log_index or None,
        "quorum": format_quorum(found.key.quorum),
        "needs": one.needs.votes,
        "held": one.holders,
        "late": one.is_late,
        "state": one.state.value,
    }


def _describe_rule(
    rule: GraphRule, electorate: Sequence[Master], present: Sequence[str], quorate: bool
) -> dict[str, Any]:
    needs = compute_needs(rule.quorum, electorate)
    return to_rule_spec(rule) | {
        "needs": needs.votes,
        "asked": needs.asked,
        "here": count_votes(electorate, present),
        "reached": quorate and meets_needs(needs, electorate, present),
    }
