"""What is changed on purpose while clients write: image and configuration, and how many masters there are."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from e2e.cluster import image_build
from e2e.kubernetes.catalogue import READY_S, CatalogueCluster
from e2e.kubernetes.conftest import installed
from e2e.kubernetes.data_center_access import NAME, DataCenterAccess, wait_until
from e2e.kubernetes.manifests import peer_specs
from e2e.kubernetes.measurements import MEASUREMENTS
from e2e.kubernetes.service_load import ServiceLoad
from e2e.kubernetes.sparql_texts import insert_update
from e2e.lib.load.requests import write_one
from txlog.client import MasterClient

pytestmark = pytest.mark.timeout(900)
ROLLED_S = 300.0


@pytest.fixture(scope="module")
def catalogue(sides: dict[str, DataCenterAccess]) -> Iterator[CatalogueCluster]:
    """Begun with the image of an older program, looked after by today's operator."""
    older = image_build.build_older_image()
    for side in sides.values():
        side.center.add_image(older.archive)
    yield from installed(sides, lambda found: found.install(splitRecovery="None", image=older.name))


def rolled(catalogue: CatalogueCluster, side: str) -> bool:
    """All its masters run what the manifest says now, and are Ready."""
    found = catalogue.sides[side].pods("master")
    images = {pod["spec"]["containers"][0]["image"] for pod in found.values()}
    return images == {image_build.NAME} and catalogue.condition(side, "MastersReady") == "True AllReady"


def test_an_older_program_and_configuration_roll_through_without_a_failed_write(catalogue: CatalogueCluster) -> None:
    """From an image whose masters say less to each other, beside a setting that a master reads at its start only."""
    before = catalogue.starts()
    with ServiceLoad(catalogue, "rolling") as load:
        wait_until("clients write", 60, lambda: load.written > 20)
        with MEASUREMENTS.timed("image and configuration of both data centres rolled, under load"):
            for name in catalogue.sides:
                catalogue.patch(name, image=image_build.NAME, durability={"default": "synced"})
            for name in catalogue.sides:
                wait_until(f"{name} has rolled", ROLLED_S, partial(rolled, catalogue, name))
            catalogue.wait_ready(ROLLED_S)
        written = load.written
        wait_until("clients write on", 60, lambda: load.written > written + 20)
    assert not load.failed
    MEASUREMENTS.took_s["the longest wait of a retrying client while they rolled"] = round(load.longest_s, 1)
    after = catalogue.starts()
    assert {node: after[node] - before[node] for node in after} == dict.fromkeys(after, 1), "each was restarted once"
    catalogue.wait_converged(READY_S)
    assert catalogue.digests_equal()
    assert not catalogue.lost_transactions()


def known(catalogue: CatalogueCluster) -> list[str]:
    """Masters of uk as the log has them."""
    with MasterClient(catalogue.sides["us"].master(1), 5.0) as master:
        told = master.configuration()
    return sorted(str(each["node"]) for each in told["masters"] if each["dataCenter"] == "uk")


def test_a_third_master_comes_and_goes_and_takes_nothing_with_it(catalogue: CatalogueCluster) -> None:
    uk = catalogue.sides["uk"]
    with ServiceLoad(catalogue, "scaling") as load:
        wait_until("clients write", 60, lambda: load.written > 20)
        with MEASUREMENTS.timed("from 2 to 3 masters, under load"):
            catalogue.patch("uk", peers=peer_specs({"uk": 3, "us": 1}))
            catalogue.counts["uk"] = 3
            wait_until("the log has a third", READY_S, lambda: known(catalogue) == ["uk-1", "uk-2", "uk-3"])
            wait_until("it is Joined", READY_S, lambda: uk.status(3).state == "Joined")
            catalogue.wait_condition("uk", "MastersReady", "True AllReady")
        told = write_one(uk.master(3), NAME, insert_update("at-the-third"), "synced")
        catalogue.written.append(told["txlog-transaction"])
        with MEASUREMENTS.timed("from 3 to 2 masters, under load"):
            catalogue.patch("uk", peers=peer_specs({"uk": 2, "us": 1}))
            catalogue.counts["uk"] = 2
            wait_until("the log has two", READY_S, lambda: known(catalogue) == ["uk-1", "uk-2"])
            wait_until("its pod is gone", READY_S, lambda: f"{NAME}-3" not in uk.pods("master"))
            catalogue.wait_condition("uk", "MastersReady", "True AllReady")
    assert not load.failed
    catalogue.wait_ready()
    catalogue.write("us", insert_update("after-scaling"), "synced")
    catalogue.wait_converged(READY_S)
    assert catalogue.digests_equal()
    assert not catalogue.lost_transactions()
    claim = f"journal-{NAME}-3"
    wait_until("its volume is gone", READY_S, lambda: claim not in uk.kubectl("get", "pvc", "-o", "name"))
