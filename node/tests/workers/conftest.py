from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from oxigraph_process import OxigraphProcess


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[OxigraphProcess]:
    process = OxigraphProcess(tmp_path / "worker")
    yield process
    process.kill()
