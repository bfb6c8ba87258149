from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "server"))  # real masters
sys.path.insert(0, str(Path(__file__).parents[1] / "workers"))  # real stores
from master_cluster import clusters as clusters

from e2e.lib.seaweedfs import SeaweedProcess


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedProcess]:
    process = SeaweedProcess(tmp_path_factory.mktemp("seaweed"))
    yield process
    process.kill()
