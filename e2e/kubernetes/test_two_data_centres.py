"""Two data centres, each on a Kubernetes of its own with its own operator, that find each other by name."""

from __future__ import annotations

import pytest

from e2e.kubernetes.catalogue import Catalogue
from e2e.kubernetes.manifests import MASTERS
from e2e.kubernetes.sides import NAME, until
from e2e.kubernetes.words import insert, said

pytestmark = pytest.mark.timeout(900)


def test_what_is_written_in_one_is_read_in_the_other(catalogue: Catalogue) -> None:
    uk, us = catalogue.sides["uk"], catalogue.sides["us"]
    catalogue.write("uk", insert("from-uk"))
    catalogue.write("us", insert("from-us"))
    until("uk reads what us wrote", 30, lambda: uk.read(said("from-us")) == [["from-us"]])
    until("us reads what uk wrote", 30, lambda: us.read(said("from-uk")) == [["from-uk"]])
    catalogue.wait_settled()
    assert catalogue.digests_equal()
    assert not catalogue.lost()


def test_kubectl_get_shows_masters_peers_and_state(catalogue: Catalogue) -> None:
    for name, side in catalogue.sides.items():
        header, row = side.kubectl("get", "txlogclusters").splitlines()
        shown = dict(zip(header.split(), row.split(), strict=False))
        wanted = {"READY": "True", "MASTERS": f"{MASTERS[name]}/{MASTERS[name]}", "PEERS": "1/1", "STATE": "Joined"}
        assert wanted.items() <= shown.items(), shown


def test_every_container_runs_as_nobody_in_particular_on_a_root_that_it_cannot_write(catalogue: Catalogue) -> None:
    for side in catalogue.sides.values():
        pods = [pod for component in ("master", "worker", "pipeline") for pod in side.pods(component)]
        assert len(pods) >= 3
        for pod in [*pods, side.operator()]:
            told = side.execute(pod, "sh", "-c", "id -u; id -un; touch /opt/txlog/x 2>&1 || true")
            assert told.split("\n")[:2] == ["1000", "txlog"], pod
            assert "Read-only file system" in told, pod


def test_a_preference_reaches_the_masters_without_a_restart(catalogue: Catalogue) -> None:
    uk = catalogue.sides["uk"]
    starts = {node: start for node, start in catalogue.starts().items() if node.startswith("uk-")}
    uk.kubectl("patch", "txl", NAME, "--type=merge", "-p", '{"spec": {"maxPeerLag": "5s"}}')
    catalogue.wait_preference("uk", "maxPeerLag", "5s")
    uk.kubectl("patch", "txl", NAME, "--type=merge", "-p", '{"spec": {"maxPeerLag": "4s"}}')
    catalogue.wait_preference("uk", "maxPeerLag", "4s")
    assert starts.items() <= catalogue.starts().items()
