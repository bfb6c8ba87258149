"""Spark's executors as pods in one data centre, beside another one where one process does it all."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from e2e.kubernetes.catalogue import CatalogueCluster
from e2e.kubernetes.data_center_access import AT_ONCE, DataCenterAccess, wait_until
from e2e.kubernetes.measurements import MEASUREMENTS
from e2e.kubernetes.sparql_texts import insert_update
from e2e.kubernetes.test_faults import whole
from txlog.client import MasterClient

pytestmark = pytest.mark.timeout(900)
COUNT = 2
BACK_S = 240.0
"""Two JVMs, one after the other, on a machine that carries two clusters."""
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
LATENCIES = 60
BACKLOG = 2000
CLIENTS = 16


def executors(side: DataCenterAccess) -> set[str]:
    """Names of those that run."""
    return set(side.ready("executor"))


def all_run(side: DataCenterAccess, without: set[str]) -> bool:
    """As many as there should be, and none of these."""
    found = executors(side)
    return len(found) == COUNT and not found & without


def test_executors_are_pods_that_carry_out_the_log(apart: CatalogueCluster) -> None:
    uk, us = apart.sides["uk"], apart.sides["us"]
    wait_until("all executors run", BACK_S, lambda: all_run(uk, set()))
    for name in apart.sides:
        apart.write(name, insert_update(f"by-executors-{name}"), "applied")
    apart.wait_converged()
    assert apart.digests_equal()
    assert not us.pods("executor")
    wait_until(
        "the status counts them", 30, lambda: uk.resource()["status"]["pipeline"]["executors"] == f"{COUNT}/{COUNT}"
    )
    assert "executors" not in us.resource()["status"]["pipeline"]
    (driver,) = uk.pods("pipeline").values()
    for pod in uk.pods("executor").values():
        assert [owner["uid"] for owner in pod["metadata"]["ownerReferences"]] == [driver["metadata"]["uid"]]


def test_executors_run_as_nobody_in_particular_on_a_root_that_they_cannot_write(apart: CatalogueCluster) -> None:
    uk = apart.sides["uk"]
    wait_until("all executors run", BACK_S, lambda: all_run(uk, set()))
    for pod in executors(uk):
        told = uk.execute(pod, "sh", "-c", "id -u; id -un; touch /opt/txlog/x 2>&1 || true")
        assert told.split("\n")[:2] == ["1000", "txlog"], pod
        assert "Read-only file system" in told, pod
        assert "token" not in uk.execute(pod, "sh", "-c", f"ls {ACCOUNT} 2>&1 || true")


def test_an_executor_that_is_killed_is_replaced(apart: CatalogueCluster) -> None:
    uk = apart.sides["uk"]
    wait_until("all executors run", BACK_S, lambda: all_run(uk, set()))
    (driver,) = uk.pods("pipeline")
    lost = sorted(executors(uk))[0]
    with MEASUREMENTS.timed("kill -9 of one of two executors, to a write that is applied"):
        uk.crash(lost)
        apart.write("uk", insert_update("without-an-executor"), "applied")
    with MEASUREMENTS.timed("kill -9 of one of two executors, to two of them"):
        wait_until("there are two again", BACK_S, partial(all_run, uk, {lost}))
    assert list(uk.pods("pipeline")) == [driver]
    whole(apart, "killed-executor")
    wait_until("nothing is left of it", 60, lambda: lost not in uk.pods("executor"))


def test_a_driver_that_is_killed_starts_anew_and_its_executors_end(apart: CatalogueCluster) -> None:
    uk = apart.sides["uk"]
    wait_until("all executors run", BACK_S, lambda: all_run(uk, set()))
    before, (driver,) = executors(uk), uk.pods("pipeline")
    with MEASUREMENTS.timed("kill -9 of the driver of executors"):
        uk.crash(driver)
        apart.write("uk", insert_update("without-a-driver"), "synced")
        wait_until("it has others", BACK_S, partial(all_run, uk, before))
        whole(apart, "killed-driver")
    assert list(uk.pods("pipeline")) == [driver], "started again in its pod"
    wait_until("nothing is left of the old ones", 60, lambda: not before & set(uk.pods("executor")))


def test_executors_go_with_the_pod_of_their_driver(apart: CatalogueCluster) -> None:
    uk = apart.sides["uk"]
    wait_until("all executors run", BACK_S, lambda: all_run(uk, set()))
    before, (driver,) = executors(uk), uk.pods("pipeline")
    with MEASUREMENTS.timed("the driver of executors deleted"):
        uk.kubectl("delete", "pod", driver, *AT_ONCE)
        wait_until("the old ones are gone", 120, lambda: not before & set(uk.pods("executor")))
        wait_until("there are others", BACK_S, partial(all_run, uk, before))
        whole(apart, "deleted-driver")
    assert driver not in uk.pods("pipeline")


def test_how_quick_they_are_beside_one_process(apart: CatalogueCluster) -> None:
    """No bounds: two cores carry two clusters. The table of the run says it."""
    wait_until("all executors run", BACK_S, lambda: all_run(apart.sides["uk"], set()))
    whole(apart, "warm")
    ways = {"uk": "executors as pods", "us": "one process"}
    for name, way in ways.items():
        took = sorted(_applied_s(apart, name, number) for number in range(LATENCIES))
        MEASUREMENTS.took_s[f"a write until it is applied, {way}, p50"] = round(took[LATENCIES // 2], 3)
        MEASUREMENTS.took_s[f"a write until it is applied, {way}, p90"] = round(took[LATENCIES * 9 // 10], 3)
    began = time.monotonic()
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(lambda number: apart.write("uk", insert_update(f"backlog-{number}"), "accepted"), range(BACKLOG)))
    MEASUREMENTS.took_s[f"{BACKLOG} writes accepted"] = round(time.monotonic() - began, 1)
    with ThreadPoolExecutor(len(ways)) as pool:
        for way, ended in pool.map(lambda name: (ways[name], _caught_up(apart, name)), ways):
            MEASUREMENTS.took_s[f"{BACKLOG} writes applied, {way}"] = round(ended - began, 1)
    apart.wait_converged()
    assert apart.digests_equal()
    assert not apart.lost_transactions()


def _applied_s(apart: CatalogueCluster, side: str, number: int) -> float:
    began = time.monotonic()
    apart.write(side, insert_update(f"latency-{side}-{number}"), "applied")
    return time.monotonic() - began


def _caught_up(apart: CatalogueCluster, side: str) -> float:
    """When its store was where its log ends."""
    here = apart.sides[side]

    def there() -> bool:
        with MasterClient(here.master(1), 5.0) as master:
            status = master.status()
        return not status.queue.transactions and here.position() == status.stable.index

    wait_until(f"{side} has applied it all", BACK_S, there)
    return time.monotonic()


def test_one_process_again_and_no_executor_is_left(apart: CatalogueCluster) -> None:
    uk = apart.sides["uk"]
    gone = dict.fromkeys(("executors", "executorMemory", "executorCpu"))
    with MEASUREMENTS.timed("from executors to one process"):
        apart.patch("uk", pipeline={"mode": "local", **gone})
        wait_until("no executor is left", 120, lambda: not uk.pods("executor"))
        whole(apart, "one-process")
    assert "catalogue-executor" not in uk.kubectl("get", "networkpolicies", "-o", "name")
