from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "workers"))  # a real store
from master_cluster import Cluster as Cluster
from master_cluster import clusters as clusters
from worker_driver import Driver, OxigraphProcess, Served


@pytest.fixture
async def one(clusters: Callable[..., Cluster]) -> Cluster:
    cluster = clusters(1)
    await cluster.start()
    return cluster


@pytest.fixture
async def three(clusters: Callable[..., Cluster]) -> Cluster:
    cluster = clusters(3)
    await cluster.start()
    return cluster


@pytest.fixture
async def served(tmp_path: Path, clusters: Callable[..., Cluster]) -> AsyncIterator[Served]:
    """Two masters, one store."""
    store = OxigraphProcess(tmp_path / "store")
    cluster = clusters(2, workers=[{"name": "w-1", "url": store.url}], durability="applied")
    await cluster.start()
    driver = Driver(cluster.url(0), "w-1", store)
    yield Served(cluster, store, driver)
    await asyncio.to_thread(driver.close)  # its last question is answered on this loop
    store.kill()
