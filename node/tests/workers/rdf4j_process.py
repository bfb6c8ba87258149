"""A real RDF4J server, with a repository on disk, that a test can kill and start again."""

from __future__ import annotations

import os

from server_process import StoreProcess

from txlog.config.units import AS_WRITTEN
from txlog.local.engines.java_runtime import obtain_java_home
from txlog.local.engines.rdf4j_server import DEFAULT_SAIL, REPOSITORY_PATH, obtain_rdf4j, prepare_rdf4j, rdf4j_command
from txlog.workers import ADAPTERS, Rdf4jAdapter

ADAPTER = Rdf4jAdapter()


class Rdf4jProcess(StoreProcess):
    adapter = ADAPTER
    query_path = ""
    update_path = ADAPTER.update_path
    data_path = "/statements"
    sail = os.environ.get("WK_SAIL", DEFAULT_SAIL)

    def at(self) -> str:
        return super().at() + REPOSITORY_PATH

    def told(self) -> list[str]:
        beside = self.folder.parent
        prepare_rdf4j(self.folder, self.sail)
        java = obtain_java_home(beside / f"{self.folder.name}-java")
        return list(rdf4j_command(obtain_rdf4j(beside / "rdf4j"), java, self.folder, self.port))


class AsWrittenProcess(Rdf4jProcess):
    """The same server as a worker that holds literals as they were sent."""

    adapter = ADAPTERS[AS_WRITTEN]
