"""The engines of workers, as parameters of tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from fuseki_process import FusekiProcess
from oxigraph_process import OxigraphProcess
from rdf4j_process import Rdf4jProcess
from server_process import StoreProcess, swift_folder

_JAVA: Final[tuple[type[StoreProcess], ...]] = (FusekiProcess, Rdf4jProcess)


def _those(*kinds: type[StoreProcess]) -> list[object]:
    return [pytest.param(kind, id=kind.adapter.engine, marks=[pytest.mark.spark] * (kind in _JAVA)) for kind in kinds]


_ALL: Final = (OxigraphProcess, *_JAVA)
ALL: Final = _those(*_ALL)
SERIAL: Final = _those(*(kind for kind in _ALL if kind.adapter.capabilities.serial_updates))
LOCKING: Final = _those(*(kind for kind in _ALL if not kind.adapter.capabilities.serial_updates))
MARKED: Final = _those(*(kind for kind in _ALL if not kind.adapter.capabilities.hidden_marker))
"""Those whose marker is a triple."""


def stores_of(kinds: list[object]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The fixtures ``running`` and ``worker`` of a module: one store of each kind, and the same one emptied."""

    @pytest.fixture(scope="module", params=kinds)
    def running(request: pytest.FixtureRequest) -> Iterator[StoreProcess]:
        with swift_folder() as folder:
            process: StoreProcess = request.param(folder / "worker")
            yield process
            process.kill()

    @pytest.fixture
    def worker(running: StoreProcess) -> StoreProcess:
        running.clear()
        return running

    return running, worker
