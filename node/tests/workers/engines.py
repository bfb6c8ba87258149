"""The engines of workers, as parameters of tests."""

from __future__ import annotations

from typing import Final

import pytest
from fuseki_process import FusekiProcess
from oxigraph_process import OxigraphProcess
from rdf4j_process import Rdf4jProcess
from server_process import StoreProcess

_JAVA: Final[tuple[type[StoreProcess], ...]] = (FusekiProcess, Rdf4jProcess)


def _those(*kinds: type[StoreProcess]) -> list[object]:
    return [pytest.param(kind, id=kind.adapter.engine, marks=[pytest.mark.spark] * (kind in _JAVA)) for kind in kinds]


_ALL: Final = (OxigraphProcess, *_JAVA)
ALL: Final = _those(*_ALL)
SERIAL: Final = _those(*(kind for kind in _ALL if kind.adapter.capabilities.serial_updates))
LOCKING: Final = _those(*(kind for kind in _ALL if not kind.adapter.capabilities.serial_updates))
MARKED: Final = _those(*(kind for kind in _ALL if not kind.adapter.capabilities.hidden_marker))
"""Those whose marker is a triple."""
