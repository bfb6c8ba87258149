from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "workers"))  # a real worker process
sys.path.insert(0, str(Path(__file__).parents[1] / "apply"))  # a log that a test writes
sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))  # a master's paths

from killed_at_a_step import Victims
from oxigraph_process import OxigraphProcess
from server_process import swift_folder

from e2e.lib.seaweedfs import SeaweedProcess


@pytest.fixture
def worker() -> Iterator[OxigraphProcess]:
    with swift_folder() as folder:
        process = OxigraphProcess(folder / "worker")
        yield process
        process.kill()


@pytest.fixture
def empty() -> Iterator[OxigraphProcess]:
    with swift_folder() as folder:
        process = OxigraphProcess(folder / "empty")
        yield process
        process.kill()


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedProcess]:
    process = SeaweedProcess(tmp_path_factory.mktemp("seaweed"))
    yield process
    process.kill()


@pytest.fixture(scope="session")
def victims() -> Iterator[Victims]:
    found = Victims()
    yield found
    found.end()
