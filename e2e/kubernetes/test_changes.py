"""What is changed on purpose while clients write: image and configuration, and how many masters there are."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from bench.cluster import write_one
from e2e.cluster import image
from e2e.kubernetes.catalogue import READY_S, Catalogue
from e2e.kubernetes.conftest import installed
from e2e.kubernetes.figures import FIGURES
from e2e.kubernetes.load import Load
from e2e.kubernetes.manifests import peers
from e2e.kubernetes.sides import NAME, Side, until
from e2e.kubernetes.words import insert
from txlog.client import MasterClient

pytestmark = pytest.mark.timeout(900)
ROLLED_S = 300.0


@pytest.fixture(scope="module")
def catalogue(sides: dict[str, Side]) -> Iterator[Catalogue]:
    """Begun with the image of an older program, looked after by today's operator."""
    older = image.build_older()
    for side in sides.values():
        side.center.give_image(older.archive)
    yield from installed(sides, lambda found: found.install(splitRecovery="None", image=older.name))


def rolled(catalogue: Catalogue, side: str) -> bool:
    """All its masters run what the manifest says now, and are Ready."""
    found = catalogue.sides[side].pods("master")
    images = {pod["spec"]["containers"][0]["image"] for pod in found.values()}
    return images == {image.NAME} and catalogue.condition(side, "MastersReady") == "True AllReady"


def test_an_older_program_and_configuration_roll_through_without_a_failed_write(catalogue: Catalogue) -> None:
    """From an image whose masters say less to each other, beside a setting that a master reads at its start only."""
    before = catalogue.starts()
    with Load(catalogue, "rolling") as load:
        until("clients write", 60, lambda: load.written > 20)
        with FIGURES.taking("image and configuration of both data centres rolled, under load"):
            for name in catalogue.sides:
                catalogue.patch(name, image=image.NAME, durability={"default": "synced"})
            for name in catalogue.sides:
                until(f"{name} has rolled", ROLLED_S, partial(rolled, catalogue, name))
            catalogue.wait_ready(ROLLED_S)
        written = load.written
        until("clients write on", 60, lambda: load.written > written + 20)
    assert not load.failed
    FIGURES.took_s["the longest wait of a retrying client while they rolled"] = round(load.longest_s, 1)
    after = catalogue.starts()
    assert {node: after[node] - before[node] for node in after} == dict.fromkeys(after, 1), "each was restarted once"
    catalogue.wait_settled(READY_S)
    assert catalogue.digests_equal()
    assert not catalogue.lost()


def known(catalogue: Catalogue) -> list[str]:
    """Masters of uk as the log has them."""
    with MasterClient(catalogue.sides["us"].master(1), 5.0) as master:
        told = master.configuration()
    return sorted(str(each["node"]) for each in told["masters"] if each["dataCenter"] == "uk")


def test_a_third_master_comes_and_goes_and_takes_nothing_with_it(catalogue: Catalogue) -> None:
    uk = catalogue.sides["uk"]
    with Load(catalogue, "scaling") as load:
        until("clients write", 60, lambda: load.written > 20)
        with FIGURES.taking("from 2 to 3 masters, under load"):
            catalogue.patch("uk", peers=peers({"uk": 3, "us": 1}))
            catalogue.counts["uk"] = 3
            until("the log has a third", READY_S, lambda: known(catalogue) == ["uk-1", "uk-2", "uk-3"])
            until("it is Joined", READY_S, lambda: uk.status(3).state == "Joined")
            catalogue.wait_condition("uk", "MastersReady", "True AllReady")
        told = write_one(uk.master(3), NAME, insert("at-the-third"), "synced")
        catalogue.written.append(told["txlog-transaction"])
        with FIGURES.taking("from 3 to 2 masters, under load"):
            catalogue.patch("uk", peers=peers({"uk": 2, "us": 1}))
            catalogue.counts["uk"] = 2
            until("the log has two", READY_S, lambda: known(catalogue) == ["uk-1", "uk-2"])
            until("its pod is gone", READY_S, lambda: f"{NAME}-3" not in uk.pods("master"))
            catalogue.wait_condition("uk", "MastersReady", "True AllReady")
    assert not load.failed
    catalogue.wait_ready()
    catalogue.write("us", insert("after-scaling"), "synced")
    catalogue.wait_settled(READY_S)
    assert catalogue.digests_equal()
    assert not catalogue.lost()
    claims = uk.kubectl("get", "pvc", "-o", "name")
    assert f"journal-{NAME}-3" not in claims
