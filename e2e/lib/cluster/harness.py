"""One master, real stores that carry out its log at once, and a client that sees each answer whole.

No Spark: what is asked here is what an accepted update does to stores, thousands of times, not how it gets there. The
applier is the one that Spark's tasks call.
"""

from __future__ import annotations

import http.client
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from email.message import Message
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from e2e.lib.cluster.masters import REPOSITORY, stop_processes, three_masters, wait_for_listener
from e2e.lib.cluster.stores import OXIGRAPH
from e2e.lib.ports import free_ports
from e2e.lib.report import CannotMeasure
from txlog.apply.applier import apply_up_to
from txlog.apply.log_source import MasterLog
from txlog.apply.outcome import Refusal, WorkerState
from txlog.client import JsonMarker, MasterClient, WorkerReport, WorkerStatus
from txlog.config.units import AS_WRITTEN
from txlog.local.engines.fuseki_server import DATASET, fuseki_command, obtain_fuseki
from txlog.local.engines.java_runtime import obtain_java_home
from txlog.local.engines.rdf4j_server import REPOSITORY_PATH, obtain_rdf4j, prepare_rdf4j, rdf4j_command
from txlog.local.engines.virtuoso_server import READY_PATH, obtain_virtuoso, prepare_virtuoso, virtuoso_command
from txlog.model.entry import Position
from txlog.workers import ADAPTERS
from txlog.workers.adapter import MarkerPosition, WorkerRequest, WorkerResponse
from txlog.workers.digest import Digest, digest_worker
from txlog.workers.http_transport import HttpTransport

MEMORY: Final = Path("/dev/shm")
UPDATE_HEADERS: Final = {"Content-Type": "application/sparql-update", "TxLog-Durability": "synced"}
TIMEOUT_S: Final = 120.0
IDLE_S: Final = 10.0
"""A connection that was idle for longer is opened again: a master closes idle ones, and stores may take long."""


class StoreBlocked(Exception):
    """A store refuses what a master has accepted. ``refused``: the transaction and the store's answer; None where the
    store is at another fault."""

    def __init__(self, message: str, refused: Refusal | None = None) -> None:
        super().__init__(message)
        self.refused = refused


class MasterAnswer(NamedTuple):
    """The answer of a master. ``position``: of the write in the log, None where the answer names none."""

    status: int
    text: str
    position: Position | None


class StoreKind(Enum):
    """Of a store."""

    DISK = "an Oxigraph on disk"
    MEMORY = "an Oxigraph in memory, where quads lie in another order"
    FUSEKI = "an Apache Jena Fuseki with TDB2"
    RDF4J = "an RDF4J server with LMDB"
    AS_WRITTEN = "an RDF4J server with LMDB that holds literals as they were sent"
    VIRTUOSO = "an OpenLink Virtuoso"


_RDF4J: Final = (StoreKind.RDF4J, StoreKind.AS_WRITTEN)
_ENGINES: Final = {
    StoreKind.FUSEKI: "fuseki",
    StoreKind.RDF4J: "rdf4j",
    StoreKind.AS_WRITTEN: AS_WRITTEN,
    StoreKind.VIRTUOSO: "virtuoso",
}
VIRTUOSO_BUFFERS: Final = 4_000


class StoreProcess:
    """A store of its own process on a free port."""

    def __init__(self, kind: StoreKind, folder: Path, log: Path) -> None:
        [self.port] = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self.adapter = ADAPTERS[_ENGINES.get(kind, "oxigraph")]
        self.kind, self._folder = kind, folder
        self.url += {StoreKind.FUSEKI: f"/{DATASET}", **dict.fromkeys(_RDF4J, REPOSITORY_PATH)}.get(kind, "")
        self._command = self._prepare_folder()
        self._log = log
        self.marker: MarkerPosition | None = None
        self._start()

    def _prepare_folder(self) -> list[str]:
        """With a new folder, where the store has one of another engine."""
        kind, folder = self.kind, self._folder
        if kind in _ENGINES:
            # TDB2 waits for the disk some twenty times in a commit; what is compared is what it holds, in memory too.
            self._files = tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else folder.parent)
            files = Path(self._files.name)
        if kind is StoreKind.VIRTUOSO:
            prepare_virtuoso(files, self.port, buffers=VIRTUOSO_BUFFERS)
            return [*virtuoso_command(obtain_virtuoso(), files)]
        if kind in _ENGINES:
            java = obtain_java_home(folder.parent / "java")
        if kind is StoreKind.FUSEKI:
            return [*fuseki_command(obtain_fuseki(), java, files, self.port)]
        if kind in _RDF4J:
            prepare_rdf4j(files)
            return [*rdf4j_command(obtain_rdf4j(folder.parent / "rdf4j"), java, files, self.port)]
        place = ["-l", str(folder)] if kind is StoreKind.DISK else []
        return [str(OXIGRAPH), "serve", *place, "-b", f"127.0.0.1:{self.port}"]

    def _start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        try:
            wait_for_listener(self.port, TIMEOUT_S)
        except BaseException:
            stop_processes([self._process])
            raise
        self.transport = HttpTransport(self.url, TIMEOUT_S)
        until = time.monotonic() + TIMEOUT_S
        while self.kind is StoreKind.VIRTUOSO and not self.transport.send(WorkerRequest("GET", READY_PATH)).ok:
            # It listens before it has read the procedures.
            if time.monotonic() > until:
                raise CannotMeasure(f"Virtuoso has no procedures; its last output: {self.last_output()}")
            time.sleep(0.05)

    def close(self) -> None:
        self.transport.close()
        stop_processes([self._process])

    def restart_empty(self) -> None:
        """Another process on the same port, and what it held is gone; not of an Oxigraph on disk."""
        self.close()
        if self.kind in _ENGINES:
            self._command = self._prepare_folder()
        self.marker = None
        self._start()

    def send(self, request: WorkerRequest) -> WorkerResponse:
        answer = self.transport.send(request)
        if not answer.ok:
            raise CannotMeasure(f"{self.url}{request.path} answered {answer.status}: {answer.text}")
        return answer

    def last_output(self) -> str:
        """The end of what its process wrote."""
        return self._log.read_text(errors="replace")[-500:]

    def digest(self) -> Digest:
        return digest_worker(self.adapter, self.transport)

    def sorted_quads(self) -> list[bytes]:
        """Everything, as sorted lines of N-Quads."""
        cleaned = b"".join(self.adapter.clean_snapshot([self.send(self.adapter.snapshot()).body]))
        return sorted(line for line in cleaned.split(b"\n") if line)


class MasterHarness:
    """``stores``: by name; those in :attr:`synchronous_stores` carry out each write before :meth:`update` returns.
    ``pid``: the master's."""

    def __init__(self, url: str, stores: Mapping[str, StoreProcess], prompt: tuple[str, ...], pid: int) -> None:
        self.url = url
        self.pid = pid
        self.stores = stores
        self.synchronous_stores = prompt
        self.master = MasterClient(url, TIMEOUT_S)
        self.last = Position(0, 0, b"")
        self._log = MasterLog(self.master)
        self._http = http.client.HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_S)
        self._answered_at = 0.0

    def close(self) -> None:
        self._http.close()
        self.master.close()

    def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> MasterAnswer:
        """One request to the repository, ``path`` behind its own."""
        status, found, text = self.exchange(method, path, body, headers)
        return MasterAnswer(status, text.decode("utf-8", "replace"), self.note_position(found["TxLog-Position"]))

    def exchange(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[int, Message, bytes]:
        """The same with the answer as it is: status, headers, body. Its position is noted."""
        if time.monotonic() > self._answered_at + IDLE_S:
            self._http.close()
        self._http.request(method, f"/repositories/{REPOSITORY}{path}", body=body, headers=dict(headers or {}))
        answer = self._http.getresponse()
        self.note_position(answer.headers["TxLog-Position"])
        text = answer.read()
        self._answered_at = time.monotonic()
        return answer.status, answer.headers, text

    def note_position(self, header: str | None) -> Position | None:
        """The position in an answer of this master, also to another client: the stores are to reach it."""
        if header is None:
            return None
        epoch, index, value = header.split(":")
        self.last = Position(int(epoch), int(index), bytes.fromhex(value))
        return self.last

    def update(self, text: str, path: str = "/statements") -> MasterAnswer:
        """Send an update; a success is carried out by the prompt stores when this returns."""
        answer = self.request("POST", path, text.encode(), UPDATE_HEADERS)
        if answer.status == 204:
            self.apply_all(*self.synchronous_stores)
        elif answer.status < 300:
            raise CannotMeasure(f"the master answered {answer.status}: {answer.text}")
        return answer

    def write(self, method: str, path: str, body: bytes, media: str) -> MasterAnswer:
        """Another write than an update; as :meth:`update`."""
        answer = self.request(method, path, body, {"Content-Type": media, "TxLog-Durability": "synced"})
        if answer.status != 204:
            raise CannotMeasure(f"the master answered {answer.status} to {method} {path}: {answer.text}")
        self.apply_all(*self.synchronous_stores)
        return answer

    def apply_all(self, *names: str) -> None:
        """Bring these stores to the last write. :class:`StoreBlocked` when one refuses."""
        for name in names:
            store = self.stores[name]
            until = time.monotonic() + TIMEOUT_S
            while store.marker is None or store.marker.position.index < self.last.index:
                outcome = apply_up_to(
                    store.adapter,
                    store.transport,
                    self._log,
                    self.last.index,
                    epoch=self.last.epoch,
                    cached=store.marker,
                    budget_s=TIMEOUT_S,
                    execution_s=TIMEOUT_S,
                )
                store.marker = outcome.position
                if outcome.state is not WorkerState.WORKING:
                    raise StoreBlocked(
                        f"{name}: {outcome.state}: {outcome.error}; its last output: {store.last_output()}",
                        outcome.refused,
                    )
                if time.monotonic() > until:
                    raise CannotMeasure(f"{name} is not at {self.last.index} after {TIMEOUT_S:g} s: {outcome.error}")
            self._report_position(name)

    def _report_position(self, name: str) -> None:
        marker = self.stores[name].marker
        if marker is None:
            return
        position = marker.position
        place = JsonMarker(position.epoch, position.index, position.hash.hex(), marker.fence)
        self.master.report_worker(name, WorkerReport(place, WorkerState.WORKING.value, None, None, None, None))


def _settled_workers(master: MasterClient) -> list[WorkerStatus]:
    """The workers, with the form of literals that the cluster was founded with. They are paused until it is known."""
    until = time.monotonic() + TIMEOUT_S
    while True:
        found = list(master.status().workers)
        if all(worker.hold != 0 for worker in found):
            return found
        if time.monotonic() > until:
            raise CannotMeasure("the master does not know in which form its stores hold literals")
        time.sleep(0.05)


@contextmanager
def start_master_harness(
    folder: Path, stores: Mapping[str, StoreKind], prompt: tuple[str, ...], **settings: Any
) -> Iterator[MasterHarness]:
    """A master and its stores, until the end. ``stores``: by name; ``settings``: further fields of the master's
    configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        running: dict[str, StoreProcess] = {}
        for name, kind in stores.items():
            running[name] = StoreProcess(kind, folder / name, folder / f"{name}.log")
            stack.callback(running[name].close)
        workers = [{"name": name, "url": store.url, "engine": store.adapter.engine} for name, store in running.items()]
        nodes = (("uk-1", "uk"),)
        masters = stack.enter_context(
            three_masters(folder / "masters", nodes=nodes, start_s=TIMEOUT_S, workers=workers, **settings)
        )
        made = MasterHarness(masters.urls[0], running, prompt, masters.pids[nodes[0][0]])
        stack.callback(made.close)
        for worker in _settled_workers(made.master):
            running[worker.name].adapter = ADAPTERS[worker.engine]
        yield made
