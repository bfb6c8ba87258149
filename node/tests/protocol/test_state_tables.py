"""The tables of states: complete, without dead ends that are not meant, and true to what simulated masters do."""

import pytest

from txlog.model.master_state import MasterState
from txlog.protocol.master_state import ENTERED_WHEN, TRANSITIONS, MasterFacts, state_of
from txlog.protocol.replication.peer_progress import PUSH_TRANSITIONS, PushEvent, PushState
from txlog.protocol.views.view_change import VIEW_CHANGE_TRANSITIONS, ViewChangeEvent, ViewChangePhase
from txlog_simulation.run_plan import draw_plan
from txlog_simulation.simulation import Simulation

ALL_HOLD = MasterFacts(*[True] * len(MasterFacts._fields))


def test_the_first_fact_that_does_not_hold_names_the_state() -> None:
    states = [state_of(MasterFacts(*[at < place for at in range(9)])) for place in range(9)]
    assert [*states, state_of(ALL_HOLD)] == list(MasterState)
    assert state_of(ALL_HOLD._replace(has_room=False, is_complete=False)) is MasterState.DISK_FULL


def test_every_state_has_its_place_in_the_tables() -> None:
    assert set(TRANSITIONS) == set(ENTERED_WHEN) == set(MasterState)
    assert set(PUSH_TRANSITIONS) == set(PushState)
    assert set(VIEW_CHANGE_TRANSITIONS) == set(ViewChangePhase)
    assert {event for events in PUSH_TRANSITIONS.values() for event in events} == set(PushEvent)
    assert {event for events in VIEW_CHANGE_TRANSITIONS.values() for event in events} == set(ViewChangeEvent)


def test_a_log_a_view_and_the_peers_confirmation_are_never_lost() -> None:
    order = list(MasterState)
    for state in (MasterState.AWAITING_BOOTSTRAP, MasterState.FOUNDING, MasterState.LEARNING, MasterState.STARTING):
        assert TRANSITIONS[state] == set(order[order.index(state) + 1 :])
        assert not any(
            state in after for other, after in TRANSITIONS.items() if order.index(other) > order.index(state)
        )


@pytest.mark.parametrize("seed", range(12))
def test_simulated_masters_change_their_states_as_the_table_says(seed: int) -> None:
    world = Simulation(draw_plan(seed), trace=False, counting=None)
    assert not world.run().violations
    assert world.master_states.seen
