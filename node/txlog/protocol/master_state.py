"""The state of a master: how it follows from what the core knows, and which state may follow which."""

from __future__ import annotations

from typing import Final, NamedTuple

from txlog.model.master_state import MasterState


class MasterFacts(NamedTuple):
    """What decides the state of a master. Each fact counts only if all before it hold."""

    has_log: bool
    has_view: bool
    is_admitted: bool
    """Its peers have confirmed its journal, or do not answer."""
    has_room: bool
    """Its disk has room for transactions."""
    stays: bool
    """It has not left its view."""
    view_active: bool
    """Its view is installed and not stopped, and it knows of no newer one."""
    all_present: bool
    """Every member of the view is present."""
    is_complete: bool
    """No configured master is out of the view because it was silent."""


_STATE_WITHOUT: Final = (
    MasterState.FOUNDING,
    MasterState.LEARNING,
    MasterState.STARTING,
    MasterState.DISK_FULL,
    MasterState.LEFT,
    MasterState.REJOINING,
    MasterState.SUSPECTED,
    MasterState.ISOLATED,
)
"""The state of a master that lacks the fact at the same place of :class:`MasterFacts`."""


def state_of(facts: MasterFacts) -> MasterState:
    """The first fact that does not hold names the state; ``Joined`` when all hold."""
    for holds, state in zip(facts, _STATE_WITHOUT, strict=True):
        if not holds:
            return state
    return MasterState.JOINED
