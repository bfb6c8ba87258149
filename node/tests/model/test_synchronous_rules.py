"""Rules about graphs, what a request asks for, and the terms of a transaction."""

from __future__ import annotations

import pytest

from txlog.model.configuration import Master
from txlog.model.errors import BadInput
from txlog.model.graph_set import EVERY_GRAPH, NO_GRAPH, GraphSet, WrittenGraphs, unite_graphs
from txlog.model.quorum import ALL, MAJORITY, parse_quorum
from txlog.model.synchronous import (
    NO_REQUEST,
    NO_TIMEOUT,
    TIMEOUT_MS_DEFAULT,
    GraphRule,
    SynchronousRequest,
    SynchronousTerms,
    check_rules,
    compute_terms,
    find_rules,
    parse_request,
    parse_rule,
    refine_request,
)

THREE = [Master(f"{site}-1", site, 1) for site in ("uk", "us", "de")]
ACCOUNTS = parse_rule("http://ex.org/accounts/*", "N/2+1", 30_000)
LEGAL = parse_rule("http://ex.org/legal", "D/2+1", 10_000)
PLAIN = parse_rule("default", "all", NO_TIMEOUT)
RULES = (ACCOUNTS, LEGAL, PLAIN)


def _named(*iris: str) -> GraphSet:
    return GraphSet(frozenset(iris))


@pytest.mark.parametrize(
    ("written", "rules"),
    [
        (_named("http://ex.org/accounts/7"), (ACCOUNTS,)),
        (_named("http://ex.org/accounts"), ()),
        (_named("http://ex.org/legal"), (LEGAL,)),
        (_named("http://ex.org/legal/2"), ()),
        (_named("default"), ()),
        (GraphSet(default=True), (PLAIN,)),
        (GraphSet(frozenset(["http://ex.org/legal"]), default=True), (LEGAL, PLAIN)),
        (EVERY_GRAPH, RULES),
        (NO_GRAPH, ()),
    ],
)
def test_which_rules_a_transaction_touches(written: WrittenGraphs, rules: tuple[GraphRule, ...]) -> None:
    assert find_rules(written, RULES) == rules


def test_a_prefix_ends_where_it_ends() -> None:
    rule = parse_rule("http://ex.org/a*")
    assert find_rules(_named("http://ex.org/ab"), [rule]) == (rule,)
    assert find_rules(_named("http://ex.org/b"), [rule]) == ()


def test_graphs_of_several_operations_unite() -> None:
    assert unite_graphs(_named("x:a"), GraphSet(frozenset(["x:b"]), default=True)) == GraphSet(
        frozenset(["x:a", "x:b"]), default=True
    )
    assert unite_graphs(EVERY_GRAPH, _named("x:a")) == EVERY_GRAPH
    assert unite_graphs(_named("x:a"), EVERY_GRAPH) == EVERY_GRAPH


def test_all_quorums_and_the_least_timeout_of_several_rules() -> None:
    assert compute_terms(EVERY_GRAPH, RULES) == SynchronousTerms(
        parse_quorum("all&D/2+1"), 10_000, tuple(rule.match for rule in RULES)
    )
    assert compute_terms(GraphSet(default=True), RULES) == SynchronousTerms(
        parse_quorum("all"), NO_TIMEOUT, ("default",)
    )


def test_a_request_asks_for_more() -> None:
    wish = parse_request("N-1", 5_000)
    assert compute_terms(_named("http://ex.org/legal"), RULES, wish) == SynchronousTerms(
        parse_quorum("N-1&D/2+1"), 5_000, ("http://ex.org/legal",)
    )
    longer = parse_request("true", 60_000)
    assert compute_terms(_named("http://ex.org/legal"), RULES, longer) == SynchronousTerms(
        parse_quorum("D/2+1"), 10_000, ("http://ex.org/legal",)
    )
    assert compute_terms(GraphSet(default=True), RULES, parse_request("true", 5_000)) == SynchronousTerms(
        parse_quorum("all"), 5_000, ("default",)
    )


def test_a_request_without_a_rule() -> None:
    assert compute_terms(_named("x:g"), RULES) is None
    assert compute_terms(_named("x:g"), RULES, parse_request("false")) is None
    assert compute_terms(_named("x:g"), (), parse_request("true")) == SynchronousTerms(MAJORITY, TIMEOUT_MS_DEFAULT)


def test_no_request_gets_less_than_a_rule() -> None:
    with pytest.raises(BadInput, match=r"synchronous=false: the rule of http://ex.org/legal asks for D/2\+1"):
        compute_terms(_named("http://ex.org/legal"), RULES, parse_request("false"))
    with pytest.raises(BadInput, match="timeout without a synchronous transaction"):
        compute_terms(_named("x:g"), RULES, parse_request("", 5_000))


def test_what_a_request_may_say() -> None:
    assert parse_request("") == NO_REQUEST
    assert parse_request("true") == SynchronousRequest(MAJORITY)
    assert parse_request("false").declined
    with pytest.raises(BadInput, match="'maybe': expected true, false, or a quorum: N/2"):
        parse_request("maybe")
    with pytest.raises(BadInput, match="expected 100ms to 24h"):
        parse_request("true", 99)
    with pytest.raises(BadInput, match="takes no timeout"):
        parse_request("false", 1_000)


@pytest.mark.parametrize(
    ("whole", "part", "asked"),
    [
        (SynchronousRequest(ALL), SynchronousRequest(None, 10_000), SynchronousRequest(ALL, 10_000)),
        (SynchronousRequest(ALL, 5_000), SynchronousRequest(None, 10_000), SynchronousRequest(ALL, 10_000)),
        (SynchronousRequest(ALL, 5_000), SynchronousRequest(MAJORITY), SynchronousRequest(MAJORITY, 5_000)),
        (SynchronousRequest(ALL, 5_000), SynchronousRequest(MAJORITY, 1_000), SynchronousRequest(MAJORITY, 1_000)),
        (SynchronousRequest(ALL, 5_000), parse_request("false"), parse_request("false")),
        (parse_request("false"), SynchronousRequest(None, 10_000), SynchronousRequest(None, 10_000)),
        (SynchronousRequest(ALL, 5_000), NO_REQUEST, SynchronousRequest(ALL, 5_000)),
        (NO_REQUEST, SynchronousRequest(ALL), SynchronousRequest(ALL)),
    ],
)
def test_a_part_of_a_request_replaces_what_it_names(
    whole: SynchronousRequest, part: SynchronousRequest, asked: SynchronousRequest
) -> None:
    assert refine_request(whole, part) == asked


@pytest.mark.parametrize(
    ("match", "why"),
    [
        ("accounts", "expected an IRI with its scheme"),
        ("*", "expected an IRI with its scheme"),
        ("", "expected an IRI with its scheme"),
        ("Default", "expected an IRI with its scheme"),
        ("http://ex.org/*/x", "at the end only"),
        ("http://ex.org/**", "at the end only"),
        ("http://ex.org/a b", "U.0020 is not allowed"),
        ("<http://ex.org/a>", "expected an IRI with its scheme"),
        ("http://ex.org/a\n", "U.000A is not allowed"),
        ("urn:txlog:system", "belong to TxLog"),
        ("urn:txlog:system:*", "belong to TxLog"),
    ],
)
def test_a_match_that_names_no_graph_is_refused(match: str, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        parse_rule(match)


@pytest.mark.parametrize(("timeout_ms", "fits"), [(0, True), (100, True), (86_400_000, True), (99, False), (-1, False)])
def test_the_bounds_of_a_timeout(timeout_ms: int, fits: bool) -> None:
    if fits:
        assert parse_rule("x:g", timeout_ms=timeout_ms).timeout_ms == timeout_ms
        return
    with pytest.raises(BadInput, match="100ms to 24h"):
        parse_rule("x:g", timeout_ms=timeout_ms)


def test_a_timeout_above_a_day_is_refused() -> None:
    with pytest.raises(BadInput, match="100ms to 24h"):
        parse_rule("x:g", timeout_ms=86_400_001)


def test_rules_that_cannot_hold_are_refused() -> None:
    check_rules(RULES, THREE, workers_go_back=True)
    check_rules((), [Master("uk-1", "uk", 5), *THREE], workers_go_back=False)
    with pytest.raises(BadInput, match="splitRecovery None"):
        check_rules(RULES, THREE, workers_go_back=False)
    with pytest.raises(BadInput, match="uk-9 has 3 of 6 votes"):
        check_rules(RULES, [*THREE, Master("uk-9", "uk", 3)], workers_go_back=True)
    with pytest.raises(BadInput, match=r"two rules match http://ex.org/legal"):
        check_rules((LEGAL, LEGAL), THREE, workers_go_back=True)
    with pytest.raises(BadInput, match=r"x:g: quorum 1 is less than half of 3 votes; the least is 2"):
        check_rules((parse_rule("x:g", "1"),), THREE, workers_go_back=True)
    check_rules((parse_rule("x:g", "2"), parse_rule("x:h", "7")), THREE, workers_go_back=True)


def test_one_or_two_masters_may_have_rules() -> None:
    check_rules(RULES, THREE[:1], workers_go_back=True)
    check_rules(RULES, THREE[:2], workers_go_back=True)
