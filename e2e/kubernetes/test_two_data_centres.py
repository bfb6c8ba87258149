"""The examples as they are: two data centres, each on a Kubernetes of its own with its own operator, that find each
other by name."""

from __future__ import annotations

import time

import pytest

from e2e.kubernetes.catalogue import CatalogueCluster
from e2e.kubernetes.data_center_access import wait_until
from e2e.kubernetes.manifests import MASTERS
from e2e.kubernetes.measurements import MEASUREMENTS
from e2e.kubernetes.sparql_texts import ask_query, insert_update

pytestmark = pytest.mark.timeout(900)
IDLE_S = 30.0
"""How long the operators' use of the processor is looked at."""
CPU_PERCENT = 1.0
RSS_MB = 150.0


def test_what_is_written_in_one_is_read_in_the_other(examples: CatalogueCluster) -> None:
    uk, us = examples.sides["uk"], examples.sides["us"]
    examples.write("uk", insert_update("from-uk"))
    examples.write("us", insert_update("from-us"))
    wait_until("uk reads what us wrote", 30, lambda: uk.read(ask_query("from-us")) == [["from-us"]])
    wait_until("us reads what uk wrote", 30, lambda: us.read(ask_query("from-uk")) == [["from-uk"]])
    examples.wait_converged()
    assert examples.digests_equal()
    assert not examples.lost_transactions()


def test_kubectl_get_shows_masters_peers_and_state(examples: CatalogueCluster) -> None:
    for name, side in examples.sides.items():
        wanted = {"READY": "True", "MASTERS": f"{MASTERS[name]}/{MASTERS[name]}", "PEERS": "1/1", "STATE": "Joined"}
        shown = side.columns()
        assert wanted.items() <= shown.items(), shown


def test_every_container_runs_as_nobody_in_particular_on_a_root_that_it_cannot_write(
    examples: CatalogueCluster,
) -> None:
    for side in examples.sides.values():
        pods = [pod for component in ("master", "worker", "pipeline") for pod in side.pods(component)]
        assert len(pods) >= 3
        for pod in [*pods, side.operator()]:
            told = side.execute(pod, "sh", "-c", "id -u; id -un; touch /opt/txlog/x 2>&1 || true")
            assert told.split("\n")[:2] == ["1000", "txlog"], pod
            assert "Read-only file system" in told, pod


def test_a_preference_reaches_the_masters_without_a_restart(examples: CatalogueCluster) -> None:
    starts = {node: start for node, start in examples.starts().items() if node.startswith("uk-")}
    for told in ("61s", "60s"):
        examples.patch("uk", maxPeerLag=told)
        examples.wait_preference("uk", "maxPeerLag", {"61s": "61s", "60s": "1m"}[told])
    assert starts.items() <= examples.starts().items()


def test_an_invalid_change_is_named_and_leaves_the_cluster_as_it_was(examples: CatalogueCluster) -> None:
    """One that the API server's rules let pass."""
    uk = examples.sides["uk"]
    pods = {name: pod["metadata"]["uid"] for name, pod in uk.pods("master").items()}
    examples.patch("uk", workers={"engine": "fuseki"})
    examples.wait_condition("uk", "SpecValid", "False Invalid")
    told = next(each for each in uk.resource()["status"]["conditions"] if each["type"] == "SpecValid")
    assert "spec.workers.engine" in told["message"], told
    examples.write("uk", insert_update("while-invalid"), "applied")
    assert {name: pod["metadata"]["uid"] for name, pod in uk.pods("master").items()} == pods
    examples.patch("uk", workers={"engine": "oxigraph"})
    examples.wait_condition("uk", "SpecValid", "True Valid")
    examples.wait_ready()


def test_operators_of_clusters_that_are_well_hardly_need_anything(examples: CatalogueCluster) -> None:
    examples.wait_ready()
    before = {name: side.operator_cpu_s() for name, side in examples.sides.items()}
    began = time.monotonic()
    time.sleep(IDLE_S)
    took = time.monotonic() - began
    used = max(side.operator_cpu_s() - before[name] for name, side in examples.sides.items())
    MEASUREMENTS.operator_cpu_percent = round(100 * used / took, 2)
    assert MEASUREMENTS.operator_cpu_percent <= CPU_PERCENT
    held = {name: side.operator_mb() for name, side in examples.sides.items()}
    MEASUREMENTS.operator_rss_mb = max(MEASUREMENTS.operator_rss_mb or 0, *held.values())
    assert max(held.values()) <= RSS_MB, held
