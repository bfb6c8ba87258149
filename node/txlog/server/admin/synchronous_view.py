"""``/txlog/synchro``: whether this master's view decides, which quorums are here, and what is undecided. And the
operator's override for votes that are lost for good."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from txlog.config.durability_specs import to_rule_spec
from txlog.http.router import Request, Response, Route, json_response, read_json
from txlog.model.anchor import Anchor
from txlog.model.configuration import Configuration, Master
from txlog.model.errors import BadInput, Conflict, LogAhead, LogDiverged, LogNeedsRestore
from txlog.model.ids import Origin, Txid
from txlog.model.quorum import MAJORITY, compute_needs, count_votes, format_quorum, meets_needs
from txlog.model.stamp import stamp_ms
from txlog.model.synchronous import GraphRule
from txlog.protocol.log.log_state import LogState
from txlog.protocol.views.undecided import SynchronousStatus, UndecidedState, UndecidedStatus
from txlog.runtime.master_context import MasterContext
from txlog.wire.change_feed import FeedPosition, parse_feed_position

UNDECIDED_SHOWN_MAX = 1000
"""Undecided transactions in one answer, those of the log first."""


_EXPECTED_ADOPTION = 'expected {"without": ["node", ...]}, masters that are lost for good, each once'


class AdoptVotesRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The masters whose votes are lost for good."""

    without: list[str]


class SynchronousHandler:
    """``/txlog/synchro``, and the numbers for ``GET /metrics``."""

    def __init__(self, site: MasterContext) -> None:
        self._context = site

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [Route("GET", "/txlog/synchro", self.get), Route("POST", "/txlog/synchro/adopt", self.adopt)]

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

    async def adopt(self, request: Request, _: Mapping[str, str]) -> Response:
        """``POST /txlog/synchro/adopt``: the operator gives up the votes of these masters, for good. The next view is
        judged as if they had had none; it follows soon after. 202: ``{"view", "without"}``, the view that is left. The
        override is in memory: after a restart of this process before that view it is given again."""
        without = (await read_json(request, AdoptVotesRequest, _EXPECTED_ADOPTION, 4096)).without
        if not without or len(set(without)) != len(without):
            raise BadInput(f"{_EXPECTED_ADOPTION}; got {without}")
        site = self._context
        found = site.status.synchronous_status
        if found is not None and not found.quorate:
            here = [site.config.node, *(node for node in site.other_nodes if site.status.is_reachable(node))]
            problem = find_adoption_problem(found.anchor, without, here)
            if problem:
                raise Conflict(problem)
        site.loop.give_up_votes(without)
        assert found is not None, "votes are given up in a cluster that has an anchor"
        view = ".".join(map(str, found.view))
        site.log.info("VotesGivenUp", view=view, without=without)
        return json_response({"view": view, "without": without}, 202)

    def describe(self) -> dict[str, Any]:
        """See :func:`describe_synchronous`."""
        site = self._context
        limit, log = site.config.limits.synchronous_transactions, site.status.log_state
        lag_ms = log.synchronous.commits.last_lag_ms if log is not None else 0
        found, configuration = site.status.synchronous_status, site.status.configuration
        return describe_synchronous(found, configuration, site.config.node, time.time() * 1000, limit, lag_ms)


def find_adoption_problem(anchor: Anchor, without: Collection[str], here: Collection[str]) -> str:
    """Why a view could not decide after these votes were given up: the masters ``here`` have no majority of the rest.
    Empty where they have one."""
    for electorate in (anchor.electorate, *anchor.under):
        rest = [master for master in electorate if master.node not in without]
        needs = compute_needs(MAJORITY, rest)
        if not meets_needs(needs, rest, here):
            silent = ", ".join(master.node for master in rest if master.weight and master.node not in here)
            votes = count_votes(rest, here)
            return (
                f"without {', '.join(without)} there are {needs.total} votes, and {votes} of them are here:"
                f" {needs.votes} are needed. Start {silent or 'a master that has a vote'}, or name every master that is"
                " lost for good"
            )
    return ""


def describe_synchronous(
    found: SynchronousStatus | None,
    configuration: Configuration | None,
    node: str,
    now_ms: float,
    limit: int,
    commit_lag_ms: int = 0,
) -> dict[str, Any]:
    """As the API shows it. ``found``: None in a cluster that has no synchronous transactions yet. ``limit``: how many
    of its own this master may leave undecided. ``commit_lag_ms``: from acceptance to COMMIT, of the last one."""
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
            "bytes": found.own_bytes if found is not None else 0,
            "commitLagSeconds": commit_lag_ms / 1000,
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


def find_decision(log: LogState, txid: Txid) -> Txid | None:
    """The COMMIT or ROLLBACK of a synchronous transaction, where it is in this log. None for one that is undecided,
    for a COMMIT before its transaction, and for a decision that the log start contains."""
    at = log.synchronous.effect_index(txid) or log.synchronous.rollback_index(txid)
    if at <= log.log_index.start or at > log.log_index.length:
        return None
    span = log.log_index.spans(at - 1, at)[0]
    found = Txid(Origin(span.node, span.birth), span.first_seq)
    return found if found != txid else None


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
