"""The state of a master: how it follows from what the core knows, and which state may follow which."""

from __future__ import annotations

from typing import Final, NamedTuple

from txlog.model.master_state import MasterState
from txlog.model.records import RecoveredState
from txlog.protocol.log.log_state import LogState
from txlog.protocol.replication.replication import Replication


class NoLog:
    """This master has no log yet: no view, and no cluster to follow. ``recovered``: what its journal had."""

    def __init__(self, recovered: RecoveredState) -> None:
        self.recovered = recovered


class Learner:
    """This master follows a cluster without a view. It persists what it receives and has no vote (rule 2)."""

    def __init__(self, replication: Replication) -> None:
        self.replication = replication


class InView:
    """This master has a view, installed or not."""

    def __init__(self, replication: Replication) -> None:
        self.replication = replication


LogPhase = NoLog | Learner | InView


def log_of(phase: LogPhase) -> LogState | None:
    """The log of this phase, if it has one."""
    return None if isinstance(phase, NoLog) else phase.replication.log


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
