"""The process of one store, by its engine. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from txlog.config.units import server_of_engine
from txlog.local.engines.fuseki_server import DATASET, fuseki_command
from txlog.local.engines.rdf4j_server import REPOSITORY_PATH, Rdf4jFiles, rdf4j_command
from txlog.local.engines.virtuoso_server import READY_PATH as VIRTUOSO_READY_PATH
from txlog.local.engines.virtuoso_server import virtuoso_command
from txlog.local.process_spec import ProcessSpec, loopback_url
from txlog.local.state_folder import StateFolder, WorkerLocation

_ENDPOINT_PATHS = {"fuseki": f"/{DATASET}", "rdf4j": REPOSITORY_PATH}
"""Path of the worker's endpoint on the server of this engine."""
_READY_PATHS = {"rdf4j": "/size", "virtuoso": VIRTUOSO_READY_PATH}
"""Suffix of that path for the readiness check, where the endpoint itself does not answer at once."""


@dataclass(frozen=True)
class StorePrograms:
    """``oxigraph`` and ``virtuoso``: the paths of the stores' programs, ``fuseki``: that of its jar, ``rdf4j``: those
    of its files, where a manifest uses them."""

    oxigraph: str
    java_home: Path
    fuseki: Path | None = None
    rdf4j: Rdf4jFiles | None = None
    virtuoso: Path | None = None


def store_url(port: int, engine: str) -> str:
    """The endpoint of a store of this machine."""
    return loopback_url(port) + _ENDPOINT_PATHS.get(server_of_engine(engine), "")


def store_program(worker: WorkerLocation, state: StateFolder, files: StorePrograms) -> ProcessSpec:
    """The process of a store that TxLog runs."""
    folder = state.worker(worker.name)
    command: tuple[str, ...] = (files.oxigraph, "serve", "-l", str(folder), "-b", urlsplit(worker.url).netloc)
    if worker.engine == "fuseki":
        assert files.fuseki is not None, "obtained where a manifest uses it"
        command = fuseki_command(files.fuseki, files.java_home, folder, urlsplit(worker.url).port or 0)
    elif server_of_engine(worker.engine) == "rdf4j":
        assert files.rdf4j is not None, "obtained where a manifest uses it"
        command = rdf4j_command(files.rdf4j, files.java_home, folder, urlsplit(worker.url).port or 0)
    elif worker.engine == "virtuoso":
        assert files.virtuoso is not None, "obtained where a manifest uses it"
        command = virtuoso_command(files.virtuoso, folder)
    return ProcessSpec(
        name=worker.name,
        role="worker",
        data_center=worker.data_center,
        command=command,
        url=worker.url,
        ready_path=_READY_PATHS.get(server_of_engine(worker.engine), "/"),
    )
