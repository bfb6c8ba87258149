from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "workers"))  # a real store
from master_cluster import Cluster


@pytest.fixture
async def clusters(tmp_path: Path) -> AsyncIterator[Callable[..., Cluster]]:
    made: list[Cluster] = []

    def make(count: int, **changes: Any) -> Cluster:
        made.append(Cluster(tmp_path, count, **changes))
        return made[-1]

    yield make
    for cluster in made:
        await cluster.close()


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
