"""The data centres lose each other behind a packet filter, go on, and have one log again."""

from __future__ import annotations

import pytest

from e2e.cluster.places import CannotRun
from e2e.kubernetes.catalogue import Catalogue
from e2e.kubernetes.sides import NAME
from e2e.kubernetes.words import insert, said

pytestmark = pytest.mark.timeout(900)


def recover(catalogue: Catalogue, how: str) -> None:
    for side in catalogue.sides.values():
        side.kubectl("patch", "txl", NAME, "--type=merge", "-p", f'{{"spec": {{"splitRecovery": "{how}"}}}}')


def test_both_sides_go_on_say_so_and_have_one_log_again(catalogue: Catalogue) -> None:
    catalogue.apart(True)
    for name in catalogue.sides:
        catalogue.write(name, insert(f"alone-in-{name}"), "accepted")
    catalogue.wait_state("Isolated")
    for name, side in catalogue.sides.items():
        catalogue.write(name, insert(f"later-in-{name}"), "applied")
        assert side.read(said(f"later-in-{name}")) == [[f"later-in-{name}"]]
        catalogue.wait_condition(name, "HistoryConsistent", "False Apart")
        catalogue.wait_condition(name, "PeersReachable", "False")
        with pytest.raises(CannotRun, match="splitRecovery"):
            side.kubectl("patch", "txl", NAME, "--type=merge", "-p", '{"spec": {"splitRecovery": "Simple"}}')
    catalogue.apart(False)
    catalogue.wait_state("Joined")
    for name in catalogue.sides:
        catalogue.wait_condition(name, "HistoryConsistent", "True OneLog")
    assert not catalogue.lost()


@pytest.mark.parametrize("how", ["sMaRt", "SIMPLE", "none"])
def test_between_splits_the_recovery_is_chosen_in_any_letter_case(catalogue: Catalogue, how: str) -> None:
    recover(catalogue, how)
    for name in catalogue.sides:
        catalogue.wait_preference(name, "splitRecovery", how.capitalize())
