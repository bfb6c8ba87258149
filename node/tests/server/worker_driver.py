"""The apply core in a thread, in the place of the Spark application: one worker, one master."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "workers"))
from master_cluster import Cluster
from oxigraph_process import OxigraphProcess as OxigraphProcess
from server_process import StoreProcess

from txlog.apply.applier import apply_up_to
from txlog.apply.log_source import MasterLog
from txlog.client import JsonMarker, MasterClient, WorkerReport
from txlog.model.errors import TxLogError
from txlog.workers.http_transport import HttpTransport

TOOK_MS = 7.0
"""What it says that one transaction took."""


class Driver:
    """Listens to the doorbell of a master, applies to ``store``, reports. ``connect`` makes the client of the log."""

    def __init__(
        self,
        master_url: str,
        name: str,
        store: StoreProcess,
        connect: Callable[[str], MasterClient] = lambda url: MasterClient(url, 5),
    ) -> None:
        self._connect = connect
        self._paused = threading.Event()
        self._idle = threading.Event()
        self._url = master_url
        self._name = name
        self._store = store
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def pause(self) -> None:
        """Returns when its last round is over."""
        self._idle.clear()
        self._paused.set()
        assert self._idle.wait(60)

    def resume(self) -> None:
        self._paused.clear()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        after, tick, held = -1, 0, None
        # A connection of its own: the test asks the store over the store's.
        with self._connect(self._url) as master, HttpTransport(self._store.url, 60) as transport:
            while not self._stop.is_set():
                if self._paused.is_set():
                    self._idle.set()
                    self._stop.wait(0.02)
                    continue
                with contextlib.suppress(TxLogError):
                    bell = master.doorbell(max(0, after), tick, 0.3)
                    tick = bell.tick
                    hold = next(w.hold for w in bell.workers if w.name == self._name)
                    outcome = apply_up_to(
                        self._store.adapter,
                        transport,
                        MasterLog(master),
                        bell.stable.index,
                        epoch=bell.stable.epoch,
                        hold=hold,
                        held=held,
                    )
                    held = outcome.foreign_lock
                    at, refused = outcome.position, outcome.refused
                    place, before = None, max(0, after)
                    if at is not None:
                        position = at.position
                        place = JsonMarker(position.epoch, position.index, position.hash.hex(), at.fence)
                        after = position.index
                    master.report_worker(
                        self._name,
                        WorkerReport(
                            place,
                            outcome.state.value,
                            outcome.error,
                            refused.status if refused else None,
                            refused.body if refused else None,
                            str(refused.txid) if refused else None,
                            took_ms=TOOK_MS * (max(0, after) - before),
                        ),
                    )


class Served:
    """A cluster with a store that a driver brings up to the log."""

    def __init__(self, cluster: Cluster, store: StoreProcess, driver: Driver) -> None:
        self.cluster, self.store, self.driver = cluster, store, driver

    async def ask(self, at: int, text: str, **headers: str) -> list[dict[str, Any]]:
        sent = {"Accept": "application/sparql-results+json"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        told = await self.cluster.get(at, "/repositories/demo", params={"query": text}, headers=sent)
        return list(told["results"]["bindings"])

    async def send(
        self, method: str, path: str, body: bytes | str = b"", at: int = 0, status: int = 204, **headers: str
    ) -> str:
        """The answer's text; a write is applied when it is there."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        data = body.encode() if isinstance(body, str) else body
        async with self.cluster.session.request(
            method, self.cluster.url(at, f"/repositories/demo{path}"), data=data, headers=sent
        ) as answer:
            text = await answer.text()
            assert answer.status == status, (answer.status, text)
            return text

    async def quads(self, at: int = 0) -> list[str]:
        """Everything there is, sorted."""
        text = await self.send("GET", "/statements", at=at, status=200, Accept="application/n-quads")
        return sorted(text.splitlines())
