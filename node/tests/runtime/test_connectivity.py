"""Who hears whom: rows that travel through third masters, and what a matrix of them means."""

from __future__ import annotations

import pytest

from txlog.runtime.connectivity_matrix import ROW_TTL_S, ConnectivityMatrix, MatrixRows, diagnose

NODES = ("a", "b", "c")


def rows(**told: str | None) -> MatrixRows:
    return {node: frozenset(row) if row is not None else None for node, row in told.items()}


@pytest.mark.parametrize(
    ("matrix", "found"),
    [
        (rows(a="bc", b="ac", c="ab"), []),
        (rows(a="b", b="ac", c="ab"), [("one-way", ["c", "a"])]),
        (rows(a="b", b="ac", c="b"), [("cut", ["a", "c"])]),
        (rows(a="bc", b="ac", c=""), [("deaf", ["c"])]),
        (rows(a="b", b="a", c="ab"), [("mute", ["c"])]),
        (rows(a="b", b="a", c=None), [("silent", ["c"])]),
        (rows(a="", b=None, c=None), [("silent", ["a"])]),
        (rows(a="", b="a"), [("one-way", ["b", "a"])]),
        (rows(a="b", b=None), []),
        (rows(a="bcd", b="cd", c="abd", d="abc"), [("one-way", ["a", "b"])]),
        (rows(a="bcd", b="acd", c="", d="abc"), [("deaf", ["c"])]),
        (rows(a="", b="", c="ab"), [("mute", ["c"]), ("cut", ["a", "b"])]),
    ],
)
def test_a_fault_is_named_once_and_a_master_before_its_links(
    matrix: MatrixRows, found: list[tuple[str, list[str]]]
) -> None:
    said = diagnose(matrix)
    assert [(one.kind, one.nodes) for one in said] == found
    assert all(node in one.text for one in said for node in one.nodes)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def made(node: str, clock: Clock, *hears: str, start: int = 1) -> ConnectivityMatrix:
    return ConnectivityMatrix(node, lambda: NODES, start, lambda: list(hears), clock)


def test_a_row_finds_its_way_through_a_third_and_grows_stale() -> None:
    clock = Clock()
    a, b, c = made("a", clock, "b"), made("b", clock, "a", "c"), made("c", clock, "b")
    b.on_notice(c.encode_notice())
    a.on_notice(b.encode_notice())
    assert a.rows() == rows(a="b", b="ac", c="b")
    clock.now = ROW_TTL_S + 1
    assert a.rows() == rows(a="b", b=None, c=None)


def test_the_newest_row_counts_whoever_tells_it() -> None:
    clock = Clock()
    a, b = made("a", clock, "b"), made("b", clock, "a")
    deaf, well = made("c", clock), made("c", clock, "a", "b", start=2)
    old = deaf.encode_notice()
    a.on_notice(well.encode_notice())
    a.on_notice(old)
    b.on_notice(old)
    a.on_notice(b.encode_notice())
    assert a.rows()["c"] == frozenset("ab")
    clock.now = ROW_TTL_S + 1
    a.on_notice(deaf.encode_notice())  # its disk was lost: starts are counted anew
    assert a.rows()["c"] == frozenset()


def test_what_nobody_can_read_or_a_stranger_tells_changes_nothing() -> None:
    clock = Clock()
    a = made("a", clock, "b")
    a.on_notice(b"nonsense")
    a.on_notice(b'[["d",1,1,["a"]],["a",9,9,[]]]')
    assert a.rows() == rows(a="b", b=None, c=None)
