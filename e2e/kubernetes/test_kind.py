"""Both data centres in one cluster by ``tools/kind``, but for kind itself: it needs Docker and images from outside."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from functools import partial
from urllib.parse import urlencode

import pytest

from e2e.cluster import image_build
from e2e.cluster.layout import ROOT
from e2e.kubernetes.data_center_access import MASTER_PORT, NAME, DataCenterAccess, wait_until
from e2e.kubernetes.measurements import MEASUREMENTS
from e2e.kubernetes.sparql_texts import ask_query, insert_update
from e2e.lib.load.requests import csv_rows, http_get, write_one

pytestmark = pytest.mark.timeout(900)
NAMES = ("uk", "us")


@pytest.fixture
def side(sides: dict[str, DataCenterAccess]) -> Iterator[DataCenterAccess]:
    """One cluster, which both namespaces are gone from afterwards."""
    yield sides["uk"]
    for name in NAMES:
        sides["uk"].center.kubectl("delete", "namespace", name, "--ignore-not-found", "--timeout=120s")


def install(side: DataCenterAccess) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PATH": f"{side.center.programs}:{os.environ['PATH']}",
        "KUBECONFIG": str(side.center.site.kubeconfig),
        "IMAGE": image_build.NAME,
    }
    return subprocess.run(
        [ROOT / "tools" / "kind", "install"], env=environment, capture_output=True, text=True, check=False, timeout=600
    )


def address(side: DataCenterAccess, namespace: str) -> str:
    found = side.api.get(f"/api/v1/namespaces/{namespace}/services/{NAME}")
    return f"http://{found['spec']['clusterIP']}:{MASTER_PORT}"


def test_two_namespaces_are_two_data_centres(side: DataCenterAccess) -> None:
    with MEASUREMENTS.timed("tools/kind install, from nothing to Ready in both namespaces"):
        ran = install(side)
    assert ran.returncode == 0, ran.stderr + ran.stdout
    assert "port-forward" in ran.stdout
    for writer, reader in (NAMES, NAMES[::-1]):
        write_one(address(side, writer), NAME, insert_update(f"in-{writer}"), "synced")
        path = f"/repositories/{NAME}?{urlencode({'query': ask_query(f'in-{writer}')})}"
        url, wanted = address(side, reader), [[f"in-{writer}"]]
        wait_until(f"{reader} reads what {writer} wrote", 60, partial(_reads, url, path, wanted))
    again = install(side)
    assert again.returncode == 0, f"once more changes nothing: {again.stderr}"


def _reads(url: str, path: str, wanted: list[list[str]]) -> bool:
    return csv_rows(http_get(url, path, "text/csv", 10.0)) == wanted
