"""Pods, volumes, operators, nodes and a whole data centre are lost; nobody puts a hand to it, and nothing is lost."""

from __future__ import annotations

import json
from functools import partial

import pytest

from e2e.kubernetes.catalogue import CatalogueCluster
from e2e.kubernetes.data_center_access import AT_ONCE, NAME, NAMESPACE, DataCenterAccess, wait_until
from e2e.kubernetes.measurements import MEASUREMENTS
from e2e.kubernetes.sparql_texts import insert_update
from e2e.lib.report import CannotMeasure
from txlog.client import MasterClient
from txlog.model.errors import TxLogError

pytestmark = pytest.mark.timeout(900)


def whole(catalogue: CatalogueCluster, what: str) -> None:
    """Everybody is there, takes work, and carries it out; nothing acknowledged is missing."""
    catalogue.wait_ready()
    for name in catalogue.sides:
        catalogue.write(name, insert_update(f"after-{what}-{name}"), "synced")
    catalogue.wait_converged(180)  # Spark may have to start first
    assert catalogue.digests_equal()
    assert not catalogue.lost_transactions()


def test_a_master_that_is_killed_comes_back(catalogue: CatalogueCluster) -> None:
    uk = catalogue.sides["uk"]
    before = catalogue.starts()
    catalogue.write("uk", insert_update("before-the-kill"), "synced")
    with MEASUREMENTS.timed("kill -9 of a master"):
        uk.crash(f"{NAME}-2")
        wait_until("uk-2 has started anew", 120, lambda: catalogue.starts()["uk-2"] > before["uk-2"])
        whole(catalogue, "kill")


def test_a_master_whose_pod_is_deleted_comes_back_with_its_journal(catalogue: CatalogueCluster) -> None:
    before, births = catalogue.starts(), catalogue.births()
    with MEASUREMENTS.timed("a master's pod deleted"):
        catalogue.sides["uk"].kubectl("delete", "pod", f"{NAME}-1", "--wait=false")
        wait_until("uk-1 has started anew", 180, lambda: catalogue.starts()["uk-1"] > before["uk-1"])
        whole(catalogue, "deleted-pod")
    assert catalogue.births() == births


def test_a_master_whose_volume_is_lost_learns_everything_anew(catalogue: CatalogueCluster) -> None:
    uk = catalogue.sides["uk"]
    births = catalogue.births()
    catalogue.write("us", insert_update("before-the-loss"), "synced")
    with MEASUREMENTS.timed("a master's pod and volume lost"):
        uk.kubectl("delete", "pvc", f"journal-{NAME}-2", "--wait=false")
        uk.kubectl("delete", "pod", f"{NAME}-2", *AT_ONCE)
        wait_until("uk-2 was born anew", 120, lambda: catalogue.births()["uk-2"] != births["uk-2"])
        whole(catalogue, "lost-journal")


def test_a_store_whose_volume_is_lost_is_filled_anew(catalogue: CatalogueCluster) -> None:
    us = catalogue.sides["us"]
    was = us.pod(f"{NAME}-worker-1")["metadata"]["uid"]
    with MEASUREMENTS.timed("a store's pod and volume lost"):
        us.kubectl("delete", "pvc", f"store-{NAME}-worker-1", "--wait=false")
        us.kubectl("delete", "pod", f"{NAME}-worker-1", *AT_ONCE)
        wait_until("there is another pod", 120, lambda: us.pod(f"{NAME}-worker-1")["metadata"]["uid"] != was)
        wait_until("it runs", 120, lambda: us.position() >= 0)
        whole(catalogue, "lost-store")


def test_a_pipeline_that_is_killed_goes_on(catalogue: CatalogueCluster) -> None:
    uk = catalogue.sides["uk"]
    (pod,) = uk.pods("pipeline")
    with MEASUREMENTS.timed("Spark's driver deleted"):
        uk.kubectl("delete", "pod", pod, *AT_ONCE)
        catalogue.write("uk", insert_update("without-a-pipeline"), "synced")
        wait_until("there is another one", 120, lambda: uk.ready("pipeline") not in ([], [pod]))
        whole(catalogue, "killed-pipeline")


def test_operators_that_are_killed_are_not_missed(catalogue: CatalogueCluster) -> None:
    for side in catalogue.sides.values():
        side.kill_operator()
    whole(catalogue, "killed-operators")


def test_a_node_loses_its_power_and_comes_back(catalogue: CatalogueCluster) -> None:
    """Which pods it had is the scheduler's affair; they come back with their volumes."""
    uk = catalogue.sides["uk"]
    births = catalogue.births()
    node = next(each for each in uk.center.nodes if each.k == 2)
    with MEASUREMENTS.timed("a node without power, from its loss"):
        node.power_off()
        for name in catalogue.sides:
            wait_until(f"{name} takes a write", 120, partial(_wrote, catalogue, name))
        wait_until("Kubernetes misses the node", 60, lambda: not _is_ready(catalogue, node.name))
        uk.center.add_node(2)
        wait_until("Kubernetes has the node again", 60, lambda: _is_ready(catalogue, node.name))
        catalogue.wait_state("Joined", 180)
        whole(catalogue, "node")
    assert catalogue.births() == births


def _wrote(catalogue: CatalogueCluster, side: str) -> bool:
    """A Service may still lead to a pod of the node that is gone."""
    try:
        catalogue.write(side, insert_update(f"without-a-node-{side}"), "accepted")
    except CannotMeasure:
        return False
    return True


def _is_ready(catalogue: CatalogueCluster, node: str) -> bool:
    told = catalogue.sides["uk"].api.get(f"/api/v1/nodes/{node}")["status"]["conditions"]
    return any(each["type"] == "Ready" and each["status"] == "True" for each in told)


def test_without_the_other_data_centre_this_one_is_kept_true(catalogue: CatalogueCluster) -> None:
    uk, us = catalogue.sides["uk"], catalogue.sides["us"]
    before = catalogue.starts()
    us.center.power_off()
    wait_until("uk goes on alone", 120, lambda: {uk.status(index).state for index in (1, 2)} == {"Isolated"})
    service = _uid(uk)
    with MEASUREMENTS.timed("a Service made again while the other data centre is dark"):
        uk.kubectl("delete", "service", NAME)
        wait_until("the Service is made again", 60, lambda: _uid(uk) != service)
        wait_until("its new address leads to a master", 60, partial(_answers, uk))
    catalogue.patch("uk", maxPeerLag="5s")
    catalogue.wait_preference("uk", "maxPeerLag", "5s")
    catalogue.write("uk", insert_update("while-us-is-dark"), "applied")
    catalogue.patch("uk", maxPeerLag="4s")
    with MEASUREMENTS.timed("a data centre without power, from its return"):
        us.center.up()
        wait_until("its master has started anew", 120, lambda: catalogue.starts()["us-1"] > before["us-1"])
        whole(catalogue, "dark")


def _answers(side: DataCenterAccess) -> bool:
    """Kubernetes tells its nodes of an address a moment after it has given it."""
    try:
        with MasterClient(side.url, 5.0) as master:
            master.status()
    except TxLogError:
        return False
    return True


def _uid(uk: DataCenterAccess) -> str:
    return str(uk.api.get(f"/api/v1/namespaces/{NAMESPACE}/services/{NAME}")["metadata"]["uid"])


def test_a_data_centre_loses_its_power_and_comes_back(catalogue: CatalogueCluster) -> None:
    us = catalogue.sides["us"]
    before = catalogue.starts()
    us.center.power_off()
    catalogue.write("uk", insert_update("while-us-is-dark"), "accepted")
    us.center.up()
    wait_until("its master has started anew", 120, lambda: catalogue.starts()["us-1"] > before["us-1"])
    whole(catalogue, "power")
    for name, side in catalogue.sides.items():
        for pod in side.pods("master"):
            assert all(json.loads(line) for line in side.logs(pod)), f"{name} {pod} says something that is no event"


def test_an_ocean_lies_between_them(catalogue: CatalogueCluster) -> None:
    try:
        catalogue.set_latency(40, jitter_ms=5, loss_percent=1)
        for number in range(5):
            for name in catalogue.sides:
                catalogue.write(name, insert_update(f"over-the-ocean-{number}-{name}"), "synced")
        assert set(catalogue.states().values()) == {"Joined"}
    finally:
        catalogue.set_latency(0)
    whole(catalogue, "ocean")
