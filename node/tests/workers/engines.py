"""The engines of workers, as parameters of tests."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

import pytest
from fuseki_process import FusekiProcess
from oxigraph_process import OxigraphProcess
from rdf4j_process import AsWrittenProcess, Rdf4jProcess
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
FUSEKI: Final = _those(FusekiProcess)
VIRTUOSO: Final = _those(VirtuosoProcess)
AS_SENT: Final = [pytest.param(AsWrittenProcess, id="rdf4j-as-written", marks=pytest.mark.spark)]
"""Those that hold literals as they were sent."""
SERIAL: Final = _those(*(kind for kind in _ALL if kind.adapter.capabilities.serial_updates))
LOCKING: Final = _those(*(kind for kind in _ALL if not kind.adapter.capabilities.serial_updates))
MARKED: Final = _those(*(kind for kind in _ALL if not kind.adapter.capabilities.hidden_marker))
"""Those whose marker is a triple."""
BARE: Final = _those(*(kind for kind in _ALL if not kind.adapter.capabilities.keeps_empty_graphs))
"""Those without empty graphs: their marker is something else than such a graph."""


class KeptStores:
    """A store of each kind that was asked for, until the session ends: the start of a Java costs more than most tests
    of it."""

    def __init__(self) -> None:
        self._stores: dict[type[StoreProcess], StoreProcess] = {}
        self._closing = ExitStack()

    def get(self, kind: type[StoreProcess]) -> StoreProcess:
        """The one that runs. After a test that left it dead: another one."""
        kept = self._stores.get(kind)
        if kept is None or kept.process.poll() is not None:
            kept = self._stores[kind] = kind(self._closing.enter_context(swift_folder()) / "worker")
            self._closing.callback(kept.kill)
        return kept

    def end(self) -> None:
        self._closing.close()


_KEPT: Final = pytest.StashKey[KeptStores]()


def kept_store(config: pytest.Config, kind: type[StoreProcess]) -> StoreProcess:
    """As :meth:`KeptStores.get`, for all files of a session."""
    if _KEPT not in config.stash:
        config.stash[_KEPT] = KeptStores()
        config.add_cleanup(config.stash[_KEPT].end)
    return config.stash[_KEPT].get(kind)


def stores_of(kinds: list[object]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The fixtures ``running`` and ``worker`` of a module: one store of each kind, and the same one emptied."""

    @pytest.fixture(scope="module", params=kinds)
    def running(request: pytest.FixtureRequest) -> StoreProcess:
        return kept_store(request.config, request.param)

    @pytest.fixture
    def worker(running: StoreProcess) -> StoreProcess:
        running.clear()
        return running

    return running, worker
