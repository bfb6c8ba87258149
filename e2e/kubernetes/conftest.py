"""Two data centres for all tests of this folder, ended whatever happens; what there is to know of a failure is kept."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from e2e.cluster import control, image, needs
from e2e.cluster.__main__ import data_centers
from e2e.cluster.data_center import DataCenter
from e2e.cluster.places import ROOT
from e2e.cluster.programs import build
from e2e.kubernetes.catalogue import READY_S, Catalogue
from e2e.kubernetes.figures import FIGURES
from e2e.kubernetes.sides import Side

REPORTS = ROOT / "build" / "e2e"
WANTED = "TXLOG_E2E"
"""Set by :mod:`e2e.kubernetes.run`."""
_running: dict[str, Side] = {}


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
def sides() -> Iterator[dict[str, Side]]:
    """``uk`` with two nodes, ``us`` with one; the image is there. With ``TXLOG_E2E_KEEP`` clusters that run are taken
    as they are, and left so."""
    needs.check()
    programs = build()
    built = image.build()
    centers = data_centers(programs, [built.archive])
    keep = bool(os.environ.get("TXLOG_E2E_KEEP"))
    try:
        if not keep or not all(center.nodes for center in centers.values()):
            _start(centers)
        for center in centers.values():
            center.give_image(built.archive)
        found = {name: Side(center) for name, center in centers.items()}
        _running.update(found)
        yield found
    finally:
        _running.clear()
        refused = [line for center in centers.values() for line in control.forbidden(center.site)]
        FIGURES.forbidden = len(refused)
        for line in sorted(set(refused)):
            print(f"forbidden: {line}")
        for center in centers.values() if not keep else ():
            center.down()


def _start(centers: dict[str, DataCenter]) -> None:
    with ThreadPoolExecutor(len(centers)) as pool:
        list(pool.map(lambda center: center.up(), centers.values()))
    centers["uk"].add_node(2)


@pytest.fixture(scope="module")
def catalogue(sides: dict[str, Side]) -> Iterator[Catalogue]:
    """A TxLog cluster over both that is Ready, and whose stores apply."""
    yield from installed(sides, lambda found: found.install(splitRecovery="None"))


@pytest.fixture(scope="module")
def apart(sides: dict[str, Side]) -> Iterator[Catalogue]:
    """The same, where uk's executors are pods and us has one process for everything."""
    found = Catalogue(sides)
    try:
        with FIGURES.taking("from nothing to Ready, executors as pods"):
            found.install_apart("uk", mode="executors", executors=2, executorMemory="1Gi", executorCpu="100m")
            found.wait_ready(2 * READY_S)
        found.wait_working()
        yield found
    finally:
        found.remove()


@pytest.fixture(scope="module")
def examples(sides: dict[str, Side]) -> Iterator[Catalogue]:
    """The same by the manifests of ``examples/two-data-centres``, as they are."""
    yield from installed(sides, Catalogue.install_examples)


def installed(sides: dict[str, Side], install: Callable[[Catalogue], None]) -> Iterator[Catalogue]:
    """Until it is Ready and applies; removed afterwards."""
    found = Catalogue(sides)
    try:
        began = time.monotonic()
        install(found)
        found.wait_ready()
        FIGURES.ready_s = max(FIGURES.ready_s or 0, round(time.monotonic() - began, 1))
        found.wait_working()
        yield found
        FIGURES.operator_rss_mb = max(FIGURES.operator_rss_mb or 0, *(side.operator_mb() for side in sides.values()))
    finally:
        found.remove()
