from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "workers"))  # the real worker process of that room's tests

from oxigraph_process import OxigraphProcess
from server_process import swift_folder


@pytest.fixture
def worker() -> Iterator[OxigraphProcess]:
    with swift_folder() as folder:
        process = OxigraphProcess(folder / "worker")
        yield process
        process.kill()
