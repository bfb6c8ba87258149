"""Remembers everything that any master ever called stable, also what a rejoin takes back or a trim removes."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from txlog.client import MasterClient
from txlog.client.responses import JsonMarker, WorkerReport
from txlog.model.errors import LogAhead, LogDiverged, LogNeedsRestore, TxLogError

PAUSE_S: Final = 0.1
TURNS_PER_REPORT: Final = 10
NO_STORE: Final = "http://127.0.0.1:9"


class StableLogs:
    """One thread for each master reads its log up to the stable index. Now and then it reports a worker and a backup
    there, so the masters trim. ``trimmed``: the highest log start that was seen."""

    def __init__(self, urls: Mapping[str, str]) -> None:
        self.nodes = list(urls)
        self.trimmed = 0
        self._seen: dict[str, set[tuple[int, bytes]]] = {node: set() for node in urls}
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(node, url), name=f"log-{node}", daemon=True)
            for node, url in urls.items()
        ]
        for each in self._threads:
            each.start()

    def stop(self) -> None:
        self._stop.set()
        for each in self._threads:
            each.join(60)

    def seen(self, nodes: Iterable[str]) -> set[tuple[int, bytes]]:
        """Index and chain hash of each entry that was stable at one of these masters."""
        return set[tuple[int, bytes]]().union(*(self._seen[node] for node in nodes))

    def _run(self, node: str, url: str) -> None:
        after: tuple[int, bytes | None] = (0, None)
        turn = 0
        with MasterClient(url, 10.0) as master:
            while not self._stop.wait(PAUSE_S):
                turn += 1
                with suppress(TxLogError):
                    if turn % TURNS_PER_REPORT == 0:
                        self._report_store(node, master)
                    after = self._read(node, master, after)

    def _read(self, node: str, master: MasterClient, after: tuple[int, bytes | None]) -> tuple[int, bytes | None]:
        try:
            # With keys a page ends at the stable index, also where workers may execute more.
            page = master.log_page(after[0], after[1], keys=True)
        except LogAhead:
            return after
        except (LogDiverged, LogNeedsRestore):
            trim: Any = master.status().trim or {}
            return (int(trim.get("keptFrom", 0)), None)
        self._seen[node].update((entry.index, entry.hash) for entry in page.entries)
        return (page.entries[-1].index, page.entries[-1].hash) if page.entries else after

    def _report_store(self, node: str, master: MasterClient) -> None:
        """As a pipeline and a backup of its worker would."""
        status = master.status()
        stable = status.stable
        master.add_worker(f"{node}-store", NO_STORE, "oxigraph")
        marker = JsonMarker(1, stable.index, stable.hash)
        master.report_worker(f"{node}-store", WorkerReport(marker, "Working"))
        master.register_backups([{"name": "nightly", "index": stable.index, "hash": stable.hash}])
        self.trimmed = max(self.trimmed, int((status.trim or {}).get("keptFrom", 0)))
