from __future__ import annotations

from collections.abc import Iterator

import pytest
from oxigraph_process import OxigraphProcess
from server_process import swift_folder


@pytest.fixture
def worker() -> Iterator[OxigraphProcess]:
    with swift_folder() as folder:
        process = OxigraphProcess(folder / "worker")
        yield process
        process.kill()
