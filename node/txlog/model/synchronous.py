"""Which transactions are synchronous: rules about graphs, what a request asks for, and the terms that follow.

A synchronous transaction takes effect only where a quorum of the masters holds it durably. A rule asks for a quorum
for the graphs that it matches. A request can ask for more than the rules, and never for less.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from txlog.model.errors import BadInput
from txlog.model.graph_set import SYSTEM_GRAPH_PREFIX, EveryGraph, WrittenGraphs
from txlog.model.quorum import (
    GRAMMAR,
    MAJORITY,
    Quorum,
    QuorumForm,
    compute_needs,
    find_half_of_votes,
    format_quorum,
    join_quorums,
    parse_quorum,
)

if TYPE_CHECKING:
    from txlog.model.configuration import Master

GRAPH_RULES_MAX: Final = 64
MATCH_CHARACTERS_MAX: Final = 500
DEFAULT_GRAPH: Final = "default"
"""The ``match`` of the default graph."""
TIMEOUT_MS_DEFAULT: Final = 30_000
TIMEOUT_MS_MIN: Final = 100
TIMEOUT_MS_MAX: Final = 24 * 3600 * 1000
NO_TIMEOUT: Final = 0
"""A time-out of 0: it may stay undecided for ever."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
_NOT_IN_IRI = re.compile(r'[<>"{}|^`\\\x00-\x20]')


class GraphRule(msgspec.Struct, frozen=True):
    """``match``: an IRI, a prefix with ``*`` at its end, or ``default``. ``timeout_ms``: how long a transaction may
    stay undecided and still take effect."""

    match: str
    quorum: Quorum = MAJORITY
    timeout_ms: int = TIMEOUT_MS_DEFAULT


class SynchronousRequest(msgspec.Struct, frozen=True):
    """What a client asks for. ``quorum``: None without a wish. ``declined``: it says that the transaction is not to be
    synchronous."""

    quorum: Quorum | None = None
    timeout_ms: int | None = None
    declined: bool = False


NO_REQUEST: Final = SynchronousRequest()


class SynchronousTerms(msgspec.Struct, frozen=True):
    """Under which terms one transaction takes effect. ``matches``: of the rules that ask for it."""

    quorum: Quorum
    timeout_ms: int
    matches: tuple[str, ...] = ()


def parse_rule(match: str, quorum: str = "N/2+1", timeout_ms: int = TIMEOUT_MS_DEFAULT) -> GraphRule:
    """One rule of a manifest. :class:`BadInput` names the part that is wrong."""
    return GraphRule(_check_match(match), parse_quorum(quorum), check_timeout(timeout_ms))


def _check_match(match: str) -> str:
    shown = repr(match[:200])
    if match == DEFAULT_GRAPH:
        return match
    if len(match) > MATCH_CHARACTERS_MAX:
        raise BadInput(f"match {shown}...: more than {MATCH_CHARACTERS_MAX} characters")
    name = match.removesuffix("*")
    if "*" in name:
        raise BadInput(f"match {shown}: * is allowed at the end only, where it makes the rest a prefix")
    if not _SCHEME.match(name):
        raise BadInput(f"match {shown}: expected an IRI with its scheme, a prefix of one with * at the end, or default")
    bad = _NOT_IN_IRI.search(name)
    if bad is not None:
        raise BadInput(f"match {shown}: U+{ord(bad[0]):04X} is not allowed in an IRI")
    if name.startswith(SYSTEM_GRAPH_PREFIX):
        raise BadInput(f"match {shown}: graphs that begin with {SYSTEM_GRAPH_PREFIX} belong to TxLog")
    return match


def check_timeout(timeout_ms: int) -> int:
    """The time-out. :class:`BadInput` outside of 100 ms to 24 h; 0 is none."""
    if timeout_ms != NO_TIMEOUT and not TIMEOUT_MS_MIN <= timeout_ms <= TIMEOUT_MS_MAX:
        raise BadInput(f"timeout of {timeout_ms} ms: expected 100ms to 24h, or 0 for none")
    return timeout_ms


def parse_request(asked: str, timeout_ms: int | None = None) -> SynchronousRequest:
    """``true``, ``false`` or a quorum, as a client sends it; ``""``: it sent a time-out alone. :class:`BadInput`."""
    if timeout_ms is not None:
        check_timeout(timeout_ms)
    if asked == "false" and timeout_ms is not None:
        raise BadInput("synchronous=false takes no timeout")
    if asked in ("", "false"):
        return SynchronousRequest(None, timeout_ms, asked == "false")
    if asked == "true":
        return SynchronousRequest(MAJORITY, timeout_ms)
    try:
        return SynchronousRequest(parse_quorum(asked), timeout_ms)
    except BadInput:
        raise BadInput(f"synchronous {asked[:80]!r}: expected true, false, or a quorum: {GRAMMAR}") from None


def refine_request(whole: SynchronousRequest, part: SynchronousRequest) -> SynchronousRequest:
    """What a part of a request asks for, such as a line or a commit. It replaces what the whole request asks for, but a
    part that names only a time-out keeps the quorum, and one that names only a quorum keeps the time-out."""
    if part.quorum is not None:
        return part if part.timeout_ms is not None else SynchronousRequest(part.quorum, whole.timeout_ms)
    if part.declined or whole.quorum is None:
        return whole if part == NO_REQUEST else part
    return SynchronousRequest(whole.quorum, whole.timeout_ms if part.timeout_ms is None else part.timeout_ms)


def check_rules(rules: Sequence[GraphRule], electorate: Sequence[Master], *, workers_go_back: bool) -> None:
    """Refuse rules that are set and cannot hold in this electorate. ``workers_go_back``: false under the split recovery
    ``None``, whose workers keep what the other side never had. :class:`BadInput`."""
    if not rules:
        return
    if not workers_go_back:
        raise BadInput("graphs with a quorum need workers that go back to one order: splitRecovery None has none")
    problem = find_rule_problem(rules, electorate)
    if problem:
        raise BadInput(problem)
    for rule in rules:
        needs = compute_needs(rule.quorum, electorate)
        numbers = [term.votes for term in rule.quorum.terms if term.form is QuorumForm.VOTES]
        if numbers and numbers[0] < needs.total // 2 + 1:
            raise BadInput(
                f"{rule.match}: quorum {numbers[0]} is less than half of {needs.total} votes; the least is"
                f" {needs.total // 2 + 1} (N/2+1)"
            )


def find_rule_problem(rules: Sequence[GraphRule], electorate: Sequence[Master]) -> str:
    """Why no configuration has these rules and this electorate; empty where one may. A number of votes that is too low
    is no reason: masters that were added since may have made it so, and it counts as N/2+1."""
    if len(rules) > GRAPH_RULES_MAX:
        return f"{len(rules)} rules for graphs: at most {GRAPH_RULES_MAX}"
    half = find_half_of_votes(electorate) if rules else None
    if half is not None:
        return (
            f"{half.node} has {half.weight} of {sum(master.weight for master in electorate)} votes: where graphs have a"
            " quorum, each of three or more masters needs less than half"
        )
    seen = set[str]()
    for rule in rules:
        if rule.match in seen:
            return f"two rules match {rule.match}: join their quorums with &"
        seen.add(rule.match)
        try:
            _check_match(rule.match)
            check_timeout(rule.timeout_ms)
            if parse_quorum(format_quorum(rule.quorum)) != rule.quorum:
                return f"{rule.match}: {format_quorum(rule.quorum)!r} is written in another order"
        except BadInput as wrong:
            return str(wrong)
    return ""


def find_rules(written: WrittenGraphs, rules: Iterable[GraphRule]) -> tuple[GraphRule, ...]:
    """The rules that a transaction touches. One that may write every graph touches all."""
    return tuple(rule for rule in rules if _is_touched(rule, written))


def _is_touched(rule: GraphRule, written: WrittenGraphs) -> bool:
    if isinstance(written, EveryGraph):
        return True
    if rule.match == DEFAULT_GRAPH:
        return written.default
    if rule.match.endswith("*"):
        return any(graph.startswith(rule.match[:-1]) for graph in written.named)
    return rule.match in written.named


def compute_terms(
    written: WrittenGraphs, rules: Iterable[GraphRule], request: SynchronousRequest = NO_REQUEST
) -> SynchronousTerms | None:
    """The terms of a transaction: all quorums together, the least time-out. None: it is an ordinary one.
    :class:`BadInput` where the request asks for less than a rule, or gives a time-out to an ordinary one."""
    found = find_rules(written, rules)
    matches = tuple(rule.match for rule in found)
    if request.declined and found:
        raise BadInput(f"synchronous=false: the rule of {matches[0]} asks for {format_quorum(found[0].quorum)}")
    asked = [rule.quorum for rule in found]
    if request.quorum is not None:
        asked.append(request.quorum)
    if not asked:
        if request.timeout_ms is not None:
            raise BadInput(
                "timeout without a synchronous transaction: add synchronous=true, or write a graph with a rule"
            )
        return None
    timeouts = [rule.timeout_ms for rule in found]
    if request.timeout_ms is not None:
        timeouts.append(request.timeout_ms)
    quorum = asked[0] if len(asked) == 1 else join_quorums(asked)
    return SynchronousTerms(quorum, least_timeout(timeouts), matches)


def least_timeout(timeouts: Sequence[int]) -> int:
    """The one that counts of several time-outs: none where each of them is none; the default without any."""
    if not timeouts:
        return TIMEOUT_MS_DEFAULT
    return min((timeout for timeout in timeouts if timeout != NO_TIMEOUT), default=NO_TIMEOUT)
