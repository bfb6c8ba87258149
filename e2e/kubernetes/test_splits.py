"""The data centres lose each other behind a packet filter, go on, and have one log again: each way to recover, with
operators that are killed at each step, and where only one side is deaf."""

from __future__ import annotations

import json

import pytest

from e2e.kubernetes.catalogue import READY_S, Catalogue
from e2e.kubernetes.figures import FIGURES
from e2e.kubernetes.sides import NAME, NAMESPACE, until
from e2e.kubernetes.split_story import split
from e2e.kubernetes.words import insert

pytestmark = pytest.mark.timeout(900)


def choose(catalogue: Catalogue, how: str) -> None:
    """In any letter case; and until a view holds in which it counts."""
    for name in catalogue.sides:
        catalogue.patch(name, splitRecovery=how)
    for name in catalogue.sides:
        catalogue.wait_preference(name, "splitRecovery", how.capitalize())
    catalogue.wait_recovery(how.capitalize())


@pytest.mark.parametrize(("how", "told"), [("Smart", "sMaRt"), ("Simple", "SIMPLE")])
def test_both_sides_go_on_back_up_and_have_one_log_again(catalogue: Catalogue, how: str, told: str) -> None:
    choose(catalogue, told)
    assert list(split(catalogue, how, told))[-1] == "one again"


def test_operators_that_are_killed_at_every_step_of_a_split_change_nothing(catalogue: Catalogue) -> None:
    choose(catalogue, "smart")
    steps = []
    for step in split(catalogue, "Smart", "killed"):
        steps.append(step)
        for side in catalogue.sides.values():
            side.kill_operator()
    assert len(steps) == 8


def test_a_side_that_is_heard_but_does_not_hear_is_as_far_away(catalogue: Catalogue) -> None:
    catalogue.deaf("us", "uk", True)
    try:
        for name in catalogue.sides:
            catalogue.write(name, insert(f"one-way-in-{name}"), "accepted")
        catalogue.wait_state("Isolated", READY_S)
    finally:
        catalogue.deaf("us", "uk", False)
    with FIGURES.taking("one-way cut: from its end until both are Ready and equal"):
        catalogue.wait_state("Joined", READY_S)
        catalogue.wait_settled(READY_S)
        catalogue.wait_ready()
    assert catalogue.digests_equal()
    assert not catalogue.lost()


def test_under_none_nobody_goes_back_until_a_restore_is_asked_for(catalogue: Catalogue) -> None:
    """The last one: what had executed another order stays so until it is made anew."""
    choose(catalogue, "NONE")
    assert list(split(catalogue, "None", "none"))[-1] == "one again"
    assert catalogue.worker_state("us", "us-worker-1") == "Unordered"
    asked = {
        "apiVersion": "txlog.io/v1alpha1",
        "kind": "TxLogRestore",
        "metadata": {"name": "by-hand", "namespace": NAMESPACE},
        "spec": {"cluster": NAME, "worker": "us-worker-1"},
    }
    us = catalogue.sides["us"]
    with FIGURES.taking("None: a store made anew by a TxLogRestore"):
        us.kubectl("apply", "-f", "-", input_text=json.dumps(asked))
        until("the restore is done", READY_S, lambda: _state(us.works("txlogrestores", worker="us-worker-1")) == "Done")
        until("it works", READY_S, lambda: catalogue.worker_state("us", "us-worker-1") == "Working")
    choose(catalogue, "Smart")
    catalogue.wait_settled(READY_S)
    assert catalogue.digests_equal()


def _state(works: list[dict[str, object]]) -> object:
    status = works[0]["status"]
    assert isinstance(status, dict)
    return status.get("state")
