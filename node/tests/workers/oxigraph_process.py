"""A real Oxigraph server that a test can kill and start again."""

from __future__ import annotations

import sys
from pathlib import Path

from server_process import StoreProcess

from txlog.workers import OxigraphAdapter
from txlog.workers.adapter import MarkerPosition, WorkerResponse
from txlog.workers.marker_names import marker_name

BINARY = Path(sys.executable).parent / "oxigraph"
ADAPTER = OxigraphAdapter()


class OxigraphProcess(StoreProcess):
    adapter = ADAPTER
    slow = 1
    data_path = "/store"

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.arguments = arguments
        super().__init__(folder)

    def told(self) -> list[str]:
        return [str(BINARY), "serve", "-l", str(self.folder), "-b", f"127.0.0.1:{self.port}", *self.arguments]

    def plant(self, marker: MarkerPosition) -> WorkerResponse:
        return self.update(f"CREATE GRAPH <{marker_name(marker)}>")

    def graphs(self) -> list[str]:
        """Every named graph, empty ones and ours too."""
        return self.select("SELECT ?g { GRAPH ?g {} }")
