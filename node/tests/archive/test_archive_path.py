"""Which files follow each other, by their names alone."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from log_pieces import START

from txlog.archive.file_name import FileName, Node
from txlog.archive.path import find_missing, find_paths
from txlog.model.hashes import short_hash


def at(index: int, branch: str = "") -> Node:
    return START if index == 0 else Node(index, short_hash(f"{index}{branch}".encode()))


def file(start: Node, end: Node, attempt: int = 0) -> FileName:
    return FileName(start.index + 1, end.index, start.hash, end.hash, attempt)


A, B, C = file(at(0), at(5)), file(at(5), at(9)), file(at(9), at(12))


def test_files_are_linked_by_index_and_hash() -> None:
    found = find_paths([C, A, B], [START])
    assert found.heads == [at(12)]
    assert found.path_to(at(12)) == [A, B, C]
    assert found.nodes_to(at(12)) == [START, at(5), at(9), at(12)]
    assert found.unreached == []
    other = file(at(9, "other"), at(12))
    found = find_paths([A, B, other], [START])
    assert (found.heads, found.unreached, find_missing(found)) == ([at(9)], [other], [at(9, "other")])


def test_nothing_is_a_path_to_the_start() -> None:
    found = find_paths([], [START])
    assert (found.heads, found.path_to(START), found.nodes_to(START)) == ([START], [], [START])


def test_what_is_behind_a_missing_file_is_not_reached() -> None:
    found = find_paths([A, C], [START])
    assert (found.heads, found.unreached) == ([at(5)], [C])
    assert find_missing(found) == [at(9)]
    found = find_paths([A, C], [START, at(9)])  # a gap that is recorded
    assert (found.heads, found.path_to(at(12))) == ([at(12), at(5)], [C])


def test_files_of_two_archivers_overlap_and_the_longest_are_preferred() -> None:
    short = [file(at(0), at(3)), file(at(3), at(5)), file(at(5), at(7)), file(at(7), at(12)), file(at(3), at(7))]
    found = find_paths([*short, A, B, C], [START])
    assert found.heads == [at(12)]
    assert found.path_to(at(12)) == [file(at(0), at(3)), file(at(3), at(7)), file(at(7), at(12))]
    assert found.path_to(at(5)) == [A]


def test_a_damaged_file_is_passed_over() -> None:
    again, cut = B._replace(attempt=1), [file(at(5), at(7)), file(at(7), at(9))]
    assert find_paths([A, B, again, C], [START]).path_to(at(12)) == [A, B, C]
    assert find_paths([A, B, again, C], [START], {B}).path_to(at(12)) == [A, again, C]
    assert find_paths([A, B, *cut, C], [START], {B}).path_to(at(12)) == [A, *cut, C]
    assert find_paths([A, B, C], [START], {B}).heads == [at(5)]


def test_two_branches_have_two_heads() -> None:
    left, right = file(at(9), at(20, "left")), file(at(9), at(15, "right"))
    found = find_paths([A, B, left, right], [START])
    assert found.heads == [at(20, "left"), at(15, "right")]
    assert found.path_to(at(15, "right")) == [A, B, right]


@settings(deadline=None)
@given(seed=st.integers(0, 1 << 32), length=st.integers(1, 40), archivers=st.integers(1, 3))
def test_whatever_is_taken_away_a_path_is_whole(seed: int, length: int, archivers: int) -> None:
    """Several archivers with cuts of their own, then files go: each path found is without a hole, and it reaches as far
    as any chain of the files that are left."""
    chance = random.Random(seed)
    names: list[FileName] = []
    for _ in range(archivers):
        cuts = sorted({0, length, *(chance.randrange(length + 1) for _ in range(length // 3))})
        names += [file(at(first), at(last)) for first, last in pairwise(cuts)]
    left = [name for name in names if chance.random() < 0.8]
    chance.shuffle(left)
    damaged = {name for name in left if chance.random() < 0.1}
    found = find_paths(left, [START], damaged)
    reachable = {0}
    for index in range(length + 1):
        if index in reachable:
            reachable |= {name.last for name in left if name.first == index + 1 and name not in damaged}
    assert {node.index for node in found.reached} == reachable
    assert found.heads[0].index == max(reachable)
    for head in found.heads:
        nodes = found.nodes_to(head)
        assert nodes[0] == START
        assert [(name.start, name.end) for name in found.path_to(head)] == list(pairwise(nodes))
