"""Quorum expressions: what they mean, and that any two quorums of an electorate share a master."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.model.configuration import Master
from txlog.model.errors import BadInput
from txlog.model.quorum import (
    ALL,
    MAJORITY,
    Quorum,
    QuorumForm,
    QuorumNeeds,
    QuorumTerm,
    compute_needs,
    count_votes,
    find_half_of_votes,
    format_quorum,
    implies_quorum,
    join_quorums,
    meets_needs,
    parse_quorum,
)


def _masters(*sites: tuple[str, int]) -> list[Master]:
    return [Master(f"{site}-{at}", site, weight) for at, (site, weight) in enumerate(sites)]


FIVE = _masters(("uk", 1), ("uk", 1), ("us", 1), ("us", 1), ("de", 1))


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("N/2+1", QuorumNeeds(3, 5)),
        ("N-1", QuorumNeeds(4, 5)),
        ("all", QuorumNeeds(5, 5)),
        ("N", QuorumNeeds(5, 5)),
        ("4", QuorumNeeds(4, 5)),
        ("2", QuorumNeeds(3, 5, asked=2)),
        ("9", QuorumNeeds(5, 5, asked=9)),
        ("D/2+1", QuorumNeeds(3, 5, centers=2)),
        ("D", QuorumNeeds(3, 5, centers=3)),
        ("4&D/2+1", QuorumNeeds(4, 5, centers=2)),
        ("D/2+1&D", QuorumNeeds(3, 5, centers=3)),
        ("2 & N-1", QuorumNeeds(4, 5, asked=2)),
    ],
)
def test_what_an_expression_needs_of_five_masters(text: str, needs: QuorumNeeds) -> None:
    assert compute_needs(parse_quorum(text), FIVE) == needs


@pytest.mark.parametrize(
    ("sites", "text", "votes"),
    [
        ([("uk", 1)], "N-1", 1),
        ([("uk", 1), ("us", 1)], "N/2+1", 2),
        ([("uk", 1), ("us", 1)], "N-1", 2),
        ([("uk", 3), ("us", 1), ("de", 0)], "N/2+1", 3),
        ([("uk", 3), ("us", 2), ("de", 2)], "N-1", 6),
    ],
)
def test_votes_are_weights(sites: list[tuple[str, int]], text: str, votes: int) -> None:
    assert compute_needs(parse_quorum(text), _masters(*sites)).votes == votes


def test_a_data_centre_counts_with_more_than_half_of_its_votes() -> None:
    needs = compute_needs(parse_quorum("D"), FIVE)
    assert meets_needs(needs, FIVE, {"uk-0", "uk-1", "us-2", "us-3", "de-4"})
    assert not meets_needs(needs, FIVE, {"uk-0", "uk-1", "us-2", "us-3"})
    assert not meets_needs(needs, FIVE, {"uk-0", "us-2", "us-3", "de-4"}), "half of the uk is not more than half"
    most = compute_needs(parse_quorum("D/2+1"), FIVE)
    assert meets_needs(most, FIVE, {"uk-0", "uk-1", "de-4"})
    assert not meets_needs(most, FIVE, {"uk-0", "us-2", "de-4"})


def test_data_centres_without_votes_do_not_count() -> None:
    masters = _masters(("uk", 1), ("us", 1), ("de", 1), ("fr", 0))
    assert compute_needs(parse_quorum("D"), masters).centers == 3
    assert meets_needs(compute_needs(parse_quorum("D"), masters), masters, {"uk-0", "us-1", "de-2"})


def test_nobody_is_a_quorum_of_an_electorate_without_votes() -> None:
    masters = _masters(("uk", 0))
    assert not meets_needs(compute_needs(ALL, masters), masters, {"uk-0"})
    assert not meets_needs(compute_needs(MAJORITY, []), [], set())


@pytest.mark.parametrize(
    "text", ["N/2", "2*N", "0", "D+1", "", "&", "N/2+1&", "n/2+1", "-1", "ALL", "1.5", "N - 1", "٣"]
)
def test_what_is_no_quorum_is_refused_with_the_grammar(text: str) -> None:
    with pytest.raises(BadInput, match=r"N/2.1, N-1, all, a number from 1 on, D/2.1 or D, joined with &"):
        parse_quorum(text)


def test_a_number_of_any_length_is_bounded() -> None:
    assert parse_quorum("9" * 18).terms[0].votes == 64_000
    with pytest.raises(BadInput):
        parse_quorum("9" * 5_000)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [("N", "all"), ("D & N-1", "N-1&D"), ("2&4&3", "4"), ("N/2+1&D", "D"), ("N/2+1 & N/2+1", "N/2+1")],
)
def test_one_text_for_one_quorum(text: str, canonical: str) -> None:
    assert format_quorum(parse_quorum(text)) == canonical


def test_a_master_with_half_of_the_votes_is_found_among_three_or_more() -> None:
    assert find_half_of_votes(_masters(("uk", 2), ("us", 1), ("de", 1))) == Master("uk-0", "uk", 2)
    assert find_half_of_votes(_masters(("uk", 1), ("us", 1), ("de", 1))) is None
    assert find_half_of_votes(_masters(("uk", 1), ("us", 1))) is None
    assert find_half_of_votes(_masters(("uk", 1), ("us", 1), ("de", 0))) is None


TERMS = st.one_of(
    st.sampled_from([QuorumTerm(form) for form in QuorumForm if form is not QuorumForm.VOTES]),
    st.integers(1, 12).map(lambda votes: QuorumTerm(QuorumForm.VOTES, votes)),
)
QUORUMS = st.lists(TERMS, min_size=1, max_size=4).map(lambda terms: join_quorums([Quorum((term,)) for term in terms]))
ELECTORATES = st.lists(st.tuples(st.sampled_from(["uk", "us", "de"]), st.integers(0, 3)), min_size=1, max_size=7).map(
    lambda sites: _masters(*sites)
)


@given(ELECTORATES, QUORUMS, QUORUMS, st.data())
def test_two_quorums_share_a_master_that_has_votes(
    electorate: list[Master], one: Quorum, other: Quorum, data: st.DataObject
) -> None:
    nodes = [master.node for master in electorate]
    first = data.draw(st.sets(st.sampled_from(nodes)))
    second = data.draw(st.sets(st.sampled_from(nodes)).map(lambda more: more | (set(nodes) - first)))
    if meets_needs(compute_needs(one, electorate), electorate, first) and meets_needs(
        compute_needs(other, electorate), electorate, second
    ):
        assert count_votes(electorate, first & second) > 0


@given(ELECTORATES, QUORUMS)
def test_each_quorum_is_more_than_half_and_all_masters_are_one(electorate: list[Master], quorum: Quorum) -> None:
    needs = compute_needs(quorum, electorate)
    if needs.total:
        assert needs.total // 2 < needs.votes <= needs.total
        assert meets_needs(needs, electorate, {master.node for master in electorate})


@given(ELECTORATES, QUORUMS, QUORUMS, st.data())
def test_a_joined_quorum_holds_where_both_hold(
    electorate: list[Master], one: Quorum, other: Quorum, data: st.DataObject
) -> None:
    holders = data.draw(st.sets(st.sampled_from([master.node for master in electorate])))

    def holds(quorum: Quorum) -> bool:
        return meets_needs(compute_needs(quorum, electorate), electorate, holders)

    assert holds(join_quorums([one, other])) == (holds(one) and holds(other))


@given(ELECTORATES, QUORUMS, QUORUMS, st.data())
def test_an_implied_quorum_holds_where_the_stronger_one_holds(
    electorate: list[Master], one: Quorum, other: Quorum, data: st.DataObject
) -> None:
    holders = data.draw(st.sets(st.sampled_from([master.node for master in electorate])))

    def holds(quorum: Quorum) -> bool:
        return meets_needs(compute_needs(quorum, electorate), electorate, holders)

    assert implies_quorum(join_quorums([one, other]), one)
    if implies_quorum(one, other) and holds(one):
        assert holds(other)


@pytest.mark.parametrize(
    ("strong", "weak", "is_implied"),
    [
        ("all", "N-1", True),
        ("all", "60", True),
        ("all", "D&N-1", True),
        ("5", "4", True),
        ("4", "5", False),
        ("4", "N/2+1", True),
        ("D", "D/2+1", True),
        ("D/2+1", "D", False),
        ("N-1", "all", False),
        ("N-1", "2", False),
        ("N/2+1", "D/2+1", False),
        ("N-1&D/2+1", "D/2+1", True),
    ],
)
def test_which_quorums_imply_others(strong: str, weak: str, is_implied: bool) -> None:
    assert implies_quorum(parse_quorum(strong), parse_quorum(weak)) == is_implied


@given(QUORUMS)
def test_the_text_of_a_quorum_is_read_back(quorum: Quorum) -> None:
    assert parse_quorum(format_quorum(quorum)) == quorum
