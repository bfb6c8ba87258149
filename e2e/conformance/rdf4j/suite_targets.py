"""What RDF4J's suites are run against: an RDF4J server, a master with one store, and a store that is asked directly."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final

from e2e.conformance.rdf4j.rdf4j_process import PATH, rdf4j_server
from e2e.conformance.rdf4j.suite_programs import SuiteTarget
from e2e.lib.cluster.harness import TIMEOUT_S, StoreKind, StoreProcess, start_master_harness
from e2e.lib.cluster.masters import REPOSITORY
from e2e.lib.report import CannotMeasure
from txlog.apply.applier import apply_up_to
from txlog.apply.log_source import MasterLog
from txlog.client import JsonMarker, MasterClient, WorkerReport
from txlog.model.errors import TxLogError

STORE_KINDS: Final = {"oxigraph": StoreKind.DISK, "rdf4j": StoreKind.RDF4J}
BELL_S: Final = 1.0
"""How long the master is asked to wait for something to apply: an end is noticed so late."""
_WORKER: Final = "worker"


class StoreFollower:
    """Applies the log to a store as soon as it grows, in a thread of its own, and reports each position: a pipeline
    without Spark."""

    def __init__(self, url: str, name: str, store: StoreProcess) -> None:
        self._name, self._store = name, store
        self._master = MasterClient(url, TIMEOUT_S)
        self._log = MasterLog(self._master)
        self._ended = threading.Event()
        self._moved = threading.Condition()
        self._at = 0
        self.error: str | None = None
        self._thread = threading.Thread(target=self._follow, name=f"follower of {name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join(TIMEOUT_S)
        self._master.close()

    def wait_for(self, index: int) -> None:
        """Until the store is at ``index``. :class:`CannotMeasure` when it does not get there."""
        with self._moved:
            if not self._moved.wait_for(lambda: self._at >= index, TIMEOUT_S):
                raise CannotMeasure(f"the store is at {self._at} and not at {index}: {self.error}")

    def _follow(self) -> None:
        while not self._ended.is_set():
            try:
                self._apply(self._at)
            except TxLogError as not_now:
                self.error = str(not_now)
                time.sleep(0.05)

    def _apply(self, after: int) -> None:
        stable = self._master.doorbell(after, timeout_s=BELL_S).stable
        if stable.index <= after:
            return
        store = self._store
        outcome = apply_up_to(
            store.adapter,
            store.transport,
            self._log,
            stable.index,
            epoch=stable.epoch,
            cached=store.marker,
            budget_s=TIMEOUT_S,
        )
        store.marker, self.error = outcome.position, outcome.error
        if store.marker is None:
            return
        position = store.marker.position
        place = JsonMarker(position.epoch, position.index, position.hash.hex(), store.marker.fence)
        report = WorkerReport(place, outcome.state.value, outcome.error, None, None, None)
        self._master.report_worker(self._name, report)
        with self._moved:
            self._at = position.index
            self._moved.notify_all()


def _wait_for_protocol(server: str) -> None:
    """Until the web application behind the listener answers."""
    until = time.monotonic() + TIMEOUT_S
    where, _, path = server.removeprefix("http://").partition("/")
    last = "nothing"
    while time.monotonic() < until:
        with closing(http.client.HTTPConnection(where, timeout=TIMEOUT_S)) as connection:
            try:
                connection.request("GET", f"/{path}/protocol")
                answer = connection.getresponse()
                last = f"{answer.status} {answer.read()[:100]!r}"
                if answer.status == 200:
                    return
            except (OSError, http.client.HTTPException) as not_yet:
                last = str(not_yet)
        time.sleep(0.2)
    raise CannotMeasure(f"{server} does not answer: {last}")


@contextmanager
def server_target(folder: Path) -> Iterator[SuiteTarget]:
    """A real RDF4J server."""
    with rdf4j_server(folder) as where:
        yield SuiteTarget("jetty", f"http://{where}{PATH}", REPOSITORY)


@contextmanager
def master_target(folder: Path, engine: str) -> Iterator[SuiteTarget]:
    """A master with one store of ``engine`` (a key of :data:`STORE_KINDS`)."""
    with ExitStack() as stack:
        at = stack.enter_context(start_master_harness(folder, {_WORKER: STORE_KINDS[engine]}, ()))
        follower = StoreFollower(at.url, _WORKER, at.stores[_WORKER])
        stack.callback(follower.close)
        at.update("DROP ALL")  # a master answers no read before its store has executed a transaction
        follower.wait_for(at.last.index)
        yield SuiteTarget("rdf4j", f"{at.url}{PATH}", REPOSITORY)


@contextmanager
def store_target(folder: Path, engine: str) -> Iterator[SuiteTarget]:
    """A store of ``engine``, as a worker has it, that no master knows."""
    folder.mkdir(parents=True, exist_ok=True)
    with closing(StoreProcess(STORE_KINDS[engine], folder / "store", folder / "store.log")) as store:
        if engine == "rdf4j":
            server, _, name = store.url.partition("/repositories/")
            _wait_for_protocol(server)
            yield SuiteTarget("jetty", server, name)
        else:
            yield SuiteTarget("sparql", f"{store.url}/query", f"{store.url}/update")
