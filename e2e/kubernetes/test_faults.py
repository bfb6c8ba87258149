"""Pods, volumes, operators and a whole data centre are lost; nobody puts a hand to it, and nothing is lost."""

from __future__ import annotations

import json

import pytest

from e2e.kubernetes.catalogue import Catalogue
from e2e.kubernetes.sides import NAME, until
from e2e.kubernetes.words import insert

pytestmark = pytest.mark.timeout(900)
AT_ONCE = ("--grace-period=0", "--force", "--wait=false")


def whole(catalogue: Catalogue, what: str) -> None:
    """Everybody is there, takes work, and carries it out; nothing acknowledged is missing."""
    catalogue.wait_ready()
    for name in catalogue.sides:
        catalogue.write(name, insert(f"after-{what}-{name}"), "synced")
    catalogue.wait_settled(180)  # Spark may have to start first
    assert catalogue.digests_equal()
    assert not catalogue.lost()


def test_a_master_that_is_killed_comes_back(catalogue: Catalogue) -> None:
    uk = catalogue.sides["uk"]
    before = catalogue.starts()
    catalogue.write("uk", insert("before-the-kill"), "synced")
    uk.crash(f"{NAME}-2")
    until("uk-2 has started anew", 120, lambda: catalogue.starts()["uk-2"] > before["uk-2"])
    whole(catalogue, "kill")


def test_a_master_whose_volume_is_lost_learns_everything_anew(catalogue: Catalogue) -> None:
    uk = catalogue.sides["uk"]
    births = catalogue.births()
    catalogue.write("us", insert("before-the-loss"), "synced")
    uk.kubectl("delete", "pvc", f"journal-{NAME}-2", "--wait=false")
    uk.kubectl("delete", "pod", f"{NAME}-2", *AT_ONCE)
    until("uk-2 was born anew", 120, lambda: catalogue.births()["uk-2"] != births["uk-2"])
    whole(catalogue, "lost-journal")


def test_a_store_whose_volume_is_lost_is_filled_anew(catalogue: Catalogue) -> None:
    us = catalogue.sides["us"]
    was = us.pod(f"{NAME}-worker-1")["metadata"]["uid"]
    us.kubectl("delete", "pvc", f"store-{NAME}-worker-1", "--wait=false")
    us.kubectl("delete", "pod", f"{NAME}-worker-1", *AT_ONCE)
    until("there is another pod", 120, lambda: us.pod(f"{NAME}-worker-1")["metadata"]["uid"] != was)
    until("it runs", 120, lambda: us.position() >= 0)
    whole(catalogue, "lost-store")


def test_a_pipeline_that_is_killed_goes_on(catalogue: Catalogue) -> None:
    uk = catalogue.sides["uk"]
    (pod,) = uk.pods("pipeline")
    uk.kubectl("delete", "pod", pod, *AT_ONCE)
    catalogue.write("uk", insert("without-a-pipeline"), "synced")
    until("there is another one", 120, lambda: uk.ready("pipeline") not in ([], [pod]))
    whole(catalogue, "killed-pipeline")


def test_operators_that_are_killed_are_not_missed(catalogue: Catalogue) -> None:
    for side in catalogue.sides.values():
        side.kubectl("delete", "pod", side.operator(), *AT_ONCE)
    whole(catalogue, "killed-operators")


def test_a_data_centre_loses_its_power_and_comes_back(catalogue: Catalogue) -> None:
    us = catalogue.sides["us"]
    before = catalogue.starts()
    us.center.power_off()
    catalogue.write("uk", insert("while-us-is-dark"), "accepted")
    us.center.up()
    until("its master has started anew", 120, lambda: catalogue.starts()["us-1"] > before["us-1"])
    whole(catalogue, "power")
    for name, side in catalogue.sides.items():
        for pod in side.pods("master"):
            assert all(json.loads(line) for line in side.logs(pod)), f"{name} {pod} says something that is no event"


def test_an_ocean_lies_between_them(catalogue: Catalogue) -> None:
    uk, us = catalogue.sides["uk"].center, catalogue.sides["us"].center
    try:
        uk.far_from(us.site, 40, jitter_ms=5, loss_percent=1)
        us.far_from(uk.site, 40, jitter_ms=5, loss_percent=1)
        for number in range(5):
            for name in catalogue.sides:
                catalogue.write(name, insert(f"over-the-ocean-{number}-{name}"), "synced")
        assert set(catalogue.states().values()) == {"Joined"}
    finally:
        uk.far_from(us.site, 0)
        us.far_from(uk.site, 0)
    whole(catalogue, "ocean")
