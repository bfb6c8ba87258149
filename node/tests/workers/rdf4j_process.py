"""A real RDF4J server, with a repository on disk, that a test can kill and start again."""

from __future__ import annotations

import os

from server_process import SWIFT, StoreProcess

from txlog.local.java import find_java_home
from txlog.local.rdf4j import PATH, SAIL, find_rdf4j, prepare_rdf4j, rdf4j_command
from txlog.workers import Rdf4jAdapter

ADAPTER = Rdf4jAdapter()


class Rdf4jProcess(StoreProcess):
    adapter = ADAPTER
    query_path = ""
    update_path = ADAPTER.update_path
    data_path = "/statements"
    environment = SWIFT
    sail = os.environ.get("WK_SAIL", SAIL)

    def at(self) -> str:
        return super().at() + PATH

    def told(self) -> list[str]:
        beside = self.folder.parent
        prepare_rdf4j(self.folder, self.sail)
        java = find_java_home(beside / f"{self.folder.name}-java")
        return list(rdf4j_command(find_rdf4j(beside / "rdf4j"), java, self.folder, self.port))
