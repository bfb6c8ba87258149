from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "server"))  # real masters
from master_cluster import Cluster

from e2e.lib.seaweedfs import SeaweedProcess


@pytest.fixture
async def clusters(tmp_path: Path) -> AsyncIterator[Callable[..., Cluster]]:
    made: list[Cluster] = []

    def make(count: int, **changes: Any) -> Cluster:
        made.append(Cluster(tmp_path, count, **changes))
        return made[-1]

    yield make
    for cluster in made:
        await cluster.close()


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedProcess]:
    process = SeaweedProcess(tmp_path_factory.mktemp("seaweed"))
    yield process
    process.kill()
