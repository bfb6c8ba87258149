"""The engines of workers, as parameters of tests."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from fuseki_process import FusekiProcess
from oxigraph_process import OxigraphProcess
from rdf4j_process import Rdf4jProcess
from server_process import StoreProcess, swift_folder
from virtuoso_process import VirtuosoProcess

_JAVA: Final[tuple[type[StoreProcess], ...]] = (FusekiProcess, Rdf4jProcess)


_NO_VIRTUOSO: Final = pytest.mark.skipif(
    shutil.which("virtuoso-t") is None and shutil.which("apt-get") is None,
    reason="a Virtuoso is fetched by apt-get, which is not here",
)


def _those(*kinds: type[StoreProcess]) -> list[object]:
    marks = {**{kind: [pytest.mark.spark] for kind in _JAVA}, VirtuosoProcess: [_NO_VIRTUOSO]}
    return [pytest.param(kind, id=kind.adapter.engine, marks=marks.get(kind, [])) for kind in kinds]


_ALL: Final = (OxigraphProcess, VirtuosoProcess, *_JAVA)
ALL: Final = _those(*_ALL)
RDF_1_2: Final = _those(OxigraphProcess, FusekiProcess)
"""Those that hold triple terms."""
PARTED_MINUS: Final = _those(OxigraphProcess, *_JAVA)
"""Those in which a MINUS without common variables removes nothing."""
VIRTUOSO: Final = _those(VirtuosoProcess)
SERIAL: Final = _those(*(kind for kind in _ALL if kind.adapter.capabilities.serial_updates))
LOCKING: Final = _those(*(kind for kind in _ALL if not kind.adapter.capabilities.serial_updates))
MARKED: Final = _those(*(kind for kind in _ALL if not kind.adapter.capabilities.hidden_marker))
"""Those whose marker is a triple."""
BARE: Final = _those(*(kind for kind in _ALL if not kind.adapter.capabilities.keeps_empty_graphs))
"""Those without empty graphs: their marker is something else than such a graph."""


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
