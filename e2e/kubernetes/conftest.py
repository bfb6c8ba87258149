"""Two data centres for all tests of this folder, ended whatever happens; what there is to know of a failure is kept."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from e2e.cluster import control_plane, image_build, prerequisites
from e2e.cluster.__main__ import data_centers
from e2e.cluster.data_center import DataCenter
from e2e.cluster.layout import ROOT
from e2e.cluster.programs import build_programs
from e2e.kubernetes.catalogue import READY_S, CatalogueCluster
from e2e.kubernetes.data_center_access import DataCenterAccess
from e2e.kubernetes.measurements import MEASUREMENTS

REPORTS = ROOT / "build" / "e2e"
WANTED = "TXLOG_E2E"
"""Set by :mod:`e2e.kubernetes.run`."""
_running: dict[str, DataCenterAccess] = {}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """These are for ``make e2e`` alone."""
    here = [item for item in items if item.path.parent == Path(__file__).parent]
    for item in here:
        item.add_marker(pytest.mark.data_centers)
    if not os.environ.get(WANTED):
        config.hook.pytest_deselected(items=here)
        items[:] = [item for item in items if item not in here]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and _running:
        REPORTS.mkdir(parents=True, exist_ok=True)
        file = REPORTS / f"{item.name}.{report.when}.txt"
        file.write_text("\n".join(side.describe() for side in _running.values()))
        report.sections.append(("clusters", f"events and logs: {file}"))
    return report


@pytest.fixture(scope="session")
def sides() -> Iterator[dict[str, DataCenterAccess]]:
    """``uk`` with two nodes, ``us`` with one; the image is there. With ``TXLOG_E2E_KEEP`` clusters that run are taken
    as they are, and left so."""
    prerequisites.check_prerequisites()
    programs = build_programs()
    built = image_build.build_image()
    centers = data_centers(programs, [built.archive])
    keep = bool(os.environ.get("TXLOG_E2E_KEEP"))
    try:
        if not keep or not all(center.nodes for center in centers.values()):
            _start(centers)
        for center in centers.values():
            center.add_image(built.archive)
        found = {name: DataCenterAccess(center) for name, center in centers.items()}
        _running.update(found)
        yield found
    finally:
        _running.clear()
        refused = [line for center in centers.values() for line in control_plane.forbidden_requests(center.site)]
        MEASUREMENTS.forbidden = len(refused)
        for line in sorted(set(refused)):
            print(f"forbidden: {line}")
        for center in centers.values() if not keep else ():
            center.down()


def _start(centers: dict[str, DataCenter]) -> None:
    with ThreadPoolExecutor(len(centers)) as pool:
        list(pool.map(lambda center: center.up(), centers.values()))
    centers["uk"].add_node(2)


@pytest.fixture(scope="module")
def catalogue(sides: dict[str, DataCenterAccess]) -> Iterator[CatalogueCluster]:
    """A TxLog cluster over both that is Ready, and whose stores apply."""
    yield from installed(sides, lambda found: found.install(splitRecovery="None"))


@pytest.fixture(scope="module")
def apart(sides: dict[str, DataCenterAccess]) -> Iterator[CatalogueCluster]:
    """The same, where uk's executors are pods and us has one process for everything."""
    found = CatalogueCluster(sides)
    try:
        with MEASUREMENTS.timed("from nothing to Ready, executors as pods"):
            found.install_with_executors("uk", mode="executors", executors=2, executorMemory="1Gi", executorCpu="100m")
            found.wait_ready(2 * READY_S)
        found.wait_working()
        yield found
    finally:
        found.remove()


@pytest.fixture(scope="module")
def examples(sides: dict[str, DataCenterAccess]) -> Iterator[CatalogueCluster]:
    """The same by the manifests of ``examples/two-data-centres``, as they are."""
    yield from installed(sides, CatalogueCluster.install_examples)


def installed(
    sides: dict[str, DataCenterAccess], install: Callable[[CatalogueCluster], None]
) -> Iterator[CatalogueCluster]:
    """Until it is Ready and applies; removed afterwards."""
    found = CatalogueCluster(sides)
    try:
        began = time.monotonic()
        install(found)
        found.wait_ready()
        MEASUREMENTS.ready_s = max(MEASUREMENTS.ready_s or 0, round(time.monotonic() - began, 1))
        found.wait_working()
        yield found
        MEASUREMENTS.operator_rss_mb = max(
            MEASUREMENTS.operator_rss_mb or 0, *(side.operator_mb() for side in sides.values())
        )
    finally:
        found.remove()
