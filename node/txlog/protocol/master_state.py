"""The state of a master: how it follows from what the core knows, and which state may follow which."""

from __future__ import annotations

from typing import Final, NamedTuple

from txlog.model.master_state import MasterState


class MasterFacts(NamedTuple):
    """What decides the state of a master. Each fact counts only if all before it hold."""

    may_begin: bool
    """It has a log, or may found a cluster: it never was in one."""
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
    MasterState.AWAITING_BOOTSTRAP,
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


ENTERED_WHEN: Final[dict[MasterState, str]] = {
    MasterState.AWAITING_BOOTSTRAP: "its journal is lost",
    MasterState.FOUNDING: "it may found a cluster",
    MasterState.LEARNING: "it learns of a cluster that exists",
    MasterState.STARTING: "it has a view",
    MasterState.DISK_FULL: "its disk is full",
    MasterState.LEFT: "it has left its view",
    MasterState.REJOINING: "its view stops",
    MasterState.SUSPECTED: "a member is silent",
    MasterState.ISOLATED: "a configured master is excluded",
    MasterState.JOINED: "every configured master is here",
}
"""What leads to each state."""
_ONCE: Final = (
    MasterState.AWAITING_BOOTSTRAP,
    MasterState.FOUNDING,
    MasterState.LEARNING,
    MasterState.STARTING,
)
_AGAIN: Final = tuple(state for state in MasterState if state not in _ONCE)
TRANSITIONS: Final[dict[MasterState, frozenset[MasterState]]] = {
    **{state: frozenset((*_ONCE[place + 1 :], *_AGAIN)) for place, state in enumerate(_ONCE)},
    **{state: frozenset(_AGAIN) - {state} for state in _AGAIN},
}
"""Which state may follow. A process passes the first four once, in this order, or leaves them out: the right to begin,
a log, a view and the confirmation of its peers are never lost again. The others follow one another in any order."""
