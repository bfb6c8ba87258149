"""A real Apache Jena Fuseki, with TDB2 on disk, that a test can kill and start again."""

from __future__ import annotations

from pathlib import Path

from server_process import StoreProcess

from txlog.local.engines.fuseki_server import DATASET, fuseki_command, obtain_fuseki
from txlog.local.engines.java_runtime import obtain_java_home
from txlog.workers import FusekiAdapter

ADAPTER = FusekiAdapter()


class FusekiProcess(StoreProcess):
    """``without``: an argument of the command that is left out, with its value."""

    adapter = ADAPTER

    def __init__(self, folder: Path, *, without: str = "") -> None:
        self.without = without
        super().__init__(folder)

    def at(self) -> str:
        return f"{super().at()}/{DATASET}"

    def told(self) -> list[str]:
        self.folder.mkdir(parents=True, exist_ok=True)
        java = obtain_java_home(self.folder.parent / f"{self.folder.name}-java")
        command = list(fuseki_command(obtain_fuseki(), java, self.folder, self.port))
        if self.without:
            at = command.index(self.without)
            del command[at : at + 2]
        return command
