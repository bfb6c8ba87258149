"""Which incarnation of a master a supervisor remembers."""

from __future__ import annotations

from txlog.supervision.last_seen import should_remember


def test_only_a_member_of_a_cluster_is_remembered_and_stays_so_while_another_waits() -> None:
    assert not should_remember(7, None, False), "it founds: its journal holds nothing that could be lost"
    assert should_remember(7, None, True)
    assert should_remember(7, 7, False), "a later start of it, which has no view yet"
    assert not should_remember(8, 7, False), "a new journal that waits or learns"
    assert should_remember(8, 7, True), "it is let in"
