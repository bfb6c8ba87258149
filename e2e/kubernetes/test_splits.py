"""The data centres lose each other behind a packet filter, go on, and have one log again: each way to recover, with
operators that are killed at each step, and where only one side is deaf."""

from __future__ import annotations

import json

import pytest

from e2e.kubernetes.catalogue import READY_S, CatalogueCluster
from e2e.kubernetes.data_center_access import NAME, NAMESPACE, wait_until
from e2e.kubernetes.measurements import MEASUREMENTS
from e2e.kubernetes.sparql_texts import insert_update
from e2e.kubernetes.split_scenario import run_split

pytestmark = pytest.mark.timeout(900)


def choose(catalogue: CatalogueCluster, how: str) -> None:
    """In any letter case; and until a view holds in which it counts."""
    for name in catalogue.sides:
        catalogue.patch(name, splitRecovery=how)
    for name in catalogue.sides:
        catalogue.wait_preference(name, "splitRecovery", how.capitalize())
    catalogue.wait_recovery(how.capitalize())


@pytest.mark.parametrize(("how", "told"), [("Smart", "sMaRt"), ("Simple", "SIMPLE")])
def test_both_sides_go_on_back_up_and_have_one_log_again(catalogue: CatalogueCluster, how: str, told: str) -> None:
    choose(catalogue, told)
    assert list(run_split(catalogue, how, told))[-1] == "one again"


def test_operators_that_are_killed_at_every_step_of_a_split_change_nothing(catalogue: CatalogueCluster) -> None:
    choose(catalogue, "smart")
    steps = []
    for step in run_split(catalogue, "Smart", "killed"):
        steps.append(step)
        for side in catalogue.sides.values():
            side.kill_operator()
    assert len(steps) == 8


def test_a_side_that_is_heard_but_does_not_hear_is_as_far_away(catalogue: CatalogueCluster) -> None:
    catalogue.set_one_way_block("us", "uk", True)
    try:
        for name in catalogue.sides:
            catalogue.write(name, insert_update(f"one-way-in-{name}"), "accepted")
        catalogue.wait_state("Isolated", READY_S)
    finally:
        catalogue.set_one_way_block("us", "uk", False)
    with MEASUREMENTS.timed("one-way cut: from its end until both are Ready and equal"):
        catalogue.wait_state("Joined", READY_S)
        catalogue.wait_converged(READY_S)
        catalogue.wait_ready()
    assert catalogue.digests_equal()
    assert not catalogue.lost_transactions()


def test_under_none_nobody_goes_back_until_a_restore_is_asked_for(catalogue: CatalogueCluster) -> None:
    """The last one: what had executed another order stays so until it is made anew."""
    choose(catalogue, "NONE")
    assert list(run_split(catalogue, "None", "none"))[-1] == "one again"
    assert catalogue.worker_state("us", "us-worker-1") == "Unordered"
    asked = {
        "apiVersion": "txlog.io/v1alpha1",
        "kind": "TxLogRestore",
        "metadata": {"name": "by-hand", "namespace": NAMESPACE},
        "spec": {"cluster": NAME, "worker": "us-worker-1"},
    }
    us = catalogue.sides["us"]
    with MEASUREMENTS.timed("None: a store made anew by a TxLogRestore"):
        us.kubectl("apply", "-f", "-", input_text=json.dumps(asked))
        wait_until(
            "the restore is done",
            READY_S,
            lambda: _state(us.job_resources("txlogrestores", worker="us-worker-1")) == "Done",
        )
        wait_until("it works", READY_S, lambda: catalogue.worker_state("us", "us-worker-1") == "Working")
    choose(catalogue, "Smart")
    catalogue.wait_converged(READY_S)
    assert catalogue.digests_equal()


def _state(works: list[dict[str, object]]) -> object:
    status = works[0]["status"]
    assert isinstance(status, dict)
    return status.get("state")
