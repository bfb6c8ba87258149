"""Votes that move in a view which only a part of its members accepts never make two sides decide (rule S4)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from test_synchronous_masters import SynchronousCluster, cluster

from txlog.model.quorum import MAJORITY, compute_needs, meets_needs
from txlog.model.view import Number
from txlog.protocol.events import SubmissionAccepted

NODES = "abcde"
HEAVY = {"a": 4, "c": 4}
"""Most of the votes once they count; two of five masters before."""


def quorate_lines(masters: SynchronousCluster) -> set[Number]:
    """The views in which some master would take a synchronous transaction now."""
    found = set[Number]()
    for node in NODES:
        status = masters.core(node).synchronous_status
        if status is not None and status.quorate:
            electorate = status.anchor.electorate
            if meets_needs(compute_needs(MAJORITY, electorate), electorate, status.present):
                found.add(status.view)
    return found


def steps(masters: SynchronousCluster, for_ms: int) -> Iterator[None]:
    """A step of the time after another one. After each, one view decides at most."""
    until_ms = masters.now_ms + for_ms
    while masters.now_ms < until_ms:
        masters.run(1)
        assert len(quorate_lines(masters)) <= 1, f"at {masters.now_ms} ms"
        yield


def move_votes(masters: SynchronousCluster) -> None:
    """The change is stable in the view of all; its votes count from the next view on."""
    now = masters.core("a").configuration
    assert now is not None
    moved = [msgspec.structs.replace(m, weight=HEAVY.get(m.node, 1)) for m in now.masters]
    wanted = msgspec.structs.replace(now, masters=moved)
    assert isinstance(masters.ask("a", masters.core("a").prepare_change(wanted, "a test")), SubmissionAccepted)
    for _ in steps(masters, 2000):
        log = masters.core("a").log_state
        if log is not None and log.stable:
            return
    raise AssertionError("the change is not stable")


def test_weights_moved_in_a_view_that_only_a_part_accepted() -> None:
    masters = cluster(NODES)
    assert len(quorate_lines(masters)) == 1
    first = masters.core("b").views.accepted
    move_votes(masters)
    masters.split("abc")
    for _ in steps(masters, 600):
        pass
    masters.backed_up(NODES)
    for _ in steps(masters, 6000):
        if masters.core("c").views.accepted != first:
            break  # c has put the view of a, b and c together; its messages to the two are on their way
    masters.cut.clear()
    masters.split("ac")
    for _ in steps(masters, 600):
        pass
    view = masters.core("a").views.accepted
    assert view is not None
    assert view.anchor is not None
    assert [member.node for member in view.members] == ["a", "b", "c"]
    assert not masters.core("a").views.installed
    assert [master.weight for master in view.anchor.electorate] == [4, 1, 4, 1, 1]
    masters.backed_up(NODES)
    for _ in steps(masters, 8000):
        pass
    (deciding,) = quorate_lines(masters)
    decided = masters.core("b").views.accepted
    assert decided is not None
    assert deciding == decided.number
    assert [member.node for member in decided.members] == ["b", "d", "e"]
    assert masters.refusal("a", "x").name == "Unavailable"
    txid = masters.take("d", "y")
    masters.join()
    for _ in steps(masters, 10_000):
        pass
    assert len(quorate_lines(masters)) == 1
    assert {str(masters.answer(node, txid)) for node in NODES} == {"committed"}
    assert {tuple(masters.effects(node)[-1:]) for node in NODES} == {("y",)}
